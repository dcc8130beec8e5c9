/* bench_product.c: operands and the check of a result. */
#include "bench_product.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"

enum { SAMPLES = 96 };

/* An element of the result, computed in f64. */
typedef struct tool_sample {
  int64_t row, column;
  double value, bound;
} tool_sample;

static bool is_wide(const tool_product *product) {
  return product->wide == TSR_F64;
}

static double get(const void *data, bool wide, int64_t index) {
  return wide ? ((const double *)data)[index] : (double)((const float *)data)[index];
}

static void put(void *data, bool wide, int64_t index, double value) {
  if (wide)
    ((double *)data)[index] = value;
  else
    ((float *)data)[index] = (float)value;
}

static uint64_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
  return *state >> 33;
}

/* In (-1, 1): of 24 bits, or of 7, which f16, bf16 and (times 128) i8 hold exactly. */
static double number_of(uint64_t random, bool narrow) {
  int64_t steps = narrow ? 1 << 7 : 1 << 23;
  int64_t whole = (int64_t)(random % (uint64_t)(2 * steps - 1)) - steps + 1;
  return (double)whole / (double)steps;
}

static void *make_numbers(const tool_product *product, int64_t count, bool narrow, uint64_t seed) {
  bool wide = is_wide(product);
  void *numbers = malloc((size_t)count * (wide ? sizeof(double) : sizeof(float)));
  for (int64_t i = 0; numbers && i < count; i++) put(numbers, wide, i, number_of(next_random(&seed), narrow));
  return numbers;
}

static double a_at(const tool_product *product, int64_t i, int64_t p) {
  const tool_shape *shape = &product->shape;
  return get(product->a, is_wide(product), product->transpose_a ? p * shape->m + i : i * shape->k + p);
}

static double b_at(const tool_product *product, int64_t p, int64_t j) {
  const tool_shape *shape = &product->shape;
  return get(product->b, is_wide(product), product->transpose_b ? j * shape->k + p : p * shape->n + j);
}

/* c sqrt(k) eps |A||B| for the element whose |A||B| is `size`; and for a device that flushes denormals. */
static double bound_of(const tool_product *product, double size) {
  return 4 * sqrt((double)product->shape.k) * tsr_dtype_epsilon(product->wide) * size + 1e-30;
}

static tool_sample compute_sample(const tool_product *product, int64_t i, int64_t j) {
  tool_sample sample = {.row = i, .column = j};
  double size = 0;
  for (int64_t p = 0; p < product->shape.k; p++) {
    double term = a_at(product, i, p) * b_at(product, p, j);
    sample.value += term;
    size += fabs(term);
  }
  sample.bound = bound_of(product, size);
  return sample;
}

/* The corners, then anywhere. */
static void compute_samples(tool_product *product) {
  const tool_shape *shape = &product->shape;
  uint64_t seed = 4;
  for (int i = 0; i < SAMPLES; i++) {
    int64_t row = (int64_t)(next_random(&seed) % (uint64_t)shape->m),
            column = (int64_t)(next_random(&seed) % (uint64_t)shape->n);
    if (i < 4) row = i & 1 ? shape->m - 1 : 0, column = i & 2 ? shape->n - 1 : 0;
    product->samples[i] = compute_sample(product, row, column);
  }
}

/* y[r] = sum over c of x[c] matrix[r,c], or of its absolute values; along the rows as they are stored, or
 * across them. */
static void apply(const void *matrix, bool wide, int64_t rows, int64_t cols, bool across, bool absolute,
                  const double *x, double *y) {
  for (int64_t i = 0; i < (across ? cols : rows); i++) y[i] = 0;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) {
      double value = get(matrix, wide, r * cols + c);
      y[across ? c : r] += (absolute ? fabs(value) : value) * x[across ? r : c];
    }
}

static void apply_both(const tool_product *product, bool absolute, const double *x, double *between,
                       double *y) {
  const tool_shape *s = &product->shape;
  bool wide = is_wide(product), ta = product->transpose_a, tb = product->transpose_b;
  apply(product->b, wide, tb ? s->n : s->k, tb ? s->k : s->n, tb, absolute, x, between);
  apply(product->a, wide, ta ? s->k : s->m, ta ? s->m : s->k, ta, absolute, between, y);
}

