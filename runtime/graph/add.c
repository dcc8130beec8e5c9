/* graph/add.c: out = alpha a + beta b, b broadcast. */
#include "graph/broadcast.h"
#include "graph/graph.h"

#include <math.h>

tsr_status tsr_graph_add(tsr_graph *graph, double alpha, tsr_value a, double beta, tsr_value b,
                         tsr_value *out, tsr_error *error) {
  tsr_node node = {.op = TSR_OPERATOR_ADD, .input_count = 2, .inputs = {a, b}, .alpha = alpha, .beta = beta};
  return tsr_graph_append(graph, &node, out, error);
}

static tsr_status add_shape(const tsr_graph *graph, const tsr_node *node, tsr_dtype *dtype, tsr_shape *out,
                            tsr_error *error) {
  (void)dtype;
  return tsr_broadcast_shape(graph, node, false, out, error);
}

static int add_rules(const tsr_graph *graph, const tsr_node *node, tsr_rule *out) {
  const tsr_place r = TSR_PLACE_REPLICATE, p = TSR_PLACE_SUM;
  int count = 0;
  out[count++] = (tsr_rule){.in = {r, r, r}, .out = r};
  count += tsr_broadcast_shard_rules(graph, node, out + count);
  out[count++] = (tsr_rule){.in = {p, p, r}, .out = p};
  out[count++] = (tsr_rule){.in = {p, r, r}, .out = p, .one_owner = {false, true, false}};
  out[count++] = (tsr_rule){.in = {r, p, r}, .out = p, .one_owner = {true, false, false}};
  return count;
}

static tsr_status add_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                               tsr_adjoint *out, tsr_error *error) {
  *out = (tsr_adjoint){dy.value, dy.factor * (i ? node->beta : node->alpha)};
  if (i == 0 || !dy.value.id) return TSR_OK; /* a mere number is the gradient of a scalar: b is one as well */
  return tsr_broadcast_reduce(graph, node, dy.value, &out->value, error);
}

static double add_flops(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output) {
  (void)inputs;
  return (double)tsr_shape_count(output) * (1 + (node->alpha != 1) + (node->beta != 1));
}

/* A factor of 0 leaves its operand unread, as in a matmul. */
static void add_evaluate(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                         const tsr_oracle_value *in, double epsilon, tsr_oracle_value out) {
  tsr_broadcast_walk walk = tsr_broadcast_start(&inputs[0], &inputs[1]);
  int64_t count = tsr_shape_count(output);
  for (int64_t i = 0; i < count; i++, tsr_broadcast_next(&walk)) {
    double a = node->alpha != 0 ? node->alpha * in[0].exact[i] : 0;
    double b = node->beta != 0 ? node->beta * in[1].exact[walk.offset] : 0;
    double e_a = node->alpha != 0 ? fabs(node->alpha) * in[0].error[i] : 0;
    double e_b = node->beta != 0 ? fabs(node->beta) * in[1].error[walk.offset] : 0;
    out.exact[i] = a + b;
    out.error[i] = e_a + e_b + epsilon * (2 * fabs(a) + 2 * fabs(b) + fabs(a + b));
  }
}

const tsr_operator_rules tsr_add_rules = {
    .name = "add",
    .inputs_min = 2,
    .inputs_max = 2,
    .attributes = TSR_ATTRIBUTE_ALPHA | TSR_ATTRIBUTE_BETA,
    .shape = add_shape,
    .rules = add_rules,
    .links = tsr_broadcast_links,
    .gradient = add_gradient,
    .flops = add_flops,
    .evaluate = add_evaluate,
};
