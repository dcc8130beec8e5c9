#include "plan/search.h"

#include <string.h>

#include "base/memory.h"
#include "plan/cost.h"
#include "plan/factors.h"

/* Larger tables are not worth the time: a variable is fixed instead, and the plan is not called exact. */
enum { TABLE_LIMIT = 1 << 20 };

typedef struct value_states {
  int count;
  tsr_choice states[TSR_STATES_MAX];
} value_states;

typedef struct search {
  tsr_plan *plan;
  const tsr_search_options *options;
  value_states *values; /* [value id] */
  tsr_factors *factors;
  tsr_error *error;
} search;

bool tsr_plan_must_split(const tsr_plan *plan, tsr_value value) {
  const tsr_graph *graph = plan->graph;
  const tsr_graph_value *at = tsr_graph_at(graph, value);
  bool can_split = false;
  for (int axis = 0; axis < tsr_shape_split_axes(&at->shape); axis++) can_split |= at->shape.extent[axis] > 1;
  if (at->kind != TSR_PARAMETER || at->shape.axes < 2 || !can_split || plan->decision.active_count == 1)
    return false;
  if (plan->options.replicate == TSR_REPLICATE_AUTO) return false;
  if (plan->options.replicate == TSR_REPLICATE_NEVER) return true;
  double all = 0, own = (double)tsr_shape_count(&at->shape) * (double)tsr_dtype_bytes(at->dtype);
  for (size_t id = 1; id < graph->value_count; id++)
    if (graph->values[id].kind == TSR_PARAMETER)
      all += (double)tsr_shape_count(&graph->values[id].shape) *
             (double)tsr_dtype_bytes(graph->values[id].dtype);
  return own >= 0.01 * all;
}

/* A use at place is served by a copy there, or by a view of a replicated copy. */
static bool serves(tsr_choice choice, tsr_place place) {
  return tsr_place_in(choice.present, place) ||
         (place >= 0 && tsr_place_in(choice.present, TSR_PLACE_REPLICATE));
}

static bool has_full_copy(tsr_choice choice) {
  for (tsr_place place = TSR_PLACE_REPLICATE; place < TSR_AXES_MAX; place++)
    if (tsr_place_in(choice.present, place)) return true;
  return false;
}

/* A single member holds all of everything, whatever is pinned. */
static bool pin_allows(const search *s, const tsr_graph_value *value, tsr_choice choice) {
  if (!value->pinned || s->plan->decision.active_count == 1) return true;
  tsr_place pin =
      value->pin.on[0].kind == TSR_REPLICATE ? TSR_PLACE_REPLICATE : (tsr_place)value->pin.on[0].axis;
  return value->producer < 0 ? choice.produced == pin : serves(choice, pin);
}

static bool allowed(const search *s, tsr_value value, tsr_choice choice) {
  const tsr_graph_value *at = tsr_graph_at(s->plan->graph, value);
  if (!pin_allows(s, at, choice) || (at->output && !has_full_copy(choice))) return false;
  if (s->options->forced.id == value.id && choice.produced != s->options->forced_place) return false;
  if (s->options->replicate_all && at->kind == TSR_PARAMETER && choice.produced != TSR_PLACE_REPLICATE)
    return false;
  bool exempt = s->options->replicate_all || s->options->forced.id == value.id;
  bool split = !exempt && tsr_plan_must_split(s->plan, value);
  return !(split && tsr_place_in(choice.present, TSR_PLACE_REPLICATE));
}

static void add_state(const search *s, tsr_value value, tsr_place produced, tsr_place_set others) {
  value_states *states = &s->values[value.id];
  tsr_choice choice = {produced, (tsr_place_set)(tsr_place_bit(produced) | others)};
  if (states->count < TSR_STATES_MAX && allowed(s, value, choice)) states->states[states->count++] = choice;
}

/* Every useful set of layouts of a value that comes into being at `produced`. */
static void add_states(const search *s, tsr_value value, tsr_place produced) {
  const tsr_shape *shape = &tsr_graph_at(s->plan->graph, value)->shape;
  add_state(s, value, produced, 0);
  if (produced == TSR_PLACE_REPLICATE) return; /* every shard is a view */
  add_state(s, value, produced, tsr_place_bit(TSR_PLACE_REPLICATE));
  if (produced >= 0) return; /* another shard needs the replicated copy */
  for (tsr_place axis = 0; axis < tsr_shape_split_axes(shape); axis++)
    if (shape->extent[axis] > 1) add_state(s, value, produced, tsr_place_bit(axis));
  if (tsr_shape_split_axes(shape) == 2) add_state(s, value, produced, tsr_place_bit(0) | tsr_place_bit(1));
}