static tsr_status compute_image(tool_product *product, tsr_error *error) {
  const tool_shape *shape = &product->shape;
  uint64_t seed = 5;
  double *between = malloc((size_t)shape->k * sizeof *between);
  if (!between) return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the check of a product");
  for (int64_t j = 0; j < shape->n; j++) product->probe[j] = 1;
  apply_both(product, true, product->probe, between, product->image_bound);
  for (int64_t i = 0; i < shape->m; i++) product->image_bound[i] = bound_of(product, product->image_bound[i]);
  for (int64_t j = 0; j < shape->n; j++) product->probe[j] = next_random(&seed) & 1 ? 1 : -1;
  apply_both(product, false, product->probe, between, product->image);
  free(between);
  return TSR_OK;
}

/* Powers of two, which change no bit of a product. b takes them in, so that it is what is multiplied. */
static bool make_scale(tool_product *product) {
  const tool_shape *shape = &product->shape;
  product->scale = malloc((size_t)shape->n * sizeof(float));
  for (int64_t j = 0; product->scale && j < shape->n; j++)
    put(product->scale, false, j, j % 3 == 0 ? 0.5 : 1);
  for (int64_t i = 0; product->scale && i < shape->k * shape->n; i++)
    put(product->b, false, i, get(product->b, false, i) * get(product->scale, false, i % shape->n));
  return product->scale;
}

/* Factors go with columns: weights in i8 that are transposed have none, and are whole numbers. */
static void make_whole(tool_product *product) {
  for (int64_t i = 0; i < product->shape.k * product->shape.n; i++)
    put(product->b, false, i, 128 * get(product->b, false, i));
}

tsr_status tool_product_init(tool_product *product, const tool_shape *shape, const char *types,
                             const char *form, tsr_error *error) {
  *product = (tool_product){.shape = *shape, .types = types};
  product->transpose_a = form[0] == 't';
  product->transpose_b = form[1] == 't';
  product->wide = strcmp(types, "f64") == 0 ? TSR_F64 : TSR_F32;
  bool narrow_b = strcmp(types, "f32") != 0 && !is_wide(product), narrow_a = narrow_b && !strchr(types, 'x');
  product->a = make_numbers(product, shape->m * shape->k, narrow_a, 1);
  product->b = make_numbers(product, shape->k * shape->n, narrow_b, 2);
  product->probe = malloc((size_t)shape->n * sizeof *product->probe);
  product->image = malloc((size_t)shape->m * sizeof *product->image);
  product->image_bound = malloc((size_t)shape->m * sizeof *product->image_bound);
  product->samples = malloc(SAMPLES * sizeof *product->samples);
  bool there = product->a && product->b && product->probe && product->image && product->image_bound &&
               product->samples;
  const bool whole = strcmp(types, "f32xi8") == 0;
  if (there && whole && product->transpose_b) make_whole(product);
  if (!there || (whole && !product->transpose_b && !make_scale(product)))
    return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY,
                     "no memory for the operands of %" PRId64 " x %" PRId64 " x %" PRId64, shape->m, shape->n,
                     shape->k);
  compute_samples(product);
  return compute_image(product, error);
}

void tool_product_finish(tool_product *product) {
  free(product->a);
  free(product->b);
  free(product->scale);
  free(product->probe);
  free(product->image);
  free(product->image_bound);
  free(product->samples);
  *product = (tool_product){0};
}

static tsr_array view(const tool_product *product, void *data, int64_t rows, int64_t cols) {
  tsr_shape shape = tsr_shape_of(2, rows, cols);
  return tsr_array_dense(data, product->wide, &shape);
}

