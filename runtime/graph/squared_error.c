/* graph/squared_error.c: the scalar alpha * sum of (a - b)^2; alpha = 1 / count makes it a mean, also over
 * shards. */
#include "graph/broadcast.h"
#include "graph/graph.h"

#include <math.h>

tsr_status tsr_graph_squared_error(tsr_graph *graph, tsr_value y, tsr_value target, tsr_value *out,
                                   tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_graph_check_value(graph, y, "squared_error: y", error));
  tsr_node node = {.op = TSR_OPERATOR_SQUARED_ERROR,
                   .input_count = 2,
                   .inputs = {y, target},
                   .alpha = 1 / (double)tsr_shape_count(&tsr_graph_at(graph, y)->shape)};
  return tsr_graph_append(graph, &node, out, error);
}

static tsr_status squared_error_shape(const tsr_graph *graph, const tsr_node *node, tsr_dtype *dtype,
                                      tsr_shape *out, tsr_error *error) {
  (void)dtype;
  TSR_RETURN_IF_FAILED(tsr_broadcast_shape(graph, node, true, out, error));
  *out = (tsr_shape){0};
  return TSR_OK;
}

static int squared_error_rules(const tsr_graph *graph, const tsr_node *node, tsr_rule *out) {
  const tsr_place r = TSR_PLACE_REPLICATE;
  out[0] = (tsr_rule){.in = {r, r, r}, .out = r};
  int count = 1 + tsr_broadcast_shard_rules(graph, node, out + 1);
  for (int i = 1; i < count; i++) out[i].out = TSR_PLACE_SUM;
  return count;
}

static int squared_error_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out) {
  int axes = tsr_graph_at(graph, node->inputs[0])->shape.axes;
  for (int i = 0; i < axes; i++) out[i] = (tsr_axis_link){{0, 1}, {i, i}};
  return axes;
}

/* 2 alpha (a - b) dy, of b with the other sign: one add, and a product if dy is not a mere number. */
static tsr_status squared_error_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                                         tsr_adjoint *out, tsr_error *error) {
  double factor = 2 * node->alpha * dy.factor * (i ? -1 : 1);
  out->factor = 1;
  TSR_RETURN_IF_FAILED(
      tsr_graph_add(graph, factor, node->inputs[0], -factor, node->inputs[1], &out->value, error));
  if (!dy.value.id) return TSR_OK;
  return tsr_graph_multiply(graph, out->value, dy.value, &out->value, error);
}

static double squared_error_flops(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output) {
  (void)node, (void)output;
  return 3 * (double)tsr_shape_count(&inputs[0]);
}

static void squared_error_evaluate(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                                   const tsr_oracle_value *in, double epsilon, tsr_oracle_value out) {
  (void)output;
  int64_t count = tsr_shape_count(&inputs[0]);
  double sum = 0, error = 0;
  for (int64_t i = 0; i < count; i++) {
    double d = in[0].exact[i] - in[1].exact[i];
    double e = in[0].error[i] + in[1].error[i] + epsilon * fabs(d);
    sum += d * d;
    error += 2 * fabs(d) * e + e * e;
  }
  error += 4 * sqrt((double)count) * epsilon * sum;
  out.exact[0] = node->alpha * sum;
  out.error[0] = fabs(node->alpha) * error + 2 * epsilon * fabs(out.exact[0]);
}

const tsr_operator_rules tsr_squared_error_rules = {
    .name = "squared_error",
    .inputs_min = 2,
    .inputs_max = 2,
    .attributes = TSR_ATTRIBUTE_ALPHA,
    .shape = squared_error_shape,
    .rules = squared_error_rules,
    .links = squared_error_links,
    .gradient = squared_error_gradient,
    .flops = squared_error_flops,
    .evaluate = squared_error_evaluate,
};
