/* Room runtime/graph: gradients against central differences, which nodes they take, and the bounds of the f64
 * oracle against a computation in f32. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/activation.h"
#include "graph/graph.h"

static tsr_context *context;
static tsr_error error;

static void ok(tsr_status status) {
  if (status != TSR_OK) fail_msg("%s", error.message);
}

static uint64_t random_state;
static double random_real(void) { /* splitmix64, in [-1, 1) */
  uint64_t z = random_state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return (double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1;
}

static tsr_graph *new_graph(void) {
  tsr_graph *graph;
  ok(tsr_graph_create(context, &graph, &error));
  return graph;
}

static tsr_dtype leaf_dtype = TSR_F64;
static tsr_value leaf(tsr_graph *graph, const char *name, int axes, int64_t e0, int64_t e1) {
  tsr_shape shape = tsr_shape_of(axes, e0, e1);
  tsr_value value;
  ok(tsr_graph_parameter(graph, name, leaf_dtype, &shape, &value, &error));
  return value;
}

/* --- functions to differentiate; the parameters that they make are what they are differentiated by --- */

static tsr_value product(tsr_graph *graph, bool ta, bool tb, bool adds) {
  tsr_value out, a = ta ? leaf(graph, "a", 2, 4, 3) : leaf(graph, "a", 2, 3, 4);
  tsr_value b = tb ? leaf(graph, "b", 2, 5, 4) : leaf(graph, "b", 2, 4, 5);
  tsr_matmul_options options;
  tsr_matmul_options_init(&options);
  options.transpose_a = ta;
  options.transpose_b = tb;
  options.alpha = 1.5;
  options.beta = adds ? -0.75 : 0;
  if (adds) options.c = leaf(graph, "c", 2, 3, 5);
  ok(tsr_graph_matmul(graph, a, b, &options, &out, &error));
  return out;
}
static tsr_value product_nn(tsr_graph *graph) {
  return product(graph, false, false, true);
}
static tsr_value product_nt(tsr_graph *graph) {
  return product(graph, false, true, false);
}
static tsr_value product_tn(tsr_graph *graph) {
  return product(graph, true, false, false);
}
static tsr_value product_tt(tsr_graph *graph) {
  return product(graph, true, true, true);
}

/* Both elementwise operators with every broadcast operand. */
static tsr_value sums(tsr_graph *graph) {
  tsr_value y = leaf(graph, "a", 2, 3, 4);
  ok(tsr_graph_add(graph, 2, y, -0.5, leaf(graph, "full", 2, 3, 4), &y, &error));
  ok(tsr_graph_add(graph, 1, y, 3, leaf(graph, "vector", 1, 4, 0), &y, &error));
  ok(tsr_graph_add(graph, -1, y, 1, leaf(graph, "row", 2, 1, 4), &y, &error));
  ok(tsr_graph_add(graph, 1, y, 0.25, leaf(graph, "column", 2, 3, 1), &y, &error));
  ok(tsr_graph_add(graph, 1, y, 1, leaf(graph, "scalar", 0, 0, 0), &y, &error));
  return y;
}
static tsr_value products(tsr_graph *graph) {
  tsr_value y = leaf(graph, "a", 2, 3, 4);
  ok(tsr_graph_multiply(graph, y, leaf(graph, "full", 2, 3, 4), &y, &error));
  ok(tsr_graph_multiply(graph, y, leaf(graph, "vector", 1, 4, 0), &y, &error));
  ok(tsr_graph_multiply(graph, y, leaf(graph, "row", 2, 1, 4), &y, &error));
  ok(tsr_graph_multiply(graph, y, leaf(graph, "column", 2, 3, 1), &y, &error));
  ok(tsr_graph_multiply(graph, y, leaf(graph, "scalar", 0, 0, 0), &y, &error));
  return y;
}
static tsr_value scaled(tsr_graph *graph) {
  tsr_value y;
  ok(tsr_graph_scale(graph, -2.5, leaf(graph, "a", 2, 3, 4), &y, &error));
  return y;
}
static tsr_value all_unary(tsr_graph *graph) {
  static const char *const names[] = {"a", "b", "c", "d"};
  tsr_value f, y = leaf(graph, "x", 2, 3, 4);
  for (int i = 0; i < TSR_UNARY_COUNT; i++) {
    ok(tsr_graph_unary(graph, (tsr_unary)i, leaf(graph, names[i], 2, 3, 4), &f, &error));
    ok(tsr_graph_multiply(graph, y, f, &y, &error));
  }
  return y;
}
static tsr_value reduced_rows(tsr_graph *graph) {
  tsr_value y;
  ok(tsr_graph_reduce(graph, TSR_SUM, 0, leaf(graph, "a", 2, 3, 4), &y, &error));
  return y;
}
static tsr_value reduced_columns(tsr_graph *graph) {
  tsr_value y;
  ok(tsr_graph_reduce(graph, TSR_SUM, 1, leaf(graph, "a", 2, 3, 4), &y, &error));
  ok(tsr_graph_multiply(graph, y, leaf(graph, "b", 1, 3, 0), &y, &error));
  return y;
}
static tsr_value reduced_to_scalar(tsr_graph *graph) {
  tsr_value y = reduced_columns(graph);
  ok(tsr_graph_reduce(graph, TSR_SUM, 0, y, &y, &error));
  ok(tsr_graph_multiply(graph, y, y, &y, &error));
  return y;
}
/* The gradient graph is itself made of operators: the gradient of this one goes through reduce and scale with
 * a unit axis, and through the b of unary_gradient. */
