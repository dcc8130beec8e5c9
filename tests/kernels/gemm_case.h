/* gemm_case.h: products for tests of GEMM kernels: cases by chance, their operands on the device under test,
 * and the comparison with a double loop on the host. Included by one file per test.
 *
 * Small integers, whose sums are exact, must come out equal in every bit. Random numbers stay within
 * 4 sqrt(k) eps (|alpha| |A||B| + |beta| |C|), element by element, which an epilogue passes on. All that a
 * matrix does not hold is NaN before and must be NaN afterwards (but the padding of a panel, which is
 * unspecified); C is NaN too where beta is 0. Extreme numbers are zeros, huge, denormal, infinite and NaN
 * ones among random ones: infinities and NaN must come out where the host has them. */
#ifndef TSR_TESTS_KERNELS_GEMM_CASE_H
#define TSR_TESTS_KERNELS_GEMM_CASE_H

#include "fixture.h"

#include <math.h>

#include "base/activation.h"
#include "base/narrow.h"

enum { GAP_MAX = 9, GAP_ALIGNED = 8 };

static const int64_t sizes[] = {1, 2, 3, 7, 8, 13, 16, 31, 64, 65, 127, 257};

typedef struct test_case {
  tsr_gemm_types types;
  int64_t m, n, k;
  bool transpose_a, transpose_b, integers, extreme;
  bool aligned; /* offsets and leading dimensions are multiples of GAP_ALIGNED */
  bool tight;   /* views begin within an element of their buffer's start, and end with it */
  int b_panel, c_panel;
  double alpha, beta;
  const tsr_gemm_facts *variant; /* NULL = the device's choice */
  bool scaled;                   /* i8 with factors of its columns */
  bool bias, activate, gate, residual;
  tsr_unary unary;
} test_case;

/* A matrix, and its content on the host, row-major without gaps. */
typedef struct operand {
  tsr_dtype dtype;
  tsr_matrix view;
  double *values;
} operand;

/* Knuth's MMIX generator: the same cases everywhere. */
static uint64_t seed;
static uint64_t draw(uint64_t below) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (seed >> 33) % below;
}

/* A number that the type holds: integers from -3 to 3, or anything within -1 and 1 (i8: -127 and 127). */
static double draw_value(tsr_dtype dtype, bool integers) {
  if (integers) return (double)draw(7) - 3;
  double value = (double)draw(1 << 24) / (1 << 23) - 1;
  switch (dtype) {
  case TSR_F64: return value;
  case TSR_F16: return tsr_widen_f16(tsr_narrow_f16(value));
  case TSR_BF16: return tsr_widen_bf16(tsr_narrow_bf16(value));
  case TSR_I8: return tsr_narrow_i8(127 * value);
  default: return (double)(float)value;
  }
}

/* Huge numbers whose products do not overflow in f32; denormals of f16, of f32 and bf16. About two in each
 * sum. */
static double draw_extreme(tsr_dtype dtype, int64_t k) {
  static const double numbers[] = {0,     -0.0,   1e15, -1e15,    6e4,       -6e4,
                                   1e-40, -1e-39, 6e-8, INFINITY, -INFINITY, NAN};
  if (draw((uint64_t)k + 1) > 2) return draw_value(dtype, false);
  double value = numbers[draw(sizeof numbers / sizeof *numbers)];
  switch (dtype) {
  case TSR_F64: return value;
  case TSR_F16: return tsr_widen_f16(tsr_narrow_f16(value));
  case TSR_BF16: return tsr_widen_bf16(tsr_narrow_bf16(value));
  case TSR_I8: return value > 0 ? 127 : value < 0 ? -127 : 0;
  default: return (double)(float)value;
  }
}

