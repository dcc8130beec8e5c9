/* What steps cost, and how long all of them take with collectives behind kernels. */
#include <string.h>

#include "base/memory.h"
#include "plan/chunks.h"
#include "plan/cost.h"

static const char *bound_of(const tsr_plan *plan, const tsr_step *step, int active_index, double seconds,
                            double bytes) {
  const tsr_cluster_member *member = &plan->cluster->members[plan->decision.active[active_index]];
  if (seconds <= 1.5 * member->launch_seconds) return "launch";
  double memory = bytes / member->memory_bandwidth;
  const tsr_operator op = step->kind == TSR_STEP_NODE ? plan->graph->nodes[step->node].op : TSR_OPERATOR_ADD;
  bool product = op == TSR_OPERATOR_MATMUL || tsr_operator_is_conv(op);
  return product && memory < 0.7 * seconds ? "compute" : "memory";
}

static tsr_step_cost copy_cost(const tsr_plan *plan, const tsr_step *step, int r) {
  const tsr_cluster_member *member = &plan->cluster->members[plan->decision.active[r]];
  tsr_shape shape = tsr_plan_local_shape(plan, step->value, step->to, r);
  double bytes = 2.0 * (double)tsr_shape_count(&shape) *
                 (double)tsr_dtype_bytes(tsr_graph_at(plan->graph, step->value)->dtype);
  return (tsr_step_cost){.seconds = tsr_cost_elementwise(member, bytes), .bytes = bytes};
}

static tsr_step_cost convert_cost(const tsr_plan *plan, const tsr_step *step, int r) {
  int64_t counts[plan->decision.active_count];
  tsr_collective_options options;
  tsr_plan_collective(plan, step, counts, &options);
  return (tsr_step_cost){.seconds = tsr_cost_collective(plan->cluster, &options) + plan->straggle_seconds,
                         .bytes = (double)tsr_collective_sent_bytes(&options, r)};
}

/* Bytes of what the fused nodes read beside the step's own result. */
static double fused_bytes(const tsr_plan *plan, const tsr_step *step, int r) {
  double bytes = 0;
  for (int i = 0; i < step->fused_count; i++) {
    const tsr_fused *fused = &step->fused[i];
    if (fused->operand < 0) continue;
    tsr_value operand = plan->graph->nodes[fused->node].inputs[fused->operand];
    tsr_shape shape =
        tsr_plan_local_shape(plan, operand, tsr_plan_rule(plan, fused->node).in[fused->operand], r);
    bytes +=
        (double)tsr_shape_count(&shape) * (double)tsr_dtype_bytes(tsr_graph_at(plan->graph, operand)->dtype);
  }
  return bytes;
}

static tsr_step_cost lone_node_cost(const tsr_plan *plan, const tsr_step *step, int index, int r) {
  const tsr_cluster_member *member = &plan->cluster->members[plan->decision.active[r]];
  const tsr_node *node = &plan->graph->nodes[index];
  tsr_rule rule = tsr_plan_rule(plan, index);
  tsr_shape inputs[TSR_NODE_INPUTS_MAX], output = tsr_plan_local_shape(plan, node->output, rule.out, r);
  for (int j = 0; j < node->input_count; j++)
    inputs[j] = tsr_plan_local_shape(plan, node->inputs[j], rule.in[j], r);
  tsr_plan_chunk_shapes(plan, step, inputs, &output);
  tsr_step_cost cost = {.flops = tsr_operator_rules_of(node->op)->flops(node, inputs, &output)};
  cost.seconds = tsr_cost_node(member, plan->graph, node, inputs, &output, &cost.bytes);
  if (cost.seconds > 0 && step->chunks > 1) /* a launch for each of its ranges */
    cost.seconds += (tsr_plan_chunk_ranges(plan, step) - 1) * member->launch_seconds;
  return cost;
}

