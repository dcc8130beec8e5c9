/* test_narrow.c: narrow weights in sessions, over sim members, on host and, where it is there, PoCL (panels):
 * whole numbers bit for bit, reals within the oracle's bound, checks that pass, gradients of the input;
 * pieces; and weights in floating point that become i8 in the same way however they are split. */
#include "exec_support.h"

static const tsr_dtype narrow[] = {TSR_F16, TSR_BF16, TSR_I8};
enum { NARROW = 3 };

static tsr_graph *ffn_graph(tsr_dtype weights, bool gated, tsr_unary activation) {
  tsr_graph *graph = exec_graph();
  tsr_value x = exec_leaf(graph, TSR_INPUT, "x", TSR_F32, 2, 7, 33), y;
  exec_ok(tsr_graph_ffn(graph, x,
                        TSR_FFN_OPTIONS(.hidden = 257, .activation = activation, .gated = gated,
                                        .no_bias = gated, .weight_dtype = weights),
                        &y, &exec_error));
  exec_output(graph, "y", y);
  return graph;
}

static void passes_check(exec_rig *rig) {
  tsr_check check;
  exec_ok(tsr_session_check(rig->session, NULL, &check, &exec_error));
  assert_true(check.passed && check.oracle);
  exec_ok(tsr_session_check(rig->session, TSR_CHECK_OPTIONS(.oracle_flops = -1), &check, &exec_error));
  assert_true(check.passed && !check.oracle);
}

static bool is_fused(const tsr_plan *plan, tsr_fused_role role) {
  for (int i = 0; i < plan->step_count; i++)
    for (int f = 0; f < plan->steps[i].fused_count; f++)
      if (plan->steps[i].fused[f].role == role) return true;
  return false;
}

static void run(const exec_setup *setup, tsr_graph *graph, bool integers) {
  exec_rig rig;
  exec_open(&rig, setup);
  exec_create(&rig, graph);
  tsr_source *source = exec_source(rig.plan->graph, integers, 1, 5);
  if (integers)
    assert_int_equal(exec_run_exact(&rig, source, 2), 2);
  else
    exec_run_bound(&rig, source, 2);
  passes_check(&rig);
  tsr_source_destroy(&source);
  exec_close(&rig);
}

static exec_setup setup_of(const char *selector, int members) {
  exec_setup setup = {.members = members, .replicate = TSR_REPLICATE_NEVER, .keep_all = true};
  for (int i = 0; i < members; i++) setup.selectors[i] = selector, setup.speeds[i] = 1 + i;
  return setup;
}

static void ffn_on(const char *selector) {
  for (int i = 0; i < NARROW; i++)
    for (int members = 1; members <= 3; members++)
      for (int gated = 0; gated < 2; gated++) {
        exec_setup setup = setup_of(selector, members);
        run(&setup, ffn_graph(narrow[i], gated, TSR_UNARY_RELU), true);
        if (members == 3) run(&setup, ffn_graph(narrow[i], gated, TSR_UNARY_GELU), false);
      }
}

static void on_host(void **state) {
  (void)state;
  ffn_on("host");
}

static void on_pocl(void **state) {
  (void)state;
  if (exec_has("pocl")) ffn_on("pocl");
}

/* y = x w + b and dx = dy w^T, w split on either axis: the gradient's product has the weight transposed. */
static void gradients_of_the_input(void **state) {
  (void)state;
  static const char *const selectors[] = {"host", "pocl"};
  for (int turn = 0; turn < 2 * NARROW * 2; turn++) {
    const char *selector = selectors[turn / (2 * NARROW)];
    if (!exec_has(selector)) continue;
    tsr_graph *graph = exec_graph();
    tsr_value x = exec_leaf(graph, TSR_INPUT, "x", TSR_F32, 2, 7, 33), y, dx;
    tsr_value w = exec_leaf(graph, TSR_PARAMETER, "w", narrow[turn % NARROW], 2, 33, 65);
    tsr_value bias = exec_leaf(graph, TSR_PARAMETER, "bias", TSR_F32, 1, 65, 0);
    tsr_value dy = exec_leaf(graph, TSR_INPUT, "dy", TSR_F32, 2, 7, 65);
    exec_pin(graph, w, turn / NARROW % 2, 0, NULL);
    exec_ok(tsr_graph_linear(graph, x, w, bias, &y, &exec_error));
    exec_ok(tsr_graph_gradients(graph, y, dy, &x, 1, &dx, &exec_error));
    exec_output(graph, "y", y), exec_output(graph, "dx", dx);
    exec_setup setup = setup_of(selector, 2);
    run(&setup, graph, true);
  }
}

