/* plan/search.h: the cheapest layouts of a graph's values for given shares, by elimination over the factor
 * graph of values: a variable's states are the sets of layouts in which the value exists. */
#ifndef TSR_PLAN_SEARCH_H
#define TSR_PLAN_SEARCH_H

#include "plan/plan.h"

enum { TSR_STATES_MAX = 24 };

typedef struct tsr_search_options {
  double price; /* nanoseconds per byte of memory on the member that holds most; 0 = memory is free */
  /* Explanations: this value must be produced in this layout, whatever the policy says of it; id 0 = free
   * choice. */
  tsr_value forced;
  tsr_place forced_place;
  bool replicate_all; /* every parameter must be replicated; the policy is set aside */
  /* Costs of nodes at their own best shares instead of the plan's: a lower bound. [node * TSR_RULES_MAX +
   * rule], nanoseconds; NULL = at the plan's shares. */
  const int64_t *node_costs;
} tsr_search_options;

/* Fills decision.choices and decision.rules for decision.active and decision.offsets. *nanoseconds = the
 * cost, TSR_COST_FORBIDDEN or more if no assignment is allowed (choices are then undefined); *exact = the
 * search was. */
tsr_status tsr_plan_search(tsr_plan *plan, const tsr_search_options *options, int64_t *nanoseconds,
                           bool *exact, tsr_error *error);

/* The cost of the plan's own layouts and cuts, as the search reckons: step by step, each as slow as its
 * slowest member, memory free. */
int64_t tsr_plan_layout_cost(tsr_plan *plan);

/* Whether the policy forbids a replicated copy of this value (a parameter of two or more axes). */
bool tsr_plan_must_split(const tsr_plan *plan, tsr_value value);

#endif
