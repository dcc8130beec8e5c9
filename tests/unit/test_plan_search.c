/* Room runtime/plan: the layout search against brute force. For random graphs of up to five operators on one
 * to three equal members: no assignment of layouts to values (made as a node can make them, existing in any
 * set of layouts that collectives reach) and of rules to nodes is allowed and costs less, and the assignment
 * that was found costs what the search says. */
#include "plan_support.h"

#include "plan/cost.h"
#include "plan/factors.h"
#include "plan/search.h"

enum { CHOICES_MAX = 64, VALUES_MAX = 24, CASES = 250 };

typedef struct space {
  const tsr_plan *plan;
  tsr_search_options options;
  int count[VALUES_MAX];
  tsr_choice choices[VALUES_MAX][CHOICES_MAX];
  int64_t cost[VALUES_MAX][CHOICES_MAX]; /* of conversions and memory */
  bool live[VALUES_MAX];
  tsr_choice chosen[VALUES_MAX];
  int64_t bound; /* whatever costs as much is of no interest */
  int64_t visited;
} space;

static bool exists(tsr_choice choice, tsr_place place) {
  return tsr_place_in(choice.present, place) ||
         (place >= 0 && tsr_place_in(choice.present, TSR_PLACE_REPLICATE));
}

static int64_t in_nanoseconds(double seconds) {
  return (int64_t)(seconds * 1e9 + 0.5);
}

static double largest_bytes(const tsr_plan *plan, tsr_value value, tsr_place place) {
  double most = 0;
  for (int r = 0; r < plan->decision.active_count; r++) {
    tsr_shape shape = tsr_plan_local_shape(plan, value, place, r);
    double own = 4.0 * (double)tsr_shape_count(&shape);
    if (own > most) most = own;
  }
  return most;
}

static int64_t choice_cost(const space *s, tsr_value value, tsr_choice choice) {
  int64_t sum = 0, counts[8];
  for (tsr_place to = TSR_PLACE_MAX; to < TSR_AXES_MAX; to++) {
    if (!tsr_place_in(choice.present, to)) continue;
    if (s->options.price > 0)
      sum += in_nanoseconds(s->options.price * largest_bytes(s->plan, value, to) * 1e-9);
    if (to == choice.produced) continue;
    tsr_place split = choice.produced >= 0 ? choice.produced : to;
    tsr_collective_options options = {.kind = choice.produced >= 0        ? TSR_ALL_GATHER
                                              : to == TSR_PLACE_REPLICATE ? TSR_ALL_REDUCE
                                                                          : TSR_REDUCE_SCATTER,
                                      .dtype = TSR_F32,
                                      .counts = counts,
                                      .member_count = s->plan->decision.active_count};
    for (int r = 0; r < options.member_count; r++) {
      tsr_shape shape = tsr_plan_local_shape(s->plan, value, split, r);
      counts[r] = tsr_shape_count(&shape);
    }
    sum += in_nanoseconds(tsr_cost_collective(s->plan->cluster, &options) + s->plan->straggle_seconds);
  }
  return sum;
}

/* Whether the policy, pins and outputs let a value exist so. */
static bool is_allowed(const space *s, uint32_t id, tsr_choice choice) {
  const tsr_graph_value *value = &s->plan->graph->values[id];
  bool several = s->plan->decision.active_count > 1, whole = false;
  if (value->pinned && several) {
    tsr_place pin =
        value->pin.on[0].kind == TSR_REPLICATE ? TSR_PLACE_REPLICATE : (tsr_place)value->pin.on[0].axis;
    if (value->producer < 0 ? choice.produced != pin : !exists(choice, pin)) return false;
  }
  for (tsr_place place = TSR_PLACE_REPLICATE; place < TSR_AXES_MAX; place++)
    whole |= tsr_place_in(choice.present, place);
  if (value->output && !whole) return false;
  bool matrix = value->kind == TSR_PARAMETER && value->shape.axes == 2;
  bool splits =
      s->plan->options.replicate != TSR_REPLICATE_AUTO; /* the weights of these graphs are all large */
  return !(several && matrix && splits && tsr_place_in(choice.present, TSR_PLACE_REPLICATE));
}

