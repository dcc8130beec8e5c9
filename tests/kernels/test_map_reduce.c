/* test_map_reduce.c: elementwise operations and reductions of a device against loops in long double.
 *
 *   test_map_reduce [SELECTOR...]     default: host and pocl
 *
 * A device that is not there is skipped with a message. One process should open one OpenCL driver, so rusticl
 * runs apart: `RUSTICL_ENABLE=llvmpipe test_map_reduce rusticl`. TSR_TEST_SMALL=1 leaves out what takes long
 * under a simulator such as oclgrind. Tolerances are in units of the dtype's epsilon (half the distance from
 * 1 to the next number); the scale of each is in expect(). */
#include "operand.h"

/* --- the reference --- */

static long double sigmoid(long double v) {
  return 1 / (1 + expl(-v));
}

static long double activation(tsr_unary unary, long double x) {
  const long double cubic = 0.044715L, v = 2 * sqrtl(2 / acosl(-1)) * (x + cubic * x * x * x);
  if (isinf(x)) return x > 0 ? x : 0;
  switch (unary) {
  case TSR_UNARY_RELU: return x < 0 ? 0 : x;
  case TSR_UNARY_GELU: return x * erfcl(-x / sqrtl(2)) / 2;
  case TSR_UNARY_GELU_TANH: return x * sigmoid(v);
  default: return x * sigmoid(x);
  }
}

static long double derivative(tsr_unary unary, long double x) {
  const long double cubic = 0.044715L, scale = 2 * sqrtl(2 / acosl(-1)), v = scale * (x + cubic * x * x * x);
  if (isnan(x)) return x;
  if (fabsl(x) > 1000) return x > 0;
  switch (unary) {
  case TSR_UNARY_RELU: return x > 0;
  case TSR_UNARY_GELU: return erfcl(-x / sqrtl(2)) / 2 + x * expl(-x * x / 2) / sqrtl(2 * acosl(-1));
  case TSR_UNARY_GELU_TANH:
    return sigmoid(v) + x * sigmoid(v) * sigmoid(-v) * scale * (1 + 3 * cubic * x * x);
  default: return sigmoid(x) + x * sigmoid(x) * sigmoid(-x);
  }
}

static expected expect(const tsr_map_call *call, long double a, long double b) {
  const long double f = activation(call->unary, a);
  switch (call->kind) {
  case TSR_MAP_ADD:
    return (expected){call->alpha * a + call->beta * b, 4 * (fabsl(call->alpha * a) + fabsl(call->beta * b))};
  case TSR_MAP_MULTIPLY: return (expected){a * b, 2 * fabsl(a * b)};
  case TSR_MAP_SCALE: return (expected){call->alpha * a, 4 * fabsl(call->alpha * a)};
  case TSR_MAP_UNARY:
    if (call->unary == TSR_UNARY_RELU) return (expected){f, 0};
    /* Relative, also where f vanishes, but for the rounded argument of tanh, and of erfc in f64. */
    if (call->unary == TSR_UNARY_GELU_TANH) return (expected){f, 6 * fabsl(a)};
    if (call->unary == TSR_UNARY_GELU && call->dtype == TSR_F64)
      return (expected){f, (12 + 2 * fminl(a * a, 1e4)) * fabsl(f)};
    return (expected){f, 16 * fabsl(f)};
  case TSR_MAP_UNARY_GRADIENT: return (expected){derivative(call->unary, a) * b, 12 * fabsl(b)};
  default: return (expected){activation(call->unary, a + b), 8 * (fabsl(a) + fabsl(b))};
  }
}

/* --- elementwise --- */

typedef struct map_case {
  tsr_map_kind kind;
  tsr_unary unary;
  tsr_dtype dtype;
  int64_t rows, cols;
  bool a_row, b_row, b_column; /* broadcast: a has one row; b has one row, one column */
  int a_panel, b_panel, out_panel;
  int gap;
  char in_place; /* 'a', 'b', or 0 */
} map_case;

