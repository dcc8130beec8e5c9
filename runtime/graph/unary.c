/* graph/unary.c: out = f(a), and unary_gradient: out = f'(a) b, for the functions of TSR_UNARY_LIST. */
#include "base/activation.h"
#include "graph/adjoint.h"
#include "graph/broadcast.h"
#include "graph/graph.h"

#include <math.h>

/* What the error bounds and counts need to know of each function. */
static const struct {
  const char *name;
  double lipschitz;            /* largest |f'| */
  double derivative_lipschitz; /* largest |f''|; 0 = f' is a step */
  double roundings;            /* of f itself in floating point, in units of epsilon max(|x|, |f|) */
  double flops;                /* an estimate: exp and erf as polynomials */
} functions[TSR_UNARY_COUNT] = {
    [TSR_UNARY_RELU] = {"relu", 1, 0, 0, 1},
    [TSR_UNARY_GELU] = {"gelu", 1.13, 0.8, 4, 20},
    [TSR_UNARY_GELU_TANH] = {"gelu_tanh", 1.13, 0.8, 4, 20},
    [TSR_UNARY_SILU] = {"silu", 1.1, 0.5, 4, 15},
};

const char *tsr_unary_name(tsr_unary unary) {
  return (size_t)unary < TSR_UNARY_COUNT ? functions[unary].name : "?";
}

tsr_status tsr_graph_unary(tsr_graph *graph, tsr_unary unary, tsr_value a, tsr_value *out, tsr_error *error) {
  tsr_node node = {.op = TSR_OPERATOR_UNARY, .input_count = 1, .inputs = {a}, .unary = unary};
  return tsr_graph_append(graph, &node, out, error);
}

static tsr_status unary_shape(const tsr_graph *graph, const tsr_node *node, tsr_dtype *dtype, tsr_shape *out,
                              tsr_error *error) {
  (void)dtype, (void)error;
  *out = tsr_graph_at(graph, node->inputs[0])->shape;
  return TSR_OK;
}

static int unary_rules(const tsr_graph *graph, const tsr_node *node, tsr_rule *out) {
  const tsr_place r = TSR_PLACE_REPLICATE;
  int axes = tsr_shape_split_axes(&tsr_graph_at(graph, node->inputs[0])->shape);
  out[0] = (tsr_rule){.in = {r, r, r}, .out = r};
  for (int i = 0; i < axes; i++) out[i + 1] = (tsr_rule){.in = {(tsr_place)i, r, r}, .out = (tsr_place)i};
  return axes + 1;
}

static int unary_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out) {
  int axes = tsr_graph_at(graph, node->inputs[0])->shape.axes;
  for (int i = 0; i < axes; i++) out[i] = (tsr_axis_link){{0, -1}, {i, i}};
  return axes;
}

static tsr_status append_gradient(tsr_graph *graph, tsr_unary unary, tsr_value a, tsr_value b, tsr_value *out,
                                  tsr_error *error) {
  tsr_node node = {.op = TSR_OPERATOR_UNARY_GRADIENT, .input_count = 2, .inputs = {a, b}, .unary = unary};
  return tsr_graph_append(graph, &node, out, error);
}

static tsr_status unary_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                                 tsr_adjoint *out, tsr_error *error) {
  (void)i;
  tsr_value value;
  TSR_RETURN_IF_FAILED(tsr_adjoint_value(dy, node, &value, error));
  out->factor = dy.factor;
  return append_gradient(graph, node->unary, node->inputs[0], value, &out->value, error);
}

static double unary_flops(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output) {
  (void)inputs;
  return (double)tsr_shape_count(output) * functions[node->unary].flops;
}

static void unary_evaluate(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                           const tsr_oracle_value *in, double epsilon, tsr_oracle_value out) {
  (void)inputs;
  int64_t count = tsr_shape_count(output);
  for (int64_t i = 0; i < count; i++) {
    double x = in[0].exact[i], y = tsr_unary_apply(node->unary, x);
    out.exact[i] = y;
    out.error[i] = functions[node->unary].lipschitz * in[0].error[i] +
                   functions[node->unary].roundings * epsilon * fmax(fabs(x), fabs(y));
  }
}

const tsr_operator_rules tsr_unary_rules = {
    .name = "unary",
    .inputs_min = 1,
    .inputs_max = 1,
    .attributes = TSR_ATTRIBUTE_UNARY,
    .shape = unary_shape,
    .rules = unary_rules,
    .links = unary_links,
    .gradient = unary_gradient,
    .flops = unary_flops,
    .evaluate = unary_evaluate,
};

static tsr_status derivative_shape(const tsr_graph *graph, const tsr_node *node, tsr_dtype *dtype,
                                   tsr_shape *out, tsr_error *error) {
  (void)dtype;
  return tsr_broadcast_shape(graph, node, true, out, error);
}

static int derivative_rules(const tsr_graph *graph, const tsr_node *node, tsr_rule *out) {
  const tsr_place r = TSR_PLACE_REPLICATE, p = TSR_PLACE_SUM;
  int count = 0;
  out[count++] = (tsr_rule){.in = {r, r, r}, .out = r};
  count += tsr_broadcast_shard_rules(graph, node, out + count);
  out[count++] = (tsr_rule){.in = {r, p, r}, .out = p}; /* linear in b */
  return count;
}

static tsr_status derivative_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                                      tsr_adjoint *out, tsr_error *error) {
  if (i == 0)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "the second derivative of %s, at %s, is not supported",
                    tsr_unary_name(node->unary), tsr_graph_describe(graph, node->inputs[0]).text);
  return unary_gradient(graph, node, dy, i, out, error);
}

static double derivative_flops(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output) {
  (void)inputs;
  return (double)tsr_shape_count(output) * (functions[node->unary].flops + 1);
}

/* Error of f'(x) where x is known up to e: of a step, 1 if it may be on the other side. */
static double derivative_error(tsr_unary unary, double x, double e, double epsilon) {
  if (functions[unary].derivative_lipschitz == 0) return x > 0 ? x - e <= 0 : x + e > 0;
  return functions[unary].derivative_lipschitz * e +
         8 * epsilon; /* |f'| is about 1, made of products of parts */
}

static void derivative_evaluate(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                                const tsr_oracle_value *in, double epsilon, tsr_oracle_value out) {
  (void)inputs;
  int64_t count = tsr_shape_count(output);
  for (int64_t i = 0; i < count; i++) {
    double x = in[0].exact[i], b = in[1].exact[i], e_b = in[1].error[i];
    double slope = tsr_unary_derivative(node->unary, x);
    double e_slope = derivative_error(node->unary, x, in[0].error[i], epsilon);
    out.exact[i] = slope * b;
    out.error[i] = e_slope * fabs(b) + fabs(slope) * e_b + e_slope * e_b + 2 * epsilon * fabs(out.exact[i]);
  }
}

const tsr_operator_rules tsr_unary_gradient_rules = {
    .name = "unary_gradient",
    .inputs_min = 2,
    .inputs_max = 2,
    .attributes = TSR_ATTRIBUTE_UNARY,
    .shape = derivative_shape,
    .rules = derivative_rules,
    .links = tsr_broadcast_links,
    .gradient = derivative_gradient,
    .flops = derivative_flops,
    .evaluate = derivative_evaluate,
};