/* Buffers of a few rows, or panels, each: sums over pieces of k, and factors of pieces of columns. */
static void in_pieces(void **state) {
  (void)state;
  static const char *const selectors[] = {"host", "pocl"};
  for (int turn = 0; turn < 2 * NARROW; turn++) {
    if (!exec_has(selectors[turn / NARROW])) continue;
    exec_setup setup = setup_of(selectors[turn / NARROW], 2);
    setup.max_allocation = 4200 * tsr_dtype_bytes(narrow[turn % NARROW]); /* a panel of w2 */
    run(&setup, ffn_graph(narrow[turn % NARROW], turn % 2, TSR_UNARY_RELU), true);
    run(&setup, ffn_graph(narrow[turn % NARROW], false, TSR_UNARY_GELU), false);
  }
}

static void factors_are_fused(void **state) {
  (void)state;
  exec_rig rig;
  exec_setup setup = setup_of("host", 1);
  exec_open(&rig, &setup);
  exec_create(&rig, ffn_graph(TSR_I8, false, TSR_UNARY_GELU));
  assert_true(is_fused(rig.plan, TSR_FUSED_SCALE) && is_fused(rig.plan, TSR_FUSED_BIAS));
  assert_int_equal(rig.plan->step_count, 2);
  exec_close(&rig);
}

/* ---- weights in floating point ---- */

enum { ROWS = 300, COLS = 70 };

typedef struct reals {
  float w[ROWS][COLS], scale[COLS];
  int8_t whole[ROWS][COLS];
} reals;

/* A column of zeros, one of tiny numbers, one whose largest is its last. */
static void make_reals(reals *r) {
  exec_seed(3);
  for (int j = 0; j < COLS; j++) {
    float most = 0;
    for (int i = 0; i < ROWS; i++) {
      float value = (float)exec_between(-100000, 100000) / (1 << (j % 20));
      if (j == 5) value = 0;
      if (j == 6) value *= 1e-30f;
      if (j == 7 && i == ROWS - 1) value = -1e6f;
      r->w[i][j] = value;
      if (fabsf(value) > most) most = fabsf(value);
    }
    r->scale[j] = (float)((double)most / 127);
    for (int i = 0; i < ROWS; i++)
      r->whole[i][j] = (int8_t)(r->scale[j] > 0 ? rint((double)r->w[i][j] / (double)r->scale[j]) : 0);
  }
}

/* axis: of w, -1 = as the planner likes; 1 also splits the factors. */
static tsr_graph *linear_graph(int axis) {
  tsr_graph *graph = exec_graph();
  tsr_value x = exec_leaf(graph, TSR_INPUT, "x", TSR_F32, 2, 5, ROWS), y;
  tsr_value w = exec_leaf(graph, TSR_PARAMETER, "w", TSR_I8, 2, ROWS, COLS);
  exec_ok(tsr_graph_linear(graph, x, w, TSR_NO_VALUE, &y, &exec_error));
  exec_output(graph, "y", y);
  if (axis >= 0) exec_pin(graph, w, axis, 0, NULL);
  tsr_value scale;
  exec_ok(tsr_graph_find(graph, "w_scale", &scale, &exec_error));
  if (axis == 1) exec_pin(graph, scale, 0, 0, NULL);
  return graph;
}