static void make_states(const search *s, tsr_value value) {
  const tsr_graph_value *at = tsr_graph_at(s->plan->graph, value);
  bool produced[TSR_AXES_MAX - TSR_PLACE_MAX] = {false};
  if (at->producer < 0) {
    produced[TSR_PLACE_REPLICATE - TSR_PLACE_MAX] = true;
    for (int axis = 0; axis < tsr_shape_split_axes(&at->shape); axis++)
      produced[axis - TSR_PLACE_MAX] = at->shape.extent[axis] > 1;
    if (at->pinned && at->pin.on[0].kind == TSR_SHARD) produced[at->pin.on[0].axis - TSR_PLACE_MAX] = true;
  } else {
    tsr_rule rules[TSR_RULES_MAX];
    const tsr_node *node = &s->plan->graph->nodes[at->producer];
    int count = tsr_operator_rules_of(node->op)->rules(s->plan->graph, node, rules);
    for (int i = 0; i < count; i++)
      if (rules[i].out < 0 || at->shape.extent[rules[i].out] > 1)
        produced[rules[i].out - TSR_PLACE_MAX] = true;
  }
  for (tsr_place place = TSR_PLACE_MAX; place < TSR_AXES_MAX; place++) {
    bool only_replicated = s->plan->decision.active_count == 1 && place != TSR_PLACE_REPLICATE;
    if (produced[place - TSR_PLACE_MAX] && !only_replicated) add_states(s, value, place);
  }
}

static int64_t convert_cost(const search *s, tsr_value value, tsr_place from, tsr_place to) {
  const tsr_plan *plan = s->plan;
  int64_t counts[plan->decision.active_count];
  tsr_collective_options options;
  tsr_step step = {.kind = TSR_STEP_CONVERT,
                   .value = value,
                   .from = from,
                   .to = to,
                   .algorithm = plan->options.collective};
  step.collective = from >= 0                   ? TSR_ALL_GATHER
                    : to == TSR_PLACE_REPLICATE ? TSR_ALL_REDUCE
                                                : TSR_REDUCE_SCATTER;
  tsr_plan_collective(plan, &step, counts, &options);
  return tsr_cost_nanoseconds(tsr_cost_collective(plan->cluster, &options) + plan->straggle_seconds);
}

static double most_bytes(const search *s, tsr_value value, tsr_place place) {
  double most = 0;
  for (int r = 0; r < s->plan->decision.active_count; r++) {
    tsr_shape shape = tsr_plan_local_shape(s->plan, value, place, r);
    double bytes =
        (double)tsr_shape_count(&shape) * (double)tsr_dtype_bytes(tsr_graph_at(s->plan->graph, value)->dtype);
    if (bytes > most) most = bytes;
  }
  return most;
}

/* What a layout set costs by itself: its conversions, and its memory at the price. */
static int64_t choice_cost(const search *s, tsr_value value, tsr_choice choice) {
  int64_t cost = 0;
  for (tsr_place place = TSR_PLACE_MAX; place < TSR_AXES_MAX; place++) {
    if (!tsr_place_in(choice.present, place)) continue;
    if (place != choice.produced) cost += convert_cost(s, value, choice.produced, place);
    if (s->options->price > 0)
      cost += tsr_cost_nanoseconds(1e-9 * s->options->price * most_bytes(s, value, place));
  }
  return cost;
}

static bool add_state_costs(const search *s, tsr_value value) {
  int64_t cost[TSR_STATES_MAX];
  const value_states *states = &s->values[value.id];
  for (int i = 0; i < states->count; i++) cost[i] = choice_cost(s, value, states->states[i]);
  int variable = (int)value.id;
  return tsr_factors_add(s->factors, 1, &variable, cost);
}