static tsr_value gradient_of_column(tsr_graph *graph) {
  tsr_value y, dy = leaf(graph, "dy_inner", 2, 3, 4), x = leaf(graph, "x", 2, 3, 4), f, gradient;
  tsr_value column = leaf(graph, "column", 2, 3, 1);
  ok(tsr_graph_unary(graph, TSR_UNARY_SILU, x, &f, &error));
  ok(tsr_graph_add(graph, 1, f, 2, column, &y, &error));
  ok(tsr_graph_gradients(graph, y, dy, &column, 1, &gradient, &error));
  tsr_value wrt[] = {x}, dx;
  ok(tsr_graph_gradients(graph, y, dy, wrt, 1, &dx, &error));
  ok(tsr_graph_add(graph, 1, x, 1, gradient, &y, &error)); /* column broadcast again */
  tsr_value z;
  ok(tsr_graph_reduce(graph, TSR_SUM, 1, dy, &z, &error));
  tsr_value seed = leaf(graph, "seed", 1, 3, 0), back;
  ok(tsr_graph_gradients(graph, z, seed, &dy, 1, &back, &error));
  ok(tsr_graph_add(graph, 1, y, 0.5, back, &y, &error));
  return y;
}
static tsr_value gradient_of_silu(tsr_graph *graph) { /* by dy alone: see wanted() */
  tsr_value x, y, dy = leaf(graph, "b", 2, 3, 4), dx;
  tsr_shape shape = tsr_shape_of(2, 3, 4);
  ok(tsr_graph_input(graph, "x", leaf_dtype, &shape, &x, &error));
  ok(tsr_graph_unary(graph, TSR_UNARY_SILU, x, &y, &error));
  ok(tsr_graph_gradients(graph, y, dy, &x, 1, &dx, &error));
  return dx;
}
static tsr_value used_often(tsr_graph *graph) {
  tsr_value x = leaf(graph, "x", 2, 3, 3), y, z;
  ok(tsr_graph_multiply(graph, x, x, &y, &error));
  ok(tsr_graph_matmul(graph, y, x, NULL, &z, &error));
  ok(tsr_graph_add(graph, 1, z, 2, x, &z, &error));
  ok(tsr_graph_add(graph, 1, z, -3, y, &z, &error));
  ok(tsr_graph_add(graph, 0.5, z, 0.5, z, &z, &error));
  return z;
}
static tsr_value loss_of(tsr_graph *graph, tsr_value y, const char *name) {
  const tsr_shape *shape = &tsr_graph_at(graph, y)->shape;
  tsr_value target = leaf(graph, name, 2, shape->extent[0], shape->extent[1]), loss;
  ok(tsr_graph_squared_error(graph, y, target, &loss, &error));
  return loss;
}
static tsr_value loss(tsr_graph *graph) {
  return loss_of(graph, leaf(graph, "y", 2, 3, 4), "target");
}
static tsr_value combined_losses(tsr_graph *graph) {
  tsr_value first = loss(graph), y;
  ok(tsr_graph_find(graph, "y", &y, &error));
  tsr_value second = loss_of(graph, y, "other");
  ok(tsr_graph_scale(graph, 0.5, first, &first, &error));
  ok(tsr_graph_add(graph, 2, first, -3, second, &second, &error));
  ok(tsr_graph_add(graph, 1, second, 1, first, &second, &error));
  return second;
}
static tsr_value linear_with_loss(tsr_graph *graph) {
  tsr_value y, x = leaf(graph, "x", 2, 3, 4), w = leaf(graph, "w", 2, 4, 5),
               bias = leaf(graph, "bias", 1, 5, 0);
  ok(tsr_graph_linear(graph, x, w, bias, &y, &error));
  return loss_of(graph, y, "target");
}
static tsr_value block(tsr_graph *graph, bool gated) {
  tsr_ffn_options options;
  tsr_ffn_options_init(&options);
  options.hidden = 6;
  options.gated = gated;
  options.activation = gated ? TSR_UNARY_SILU : TSR_UNARY_GELU;
  tsr_value y;
  ok(tsr_graph_ffn(graph, leaf(graph, "x", 2, 3, 4), &options, &y, &error));
  return y;
}
static tsr_value plain_block(tsr_graph *graph) {
  return block(graph, false);
}
static tsr_value gated_block(tsr_graph *graph) {
  return loss_of(graph, block(graph, true), "target");
}

