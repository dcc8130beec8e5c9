#include "exec/launch.h"

#include <assert.h>
#include <math.h>

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* ---- products ---- */

/* op(a) or op(b) seen untransposed: rows and columns change places. */
static int64_t next_cut(const tsr_tensor *tensor, bool along_cols, int64_t position) {
  return along_cols ? tsr_tensor_next_col(tensor, position) : tsr_tensor_next_row(tensor, position);
}

static tsr_matrix operand_block(const tsr_tensor *tensor, bool transposed, int64_t row, int64_t rows,
                                int64_t col, int64_t cols) {
  return transposed ? tsr_tensor_block(tensor, col, cols, row, rows)
                    : tsr_tensor_block(tensor, row, rows, col, cols);
}

static bool is_row(const tsr_launch_fused *fused) {
  return fused->role == TSR_FUSED_SCALE || fused->role == TSR_FUSED_BIAS;
}

/* Where the next cut of a fused operand comes, at most `end`. */
static int64_t fused_end(const tsr_launch *launch, bool along_cols, int64_t position, int64_t end) {
  for (int f = 0; f < launch->fused_count; f++) {
    const tsr_launch_fused *fused = &launch->fused[f];
    if (fused->role == TSR_FUSED_UNARY || (is_row(fused) && !along_cols)) continue;
    end = smaller(end, next_cut(&fused->operand, along_cols, position));
  }
  return end;
}

/* The epilogue of a block of c. */
static tsr_epilogue epilogue_of(const tsr_launch *launch, int64_t i, int64_t m, int64_t j, int64_t n) {
  tsr_epilogue epilogue = {.activate = false};
  for (int f = 0; f < launch->fused_count; f++) {
    const tsr_launch_fused *fused = &launch->fused[f];
    if (fused->role == TSR_FUSED_UNARY) {
      epilogue.activate = true;
      epilogue.unary = fused->node->unary;
    } else if (fused->role == TSR_FUSED_BIAS) {
      epilogue.bias = tsr_tensor_block(&fused->operand, 0, 1, j, n);
    } else if (fused->role != TSR_FUSED_SCALE) {
      *(fused->role == TSR_FUSED_GATE ? &epilogue.gate : &epilogue.residual) =
          tsr_tensor_block(&fused->operand, i, m, j, n);
    }
  }
  return epilogue;
}

/* Factors of the columns come before all else, and only where one product sums over all of k. */
static tsr_matrix scale_of(const tsr_launch *launch, int64_t j, int64_t n) {
  bool there = launch->fused_count && launch->fused[0].role == TSR_FUSED_SCALE;
  return there ? tsr_tensor_block(&launch->fused[0].operand, 0, 1, j, n) : (tsr_matrix){0};
}

/* Sums over all of k into one block of c; the first product takes beta, the others add, the last one takes
 * the epilogue. */
static tsr_status launch_product(const tsr_launch *launch, tsr_gemm_call call, int64_t i, int64_t j,
                                 int64_t k, tsr_error *error) {
  const tsr_tensor *a = &launch->inputs[0], *b = &launch->inputs[1];
  for (int64_t p = 0; p < k; p += call.k) {
    call.k = smaller(next_cut(a, !call.transpose_a, p), next_cut(b, call.transpose_b, p)) - p;
    if (p + call.k == k) call.epilogue = epilogue_of(launch, i, call.m, j, call.n);
    call.a = operand_block(a, call.transpose_a, i, call.m, p, call.k);
    call.b = operand_block(b, call.transpose_b, p, call.k, j, call.n);
    TSR_RETURN_IF_FAILED(tsr_device_gemm(launch->device, &call, error));
    call.beta = 1;
  }
  return TSR_OK;
}

/* The summand beta c goes into the output first, unless another member adds it. */
static tsr_status launch_summand(const tsr_launch *launch, double *beta, tsr_error *error) {
  const tsr_node *node = launch->node;
  *beta = 0;
  if (node->beta == 0 || (launch->rule->one_owner[2] && !launch->owner)) return TSR_OK;
  *beta = node->beta;
  return tsr_launch_copy(launch->device, &launch->inputs[2], &launch->output, error);
}

/* A block of the output, in the chunk's own buffer if it has one. */
static tsr_matrix output_block(const tsr_launch *launch, int64_t i, int64_t m, int64_t j, int64_t n) {
  tsr_matrix block = tsr_tensor_block(&launch->output, i, m, j, n);
  if (!launch->chunk.buffer) return block;
  block.buffer = launch->chunk.buffer;
  block.offset -= launch->chunk.begin * block.ld;
  return block;
}

