/* test_product.c: tessera/gemm.h on the host and on the device under test, against a loop; and what a tuning
 * row does to a product. */
#include <math.h>

#include "fixture.h"

#include <sys/stat.h>
#include <tessera/gemm.h>
#include <tessera/tuning.h>

#include "device/tuning.h"

enum { M = 21, N = 37, K = 29 };

/* Small integers: every sum is exact. */
static double number(int operand, int64_t i) {
  return (double)((i * 7 + operand * 3 + i / 5) % 9 - 4);
}

typedef struct case_data {
  double a[M * K], b[K * N], c[M * N], scale[N], bias[N], gate[M * N], residual[M * N], out[M * N];
} case_data;

static tsr_array view(double *data, int64_t rows, int64_t cols) {
  tsr_shape shape = tsr_shape_of(2, rows, cols);
  return tsr_array_dense(data, TSR_F64, &shape);
}

static void write_operand(tsr_gemm *gemm, tsr_gemm_operand operand, double *data, int64_t rows,
                          int64_t cols) {
  tsr_error error = {0};
  for (int64_t i = 0; i < rows * cols; i++) data[i] = number(operand, i);
  if (operand == TSR_GEMM_OPERAND_SCALE)
    for (int64_t i = 0; i < cols; i++) data[i] = i % 2 ? 0.5 : 2;
  tsr_array array = view(data, rows, cols);
  assert_ok(tsr_gemm_write(gemm, operand, &array, &error), &error);
}

static void write_all(tsr_gemm *gemm, case_data *d, const tsr_gemm_options *o) {
  bool i8 = o->types && !strcmp(o->types, "f32xi8") && !o->transpose_b; /* with factors */
  write_operand(gemm, TSR_GEMM_OPERAND_A, d->a, o->transpose_a ? K : M, o->transpose_a ? M : K);
  write_operand(gemm, TSR_GEMM_OPERAND_B, d->b, o->transpose_b ? N : K, o->transpose_b ? K : N);
  write_operand(gemm, TSR_GEMM_OPERAND_C, d->c, M, N);
  if (i8) write_operand(gemm, TSR_GEMM_OPERAND_SCALE, d->scale, 1, N);
  if (o->bias) write_operand(gemm, TSR_GEMM_OPERAND_BIAS, d->bias, 1, N);
  if (o->gate) write_operand(gemm, TSR_GEMM_OPERAND_GATE, d->gate, M, N);
  if (o->residual) write_operand(gemm, TSR_GEMM_OPERAND_RESIDUAL, d->residual, M, N);
  if (!i8)
    for (int j = 0; j < N; j++) d->scale[j] = 1;
}

static double expected(const case_data *d, const tsr_gemm_options *o, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t p = 0; p < K; p++)
    sum += d->a[o->transpose_a ? p * M + i : i * K + p] * d->b[o->transpose_b ? j * K + p : p * N + j];
  double value = (o->alpha == 0 ? 1 : o->alpha) * sum * d->scale[j] + o->beta * d->c[i * N + j];
  if (o->bias) value += d->bias[j];
  if (o->activate) value = fmax(value, 0);
  if (o->gate) value *= d->gate[i * N + j];
  if (o->residual) value += d->residual[i * N + j];
  return value;
}

static void run_case(tsr_device *device, const tsr_gemm_options *options) {
  tsr_error error = {0};
  tsr_gemm *gemm = NULL;
  uint64_t before = tsr_device_bytes_used(device);
  case_data *d = calloc(1, sizeof *d);
  double seconds = 0, device_seconds = -1;
  assert_ok(tsr_gemm_create(device, M, N, K, options, &gemm, &error), &error);
  assert_true(tsr_device_bytes_used(device) > before);
  write_all(gemm, d, options);
  int64_t count = options->beta == 0 ? 3 : 1; /* each run adds beta times the last one's result */
  assert_ok(tsr_gemm_run(gemm, count, &seconds, &device_seconds, &error), &error);
  assert_true(seconds > 0);
  assert_true(device_seconds >= 0 && device_seconds < 2 * seconds + 0.001);
  tsr_array out = view(d->out, M, N);
  assert_ok(tsr_gemm_read(gemm, TSR_GEMM_OPERAND_C, &out, &error), &error);
  for (int64_t i = 0; i < M; i++)
    for (int64_t j = 0; j < N; j++)
      if (d->out[i * N + j] != expected(d, options, i, j))
        fail_msg("%s: c[%d,%d] is %g, expected %g", tsr_gemm_variant(gemm), (int)i, (int)j, d->out[i * N + j],
                 expected(d, options, i, j));
  assert_true(tsr_gemm_flops(gemm) == 2.0 * M * N * K);
  tsr_gemm_destroy(&gemm);
  assert_null(gemm);
  assert_int_equal(tsr_device_bytes_used(device), before);
  free(d);
}

