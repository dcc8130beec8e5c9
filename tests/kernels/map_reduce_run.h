/* map_reduce_run.h: every elementwise operation and every reduction once, on views that begin and end with
 * their buffers, for tests of what kernels touch. Their results are test_map_reduce's business. */
#ifndef TSR_TESTS_KERNELS_MAP_REDUCE_RUN_H
#define TSR_TESTS_KERNELS_MAP_REDUCE_RUN_H

#include "fixture.h"

/* gap: elements between rows, without which a matrix is taken for one long row. */
static tsr_matrix make_zeros(tsr_device *device, tsr_dtype dtype, int64_t rows, int64_t cols, int64_t gap) {
  tsr_error error = {0};
  tsr_matrix matrix = {.rows = rows, .cols = cols, .ld = cols + gap};
  size_t elements = (size_t)((rows - 1) * matrix.ld + cols);
  assert_ok(tsr_buffer_create(device, elements * tsr_dtype_bytes(dtype), &matrix.buffer, &error), &error);
  assert_ok(tsr_device_fill_zero(device, matrix.buffer, 0, matrix.buffer->bytes, &error), &error);
  return matrix;
}

static void run_maps(tsr_device *device, tsr_dtype dtype, tsr_matrix a, tsr_matrix row, tsr_matrix out) {
  tsr_error error = {0};
  for (int kind = 0; kind <= TSR_MAP_BIAS_UNARY; kind++) {
    tsr_map_call call = {.kind = (tsr_map_kind)kind,
                         .dtype = dtype,
                         .unary = TSR_UNARY_GELU,
                         .alpha = 2,
                         .beta = 3,
                         .a = a,
                         .b = kind == TSR_MAP_BIAS_UNARY ? row : a,
                         .out = out};
    assert_ok(tsr_device_map(device, &call, &error), &error);
  }
}

static void run_reductions(tsr_device *device, tsr_dtype dtype, tsr_matrix a, tsr_matrix b, tsr_matrix out,
                           tsr_buffer *workspace) {
  tsr_error error = {0};
  for (int kind = 0; kind <= TSR_REDUCE_SQUARED_ERROR; kind++) {
    tsr_reduce_call call = {.kind = (tsr_reduce_kind)kind,
                            .dtype = dtype,
                            .scale = 1,
                            .a = a,
                            .b = b,
                            .workspace = workspace,
                            .out = out};
    call.out.cols = call.out.ld = kind == TSR_REDUCE_ROWS ? a.cols : kind == TSR_REDUCE_COLS ? a.rows : 1;
    call.out.offset = out.cols - call.out.cols;
    assert_ok(tsr_device_reduce(device, &call, &error), &error);
  }
}

static void run_maps_and_reductions(tsr_device *device, tsr_dtype dtype, int64_t rows, int64_t cols,
                                    int64_t gap) {
  tsr_error error = {0};
  tsr_matrix a = make_zeros(device, dtype, rows, cols, gap), out = make_zeros(device, dtype, rows, cols, gap),
             row = make_zeros(device, dtype, 1, cols, 0),
             sums = make_zeros(device, dtype, 1, rows > cols ? rows : cols, 0);
  tsr_buffer *workspace = NULL;
  assert_ok(tsr_buffer_create(device, tsr_reduce_workspace_bytes(), &workspace, &error), &error);
  run_maps(device, dtype, a, row, out);
  run_reductions(device, dtype, a, out, sums, workspace);
  assert_ok(tsr_device_finish(device, &error), &error);
  tsr_buffer *all[] = {a.buffer, out.buffer, row.buffer, sums.buffer, workspace};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tsr_buffer_destroy(device, &all[i]);
}

#endif
