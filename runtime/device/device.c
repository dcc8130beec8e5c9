/* device.c: the front of every device, host or OpenCL: arguments are checked and bytes are counted here, the
 * device's own table does the work. Operands that overlap are the caller's concern: values share buffers, so
 * only the plan knows what may be overwritten. */
#include "device/device.h"

#include <inttypes.h>
#include <sched.h>

#include "base/memory.h"

const tsr_device_info *tsr_device_get_info(const tsr_device *device) {
  return &device->info;
}

uint64_t tsr_device_bytes_used(const tsr_device *device) {
  return device->bytes_used;
}

uint64_t tsr_device_bytes_peak(const tsr_device *device) {
  return device->bytes_peak;
}

void tsr_device_close(tsr_device **device) {
  if (!device || !*device) return;
  (*device)->ops->close(*device);
  *device = NULL;
}

static tsr_status check_ledger(const tsr_device *device, size_t bytes, tsr_error *error) {
  const tsr_device_info *info = &device->info;
  if (!bytes)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "a buffer of 0 bytes on %s: it must have at least 1",
                    info->name);
  if (bytes > info->max_allocation_bytes)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY,
                    "a buffer of %zu bytes on %s: one buffer has at most %" PRIu64
                    "; split the matrix over several",
                    bytes, info->name, info->max_allocation_bytes);
  uint64_t left = info->memory_bytes > device->bytes_used ? info->memory_bytes - device->bytes_used : 0;
  if (bytes > left)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY,
                    "a buffer of %zu bytes on %s: %" PRIu64 " of %" PRIu64 " bytes are in use, %" PRIu64
                    " are left; give this device a smaller share or a larger cap",
                    bytes, info->name, device->bytes_used, info->memory_bytes, left);
  return TSR_OK;
}

tsr_status tsr_buffer_create(tsr_device *device, size_t bytes, tsr_buffer **out, tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_ledger(device, bytes, error));
  TSR_RETURN_IF_FAILED(device->ops->buffer_create(device, bytes, out, error));
  (*out)->bytes = bytes;
  device->bytes_used += bytes;
  if (device->bytes_used > device->bytes_peak) device->bytes_peak = device->bytes_used;
  return TSR_OK;
}

void tsr_buffer_destroy(tsr_device *device, tsr_buffer **buffer) {
  if (!buffer || !*buffer) return;
  device->bytes_used -= (*buffer)->bytes;
  device->ops->buffer_destroy(device, *buffer);
  *buffer = NULL;
}

static tsr_status check_range(const tsr_device *device, const tsr_buffer *buffer, size_t offset, size_t bytes,
                              tsr_error *error) {
  if (!buffer)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "no buffer is given, on %s", device->info.name);
  if (!bytes || offset > buffer->bytes || bytes > buffer->bytes - offset)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%zu bytes at offset %zu: expected at least 1, within the buffer's %zu bytes", bytes,
                    offset, buffer->bytes);
  return TSR_OK;
}

tsr_status tsr_device_host_begin(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                                 tsr_host_mode mode, void **pointer, tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_range(device, buffer, offset, bytes, error));
  if (device->alignment > 1 && offset % device->alignment)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "offset %zu of a mapping on %s: it must be a multiple of %" PRIu64, offset,
                    device->info.name, device->alignment);
  return device->ops->host_begin(device, buffer, offset, bytes, mode, pointer, error);
}

tsr_status tsr_device_host_end(tsr_device *device, tsr_buffer *buffer, void *pointer, tsr_error *error) {
  if (!buffer || !pointer)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "giving back a mapping on %s: no %s is given",
                    device->info.name, buffer ? "pointer" : "buffer");
  return device->ops->host_end(device, buffer, pointer, error);
}

tsr_status tsr_device_host_wait(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                                tsr_host_mode mode, void **pointer, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_device_host_begin(device, buffer, offset, bytes, mode, pointer, error));
  return tsr_device_finish(device, error);
}

tsr_status tsr_device_fill_zero(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                                tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_range(device, buffer, offset, bytes, error));
  return device->ops->fill_zero(device, buffer, offset, bytes, error);
}

