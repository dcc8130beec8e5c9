/* Room runtime/graph: what builders refuse and say, names, pins, assigns, dimensions, flops, JSON there and
 * back and from hostile hands, and every allocation failing once. Layout rules: test_graph_rules.c;
 * gradients: test_graph_gradients.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/graph.h"

static tsr_context *context;
static tsr_graph *graph;
static tsr_error error;

static void ok(tsr_status status) {
  if (status != TSR_OK) fail_msg("%s", error.message);
}

/* The call failed with this status and these words, in one line. */
static void refused(tsr_status found, tsr_status status, const char *words) {
  assert_int_equal(found, status);
  assert_int_equal(error.status, status);
  assert_null(strchr(error.message, '\n'));
  if (!strstr(error.message, words)) fail_msg("\"%s\" lacks \"%s\"", error.message, words);
}
static void invalid(tsr_status found, const char *words) {
  refused(found, TSR_ERROR_INVALID_ARGUMENT, words);
}

static tsr_value input(const char *name, int axes, int64_t e0, int64_t e1) {
  tsr_shape shape = tsr_shape_of(axes, e0, e1);
  tsr_value value;
  ok(tsr_graph_input(graph, name, TSR_F32, &shape, &value, &error));
  return value;
}

static tsr_status try_input(const char *name, tsr_dtype dtype, tsr_shape shape) {
  tsr_value ignored;
  return tsr_graph_input(graph, name, dtype, &shape, &ignored, &error);
}

static void leaves_are_checked(void **state) {
  (void)state;
  char long_name[300];
  memset(long_name, 'x', sizeof long_name);
  long_name[299] = 0;
  tsr_shape matrix = tsr_shape_of(2, 3, 4), symbolic = matrix;
  symbolic.symbol[0] = 7;
  input("x", 2, 3, 4);
  invalid(try_input("x", TSR_F32, matrix), "\"x\" belongs to value 1 \"x\" [3, 4]");
  invalid(try_input("", TSR_F32, matrix), "name of this input is empty");
  invalid(try_input(NULL, TSR_F32, matrix), "name of this input is empty");
  invalid(try_input(long_name, TSR_F32, matrix), "299 bytes, at most 255");
  invalid(try_input("a\nb", TSR_F32, matrix), "control characters");
  invalid(try_input("\xff", TSR_F32, matrix), "not UTF-8");
  invalid(try_input("\xc0\x80", TSR_F32, matrix), "not UTF-8");
  invalid(try_input("\xed\xa0\x80", TSR_F32, matrix), "not UTF-8");
  invalid(try_input("y", TSR_BF16, matrix), "type bf16: inputs and states are f32 or f64");
  invalid(try_input("y", (tsr_dtype)77, matrix), "type ?");
  invalid(try_input("y", TSR_F32, tsr_shape_of(5, 1, 1)), "5 axes, 0 to 4");
  invalid(try_input("y", TSR_F32, tsr_shape_of(-1, 1, 1)), "-1 axes, 0 to 4");
  invalid(try_input("y", TSR_F32, tsr_shape_of(2, 3, 0)), "axis 1 of \"y\" has extent 0, at least 1");
  invalid(try_input("y", TSR_F32, tsr_shape_of(2, -3, 1)), "axis 0 of \"y\" has extent -3, at least 1");
  invalid(try_input("y", TSR_F32, symbolic), "symbol 7, which is reserved");
  tsr_value ignored;
  invalid(tsr_graph_input(graph, "y", TSR_F32, NULL, &ignored, &error), "shape NULL");
  invalid(try_input("y", TSR_F64, tsr_shape_of(1, INT64_C(1) << 60, 0)), "limit of 2^63 - 1");
  ok(try_input("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", TSR_F64, tsr_shape_of(1, (INT64_C(1) << 60) - 1, 0)));
  assert_int_equal(tsr_graph_value_count(graph), 2);

  tsr_value parameter; /* names are unique within a kind */
  ok(tsr_graph_parameter(graph, "x", TSR_F32, &matrix, &parameter, &error));
  ok(tsr_graph_state(graph, "x", TSR_F32, &matrix, &parameter, &error));
  invalid(tsr_graph_state(graph, "x", TSR_F32, &matrix, &parameter, &error), "belongs to value 4");
}

