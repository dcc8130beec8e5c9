/* bench_product.c: operands of a product in the device's form and in OpenBLAS's. */
#include "bench_product.h"

#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"

/* Two sums of k terms in any order differ by at most 2 k eps |A||B|; random errors stay far below this. */
static const double tolerance = 4;
/* What bias, gate and residual add to |A||B|; no activation's derivative is above 1.13. */
static const double epilogue_size = 4;

static double get(const bench_product *product, const void *numbers, int64_t i) {
  return product->dtype == TSR_F64 ? ((const double *)numbers)[i] : (double)((const float *)numbers)[i];
}

static void put(const bench_product *product, void *numbers, int64_t i, double value) {
  if (product->dtype == TSR_F64)
    ((double *)numbers)[i] = value;
  else
    ((float *)numbers)[i] = (float)value;
}

static void *allocate(const bench_product *product, int64_t count) {
  return tsr_malloc_pages((size_t)count * tsr_dtype_bytes(product->dtype));
}

static void *make_numbers(const bench_product *product, int64_t count, uint64_t seed) {
  void *numbers = allocate(product, count);
  for (int64_t i = 0; numbers && i < count; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
    put(product, numbers, i, (double)(seed >> 40) / (1 << 23) - 1);
  }
  return numbers;
}

static void multiply(const bench_product *product, const void *a, const void *b, void *c) {
  const bench_shape *shape = &product->shape;
  const CBLAS_TRANSPOSE turn_a = shape->transpose_a ? CblasTrans : CblasNoTrans;
  const CBLAS_TRANSPOSE turn_b = shape->transpose_b ? CblasTrans : CblasNoTrans;
  const blasint m = (blasint)shape->m, n = (blasint)shape->n, k = (blasint)shape->k;
  const blasint lda = shape->transpose_a ? m : k, ldb = shape->transpose_b ? k : n;
  if (product->dtype == TSR_F64)
    cblas_dgemm(CblasRowMajor, turn_a, turn_b, m, n, k, 1, a, lda, b, ldb, 0, c, n);
  else
    cblas_sgemm(CblasRowMajor, turn_a, turn_b, m, n, k, 1, a, lda, b, ldb, 0, c, n);
}

static void *make_sizes(const bench_product *product, const void *numbers, int64_t count) {
  void *sizes = allocate(product, count);
  for (int64_t i = 0; sizes && i < count; i++) put(product, sizes, i, fabs(get(product, numbers, i)));
  return sizes;
}

static tsr_status make_host_operands(bench_product *product, tsr_error *error) {
  const bench_shape *shape = &product->shape;
  product->a = make_numbers(product, shape->m * shape->k, 1);
  product->b = make_numbers(product, shape->k * shape->n, 2);
  product->c = make_numbers(product, shape->m * shape->n, 3);
  product->sizes = make_numbers(product, shape->m * shape->n, 4);
  if (!product->a || !product->b || !product->c || !product->sizes)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the operands");
  void *a = make_sizes(product, product->a, shape->m * shape->k);
  void *b = make_sizes(product, product->b, shape->k * shape->n);
  if (a && b) multiply(product, a, b, product->sizes);
  bool there = a && b;
  free(a);
  free(b);
  return there ? TSR_OK : tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the bound");
}

/* A matrix on the device, in panels of the given width (0 = row-major), with the host's numbers. */
static tsr_status make_matrix(const bench_product *product, const void *numbers, int64_t rows, int64_t cols,
                              int panel, tsr_matrix *out, tsr_error *error) {
  void *data = NULL;
  const size_t size = tsr_dtype_bytes(product->dtype);
  int64_t bytes = tsr_matrix_bytes(panel, product->dtype, rows, cols);
  *out = (tsr_matrix){.rows = rows, .cols = cols, .ld = panel ? rows : cols, .panel = panel};
  TSR_RETURN_IF_FAILED(tsr_buffer_create(product->device, (size_t)bytes, &out->buffer, error));
  TSR_RETURN_IF_FAILED(
      tsr_device_host_wait(product->device, out->buffer, 0, (size_t)bytes, TSR_HOST_WRITE, &data, error));
  int64_t width = panel ? panel : cols;
  memset(data, 0, (size_t)bytes);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c += width)
      memcpy((char *)data + (size_t)tsr_matrix_index(out, r, c) * size,
             (const char *)numbers + (size_t)(r * cols + c) * size,
             (size_t)(cols - c < width ? cols - c : width) * size);
  TSR_RETURN_IF_FAILED(tsr_device_host_end(product->device, out->buffer, data, error));
  return tsr_device_finish(product->device, error);
}