static void check_map(const map_case *test, const tsr_map_call *call, const operand *a, const operand *b,
                      const operand *out) {
  void *data = map_buffer(call->out.buffer, TSR_HOST_READ);
  int64_t untouched = 0;
  for (int64_t i = 0; i < out->held; i++) untouched += get(data, call->dtype, i) == SENTINEL;
  for (int64_t r = 0; r < test->rows; r++)
    for (int64_t c = 0; c < test->cols; c++) {
      double x = value(a, r, c), y = value(b, r, c),
             got = get(data, call->dtype, tsr_matrix_index(&call->out, r, c));
      expected want = expect(call, x, y);
      if (!agrees(got, want, call->dtype))
        fail_msg("kind %d %s %s %lldx%lld panels %d %d %d at (%lld,%lld): a %.9g b %.9g gives %.17g, "
                 "expected %.17Lg",
                 test->kind, tsr_unary_name(test->unary), tsr_dtype_name(test->dtype), (long long)test->rows,
                 (long long)test->cols, test->a_panel, test->b_panel, test->out_panel, (long long)r,
                 (long long)c, x, y, got, want.value);
    }
  assert_int_equal(untouched, out->held - test->rows * test->cols);
  unmap_buffer(call->out.buffer, data);
}

static void run_map(const map_case *test) {
  /* The derivative vanishes for large negative numbers, where a factor that is infinite would make it NaN. */
  double (*b_number)(int64_t) = test->kind == TSR_MAP_UNARY_GRADIENT ? finite_number : any_number;
  operand a =
      make(test->dtype, test->a_row ? 1 : test->rows, test->cols, test->a_panel, test->gap, any_number);
  operand b = make(test->dtype, test->b_row ? 1 : test->rows, test->b_column ? 1 : test->cols, test->b_panel,
                   test->gap, b_number);
  operand own = make(test->dtype, test->rows, test->cols, test->out_panel, test->gap, small_integer);
  const operand *out = test->in_place == 'a' ? &a : test->in_place == 'b' ? &b : &own;
  tsr_map_call call = {.kind = test->kind,
                       .unary = test->unary,
                       .dtype = test->dtype,
                       .alpha = -1.5,
                       .beta = 0.375,
                       .a = a.view,
                       .b = b.view,
                       .out = out->view};
  CHECK(tsr_device_map(device, &call, ERROR));
  check_map(test, &call, &a, &b, out);
  drop(&a), drop(&b), drop(&own);
}

static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {7, 64}, {33, 100}, {5, 1000}, {129, 47}, {70, 300}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static size_t size_count(void) {
  return small ? 4 : SIZES;
}

static void run_map_sizes(map_case test) {
  for (size_t i = 0; i < size_count(); i++) {
    test.rows = sizes[i][0], test.cols = sizes[i][1];
    test.gap = i % 2 ? GAP : 0;
    run_map(&test);
  }
}

static bool has_dtype(tsr_dtype dtype) {
  return device->gemm[dtype].family != TSR_GEMM_NONE;
}

/* Every kind and activation. */
static void map_kinds(void **state) {
  (void)state;
  for (tsr_dtype dtype = TSR_F32; dtype <= TSR_F64; dtype++)
    for (int kind = TSR_MAP_ADD; has_dtype(dtype) && kind <= TSR_MAP_BIAS_UNARY; kind++)
      for (int unary = 0; unary < (kind < TSR_MAP_UNARY ? 1 : TSR_UNARY_COUNT); unary++)
        run_map_sizes((map_case){.kind = (tsr_map_kind)kind, .unary = (tsr_unary)unary, .dtype = dtype});
}

/* Mixed forms, a panel width that no vector divides, and every broadcast. */
static void map_forms(void **state) {
  (void)state;
  for (int form = 0; form < 8; form++)
    for (int broadcast = 0; broadcast < 8; broadcast++)
      run_map_sizes((map_case){.kind = TSR_MAP_ADD,
                               .dtype = TSR_F32,
                               .a_row = broadcast & 4,
                               .b_row = broadcast & 2,
                               .b_column = broadcast & 1,
                               .a_panel = form & 1 ? PANEL : 0,
                               .b_panel = form & 2 ? PANEL : 0,
                               .out_panel = form & 4 ? PANEL : 0});
  run_map_sizes(
      (map_case){.kind = TSR_MAP_MULTIPLY, .dtype = TSR_F32, .b_row = true, .a_panel = 6, .out_panel = 6});
}

