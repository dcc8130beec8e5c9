#include "exec/tensor.h"

#include "base/memory.h"
#include "io/convert.h"

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* The buffer that decides how a storage is cut: the first of its buffers (cut ones share with their like
 * alone). */
static const tsr_plan_buffer *first_buffer(const tsr_plan *plan, int storage) {
  for (int i = 0; i < plan->buffer_count; i++)
    if (plan->buffers[i].storage == storage) return &plan->buffers[i];
  return NULL; /* workspace */
}

static tsr_status allocate_piece(tsr_store *store, int i, tsr_device *device, int member, size_t bytes,
                                 tsr_error *error) {
  bool shares = store->group && device->takes_memory;
  void *memory = shares ? tsr_group_memory_create(store->group, member, bytes) : NULL;
  store->memories[i] = memory;
  return memory ? tsr_buffer_create_over(device, memory, bytes, &store->pieces[i], error)
                : tsr_buffer_create(device, bytes, &store->pieces[i], error);
}

static tsr_status allocate_pieces(tsr_store *store, tsr_device *device, int member, int64_t bytes,
                                  int64_t piece_bytes, tsr_error *error) {
  int count = (int)((bytes + piece_bytes - 1) / piece_bytes);
  store->pieces = tsr_calloc((size_t)count, sizeof *store->pieces);
  store->memories = tsr_calloc((size_t)count, sizeof *store->memories);
  if (!store->pieces || !store->memories)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %d pieces", count);
  store->piece_count = count;
  for (int i = 0; i < count; i++) {
    size_t own = (size_t)smaller(piece_bytes, bytes - i * piece_bytes);
    TSR_RETURN_IF_FAILED(allocate_piece(store, i, device, member, own, error));
  }
  return TSR_OK;
}

tsr_status tsr_store_init(tsr_store *store, const tsr_plan *plan, int index, int active_index,
                          tsr_device *device, tsr_group *group, tsr_error *error) {
  const tsr_plan_buffer *buffer = first_buffer(plan, index);
  int64_t bytes = plan->storages[index].bytes[active_index], units, unit_bytes;
  int pieces = 1;
  *store = (tsr_store){.group = group};
  if (!bytes) return TSR_OK;
  if (buffer) {
    tsr_shape shape = tsr_plan_local_shape(plan, buffer->value, buffer->place, active_index);
    int64_t rows, cols;
    tsr_shape_matrix(&shape, &rows, &cols);
    if (!tsr_plan_pieces(plan, active_index, tsr_plan_buffer_panel(plan, buffer, active_index),
                         tsr_graph_at(plan->graph, buffer->value)->dtype, rows, cols, &units, &unit_bytes,
                         &pieces))
      return tsr_fail(
          error, TSR_ERROR_OUT_OF_MEMORY,
          "a row of %lld bytes is larger than the largest allocation; split the value along that axis",
          (long long)unit_bytes);
  }
  return allocate_pieces(store, device, plan->decision.active[active_index], bytes,
                         pieces > 1 ? units * unit_bytes : bytes, error);
}

void tsr_store_finish(tsr_store *store, tsr_device *device) {
  const bool kept = store->group && tsr_group_keeps_memory(store->group);
  for (int i = 0; !kept && i < store->piece_count; i++) {
    tsr_buffer_destroy(device, &store->pieces[i]);
    if (store->memories[i]) tsr_group_memory_destroy(store->group, store->memories[i]);
  }
  free(store->pieces);
  free(store->memories);
  *store = (tsr_store){0};
}

tsr_status tsr_tensor_of(const tsr_plan *plan, const tsr_store *stores, int active_index, tsr_value value,
                         tsr_place place, tsr_tensor *out, tsr_error *error) {
  bool is_view;
  int index = tsr_plan_find_buffer(plan, value, place, &is_view), pieces;
  if (index < 0)
    return tsr_fail(error, TSR_ERROR_INTERNAL, "value %u has no buffer as %s", value.id,
                    tsr_place_name(place));
  const tsr_plan_buffer *buffer = &plan->buffers[index];
  tsr_shape whole = tsr_plan_local_shape(plan, value, buffer->place, active_index);
  int64_t unit_bytes;
  *out = (tsr_tensor){.store = &stores[buffer->storage], .dtype = tsr_graph_at(plan->graph, value)->dtype};
  out->panel = tsr_plan_buffer_panel(plan, buffer, active_index);
  tsr_shape_matrix(&whole, &out->store_rows, &out->store_cols);
  tsr_plan_pieces(plan, active_index, out->panel, out->dtype, out->store_rows, out->store_cols,
                  &out->units_per_piece, &unit_bytes, &pieces);
  out->rows = out->store_rows;
  out->cols = out->store_cols;
  if (!is_view) return TSR_OK;
  int64_t begin, end;
  tsr_plan_range(plan, value, place, place, active_index, &begin, &end);
  bool along_cols;
  int64_t unit;
  if (!tsr_axis_matrix(&whole, place, &along_cols, &unit))
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "value %u: a shard of axis %d of a replicated value of %d axes", value.id, place,
                    whole.axes);
  *(along_cols ? &out->col0 : &out->row0) = begin * unit;
  *(along_cols ? &out->cols : &out->rows) = (end - begin) * unit;
  return TSR_OK;
}

/* Where the pieces end along a direction: at multiples of `units` of what is stored, seen from the view. */
static int64_t next_cut(int64_t position, int64_t extent, int64_t first, int64_t unit) {
  int64_t cut = ((first + position) / unit + 1) * unit - first;
  return smaller(cut, extent);
}

int64_t tsr_tensor_next_row(const tsr_tensor *tensor, int64_t row) {
  if (tensor->panel || tensor->store->piece_count < 2) return tensor->rows;
  return next_cut(row, tensor->rows, tensor->row0, tensor->units_per_piece);
}

