/* plan/fuse.h: nodes that are computed in one step with the node whose result they take: a product with its
 * epilogue (device/device.h), an addition of a bias or a convolution with its activation. */
#ifndef TSR_PLAN_FUSE_H
#define TSR_PLAN_FUSE_H

#include "plan/plan.h"

/* Fills step->fused and fused_count for a NODE step of step->node, and step->value, the value it then makes.
 * What joins a step: the only reader of the value so far, where that is neither an output nor assigned, in
 * one layout, row-major, and computed in that layout; its other operand has been made before step->node. In a
 * partial layout that is an addition alone, of which a member adds what it is the owner of. A product takes,
 * in this order and each at most once, the factors of the columns of a weight in i8, a bias, an activation, a
 * gate and a residual; an addition or a convolution an activation. */
void tsr_plan_fuse(const tsr_plan *plan, tsr_step *step);

#endif