/* --- evaluating --- */

static tsr_oracle_value *fill_leaves(const tsr_graph *graph) {
  tsr_oracle_value *values = calloc(graph->value_count, sizeof *values);
  for (size_t id = 1; id < graph->value_count; id++) {
    if (graph->values[id].producer >= 0) continue;
    int64_t count = tsr_shape_count(&graph->values[id].shape);
    values[id].exact = calloc((size_t)count, sizeof(double));
    for (int64_t i = 0; i < count; i++) {
      double x = random_real();
      values[id].exact[i] =
          (double)(float)(fabs(x) < 0.01 ? 0.5 : x); /* away from relu's corner; exact in f32 */
    }
  }
  return values;
}

static void free_values(const tsr_graph *graph, tsr_oracle_value *values) {
  for (size_t id = 0; id < graph->value_count; id++) {
    free(values[id].exact);
    free(values[id].error);
  }
  free(values);
}

/* <y, dy>; dy of no value is 1. */
static double pairing(const tsr_graph *graph, tsr_value y, tsr_value dy, tsr_oracle_value *values) {
  ok(tsr_graph_evaluate(graph, 0, values, &error));
  double sum = 0;
  for (int64_t i = 0; i < tsr_shape_count(&tsr_graph_at(graph, y)->shape); i++)
    sum += values[y.id].exact[i] * (dy.id ? values[dy.id].exact[i] : 1);
  return sum;
}

static void check_leaf(const tsr_graph *graph, const char *name, tsr_value y, tsr_value dy, tsr_value by,
                       tsr_value gradient, tsr_oracle_value *values) {
  enum { LARGEST = 64 };
  const double h = 1e-5;
  double analytic[LARGEST];
  int64_t count = tsr_shape_count(&tsr_graph_at(graph, by)->shape);
  assert_true(tsr_shape_equal(&tsr_graph_at(graph, by)->shape, &tsr_graph_at(graph, gradient)->shape));
  assert_in_range(count, 1, LARGEST);
  pairing(graph, y, dy, values);
  memcpy(analytic, values[gradient.id].exact, (size_t)count * sizeof(double));
  for (int64_t i = 0; i < count; i++) {
    double *x = &values[by.id].exact[i], at = *x;
    *x = at + h;
    double above = pairing(graph, y, dy, values);
    *x = at - h;
    double difference = (above - pairing(graph, y, dy, values)) / (2 * h);
    *x = at;
    if (fabs(analytic[i] - difference) > 1e-7 * (1 + fabs(difference)))
      fail_msg("%s by %s, element %lld: %.10g, by differences %.10g", name,
               tsr_graph_describe(graph, by).text, (long long)i, analytic[i], difference);
  }
}

typedef struct function {
  const char *name;
  tsr_value (*build)(tsr_graph *graph);
} function;