static void run_cases(tsr_device *device) {
  static const char *const narrow[] = {"f32xf16", "f32xbf16", "f32xi8", "f16", "bf16"};
  for (int form = 0; form < 4; form++)
    run_case(device, TSR_GEMM_OPTIONS(.transpose_a = form & 1, .transpose_b = form & 2));
  run_case(device, TSR_GEMM_OPTIONS(.alpha = 2, .beta = -1));
  run_case(device, TSR_GEMM_OPTIONS(.transpose_a = true, .alpha = 2, .beta = -1));
  run_case(device, TSR_GEMM_OPTIONS(.bias = true, .activate = true, .activation = TSR_UNARY_RELU,
                                    .gate = true, .residual = true, .copies = 3));
  run_case(device, TSR_GEMM_OPTIONS(.transpose_a = true, .residual = true));
  if (device->gemm[TSR_GEMM_TYPES_F64].family) run_case(device, TSR_GEMM_OPTIONS(.types = "f64"));
  for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++)
    if (device->gemm[tsr_gemm_types_of(narrow[i])].family)
      for (int form = 0; form < 4; form += 2)
        run_case(device, TSR_GEMM_OPTIONS(.types = narrow[i], .transpose_b = form));
}

static void test_host(void **state) {
  tsr_device *device = open_device(*state, "host", NULL);
  run_cases(device);
  run_case(device, TSR_GEMM_OPTIONS(.variant = "host tile_m=1 tile_n=1"));
  tsr_device_close(&device);
}

static void test_device(void **state) {
  if (!has_device(*state)) return;
  tsr_device *device = open_device(*state, test_selector(), NULL);
  run_cases(device);
  run_case(device, TSR_GEMM_OPTIONS(.variant = "reference tile_m=4 tile_n=16"));
  tsr_device_close(&device);
}

/* Each copy of b is written, and read in turn. */
static void test_copies(void **state) {
  tsr_device *device = open_device(*state, "host", NULL);
  tsr_gemm *gemm = NULL;
  tsr_error error = {0};
  double one = 1, out = 0;
  tsr_array array = view(&one, 1, 1), result = view(&out, 1, 1);
  assert_ok(tsr_gemm_create(device, 1, 1, 1, TSR_GEMM_OPTIONS(.copies = 5, .beta = 1), &gemm, &error),
            &error);
  assert_true(tsr_device_bytes_used(device) == 7 * sizeof(float));
  assert_ok(tsr_gemm_write(gemm, TSR_GEMM_OPERAND_A, &array, &error), &error);
  assert_ok(tsr_gemm_write(gemm, TSR_GEMM_OPERAND_B, &array, &error), &error);
  assert_ok(tsr_gemm_write(gemm, TSR_GEMM_OPERAND_C, &array, &error), &error);
  assert_ok(tsr_gemm_run(gemm, 12, NULL, NULL, &error), &error);
  assert_ok(tsr_gemm_read(gemm, TSR_GEMM_OPERAND_C, &result, &error), &error);
  assert_true(out == 13);
  tsr_gemm_destroy(&gemm);
  tsr_device_close(&device);
}

/* ---- what a device is told ---- */

/* Stands between a product and its device: notes which copy of b is read and whether the device's times are
 * on, and fails when it is told to. */
static struct {
  const tsr_device_ops *own;
  const tsr_buffer *read[8];
  int count;
  bool timed, fails;
} spy;

static tsr_status spy_gemm(tsr_device *device, const tsr_gemm_call *call, tsr_error *error) {
  if (spy.fails) return tsr_fail(error, TSR_ERROR_DEVICE, "told to fail");
  if (spy.count < 8) spy.read[spy.count++] = call->b.buffer;
  return spy.own->gemm(device, call, error);
}