static void map_in_place(void **state) {
  (void)state;
  for (int panel = 0; panel <= PANEL; panel += PANEL)
    for (char place = 'a'; place <= 'b'; place++)
      run_map_sizes((map_case){.kind = TSR_MAP_ADD,
                               .dtype = TSR_F32,
                               .a_panel = panel,
                               .b_panel = panel,
                               .out_panel = panel,
                               .in_place = place});
  run_map_sizes((map_case){
      .kind = TSR_MAP_BIAS_UNARY, .unary = TSR_UNARY_GELU, .dtype = TSR_F32, .b_row = true, .in_place = 'a'});
}

/* --- reductions --- */

typedef struct reduce_case {
  tsr_reduce_kind kind;
  tsr_reduction reduction;
  tsr_dtype dtype;
  int64_t rows, cols;
  int gap;
  double scale;
  bool accumulate;
  double (*number)(int64_t);
  double tolerance; /* in epsilon, relative to the sum of absolute values */
} reduce_case;

static int64_t output_count(const reduce_case *test) {
  return test->kind == TSR_REDUCE_ROWS ? test->cols : test->kind == TSR_REDUCE_COLS ? test->rows : 1;
}

/* Sum (or maximum) of output i, and of absolute values. */
static expected expect_reduced(const reduce_case *test, const operand *a, const operand *b, int64_t i) {
  bool rows = test->kind == TSR_REDUCE_ROWS, all = test->kind == TSR_REDUCE_SQUARED_ERROR;
  int64_t length = all ? test->rows * test->cols : rows ? test->rows : test->cols;
  int64_t stride = rows ? test->cols : 1, first = rows ? i : i * test->cols;
  long double sum = 0, magnitude = 0, largest = -INFINITY;
  for (int64_t e = 0; e < length; e++) {
    long double x = a->values[first + e * stride];
    if (all) x = (x - b->values[e]) * (x - b->values[e]);
    sum += x, magnitude += fabsl(x);
    if (x > largest || isnan(x)) largest = x;
  }
  bool maximum = !all && test->reduction == TSR_MAX;
  return (expected){maximum ? largest : sum, maximum ? 0 : magnitude};
}

static void check_reduced(const reduce_case *test, const operand *a, const operand *b, const operand *out,
                          const void *data) {
  bool maximum = test->kind != TSR_REDUCE_SQUARED_ERROR && test->reduction == TSR_MAX;
  for (int64_t i = 0; i < output_count(test); i++) {
    expected want = expect_reduced(test, a, b, i);
    double before = out->values[i], got = get(data, test->dtype, OFFSET + i);
    want.value *= test->scale;
    if (test->accumulate)
      want.value = !maximum ? want.value + before : before > want.value ? before : want.value;
    want.tolerance = test->tolerance * (want.tolerance * fabs(test->scale) + fabs(before));
    if (!agrees(got, want, test->dtype))
      fail_msg("kind %d reduction %d %s %lldx%lld gap %d output %lld: %.17g, expected %.17Lg", test->kind,
               test->reduction, tsr_dtype_name(test->dtype), (long long)test->rows, (long long)test->cols,
               test->gap, (long long)i, got, want.value);
  }
  for (int64_t i = 0; i < out->held; i++)
    if (i < OFFSET || i >= OFFSET + output_count(test)) assert_true(get(data, test->dtype, i) == SENTINEL);
}

