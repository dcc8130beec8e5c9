/* Room runtime/graph: what builders refuse and say, names, pins, assigns, dimensions, flops. JSON, and every
 * allocation failing once: test_graph_json.c; layout rules: test_graph_rules.c; gradients:
 * test_graph_gradients.c. */
#include "graph_support.h"

#include <math.h>

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
  };
  return cmocka_run_group_tests_name("graph", tests, set_up, tear_down);
}
