/* bench_product.c: operands of a product in the device's form and in OpenBLAS's. */
#include "bench_product.h"

#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"

/* Two sums of k terms in any order differ by at most 2 k eps |A||B|; random errors stay far below this. */
static const double tolerance = 4;

static float *make_numbers(int64_t count, uint64_t seed) {
  float *numbers = tsr_malloc_pages((size_t)count * sizeof *numbers);
  for (int64_t i = 0; numbers && i < count; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
    numbers[i] = (float)(seed >> 40) / (1 << 23) - 1;
  }
  return numbers;
}

static void multiply(const bench_shape *shape, const float *a, const float *b, float *c) {
  cblas_sgemm(CblasRowMajor, shape->transpose_a ? CblasTrans : CblasNoTrans,
              shape->transpose_b ? CblasTrans : CblasNoTrans, (blasint)shape->m, (blasint)shape->n,
              (blasint)shape->k, 1, a, (blasint)(shape->transpose_a ? shape->m : shape->k), b,
              (blasint)(shape->transpose_b ? shape->k : shape->n), 0, c, (blasint)shape->n);
}

static float *make_sizes(const float *numbers, int64_t count) {
  float *sizes = tsr_malloc_pages((size_t)count * sizeof *sizes);
  for (int64_t i = 0; sizes && i < count; i++) sizes[i] = fabsf(numbers[i]);
  return sizes;
}

static tsr_status make_host_operands(bench_product *product, tsr_error *error) {
  const bench_shape *shape = &product->shape;
  product->a = make_numbers(shape->m * shape->k, 1);
  product->b = make_numbers(shape->k * shape->n, 2);
  product->c = make_numbers(shape->m * shape->n, 3);
  product->sizes = make_numbers(shape->m * shape->n, 4);
  if (!product->a || !product->b || !product->c || !product->sizes)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the operands");
  float *a = make_sizes(product->a, shape->m * shape->k), *b = make_sizes(product->b, shape->k * shape->n);
  if (a && b) multiply(shape, a, b, product->sizes);
  bool there = a && b;
  free(a);
  free(b);
  return there ? TSR_OK : tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the bound");
}

/* A matrix on the device, in panels of the given width (0 = row-major), with the host's numbers. */
static tsr_status make_matrix(tsr_device *device, const float *numbers, int64_t rows, int64_t cols, int panel,
                              tsr_matrix *out, tsr_error *error) {
  void *data = NULL;
  int64_t bytes = tsr_matrix_bytes(panel, TSR_F32, rows, cols);
  *out = (tsr_matrix){.rows = rows, .cols = cols, .ld = panel ? rows : cols, .panel = panel};
  TSR_RETURN_IF_FAILED(tsr_buffer_create(device, (size_t)bytes, &out->buffer, error));
  TSR_RETURN_IF_FAILED(
      tsr_device_host_wait(device, out->buffer, 0, (size_t)bytes, TSR_HOST_WRITE, &data, error));
  int64_t width = panel ? panel : cols;
  memset(data, 0, (size_t)bytes);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c += width)
      memcpy((float *)data + tsr_matrix_index(out, r, c), numbers + r * cols + c,
             (size_t)(cols - c < width ? cols - c : width) * sizeof *numbers);
  TSR_RETURN_IF_FAILED(tsr_device_host_end(device, out->buffer, data, error));
  return tsr_device_finish(device, error);
}

