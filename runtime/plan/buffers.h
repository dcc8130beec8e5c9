/* plan/buffers.h: which memory a plan needs, and for how long. */
#ifndef TSR_PLAN_BUFFERS_H
#define TSR_PLAN_BUFFERS_H

#include "plan/plan.h"

/* Whether the value assigned to target can be computed in target's own memory: its node is elementwise on the
 * target's own elements, in the same layout and form, and nobody reads the old contents later, no other
 * assign either. */
bool tsr_plan_updates_in_place(const tsr_plan *plan, tsr_value target);

/* Whether a value is stored in the device's panel form: a weight that is only ever the second operand of
 * products (or updated elementwise), and its gradient and update. */
bool tsr_plan_is_panels(const tsr_plan *plan, tsr_value value);

/* Makes buffers and storages from the steps, and the members' lines, bytes and host bytes. OUT_OF_MEMORY
 * alone; what does not fit its device is the caller's to see from the members. */
tsr_status tsr_plan_allocate(tsr_plan *plan, tsr_error *error);

/* Index of the storage of line WORKSPACE; -1 = none is needed. */
int tsr_plan_workspace(const tsr_plan *plan);

#endif
