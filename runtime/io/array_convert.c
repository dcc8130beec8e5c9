#include "io/convert.h"

#include <stdbool.h>

#include "base/memory.h"

/* Side of a tile of a transpose: a row of it is a cache line of f16 or two of f32, the whole of it stays in
 * L1. */
enum { TILE = 32, ELEMENT_BYTES_MAX = 8 };

tsr_status tsr_array_check(const tsr_array *array, tsr_error *error) {
  int64_t count, bytes, each = (int64_t)tsr_dtype_bytes(array->dtype);
  if (!each)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "dtype is %d, expected a tsr_dtype",
                    (int)array->dtype);
  if (array->shape.axes < 0 || array->shape.axes > TSR_AXES_MAX)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%d axes, expected 0 .. %d", array->shape.axes,
                    TSR_AXES_MAX);
  count = tsr_shape_count(&array->shape);
  if (count < 0 || !tsr_multiply_fits(count, each, &bytes))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "an extent is negative or the size does not fit 64 bits");
  if (count && !array->data)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "data is NULL for %lld elements", (long long)count);
  return TSR_OK;
}

/* A pair of arrays of one shape, seen as planes of rows; strides in bytes. Axes that are not there have
 * extent 1 and come first. */
enum { ROWS = TSR_AXES_MAX - 2, COLUMNS = TSR_AXES_MAX - 1 };
_Static_assert(TSR_AXES_MAX == 4, "tsr_array_convert has a loop for each axis");

typedef struct block {
  int64_t extent[TSR_AXES_MAX], from[TSR_AXES_MAX], to[TSR_AXES_MAX];
  int64_t from_bytes, to_bytes; /* per element */
  tsr_convert_run run, move;    /* from to to; to to to */
  bool transposed;              /* rows are contiguous in `from`, columns in `to` */
} block;

static void axis_to_end(block *b, int axis) {
  int64_t *const lists[] = {b->extent, b->from, b->to};
  for (int i = 0; i < 3; i++) {
    int64_t moved = lists[i][axis];
    for (int j = axis; j < COLUMNS; j++) lists[i][j] = lists[i][j + 1];
    lists[i][COLUMNS] = moved;
  }
}

/* Without axes of extent 1, and with neighbours made one where both arrays allow it: most blocks become a
 * matrix or a single run. False if there is nothing to copy. */
static bool block_init(block *b, const tsr_array *from, const tsr_array *to) {
  *b = (block){.extent = {1, 1, 1, 1},
               .from_bytes = (int64_t)tsr_dtype_bytes(from->dtype),
               .to_bytes = (int64_t)tsr_dtype_bytes(to->dtype),
               .run = tsr_convert_run_of(from->dtype, to->dtype),
               .move = tsr_convert_run_of(to->dtype, to->dtype)};
  for (int i = 0; i < to->shape.axes; i++)
    if (to->shape.extent[i] < 1) return false;
  for (int i = 0; i < to->shape.axes; i++) {
    int64_t extent = to->shape.extent[i];
    if (extent == 1) continue;
    int64_t from_stride = from->stride[i] * b->from_bytes, to_stride = to->stride[i] * b->to_bytes;
    bool joins = b->extent[COLUMNS] > 1 && b->from[COLUMNS] == from_stride * extent &&
                 b->to[COLUMNS] == to_stride * extent;
    if (!joins) axis_to_end(b, 0); /* of extent 1 until all are taken */
    b->extent[COLUMNS] *= extent;
    b->from[COLUMNS] = from_stride;
    b->to[COLUMNS] = to_stride;
  }
  return true;
}

static int axis_with_stride(const block *b, const int64_t *stride, int64_t wanted) {
  int axis = COLUMNS;
  while (axis >= 0 && (b->extent[axis] == 1 || stride[axis] != wanted)) axis--;
  return axis;
}

/* Makes the contiguous axis of `to` the columns and, if it is another one, that of `from` the rows. */
static void block_order(block *b) {
  int reads = axis_with_stride(b, b->from, b->from_bytes), writes = axis_with_stride(b, b->to, b->to_bytes);
  b->transposed = reads >= 0 && writes >= 0 && reads != writes;
  if (b->transposed) axis_to_end(b, reads);
  if (b->transposed && writes > reads) writes--;
  if (writes >= 0) axis_to_end(b, writes);
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Rows of `from` are converted into a small dense tile whose columns are then the rows of `to`. Strides of a
 * power of two, which send all lines of a direct transpose to one cache set, do no harm that way. */
static void copy_tile(const block *b, const uint8_t *from, uint8_t *to, int64_t rows, int64_t columns) {
  _Alignas(64) uint8_t tile[TILE * TILE * ELEMENT_BYTES_MAX];
  int64_t line = TILE * b->to_bytes;
  for (int64_t j = 0; j < columns; j++)
    b->run(from + j * b->from[COLUMNS], b->from_bytes, tile + j * line, b->to_bytes, rows);
  for (int64_t i = 0; i < rows; i++)
    b->move(tile + i * b->to_bytes, line, to + i * b->to[ROWS], b->to_bytes, columns);
}

/* The outer loop is over what is far apart in `from`, so that a mapped file is read in order. */
static void copy_transposed(const block *b, const uint8_t *from, uint8_t *to) {
  for (int64_t j = 0; j < b->extent[COLUMNS]; j += TILE)
    for (int64_t i = 0; i < b->extent[ROWS]; i += TILE)
      copy_tile(b, from + i * b->from_bytes + j * b->from[COLUMNS], to + i * b->to[ROWS] + j * b->to_bytes,
                smaller(TILE, b->extent[ROWS] - i), smaller(TILE, b->extent[COLUMNS] - j));
}

/* The last two axes. */
static void copy_plane(const block *b, const uint8_t *from, uint8_t *to) {
  if (b->transposed)
    copy_transposed(b, from, to);
  else
    for (int64_t i = 0; i < b->extent[ROWS]; i++)
      b->run(from + i * b->from[ROWS], b->from[COLUMNS], to + i * b->to[ROWS], b->to[COLUMNS],
             b->extent[COLUMNS]);
}

void tsr_array_convert(const tsr_array *from, const tsr_array *to) {
  block b;
  if (!block_init(&b, from, to)) return;
  block_order(&b);
  const uint8_t *source = from->data;
  uint8_t *target = to->data;
  for (int64_t i = 0; i < b.extent[0]; i++)
    for (int64_t j = 0; j < b.extent[1]; j++)
      copy_plane(&b, source + i * b.from[0] + j * b.from[1], target + i * b.to[0] + j * b.to[1]);
}