static const function functions[] = {
    {"product_nn", product_nn},
    {"product_nt", product_nt},
    {"product_tn", product_tn},
    {"product_tt", product_tt},
    {"sums", sums},
    {"products", products},
    {"scaled", scaled},
    {"all_unary", all_unary},
    {"reduced_rows", reduced_rows},
    {"reduced_columns", reduced_columns},
    {"reduced_to_scalar", reduced_to_scalar},
    {"gradient_of_column", gradient_of_column},
    {"gradient_of_silu", gradient_of_silu},
    {"used_often", used_often},
    {"loss", loss},
    {"combined_losses", combined_losses},
    {"linear_with_loss", linear_with_loss},
    {"plain_block", plain_block},
    {"gated_block", gated_block},
};

/* The parameters on which y depends. */
static size_t wanted(const tsr_graph *graph, tsr_value y, tsr_value *wrt) {
  bool *reached = calloc(graph->value_count, sizeof *reached);
  size_t count = 0;
  reached[y.id] = true;
  for (size_t i = graph->node_count; i-- > 0;)
    for (int j = 0; j < graph->nodes[i].input_count; j++)
      if (reached[graph->nodes[i].output.id]) reached[graph->nodes[i].inputs[j].id] = true;
  for (uint32_t id = 1; id < graph->value_count; id++)
    if (reached[id] && graph->values[id].kind == TSR_PARAMETER) wrt[count++].id = id;
  free(reached);
  return count;
}

static void check_function(const function *f, bool with_dy) {
  enum { LARGEST = 8 };
  tsr_graph *graph = new_graph();
  tsr_value y = f->build(graph), dy = TSR_NO_VALUE, wrt[LARGEST], gradients[LARGEST];
  size_t count = wanted(graph, y, wrt);
  tsr_shape shape = tsr_graph_at(graph, y)->shape;
  if (with_dy) ok(tsr_graph_input(graph, "dy", TSR_F64, &shape, &dy, &error));
  tsr_status status = tsr_graph_gradients(graph, y, dy, wrt, count, gradients, &error);
  if (status != TSR_OK) fail_msg("%s: %s", f->name, error.message);
  tsr_oracle_value *values = fill_leaves(graph);
  for (size_t i = 0; i < count; i++) check_leaf(graph, f->name, y, dy, wrt[i], gradients[i], values);
  free_values(graph, values);
  tsr_graph_destroy(&graph);
}

static void gradients_agree_with_differences(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) check_function(&functions[i], true);
  static const function without_dy[] = {{"loss", loss},
                                        {"combined_losses", combined_losses},
                                        {"linear_with_loss", linear_with_loss},
                                        {"gated_block", gated_block}};
  for (size_t i = 0; i < sizeof without_dy / sizeof *without_dy; i++) check_function(&without_dy[i], false);
}

/* --- which nodes --- */

static const tsr_node *producer(const tsr_graph *graph, tsr_value value) {
  assert_true(tsr_graph_at(graph, value)->producer >= 0);
  return &graph->nodes[tsr_graph_at(graph, value)->producer];
}

static void only_needed_nodes_are_added(void **state) {
  (void)state;
  tsr_graph *graph = new_graph();
  tsr_value y = linear_with_loss(graph), x, w, bias, target, out[3];
  ok(tsr_graph_find(graph, "x", &x, &error));
  ok(tsr_graph_find(graph, "w", &w, &error));
  ok(tsr_graph_find(graph, "bias", &bias, &error));
  ok(tsr_graph_find(graph, "target", &target, &error));
  size_t nodes = graph->node_count;
  tsr_value parameters[] = {w, bias};
  ok(tsr_graph_gradients(graph, y, TSR_NO_VALUE, parameters, 2, out, &error));
  assert_int_equal(graph->node_count,
                   nodes + 3); /* y - target, its product with x, its sum; no dX, no factor 1 */
  const tsr_node *dw = producer(graph, out[0]), *db = producer(graph, out[1]);
  assert_int_equal(dw->op, TSR_OPERATOR_MATMUL);
  assert_true(dw->transpose_a && !dw->transpose_b && dw->inputs[0].id == x.id);
  assert_int_equal(db->op, TSR_OPERATOR_REDUCE);
  const tsr_node *difference = producer(graph, dw->inputs[1]);
  assert_int_equal(difference->op, TSR_OPERATOR_ADD);
  assert_true(difference->alpha == 2.0 / 15 && difference->beta == -2.0 / 15);
  assert_int_equal(difference->inputs[1].id, target.id);

  nodes = graph->node_count;
  ok(tsr_graph_gradients(graph, y, TSR_NO_VALUE, &x, 1, out, &error));
  assert_int_equal(graph->node_count, nodes + 2);
  const tsr_node *dx = producer(graph, out[0]);
  assert_true(dx->op == TSR_OPERATOR_MATMUL && !dx->transpose_a && dx->transpose_b &&
              dx->inputs[1].id == w.id);
  tsr_graph_destroy(&graph);
}

