/* plan/order.h: in which order steps are enqueued, and which collectives each of them waits for. */
#ifndef TSR_PLAN_ORDER_H
#define TSR_PLAN_ORDER_H

#include "plan/plan.h"

/* A value in a layout, as a step reads it. */
typedef struct tsr_use {
  tsr_value value;
  tsr_place place;
} tsr_use;
enum { TSR_USES_MAX = TSR_NODE_INPUTS_MAX + TSR_FUSED_MAX };
int tsr_plan_step_reads(const tsr_plan *plan, const tsr_step *step, tsr_use *out);

/* Puts steps that are in the order of the graph into that of the plan, and cuts those of which the decision
 * says so. Where the plan overlaps, a product whose result is reduced goes before others that could begin, a
 * collective follows what it reads at once, and what waits for one goes behind what does not; never by more
 * than a few steps, so that little more stays in memory. By structure alone: no two machines may disagree. */
tsr_status tsr_plan_order(tsr_plan *plan, tsr_error *error);

/* The first step behind CONVERT step `convert` that reads what it makes; step_count = none. */
int tsr_plan_first_reader(const tsr_plan *plan, int convert);

/* Sets waits_for of every step, from the storages that it and the collectives before it touch: each then
 * finds what it would find if nothing overlapped. */
tsr_status tsr_plan_find_waits(tsr_plan *plan, tsr_error *error);

#endif