/* Any numbers do: those of c. */
static tsr_status make_epilogue(bench_product *product, tsr_error *error) {
  const bench_epilogue *e = &product->epilogue;
  tsr_epilogue *out = &product->call.epilogue;
  int64_t m = product->shape.m, n = product->shape.n;
  out->activate = e->activate;
  out->unary = e->unary;
  if (e->bias) TSR_RETURN_IF_FAILED(make_matrix(product, product->c, 1, n, 0, &out->bias, error));
  if (e->gate) TSR_RETURN_IF_FAILED(make_matrix(product, product->c, m, n, 0, &out->gate, error));
  if (e->residual) TSR_RETURN_IF_FAILED(make_matrix(product, product->c, m, n, 0, &out->residual, error));
  return TSR_OK;
}

static tsr_status make_device_operands(bench_product *product, tsr_error *error) {
  const bench_shape *shape = &product->shape;
  const tsr_gemm_facts *facts = &product->device->gemm[product->dtype];
  tsr_gemm_call *call = &product->call;
  int64_t m = shape->m, n = shape->n, k = shape->k;
  bool ta = shape->transpose_a, tb = shape->transpose_b;
  int c_panel = ta && !product->epilogue.name ? facts->panel : 0;
  *call = (tsr_gemm_call){.types = (tsr_gemm_types)product->dtype,
                          .m = m,
                          .n = n,
                          .k = k,
                          .alpha = 1,
                          .transpose_a = ta,
                          .transpose_b = tb};
  TSR_RETURN_IF_FAILED(make_matrix(product, product->a, ta ? k : m, ta ? m : k, 0, &call->a, error));
  TSR_RETURN_IF_FAILED(
      make_matrix(product, product->b, tb ? n : k, tb ? k : n, ta ? 0 : facts->panel, &call->b, error));
  TSR_RETURN_IF_FAILED(make_matrix(product, product->c, m, n, c_panel, &call->c, error));
  size_t workspace = tsr_gemm_workspace_bytes(facts, call->types, m, n, k);
  if (workspace) TSR_RETURN_IF_FAILED(tsr_buffer_create(product->device, workspace, &call->workspace, error));
  product->bare = *call;
  product->bare.c.buffer = NULL;
  if (product->yardstick == BENCH_OPENBLAS) return TSR_OK;
  TSR_RETURN_IF_FAILED(make_epilogue(product, error));
  return make_matrix(product, product->c, m, n, c_panel, &product->bare.c, error);
}

tsr_status bench_product_init(bench_product *product, tsr_error *error) {
  TSR_RETURN_IF_FAILED(make_host_operands(product, error));
  return make_device_operands(product, error);
}