/* Rows of a chunk lie without gaps. */
static tsr_status zero_output(const tsr_launch *launch, tsr_error *error) {
  const tsr_launch_rows *chunk = &launch->chunk;
  if (!chunk->end) return tsr_tensor_zero(launch->device, &launch->output, error);
  int64_t rows = chunk->end - chunk->begin, size = (int64_t)tsr_dtype_bytes(launch->output.dtype);
  tsr_matrix all = output_block(launch, chunk->begin, rows, 0, launch->output.cols);
  return tsr_device_fill_zero(launch->device, all.buffer, (size_t)(all.offset * size),
                              (size_t)(rows * all.ld * size), error);
}

static tsr_status add_operand(const tsr_launch *launch, const tsr_launch_fused *fused, int64_t end,
                              tsr_error *error) {
  const tsr_tensor *c = &launch->output;
  tsr_map_call call = {.kind = TSR_MAP_ADD, .dtype = c->dtype, .alpha = 1, .beta = 1};
  int64_t rows, cols;
  for (int64_t i = launch->chunk.begin; i < end; i += rows) {
    rows = fused_end(launch, false, i, smaller(tsr_tensor_next_row(c, i), end)) - i;
    for (int64_t j = 0; j < c->cols; j += cols) {
      cols = fused_end(launch, true, j, tsr_tensor_next_col(c, j)) - j;
      call.a = call.out = output_block(launch, i, rows, j, cols);
      call.b = is_row(fused) ? tsr_tensor_block(&fused->operand, 0, 1, j, cols)
                             : tsr_tensor_block(&fused->operand, i, rows, j, cols);
      TSR_RETURN_IF_FAILED(tsr_device_map(launch->device, &call, error));
    }
  }
  return TSR_OK;
}

static tsr_status launch_scale(const tsr_launch *launch, double alpha, const tsr_tensor *a, tsr_error *error);

/* A member without a share has nothing to sum over: its summand is what it alone adds. */
static tsr_status launch_nothing(const tsr_launch *launch, double beta, int64_t end, tsr_error *error) {
  TSR_RETURN_IF_FAILED(beta == 0 ? zero_output(launch, error)
                                 : launch_scale(launch, beta, &launch->output, error));
  for (int f = 0; f < launch->fused_count; f++) {
    assert(launch->fused[f].role == TSR_FUSED_BIAS || launch->fused[f].role == TSR_FUSED_RESIDUAL);
    TSR_RETURN_IF_FAILED(add_operand(launch, &launch->fused[f], end, error));
  }
  return TSR_OK;
}

static tsr_status launch_matmul(const tsr_launch *launch, tsr_error *error) {
  const tsr_node *node = launch->node;
  const tsr_tensor *a = &launch->inputs[0], *b = &launch->inputs[1], *c = &launch->output;
  int64_t k = node->transpose_a ? a->rows : a->cols, end = launch->chunk.end ? launch->chunk.end : c->rows;
  double beta;
  if (tsr_tensor_is_empty(c)) return TSR_OK;
  TSR_RETURN_IF_FAILED(launch_summand(launch, &beta, error));
  if (!k) return launch_nothing(launch, beta, end, error);
  tsr_gemm_call call = {.types = tsr_gemm_types_find(a->dtype, b->dtype),
                        .alpha = node->alpha,
                        .beta = beta,
                        .transpose_a = node->transpose_a,
                        .transpose_b = node->transpose_b,
                        .workspace = launch->workspace};
  for (int64_t i = launch->chunk.begin; i < end; i += call.m) {
    call.m = smaller(smaller(tsr_tensor_next_row(c, i), end), next_cut(a, node->transpose_a, i)) - i;
    call.m = fused_end(launch, false, i, i + call.m) - i;
    for (int64_t j = 0; j < c->cols; j += call.n) {
      call.n = smaller(tsr_tensor_next_col(c, j), next_cut(b, !node->transpose_b, j)) - j;
      call.n = fused_end(launch, true, j, j + call.n) - j;
      call.c = output_block(launch, i, call.m, j, call.n);
      call.scale = scale_of(launch, j, call.n);
      TSR_RETURN_IF_FAILED(launch_product(launch, call, i, j, k, error));
    }
  }
  return TSR_OK;
}

/* ---- elementwise ---- */