/* y = x w^T keeps w as operand b, plain; dw comes out as [n, k], as w is stored. */
static void transposed_weight_keeps_its_form(void **state) {
  (void)state;
  tsr_graph *graph = new_graph();
  tsr_value y = product_nt(graph), wrt[2], out[2], dy;
  tsr_shape shape = tsr_shape_of(2, 3, 5);
  ok(tsr_graph_input(graph, "dy", TSR_F64, &shape, &dy, &error));
  ok(tsr_graph_find(graph, "a", &wrt[0], &error));
  ok(tsr_graph_find(graph, "b", &wrt[1], &error));
  ok(tsr_graph_gradients(graph, y, dy, wrt, 2, out, &error));
  const tsr_node *dx = producer(graph, out[0]), *dw = producer(graph, out[1]);
  assert_true(dx->inputs[1].id == wrt[1].id && !dx->transpose_a && !dx->transpose_b && dx->alpha == 1.5);
  assert_true(dw->inputs[0].id == dy.id && dw->transpose_a && !dw->transpose_b && dw->alpha == 1.5);
  tsr_graph_destroy(&graph);
}

/* y = a + b with dy: both gradients are dy itself, but each parameter needs one in its own layout. */
static void parameters_have_gradients_of_their_own(void **state) {
  (void)state;
  tsr_graph *graph = new_graph();
  tsr_shape shape = tsr_shape_of(2, 3, 4);
  tsr_value y, x, dy, wrt[4], out[4];
  ok(tsr_graph_input(graph, "x", TSR_F64, &shape, &x, &error));
  ok(tsr_graph_input(graph, "dy", TSR_F64, &shape, &dy, &error));
  wrt[0] = wrt[2] = leaf(graph, "a", 2, 3, 4);
  wrt[1] = leaf(graph, "b", 2, 3, 4);
  wrt[3] = x;
  ok(tsr_graph_add(graph, 1, wrt[0], 1, wrt[1], &y, &error));
  ok(tsr_graph_add(graph, 1, y, 1, x, &y, &error));
  ok(tsr_graph_gradients(graph, y, dy, wrt, 4, out, &error));
  assert_true(out[3].id == dy.id && tsr_graph_at(graph, dy)->gradient_of.id == 0);
  assert_true(out[2].id == out[0].id && out[1].id != out[0].id);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(tsr_graph_at(graph, out[i])->gradient_of.id, wrt[i].id);
    assert_int_equal(producer(graph, out[i])->op, TSR_OPERATOR_SCALE);
  }
  tsr_graph_destroy(&graph);
}

static char *text_of(const tsr_graph *graph) {
  json_t *json = tsr_graph_to_json(graph);
  char *text = json_dumps(json, 0);
  json_decref(json);
  return text;
}

static void order_is_fixed(void **state) {
  (void)state;
  char *text[2];
  for (int i = 0; i < 2; i++) {
    tsr_graph *graph = new_graph();
    tsr_value y = used_often(graph), x, dx;
    ok(tsr_graph_find(graph, "x", &x, &error));
    ok(tsr_graph_gradients(graph, y, x, &x, 1, &dx, &error));
    text[i] = text_of(graph);
    tsr_graph_destroy(&graph);
  }
  assert_string_equal(text[0], text[1]);
  free(text[0]);
  free(text[1]);
}

static void refuses(tsr_graph *graph, tsr_value y, tsr_value dy, tsr_value by, tsr_status status,
                    const char *words) {
  char *before = text_of(graph);
  tsr_value out;
  assert_int_equal(tsr_graph_gradients(graph, y, dy, &by, 1, &out, &error), status);
  if (!strstr(error.message, words)) fail_msg("\"%s\" lacks \"%s\"", error.message, words);
  char *after = text_of(graph);
  assert_string_equal(before, after);
  free(before);
  free(after);
}