static void upload(tsr_device *device, const operand *o, bool unset) {
  tsr_error error = {0};
  void *data = NULL;
  const size_t bytes = o->view.buffer->bytes;
  const double garbage = o->dtype == TSR_I8 ? 127 : NAN;
  assert_ok(tsr_device_host_wait(device, o->view.buffer, 0, bytes, TSR_HOST_WRITE, &data, &error), &error);
  for (size_t i = 0; i < bytes / tsr_dtype_bytes(o->dtype); i++)
    tsr_number_store(data, o->dtype, (int64_t)i, garbage);
  for (int64_t r = 0; r < o->view.rows && !unset; r++)
    for (int64_t c = 0; c < o->view.cols; c++)
      tsr_number_store(data, o->dtype, tsr_matrix_index(&o->view, r, c), o->values[r * o->view.cols + c]);
  assert_ok(tsr_device_host_end(device, o->view.buffer, data, &error), &error);
}

static operand make_operand(tsr_device *device, const test_case *t, tsr_dtype dtype, int64_t rows,
                            int64_t cols, int panel, bool unset) {
  tsr_error error = {0};
  operand o = {.dtype = dtype,
               .view = {.offset = (int64_t)draw(GAP_MAX), .rows = rows, .cols = cols, .panel = panel}};
  o.view.ld = (panel ? rows : cols) + (int64_t)draw(GAP_MAX);
  if (t->aligned) {
    o.view.offset = o.view.offset / GAP_ALIGNED * GAP_ALIGNED;
    o.view.ld = (o.view.ld + GAP_ALIGNED - 1) / GAP_ALIGNED * GAP_ALIGNED;
  }
  int64_t lines = panel ? (cols + panel - 1) / panel : rows;
  int64_t elements = o.view.offset + lines * o.view.ld * (panel ? panel : 1) + (int64_t)draw(GAP_MAX);
  if (t->tight) {
    o.view.offset = t->aligned ? 0 : 1;
    elements = o.view.offset + ((lines - 1) * o.view.ld + (panel ? rows : cols)) * (panel ? panel : 1);
  }
  assert_ok(tsr_buffer_create(device, (size_t)elements * tsr_dtype_bytes(dtype), &o.view.buffer, &error),
            &error);
  o.values = calloc((size_t)(rows * cols), sizeof *o.values);
  for (int64_t i = 0; i < rows * cols; i++)
    o.values[i] = t->extreme ? draw_extreme(dtype, t->k) : draw_value(dtype, t->integers);
  upload(device, &o, unset);
  return o;
}

static void free_operand(tsr_device *device, operand *o) {
  tsr_buffer_destroy(device, &o->view.buffer);
  free(o->values);
}

/* All that a product reads, and C as it was; what is not there has no values. */
typedef struct operands {
  operand a, b, c, scale, bias, gate, residual;
} operands;

/* What becomes of a sum with an error of so many roundings of *bound. The activations' derivatives are at
 * most 1.13, their own errors 8 ulp; twice that is allowed. */
static double finish(const test_case *t, const operands *o, int64_t i, int64_t j, double value,
                     double *bound) {
  int64_t at = i * t->n + j;
  if (t->bias) value += o->bias.values[j], *bound += fabs(o->bias.values[j]);
  if (t->activate) value = tsr_unary_apply(t->unary, value), *bound = 2 * *bound + 16 * fabs(value);
  if (t->gate) value *= o->gate.values[at], *bound *= fabs(o->gate.values[at]);
  if (t->residual) value += o->residual.values[at], *bound += fabs(o->residual.values[at]) + fabs(value);
  return value;
}

