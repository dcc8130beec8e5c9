/* test_gemm.c: every GEMM family that the device under test can run, against a double loop on the host: all
 * transposes, row-major and panels, ragged sizes, views with offsets and gaps.
 *
 * Small integers, whose sums are exact, must come out equal in every bit. Random numbers stay within
 * 4 sqrt(k) eps (|alpha| |A||B| + |beta| |C|), element by element. All that a matrix does not hold is NaN
 * before and must be NaN afterwards (but the padding of a panel, which is unspecified); C is NaN too where
 * beta is 0. */
#include "fixture.h"

#include <math.h>

enum { CASES = 48, GAP_MAX = 9 };

static const int64_t sizes[] = {1, 2, 3, 7, 8, 13, 16, 31, 64, 65, 127, 257};

typedef struct test_case {
  tsr_dtype dtype;
  int64_t m, n, k;
  bool transpose_a, transpose_b, integers;
  int b_panel, c_panel;
  double alpha, beta;
} test_case;

/* A matrix, and its content on the host, row-major without gaps. */
typedef struct operand {
  tsr_matrix view;
  double *values;
} operand;

/* Knuth's MMIX generator: the same cases everywhere. */
static uint64_t seed;
static uint64_t draw(uint64_t below) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (seed >> 33) % below;
}

static double draw_value(const test_case *t) {
  if (t->integers) return (double)draw(7) - 3;
  double value = (double)draw(1 << 24) / (1 << 23) - 1;
  return t->dtype == TSR_F32 ? (double)(float)value : value;
}

static void put(void *data, tsr_dtype dtype, int64_t index, double value) {
  if (dtype == TSR_F64)
    ((double *)data)[index] = value;
  else
    ((float *)data)[index] = (float)value;
}

static double get(const void *data, tsr_dtype dtype, int64_t index) {
  return dtype == TSR_F64 ? ((const double *)data)[index] : (double)((const float *)data)[index];
}

static void upload(tsr_device *device, const test_case *t, const operand *o, bool unset) {
  tsr_error error = {0};
  void *data = NULL;
  size_t bytes = o->view.buffer->bytes;
  assert_ok(tsr_device_host_wait(device, o->view.buffer, 0, bytes, TSR_HOST_WRITE, &data, &error), &error);
  for (size_t i = 0; i < bytes / tsr_dtype_bytes(t->dtype); i++) put(data, t->dtype, (int64_t)i, NAN);
  for (int64_t r = 0; r < o->view.rows && !unset; r++)
    for (int64_t c = 0; c < o->view.cols; c++)
      put(data, t->dtype, tsr_matrix_index(&o->view, r, c), o->values[r * o->view.cols + c]);
  assert_ok(tsr_device_host_end(device, o->view.buffer, data, &error), &error);
}

static operand make_operand(tsr_device *device, const test_case *t, int64_t rows, int64_t cols, int panel,
                            bool unset) {
  tsr_error error = {0};
  operand o = {.view = {.offset = (int64_t)draw(GAP_MAX), .rows = rows, .cols = cols, .panel = panel}};
  o.view.ld = (panel ? rows : cols) + (int64_t)draw(GAP_MAX);
  int64_t lines = panel ? (cols + panel - 1) / panel : rows;
  int64_t elements = o.view.offset + lines * o.view.ld * (panel ? panel : 1) + (int64_t)draw(GAP_MAX);
  assert_ok(tsr_buffer_create(device, (size_t)elements * tsr_dtype_bytes(t->dtype), &o.view.buffer, &error),
            &error);
  o.values = calloc((size_t)(rows * cols), sizeof *o.values);
  for (int64_t i = 0; i < rows * cols; i++) o.values[i] = draw_value(t);
  upload(device, t, &o, unset);
  return o;
}

static void free_operand(tsr_device *device, operand *o) {
  tsr_buffer_destroy(device, &o->view.buffer);
  free(o->values);
}