static void operators_are_checked(void **state) {
  (void)state;
  tsr_value a = input("a", 2, 64, 384), b = input("b", 2, 383, 10), v = input("v", 1, 385, 0),
            s = input("s", 0, 0, 0), tall, wide, out;
  tsr_shape shape = tsr_shape_of(2, 64, 384);
  tsr_shape cube = {3, {2, 64, 384}, {0}};
  ok(tsr_graph_input(graph, "tall", TSR_F32, &cube, &tall, &error));
  ok(tsr_graph_input(graph, "wide", TSR_F64, &shape, &wide, &error));
  size_t values = graph->value_count;
  tsr_matmul_options options;
  tsr_matmul_options_init(&options);

  invalid(tsr_graph_matmul(graph, a, b, NULL, &out, &error),
          "matmul: k is 384 in a, value 1 \"a\" [64, 384], but 383 in b, value 2 \"b\" [383, 10]");
  invalid(tsr_graph_matmul(graph, a, v, NULL, &out, &error),
          "b, value 3 \"v\" [385], has 1 axes, 2 are needed");
  invalid(tsr_graph_matmul(graph, tall, b, NULL, &out, &error), "a, value 5 \"tall\"");
  invalid(tsr_graph_matmul(graph, a, wide, NULL, &out, &error), "b is f64 and a is f32");
  invalid(tsr_graph_matmul(graph, (tsr_value){9}, b, NULL, &out, &error),
          "a is value 9, but the graph has values 1 to 6");
  invalid(tsr_graph_matmul(graph, a, TSR_NO_VALUE, NULL, &out, &error), "b is value 0");
  options.transpose_b = true;
  invalid(tsr_graph_matmul(graph, a, b, &options, &out, &error), "but 10 in b transposed");
  options.transpose_a = true;
  options.transpose_b = false;
  options.beta = 2;
  invalid(tsr_graph_matmul(graph, a, a, &options, &out, &error), "beta is 2, but c is no value");
  options.c = v;
  invalid(tsr_graph_matmul(graph, a, a, &options, &out, &error),
          "c, value 3 \"v\" [385], must be [384, 384]");
  options.beta = NAN;
  invalid(tsr_graph_matmul(graph, a, a, &options, &out, &error), "beta = nan: both must be finite");
  options.struct_size = 0;
  invalid(tsr_graph_matmul(graph, a, a, &options, &out, &error), "struct_size is 0");

  invalid(tsr_graph_add(graph, 1, a, 1, v, &out, &error),
          "add: b, value 3 \"v\" [385], does not fit a, value 1 \"a\" [64, 384]");
  invalid(tsr_graph_add(graph, 1, v, 1, a, &out, &error), "does not fit");
  invalid(tsr_graph_add(graph, INFINITY, a, 1, a, &out, &error), "alpha = inf");
  invalid(tsr_graph_multiply(graph, s, a, &out, &error), "multiply: b, value 1");
  invalid(tsr_graph_scale(graph, -NAN, a, &out, &error), "scale: factors alpha");
  invalid(tsr_graph_unary(graph, TSR_UNARY_COUNT, a, &out, &error), "function number 4, there are 4");
  invalid(tsr_graph_reduce(graph, TSR_SUM, 2, a, &out, &error),
          "axis 2 of value 1 \"a\" [64, 384], which has 2 axes");
  invalid(tsr_graph_reduce(graph, TSR_SUM, -1, a, &out, &error), "axis -1");
  invalid(tsr_graph_reduce(graph, TSR_SUM, 0, s, &out, &error), "which has 0 axes");
  invalid(tsr_graph_reduce(graph, (tsr_reduction)5, 0, a, &out, &error), "reduction number 5");
  invalid(tsr_graph_squared_error(graph, a, b, &out, &error), "it must have the same shape");
  invalid(tsr_graph_squared_error(graph, (tsr_value){77}, b, &out, &error), "value 77");
  assert_int_equal(graph->value_count, values);
  assert_int_equal(graph->node_count, 0);
}

static void results_have_the_right_shapes(void **state) {
  (void)state;
  tsr_value a = input("a", 2, 6, 4), b = input("b", 2, 4, 5), out;
  tsr_value_info info;
  tsr_matmul_options options;
  tsr_matmul_options_init(&options);
  options.transpose_a = options.transpose_b = true;
  ok(tsr_graph_matmul(graph, b, a, &options, &out, &error));
  ok(tsr_graph_value_info(graph, out, &info, &error));
  assert_true(info.kind == TSR_INTERMEDIATE && info.dtype == TSR_F32 && !*info.name && !*info.output &&
              !info.assigned);
  assert_true(info.shape.axes == 2 && info.shape.extent[0] == 5 && info.shape.extent[1] == 6);
  ok(tsr_graph_reduce(graph, TSR_MAX, 0, out, &out, &error));
  ok(tsr_graph_value_info(graph, out, &info, &error));
  assert_true(info.shape.axes == 1 && info.shape.extent[0] == 6);
  ok(tsr_graph_squared_error(graph, a, a, &out, &error));
  ok(tsr_graph_value_info(graph, out, &info, &error));
  assert_int_equal(info.shape.axes, 0);
  assert_true(graph->nodes[2].alpha == 1.0 / 24);
  assert_true(tsr_graph_flops(graph) == 2 * 6 * 4 * 5 + 5 * 6 + 3 * 6 * 4);
  invalid(tsr_graph_value_info(graph, TSR_NO_VALUE, &info, &error),
          "value 0, but the graph has values 1 to 5");
}

static tsr_value add_block(bool gated, const char *prefix, tsr_value x) {
  tsr_ffn_options options;
  tsr_ffn_options_init(&options);
  options.hidden = 12;
  options.gated = gated;
  options.prefix = prefix;
  tsr_value y;
  ok(tsr_graph_ffn(graph, x, &options, &y, &error));
  return y;
}