void bench_product_finish(bench_product *product) {
  tsr_gemm_call *call = &product->call;
  tsr_buffer **const buffers[] = {&call->a.buffer,
                                  &call->b.buffer,
                                  &call->c.buffer,
                                  &call->workspace,
                                  &call->epilogue.bias.buffer,
                                  &call->epilogue.gate.buffer,
                                  &call->epilogue.residual.buffer,
                                  &product->bare.c.buffer};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
    tsr_buffer_destroy(product->device, buffers[i]);
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

/* bare.c = kind(bare.c, b) */
static tsr_status pass(bench_product *product, tsr_map_kind kind, const tsr_matrix *b, tsr_error *error) {
  const tsr_map_call map = {.kind = kind,
                            .unary = product->epilogue.unary,
                            .dtype = product->dtype,
                            .alpha = 1,
                            .beta = 1,
                            .a = product->bare.c,
                            .b = *b,
                            .out = product->bare.c};
  return tsr_device_map(product->device, &map, error);
}

static tsr_status run_passes(bench_product *product, tsr_error *error) {
  const tsr_epilogue *e = &product->call.epilogue;
  if (e->bias.buffer)
    TSR_RETURN_IF_FAILED(pass(product, e->activate ? TSR_MAP_BIAS_UNARY : TSR_MAP_ADD, &e->bias, error));
  if (e->gate.buffer) TSR_RETURN_IF_FAILED(pass(product, TSR_MAP_MULTIPLY, &e->gate, error));
  if (e->residual.buffer) TSR_RETURN_IF_FAILED(pass(product, TSR_MAP_ADD, &e->residual, error));
  return TSR_OK;
}

tsr_status bench_product_run_yardstick(bench_product *product, int count, tsr_error *error) {
  for (int i = 0; i < count; i++) {
    if (product->yardstick == BENCH_OPENBLAS) {
      multiply(product, product->a, product->b, product->c);
      continue;
    }
    TSR_RETURN_IF_FAILED(tsr_device_gemm(product->device, &product->bare, error));
    if (product->yardstick == BENCH_SEQUENCE) TSR_RETURN_IF_FAILED(run_passes(product, error));
  }
  return product->yardstick == BENCH_OPENBLAS ? TSR_OK : tsr_device_finish(product->device, error);
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

static tsr_status compare(const bench_product *product, const void *ours, tsr_error *error) {
  const bench_shape *shape = &product->shape;
  const double factor = tolerance * sqrt((double)shape->k) * tsr_dtype_epsilon(product->dtype);
  const double more = product->epilogue.name ? epilogue_size : 0;
  for (int64_t i = 0; i < shape->m; i++)
    for (int64_t j = 0; j < shape->n; j++) {
      double is = get(product, ours, tsr_matrix_index(&product->call.c, i, j));
      double should = get(product, product->c, i * shape->n + j);
      double bound = factor * (get(product, product->sizes, i * shape->n + j) + more);
      if (!(fabs(is - should) <= bound))
        return tsr_fail(error, TSR_ERROR_CHECK_FAILED,
                        "element (%" PRId64 ", %" PRId64
                        ") is %g, the yardstick has %g: at most %g apart expected",
                        i, j, is, should, bound);
    }
  return TSR_OK;
}

/* What the device's sequence computed, to product->c. */
static tsr_status read_sequence(bench_product *product, tsr_error *error) {
  tsr_buffer *buffer = product->bare.c.buffer;
  void *data = NULL;
  TSR_RETURN_IF_FAILED(
      tsr_device_host_wait(product->device, buffer, 0, buffer->bytes, TSR_HOST_READ, &data, error));
  memcpy(product->c, data, buffer->bytes);
  TSR_RETURN_IF_FAILED(tsr_device_host_end(product->device, buffer, data, error));
  return tsr_device_finish(product->device, error);
}

tsr_status bench_product_check(bench_product *product, tsr_error *error) {
  tsr_buffer *buffer = product->call.c.buffer;
  void *data = NULL;
  if (product->yardstick == BENCH_BARE) return TSR_OK;
  if (product->yardstick == BENCH_SEQUENCE) TSR_RETURN_IF_FAILED(read_sequence(product, error));
  TSR_RETURN_IF_FAILED(
      tsr_device_host_wait(product->device, buffer, 0, buffer->bytes, TSR_HOST_READ, &data, error));
  tsr_status compared = compare(product, data, error);
  tsr_status ended = tsr_device_host_end(product->device, buffer, data, compared == TSR_OK ? error : NULL);
  if (compared != TSR_OK) return compared;
  return ended == TSR_OK ? tsr_device_finish(product->device, error) : ended;
}