static void what_has_no_gradient(void **state) {
  (void)state;
  tsr_graph *graph = new_graph();
  tsr_value y = linear_with_loss(graph), other = leaf(graph, "lonely", 2, 3, 4), x, scalar, matrix, slope;
  ok(tsr_graph_find(graph, "x", &x, &error));
  refuses(graph, y, TSR_NO_VALUE, other, TSR_ERROR_INVALID_ARGUMENT,
          "does not depend on wrt[0], value 8 \"lonely\"");
  refuses(graph, x, TSR_NO_VALUE, x, TSR_ERROR_INVALID_ARGUMENT, "value 1 \"x\" [3, 4], is no scalar");
  refuses(graph, x, y, x, TSR_ERROR_INVALID_ARGUMENT, "[] of f64, must have the shape and type of y");
  refuses(graph, y, TSR_NO_VALUE, (tsr_value){99}, TSR_ERROR_INVALID_ARGUMENT,
          "value 99, but the graph has values 1 to 8");
  refuses(graph, (tsr_value){0}, TSR_NO_VALUE, x, TSR_ERROR_INVALID_ARGUMENT, "y is value 0");

  refuses(graph, y, TSR_NO_VALUE, y, TSR_ERROR_UNSUPPORTED, "a constant");
  ok(tsr_graph_reduce(graph, TSR_MAX, 0, x, &matrix, &error));
  ok(tsr_graph_reduce(graph, TSR_SUM, 0, matrix, &scalar, &error));
  refuses(graph, scalar, TSR_NO_VALUE, x, TSR_ERROR_UNSUPPORTED, "reduce needs the gradient it starts from");
  refuses(graph, scalar, y, x, TSR_ERROR_UNSUPPORTED, "reduce(max)");
  ok(tsr_graph_unary(graph, TSR_UNARY_GELU, x, &matrix, &error));
  ok(tsr_graph_gradients(graph, matrix, other, &x, 1, &slope, &error));
  refuses(graph, slope, other, x, TSR_ERROR_UNSUPPORTED, "second derivative of gelu");
  tsr_graph_destroy(&graph);
}

/* --- the oracle's bounds --- */

static const float *leaf_data(const tsr_graph *graph, const tsr_oracle_value *values, const char *name,
                              float *to) {
  tsr_value value;
  ok(tsr_graph_find(graph, name, &value, &error));
  int64_t count = tsr_shape_count(&tsr_graph_at(graph, value)->shape);
  for (int64_t i = 0; i < count; i++) to[i] = (float)values[value.id].exact[i];
  return to;
}

static void multiply_f32(const float *a, const float *b, int m, int n, int k, const float *bias, float *out) {
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      float sum = 0;
      for (int p = 0; p < k; p++) sum += a[i * k + p] * b[p * n + j];
      out[i * n + j] = sum + bias[j];
    }
}

static void bounds_hold_in_f32(void **state) {
  (void)state;
  float x[12], w1[24], b1[6], w2[24], b2[4], hidden[18], y[12];
  leaf_dtype = TSR_F32;
  for (int round = 0; round < 200; round++) {
    tsr_graph *graph = new_graph();
    tsr_value out = plain_block(graph);
    tsr_oracle_value *values = fill_leaves(graph);
    ok(tsr_graph_evaluate(graph, 0, values, &error));
    multiply_f32(leaf_data(graph, values, "x", x), leaf_data(graph, values, "w1", w1), 3, 6, 4,
                 leaf_data(graph, values, "b1", b1), hidden);
    for (int i = 0; i < 18; i++) hidden[i] = (float)tsr_unary_apply(TSR_UNARY_GELU, hidden[i]);
    multiply_f32(hidden, leaf_data(graph, values, "w2", w2), 3, 4, 6, leaf_data(graph, values, "b2", b2), y);
    for (int i = 0; i < 12; i++) {
      double bound = values[out.id].error[i];
      assert_true(fabs(y[i] - values[out.id].exact[i]) <= bound);
      assert_true(bound > 0 && bound < 2e-5); /* about 300 units of roundoff: it still finds a dropped term */
    }
    free_values(graph, values);
    tsr_graph_destroy(&graph);
  }
  leaf_dtype = TSR_F64;
}