static void blocks_name_their_parameters(void **state) {
  (void)state;
  tsr_ffn_options options;
  tsr_value y, x = input("x", 2, 5, 8), w;
  add_block(false, NULL, x);
  add_block(true, "layers.0.", x);
  ok(tsr_graph_find(graph, "layers.0.wg", &w, &error));
  assert_int_equal(tsr_graph_at(graph, w)->shape.extent[1], 12);
  ok(tsr_graph_find(graph, "w2", &w, &error));
  assert_int_equal(tsr_graph_at(graph, w)->shape.extent[0], 12);
  refused(tsr_graph_find(graph, "layers.0.b1", &w, &error), TSR_ERROR_NOT_FOUND,
          "\"layers.0.b1\"; the nearest names are layers.0.w1, ");

  size_t values = graph->value_count, nodes = graph->node_count;
  tsr_ffn_options_init(&options);
  invalid(tsr_graph_ffn(graph, x, &options, &y, &error), "hidden is 0, at least 1");
  options.hidden = 3;
  options.prefix = "layers.0.";
  invalid(tsr_graph_ffn(graph, x, &options, &y, &error), "\"layers.0.w1\" belongs to value");
  options.prefix = "new.";
  options.activation = (tsr_unary)9;
  invalid(tsr_graph_ffn(graph, x, &options, &y, &error), "function number 9");
  options.activation = TSR_UNARY_RELU;
  invalid(tsr_graph_ffn(graph, input("vector", 1, 8, 0), &options, &y, &error), "has 1 axes, 2 are needed");
  invalid(tsr_graph_linear(graph, x, w, x, &y, &error), "k is 8");
  assert_int_equal(graph->value_count, values + 1); /* a failure leaves nothing behind */
  assert_int_equal(graph->node_count, nodes);
  options.activation = TSR_UNARY_SILU;
  ok(tsr_graph_ffn(graph, x, &options, &y, &error));
}

static tsr_value parameter(const char *name, tsr_dtype dtype, int axes, int64_t e0, int64_t e1) {
  tsr_shape shape = tsr_shape_of(axes, e0, e1);
  tsr_value value;
  ok(tsr_graph_parameter(graph, name, dtype, &shape, &value, &error));
  return value;
}

/* Whatever else is asked of a narrow weight is refused with what to do. */
static void narrow_weights_are_operand_b(void **state) {
  (void)state;
  static const tsr_dtype narrow[] = {TSR_F16, TSR_BF16, TSR_I8};
  static const char *const names[] = {"f16", "bf16", "i8"};
  const tsr_shape shape = tsr_shape_of(2, 8, 8);
  tsr_value x = input("x", 2, 8, 8), dy = input("dy", 2, 8, 8), wide, y, out;
  ok(tsr_graph_input(graph, "wide", TSR_F64, &shape, &wide, &error));
  for (int i = 0; i < 3; i++) {
    tsr_value w = parameter(names[i], narrow[i], 2, 8, 8);
    ok(tsr_graph_matmul(graph, x, w, NULL, &y, &error));
    assert_int_equal(tsr_graph_at(graph, y)->dtype, TSR_F32);
    ok(tsr_graph_matmul(graph, x, w, TSR_MATMUL_OPTIONS(.transpose_b = true, .beta = 1, .c = y), &out,
                        &error));
    ok(tsr_graph_matmul(graph, x, w, TSR_MATMUL_OPTIONS(.transpose_a = true), &out, &error));
    size_t values = graph->value_count;
    invalid(tsr_graph_matmul(graph, w, x, NULL, &out, &error), "can be operand b of a product, and nothing");
    invalid(tsr_graph_matmul(graph, w, w, NULL, &out, &error), "can be operand b of a product, and nothing");
    invalid(tsr_graph_matmul(graph, wide, w, NULL, &out, &error),
            "and a is f64, they must have one type, or a");
    invalid(tsr_graph_matmul(graph, x, x, TSR_MATMUL_OPTIONS(.beta = 1, .c = w), &out, &error),
            "make it f32");
    invalid(tsr_graph_add(graph, 1, x, 1, w, &out, &error), "make it f32");
    invalid(tsr_graph_add(graph, 1, w, 1, w, &out, &error), "make it f32");
    invalid(tsr_graph_multiply(graph, x, w, &out, &error), "make it f32");
    invalid(tsr_graph_scale(graph, 2, w, &out, &error), "make it f32");
    invalid(tsr_graph_unary(graph, TSR_UNARY_RELU, w, &out, &error), "make it f32");
    invalid(tsr_graph_reduce(graph, TSR_SUM, 0, w, &out, &error), "make it f32");
    invalid(tsr_graph_squared_error(graph, x, w, &out, &error), "make it f32");
    invalid(tsr_graph_output(graph, "out", w, &error), "read the parameter itself");
    invalid(tsr_graph_assign(graph, w, w, &error), "train in f32, narrow weights serve");
    invalid(tsr_graph_assign(graph, w, y, &error), "train in f32, narrow weights serve");
    invalid(tsr_graph_gradients(graph, y, dy, &w, 1, &out, &error), "train in f32, narrow weights serve");
    assert_int_equal(graph->value_count, values);
    ok(tsr_graph_gradients(graph, y, dy, &x, 1, &out, &error)); /* dy w^T */
    const tsr_node *node = &graph->nodes[graph->node_count - 1];
    assert_true(node->inputs[1].id == w.id && node->transpose_b && !node->transpose_a);
    tsr_value state_out;
    invalid(tsr_graph_state(graph, "s", narrow[i], &shape, &state_out, &error), "inputs and states are f32");
  }
}

