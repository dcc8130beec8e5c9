/* graph/scale.c: out = alpha a; with unit_axis the output has one more axis, of extent 1, at `axis` (what the
 * gradient of a reduction needs before it can be broadcast). The data lies the same. */
#include "graph/graph.h"

#include <math.h>

tsr_status tsr_graph_scale(tsr_graph *graph, double alpha, tsr_value a, tsr_value *out, tsr_error *error) {
  tsr_node node = {.op = TSR_OPERATOR_SCALE, .input_count = 1, .inputs = {a}, .alpha = alpha};
  return tsr_graph_append(graph, &node, out, error);
}

/* The output's axis that is axis i of a. */
static int output_axis(const tsr_node *node, int i) {
  return node->unit_axis && i >= node->axis ? i + 1 : i;
}

static tsr_status scale_shape(const tsr_graph *graph, const tsr_node *node, tsr_dtype *dtype, tsr_shape *out,
                              tsr_error *error) {
  (void)dtype;
  const tsr_shape *a = &tsr_graph_at(graph, node->inputs[0])->shape;
  *out = *a;
  if (!node->unit_axis) return TSR_OK;
  if (a->axes == TSR_AXES_MAX || node->axis < 0 || node->axis > a->axes)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "no axis %d can be added to %s: at most %d are allowed", node->axis,
                    tsr_graph_describe(graph, node->inputs[0]).text, TSR_AXES_MAX);
  for (int i = 0; i < a->axes; i++) out->extent[output_axis(node, i)] = a->extent[i];
  out->extent[node->axis] = 1;
  out->axes++;
  return TSR_OK;
}

static int scale_rules(const tsr_graph *graph, const tsr_node *node, tsr_rule *out) {
  const tsr_place r = TSR_PLACE_REPLICATE, p = TSR_PLACE_SUM, max = TSR_PLACE_MAX;
  int axes = tsr_shape_split_axes(&tsr_graph_at(graph, node->inputs[0])->shape), count = 0;
  out[count++] = (tsr_rule){.in = {r, r, r}, .out = r};
  for (int i = 0; i < axes; i++)
    out[count++] = (tsr_rule){.in = {(tsr_place)i, r, r}, .out = (tsr_place)output_axis(node, i)};
  out[count++] = (tsr_rule){.in = {p, r, r}, .out = p};
  /* Not for 0: a member without candidates holds -infinity. */
  if (node->alpha > 0) out[count++] = (tsr_rule){.in = {max, r, r}, .out = max};
  return count;
}

static int scale_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out) {
  int axes = tsr_graph_at(graph, node->inputs[0])->shape.axes;
  for (int i = 0; i < axes; i++) out[i] = (tsr_axis_link){{0, -1}, {i, output_axis(node, i)}};
  return axes;
}

static tsr_status scale_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                                 tsr_adjoint *out, tsr_error *error) {
  (void)i;
  *out = (tsr_adjoint){dy.value, dy.factor * node->alpha};
  if (!node->unit_axis || !dy.value.id) return TSR_OK;
  tsr_node sum = {.op = TSR_OPERATOR_REDUCE, .input_count = 1, .inputs = {dy.value}, .axis = node->axis};
  return tsr_graph_append(graph, &sum, &out->value, error);
}

static double scale_flops(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output) {
  (void)inputs;
  return node->alpha == 1 ? 0 : (double)tsr_shape_count(output);
}

static void scale_evaluate(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                           const tsr_oracle_value *in, double epsilon, tsr_oracle_value out) {
  (void)inputs;
  int64_t count = tsr_shape_count(output);
  for (int64_t i = 0; i < count; i++) {
    out.exact[i] = node->alpha * in[0].exact[i];
    out.error[i] = fabs(node->alpha) * in[0].error[i] + 2 * epsilon * fabs(out.exact[i]);
  }
}

const tsr_operator_rules tsr_scale_rules = {
    .name = "scale",
    .inputs_min = 1,
    .inputs_max = 1,
    .attributes = TSR_ATTRIBUTE_ALPHA | TSR_ATTRIBUTE_AXIS,
    .shape = scale_shape,
    .rules = scale_rules,
    .links = scale_links,
    .gradient = scale_gradient,
    .flops = scale_flops,
    .evaluate = scale_evaluate,
};