/* The block of an operand that belongs to a block of the output; a single row or column is broadcast. */
static tsr_matrix map_block(const tsr_tensor *tensor, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  bool one_row = tensor->rows == 1, one_col = tensor->cols == 1;
  return tsr_tensor_block(tensor, one_row ? 0 : row, one_row ? 1 : rows, one_col ? 0 : col,
                          one_col ? 1 : cols);
}

static int64_t map_end(const tsr_tensor *tensor, bool along_cols, int64_t position, int64_t end) {
  if ((along_cols ? tensor->cols : tensor->rows) == 1) return end;
  return smaller(end, next_cut(tensor, along_cols, position));
}

static tsr_status launch_map(tsr_device *device, tsr_map_call call, const tsr_tensor *a, const tsr_tensor *b,
                             const tsr_tensor *out, tsr_error *error) {
  int64_t rows, cols;
  call.dtype = out->dtype;
  for (int64_t i = 0; i < out->rows; i += rows) {
    rows = map_end(a, false, i, tsr_tensor_next_row(out, i)) - i;
    if (b) rows = map_end(b, false, i, i + rows) - i;
    for (int64_t j = 0; j < out->cols; j += cols) {
      cols = map_end(a, true, j, tsr_tensor_next_col(out, j)) - j;
      if (b) cols = map_end(b, true, j, j + cols) - j;
      call.a = map_block(a, i, rows, j, cols);
      if (b) call.b = map_block(b, i, rows, j, cols);
      call.out = tsr_tensor_block(out, i, rows, j, cols);
      TSR_RETURN_IF_FAILED(tsr_device_map(device, &call, error));
    }
  }
  return TSR_OK;
}

tsr_status tsr_launch_copy(tsr_device *device, const tsr_tensor *from, const tsr_tensor *to,
                           tsr_error *error) {
  return launch_map(device, (tsr_map_call){.kind = TSR_MAP_SCALE, .alpha = 1}, from, NULL, to, error);
}

static tsr_status launch_scale(const tsr_launch *launch, double alpha, const tsr_tensor *a,
                               tsr_error *error) {
  return launch_map(launch->device, (tsr_map_call){.kind = TSR_MAP_SCALE, .alpha = alpha}, a, NULL,
                    &launch->output, error);
}

static tsr_status launch_add(const tsr_launch *launch, tsr_error *error) {
  const tsr_node *node = launch->node;
  const tsr_tensor *a = &launch->inputs[0], *b = &launch->inputs[1];
  if (launch->fused_count)
    return launch_map(launch->device,
                      (tsr_map_call){.kind = TSR_MAP_BIAS_UNARY, .unary = launch->fused[0].node->unary}, a, b,
                      &launch->output, error);
  /* A summand that only one owner adds counts as zero elsewhere. */
  double alpha = launch->rule->one_owner[0] && !launch->owner ? 0 : node->alpha;
  double beta = launch->rule->one_owner[1] && !launch->owner ? 0 : node->beta;
  if (alpha == 0 && beta == 0) return tsr_tensor_zero(launch->device, &launch->output, error);
  if (beta == 0) return launch_scale(launch, alpha, a, error);
  if (alpha == 0) return launch_scale(launch, beta, b, error);
  return launch_map(launch->device, (tsr_map_call){.kind = TSR_MAP_ADD, .alpha = alpha, .beta = beta}, a, b,
                    &launch->output, error);
}

static tsr_status launch_multiply(const tsr_launch *launch, tsr_error *error) {
  return launch_map(launch->device, (tsr_map_call){.kind = TSR_MAP_MULTIPLY}, &launch->inputs[0],
                    &launch->inputs[1], &launch->output, error);
}

static tsr_status launch_scale_node(const tsr_launch *launch, tsr_error *error) {
  tsr_tensor a = launch->inputs[0];
  if (launch->node->unit_axis) a = tsr_tensor_reshape(a, launch->output.rows, launch->output.cols);
  return launch_scale(launch, launch->node->alpha, &a, error);
}

static tsr_status launch_unary(const tsr_launch *launch, tsr_error *error) {
  return launch_map(launch->device, (tsr_map_call){.kind = TSR_MAP_UNARY, .unary = launch->node->unary},
                    &launch->inputs[0], NULL, &launch->output, error);
}

static tsr_status launch_unary_gradient(const tsr_launch *launch, tsr_error *error) {
  return launch_map(launch->device,
                    (tsr_map_call){.kind = TSR_MAP_UNARY_GRADIENT, .unary = launch->node->unary},
                    &launch->inputs[0], &launch->inputs[1], &launch->output, error);
}

