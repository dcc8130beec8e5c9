/* graph/reduce.c: the sum or the maximum over one axis, which goes away, or stays with extent 1 (unit_axis).
 */
#include "graph/adjoint.h"
#include "graph/graph.h"

#include <math.h>

tsr_status tsr_graph_reduce(tsr_graph *graph, tsr_reduction reduction, int axis, tsr_value a, tsr_value *out,
                            tsr_error *error) {
  tsr_node node = {
      .op = TSR_OPERATOR_REDUCE, .input_count = 1, .inputs = {a}, .reduction = reduction, .axis = axis};
  return tsr_graph_append(graph, &node, out, error);
}

/* The output's axis that is axis i of a; i is not the reduced one. */
static int output_axis(const tsr_node *node, int i) {
  return !node->unit_axis && i > node->axis ? i - 1 : i;
}

static tsr_status reduce_shape(const tsr_graph *graph, const tsr_node *node, tsr_dtype *dtype, tsr_shape *out,
                               tsr_error *error) {
  (void)dtype;
  const tsr_shape *a = &tsr_graph_at(graph, node->inputs[0])->shape;
  if (node->axis < 0 || node->axis >= a->axes)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "axis %d of %s, which has %d axes", node->axis,
                    tsr_graph_describe(graph, node->inputs[0]).text, a->axes);
  *out = (tsr_shape){.axes = a->axes - !node->unit_axis};
  for (int i = 0; i < a->axes; i++)
    if (i != node->axis) out->extent[output_axis(node, i)] = a->extent[i];
  if (node->unit_axis) out->extent[node->axis] = 1;
  return TSR_OK;
}

static int reduce_rules(const tsr_graph *graph, const tsr_node *node, tsr_rule *out) {
  const tsr_place r = TSR_PLACE_REPLICATE;
  const tsr_place partial = node->reduction == TSR_SUM ? TSR_PLACE_SUM : TSR_PLACE_MAX;
  int axes = tsr_graph_at(graph, node->inputs[0])->shape.axes, count = 0;
  out[count++] = (tsr_rule){.in = {r, r, r}, .out = r};
  for (int i = 0; i < axes; i++) {
    tsr_place result = i == node->axis ? partial : (tsr_place)output_axis(node, i);
    out[count++] = (tsr_rule){.in = {(tsr_place)i, r, r}, .out = result};
  }
  out[count++] = (tsr_rule){.in = {partial, r, r}, .out = partial};
  return count;
}

static int reduce_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out) {
  int axes = tsr_graph_at(graph, node->inputs[0])->shape.axes, count = 0;
  for (int i = 0; i < axes; i++)
    if (i != node->axis) out[count++] = (tsr_axis_link){{0, -1}, {i, output_axis(node, i)}};
  return count;
}

/* dy is repeated along the reduced axis: as the b of 0 a + 1 dy, after it got that axis back with extent 1
 * (the first axis may be missing: dy is broadcast along it as it is). */
static tsr_status reduce_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                                  tsr_adjoint *out, tsr_error *error) {
  (void)i;
  tsr_value value;
  if (node->reduction != TSR_SUM)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "the gradient of reduce(max) of %s is not supported: use a sum",
                    tsr_graph_describe(graph, node->inputs[0]).text);
  TSR_RETURN_IF_FAILED(tsr_adjoint_value(dy, node, &value, error));
  if (!node->unit_axis && node->axis > 0) {
    tsr_node insert = {.op = TSR_OPERATOR_SCALE,
                       .input_count = 1,
                       .inputs = {value},
                       .alpha = 1,
                       .axis = node->axis,
                       .unit_axis = true};
    TSR_RETURN_IF_FAILED(tsr_graph_append(graph, &insert, &value, error));
  }
  out->factor = 1;
  return tsr_graph_add(graph, 0, node->inputs[0], dy.factor, value, &out->value, error);
}

static double reduce_flops(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output) {
  (void)node, (void)output;
  return (double)tsr_shape_count(&inputs[0]);
}

/* a as [before, length, after]: length is the reduced axis. */
typedef struct fibers {
  int64_t before, length, after;
} fibers;

static fibers fibers_of(const tsr_shape *a, int axis) {
  fibers f = {1, a->extent[axis], 1};
  for (int i = 0; i < axis; i++) f.before *= a->extent[i];
  for (int i = axis + 1; i < a->axes; i++) f.after *= a->extent[i];
  return f;
}

static void sum_fiber(const fibers *f, tsr_oracle_value a, double epsilon, double *sum, double *error) {
  double size = 0;
  *sum = *error = 0;
  for (int64_t i = 0; i < f->length; i++) {
    *sum += a.exact[i * f->after];
    *error += a.error[i * f->after];
    size += fabs(a.exact[i * f->after]);
  }
  *error += epsilon * (4 * sqrt((double)f->length) * size + fabs(*sum));
}

static void maximum_of_fiber(const fibers *f, tsr_oracle_value a, double *maximum, double *error) {
  *maximum = -INFINITY; /* of nothing, on a member whose share is empty */
  *error = 0;
  for (int64_t i = 0; i < f->length; i++) {
    double x = a.exact[i * f->after];
    if (x > *maximum || isnan(x)) *maximum = x;
    *error = fmax(*error, a.error[i * f->after]);
  }
}

static void reduce_evaluate(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                            const tsr_oracle_value *in, double epsilon, tsr_oracle_value out) {
  (void)output;
  fibers f = fibers_of(&inputs[0], node->axis);
  for (int64_t i = 0; i < f.before; i++)
    for (int64_t j = 0; j < f.after; j++) {
      int64_t first = i * f.length * f.after + j, at = i * f.after + j;
      tsr_oracle_value a = {in[0].exact + first, in[0].error + first};
      if (node->reduction == TSR_SUM)
        sum_fiber(&f, a, epsilon, &out.exact[at], &out.error[at]);
      else
        maximum_of_fiber(&f, a, &out.exact[at], &out.error[at]);
    }
}

const tsr_operator_rules tsr_reduce_rules = {
    .name = "reduce",
    .inputs_min = 1,
    .inputs_max = 1,
    .attributes = TSR_ATTRIBUTE_REDUCTION | TSR_ATTRIBUTE_AXIS,
    .shape = reduce_shape,
    .rules = reduce_rules,
    .links = reduce_links,
    .gradient = reduce_gradient,
    .flops = reduce_flops,
    .evaluate = reduce_evaluate,
};