/* w of i8 has factors of its columns beside it, once. */
static void weights_of_i8_are_scaled(void **state) {
  (void)state;
  tsr_value x = input("x", 2, 5, 8), w = parameter("w", TSR_I8, 2, 8, 3), y, scale;
  ok(tsr_graph_linear(graph, x, w, parameter("bias", TSR_F32, 1, 3, 0), &y, &error));
  ok(tsr_graph_find(graph, "w_scale", &scale, &error));
  const tsr_graph_value *made = tsr_graph_at(graph, scale);
  assert_true(made->kind == TSR_PARAMETER && made->dtype == TSR_F32 && made->shape.axes == 1);
  assert_int_equal(made->shape.extent[0], 3);
  const tsr_operator expected[] = {TSR_OPERATOR_MATMUL, TSR_OPERATOR_MULTIPLY, TSR_OPERATOR_ADD};
  assert_int_equal(graph->node_count, 3);
  for (int i = 0; i < 3; i++) assert_int_equal(graph->nodes[i].op, expected[i]);
  assert_int_equal(graph->nodes[1].inputs[1].id, scale.id);
  size_t values = graph->value_count;
  ok(tsr_graph_linear(graph, x, w, TSR_NO_VALUE, &y, &error)); /* again, with the same factors */
  assert_int_equal(graph->value_count, values + 2);

  ok(tsr_graph_ffn(graph, x,
                   TSR_FFN_OPTIONS(.hidden = 12, .gated = true, .weight_dtype = TSR_I8, .prefix = "g."), &y,
                   &error));
  const char *const names[] = {"g.wg_scale", "g.w1_scale", "g.w2_scale"};
  for (int i = 0; i < 3; i++) ok(tsr_graph_find(graph, names[i], &scale, &error));
  ok(tsr_graph_ffn(graph, x, TSR_FFN_OPTIONS(.hidden = 12, .weight_dtype = TSR_BF16, .prefix = "b."), &y,
                   &error));
  ok(tsr_graph_find(graph, "b.w2", &w, &error));
  assert_int_equal(tsr_graph_at(graph, w)->dtype, TSR_BF16);
  ok(tsr_graph_find(graph, "b.b2", &w, &error));
  assert_int_equal(tsr_graph_at(graph, w)->dtype, TSR_F32);
  refused(tsr_graph_find(graph, "b.w2_scale", &w, &error), TSR_ERROR_NOT_FOUND, "b.w2_scale");
  values = graph->value_count;
  parameter("bad_scale", TSR_F32, 1, 4, 0);
  w = parameter("bad", TSR_I8, 2, 8, 3);
  invalid(tsr_graph_linear(graph, x, w, TSR_NO_VALUE, &y, &error), "does not fit a");
  assert_int_equal(graph->value_count, values + 2);
}

static void names_that_are_nearly_right(void **state) {
  (void)state;
  tsr_value found, x;
  refused(tsr_graph_find(graph, "x", &found, &error), TSR_ERROR_NOT_FOUND, "the graph has no names");
  x = input("tokens", 2, 2, 3);
  input("targets", 2, 2, 3);
  input("mask", 2, 2, 3);
  ok(tsr_graph_output(graph, "tokens_out", x, &error));
  refused(tsr_graph_find(graph, "token", &found, &error), TSR_ERROR_NOT_FOUND,
          "the nearest names are tokens, ");
  ok(tsr_graph_find(graph, "tokens_out", &found, &error));
  assert_int_equal(found.id, x.id);
}

static void outputs_and_assigns_are_checked(void **state) {
  (void)state;
  tsr_shape shape = tsr_shape_of(2, 2, 3);
  tsr_value x = input("x", 2, 2, 3), flat = input("flat", 1, 6, 0), w, y;
  ok(tsr_graph_parameter(graph, "w", TSR_F32, &shape, &w, &error));
  ok(tsr_graph_add(graph, 1, w, -0.1, x, &y, &error));
  ok(tsr_graph_output(graph, "y", y, &error));
  invalid(tsr_graph_output(graph, "y", w, &error), "\"y\" belongs to value 4");
  invalid(tsr_graph_output(graph, "z", y, &error), "value 4 \"y\" [2, 3] is the output \"y\" already");
  invalid(tsr_graph_output(graph, "", x, &error), "name of this output is empty");
  invalid(tsr_graph_output(graph, "z", TSR_NO_VALUE, &error), "value 0");
  invalid(tsr_graph_assign(graph, x, y, &error), "is of kind input, only a parameter or a state");
  invalid(tsr_graph_assign(graph, w, flat, &error), "cannot become value 2 \"flat\" [6] of f32");
  invalid(tsr_graph_assign(graph, w, (tsr_value){5}, &error), "value 5, but the graph has values 1 to 4");
  ok(tsr_graph_assign(graph, w, y, &error));
  invalid(tsr_graph_assign(graph, w, y, &error), "is assigned value 4 \"y\" [2, 3] already");
  tsr_value_info info;
  ok(tsr_graph_value_info(graph, w, &info, &error));
  assert_true(info.assigned);
}