/* ---- reductions ---- */

/* Nothing to reduce: the neutral element. */
static tsr_status launch_neutral(const tsr_launch *launch, tsr_reduction reduction, tsr_error *error) {
  if (tsr_tensor_is_empty(&launch->output)) return TSR_OK;
  if (reduction == TSR_SUM) return tsr_tensor_zero(launch->device, &launch->output, error);
  double lowest = -INFINITY;
  return tsr_tensor_write(launch->device, &launch->output, &lowest, TSR_F64, 0, 0, error);
}

/* One piece of rows after another; sums over rows accumulate, sums over columns fill their own part. */
static tsr_status launch_pieces(const tsr_launch *launch, tsr_reduce_call call, const tsr_tensor *b,
                                tsr_error *error) {
  const tsr_tensor *a = &launch->inputs[0];
  const tsr_tensor *out = &launch->output;
  bool along = call.kind == TSR_REDUCE_COLS, column = along && out->cols == 1;
  int64_t rows;
  call.dtype = a->dtype;
  call.workspace = launch->workspace;
  for (int64_t i = 0; i < a->rows; i += rows) {
    rows = smaller(tsr_tensor_next_row(a, i), b ? tsr_tensor_next_row(b, i) : a->rows) - i;
    if (column) rows = smaller(rows, tsr_tensor_next_row(out, i) - i);
    call.a = tsr_tensor_block(a, i, rows, 0, a->cols);
    if (b) call.b = tsr_tensor_block(b, i, rows, 0, a->cols);
    call.out = column  ? tsr_tensor_block(out, i, rows, 0, 1)
               : along ? tsr_tensor_block(out, 0, 1, i, rows)
                       : tsr_tensor_block(out, 0, 1, 0, out->cols);
    call.accumulate = !along && i > 0;
    TSR_RETURN_IF_FAILED(tsr_device_reduce(launch->device, &call, error));
  }
  return TSR_OK;
}

static tsr_status launch_reduce(const tsr_launch *launch, tsr_error *error) {
  const tsr_node *node = launch->node;
  int axes = tsr_graph_at(launch->plan->graph, node->inputs[0])->shape.axes;
  if (axes > 2)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "reduce of a value of %d axes: 2 at most are supported",
                    axes);
  if (tsr_tensor_is_empty(&launch->inputs[0])) return launch_neutral(launch, node->reduction, error);
  tsr_reduce_call call = {.reduction = node->reduction, .scale = 1};
  call.kind = node->axis == axes - 1 ? TSR_REDUCE_COLS : TSR_REDUCE_ROWS;
  return launch_pieces(launch, call, NULL, error);
}

static tsr_status launch_squared_error(const tsr_launch *launch, tsr_error *error) {
  if (tsr_tensor_is_empty(&launch->inputs[0])) return launch_neutral(launch, TSR_SUM, error);
  tsr_reduce_call call = {
      .kind = TSR_REDUCE_SQUARED_ERROR, .reduction = TSR_SUM, .scale = launch->node->alpha};
  return launch_pieces(launch, call, &launch->inputs[1], error);
}

/* ------------------------------------------------------------------------------------------------------------
 */

static const tsr_launcher launchers[TSR_OPERATOR_COUNT] = {
    [TSR_OPERATOR_MATMUL] = launch_matmul,        [TSR_OPERATOR_ADD] = launch_add,
    [TSR_OPERATOR_MULTIPLY] = launch_multiply,    [TSR_OPERATOR_SCALE] = launch_scale_node,
    [TSR_OPERATOR_UNARY] = launch_unary,          [TSR_OPERATOR_UNARY_GRADIENT] = launch_unary_gradient,
    [TSR_OPERATOR_REDUCE] = launch_reduce,        [TSR_OPERATOR_SQUARED_ERROR] = launch_squared_error,
    [TSR_OPERATOR_CONV] = tsr_launch_conv,        [TSR_OPERATOR_CONV_INPUT] = tsr_launch_conv,
    [TSR_OPERATOR_CONV_WEIGHT] = tsr_launch_conv, [TSR_OPERATOR_CHANNEL_SUM] = tsr_launch_channel_sum,
    [TSR_OPERATOR_POOL] = tsr_launch_pool,        [TSR_OPERATOR_POOL_GRADIENT] = tsr_launch_pool,
};

tsr_status tsr_launch_node(const tsr_launch *launch, tsr_error *error) {
  return launchers[launch->node->op](launch, error);
}
