/* plan/plan_text.h: parts of a plan's text. */
#ifndef TSR_PLAN_PLAN_TEXT_H
#define TSR_PLAN_PLAN_TEXT_H

#include "base/text.h"
#include "plan/plan.h"

/* "matmul nn hidden", "all-reduce y": a step for people. Returns buffer. */
char *tsr_plan_step_text(const tsr_plan *plan, const tsr_step *step, char *buffer, size_t bytes);

/* "bias", "gelu", "gate", "residual". */
const char *tsr_plan_fused_name(const tsr_plan *plan, const tsr_fused *fused);

/* What lost, and by how much: each parameter in each other layout, everything replicated, one device alone.
 */
tsr_status tsr_plan_explain(const tsr_plan *plan, tsr_text *text, tsr_error *error);

#endif
