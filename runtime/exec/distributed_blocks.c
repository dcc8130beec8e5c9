/* exec/distributed_blocks.c: the usual distributions, as lists of blocks. */
#include <tessera/distributed.h>

#include "base/error.h"
#include "base/memory.h"

static void even_share(int64_t extent, int parts, int index, int64_t *begin, int64_t *length) {
  int64_t each = parts > 0 ? extent / parts : 0, longer = parts > 0 ? extent % parts : 0;
  if (index < 0 || index >= parts) index = parts, each = longer = 0;
  *begin = index * each + (index < longer ? index : longer);
  *length = each + (index < longer);
}

tsr_block tsr_block_of_grid(int64_t rows, int64_t cols, int row_parts, int col_parts, int row_index,
                            int col_index) {
  tsr_block block = {0};
  even_share(rows, row_parts, row_index, &block.row, &block.rows);
  even_share(cols, col_parts, col_index, &block.col, &block.cols);
  return block;
}

tsr_block tsr_block_of_rows(int64_t rows, int64_t cols, int parts, int index) {
  return tsr_block_of_grid(rows, cols, parts, 1, index, 0);
}

tsr_block tsr_block_of_cols(int64_t rows, int64_t cols, int parts, int index) {
  return tsr_block_of_grid(rows, cols, 1, parts, 0, index);
}

/* One dimension of a block-cyclic distribution: blocks first, first + stride, ... are this member's. */
typedef struct cycle {
  int64_t extent, block;
  int64_t first, stride;
  int64_t blocks; /* its own */
  int64_t own;    /* its own rows or columns */
} cycle;

static cycle cycle_of(int64_t extent, int64_t block, int source, int size, int place) {
  cycle c = {.extent = extent, .block = block, .first = (place - source + size) % size, .stride = size};
  int64_t all = tsr_ceil_div(extent, block);
  c.blocks = all > c.first ? tsr_ceil_div(all - c.first, size) : 0;
  bool has_last = c.blocks && (all - 1 - c.first) % size == 0;
  c.own = c.blocks * block - (has_last ? all * block - extent : 0);
  return c;
}

/* Its i-th block: where it begins in the matrix, and its length. */
static void cycle_block(const cycle *c, int64_t i, int64_t *begin, int64_t *length) {
  *begin = (c->first + i * c->stride) * c->block;
  *length = c->extent - *begin < c->block ? c->extent - *begin : c->block;
}

static tsr_status check_cyclic(const tsr_block_cyclic *layout, int64_t own_rows, int64_t own_cols,
                               tsr_error *error) {
  int64_t least = layout->row_major ? own_cols : own_rows;
  if (!layout->ld || layout->ld >= least) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                  "ld is %lld, this member's local array has %lld %s: give at least that, or 0",
                  (long long)layout->ld, (long long)least, layout->row_major ? "columns" : "rows");
}

static tsr_status check_descriptor(const tsr_block_cyclic *layout, tsr_error *error) {
  const tsr_block_cyclic *l = layout;
  if (l->rows < 0 || l->cols < 0 || l->block_rows < 1 || l->block_cols < 1 || l->rows > INT64_MAX / 2 ||
      l->cols > INT64_MAX / 2 || l->block_rows > INT64_MAX / 2 || l->block_cols > INT64_MAX / 2)
    return tsr_fail(
        error, TSR_ERROR_INVALID_ARGUMENT,
        "a matrix of %lld x %lld in blocks of %lld x %lld: extents are 0 to 2^62, blocks at least 1",
        (long long)l->rows, (long long)l->cols, (long long)l->block_rows, (long long)l->block_cols);
  if (l->grid_rows < 1 || l->grid_cols < 1 || l->first_row < 0 || l->first_row >= l->grid_rows ||
      l->first_col < 0 || l->first_col >= l->grid_cols || l->grid_row >= l->grid_rows ||
      l->grid_col >= l->grid_cols)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "place (%d, %d) and first block at (%d, %d) in a grid of %d x %d: they must lie within",
                    l->grid_row, l->grid_col, l->first_row, l->first_col, l->grid_rows, l->grid_cols);
  return TSR_OK;
}

tsr_status tsr_block_cyclic_blocks(const tsr_block_cyclic *layout, tsr_dtype dtype, void *data,
                                   tsr_block *blocks, int64_t capacity, int64_t *count, tsr_error *error) {
  *count = 0;
  TSR_RETURN_IF_FAILED(check_descriptor(layout, error));
  if (layout->grid_row < 0 || layout->grid_col < 0) return TSR_OK;
  cycle rows =
      cycle_of(layout->rows, layout->block_rows, layout->first_row, layout->grid_rows, layout->grid_row);
  cycle cols =
      cycle_of(layout->cols, layout->block_cols, layout->first_col, layout->grid_cols, layout->grid_col);
  TSR_RETURN_IF_FAILED(check_cyclic(layout, rows.own, cols.own, error));
  int64_t ld = layout->ld ? layout->ld : layout->row_major ? cols.own : rows.own;
  int64_t row_stride = layout->row_major ? ld : 1, col_stride = layout->row_major ? 1 : ld;
  if (!tsr_multiply_fits(rows.blocks, cols.blocks, count))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%lld x %lld blocks do not fit 63 bits",
                    (long long)rows.blocks, (long long)cols.blocks);
  for (int64_t i = 0; i < *count && i < capacity; i++) {
    int64_t r = i / cols.blocks, c = i % cols.blocks;
    tsr_block *block = &blocks[i];
    *block = (tsr_block){.ld = ld};
    cycle_block(&rows, r, &block->row, &block->rows);
    cycle_block(&cols, c, &block->col, &block->cols);
    int64_t offset = r * rows.block * row_stride + c * cols.block * col_stride;
    if (data) block->data = (char *)data + offset * (int64_t)tsr_dtype_bytes(dtype);
  }
  return TSR_OK;
}