static int64_t node_cost(const search *s, int node_index, int rule_index, const tsr_rule *rule) {
  if (s->options->node_costs) return s->options->node_costs[node_index * TSR_RULES_MAX + rule_index];
  const tsr_plan *plan = s->plan;
  const tsr_node *node = &plan->graph->nodes[node_index];
  int64_t slowest = 0;
  for (int r = 0; r < plan->decision.active_count; r++) {
    const tsr_cluster_member *member = &plan->cluster->members[plan->decision.active[r]];
    tsr_shape inputs[TSR_NODE_INPUTS_MAX];
    for (int j = 0; j < node->input_count; j++)
      inputs[j] = tsr_plan_local_shape(plan, node->inputs[j], rule->in[j], r);
    tsr_shape output = tsr_plan_local_shape(plan, node->output, rule->out, r);
    int64_t cost = tsr_cost_nanoseconds(tsr_cost_node(member, plan->graph, node, inputs, &output, NULL));
    if (cost > slowest) slowest = cost;
  }
  return slowest;
}

/* The rule that computes a node cheapest, given in which layouts its inputs and its output exist; -1 = none
 * can. */
static int best_rule(const tsr_node *node, int rule_count, const tsr_rule *rules, const int64_t *costs,
                     const tsr_choice *inputs, tsr_choice output) {
  int best = -1;
  for (int i = 0; i < rule_count; i++) {
    bool fits = rules[i].out == output.produced;
    for (int j = 0; fits && j < node->input_count; j++) fits = serves(inputs[j], rules[i].in[j]);
    if (fits && (best < 0 || costs[i] < costs[best])) best = i;
  }
  return best;
}

typedef struct node_rules {
  int count;
  tsr_rule rules[TSR_RULES_MAX];
  int64_t costs[TSR_RULES_MAX];
} node_rules;

static node_rules rules_of(const search *s, int node_index) {
  node_rules found;
  const tsr_node *node = &s->plan->graph->nodes[node_index];
  found.count = tsr_operator_rules_of(node->op)->rules(s->plan->graph, node, found.rules);
  for (int i = 0; i < found.count; i++) found.costs[i] = node_cost(s, node_index, i, &found.rules[i]);
  return found;
}