int64_t tsr_tensor_next_col(const tsr_tensor *tensor, int64_t col) {
  if (tensor->panel && (tensor->col0 + col) % tensor->panel)
    return next_cut(col, tensor->cols, tensor->col0, tensor->panel);
  if (!tensor->panel || tensor->store->piece_count < 2) return tensor->cols;
  return next_cut(col, tensor->cols, tensor->col0, tensor->units_per_piece * tensor->panel);
}

tsr_matrix tsr_tensor_block(const tsr_tensor *tensor, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  int64_t r = tensor->row0 + row, c = tensor->col0 + col, piece = 0;
  tsr_matrix matrix = {.rows = rows, .cols = cols, .panel = tensor->panel};
  if (tensor->panel) {
    int64_t panel = c / tensor->panel;
    if (tensor->store->piece_count > 1) piece = panel / tensor->units_per_piece;
    matrix.ld = tensor->store_rows;
    matrix.offset =
        ((panel - piece * tensor->units_per_piece) * matrix.ld + r) * tensor->panel + c % tensor->panel;
  } else {
    if (tensor->store->piece_count > 1) piece = r / tensor->units_per_piece;
    matrix.ld = tensor->store_cols;
    matrix.offset = (r - piece * tensor->units_per_piece) * matrix.ld + c;
  }
  matrix.buffer = tensor->store->pieces[piece];
  return matrix;
}

tsr_tensor tsr_tensor_reshape(tsr_tensor tensor, int64_t rows, int64_t cols) {
  int64_t first = tensor.row0 * tensor.store_cols + tensor.col0;
  tensor.rows = tensor.store_rows = rows;
  tensor.cols = tensor.store_cols = cols;
  tensor.row0 = cols == 1 ? first : 0;
  tensor.col0 = cols == 1 ? 0 : first;
  return tensor;
}

/* One piece's block, which begins at (row, col) of the tensor, between a mapped buffer and the host's array.
 */
static tsr_status copy_block(const tsr_matrix *matrix, tsr_dtype own, void *mapped, int64_t row, int64_t col,
                             void *data, tsr_dtype dtype, int64_t row_stride, int64_t col_stride,
                             bool to_device, tsr_error *error) {
  size_t size = tsr_dtype_bytes(own), host_size = tsr_dtype_bytes(dtype);
  int64_t width = matrix->panel ? matrix->panel : matrix->cols;
  for (int64_t c = 0; c < matrix->cols; c += width) {
    tsr_shape shape = tsr_shape_of(2, matrix->rows, smaller(width, matrix->cols - c));
    tsr_array device = {.data = (char *)mapped + (size_t)tsr_matrix_index(matrix, 0, c) * size, .dtype = own};
    tsr_array host = {.data = (char *)data + c * col_stride * (int64_t)host_size, .dtype = dtype};
    device.shape = host.shape = shape;
    device.stride[0] = matrix->panel ? matrix->panel : matrix->ld;
    device.stride[1] = 1;
    host.stride[0] = row_stride;
    host.stride[1] = col_stride;
    const int64_t start[] = {row, col + c};
    if (to_device)
      TSR_RETURN_IF_FAILED(tsr_array_narrow(&host, &device, start, error));
    else
      tsr_array_convert(&device, &host);
  }
  return TSR_OK;
}

static tsr_status transfer(tsr_device *device, const tsr_tensor *tensor, void *data, tsr_dtype dtype,
                           int64_t row_stride, int64_t col_stride, bool to_device, tsr_error *error) {
  tsr_host_mode mode = to_device ? TSR_HOST_READ_WRITE : TSR_HOST_READ;
  for (int64_t r = 0; r < tensor->rows; r = tsr_tensor_next_row(tensor, r))
    for (int64_t c = 0; c < tensor->cols; c = tsr_tensor_next_col(tensor, c)) {
      tsr_matrix block = tsr_tensor_block(tensor, r, tsr_tensor_next_row(tensor, r) - r, c,
                                          tsr_tensor_next_col(tensor, c) - c);
      char *host = (char *)data + (r * row_stride + c * col_stride) * (int64_t)tsr_dtype_bytes(dtype);
      void *mapped;
      TSR_RETURN_IF_FAILED(
          tsr_device_host_wait(device, block.buffer, 0, block.buffer->bytes, mode, &mapped, error));
      tsr_status status = copy_block(&block, tensor->dtype, mapped, r, c, host, dtype, row_stride, col_stride,
                                     to_device, error);
      tsr_status ended = tsr_device_host_end(device, block.buffer, mapped, status == TSR_OK ? error : NULL);
      if (status != TSR_OK || ended != TSR_OK) return status != TSR_OK ? status : ended;
    }
  return tsr_device_finish(device, error);
}

tsr_status tsr_tensor_read(tsr_device *device, const tsr_tensor *tensor, void *data, tsr_dtype dtype,
                           int64_t row_stride, int64_t col_stride, tsr_error *error) {
  return transfer(device, tensor, data, dtype, row_stride, col_stride, false, error);
}

tsr_status tsr_tensor_write(tsr_device *device, const tsr_tensor *tensor, const void *data, tsr_dtype dtype,
                            int64_t row_stride, int64_t col_stride, tsr_error *error) {
  return transfer(device, tensor, (void *)data, dtype, row_stride, col_stride, true, error);
}

tsr_status tsr_tensor_zero(tsr_device *device, const tsr_tensor *tensor, tsr_error *error) {
  for (int i = 0; i < tensor->store->piece_count; i++)
    TSR_RETURN_IF_FAILED(
        tsr_device_fill_zero(device, tensor->store->pieces[i], 0, tensor->store->pieces[i]->bytes, error));
  return TSR_OK;
}