/* Runs once on values that lie with `gap`; gives the bytes of the result, to be freed. */
static void *reduce_once(const reduce_case *test, const operand *a, const operand *b) {
  operand out = make(test->dtype, 1, output_count(test), 0, 0, small_integer);
  tsr_reduce_call call = {.kind = test->kind,
                          .reduction = test->reduction,
                          .dtype = test->dtype,
                          .scale = test->scale,
                          .accumulate = test->accumulate,
                          .a = a->view,
                          .b = b->view,
                          .out = out.view,
                          .workspace = workspace};
  CHECK(tsr_device_reduce(device, &call, ERROR));
  void *data = map_buffer(out.view.buffer, TSR_HOST_READ), *copy = malloc(out.view.buffer->bytes);
  memcpy(copy, data, out.view.buffer->bytes);
  check_reduced(test, a, b, &out, data);
  unmap_buffer(out.view.buffer, data);
  drop(&out);
  return copy;
}

/* The same bits twice. */
static void run_reduce(const reduce_case *test) {
  operand a = make(test->dtype, test->rows, test->cols, 0, test->gap, test->number);
  operand b = make(test->dtype, test->rows, test->cols, 0, 0, test->number);
  uint64_t before = random_state;
  void *first = reduce_once(test, &a, &b);
  random_state = before; /* the same old contents of out */
  void *second = reduce_once(test, &a, &b);
  size_t bytes = tsr_dtype_bytes(test->dtype);
  assert_memory_equal((char *)first + OFFSET * bytes, (char *)second + OFFSET * bytes,
                      (size_t)output_count(test) * bytes);
  free(first), free(second), drop(&a), drop(&b);
}

static const int64_t reduce_sizes[][2] = {{1, 1},     {1, 5},     {5, 1},     {3, 70},      {130, 3},
                                          {64, 64},   {200, 129}, {65, 63},   {1000, 1000}, {1, 70000},
                                          {70000, 1}, {9000, 20}, {20, 9000}, {300, 257}};

static void run_reduce_sizes(reduce_case test) {
  size_t count = small ? 8 : sizeof reduce_sizes / sizeof *reduce_sizes;
  for (size_t i = 0; i < count; i++)
    for (int gap = 0; gap <= GAP; gap += GAP) {
      test.rows = reduce_sizes[i][0], test.cols = reduce_sizes[i][1], test.gap = gap;
      test.accumulate = i % 2, test.scale = i % 3 ? 1 : -0.25;
      run_reduce(&test);
    }
}

static void reduce_with(double (*number)(int64_t), double tolerance) {
  for (tsr_dtype dtype = TSR_F32; dtype <= TSR_F64; dtype++)
    for (int kind = TSR_REDUCE_ROWS; has_dtype(dtype) && kind <= TSR_REDUCE_SQUARED_ERROR; kind++)
      for (int reduction = TSR_SUM; reduction <= (kind == TSR_REDUCE_SQUARED_ERROR ? TSR_SUM : TSR_MAX);
           reduction++)
        run_reduce_sizes((reduce_case){.kind = (tsr_reduce_kind)kind,
                                       .reduction = (tsr_reduction)reduction,
                                       .dtype = dtype,
                                       .number = number,
                                       .tolerance = tolerance});
}

static void reduce_integers(void **state) { /* sums that are exact: nothing is lost or taken twice */
  (void)state;
  reduce_with(small_integer, 0);
}

static void reduce_random(void **state) {
  (void)state;
  reduce_with(finite_number, 8);
}

static double mostly_one(int64_t i) {
  return i == 1234 ? INFINITY : 1;
}
static double with_nan(int64_t i) {
  return i == 1234 ? NAN : uniform();
}
static double both_infinities(int64_t i) {
  return i % 1000 == 7 ? INFINITY : i % 1000 == 8 ? -INFINITY : 1;
}

static void reduce_specials(void **state) {
  (void)state;
  double (*const numbers[])(int64_t) = {mostly_one, with_nan, both_infinities, any_number};
  for (int n = 0; n < 4; n++)
    for (int kind = TSR_REDUCE_ROWS; kind <= TSR_REDUCE_COLS; kind++)
      for (int reduction = TSR_SUM; reduction <= TSR_MAX; reduction++)
        for (int wide = 0; wide < 2; wide++)
          run_reduce(&(reduce_case){.kind = (tsr_reduce_kind)kind,
                                    .reduction = (tsr_reduction)reduction,
                                    .dtype = TSR_F32,
                                    .rows = wide ? 30 : 200,
                                    .cols = wide ? 200 : 30,
                                    .scale = 1,
                                    .number = numbers[n],
                                    .tolerance = 16});
}

