/* plan/cuts.h: where each dimension is cut over the active members. */
#ifndef TSR_PLAN_CUTS_H
#define TSR_PLAN_CUTS_H

#include "plan/plan.h"

/* Shares follow the members' speed on the whole graph, in whole grains; pins with offsets are kept. */
tsr_status tsr_cuts_begin(tsr_plan *plan, tsr_error *error);

/* Improves the cuts of every dimension that the present choices split: the least time of the steps that are
 * split along it, under the memory that each member has (less short_bytes[active index], may be NULL), judged
 * by the lowered plan. *changed = something moved; *fits = false if some dimension's capacity does not
 * suffice (the cuts then follow capacity). */
tsr_status tsr_cuts_improve(tsr_plan *plan, const uint64_t *short_bytes, bool *changed, bool *fits,
                            tsr_error *error);

/* Nanoseconds of a node by a rule at its own best shares (in whole grains; pinned ones as they are), every
 * member's memory unlimited: a lower bound. */
tsr_status tsr_cuts_node_bound(const tsr_plan *plan, int node, const tsr_rule *rule, int64_t *nanoseconds,
                               tsr_error *error);

/* Cuts every dimension without pinned offsets evenly, in whole grains: no collective is cheaper. */
void tsr_cuts_even(tsr_plan *plan);

/* Whether all active members are the same to the planner. */
bool tsr_cuts_all_alike(const tsr_plan *plan);

/* Whether two members are the same to the planner, memory aside. */
bool tsr_members_alike(const tsr_cluster_member *a, const tsr_cluster_member *b);

/* Seconds of the whole graph's live nodes on one member alone. */
double tsr_cuts_alone_seconds(const tsr_plan *plan, int member);

/* Sets straggle_seconds for the active members: equal members never arrive at the same moment, so every
 * synchronisation costs a little of what the step takes at best. It makes one all-reduce better than a
 * reduce-scatter and an all-gather with next to nothing in between. */
void tsr_cuts_set_straggling(tsr_plan *plan);

/* Bytes of a member that may be used: its memory less the reserve. */
uint64_t tsr_plan_usable_bytes(const tsr_plan *plan, int member);

#endif
