/* plan/plan_json.h: "tessera.plan/1". */
#ifndef TSR_PLAN_PLAN_JSON_H
#define TSR_PLAN_PLAN_JSON_H

#include "plan/plan.h"

/* An empty plan that takes graph and cluster, also when it fails. */
tsr_status tsr_plan_new(tsr_context *context, tsr_graph *graph, tsr_cluster *cluster,
                        const tsr_plan_options *options, tsr_plan **out, tsr_error *error);

/* Of what decides the bits of a result: graph, decision, and each member's device, driver and kernels. */
tsr_status tsr_plan_hash(const tsr_plan *plan, uint64_t *out, tsr_error *error);

/* The whole document; a new reference, NULL = no memory. */
json_t *tsr_plan_to_json(const tsr_plan *plan);

/* "replicate", "shard(1)", ... of a value as a plan's reader wants it. */
const char *tsr_replicate_name(tsr_replicate replicate);

#endif