static tsr_step_cost node_cost(const tsr_plan *plan, const tsr_step *step, int r) {
  const tsr_cluster_member *member = &plan->cluster->members[plan->decision.active[r]];
  tsr_step_cost cost = lone_node_cost(plan, step, step->node, r);
  for (int i = 0; i < step->fused_count; i++)
    cost.flops += lone_node_cost(plan, step, step->fused[i].node, r).flops;
  double more = fused_bytes(plan, step, r);
  cost.bytes += more;
  cost.seconds += more / member->memory_bandwidth;
  return cost;
}

tsr_step_cost tsr_plan_step_cost(const tsr_plan *plan, const tsr_step *step, int active_index) {
  return step->kind == TSR_STEP_COPY      ? copy_cost(plan, step, active_index)
         : step->kind == TSR_STEP_CONVERT ? convert_cost(plan, step, active_index)
                                          : node_cost(plan, step, active_index);
}

/* When the device of each member, and the network, have done what they were given. */
typedef struct clocks {
  double *devices; /* [active index] */
  double network;
  double *ended; /* [step]: of CONVERT steps */
} clocks;

static void wait_for(const tsr_plan *plan, const tsr_step *step, clocks *at) {
  for (int r = 0; step->waits_for >= 0 && r < plan->decision.active_count; r++)
    if (at->ended[step->waits_for] > at->devices[r]) at->devices[r] = at->ended[step->waits_for];
}

/* A collective begins when the last member has come to it, and when the one before has ended. */
static void time_convert(tsr_plan *plan, int index, clocks *at) {
  tsr_step *step = &plan->steps[index];
  wait_for(plan, step, at);
  int n = plan->decision.active_count;
  int64_t counts[n];
  tsr_collective_options options;
  tsr_plan_collective(plan, step, counts, &options);
  step->seconds = tsr_cost_collective(plan->cluster, &options) + plan->straggle_seconds;
  step->bound_by = "network";
  for (int r = 0; r < n; r++) {
    uint64_t sent = tsr_collective_sent_bytes(&options, r);
    plan->members[plan->decision.active[r]].sent_bytes += sent;
    if (sent > step->bytes) step->bytes = sent;
    if (at->devices[r] > at->network) at->network = at->devices[r];
  }
  at->network += step->seconds;
  at->ended[index] = at->network;
}

static void time_compute(tsr_plan *plan, int index, clocks *at) {
  tsr_step *step = &plan->steps[index];
  step->bound_by = "launch";
  wait_for(plan, step, at);
  for (int r = 0; r < plan->decision.active_count; r++) {
    tsr_step_cost cost = tsr_plan_step_cost(plan, step, r);
    at->devices[r] += cost.seconds;
    tsr_plan_member *member = &plan->members[plan->decision.active[r]];
    member->compute_seconds += cost.seconds;
    member->share += cost.flops; /* made a share below */
    if ((uint64_t)cost.bytes > step->bytes) step->bytes = (uint64_t)cost.bytes;
    if (cost.seconds <= step->seconds) continue;
    step->seconds = cost.seconds;
    step->bound_by = bound_of(plan, step, r, cost.seconds, cost.bytes);
  }
}

static void share_work(tsr_plan *plan) {
  double total = 0;
  for (int i = 0; i < plan->cluster->member_count; i++) total += plan->members[i].share;
  for (int i = 0; i < plan->cluster->member_count; i++)
    if (total > 0) plan->members[i].share /= total;
}

/* Each member runs at its own pace until a step waits for a collective. */
tsr_status tsr_plan_predict(tsr_plan *plan, tsr_error *error) {
  double devices[plan->decision.active_count];
  clocks at = {.devices = devices, .ended = tsr_calloc((size_t)plan->step_count, sizeof *at.ended)};
  if (!at.ended)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to time %d steps", plan->step_count);
  memset(devices, 0, sizeof devices);
  for (int i = 0; i < plan->step_count; i++) {
    if (plan->steps[i].kind == TSR_STEP_CONVERT)
      time_convert(plan, i, &at);
    else
      time_compute(plan, i, &at);
  }
  plan->predicted_seconds = at.network;
  for (int r = 0; r < plan->decision.active_count; r++)
    if (devices[r] > plan->predicted_seconds) plan->predicted_seconds = devices[r];
  share_work(plan);
  free(at.ended);
  return TSR_OK;
}