/* Of a deep product the sum is nearly all of the error: a bound that lacks it, or is far too wide, is found.
 */
static void bounds_of_products_hold_in_f32(void **state) {
  (void)state;
  enum { SIZE = 8, DEPTH = 512 };
  static float a[SIZE * DEPTH], b[SIZE * DEPTH], zero[SIZE], y[SIZE * SIZE];
  leaf_dtype = TSR_F32;
  tsr_graph *graph = new_graph();
  tsr_value product, left = leaf(graph, "a", 2, SIZE, DEPTH), right = leaf(graph, "b", 2, DEPTH, SIZE);
  ok(tsr_graph_matmul(graph, left, right, NULL, &product, &error));
  tsr_oracle_value *values = fill_leaves(graph);
  ok(tsr_graph_evaluate(graph, 0, values, &error));
  multiply_f32(leaf_data(graph, values, "a", a), leaf_data(graph, values, "b", b), SIZE, SIZE, DEPTH, zero,
               y);
  double largest = 0;
  for (int i = 0; i < SIZE * SIZE; i++)
    largest = fmax(largest, fabs(y[i] - values[product.id].exact[i]) / values[product.id].error[i]);
  assert_true(largest < 1 && largest > 0.001);
  free_values(graph, values);
  tsr_graph_destroy(&graph);
  leaf_dtype = TSR_F64;
}

/* Inputs that are off by up to their error: f and f' of them stay within the bounds; relu's step included. */
static void bounds_of_functions_hold(void **state) {
  (void)state;
  const tsr_shape scalar = {0};
  const tsr_shape shapes[] = {scalar, scalar};
  for (int i = 0; i < 4000; i++) {
    double x = 3 * random_real() * (i % 2 ? 1 : 0.01), e = 0.02 * fabs(random_real()), one = 1, none = 0, y,
           e_y;
    double moved = x + e * random_real();
    const tsr_oracle_value in[] = {{&x, &e}, {&one, &none}}, out = {&y, &e_y};
    tsr_node node = {.input_count = 2, .unary = (tsr_unary)(i / 2 % TSR_UNARY_COUNT)};
    tsr_unary_rules.evaluate(&node, shapes, &scalar, in, 0x1p-53, out);
    assert_true(fabs(tsr_unary_apply(node.unary, moved) - y) <= e_y && e_y < 0.03);
    tsr_unary_gradient_rules.evaluate(&node, shapes, &scalar, in, 0x1p-53, out);
    assert_true(fabs(tsr_unary_derivative(node.unary, moved) - y) <= e_y);
    assert_true(e_y < 0.03 || (node.unary == TSR_UNARY_RELU && fabs(x) <= e));
  }
}

static void oracle_needs_its_leaves(void **state) {
  (void)state;
  tsr_graph *graph = new_graph();
  plain_block(graph);
  tsr_oracle_value *values = fill_leaves(graph);
  free(values[3].exact);
  values[3].exact = NULL;
  assert_int_equal(tsr_graph_evaluate(graph, 0, values, &error), TSR_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(error.message, "parameter value 3 \"b1\" [6] has no data"));
  free_values(graph, values);
  tsr_graph_destroy(&graph);
}

static int set_up(void **state) {
  (void)state;
  tsr_context_options options;
  tsr_context_options_init(&options);
  options.cache_folder = "";
  return tsr_context_create(&options, &context, &error);
}

static int tear_down(void **state) {
  (void)state;
  tsr_context_destroy(&context);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_agree_with_differences),
      cmocka_unit_test(only_needed_nodes_are_added),
      cmocka_unit_test(transposed_weight_keeps_its_form),
      cmocka_unit_test(parameters_have_gradients_of_their_own),
      cmocka_unit_test(order_is_fixed),
      cmocka_unit_test(what_has_no_gradient),
      cmocka_unit_test(bounds_hold_in_f32),
      cmocka_unit_test(bounds_of_products_hold_in_f32),
      cmocka_unit_test(bounds_of_functions_hold),
      cmocka_unit_test(oracle_needs_its_leaves),
  };
  return cmocka_run_group_tests_name("graph_gradients", tests, set_up, tear_down);
}