static tsr_source *real_source(const reals *r, bool with_scale, const float *scale) {
  tsr_source *source;
  const tsr_shape shape = tsr_shape_of(2, ROWS, COLS), row = tsr_shape_of(1, COLS, 0);
  const tsr_array w = tsr_array_dense((void *)r->w, TSR_F32, &shape),
                  scales = tsr_array_dense((void *)scale, TSR_F32, &row);
  exec_ok(tsr_source_create(exec_context, &source, &exec_error));
  exec_ok(tsr_source_add_array(source, "w", &w, &exec_error));
  if (with_scale) exec_ok(tsr_source_add_array(source, "w_scale", &scales, &exec_error));
  exec_ok(tsr_source_add_random(source, "x", TSR_RANDOM_UNIFORM, 1, -1, 1, &exec_error));
  return source;
}

static void expect_whole(exec_rig *rig, const reals *r) {
  double *w = exec_gather(rig, exec_value(rig, "w")), *scale = exec_gather(rig, exec_value(rig, "w_scale"));
  for (int j = 0; j < COLS; j++) {
    if (scale[j] != (double)r->scale[j])
      fail_msg("factor %d is %.9g, expected %.9g", j, scale[j], (double)r->scale[j]);
    for (int i = 0; i < ROWS; i++)
      if (w[i * COLS + j] != r->whole[i][j])
        fail_msg("(%d, %d) is %g, expected %d", i, j, w[i * COLS + j], r->whole[i][j]);
  }
  free(w);
  free(scale);
}

/* The same numbers on every split, although a member may hold a few rows of a column only. */
static void reals_become_whole_alike(void **state) {
  (void)state;
  static const char *const selectors[] = {"host", "pocl"};
  static reals r;
  make_reals(&r);
  for (int turn = 0; turn < 2 * 3 * 3; turn++) {
    int members = turn % 3 + 1, axis = turn / 3 % 3 - 1;
    const char *selector = selectors[turn / 9];
    if (!exec_has(selector)) continue;
    exec_setup setup = setup_of(selector, members);
    setup.replicate = TSR_REPLICATE_AUTO;
    if (turn % 4 == 1) setup.max_allocation = 4900;
    exec_rig rig;
    exec_open(&rig, &setup);
    exec_create(&rig, linear_graph(axis));
    tsr_source *source = real_source(&r, false, NULL);
    exec_run_bound(&rig, source, 1);
    expect_whole(&rig, &r);
    passes_check(&rig);
    tsr_source_destroy(&source);
    exec_close(&rig);
  }
}

/* Factors that are given hold, also where they cut off. */
static void given_factors_are_taken(void **state) {
  (void)state;
  static reals r;
  make_reals(&r);
  for (int j = 0; j < COLS; j++) {
    r.scale[j] = j % 3 ? 2 * r.scale[j] : 0.5f * r.scale[j];
    for (int i = 0; i < ROWS; i++) {
      double whole = r.scale[j] > 0 ? rint((double)r.w[i][j] / (double)r.scale[j]) : 0;
      r.whole[i][j] = (int8_t)fmax(-127, fmin(127, whole));
    }
  }
  for (int axis = 0; axis < 2; axis++) {
    exec_rig rig;
    exec_setup setup = setup_of("host", 2);
    exec_open(&rig, &setup);
    exec_create(&rig, linear_graph(axis));
    tsr_source *source = real_source(&r, true, r.scale);
    exec_ok(tsr_session_load(rig.session, source, &exec_error));
    expect_whole(&rig, &r);
    tsr_source_destroy(&source);
    exec_close(&rig);
  }
}

