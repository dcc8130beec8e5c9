/* exec/tensor.h: values as they lie on one member's device.
 *
 * A store is memory as the plan lays it out: one buffer, or several pieces where one allocation would be too
 * large. A tensor is a view of a store as a matrix: the whole buffer, or (a shard of a replicated value) a
 * block of it. Kernels see one piece at a time: whoever launches asks where the next cut is and takes blocks
 * in between. */
#ifndef TSR_EXEC_TENSOR_H
#define TSR_EXEC_TENSOR_H

#include "comm/group.h"
#include "device/device.h"
#include "plan/plan.h"

typedef struct tsr_store {
  int piece_count; /* 0 = no bytes at all */
  tsr_buffer **pieces;
  void **memories;  /* [piece]: of the group, where the piece lies; NULL = of the device */
  tsr_group *group; /* borrowed; NULL = no piece lies in its memory */
} tsr_store;

typedef struct tsr_tensor {
  const tsr_store *store;
  tsr_dtype dtype;
  int panel;          /* 0 = row-major */
  int64_t rows, cols; /* of the view */
  int64_t row0, col0; /* where the view begins in the buffer's matrix */
  int64_t store_rows, store_cols;
  int64_t units_per_piece; /* rows, or panels, that one piece holds */
} tsr_tensor;

/* Allocates what storage `index` of the plan takes on this member. group: what is exchanged with its members
 * lies in memory of its, which others can read in place, if the device can use that and there is any; NULL =
 * in memory of the device. finish releases it, when the device is idle. */
tsr_status tsr_store_init(tsr_store *store, const tsr_plan *plan, int index, int active_index,
                          tsr_device *device, tsr_group *group, tsr_error *error);
void tsr_store_finish(tsr_store *store, tsr_device *device);

/* The tensor of value at place on this member. UNSUPPORTED if a view cannot be expressed (a shard of a middle
 * axis of a replicated value of three axes). */
tsr_status tsr_tensor_of(const tsr_plan *plan, const tsr_store *stores, int active_index, tsr_value value,
                         tsr_place place, tsr_tensor *out, tsr_error *error);

/* The first position > row (col) of the view at which a piece ends, or the panel in whose middle col lies;
 * rows (cols) if none comes before. */
int64_t tsr_tensor_next_row(const tsr_tensor *tensor, int64_t row);
int64_t tsr_tensor_next_col(const tsr_tensor *tensor, int64_t col);
/* A block of the view between two such positions. */
tsr_matrix tsr_tensor_block(const tsr_tensor *tensor, int64_t row, int64_t rows, int64_t col, int64_t cols);

/* The same elements in another shape: a single row seen as a column, or the other way round. */
tsr_tensor tsr_tensor_reshape(tsr_tensor tensor, int64_t rows, int64_t cols);

static inline bool tsr_tensor_is_empty(const tsr_tensor *tensor) {
  return tensor->rows == 0 || tensor->cols == 0;
}

/* Copies the whole tensor into (or out of) a host array of rows x cols given by its strides, converting the
 * dtype; waits for the device. Writing refuses what tsr_array_narrow refuses (INVALID_ARGUMENT), with its
 * place in the array; part of the tensor is then written. */
tsr_status tsr_tensor_read(tsr_device *device, const tsr_tensor *tensor, void *data, tsr_dtype dtype,
                           int64_t row_stride, int64_t col_stride, tsr_error *error);
tsr_status tsr_tensor_write(tsr_device *device, const tsr_tensor *tensor, const void *data, tsr_dtype dtype,
                            int64_t row_stride, int64_t col_stride, tsr_error *error);
tsr_status tsr_tensor_zero(tsr_device *device, const tsr_tensor *tensor, tsr_error *error);

#endif