/* Every set of layouts that `produced` can be turned into. */
static void add_choices(space *s, uint32_t id, tsr_place produced) {
  const tsr_shape *shape = &s->plan->graph->values[id].shape;
  tsr_place targets[TSR_AXES_MAX + 1];
  int count = 0;
  if (produced != TSR_PLACE_REPLICATE) targets[count++] = TSR_PLACE_REPLICATE;
  for (int axis = 0; produced < TSR_PLACE_REPLICATE && axis < shape->axes; axis++)
    if (shape->extent[axis] > 1) targets[count++] = (tsr_place)axis;
  for (int set = 0; set < 1 << count; set++) {
    tsr_choice choice = {produced, tsr_place_bit(produced)};
    for (int i = 0; i < count; i++)
      if (set >> i & 1) choice.present |= tsr_place_bit(targets[i]);
    if (!is_allowed(s, id, choice)) continue;
    assert_true(s->count[id] < CHOICES_MAX);
    s->cost[id][s->count[id]] = choice_cost(s, (tsr_value){id}, choice);
    s->choices[id][s->count[id]++] = choice;
  }
}

static int rules_of(const tsr_plan *plan, int node, tsr_rule *rules) {
  return tsr_operator_rules_of(plan->graph->nodes[node].op)
      ->rules(plan->graph, &plan->graph->nodes[node], rules);
}

static void list_choices(space *s) {
  const tsr_graph *graph = s->plan->graph;
  assert_true(graph->value_count <= VALUES_MAX);
  for (uint32_t id = 1; id < graph->value_count; id++) {
    bool made[16] = {false};
    tsr_rule rules[TSR_RULES_MAX];
    int producer = graph->values[id].producer;
    s->live[id] = producer < 0 || s->plan->decision.rules[producer] >= 0;
    if (!s->live[id]) continue;
    if (producer < 0) {
      made[TSR_PLACE_REPLICATE - TSR_PLACE_MAX] = true;
      for (int axis = 0; axis < graph->values[id].shape.axes; axis++) made[axis - TSR_PLACE_MAX] = true;
    } else {
      for (int i = rules_of(s->plan, producer, rules); i-- > 0;) made[rules[i].out - TSR_PLACE_MAX] = true;
    }
    for (tsr_place place = TSR_PLACE_MAX; place < TSR_AXES_MAX; place++) {
      if (!made[place - TSR_PLACE_MAX] || (place >= 0 && graph->values[id].shape.extent[place] < 2)) continue;
      if (s->plan->decision.active_count == 1 && place != TSR_PLACE_REPLICATE) continue;
      add_choices(s, id, place);
    }
  }
}

static int64_t rule_cost(const tsr_plan *plan, const tsr_node *node, const tsr_rule *rule) {
  int64_t slowest = 0;
  for (int r = 0; r < plan->decision.active_count; r++) {
    tsr_shape inputs[TSR_NODE_INPUTS_MAX], output = tsr_plan_local_shape(plan, node->output, rule->out, r);
    for (int j = 0; j < node->input_count; j++)
      inputs[j] = tsr_plan_local_shape(plan, node->inputs[j], rule->in[j], r);
    int64_t own = in_nanoseconds(tsr_cost_node(&plan->cluster->members[plan->decision.active[r]], plan->graph,
                                               node, inputs, &output, NULL));
    if (own > slowest) slowest = own;
  }
  return slowest;
}

/* The cheapest rule for the layouts chosen; -1 = none. */
static int64_t node_cost(const space *s, int index) {
  const tsr_node *node = &s->plan->graph->nodes[index];
  tsr_rule rules[TSR_RULES_MAX];
  int64_t best = -1;
  for (int i = rules_of(s->plan, index, rules); i-- > 0;) {
    bool fits = rules[i].out == s->chosen[node->output.id].produced;
    for (int j = 0; fits && j < node->input_count; j++)
      fits = exists(s->chosen[node->inputs[j].id], rules[i].in[j]);
    if (!fits) continue;
    int64_t own = rule_cost(s->plan, node, &rules[i]);
    if (best < 0 || own < best) best = own;
  }
  return best;
}

/* What is assigned, and what is the gradient of a parameter, must exist where that is. */
static bool ends_fit(const space *s, uint32_t id) {
  for (uint32_t a = 1; a <= id; a++) {
    const tsr_graph_value *value = &s->plan->graph->values[a];
    uint32_t b = value->assigned.id, p = value->output ? value->gradient_of.id : 0;
    if (!s->live[a] || (a != id && b != id && p != id)) continue;
    if (b && b <= id && b != a && !exists(s->chosen[b], s->chosen[a].produced)) return false;
    if (p && p <= id && !exists(s->chosen[a], s->chosen[p].produced)) return false;
  }
  return true;
}