static void pins_are_checked(void **state) {
  (void)state;
  const int64_t good[] = {0, 0, 4, 9, 9}, falls[] = {0, 5, 4, 9}, beyond[] = {0, 5, 10}, late[] = {1, 9};
  tsr_value x = input("x", 2, 2, 9), y;
  ok(tsr_graph_scale(graph, 2, x, &y, &error));
  tsr_layout layout = tsr_layout_shard(1, 4, good);
  invalid(tsr_graph_pin(graph, y, &layout, &error), "mark it as an output first");
  ok(tsr_graph_output(graph, "y", y, &error));
  ok(tsr_graph_pin(graph, y, &layout, &error));
  ok(tsr_graph_pin(graph, x, &layout, &error));
  const tsr_graph_value *v = tsr_graph_at(graph, x);
  assert_true(v->pinned && v->pin_parts == 4 && v->pin.on[0].offsets == v->pin_offsets &&
              v->pin_offsets[2] == 4);
  layout = tsr_layout_replicate();
  ok(tsr_graph_pin(graph, x, &layout, &error)); /* the last one counts */
  assert_null(tsr_graph_at(graph, x)->pin_offsets);
  layout = tsr_layout_partial(TSR_SUM);
  invalid(tsr_graph_pin(graph, x, &layout, &error), "cannot be pinned to placement 2");
  layout = tsr_layout_shard(2, 0, NULL);
  invalid(tsr_graph_pin(graph, x, &layout, &error), "cannot be split on axis 2: it has 2 axes");
  layout.mesh_axes = 2;
  invalid(tsr_graph_pin(graph, x, &layout, &error), "2 mesh axes, 1 is supported");
  const int64_t *bad[] = {falls, beyond, late};
  for (int i = 0; i < 3; i++) {
    layout = tsr_layout_shard(1, i == 0 ? 3 : i == 1 ? 2 : 1, bad[i]);
    invalid(tsr_graph_pin(graph, x, &layout, &error), "must begin at 0, never fall, and end with 9");
  }
}

static void frozen_graphs_refuse(void **state) {
  (void)state;
  tsr_value x = input("x", 2, 2, 3), out;
  tsr_shape shape = tsr_shape_of(2, 2, 3);
  tsr_layout layout = tsr_layout_replicate();
  tsr_ffn_options options;
  tsr_ffn_options_init(&options);
  options.hidden = 2;
  tsr_graph *copy;
  ok(tsr_graph_copy(graph, &copy, &error));
  const char *words = "frozen, because a plan was made of it";
  invalid(tsr_graph_input(copy, "z", TSR_F32, &shape, &out, &error), words);
  invalid(tsr_graph_scale(copy, 2, x, &out, &error), words);
  invalid(tsr_graph_ffn(copy, x, &options, &out, &error), words);
  invalid(tsr_graph_gradients(copy, x, x, &x, 1, &out, &error), words);
  invalid(tsr_graph_output(copy, "x", x, &error), words);
  invalid(tsr_graph_pin(copy, x, &layout, &error), words);
  invalid(tsr_graph_assign(copy, x, x, &error), words);
  tsr_graph_destroy(&copy);
  assert_null(copy);
  tsr_graph_destroy(&copy);
  ok(tsr_graph_scale(graph, 2, x, &out, &error));
}

/* --- dimensions --- */

/* m, d, h of a block with a residual; without one, nothing makes the width that goes in and the one that
 * comes out the same dimension. Training and assigning adds none. */
static void check_dimensions(bool gated, bool residual) {
  tsr_graph_destroy(&graph);
  ok(tsr_graph_create(context, &graph, &error));
  tsr_value x = input("x", 2, 5, 8), target = input("target", 2, 5, 8), y = add_block(gated, "", x), loss, w,
            dw;
  if (residual) ok(tsr_graph_add(graph, 1, y, 1, x, &y, &error));
  ok(tsr_graph_find(graph, "w1", &w, &error));
  ok(tsr_graph_squared_error(graph, y, target, &loss, &error));
  ok(tsr_graph_gradients(graph, loss, TSR_NO_VALUE, &w, 1, &dw, &error));
  ok(tsr_graph_add(graph, 1, w, -0.5, dw, &dw, &error));
  ok(tsr_graph_assign(graph, w, dw, &error));

  uint32_t *dims;
  int64_t *extents;
  size_t count;
  ok(tsr_graph_dimensions(graph, &dims, &extents, &count, &error));
  assert_int_equal(count, residual ? 3 : 4);
  const uint32_t *of_x = dims + x.id * TSR_AXES_MAX, *of_w = dims + w.id * TSR_AXES_MAX;
  assert_true(of_x[0] == 0 && extents[0] == 5 && of_x[1] == 1 && extents[1] == 8);
  assert_true(of_w[0] == of_x[1] && extents[of_w[1]] == 12);
  assert_true((dims[target.id * TSR_AXES_MAX + 1] == of_x[1]) == residual);
  assert_true(of_x[2] == UINT32_MAX && dims[loss.id * TSR_AXES_MAX] == UINT32_MAX);
  free(dims);
  free(extents);
}

static void block_has_three_dimensions(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) check_dimensions(i & 1, i & 2);
}

