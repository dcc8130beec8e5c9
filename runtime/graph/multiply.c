/* graph/multiply.c: out = a b elementwise, b broadcast. */
#include "graph/adjoint.h"
#include "graph/broadcast.h"
#include "graph/graph.h"

#include <math.h>

tsr_status tsr_graph_multiply(tsr_graph *graph, tsr_value a, tsr_value b, tsr_value *out, tsr_error *error) {
  tsr_node node = {.op = TSR_OPERATOR_MULTIPLY, .input_count = 2, .inputs = {a, b}};
  return tsr_graph_append(graph, &node, out, error);
}

static tsr_status multiply_shape(const tsr_graph *graph, const tsr_node *node, tsr_dtype *dtype,
                                 tsr_shape *out, tsr_error *error) {
  (void)dtype;
  return tsr_broadcast_shape(graph, node, false, out, error);
}

static int multiply_rules(const tsr_graph *graph, const tsr_node *node, tsr_rule *out) {
  const tsr_place r = TSR_PLACE_REPLICATE, p = TSR_PLACE_SUM;
  int count = 0;
  out[count++] = (tsr_rule){.in = {r, r, r}, .out = r};
  count += tsr_broadcast_shard_rules(graph, node, out + count);
  out[count++] = (tsr_rule){.in = {p, r, r}, .out = p}; /* linear in a, and in b */
  out[count++] = (tsr_rule){.in = {r, p, r}, .out = p};
  return count;
}

static tsr_status multiply_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                                    tsr_adjoint *out, tsr_error *error) {
  tsr_value a = node->inputs[0], b = node->inputs[1], product;
  out->factor = dy.factor;
  if (!dy.value.id) { /* a number, so a and b are scalars */
    out->value = i ? a : b;
    return TSR_OK;
  }
  if (i == 0) return tsr_graph_multiply(graph, dy.value, b, &out->value, error);
  TSR_RETURN_IF_FAILED(tsr_graph_multiply(graph, dy.value, a, &product, error));
  return tsr_broadcast_reduce(graph, node, product, &out->value, error);
}

static double multiply_flops(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output) {
  (void)node, (void)inputs;
  return (double)tsr_shape_count(output);
}

static void multiply_evaluate(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                              const tsr_oracle_value *in, double epsilon, tsr_oracle_value out) {
  (void)node;
  tsr_broadcast_walk walk = tsr_broadcast_start(&inputs[0], &inputs[1]);
  int64_t count = tsr_shape_count(output);
  for (int64_t i = 0; i < count; i++, tsr_broadcast_next(&walk)) {
    double a = in[0].exact[i], b = in[1].exact[walk.offset];
    double e_a = in[0].error[i], e_b = in[1].error[walk.offset];
    out.exact[i] = a * b;
    out.error[i] = fabs(a) * e_b + e_a * fabs(b) + e_a * e_b + 2 * epsilon * fabs(a * b);
  }
}

const tsr_operator_rules tsr_multiply_rules = {
    .name = "multiply",
    .inputs_min = 2,
    .inputs_max = 2,
    .shape = multiply_shape,
    .rules = multiply_rules,
    .links = tsr_broadcast_links,
    .gradient = multiply_gradient,
    .flops = multiply_flops,
    .evaluate = multiply_evaluate,
};