/* values[i] = the sum, bounds[i] = the sum of absolute values. */
static void multiply(const test_case *t, const operand *a, const operand *b, const operand *c, double *values,
                     double *bounds) {
  int64_t row_step = t->transpose_a ? 1 : t->k, a_step = t->transpose_a ? t->m : 1;
  int64_t column_step = t->transpose_b ? t->k : 1, b_step = t->transpose_b ? 1 : t->n;
  for (int64_t i = 0; i < t->m; i++)
    for (int64_t j = 0; j < t->n; j++) {
      double sum = 0, size = 0;
      for (int64_t p = 0; p < t->k; p++) {
        double term = a->values[i * row_step + p * a_step] * b->values[j * column_step + p * b_step];
        sum += term;
        size += fabs(term);
      }
      double before = t->beta == 0 ? 0 : t->beta * c->values[i * t->n + j];
      values[i * t->n + j] = t->alpha * sum + before;
      bounds[i * t->n + j] = fabs(t->alpha) * size + fabs(before);
    }
}

/* Marks what C's view holds (1) and its padding (2). */
static unsigned char *mark_elements(const tsr_matrix *c, size_t elements) {
  unsigned char *marks = calloc(elements, 1);
  int64_t padded = c->panel ? (c->cols + c->panel - 1) / c->panel * c->panel : c->cols;
  for (int64_t r = 0; r < c->rows; r++)
    for (int64_t j = 0; j < padded; j++) marks[tsr_matrix_index(c, r, j)] = j < c->cols ? 1 : 2;
  return marks;
}

static void check_elements(const test_case *t, const tsr_matrix *c, const void *data, const double *values,
                           const double *bounds) {
  double factor = t->integers ? 0 : 4 * sqrt((double)t->k + 1) * tsr_dtype_epsilon(t->dtype);
  for (int64_t i = 0; i < t->m; i++)
    for (int64_t j = 0; j < t->n; j++) {
      double is = get(data, t->dtype, tsr_matrix_index(c, i, j)), should = values[i * t->n + j];
      if (!(fabs(is - should) <= factor * bounds[i * t->n + j]))
        fail_msg("m %d n %d k %d %s%s panels %d %d alpha %g beta %g: (%d, %d) is %.9g, expected %.9g",
                 (int)t->m, (int)t->n, (int)t->k, t->transpose_a ? "T" : "N", t->transpose_b ? "T" : "N",
                 t->b_panel, t->c_panel, t->alpha, t->beta, (int)i, (int)j, is, should);
    }
}

static void check_result(tsr_device *device, const test_case *t, const operand *a, const operand *b,
                         const operand *c) {
  tsr_error error = {0};
  void *data = NULL;
  size_t bytes = c->view.buffer->bytes, elements = bytes / tsr_dtype_bytes(t->dtype);
  double *values = calloc((size_t)(t->m * t->n), sizeof *values),
         *bounds = calloc((size_t)(t->m * t->n), sizeof *bounds);
  unsigned char *marks = mark_elements(&c->view, elements);
  multiply(t, a, b, c, values, bounds);
  assert_ok(tsr_device_host_wait(device, c->view.buffer, 0, bytes, TSR_HOST_READ, &data, &error), &error);
  check_elements(t, &c->view, data, values, bounds);
  for (size_t i = 0; i < elements; i++)
    if (!marks[i] && !isnan(get(data, t->dtype, (int64_t)i)))
      fail_msg("m %d n %d k %d panels %d %d: element %zu of the buffer was overwritten", (int)t->m, (int)t->n,
               (int)t->k, t->b_panel, t->c_panel, i);
  assert_ok(tsr_device_host_end(device, c->view.buffer, data, &error), &error);
  free(values);
  free(bounds);
  free(marks);
}