/* The table of a node over the states of its (distinct) inputs and its output. */
static tsr_status add_node(const search *s, int node_index) {
  const tsr_node *node = &s->plan->graph->nodes[node_index];
  node_rules found = rules_of(s, node_index);
  int variables[TSR_NODE_INPUTS_MAX + 1], place_of[TSR_NODE_INPUTS_MAX], count = 0;
  for (int j = 0; j < node->input_count; j++) {
    int place = 0;
    while (place < count && variables[place] != (int)node->inputs[j].id) place++;
    if (place == count) variables[count++] = (int)node->inputs[j].id;
    place_of[j] = place;
  }
  variables[count++] = (int)node->output.id;
  size_t size = 1;
  for (int i = 0; i < count; i++) size *= (size_t)s->values[variables[i]].count;
  int64_t *cost = tsr_calloc(size, sizeof *cost);
  if (!cost) return tsr_fail(s->error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a table of %zu layouts", size);
  int states[TSR_NODE_INPUTS_MAX + 1] = {0};
  for (size_t at = 0; at < size; at++) {
    tsr_choice inputs[TSR_NODE_INPUTS_MAX];
    for (int j = 0; j < node->input_count; j++)
      inputs[j] = s->values[node->inputs[j].id].states[states[place_of[j]]];
    tsr_choice output = s->values[node->output.id].states[states[count - 1]];
    int rule = best_rule(node, found.count, found.rules, found.costs, inputs, output);
    cost[at] = rule < 0 ? TSR_COST_FORBIDDEN : found.costs[rule];
    for (int i = count - 1; i >= 0 && ++states[i] == s->values[variables[i]].count; i--) states[i] = 0;
  }
  bool added = tsr_factors_add(s->factors, count, variables, cost);
  free(cost);
  return added ? TSR_OK
               : tsr_fail(s->error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a table of %zu layouts", size);
}

/* value must be served where `anchor` is produced. */
static bool add_anchor(const search *s, tsr_value value, tsr_value anchor) {
  int variables[2] = {(int)value.id, (int)anchor.id};
  int64_t cost[TSR_STATES_MAX * TSR_STATES_MAX];
  const value_states *own = &s->values[value.id], *other = &s->values[anchor.id];
  for (int i = 0; i < own->count; i++)
    for (int j = 0; j < other->count; j++)
      cost[i * other->count + j] = serves(own->states[i], other->states[j].produced) ? 0 : TSR_COST_FORBIDDEN;
  return tsr_factors_add(s->factors, 2, variables, cost);
}

static tsr_status add_tables(const search *s, const bool *used) {
  const tsr_graph *graph = s->plan->graph;
  bool added = true;
  for (size_t id = 1; id < graph->value_count; id++) {
    tsr_value value = {(uint32_t)id};
    if (!used[id]) continue;
    added &= add_state_costs(s, value);
    tsr_value assigned = graph->values[id].assigned, parameter = graph->values[id].gradient_of;
    if (assigned.id && assigned.id != value.id) added &= add_anchor(s, assigned, value);
    if (parameter.id && graph->values[id].output) added &= add_anchor(s, value, parameter);
  }
  if (!added) return tsr_fail(s->error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the layout search");
  for (size_t i = 0; i < graph->node_count; i++)
    if (s->plan->decision.rules[i] >= 0) TSR_RETURN_IF_FAILED(add_node(s, (int)i));
  return TSR_OK;
}

static void take_result(const search *s, const int *states) {
  tsr_decision *decision = &s->plan->decision;
  const tsr_graph *graph = s->plan->graph;
  for (size_t id = 1; id < graph->value_count; id++)
    if (s->values[id].count) decision->choices[id] = s->values[id].states[states[id]];
  for (size_t i = 0; i < graph->node_count; i++) {
    if (decision->rules[i] < 0) continue;
    const tsr_node *node = &graph->nodes[i];
    node_rules found = rules_of(s, (int)i);
    tsr_choice inputs[TSR_NODE_INPUTS_MAX];
    for (int j = 0; j < node->input_count; j++) inputs[j] = decision->choices[node->inputs[j].id];
    decision->rules[i] =
        best_rule(node, found.count, found.rules, found.costs, inputs, decision->choices[node->output.id]);
  }
}

/* Values that take part: leaves, and outputs of live nodes. */
static void mark_used(const tsr_plan *plan, bool *used) {
  for (size_t id = 1; id < plan->graph->value_count; id++) {
    int producer = plan->graph->values[id].producer;
    used[id] = producer < 0 || plan->decision.rules[producer] >= 0;
  }
}

tsr_status tsr_plan_search(tsr_plan *plan, const tsr_search_options *options, int64_t *nanoseconds,
                           bool *exact, tsr_error *error) {
  tsr_status status = TSR_OK;
  size_t count = plan->graph->value_count;
  search s = {.plan = plan, .options = options, .error = error};
  int *domains = tsr_calloc(count, sizeof *domains), *states = tsr_calloc(count, sizeof *states);
  bool *used = tsr_calloc(count, sizeof *used);
  s.values = tsr_calloc(count, sizeof *s.values);
  if (!domains || !states || !used || !s.values)
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for %zu values", count);
  mark_used(plan, used);
  *nanoseconds = TSR_COST_FORBIDDEN;
  *exact = true;
  domains[0] = 1;
  for (size_t id = 1; id < count; id++) {
    if (used[id]) make_states(&s, (tsr_value){(uint32_t)id});
    if (used[id] && !s.values[id].count) goto done; /* nothing is allowed for this value */
    domains[id] = used[id] ? s.values[id].count : 1;
  }
  s.factors = tsr_factors_create(count, domains);
  if (!s.factors) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for %zu values", count);
  TSR_TRY(add_tables(&s, used));
  if (!tsr_factors_solve(s.factors, TABLE_LIMIT, states, nanoseconds, exact))
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for the layout search of %zu values", count);
  if (*nanoseconds < TSR_COST_FORBIDDEN) take_result(&s, states);
done:
  tsr_factors_destroy(&s.factors);
  free(domains);
  free(states);
  free(used);
  free(s.values);
  return status;
}

int64_t tsr_plan_layout_cost(tsr_plan *plan) {
  const tsr_search_options options = {0};
  const search s = {.plan = plan, .options = &options};
  const tsr_decision *decision = &plan->decision;
  int64_t cost = 0;
  for (size_t id = 1; id < plan->graph->value_count; id++) {
    int producer = plan->graph->values[id].producer;
    if (producer < 0 || decision->rules[producer] >= 0)
      cost += choice_cost(&s, (tsr_value){(uint32_t)id}, decision->choices[id]);
  }
  for (size_t i = 0; i < plan->graph->node_count; i++) {
    tsr_rule rules[TSR_RULES_MAX];
    if (decision->rules[i] < 0) continue;
    tsr_operator_rules_of(plan->graph->nodes[i].op)->rules(plan->graph, &plan->graph->nodes[i], rules);
    cost += node_cost(&s, (int)i, decision->rules[i], &rules[decision->rules[i]]);
  }
  return cost;
}