/* Weights in i8 are b without its factors, times 128, which the factors take back. */
static tsr_status write_i8(const tool_product *product, tsr_gemm *gemm, tsr_error *error) {
  const tool_shape *s = &product->shape;
  float *whole = malloc((size_t)(s->k * s->n) * sizeof *whole), *scale = malloc((size_t)s->n * sizeof *scale);
  tsr_status status = TSR_ERROR_OUT_OF_MEMORY;
  if (whole && scale) {
    for (int64_t i = 0; i < s->k * s->n; i++)
      whole[i] = (float)(128 * get(product->b, false, i) / get(product->scale, false, i % s->n));
    for (int64_t j = 0; j < s->n; j++) scale[j] = (float)(get(product->scale, false, j) / 128);
    tsr_array b = view(product, whole, s->k, s->n), factors = view(product, scale, 1, s->n);
    status = tsr_gemm_write(gemm, TSR_GEMM_OPERAND_B, &b, error);
    if (status == TSR_OK) status = tsr_gemm_write(gemm, TSR_GEMM_OPERAND_SCALE, &factors, error);
  } else {
    tool_fail(error, status, "no memory for weights in i8");
  }
  free(whole);
  free(scale);
  return status;
}

static tsr_status write_operands(const tool_product *product, bool plain, tsr_gemm *gemm, tsr_error *error) {
  const tool_shape *s = &product->shape;
  bool ta = product->transpose_a, tb = product->transpose_b;
  tsr_array a = view(product, product->a, ta ? s->k : s->m, ta ? s->m : s->k);
  tsr_array b = view(product, product->b, tb ? s->n : s->k, tb ? s->k : s->n);
  tsr_status status = tsr_gemm_write(gemm, TSR_GEMM_OPERAND_A, &a, error);
  if (status != TSR_OK) return status;
  return product->scale && !plain ? write_i8(product, gemm, error)
                                  : tsr_gemm_write(gemm, TSR_GEMM_OPERAND_B, &b, error);
}

tsr_status tool_product_place(const tool_product *product, tsr_device *device, int64_t weights,
                              const char *variant, bool wide, tsr_gemm **out, tsr_error *error) {
  const tool_shape *s = &product->shape;
  const char *types = wide ? tsr_dtype_name(product->wide) : product->types;
  tsr_gemm_options options;
  tsr_gemm_options_init(&options);
  options.types = types;
  options.transpose_a = product->transpose_a;
  options.transpose_b = product->transpose_b;
  options.copies = weights;
  options.variant = variant;
  tsr_status status = tsr_gemm_create(device, s->m, s->n, s->k, &options, out, error);
  if (status == TSR_OK) status = write_operands(product, wide, *out, error);
  return status;
}

double tool_product_weight_bytes(const tool_product *product) {
  const char *types = product->types, *x = strchr(types, 'x');
  const char *b = x ? x + 1 : types;
  double bytes = 0;
  for (int dtype = 0; dtype < TSR_DTYPE_COUNT; dtype++)
    if (strcmp(b, tsr_dtype_name((tsr_dtype)dtype)) == 0) bytes = (double)tsr_dtype_bytes((tsr_dtype)dtype);
  return bytes * (double)product->shape.k * (double)product->shape.n;
}

static tsr_status wrong(const char *who, int64_t i, const char *what, double is, double should, double bound,
                        tsr_error *error) {
  return tool_fail(error, TSR_ERROR_CHECK_FAILED,
                   "%s: %s of row %" PRId64 " is %.9g, expected %.9g within %.3g", who, what, i, is, should,
                   bound);
}

/* NaN is no number that is near. */
static bool near(double is, double should, double bound) {
  return fabs(is - should) <= bound;
}

tsr_status tool_product_check(const tool_product *product, const void *c, const char *who, tsr_error *error) {
  const tool_shape *shape = &product->shape;
  bool wide = is_wide(product);
  for (int i = 0; i < SAMPLES; i++) {
    const tool_sample *sample = &product->samples[i];
    double is = get(c, wide, sample->row * shape->n + sample->column);
    if (!near(is, sample->value, sample->bound))
      return wrong(who, sample->row, "an element", is, sample->value, sample->bound, error);
  }
  for (int64_t i = 0; i < shape->m; i++) {
    double sum = 0;
    for (int64_t j = 0; j < shape->n; j++) sum += product->probe[j] * get(c, wide, i * shape->n + j);
    if (!near(sum, product->image[i], product->image_bound[i]))
      return wrong(who, i, "the sum with random signs", sum, product->image[i], product->image_bound[i],
                   error);
  }
  return TSR_OK;
}