static tsr_status check_dtype(const tsr_device *device, tsr_dtype dtype, tsr_error *error) {
  if (dtype != TSR_F32 && dtype != TSR_F64)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "arithmetic in %s: devices compute in f32 and f64",
                    tsr_dtype_name(dtype));
  if (device->gemm[dtype].family == TSR_GEMM_NONE)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "arithmetic in %s: %s does not have it; use another device or dtype",
                    tsr_dtype_name(dtype), device->info.name);
  return TSR_OK;
}

/* *end = one past the last element that the view reaches; false if it does not fit 63 bits. */
static bool view_end(const tsr_matrix *matrix, int64_t *end) {
  int64_t width = matrix->panel ? matrix->panel : 1;
  int64_t lines = matrix->panel ? (matrix->cols - 1) / width : matrix->rows - 1;
  int64_t last = matrix->panel ? matrix->rows : matrix->cols;
  return tsr_multiply_fits(lines, matrix->ld, end) && !__builtin_add_overflow(*end, last, end) &&
         tsr_multiply_fits(*end, width, end) && !__builtin_add_overflow(*end, matrix->offset, end);
}

static tsr_status check_view(const tsr_matrix *matrix, const char *name, tsr_dtype dtype, tsr_error *error) {
  if (!matrix->buffer)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "matrix %s: it has no buffer", name);
  int64_t ld_least = matrix->panel ? matrix->rows : matrix->cols, end;
  if (matrix->rows < 1 || matrix->cols < 1 || matrix->offset < 0 || matrix->panel < 0 ||
      matrix->ld < ld_least)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "matrix %s: %" PRId64 " x %" PRId64 " at offset %" PRId64 ", ld %" PRId64
                    ", panel %d: expected sizes > 0, offset and panel >= 0, ld >= %" PRId64,
                    name, matrix->rows, matrix->cols, matrix->offset, matrix->ld, matrix->panel, ld_least);
  uint64_t held = matrix->buffer->bytes / tsr_dtype_bytes(dtype);
  if (!view_end(matrix, &end) || (uint64_t)end > held)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "matrix %s: %" PRId64 " x %" PRId64 " at offset %" PRId64 ", ld %" PRId64
                    ", panel %d reaches beyond its buffer of %" PRIu64 " %s elements",
                    name, matrix->rows, matrix->cols, matrix->offset, matrix->ld, matrix->panel, held,
                    tsr_dtype_name(dtype));
  return TSR_OK;
}

static tsr_status check_workspace(const tsr_buffer *workspace, size_t needed, tsr_error *error) {
  size_t given = workspace ? workspace->bytes : 0;
  if (given < needed)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "workspace of %zu bytes: this call needs %zu", given,
                    needed);
  return TSR_OK;
}

static tsr_status check_gemm_operand(const tsr_gemm_call *call, const tsr_matrix *matrix, const char *name,
                                     int64_t rows, int64_t cols, int panel, tsr_error *error) {
  if (matrix->rows != rows || matrix->cols != cols)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "matrix %s: %" PRId64 " x %" PRId64 ", expected %" PRId64 " x %" PRId64, name,
                    matrix->rows, matrix->cols, rows, cols);
  if (matrix->panel && matrix->panel != panel)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "matrix %s: panels of %d columns, this device takes %s%d", name, matrix->panel,
                    panel ? "0 (row-major) or " : "row-major alone: ", panel);
  return check_view(matrix, name, call->dtype, error);
}

tsr_status tsr_device_gemm(tsr_device *device, const tsr_gemm_call *call, tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_dtype(device, call->dtype, error));
  int64_t m = call->m, n = call->n, k = call->k;
  if (m < 1 || n < 1 || k < 1)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "product of m = %" PRId64 ", n = %" PRId64 ", k = %" PRId64 ": each must be at least 1",
                    m, n, k);
  const tsr_gemm_facts *facts = &device->gemm[call->dtype];
  TSR_RETURN_IF_FAILED(check_gemm_operand(call, &call->a, "a", call->transpose_a ? k : m,
                                          call->transpose_a ? m : k, 0, error));
  TSR_RETURN_IF_FAILED(check_gemm_operand(call, &call->b, "b", call->transpose_b ? n : k,
                                          call->transpose_b ? k : n, facts->panel, error));
  TSR_RETURN_IF_FAILED(check_gemm_operand(call, &call->c, "c", m, n, facts->panel, error));
  size_t needed = tsr_gemm_workspace_bytes(facts, call->dtype, call->transpose_a, call->transpose_b, m, n, k);
  TSR_RETURN_IF_FAILED(check_workspace(call->workspace, needed, error));
  return device->ops->gemm(device, call, error);
}

