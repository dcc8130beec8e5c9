/* plan/decide.h: making the decision, whole or under a condition (for explanations). */
#ifndef TSR_PLAN_DECIDE_H
#define TSR_PLAN_DECIDE_H

#include "plan/search.h"

/* As tsr_plan_decide, with a forced layout or the policy set aside. plan holds graph, cluster, options and
 * dims; its decision is empty. A refusal for memory is TSR_OK with feasible = false and the reason. */
tsr_status tsr_plan_decide_with(tsr_plan *plan, tsr_search_options options, tsr_error *error);

/* Whether the lowered plan fits every member's memory and allocations. */
bool tsr_plan_fits(const tsr_plan *plan);

/* Frees what a plan on the stack owns: everything but graph and dims. */
void tsr_plan_release(tsr_plan *plan);

#endif