static void unit_axes_and_strangers_are_apart(void **state) {
  (void)state;
  tsr_value a = input("a", 2, 5, 5), column = input("column", 2, 5, 1), row = input("row", 1, 5, 0), out;
  tsr_shape shape = tsr_shape_of(2, 5, 5);
  tsr_value s;
  ok(tsr_graph_add(graph, 1, a, 1, column, &out, &error));
  ok(tsr_graph_add(graph, 1, out, 1, row, &out, &error));
  ok(tsr_graph_state(graph, "s", TSR_F32, &shape, &s, &error));
  uint32_t *dims;
  int64_t *extents;
  size_t count;
  ok(tsr_graph_dimensions(graph, &dims, &extents, &count, &error));
  assert_int_equal(count, 5); /* rows, columns, column's own 1, and two of the state that nobody uses */
  assert_int_equal(dims[row.id * TSR_AXES_MAX], dims[a.id * TSR_AXES_MAX + 1]);
  free(dims);
  free(extents);
  ok(tsr_graph_assign(graph, s, out, &error));
  ok(tsr_graph_dimensions(graph, &dims, &extents, &count, &error));
  assert_int_equal(count, 3);
  free(dims);
  free(extents);
}

/* --- JSON --- */

/* A training step in which every operator and every mark occurs. */
static void build_everything(void) {
  const int64_t offsets[] = {0, 3, 8};
  tsr_layout split = tsr_layout_shard(1, 2, offsets), replicated = tsr_layout_replicate(),
             free_split = tsr_layout_shard(0, 0, NULL);
  tsr_value x = input("x \"quoted\" \xc3\xa4", 2, 5, 8), target = input("target", 2, 5, 8), y, loss, w[2],
            dw[2], top;
  y = add_block(false, "", x);
  y = add_block(true, "second.", y);
  ok(tsr_graph_scale(graph, 1.0 / 3, y, &y, &error));
  ok(tsr_graph_squared_error(graph, y, target, &loss, &error));
  ok(tsr_graph_find(graph, "w1", &w[0], &error));
  ok(tsr_graph_find(graph, "b1", &w[1], &error));
  ok(tsr_graph_gradients(graph, loss, TSR_NO_VALUE, w, 2, dw, &error));
  for (int i = 0; i < 2; i++) {
    ok(tsr_graph_add(graph, 1, w[i], -0.1, dw[i], &dw[i], &error));
    ok(tsr_graph_assign(graph, w[i], dw[i], &error));
  }
  ok(tsr_graph_reduce(graph, TSR_MAX, 1, y, &top, &error));
  ok(tsr_graph_reduce(graph, TSR_SUM, 1, y, &y, &error));
  tsr_value dy, back;
  tsr_shape shape = tsr_shape_of(1, 5, 0);
  ok(tsr_graph_state(graph, "dy", TSR_F32, &shape, &dy, &error));
  ok(tsr_graph_gradients(graph, y, dy, &w[0], 1, &back, &error));
  ok(tsr_graph_output(graph, "loss", loss, &error));
  ok(tsr_graph_output(graph, "top", top, &error));
  ok(tsr_graph_pin(graph, x, &split, &error));
  ok(tsr_graph_pin(graph, target, &replicated, &error));
  ok(tsr_graph_pin(graph, top, &free_split, &error));
}

static char *dump(const tsr_graph *of) {
  json_t *json = tsr_graph_to_json(of);
  assert_non_null(json);
  char *text = json_dumps(json, JSON_COMPACT);
  json_decref(json);
  return text;
}

static void json_keeps_everything(void **state) {
  (void)state;
  build_everything();
  char *text = dump(graph);
  json_t *json = json_loads(text, 0, NULL);
  tsr_graph *read, *copy;
  ok(tsr_graph_from_json(context, json, &read, &error));
  ok(tsr_graph_copy(graph, &copy, &error));
  assert_true(read->frozen && copy->frozen && !graph->frozen);
  assert_int_equal(read->node_count, graph->node_count);
  for (size_t i = 0; i < graph->node_count; i++) {
    const tsr_node *a = &graph->nodes[i], *b = &read->nodes[i];
    assert_true(a->op == b->op && a->alpha == b->alpha && a->beta == b->beta && a->axis == b->axis &&
                a->unit_axis == b->unit_axis && a->unary == b->unary && a->reduction == b->reduction &&
                a->transpose_a == b->transpose_a && a->transpose_b == b->transpose_b &&
                a->output.id == b->output.id);
  }
  char *again = dump(read), *third = dump(copy);
  assert_string_equal(text, again);
  assert_string_equal(text, third);
  assert_true(tsr_graph_flops(read) == tsr_graph_flops(graph));
  free(text);
  free(again);
  free(third);
  json_decref(json);
  tsr_graph_destroy(&read);
  tsr_graph_destroy(&copy);
}

