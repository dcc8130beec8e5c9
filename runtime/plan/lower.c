/* From the decision to steps: which node is computed when, which collective turns which layout into which,
 * and what that takes. Buffers are in buffers.c. */
#include <string.h>

#include "base/memory.h"
#include "plan/buffers.h"
#include "plan/cost.h"
#include "plan/fuse.h"
#include "plan/plan.h"

static const double DEFAULT_RESERVE = 0.05, GPU_RESERVE_BYTES = 268435456;

void tsr_plan_clear_lowered(tsr_plan *plan) {
  for (int i = 0; i < plan->storage_count; i++) free(plan->storages[i].bytes);
  plan->storage_count = plan->buffer_count = plan->step_count = 0;
}

void tsr_decision_finish(tsr_decision *decision) {
  free(decision->active);
  free(decision->offsets);
  free(decision->choices);
  free(decision->rules);
  *decision = (tsr_decision){0};
}

/* What is being lowered: in which layouts each value already exists. */
typedef struct lowering {
  tsr_plan *plan;
  tsr_place_set *exists; /* [value id] */
  tsr_error *error;
} lowering;

static tsr_status add_step(lowering *l, tsr_step step) {
  tsr_plan *plan = l->plan;
  size_t capacity = (size_t)plan->step_capacity;
  if (!TSR_GROW(plan->steps, (size_t)plan->step_count, capacity))
    return tsr_fail(l->error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %d steps", plan->step_count + 1);
  plan->step_capacity = (int)capacity;
  plan->steps[plan->step_count++] = step;
  return TSR_OK;
}

static tsr_collective_kind collective_of(tsr_place from, tsr_place to) {
  if (from >= 0) return TSR_ALL_GATHER;
  return to == TSR_PLACE_REPLICATE ? TSR_ALL_REDUCE : TSR_REDUCE_SCATTER;
}

/* Adds the conversions after which value exists at place. */
static tsr_status provide(lowering *l, tsr_value value, tsr_place place) {
  const tsr_choice *choice = &l->plan->decision.choices[value.id];
  tsr_place_set *exists = &l->exists[value.id];
  if (tsr_place_in(*exists, place)) return TSR_OK;
  tsr_place made = place >= 0 && tsr_place_in(choice->present, TSR_PLACE_REPLICATE) &&
                           !(choice->produced < TSR_PLACE_REPLICATE && tsr_place_in(choice->present, place))
                       ? TSR_PLACE_REPLICATE
                       : place;
  if (tsr_place_in(*exists, made)) return TSR_OK;
  *exists |= tsr_place_bit(made);
  return add_step(l, (tsr_step){.kind = TSR_STEP_CONVERT,
                                .node = -1,
                                .value = value,
                                .from = choice->produced,
                                .to = made,
                                .collective = collective_of(choice->produced, made)});
}

/* Nodes whose output nobody wants have no rule. */
static bool is_live(const tsr_plan *plan, size_t node) {
  return plan->decision.rules[node] >= 0;
}

/* The layouts in which a node wants its inputs. */
static tsr_rule rule_of(const tsr_plan *plan, int index) {
  const tsr_node *node = &plan->graph->nodes[index];
  tsr_rule rules[TSR_RULES_MAX];
  tsr_operator_rules_of(node->op)->rules(plan->graph, node, rules);
  return rules[plan->decision.rules[index]];
}

static tsr_status lower_node(lowering *l, int index, bool *done) {
  const tsr_plan *plan = l->plan;
  const tsr_node *node = &plan->graph->nodes[index];
  tsr_rule rule = rule_of(plan, index);
  tsr_step step = {.kind = TSR_STEP_NODE, .node = index};
  tsr_plan_fuse(plan, &step);
  for (int j = 0; j < node->input_count; j++) TSR_RETURN_IF_FAILED(provide(l, node->inputs[j], rule.in[j]));
  for (int i = 0; i < step.fused_count; i++) {
    const tsr_fused *fused = &step.fused[i];
    done[fused->node] = true;
    if (fused->operand < 0) continue;
    rule = rule_of(plan, fused->node);
    TSR_RETURN_IF_FAILED(
        provide(l, plan->graph->nodes[fused->node].inputs[fused->operand], rule.in[fused->operand]));
  }
  step.to = plan->decision.choices[step.value.id].produced;
  l->exists[step.value.id] = tsr_place_bit(step.to);
  return add_step(l, step);
}

/* What must stand at the end: outputs where they are to be read, assigned values where their targets are. */
static tsr_status lower_ends(lowering *l) {
  const tsr_graph *graph = l->plan->graph;
  for (size_t id = 1; id < graph->value_count; id++) {
    const tsr_graph_value *value = &graph->values[id];
    tsr_value self = {(uint32_t)id};
    if (value->output) TSR_RETURN_IF_FAILED(provide(l, self, tsr_plan_final_place(l->plan, self)));
    if (value->assigned.id)
      TSR_RETURN_IF_FAILED(provide(l, value->assigned, l->plan->decision.choices[id].produced));
  }
  return TSR_OK;
}

static tsr_status add_copy(lowering *l, tsr_value target) {
  tsr_place place = l->plan->decision.choices[target.id].produced;
  return add_step(l, (tsr_step){.kind = TSR_STEP_COPY,
                                .node = -1,
                                .value = tsr_graph_at(l->plan->graph, target)->assigned,
                                .target = target,
                                .from = place,
                                .to = place});
}

/* Whether a copy that is still to be made reads this target's old contents. */
static bool is_wanted(const tsr_graph *graph, const bool *pending, size_t target) {
  for (size_t id = 1; id < graph->value_count; id++)
    if (pending[id] && id != target && graph->values[id].assigned.id == target) return true;
  return false;
}

/* Copies of values into their targets, but for those that are computed in place. All assigns happen at once,
 * so what becomes of a target must wait until its old contents were copied elsewhere. */
static tsr_status lower_assigns(lowering *l) {
  tsr_status status = TSR_OK;
  tsr_error *error = l->error;
  const tsr_graph *graph = l->plan->graph;
  size_t left = 0, last = 0;
  bool *pending = tsr_calloc(graph->value_count, sizeof *pending);
  if (!pending) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for %zu values", graph->value_count);
  for (size_t id = 1; id < graph->value_count; id++) {
    size_t assigned = graph->values[id].assigned.id;
    pending[id] =
        assigned && assigned != id && !tsr_plan_updates_in_place(l->plan, (tsr_value){(uint32_t)id});
    left += pending[id];
  }
  for (bool moved = true; left && moved;) {
    moved = false;
    for (size_t id = 1; id < graph->value_count; id++) {
      if (!pending[id]) continue;
      last = id;
      if (is_wanted(graph, pending, id)) continue;
      TSR_TRY(add_copy(l, (tsr_value){(uint32_t)id}));
      pending[id] = false;
      moved = true;
      left--;
    }
  }
  if (left)
    TSR_THROW(TSR_ERROR_UNSUPPORTED,
              "\"%s\" becomes \"%s\", which becomes the other in turn: assign a copy made by tsr_graph_scale "
              "instead",
              graph->values[last].name, tsr_graph_at(graph, graph->values[last].assigned)->name);
done:
  free(pending);
  return status;
}

static const char *bound_of(const tsr_plan *plan, const tsr_step *step, int active_index, double seconds,
                            double bytes) {
  const tsr_cluster_member *member = &plan->cluster->members[plan->decision.active[active_index]];
  if (seconds <= 1.5 * member->launch_seconds) return "launch";
  double memory = bytes / member->memory_bandwidth;
  bool product = step->kind == TSR_STEP_NODE && plan->graph->nodes[step->node].op == TSR_OPERATOR_MATMUL;
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
    tsr_shape shape = tsr_plan_local_shape(plan, operand, rule_of(plan, fused->node).in[fused->operand], r);
    bytes +=
        (double)tsr_shape_count(&shape) * (double)tsr_dtype_bytes(tsr_graph_at(plan->graph, operand)->dtype);
  }
  return bytes;
}

