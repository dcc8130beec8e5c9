/* host_gemm.c: a product and its epilogue in f64, whatever the element types.
 *
 * For each block of C: the sums start at 0; for each block of the depth, op(A)'s and op(B)'s blocks are
 * copied to f64, whatever their form, and multiplied into the sums; then the epilogue and one rounding. Every
 * element is summed in the order p = 0, 1, ..., k-1. */
#include "base/activation.h"
#include "host.h"

#include <string.h>

/* Rows and columns from `row`, `column` on, of op(matrix), as f64. The matrix is read along its rows. */
static void copy_block(const tsr_matrix *matrix, tsr_dtype dtype, bool transpose, int64_t row, int64_t column,
                       int64_t rows, int64_t cols, double *out, int64_t out_ld) {
  const void *data = tsr_host_data(matrix);
  if (transpose) {
    for (int64_t c = 0; c < cols; c++)
      for (int64_t r = 0; r < rows; r++)
        out[r * out_ld + c] = tsr_number_load(data, dtype, tsr_matrix_index(matrix, column + c, row + r));
    return;
  }
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++)
      out[r * out_ld + c] = tsr_number_load(data, dtype, tsr_matrix_index(matrix, row + r, column + c));
}

/* sum[i][j] += a[i][p] * b[p][j]. Whole rows of the block, so that the inner loop has a constant length;
 * columns beyond C hold whatever, and are not stored. Two values of p share a load and a store of the sums.
 */
static void multiply_block(tsr_host_device *device, int64_t rows, int64_t depth) {
  for (int64_t i = 0; i < rows; i++) {
    double *restrict sum = device->sum[i];
    int64_t p = 0;
    for (; p + 1 < depth; p += 2) {
      const double x = device->a[i][p], y = device->a[i][p + 1];
      const double *restrict b = device->b[p], *restrict next_b = device->b[p + 1];
      for (int j = 0; j < TSR_HOST_COLUMNS; j++) sum[j] = (sum[j] + x * b[j]) + y * next_b[j];
    }
    for (; p < depth; p++)
      for (int j = 0; j < TSR_HOST_COLUMNS; j++) sum[j] += device->a[i][p] * device->b[p][j];
  }
}

/* An element of a row or a matrix of the epilogue, as f64. */
static double operand_at(const tsr_matrix *matrix, tsr_dtype dtype, int64_t row, int64_t column) {
  return tsr_number_load(tsr_host_data(matrix), dtype, tsr_matrix_index(matrix, row, column));
}

static double finish(const tsr_gemm_call *call, int64_t row, int64_t column, double value) {
  const tsr_epilogue *e = &call->epilogue;
  const tsr_dtype dtype = tsr_gemm_dtype_c(call->types);
  if (e->bias.buffer) value += operand_at(&e->bias, dtype, 0, column);
  if (e->activate) value = tsr_unary_apply(e->unary, value);
  if (e->gate.buffer) value *= operand_at(&e->gate, dtype, row, column);
  if (e->residual.buffer) value += operand_at(&e->residual, dtype, row, column);
  return value;
}

static void store_block(const tsr_host_device *device, const tsr_gemm_call *call, int64_t row, int64_t column,
                        int64_t rows, int64_t cols) {
  const tsr_dtype dtype = tsr_gemm_dtype_c(call->types);
  void *data = tsr_host_data(&call->c);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      int64_t index = tsr_matrix_index(&call->c, row + i, column + j);
      double value = call->alpha * device->sum[i][j];
      if (call->scale.buffer) value *= operand_at(&call->scale, TSR_F32, 0, column + j);
      if (call->beta != 0) value += call->beta * tsr_number_load(data, dtype, index);
      tsr_number_store(data, dtype, index, finish(call, row + i, column + j, value));
    }
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static void gemm_block(tsr_host_device *device, const tsr_gemm_call *call, int64_t row, int64_t column) {
  int64_t rows = smaller(call->m - row, TSR_HOST_ROWS), cols = smaller(call->n - column, TSR_HOST_COLUMNS);
  int64_t depth = call->alpha == 0 ? 0 : call->k; /* alpha = 0: A and B are not read */
  const tsr_dtype a = tsr_gemm_dtype_a(call->types), b = tsr_gemm_dtype_b(call->types);
  memset(device->sum, 0, sizeof device->sum);
  for (int64_t p = 0; p < depth; p += TSR_HOST_DEPTH) {
    int64_t count = smaller(depth - p, TSR_HOST_DEPTH);
    copy_block(&call->a, a, call->transpose_a, row, p, rows, count, device->a[0], TSR_HOST_DEPTH);
    copy_block(&call->b, b, call->transpose_b, p, column, count, cols, device->b[0], TSR_HOST_COLUMNS);
    multiply_block(device, rows, count);
  }
  store_block(device, call, row, column, rows, cols);
}

tsr_status tsr_host_gemm(tsr_device *device, const tsr_gemm_call *call, tsr_error *error) {
  (void)error;
  for (int64_t row = 0; row < call->m; row += TSR_HOST_ROWS)
    for (int64_t column = 0; column < call->n; column += TSR_HOST_COLUMNS)
      gemm_block((tsr_host_device *)device, call, row, column);
  return TSR_OK;
}