static void run_case(tsr_device *device, const test_case *t) {
  tsr_error error = {0};
  operand a = make_operand(device, t, t->transpose_a ? t->k : t->m, t->transpose_a ? t->m : t->k, 0, false);
  operand b =
      make_operand(device, t, t->transpose_b ? t->n : t->k, t->transpose_b ? t->k : t->n, t->b_panel, false);
  operand c = make_operand(device, t, t->m, t->n, t->c_panel, t->beta == 0);
  tsr_gemm_call call = {
      .dtype = t->dtype, .m = t->m, .n = t->n, .k = t->k, .alpha = t->alpha, .beta = t->beta};
  call.transpose_a = t->transpose_a;
  call.transpose_b = t->transpose_b;
  call.a = a.view;
  call.b = b.view;
  call.c = c.view;
  size_t workspace = tsr_gemm_workspace_bytes(&device->gemm[t->dtype], t->dtype, t->transpose_a,
                                              t->transpose_b, t->m, t->n, t->k);
  if (workspace) assert_ok(tsr_buffer_create(device, workspace, &call.workspace, &error), &error);
  assert_ok(tsr_device_gemm(device, &call, &error), &error);
  check_result(device, t, &a, &b, &c);
  tsr_buffer_destroy(device, &call.workspace);
  free_operand(device, &a);
  free_operand(device, &b);
  free_operand(device, &c);
}

static const double scales[][2] = {{1, 0}, {1, 1}, {-2, 0}, {3, -1}, {1, 0}, {0, 2}, {0, 0}};

/* Case by case all transposes and forms; sizes by chance, and now and then a depth of several blocks. */
static test_case draw_case(const tsr_gemm_facts *facts, tsr_dtype dtype, int number) {
  enum { SIZES = sizeof sizes / sizeof *sizes, SCALES = sizeof scales / sizeof *scales };
  const double *scale = scales[draw(SCALES)];
  test_case t = {.dtype = dtype, .integers = number % 3 != 2, .alpha = scale[0], .beta = scale[1]};
  t.transpose_a = number & 1;
  t.transpose_b = number & 2;
  t.b_panel = number & 4 ? facts->panel : 0;
  t.c_panel = number & 8 ? facts->panel : 0;
  t.m = sizes[draw(SIZES)];
  t.n = sizes[draw(SIZES)];
  t.k = sizes[draw(SIZES)];
  if (facts->stored.k_block && number % 5 == 0) {
    t.k += (1 + number % 2) * facts->stored.k_block;
    t.m = t.m % 32 + 1;
  }
  return t;
}

static void check_family(fixture *f, const char *selector, const char *family, tsr_dtype dtype, int cases) {
  tsr_error error = {0};
  tsr_device *device = NULL;
  clear_log(f);
  tsr_status status =
      tsr_device_open(f->context, selector, TSR_DEVICE_OPTIONS(.gemm = family), &device, &error);
  if (status == TSR_ERROR_UNSUPPORTED) {
    print_message("skipped: %s\n", error.message);
    return;
  }
  assert_ok(status, &error);
  if (count_in_log(f, "is passed over")) fail_msg("a family failed its self-test:\n%s", f->log);
  seed = 20240229;
  if (device->gemm[dtype].family == TSR_GEMM_NONE)
    print_message("skipped: no %s on this device\n", tsr_dtype_name(dtype));
  else
    for (int i = 0; i < cases; i++) {
      test_case t = draw_case(&device->gemm[dtype], dtype, i);
      run_case(device, &t);
    }
  assert_int_equal(tsr_device_bytes_used(device), 0);
  tsr_device_close(&device);
}

static void test_host(void **state) {
  check_family(*state, "host", NULL, TSR_F32, CASES);
  check_family(*state, "host", NULL, TSR_F64, CASES);
}

static void test_chosen(void **state) {
  if (!has_device(*state)) skip();
  check_family(*state, test_selector(), NULL, TSR_F32, 2 * CASES);
  check_family(*state, test_selector(), NULL, TSR_F64, CASES);
}

static void test_reference(void **state) {
  if (!has_device(*state)) skip();
  check_family(*state, test_selector(), "reference", TSR_F32, CASES);
}

/* Its f64 programs take too long to compile for a test. */
static void test_clblast(void **state) {
  if (!has_device(*state)) skip();
  check_family(*state, test_selector(), "clblast", TSR_F32, CASES / 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_host),
      cmocka_unit_test(test_chosen),
      cmocka_unit_test(test_reference),
      cmocka_unit_test(test_clblast),
  };
  return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