static void try_from(space *s, uint32_t id, int64_t cost) {
  if (id == s->plan->graph->value_count) {
    s->bound = cost;
    return;
  }
  if (!s->live[id]) {
    try_from(s, id + 1, cost);
    return;
  }
  int producer = s->plan->graph->values[id].producer;
  for (int i = 0; i < s->count[id]; i++) {
    s->visited++;
    s->chosen[id] = s->choices[id][i];
    int64_t own = producer < 0 ? 0 : node_cost(s, producer), sum = cost + s->cost[id][i] + own;
    if (own >= 0 && sum < s->bound && ends_fit(s, id)) try_from(s, id + 1, sum);
  }
}

/* What the search's own choice costs by this file's reckoning; -1 = it is not allowed. */
static int64_t cost_of_decision(space *s) {
  int64_t sum = 0;
  for (uint32_t id = 1; id < s->plan->graph->value_count; id++) {
    if (!s->live[id]) continue;
    s->chosen[id] = s->plan->decision.choices[id];
    int i = 0, producer = s->plan->graph->values[id].producer;
    while (i < s->count[id] && memcmp(&s->choices[id][i], &s->chosen[id], sizeof s->chosen[id])) i++;
    if (i == s->count[id] || !ends_fit(s, id)) return -1;
    sum += s->cost[id][i];
    if (producer < 0) continue;
    tsr_rule rules[TSR_RULES_MAX];
    rules_of(s->plan, producer, rules);
    const tsr_node *node = &s->plan->graph->nodes[producer];
    const tsr_rule *rule = &rules[s->plan->decision.rules[producer]];
    if (node_cost(s, producer) != rule_cost(s->plan, node, rule)) return -1;
    sum += node_cost(s, producer);
  }
  return sum;
}

/* The plan gives the cuts; the search is then made again on them. Returns whether something was allowed. */
static bool compare(tsr_plan *plan, double price, int number) {
  static space s;
  memset(&s, 0, sizeof s);
  s.plan = plan;
  s.options = (tsr_search_options){.price = price};
  int64_t cost;
  bool exact;
  plan_ok(tsr_plan_search(plan, &s.options, &cost, &exact, &plan_error));
  assert_true(exact);
  list_choices(&s);
  s.bound = TSR_COST_FORBIDDEN;
  if (cost < TSR_COST_FORBIDDEN) {
    int64_t own = cost_of_decision(&s);
    if (own != cost) fail_msg("case %d: %" PRId64 ", its choices cost %" PRId64, number, cost, own);
    s.bound = cost;
  }
  try_from(&s, 1, 0);
  if (s.bound < cost) fail_msg("case %d: %" PRId64 ", brute force finds %" PRId64, number, cost, s.bound);
  return cost < TSR_COST_FORBIDDEN;
}

static void equal_to_brute_force(void **state) {
  (void)state;
  int allowed = 0;
  for (int i = 0; i < CASES; i++) {
    plan_seed(1000 + (uint64_t)i);
    int members = (int)plan_between(1, 3);
    tsr_plan_options options;
    tsr_plan_options_init(&options);
    options.keep_all = true;
    options.replicate = TSR_REPLICATE_AUTO; /* with which something is always allowed */
    tsr_cluster *cluster = plan_cluster_of(
        members, (plan_device){.gflops = plan_chance(50) ? 1 : 100, .memory_gb = 1, .launch_seconds = 1e-7});
    cluster->links.host.bandwidth = plan_chance(50) ? 1e8 : 1e11;
    tsr_plan *plan = plan_fit(plan_random_graph((int)plan_between(1, 5)), cluster, &options);
    if (plan_chance(50)) plan->options.replicate = TSR_REPLICATE_NEVER;
    allowed += compare(plan, plan_chance(70) ? 0 : 1e-2, i);
    tsr_plan_destroy(&plan);
    tsr_cluster_destroy(&cluster);
  }
  assert_in_range(allowed, CASES / 2, CASES - 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_to_brute_force),
  };
  return cmocka_run_group_tests_name("plan_search", tests, plan_setup, plan_teardown);
}