static void faults_in_json_are_named(void **state) {
  (void)state;
  static const struct {
    const char *text, *words;
  } faults[] = {
#define VALUE(rest) "{\"kind\":\"input\",\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[2,3]" rest "}"
#define RESULT(shape) "{\"kind\":\"intermediate\",\"dtype\":\"f32\",\"shape\":" shape "}"
#define GRAPH(values, nodes) "{\"values\":[" values "],\"nodes\":[" nodes "]}"
#define SCALE(rest)                                                                                          \
  "{\"op\":\"scale\",\"inputs\":[1],\"output\":2,\"alpha\":2,\"axis\":0,\"unit_axis\":false" rest "}"
      {"[]", "graph.values: missing"},
      {"{\"values\":[]}", "graph.nodes: missing"},
      {GRAPH("7", ""), "values[0].kind: missing"},
      {GRAPH("{\"kind\":\"imput\"}", ""), "values[0].kind: \"imput\" is unknown; the nearest are input"},
      {GRAPH("{\"kind\":\"input\",\"dtype\":\"f32\",\"shape\":[2,-1]}", ""),
       "values[0].shape[1] is no integer in [1, "},
      {GRAPH("{\"kind\":\"input\",\"dtype\":\"f32\",\"shape\":[1,1,1,1,1]}", ""), "5 axes, at most 4"},
      {GRAPH("{\"kind\":\"input\",\"name\":\"\",\"dtype\":\"f32\",\"shape\":[]}", ""), "values[0]: the name"},
      {GRAPH(VALUE("") "," VALUE(""), ""), "values[1]: the name \"x\" belongs"},
      {GRAPH(VALUE(",\"pin\":{\"axis\":1,\"offsets\":[0,2]}"), ""), "end with 3"},
      {GRAPH(VALUE(",\"pin\":{\"axis\":1,\"offsets\":[]}"), ""), "0 numbers, at least 2"},
      {GRAPH(VALUE(",\"pin\":{\"axis\":1,\"offsets\":[0]}"), ""), "1 numbers, at least 2"},
      {GRAPH(VALUE(",\"assigned\":1"), ""), "values[0]: value 1 \"x\" [2, 3] is of kind input"},
      {GRAPH(VALUE(",\"assigned\":2"), ""), "values[0].assigned: 2 is not in [1, 1]"},
      {GRAPH(VALUE(",\"gradient_of\":1"), ""),
       "values[0]: value 1 \"x\" [2, 3] of kind input cannot be the gradient"},
      {GRAPH(RESULT("[2,3]"), ""), "nodes[0].op: missing"},
      {GRAPH(RESULT("[2,3]"), SCALE("")), "nodes[0].output: 2 is not in [1, 1]"},
      {GRAPH(VALUE("") "," RESULT("[2,4]"), SCALE("")),
       "nodes[0] makes value 2 [2, 3] of f32, but \"values\" says [2, 4]"},
      {GRAPH(VALUE(""), SCALE("")), "1 nodes for 0 intermediate values"},
      {GRAPH(VALUE("") "," RESULT("[2,3]"),
             "{\"op\":\"scale\",\"inputs\":[2],\"output\":2,\"alpha\":2,\"axis\":0,\"unit_axis\":false}"),
       "nodes[0].inputs[0] is no integer in [1, 1]"},
      {GRAPH(VALUE("") "," RESULT("[2,3]"),
             "{\"op\":\"add\",\"inputs\":[1],\"output\":2,\"alpha\":2,\"beta\":0}"),
       "nodes[0]: add: 1 inputs, 2 to 2 are needed"},
      {GRAPH(VALUE("") "," RESULT("[2,3]"),
             "{\"op\":\"add\",\"inputs\":[1,1,1,1,1],\"output\":2,\"alpha\":2,\"beta\":0}"),
       "nodes[0]: add: 4 inputs"},
      {GRAPH(VALUE("") "," RESULT("[2,3]"),
             "{\"op\":\"unary\",\"inputs\":[1],\"output\":2,\"function\":\"tanh\"}"),
       "nodes[0].function: \"tanh\" is unknown"},
  };
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    json_t *json = json_loads(faults[i].text, 0, NULL);
    tsr_graph *read = NULL;
    assert_non_null(json);
    refused(tsr_graph_from_json(context, json, &read, &error), TSR_ERROR_FORMAT, faults[i].words);
    json_decref(json);
  }
}

static uint64_t random_state;
static size_t below(size_t limit) { /* splitmix64 */
  uint64_t z = random_state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return (size_t)((z ^ z >> 31) % limit);
}

/* Something else in the place of a number, a text, a list or an object. */
static json_t *random_json(void) {
  static const char *const texts[] = {"0",
                                      "-1",
                                      "1",
                                      "2",
                                      "7",
                                      "1000000",
                                      "9223372036854775807",
                                      "-0.5",
                                      "1e308",
                                      "true",
                                      "null",
                                      "\"\"",
                                      "\"add\"",
                                      "\"matmul\"",
                                      "\"intermediate\"",
                                      "[]",
                                      "{}",
                                      "[1]",
                                      "[1,2]",
                                      "[0,1,2]",
                                      "[5,8]",
                                      "[9223372036854775807,9223372036854775807]"};
  return json_loads(texts[below(sizeof texts / sizeof *texts)], JSON_DECODE_ANY, NULL);
}

/* Replaces or removes one part somewhere below node. */
static void spoil(json_t *node) {
  size_t size = json_is_array(node) ? json_array_size(node) : json_object_size(node);
  if (!size) return;
  size_t at = below(size);
  json_t *child;
  const char *key = NULL;
  if (json_is_array(node)) {
    child = json_array_get(node, at);
  } else {
    void *iterator = json_object_iter(node);
    while (at--) iterator = json_object_iter_next(node, iterator);
    key = json_object_iter_key(iterator);
    child = json_object_iter_value(iterator);
  }
  if ((json_is_array(child) || json_is_object(child)) && below(4)) {
    spoil(child);
  } else if (key && !below(4)) {
    json_object_del(node, key);
  } else if (key) {
    json_object_set_new(node, key, random_json());
  } else if (!below(8)) {
    json_array_remove(node, at);
  } else {
    json_array_set_new(node, at, random_json());
  }
}