static tsr_status spy_timing(tsr_device *device, bool on, tsr_error *error) {
  (void)device;
  spy.timed = on;
  return on || !spy.fails ? TSR_OK : tsr_fail(error, TSR_ERROR_DEVICE, "cannot be switched off");
}

static void spy_watch(tsr_device *device, tsr_device_span *span) {
  (void)device, (void)span;
}

static bool spy_take(tsr_device *device, tsr_device_span *span, double *begin, double *end) {
  (void)device, (void)span, (void)begin, (void)end;
  return false;
}

static double told; /* what the device says that commands took */

static bool tell(tsr_device *device, tsr_device_span *span, double *begin, double *end) {
  (void)device, (void)span;
  *begin = 1, *end = 1 + told;
  return true;
}

/* A time that the host's contradicts is not believed: rusticl says 1 ns of everything. */
static void test_spans(void **state) {
  static const struct {
    double told, host;
    bool sane;
  } rows[] = {{0.9, 1, true},     {0.2, 1, true},     {1.01, 1, true},     {0.05, 1, false},
              {1.1, 1, false},    {1e-9, 1, false},   {1e-9, 1e-5, false}, {-1, 1, false},
              {5e-6, 8e-5, true}, {0.5, 1e-3, false}, {2e-7, 1e-6, false}};
  tsr_device *device = open_device(*state, "host", NULL);
  const tsr_device_ops *own = device->ops;
  tsr_device_ops ops = *own;
  ops.span_take = tell;
  device->ops = &ops;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    tsr_device_span span = {0};
    told = rows[i].told;
    double seconds = tsr_device_span_seconds(device, &span, rows[i].host);
    if ((seconds > 0) != rows[i].sane || (seconds > 0 && fabs(seconds - told) > 1e-12))
      fail_msg("%g s of the device's in %g s of the host's: %g", told, rows[i].host, seconds);
  }
  device->ops = own;
  tsr_device_close(&device);
}

/* A run goes on with the copy behind that of the last; times are switched off after a run that failed too. */
static void test_runs(void **state) {
  tsr_device *device = open_device(*state, "host", NULL);
  tsr_device_ops ops = *device->ops;
  tsr_gemm *gemm = NULL;
  tsr_error error = {0};
  double device_seconds;
  memset(&spy, 0, sizeof spy);
  spy.own = device->ops;
  ops.gemm = spy_gemm, ops.timing_set = spy_timing, ops.span_watch = spy_watch, ops.span_take = spy_take;
  device->ops = &ops;
  assert_ok(tsr_gemm_create(device, 1, 1, 1, TSR_GEMM_OPTIONS(.copies = 3), &gemm, &error), &error);
  assert_ok(tsr_gemm_run(gemm, 2, NULL, NULL, &error), &error);
  assert_ok(tsr_gemm_run(gemm, 2, NULL, &device_seconds, &error), &error);
  assert_false(spy.timed);
  assert_int_equal(spy.count, 4);
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < i; j++) assert_ptr_not_equal(spy.read[i], spy.read[j]);
  assert_ptr_equal(spy.read[3], spy.read[0]);
  spy.fails = true;
  assert_int_equal(tsr_gemm_run(gemm, 1, NULL, &device_seconds, &error), TSR_ERROR_DEVICE);
  assert_non_null(strstr(error.message, "told to fail"));
  assert_false(spy.timed);
  tsr_gemm_destroy(&gemm);
  device->ops = spy.own;
  tsr_device_close(&device);
}

static void expect(tsr_device *device, int64_t m, const tsr_gemm_options *options, tsr_status wanted,
                   const char *part) {
  tsr_gemm *gemm = NULL;
  tsr_error error = {0};
  assert_int_equal(tsr_gemm_create(device, m, N, K, options, &gemm, &error), wanted);
  assert_null(gemm);
  if (!strstr(error.message, part)) fail_msg("\"%s\" is not in \"%s\"", part, error.message);
  assert_int_equal(tsr_device_bytes_used(device), 0);
}