static double positive(int64_t i) {
  (void)i;
  return 0.5 + 0.5 * uniform();
}

static double three_tenths(int64_t i) {
  (void)i;
  return 0.3;
}

/* 1e7 numbers of one sign, f32: to 1e-6. */
static void reduce_long(void **state) {
  (void)state;
  if (small) skip();
  const reduce_case cases[] = {
      {.kind = TSR_REDUCE_ROWS, .rows = 10000000, .cols = 1},
      {.kind = TSR_REDUCE_ROWS, .rows = 1000000, .cols = 10},
      {.kind = TSR_REDUCE_COLS, .rows = 1, .cols = 10000000},
      {.kind = TSR_REDUCE_COLS, .rows = 10, .cols = 1000000},
      {.kind = TSR_REDUCE_SQUARED_ERROR, .rows = 1000000, .cols = 10},
      /* One sum over all rows, whose roundings all go the same way: 190 epsilon were it not for the rests. */
      {.kind = TSR_REDUCE_ROWS, .rows = 70000, .cols = 129, .number = three_tenths, .tolerance = 8},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    reduce_case test = cases[i];
    test.scale = 1;
    if (!test.number) test.number = positive, test.tolerance = 1e-6 / tsr_dtype_epsilon(TSR_F32);
    run_reduce(&test);
  }
}

/* The order depends on the shape alone: gaps between rows change no bit. */
static void reduce_order(void **state) {
  (void)state;
  for (int kind = TSR_REDUCE_ROWS; kind <= TSR_REDUCE_SQUARED_ERROR; kind++) {
    reduce_case test = {.kind = (tsr_reduce_kind)kind,
                        .dtype = TSR_F32,
                        .rows = 700,
                        .cols = 101,
                        .scale = 1,
                        .number = finite_number,
                        .tolerance = 8};
    void *results[2];
    for (int gap = 0; gap < 2; gap++) {
      random_state = 77;
      operand a = make(test.dtype, test.rows, test.cols, 0, gap, test.number);
      operand b = make(test.dtype, test.rows, test.cols, 0, 0, test.number);
      results[gap] = reduce_once(&test, &a, &b);
      drop(&a), drop(&b);
    }
    assert_memory_equal(results[0], results[1], (size_t)(OFFSET + output_count(&test)) * sizeof(float));
    free(results[0]), free(results[1]);
  }
}

/* --- devices --- */

static int run_device(const char *selector) {
  tsr_error error = {0};
  if (tsr_device_open(context, selector, NULL, &device, &error) != TSR_OK) {
    printf("SKIPPED %s: %s\n", selector, error.message);
    return 0;
  }
  /* A software GPU is slow, and may flush denormals. */
  denormals = !strcmp(selector, "pocl") || !strcmp(selector, "host");
  small = getenv("TSR_TEST_SMALL") || !denormals;
  printf("device %s: %s\n", selector, tsr_device_get_info(device)->name);
  if (tsr_buffer_create(device, tsr_reduce_workspace_bytes(), &workspace, &error) != TSR_OK) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(map_kinds),       cmocka_unit_test(map_forms),     cmocka_unit_test(map_in_place),
      cmocka_unit_test(reduce_integers), cmocka_unit_test(reduce_random), cmocka_unit_test(reduce_specials),
      cmocka_unit_test(reduce_long),     cmocka_unit_test(reduce_order),
  };
  int failed = cmocka_run_group_tests_name(selector, tests, NULL, NULL);
  tsr_buffer_destroy(device, &workspace);
  tsr_device_close(&device);
  return failed;
}

int main(int count, char **arguments) {
  if (tsr_context_create(TSR_CONTEXT_OPTIONS(.cache_folder = NULL), &context, NULL) != TSR_OK) return 1;
  int failed = count > 1 ? 0 : run_device("host") + run_device("pocl");
  for (int i = 1; i < count; i++) failed += run_device(arguments[i]);
  tsr_context_destroy(&context);
  return failed != 0;
}