static tsr_step_cost lone_node_cost(const tsr_plan *plan, int index, int r) {
  const tsr_cluster_member *member = &plan->cluster->members[plan->decision.active[r]];
  const tsr_node *node = &plan->graph->nodes[index];
  tsr_rule rule = rule_of(plan, index);
  tsr_shape inputs[TSR_NODE_INPUTS_MAX];
  for (int j = 0; j < node->input_count; j++)
    inputs[j] = tsr_plan_local_shape(plan, node->inputs[j], rule.in[j], r);
  tsr_shape output = tsr_plan_local_shape(plan, node->output, rule.out, r);
  tsr_step_cost cost = {.flops = tsr_operator_rules_of(node->op)->flops(node, inputs, &output)};
  cost.seconds = tsr_cost_node(member, plan->graph, node, inputs, &output, &cost.bytes);
  return cost;
}

static tsr_step_cost node_cost(const tsr_plan *plan, const tsr_step *step, int r) {
  const tsr_cluster_member *member = &plan->cluster->members[plan->decision.active[r]];
  tsr_step_cost cost = lone_node_cost(plan, step->node, r);
  for (int i = 0; i < step->fused_count; i++)
    cost.flops += lone_node_cost(plan, step->fused[i].node, r).flops;
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

static void time_convert(tsr_plan *plan, tsr_step *step, double *clocks) {
  int n = plan->decision.active_count;
  int64_t counts[n];
  tsr_collective_options options;
  tsr_plan_collective(plan, step, counts, &options);
  step->seconds = tsr_cost_collective(plan->cluster, &options) + plan->straggle_seconds;
  step->bound_by = "network";
  double latest = 0;
  for (int r = 0; r < n; r++) {
    uint64_t sent = tsr_collective_sent_bytes(&options, r);
    plan->members[plan->decision.active[r]].sent_bytes += sent;
    if (sent > step->bytes) step->bytes = sent;
    if (clocks[r] > latest) latest = clocks[r];
  }
  for (int r = 0; r < n; r++) clocks[r] = latest + step->seconds;
}

static void time_compute(tsr_plan *plan, tsr_step *step, double *clocks) {
  step->bound_by = "launch";
  for (int r = 0; r < plan->decision.active_count; r++) {
    tsr_step_cost cost = tsr_plan_step_cost(plan, step, r);
    clocks[r] += cost.seconds;
    plan->members[plan->decision.active[r]].compute_seconds += cost.seconds;
    if ((uint64_t)cost.bytes > step->bytes) step->bytes = (uint64_t)cost.bytes;
    if (cost.seconds <= step->seconds) continue;
    step->seconds = cost.seconds;
    step->bound_by = bound_of(plan, step, r, cost.seconds, cost.bytes);
  }
}

/* Each member runs at its own pace between collectives, which wait for the last. */
static void predict(tsr_plan *plan) {
  double clocks[plan->decision.active_count];
  memset(clocks, 0, sizeof clocks);
  for (int i = 0; i < plan->step_count; i++) {
    if (plan->steps[i].kind == TSR_STEP_CONVERT)
      time_convert(plan, &plan->steps[i], clocks);
    else
      time_compute(plan, &plan->steps[i], clocks);
  }
  plan->predicted_seconds = 0;
  for (int r = 0; r < plan->decision.active_count; r++)
    if (clocks[r] > plan->predicted_seconds) plan->predicted_seconds = clocks[r];
}

/* Each member's part of the floating-point work. */
static void share_work(tsr_plan *plan) {
  double total = 0;
  for (int i = 0; i < plan->step_count; i++)
    for (int r = 0; r < plan->decision.active_count && plan->steps[i].kind == TSR_STEP_NODE; r++) {
      double flops = tsr_plan_step_cost(plan, &plan->steps[i], r).flops;
      plan->members[plan->decision.active[r]].share += flops;
      total += flops;
    }
  for (int i = 0; i < plan->cluster->member_count; i++)
    if (total > 0) plan->members[i].share /= total;
}

double tsr_plan_reserve_fraction(const tsr_plan *plan) {
  double fraction = plan->options.reserve_fraction;
  return fraction < 0 ? 0 : fraction == 0 ? DEFAULT_RESERVE : fraction;
}

static void reset_members(tsr_plan *plan) {
  for (int i = 0; i < plan->cluster->member_count; i++) {
    const tsr_cluster_member *member = &plan->cluster->members[i];
    double fraction = tsr_plan_reserve_fraction(plan), reserve = fraction * (double)member->memory_bytes;
    if (member->kind == TSR_DEVICE_GPU && fraction > 0 && reserve < GPU_RESERVE_BYTES)
      reserve = GPU_RESERVE_BYTES;
    plan->members[i] = (tsr_plan_member){
        .device = member->name, .memory_bytes = member->memory_bytes, .reserve_bytes = (uint64_t)reserve};
  }
  for (int r = 0; r < plan->decision.active_count; r++) plan->members[plan->decision.active[r]].active = true;
}

tsr_status tsr_plan_lower(tsr_plan *plan, tsr_error *error) {
  tsr_status status = TSR_OK;
  const tsr_graph *graph = plan->graph;
  tsr_plan_clear_lowered(plan);
  reset_members(plan);
  lowering l = {.plan = plan, .error = error};
  bool *done = tsr_calloc(graph->node_count, sizeof *done);
  l.exists = tsr_calloc(graph->value_count, sizeof *l.exists);
  if (!l.exists || !done)
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory to lower %zu nodes", graph->node_count);
  for (size_t id = 1; id < graph->value_count; id++)
    if (graph->values[id].producer < 0) l.exists[id] = tsr_place_bit(plan->decision.choices[id].produced);
  for (size_t i = 0; i < graph->node_count; i++)
    if (is_live(plan, i) && !done[i]) TSR_TRY(lower_node(&l, (int)i, done));
  TSR_TRY(lower_ends(&l));
  TSR_TRY(lower_assigns(&l));
  predict(plan);
  share_work(plan);
  TSR_TRY(tsr_plan_allocate(plan, error));
done:
  free(done);
  free(l.exists);
  return status;
}