static void test_errors(void **state) {
  tsr_device *device = open_device(*state, "host", NULL);
  tsr_gemm *gemm = NULL;
  tsr_error error = {0};
  double data[M * N] = {0};
  expect(device, 0, NULL, TSR_ERROR_INVALID_ARGUMENT, "m = 0");
  expect(device, M, TSR_GEMM_OPTIONS(.types = "f33"), TSR_ERROR_INVALID_ARGUMENT, "f33");
  expect(device, M, TSR_GEMM_OPTIONS(.copies = -1), TSR_ERROR_INVALID_ARGUMENT, "-1 copies");
  expect(device, M, TSR_GEMM_OPTIONS(.variant = "nonsense"), TSR_ERROR_INVALID_ARGUMENT, "nonsense");
  expect(device, M, TSR_GEMM_OPTIONS(.variant = "reference"), TSR_ERROR_UNSUPPORTED, "reference");
  expect(device, M, &(tsr_gemm_options){.bias = true}, TSR_ERROR_INVALID_ARGUMENT, "struct_size");
  expect(device, INT64_MAX / 8, NULL, TSR_ERROR_OUT_OF_MEMORY, "operand a");
  assert_ok(tsr_gemm_create(device, M, N, K, NULL, &gemm, &error), &error);
  tsr_array wrong = view(data, N, M), good = view(data, M, N);
  assert_int_equal(tsr_gemm_write(gemm, TSR_GEMM_OPERAND_C, &wrong, &error), TSR_ERROR_INVALID_ARGUMENT);
  assert_int_equal(tsr_gemm_read(gemm, TSR_GEMM_OPERAND_GATE, &good, &error), TSR_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(error.message, "gate"));
  assert_int_equal(tsr_gemm_run(gemm, 0, NULL, NULL, &error), TSR_ERROR_INVALID_ARGUMENT);
  tsr_gemm_destroy(&gemm);
  tsr_gemm_destroy(&gemm);
  tsr_gemm_destroy(NULL);
  tsr_device_close(&device);
}

/* ---- tuning rows ---- */

/* The device under test with one row, whose variant is the default with stored_k_block (of panel) or tile_k
 * changed; and a kernel that computes nothing for it, if broken. */
typedef struct tuned {
  tsr_context *context;
  tsr_device *device;
  char folder[512], kernels[512], variant[TSR_VARIANT_BYTES];
} tuned;

static void make_variant(fixture *f, tuned *t, tsr_tuning_row *row) {
  tsr_device *device = open_device(f, test_selector(), NULL);
  tsr_tuning_space *space = NULL;
  tsr_error error = {0};
  tsr_status status = TSR_ERROR_UNSUPPORTED;
  row->product = (tsr_tuning_product){.types = "f32", .form = "nn", .m = M, .n = N, .k = K};
  tsr_tuning_identify(device, row);
  assert_ok(tsr_tuning_space_create(device, &row->product, NULL, &space, &error), &error);
  const char *start = tsr_tuning_space_start(space, 0);
  for (size_t i = 0; status == TSR_ERROR_UNSUPPORTED || (status == TSR_OK && !strcmp(t->variant, start)); i++)
    status = tsr_tuning_space_step(space, start, 0, i, t->variant, &error);
  assert_ok(status, &error);
  snprintf(row->variant, sizeof row->variant, "%s", t->variant);
  tsr_tuning_space_destroy(&space);
  tsr_device_close(&device);
}

static void open_tuned(fixture *f, tuned *t, const tsr_device_options *options) {
  tsr_error error = {0};
  tsr_tuning_row row = {.gflops = 1};
  snprintf(t->folder, sizeof t->folder, "%s/tuning", f->folder);
  make_variant(f, t, &row);
  clear_log(f);
  assert_ok(tsr_context_create(TSR_CONTEXT_OPTIONS(.log = keep_log, .log_user = f, .log_level = TSR_LOG_DEBUG,
                                                   .cache_folder = "", .kernel_folder = t->kernels,
                                                   .tuning_folder = t->folder),
                               &t->context, &error),
            &error);
  assert_ok(tsr_tuning_save(t->context, NULL, &row, 1, &error), &error);
  assert_ok(tsr_device_open(t->context, test_selector(), options, &t->device, &error), &error);
}

/* A folder of kernels in which gemm_panel.cl does not compile where its blocking of operands as stored is, or
 * is not, the default's. */