static void what_cannot_become_whole_is_refused(void **state) {
  (void)state;
  static reals r;
  make_reals(&r);
  exec_rig rig;
  exec_setup setup = setup_of("host", 2);
  exec_open(&rig, &setup);
  exec_create(&rig, linear_graph(0));
  r.w[ROWS - 1][9] = NAN;
  tsr_source *source = real_source(&r, false, NULL);
  exec_refused(tsr_session_load(rig.session, source, &exec_error), TSR_ERROR_INVALID_ARGUMENT,
               "\"w\" is nan at row 299, column 9");
  tsr_source_destroy(&source);
  /* Whole numbers have no factors of their own. */
  exec_ok(tsr_source_create(exec_context, &source, &exec_error));
  exec_ok(tsr_source_add_random(source, "w", TSR_RANDOM_INTEGER, 1, -9, 9, &exec_error));
  exec_refused(tsr_session_load(rig.session, source, &exec_error), TSR_ERROR_NOT_FOUND, "w_scale");
  tsr_source_destroy(&source);
  exec_discard(&rig);

  tsr_graph *graph = exec_graph();
  tsr_value x = exec_leaf(graph, TSR_INPUT, "x", TSR_F32, 2, 5, COLS), y;
  tsr_value w = exec_leaf(graph, TSR_PARAMETER, "w", TSR_I8, 2, ROWS, COLS);
  tsr_value scale = exec_leaf(graph, TSR_PARAMETER, "w_scale", TSR_F32, 1, ROWS, 0);
  exec_ok(tsr_graph_matmul(graph, x, w, TSR_MATMUL_OPTIONS(.transpose_b = true), &y, &exec_error));
  exec_ok(tsr_graph_multiply(graph, y, scale, &y, &exec_error));
  exec_output(graph, "y", y);
  exec_create(&rig, graph);
  source = real_source(&r, false, NULL);
  exec_refused(tsr_session_load(rig.session, source, &exec_error), TSR_ERROR_INVALID_ARGUMENT,
               "holds no factors of the columns of \"w\" [300, 70]");
  tsr_source_destroy(&source);
  exec_close(&rig);
}

/* bind rounds, read widens: any dtype on the host's side. What i8 does not hold is refused, with its place.
 */
static void binds_and_reads(void **state) {
  (void)state;
  exec_rig rig;
  exec_setup setup = setup_of("host", 1);
  exec_open(&rig, &setup);
  exec_create(&rig, linear_graph(-1));
  static float data[ROWS][COLS];
  static int8_t found[ROWS][COLS];
  for (int i = 0; i < ROWS * COLS; i++) data[i / COLS][i % COLS] = (float)(i % 255 - 127) + 0.25f;
  const tsr_shape shape = tsr_shape_of(2, ROWS, COLS);
  tsr_array array = tsr_array_dense(data, TSR_F32, &shape);
  exec_ok(tsr_session_bind(rig.session, 0, exec_value(&rig, "w"), &array, &exec_error));
  array = tsr_array_dense(found, TSR_I8, &shape);
  exec_ok(tsr_session_read(rig.session, 0, exec_value(&rig, "w"), &array, &exec_error));
  for (int i = 0; i < ROWS * COLS; i++) assert_int_equal(found[i / COLS][i % COLS], i % 255 - 127);
  data[2][3] = 127.75f;
  array = tsr_array_dense(data, TSR_F32, &shape);
  exec_refused(tsr_session_bind(rig.session, 0, exec_value(&rig, "w"), &array, &exec_error),
               TSR_ERROR_INVALID_ARGUMENT, "w: element (2, 3) is 127.75, but i8 holds at most 127");
  exec_close(&rig);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(on_host),
      cmocka_unit_test(on_pocl),
      cmocka_unit_test(gradients_of_the_input),
      cmocka_unit_test(in_pieces),
      cmocka_unit_test(factors_are_fused),
      cmocka_unit_test(reals_become_whole_alike),
      cmocka_unit_test(given_factors_are_taken),
      cmocka_unit_test(what_cannot_become_whole_is_refused),
      cmocka_unit_test(binds_and_reads),
  };
  return cmocka_run_group_tests(tests, exec_begin, exec_end);
}