static tsr_status make_device_operands(bench_product *product, tsr_error *error) {
  const bench_shape *shape = &product->shape;
  const tsr_gemm_facts *facts = &product->device->gemm[TSR_F32];
  tsr_device *device = product->device;
  tsr_gemm_call *call = &product->call;
  int64_t m = shape->m, n = shape->n, k = shape->k;
  bool ta = shape->transpose_a, tb = shape->transpose_b;
  *call = (tsr_gemm_call){
      .dtype = TSR_F32, .m = m, .n = n, .k = k, .alpha = 1, .transpose_a = ta, .transpose_b = tb};
  TSR_RETURN_IF_FAILED(make_matrix(device, product->a, ta ? k : m, ta ? m : k, 0, &call->a, error));
  TSR_RETURN_IF_FAILED(
      make_matrix(device, product->b, tb ? n : k, tb ? k : n, ta ? 0 : facts->panel, &call->b, error));
  TSR_RETURN_IF_FAILED(make_matrix(device, product->c, m, n, ta ? facts->panel : 0, &call->c, error));
  size_t workspace = tsr_gemm_workspace_bytes(facts, TSR_F32, ta, tb, m, n, k);
  return workspace ? tsr_buffer_create(device, workspace, &call->workspace, error) : TSR_OK;
}

tsr_status bench_product_init(bench_product *product, const bench_shape *shape, tsr_device *device,
                              tsr_error *error) {
  *product = (bench_product){.shape = *shape, .device = device};
  TSR_RETURN_IF_FAILED(make_host_operands(product, error));
  return make_device_operands(product, error);
}

void bench_product_finish(bench_product *product) {
  tsr_buffer_destroy(product->device, &product->call.a.buffer);
  tsr_buffer_destroy(product->device, &product->call.b.buffer);
  tsr_buffer_destroy(product->device, &product->call.c.buffer);
  tsr_buffer_destroy(product->device, &product->call.workspace);
  free(product->a);
  free(product->b);
  free(product->c);
  free(product->sizes);
}

tsr_status bench_product_run_ours(bench_product *product, int count, tsr_error *error) {
  for (int i = 0; i < count; i++)
    TSR_RETURN_IF_FAILED(tsr_device_gemm(product->device, &product->call, error));
  return tsr_device_finish(product->device, error);
}

void bench_product_run_openblas(bench_product *product, int count) {
  for (int i = 0; i < count; i++) multiply(&product->shape, product->a, product->b, product->c);
}

tsr_status bench_product_spoil(bench_product *product, tsr_error *error) {
  tsr_buffer *buffer = product->call.c.buffer;
  void *data = NULL;
  TSR_RETURN_IF_FAILED(
      tsr_device_host_wait(product->device, buffer, 0, buffer->bytes, TSR_HOST_WRITE, &data, error));
  memset(data, 0xff, buffer->bytes); /* not a number, everywhere */
  TSR_RETURN_IF_FAILED(tsr_device_host_end(product->device, buffer, data, error));
  return tsr_device_finish(product->device, error);
}

static tsr_status compare(const bench_product *product, const float *ours, tsr_error *error) {
  const bench_shape *shape = &product->shape;
  double factor = tolerance * sqrt((double)shape->k) * tsr_dtype_epsilon(TSR_F32);
  for (int64_t i = 0; i < shape->m; i++)
    for (int64_t j = 0; j < shape->n; j++) {
      double is = ours[tsr_matrix_index(&product->call.c, i, j)], should = product->c[i * shape->n + j];
      double bound = factor * product->sizes[i * shape->n + j];
      if (!(fabs(is - should) <= bound))
        return tsr_fail(error, TSR_ERROR_CHECK_FAILED,
                        "element (%" PRId64 ", %" PRId64
                        ") is %g, OpenBLAS has %g: at most %g apart expected",
                        i, j, is, should, bound);
    }
  return TSR_OK;
}

tsr_status bench_product_check(bench_product *product, tsr_error *error) {
  tsr_buffer *buffer = product->call.c.buffer;
  void *data = NULL;
  TSR_RETURN_IF_FAILED(
      tsr_device_host_wait(product->device, buffer, 0, buffer->bytes, TSR_HOST_READ, &data, error));
  tsr_status compared = compare(product, data, error);
  tsr_status ended = tsr_device_host_end(product->device, buffer, data, compared == TSR_OK ? error : NULL);
  if (compared != TSR_OK) return compared;
  return ended == TSR_OK ? tsr_device_finish(product->device, error) : ended;
}
