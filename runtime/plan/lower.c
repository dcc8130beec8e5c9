/* From the decision to steps: which node is computed when, and which collective turns which layout into
 * which. Their order is in order.c, buffers in buffers.c, times in predict.c. */
#include <string.h>

#include "base/memory.h"
#include "plan/buffers.h"
#include "plan/cost.h"
#include "plan/cuts.h"
#include "plan/fuse.h"
#include "plan/order.h"
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
  free(decision->algorithms);
  free(decision->chunks);
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

tsr_rule tsr_plan_rule(const tsr_plan *plan, int index) {
  const tsr_node *node = &plan->graph->nodes[index];
  tsr_rule rules[TSR_RULES_MAX];
  tsr_operator_rules_of(node->op)->rules(plan->graph, node, rules);
  return rules[plan->decision.rules[index]];
}

static tsr_status lower_node(lowering *l, int index, bool *done) {
  const tsr_plan *plan = l->plan;
  const tsr_node *node = &plan->graph->nodes[index];
  tsr_rule rule = tsr_plan_rule(plan, index);
  tsr_step step = {.kind = TSR_STEP_NODE, .node = index};
  tsr_plan_fuse(plan, &step);
  for (int j = 0; j < node->input_count; j++) TSR_RETURN_IF_FAILED(provide(l, node->inputs[j], rule.in[j]));
  for (int i = 0; i < step.fused_count; i++) {
    const tsr_fused *fused = &step.fused[i];
    done[fused->node] = true;
    if (fused->operand < 0) continue;
    rule = tsr_plan_rule(plan, fused->node);
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

/* The steps in the order of the graph's nodes. */
static tsr_status make_steps(tsr_plan *plan, tsr_error *error) {
  tsr_status status = TSR_OK;
  const tsr_graph *graph = plan->graph;
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
done:
  free(done);
  free(l.exists);
  return status;
}

/* The settled ones, or what costs least. */
static tsr_status choose_algorithms(tsr_plan *plan, tsr_error *error) {
  const tsr_decision *decision = &plan->decision;
  int64_t counts[decision->active_count];
  int converts = 0;
  for (int i = 0; i < plan->step_count; i++) {
    tsr_step *step = &plan->steps[i];
    if (step->kind != TSR_STEP_CONVERT) continue;
    int number = converts++;
    step->algorithm = plan->options.collective;
    if (decision->algorithms && number < decision->algorithm_count) {
      step->algorithm = (tsr_algorithm)decision->algorithms[number];
      continue;
    }
    tsr_collective_options options;
    tsr_plan_collective(plan, step, counts, &options);
    tsr_cost_collective(plan->cluster, &options);
    step->algorithm = options.algorithm;
  }
  if (decision->algorithms && converts != decision->algorithm_count)
    return tsr_fail(error, TSR_ERROR_FORMAT, "plan.decision.algorithms: %d, but there are %d collectives",
                    decision->algorithm_count, converts);
  return TSR_OK;
}

tsr_status tsr_plan_settle_algorithms(tsr_plan *plan, tsr_error *error) {
  tsr_decision *decision = &plan->decision;
  decision->algorithms = tsr_calloc((size_t)plan->step_count, sizeof *decision->algorithms);
  if (!decision->algorithms)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the algorithms of %d steps",
                    plan->step_count);
  decision->algorithm_count = 0;
  for (int i = 0; i < plan->step_count; i++)
    if (plan->steps[i].kind == TSR_STEP_CONVERT)
      decision->algorithms[decision->algorithm_count++] = (uint8_t)plan->steps[i].algorithm;
  return TSR_OK;
}

static tsr_status lower_in_order(tsr_plan *plan, bool overlap, tsr_error *error) {
  tsr_plan_clear_lowered(plan);
  reset_members(plan);
  plan->overlaps = overlap;
  TSR_RETURN_IF_FAILED(make_steps(plan, error));
  TSR_RETURN_IF_FAILED(tsr_plan_order(plan, error));
  TSR_RETURN_IF_FAILED(choose_algorithms(plan, error));
  TSR_RETURN_IF_FAILED(tsr_plan_allocate(plan, error));
  TSR_RETURN_IF_FAILED(tsr_plan_find_waits(plan, error));
  return tsr_plan_predict(plan, error);
}

static bool is_short(const tsr_plan *plan) {
  for (int r = 0; r < plan->decision.active_count; r++) {
    int member = plan->decision.active[r];
    if (plan->members[member].bytes > tsr_plan_usable_bytes(plan, member)) return true;
  }
  return false;
}

/* What is computed while a collective runs keeps more in memory; where that is short, the graph's own order
 * has to do. */
tsr_status tsr_plan_lower(tsr_plan *plan, tsr_error *error) {
  TSR_RETURN_IF_FAILED(lower_in_order(plan, true, error));
  return is_short(plan) ? lower_in_order(plan, false, error) : TSR_OK;
}