static tsr_status check_broadcast(const tsr_map_call *call, const tsr_matrix *matrix, const char *name,
                                  tsr_error *error) {
  bool rows_fit = matrix->rows == call->out.rows || matrix->rows == 1;
  bool cols_fit = matrix->cols == call->out.cols || matrix->cols == 1;
  if (!rows_fit || !cols_fit)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "matrix %s: %" PRId64 " x %" PRId64 " does not broadcast to %" PRId64 " x %" PRId64
                    ": each extent must be the same or 1",
                    name, matrix->rows, matrix->cols, call->out.rows, call->out.cols);
  return check_view(matrix, name, call->dtype, error);
}

tsr_status tsr_device_map(tsr_device *device, const tsr_map_call *call, tsr_error *error) {
  if ((unsigned)call->kind > TSR_MAP_BIAS_UNARY || (unsigned)call->unary >= TSR_UNARY_COUNT)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "elementwise operation %d of unary %d: at most %d and %d", (int)call->kind,
                    (int)call->unary, TSR_MAP_BIAS_UNARY, TSR_UNARY_COUNT - 1);
  TSR_RETURN_IF_FAILED(check_dtype(device, call->dtype, error));
  TSR_RETURN_IF_FAILED(check_view(&call->out, "out", call->dtype, error));
  TSR_RETURN_IF_FAILED(check_broadcast(call, &call->a, "a", error));
  if (call->kind != TSR_MAP_SCALE && call->kind != TSR_MAP_UNARY)
    TSR_RETURN_IF_FAILED(check_broadcast(call, &call->b, "b", error));
  return device->ops->map(device, call, error);
}

static tsr_status check_reduce_out(const tsr_reduce_call *call, tsr_error *error) {
  const tsr_matrix *out = &call->out;
  int64_t wanted = call->kind == TSR_REDUCE_ROWS   ? call->a.cols
                   : call->kind == TSR_REDUCE_COLS ? call->a.rows
                                                   : 1;
  int64_t count;
  bool contiguous = !out->panel && (out->rows == 1 || out->ld == out->cols);
  if (!contiguous || !tsr_multiply_fits(out->rows, out->cols, &count) || count != wanted)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "matrix out: %" PRId64 " x %" PRId64 ", ld %" PRId64 ", panel %d: expected %" PRId64
                    " contiguous row-major elements",
                    out->rows, out->cols, out->ld, out->panel, wanted);
  return check_view(out, "out", call->dtype, error);
}

tsr_status tsr_device_reduce(tsr_device *device, const tsr_reduce_call *call, tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_dtype(device, call->dtype, error));
  TSR_RETURN_IF_FAILED(check_view(&call->a, "a", call->dtype, error));
  bool two = call->kind == TSR_REDUCE_SQUARED_ERROR;
  if (two) TSR_RETURN_IF_FAILED(check_view(&call->b, "b", call->dtype, error));
  if (two && (call->b.rows != call->a.rows || call->b.cols != call->a.cols))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "matrix b: %" PRId64 " x %" PRId64 ", expected the shape of a, %" PRId64 " x %" PRId64,
                    call->b.rows, call->b.cols, call->a.rows, call->a.cols);
  if (call->a.panel || (two && call->b.panel))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "matrix %s: panels of %d columns, a reduction takes row-major alone",
                    call->a.panel ? "a" : "b", call->a.panel ? call->a.panel : call->b.panel);
  TSR_RETURN_IF_FAILED(check_reduce_out(call, error));
  TSR_RETURN_IF_FAILED(check_workspace(call->workspace, tsr_reduce_workspace_bytes(), error));
  return device->ops->reduce(device, call, error);
}

tsr_status tsr_device_poll(tsr_device *device, bool *idle, tsr_error *error) {
  return device->ops->poll(device, idle, error);
}

tsr_status tsr_device_finish(tsr_device *device, tsr_error *error) {
  if (device->ops->wait) device->ops->wait(device);
  for (;;) {
    bool idle = false;
    TSR_RETURN_IF_FAILED(tsr_device_poll(device, &idle, error));
    if (idle) return TSR_OK;
    sched_yield();
  }
}