/* Whatever survives must be a sound graph: it can be written, read again, counted and its dimensions found.
 */
static bool survives(const json_t *json) {
  tsr_graph *read, *again;
  tsr_status status = tsr_graph_from_json(context, json, &read, &error);
  if (status != TSR_OK) {
    assert_true(status == TSR_ERROR_FORMAT && *error.message);
    return false;
  }
  uint32_t *dims;
  int64_t *extents;
  size_t count;
  ok(tsr_graph_dimensions(read, &dims, &extents, &count, &error));
  free(dims);
  free(extents);
  assert_true(tsr_graph_flops(read) >= 0);
  json_t *written = tsr_graph_to_json(read);
  ok(tsr_graph_from_json(context, written, &again, &error));
  json_decref(written);
  tsr_graph_destroy(&read);
  tsr_graph_destroy(&again);
  return true;
}

static void hostile_json_gives_errors_only(void **state) {
  (void)state;
  enum { ROUNDS = 1000 };
  build_everything();
  char *text = dump(graph);
  size_t bytes = strlen(text), survivors = 0;
  random_state = 2;
  for (int round = 0; round < ROUNDS; round++) {
    json_t *json = json_loads(text, 0, NULL);
    for (size_t i = 0; i <= below(3); i++) spoil(json);
    survivors += survives(json);
    json_decref(json);
  }
  for (int round = 0; round < ROUNDS; round++) { /* bytes of the text; most of it is no JSON any more */
    char *damaged = memcpy(malloc(bytes + 1), text, bytes + 1);
    damaged[below(bytes)] = "0123456789-,:\"[]{}eabft"[below(23)];
    json_t *json = json_loads(damaged, 0, NULL);
    if (json) survivors += survives(json);
    json_decref(json);
    free(damaged);
  }
  assert_in_range(survivors, 20, ROUNDS); /* both ways are taken */
  free(text);
}

/* --- memory --- */

static tsr_status try_everything(void) {
  tsr_status status = TSR_OK;
  tsr_graph *made = NULL, *copy = NULL, *read = NULL;
  tsr_shape shape = tsr_shape_of(2, 5, 8);
  tsr_value x, y, loss, w, dw;
  uint32_t *dims = NULL;
  int64_t *extents = NULL, offsets[] = {0, 4, 8};
  size_t count;
  json_t *json = NULL;
  tsr_layout layout = tsr_layout_shard(1, 2, offsets);
  tsr_ffn_options options;
  tsr_ffn_options_init(&options);
  options.hidden = 3;
  TSR_TRY(tsr_graph_create(context, &made, &error));
  TSR_TRY(tsr_graph_input(made, "x", TSR_F32, &shape, &x, &error));
  TSR_TRY(tsr_graph_pin(made, x, &layout, &error));
  TSR_TRY(tsr_graph_ffn(made, x, &options, &y, &error));
  TSR_TRY(tsr_graph_squared_error(made, y, x, &loss, &error));
  TSR_TRY(tsr_graph_find(made, "w1", &w, &error));
  TSR_TRY(tsr_graph_gradients(made, loss, TSR_NO_VALUE, &w, 1, &dw, &error));
  TSR_TRY(tsr_graph_output(made, "dw", dw, &error));
  TSR_TRY(tsr_graph_copy(made, &copy, &error));
  TSR_TRY(tsr_graph_dimensions(copy, &dims, &extents, &count, &error));
  json = tsr_graph_to_json(copy);
  TSR_TRY(tsr_graph_from_json(context, json, &read, &error));
done:
  json_decref(json);
  free(dims);
  free(extents);
  tsr_graph_destroy(&made);
  tsr_graph_destroy(&copy);
  tsr_graph_destroy(&read);
  return status;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  int64_t failures = 0;
  for (;; failures++) {
    tsr_memory_fail_after(failures);
    tsr_status status = try_everything();
    tsr_memory_fail_after(-1);
    if (status == TSR_OK) break;
    refused(status, TSR_ERROR_OUT_OF_MEMORY, "no memory");
  }
  assert_in_range(failures, 30, 300);
}

static int new_graph(void **state) {
  (void)state;
  return tsr_graph_create(context, &graph, &error);
}

static int drop_graph(void **state) {
  (void)state;
  tsr_graph_destroy(&graph);
  return 0;
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, new_graph, drop_graph)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(leaves_are_checked),
      TEST(operators_are_checked),
      TEST(results_have_the_right_shapes),
      TEST(blocks_name_their_parameters),
      TEST(narrow_weights_are_operand_b),
      TEST(weights_of_i8_are_scaled),
      TEST(names_that_are_nearly_right),
      TEST(outputs_and_assigns_are_checked),
      TEST(pins_are_checked),
      TEST(frozen_graphs_refuse),
      TEST(block_has_three_dimensions),
      TEST(unit_axes_and_strangers_are_apart),
      TEST(json_keeps_everything),
      TEST(faults_in_json_are_named),
      TEST(hostile_json_gives_errors_only),
      TEST(every_allocation_may_fail),
  };
  return cmocka_run_group_tests_name("graph", tests, set_up, tear_down);
}