static void break_kernel(fixture *f, tuned *t, const char *comparison) {
  char path[600], command[1400];
  tsr_device *device = open_device(f, test_selector(), NULL);
  int k_block = device->gemm[0].stored_k_block;
  tsr_device_close(&device);
  snprintf(t->kernels, sizeof t->kernels, "%s/kernels", f->folder);
  assert_int_equal(mkdir(t->kernels, 0700), 0);
  snprintf(path, sizeof path, "%s/gemm_panel.cl", t->kernels);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file,
          "#if K_BLOCK %s %d && !A_TRANSPOSED && !B_TRANSPOSED && !B_NARROW && B_PANEL\n"
          "#error \"refused by the test\"\n#endif\n",
          comparison, k_block);
  fclose(file);
  snprintf(command, sizeof command, "cat '%s/cl_kernels/gemm_panel.cl' >> '%s'", TSR_SOURCE_ROOT, path);
  assert_int_equal(system(command), 0);
}

static void close_tuned(tuned *t) {
  char command[1200];
  tsr_device_close(&t->device);
  tsr_context_destroy(&t->context);
  snprintf(command, sizeof command, "rm -rf '%s' '%s'", t->folder, t->kernels);
  assert_int_equal(system(command), 0);
}

static bool is_searchable(fixture *f) {
  tsr_device *device = open_device(f, test_selector(), NULL);
  tsr_gemm_family family = device->gemm[0].family;
  tsr_device_close(&device);
  if (family != TSR_GEMM_PANEL) print_message("skipped: made for the panel family\n");
  return family == TSR_GEMM_PANEL;
}

/* The kernel does not compile for the default, which nothing asks for when the device is opened. */
static void test_row_is_used(void **state) {
  fixture *f = *state;
  tuned t = {.context = NULL};
  if (!has_device(f) || !is_searchable(f)) return;
  break_kernel(f, &t, "==");
  open_tuned(f, &t, TSR_DEVICE_OPTIONS(.work = TSR_WORK_ELEMENTWISE));
  tsr_error error = {0};
  tsr_gemm *gemm = NULL;
  assert_ok(tsr_gemm_create(t.device, M, N, K, NULL, &gemm, &error), &error);
  assert_string_equal(tsr_gemm_variant(gemm), t.variant);
  assert_int_not_equal(t.device->gemm[0].tuning, 0);
  tsr_gemm_destroy(&gemm);
  run_case(t.device, TSR_GEMM_OPTIONS(.alpha = 1));
  assert_int_equal(count_in_log(f, "is passed over"), 0);
  close_tuned(&t);
}

/* The kernel compiles for the default alone: the row's variant is tested, fails, and gives way. */
static void test_row_gives_way(void **state) {
  fixture *f = *state;
  tuned t = {.context = NULL};
  if (!has_device(f) || !is_searchable(f)) return;
  break_kernel(f, &t, "!=");
  open_tuned(f, &t, NULL);
  run_case(t.device, TSR_GEMM_OPTIONS(.alpha = 1));
  if (!count_in_log(f, "is passed over")) fail_msg("no warning in the log:\n%s", f->log);
  clear_log(f);
  run_case(t.device, TSR_GEMM_OPTIONS(.alpha = 1));
  assert_int_equal(count_in_log(f, "is passed over"), 0); /* once */
  tsr_gemm *gemm = NULL;
  assert_int_equal(tsr_gemm_create(t.device, M, N, K, NULL, &gemm, NULL), TSR_OK);
  assert_string_not_equal(tsr_gemm_variant(gemm), t.variant);
  tsr_gemm_destroy(&gemm);
  close_tuned(&t);
}

/* What a backend chooses must keep the limits that a search has, or its rows would never be used. */
static void test_defaults_keep_limits(void **state) {
  if (!has_device(*state)) return;
  tsr_device *device = open_device(*state, test_selector(), NULL);
  for (int types = 0; types < TSR_GEMM_TYPES_COUNT; types++) {
    tsr_error error = {0};
    if (device->gemm[types].family == TSR_GEMM_NONE) continue;
    assert_ok(tsr_tuning_check(device, (tsr_gemm_types)types, &device->gemm[types], &error), &error);
    assert_true(tsr_tuning_offered(device, (tsr_gemm_types)types, &device->gemm[types]));
  }
  tsr_device_close(&device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_host),
      cmocka_unit_test(test_device),
      cmocka_unit_test(test_copies),
      cmocka_unit_test(test_runs),
      cmocka_unit_test(test_spans),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_row_is_used),
      cmocka_unit_test(test_row_gives_way),
      cmocka_unit_test(test_defaults_keep_limits),
  };
  return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
