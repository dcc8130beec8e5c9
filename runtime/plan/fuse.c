#include "plan/fuse.h"

#include "plan/buffers.h"

static bool is_live(const tsr_plan *plan, size_t node) {
  return plan->decision.rules[node] >= 0;
}

/* The one live node that reads value, once; -1 = none, several, or it has another use. */
static int only_reader(const tsr_plan *plan, tsr_value value) {
  const tsr_graph *graph = plan->graph;
  const tsr_choice *choice = &plan->decision.choices[value.id];
  int reader = -1, reads = 0;
  if (tsr_graph_at(graph, value)->output || choice->present != tsr_place_bit(choice->produced)) return -1;
  for (size_t id = 1; id < graph->value_count; id++)
    if (graph->values[id].assigned.id == value.id) return -1;
  for (size_t i = 0; i < graph->node_count; i++)
    for (int j = 0; is_live(plan, i) && j < graph->nodes[i].input_count; j++) {
      if (graph->nodes[i].inputs[j].id != value.id) continue;
      reader = (int)i;
      reads++;
    }
  return reads == 1 ? reader : -1;
}

/* Whether a member stores an operand of a product in pieces whose rows are cut. */
static bool has_cut_rows(const tsr_plan *plan, int index, int input, int r) {
  const tsr_node *node = &plan->graph->nodes[index];
  const tsr_value value = node->inputs[input];
  const tsr_dtype dtype = tsr_graph_at(plan->graph, value)->dtype;
  const tsr_choice *choice = &plan->decision.choices[value.id];
  tsr_rule rules[TSR_RULES_MAX];
  tsr_operator_rules_of(node->op)->rules(plan->graph, node, rules);
  tsr_place place = rules[plan->decision.rules[index]].in[input];
  if (!tsr_place_in(choice->present, place)) place = TSR_PLACE_REPLICATE;
  const tsr_cluster_member *member = &plan->cluster->members[plan->decision.active[r]];
  const int panel = tsr_plan_is_panels(plan, value) ? member->gemm[dtype].panel : 0;
  tsr_shape shape = tsr_plan_local_shape(plan, value, place, r);
  int64_t rows, cols, units, unit_bytes;
  int pieces;
  tsr_shape_matrix(&shape, &rows, &cols);
  tsr_plan_pieces(plan, r, panel, dtype, rows, cols, &units, &unit_bytes, &pieces);
  return pieces > 1 && !panel;
}

/* A product of weights in i8 takes the factors of their columns where every member sums over all of k at
 * once: sums that are scaled one by one would not be what was checked without them. */
static bool takes_scale(const tsr_plan *plan, int index) {
  const tsr_node *node = &plan->graph->nodes[index];
  if (node->op != TSR_OPERATOR_MATMUL || tsr_matmul_dtype(plan->graph, node) != TSR_I8) return false;
  if (node->transpose_b || node->beta != 0) return false;
  for (int r = 0; r < plan->decision.active_count; r++)
    if (has_cut_rows(plan, index, 1, r) || (node->transpose_a && has_cut_rows(plan, index, 0, r)))
      return false;
  return true;
}

/* Which role a node has that takes the chain's value as its input `chain`; -1 = none. */
static int role_of(const tsr_plan *plan, const tsr_step *step, const tsr_node *node, int chain) {
  const tsr_graph *graph = plan->graph;
  if (node->op == TSR_OPERATOR_UNARY) return TSR_FUSED_UNARY;
  if (node->op != TSR_OPERATOR_ADD && node->op != TSR_OPERATOR_MULTIPLY) return -1;
  const tsr_shape *own = &tsr_graph_at(graph, node->inputs[chain])->shape,
                  *other = &tsr_graph_at(graph, node->inputs[1 - chain])->shape;
  bool whole = tsr_shape_equal(own, other);
  if (node->op == TSR_OPERATOR_MULTIPLY && whole) return TSR_FUSED_GATE;
  if (node->op == TSR_OPERATOR_ADD && (node->alpha != 1 || node->beta != 1)) return -1;
  if (whole) return TSR_FUSED_RESIDUAL;
  int64_t cols = own->extent[own->axes - 1];
  bool row = other->axes >= 1 && other->extent[other->axes - 1] == cols && tsr_shape_count(other) == cols;
  if (!row || chain != 0 || cols < 2) return -1;
  if (node->op == TSR_OPERATOR_ADD) return TSR_FUSED_BIAS;
  return !step->fused_count && takes_scale(plan, step->node) ? TSR_FUSED_SCALE : -1;
}

/* Whether the node, computed in the layout of the chain's value, finds its other operand made. */
static bool can_join(const tsr_plan *plan, const tsr_step *step, int index, int chain) {
  const tsr_graph *graph = plan->graph;
  const tsr_node *node = &graph->nodes[index];
  tsr_rule rules[TSR_RULES_MAX];
  tsr_operator_rules_of(node->op)->rules(graph, node, rules);
  const tsr_rule *rule = &rules[plan->decision.rules[index]];
  tsr_place place = plan->decision.choices[step->value.id].produced;
  if (rule->in[chain] != place || rule->out != place) return false;
  /* To a summand one may add, the whole by one owner; nothing else that an epilogue does is linear. */
  if (place < TSR_PLACE_REPLICATE && node->op != TSR_OPERATOR_ADD) return false;
  if (plan->decision.choices[node->output.id].produced != place) return false;
  if (tsr_plan_is_panels(plan, step->value) || tsr_plan_is_panels(plan, node->output)) return false;
  if (node->input_count < 2) return true;
  tsr_value other = node->inputs[1 - chain];
  return tsr_graph_at(graph, other)->producer < step->node && !tsr_plan_is_panels(plan, other);
}

void tsr_plan_fuse(const tsr_plan *plan, tsr_step *step) {
  const tsr_graph *graph = plan->graph;
  const tsr_operator first = graph->nodes[step->node].op;
  int last = -1;
  step->value = graph->nodes[step->node].output;
  step->fused_count = 0;
  if (first != TSR_OPERATOR_MATMUL && first != TSR_OPERATOR_ADD && first != TSR_OPERATOR_CONV) return;
  if (tsr_graph_at(graph, step->value)->shape.axes < 1) return;
  if (first == TSR_OPERATOR_ADD &&
      (graph->nodes[step->node].alpha != 1 || graph->nodes[step->node].beta != 1))
    return;
  while (step->fused_count < TSR_FUSED_MAX) {
    int reader = only_reader(plan, step->value);
    if (reader < 0) return;
    const tsr_node *node = &graph->nodes[reader];
    int chain = node->inputs[0].id == step->value.id ? 0 : 1, role = role_of(plan, step, node, chain);
    if (role <= last || (first != TSR_OPERATOR_MATMUL && role != TSR_FUSED_UNARY)) return;
    if (!can_join(plan, step, reader, chain)) return;
    step->fused[step->fused_count++] = (tsr_fused){
        .node = reader, .role = (tsr_fused_role)role, .operand = node->input_count < 2 ? -1 : 1 - chain};
    step->value = node->output;
    last = role;
  }
}