/* values[i] = what is expected, bounds[i] = the sum of absolute values. */
static void multiply(const test_case *t, const operands *o, double *values, double *bounds) {
  const operand *a = &o->a, *b = &o->b, *c = &o->c;
  int64_t row_step = t->transpose_a ? 1 : t->k, a_step = t->transpose_a ? t->m : 1;
  int64_t column_step = t->transpose_b ? t->k : 1, b_step = t->transpose_b ? 1 : t->n;
  const int64_t depth = t->alpha == 0 ? 0 : t->k; /* 0: A and B are not read */
  for (int64_t i = 0; i < t->m; i++)
    for (int64_t j = 0; j < t->n; j++) {
      double sum = 0, size = 0;
      for (int64_t p = 0; p < depth; p++) {
        double term = a->values[i * row_step + p * a_step] * b->values[j * column_step + p * b_step];
        sum += term;
        size += fabs(term);
      }
      double before = t->beta == 0 ? 0 : t->beta * c->values[i * t->n + j];
      double scale = o->scale.values ? o->scale.values[j] : 1,
             bound = fabs(t->alpha * scale) * size + fabs(before);
      values[i * t->n + j] = finish(t, o, i, j, t->alpha * scale * sum + before, &bound);
      bounds[i * t->n + j] = bound;
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

/* Denormals may be taken for zeros, here or there. */
static bool agrees(const test_case *t, double is, double should, double bound) {
  if (!t->extreme) return fabs(is - should) <= bound;
  if (isnan(should)) return isnan(is);
  if (isinf(should)) return is == should;
  return fabs(is - should) <= bound + 1e-18 * (double)t->k;
}

static void check_elements(const test_case *t, const tsr_matrix *c, const void *data, const double *values,
                           const double *bounds) {
  const tsr_dtype dtype = tsr_gemm_dtype_c(t->types);
  const bool exact = t->integers && !(t->activate && t->unary != TSR_UNARY_RELU);
  double factor = exact ? 0 : 4 * sqrt((double)t->k + 4) * tsr_dtype_epsilon(dtype);
  for (int64_t i = 0; i < t->m; i++)
    for (int64_t j = 0; j < t->n; j++) {
      double is = tsr_number_load(data, dtype, tsr_matrix_index(c, i, j)), should = values[i * t->n + j];
      if (!agrees(t, is, should, factor * bounds[i * t->n + j]))
        fail_msg(
            "%s m %d n %d k %d %s%s panels %d %d alpha %g beta %g%s%s%s%s: (%d, %d) is %.9g, expected %.9g",
            tsr_gemm_types_name(t->types), (int)t->m, (int)t->n, (int)t->k, t->transpose_a ? "T" : "N",
            t->transpose_b ? "T" : "N", t->b_panel, t->c_panel, t->alpha, t->beta, t->bias ? " bias" : "",
            t->activate ? tsr_unary_name(t->unary) : "", t->gate ? " gate" : "",
            t->residual ? " residual" : "", (int)i, (int)j, is, should);
    }
}

static void check_result(tsr_device *device, const test_case *t, const operands *o) {
  tsr_error error = {0};
  void *data = NULL;
  const tsr_matrix *c = &o->c.view;
  size_t bytes = c->buffer->bytes, elements = bytes / tsr_dtype_bytes(o->c.dtype);
  double *values = calloc((size_t)(t->m * t->n), sizeof *values),
         *bounds = calloc((size_t)(t->m * t->n), sizeof *bounds);
  unsigned char *marks = mark_elements(c, elements);
  multiply(t, o, values, bounds);
  assert_ok(tsr_device_host_wait(device, c->buffer, 0, bytes, TSR_HOST_READ, &data, &error), &error);
  check_elements(t, c, data, values, bounds);
  for (size_t i = 0; i < elements; i++)
    if (!marks[i] && !isnan(tsr_number_load(data, o->c.dtype, (int64_t)i)))
      fail_msg("m %d n %d k %d panels %d %d: element %zu of the buffer was overwritten", (int)t->m, (int)t->n,
               (int)t->k, t->b_panel, t->c_panel, i);
  assert_ok(tsr_device_host_end(device, c->buffer, data, &error), &error);
  free(values);
  free(bounds);
  free(marks);
}

static operands make_operands(tsr_device *device, const test_case *t) {
  const tsr_dtype a = tsr_gemm_dtype_a(t->types), b = tsr_gemm_dtype_b(t->types),
                  c = tsr_gemm_dtype_c(t->types);
  const bool turn_a = t->transpose_a, turn_b = t->transpose_b;
  test_case factors = *t; /* of sums, which must not overflow */
  operands o = {0};
  factors.extreme = false;
  o.a = make_operand(device, t, a, turn_a ? t->k : t->m, turn_a ? t->m : t->k, 0, false);
  o.b = make_operand(device, t, b, turn_b ? t->n : t->k, turn_b ? t->k : t->n, t->b_panel, false);
  o.c = make_operand(device, t, c, t->m, t->n, t->c_panel, t->beta == 0);
  if (t->scaled) o.scale = make_operand(device, &factors, TSR_F32, 1, t->n, 0, false);
  if (t->bias) o.bias = make_operand(device, t, c, 1, t->n, 0, false);
  if (t->gate) o.gate = make_operand(device, &factors, c, t->m, t->n, 0, false);
  if (t->residual) o.residual = make_operand(device, t, c, t->m, t->n, 0, false);
  return o;
}

static void run_case(tsr_device *device, const test_case *t) {
  tsr_error error = {0};
  operands o = make_operands(device, t);
  tsr_gemm_call call = {.types = t->types,
                        .m = t->m,
                        .n = t->n,
                        .k = t->k,
                        .alpha = t->alpha,
                        .beta = t->beta,
                        .transpose_a = t->transpose_a,
                        .transpose_b = t->transpose_b,
                        .a = o.a.view,
                        .b = o.b.view,
                        .c = o.c.view,
                        .scale = o.scale.view,
                        .facts = t->variant,
                        .epilogue = {.bias = o.bias.view,
                                     .activate = t->activate,
                                     .unary = t->unary,
                                     .gate = o.gate.view,
                                     .residual = o.residual.view}};
  const tsr_gemm_facts *facts = t->variant ? t->variant : &device->gemm[t->types];
  size_t workspace = tsr_gemm_workspace_bytes(facts, t->types, t->m, t->n, t->k);
  if (workspace) assert_ok(tsr_buffer_create(device, workspace, &call.workspace, &error), &error);
  assert_ok(tsr_device_gemm(device, &call, &error), &error);
  check_result(device, t, &o);
  tsr_buffer_destroy(device, &call.workspace);
  operand *const all[] = {&o.a, &o.b, &o.c, &o.scale, &o.bias, &o.gate, &o.residual};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free_operand(device, all[i]);
}

static const double scales[][2] = {{1, 0}, {1, 1}, {-2, 0}, {3, -1}, {1, 0}, {0, 2}, {0, 0}};

/* Few of the many combinations, since each is a program of its own. */
static void draw_epilogue(test_case *t) {
  static const struct {
    bool bias, activate, gate, residual;
    tsr_unary unary;
  } rows[] = {{true, false, false, false, TSR_UNARY_GELU}, {true, true, false, false, TSR_UNARY_RELU},
              {true, true, false, false, TSR_UNARY_GELU},  {false, true, true, false, TSR_UNARY_SILU},
              {true, false, false, true, TSR_UNARY_GELU},  {true, true, true, true, TSR_UNARY_GELU_TANH}};
  size_t i = draw(sizeof rows / sizeof *rows);
  t->bias = rows[i].bias;
  t->activate = rows[i].activate;
  t->gate = rows[i].gate;
  t->residual = rows[i].residual;
  t->unary = rows[i].unary;
}

/* Activations of huge numbers are test_map_reduce's business. */
static inline void make_extreme(test_case *t) {
  t->extreme = true;
  t->integers = t->activate = false;
}

/* Case by case all transposes and forms; sizes by chance, and now and then a depth of several blocks. */
static test_case draw_case(const tsr_gemm_facts *facts, tsr_gemm_types types, int number) {
  enum { SIZES = sizeof sizes / sizeof *sizes, SCALES = sizeof scales / sizeof *scales };
  const double *scale = scales[draw(SCALES)];
  test_case t = {.types = types, .integers = number % 3 != 2, .alpha = scale[0], .beta = scale[1]};
  t.transpose_a = number & 1;
  t.transpose_b = number & 2;
  t.scaled = tsr_gemm_dtype_b(types) == TSR_I8 && !t.transpose_b && number % 3;
  t.b_panel = number & 4 ? facts->panel : 0;
  t.c_panel = number & 8 ? facts->panel : 0;
  t.m = sizes[draw(SIZES)];
  t.n = sizes[draw(SIZES)];
  t.k = sizes[draw(SIZES)];
  if (facts->stored_k_block && number % 5 == 0) {
    t.k += (1 + number % 2) * facts->stored_k_block;
    t.m = t.m % 32 + 1;
  }
  if (!t.c_panel && number / 4 % 3 == 1) draw_epilogue(&t);
  return t;
}

#endif
