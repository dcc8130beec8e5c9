/* calls.c: the front of a device's products, convolutions, maps and reductions: it checks, the slots may
 * assume. */
#include "device/device.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/memory.h"

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

static tsr_status check_shape(const tsr_matrix *matrix, const char *name, tsr_dtype dtype, int64_t rows,
                              int64_t cols, int panel, tsr_error *error) {
  if (matrix->rows != rows || matrix->cols != cols)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "matrix %s: %" PRId64 " x %" PRId64 ", expected %" PRId64 " x %" PRId64, name,
                    matrix->rows, matrix->cols, rows, cols);
  if (matrix->panel && matrix->panel != panel)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "matrix %s: panels of %d columns, expected %s%d", name,
                    matrix->panel, panel ? "0 (row-major) or " : "row-major alone: ", panel);
  return check_view(matrix, name, dtype, error);
}

static tsr_status check_types(const tsr_device *device, tsr_gemm_types types, tsr_error *error) {
  if ((unsigned)types >= TSR_GEMM_TYPES_COUNT)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "product of types %d: at most %d", (int)types,
                    TSR_GEMM_TYPES_COUNT - 1);
  if (device->gemm[types].family == TSR_GEMM_NONE)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "products in %s: %s does not have them; use another device or dtype",
                    tsr_gemm_types_name(types), device->info.name);
  return TSR_OK;
}

static tsr_status check_scale(const tsr_gemm_call *call, tsr_error *error) {
  if (!call->scale.buffer) return TSR_OK;
  if (tsr_gemm_dtype_b(call->types) != TSR_I8 || call->transpose_b)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "matrix scale: factors of the columns of %s%s; they go with i8 that is not transposed",
                    tsr_dtype_name(tsr_gemm_dtype_b(call->types)), call->transpose_b ? ", transposed" : "");
  return check_shape(&call->scale, "scale", TSR_F32, 1, call->n, 0, error);
}

static tsr_status check_epilogue(const tsr_gemm_call *call, tsr_error *error) {
  const tsr_epilogue *epilogue = &call->epilogue;
  const tsr_dtype dtype = tsr_gemm_dtype_c(call->types);
  if (tsr_epilogue_is_empty(epilogue)) return TSR_OK;
  if (call->c.panel)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "matrix c: panels of %d columns; with an epilogue it is row-major", call->c.panel);
  if ((unsigned)epilogue->unary >= TSR_UNARY_COUNT)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "unary %d of an epilogue: at most %d",
                    (int)epilogue->unary, TSR_UNARY_COUNT - 1);
  if (epilogue->bias.buffer)
    TSR_RETURN_IF_FAILED(check_shape(&epilogue->bias, "bias", dtype, 1, call->n, 0, error));
  if (epilogue->gate.buffer)
    TSR_RETURN_IF_FAILED(check_shape(&epilogue->gate, "gate", dtype, call->m, call->n, 0, error));
  if (epilogue->residual.buffer)
    TSR_RETURN_IF_FAILED(check_shape(&epilogue->residual, "residual", dtype, call->m, call->n, 0, error));
  return TSR_OK;
}

tsr_status tsr_device_gemm(tsr_device *device, const tsr_gemm_call *call, tsr_error *error) {
  const tsr_gemm_types types = call->types;
  const int64_t m = call->m, n = call->n, k = call->k;
  const bool turn_a = call->transpose_a, turn_b = call->transpose_b;
  TSR_RETURN_IF_FAILED(check_types(device, types, error));
  if (m < 1 || n < 1 || k < 1)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "product of m = %" PRId64 ", n = %" PRId64 ", k = %" PRId64 ": each must be at least 1",
                    m, n, k);
  const tsr_gemm_facts *facts = call->facts ? call->facts : &device->gemm[types];
  TSR_RETURN_IF_FAILED(
      check_shape(&call->a, "a", tsr_gemm_dtype_a(types), turn_a ? k : m, turn_a ? m : k, 0, error));
  TSR_RETURN_IF_FAILED(check_shape(&call->b, "b", tsr_gemm_dtype_b(types), turn_b ? n : k, turn_b ? k : n,
                                   facts->panel, error));
  TSR_RETURN_IF_FAILED(check_shape(&call->c, "c", tsr_gemm_dtype_c(types), m, n, facts->panel, error));
  TSR_RETURN_IF_FAILED(check_scale(call, error));
  TSR_RETURN_IF_FAILED(check_epilogue(call, error));
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

/* Along rows (0) or columns (1). */
static tsr_status check_conv_axis(const tsr_conv_call *call, int axis, tsr_error *error) {
  const int64_t image = axis ? call->w : call->h, size = axis ? call->s : call->r,
                places = axis ? call->q : call->p;
  const int64_t stride = call->stride[axis], padding = call->padding[axis], dilation = call->dilation[axis];
  int64_t reach, room = 0;
  const bool fits = image >= 1 && size >= 1 && stride >= 1 && padding >= 0 && dilation >= 1 &&
                    tsr_multiply_fits(size - 1, dilation, &reach) && tsr_multiply_fits(padding, 2, &room) &&
                    !__builtin_add_overflow(room, image, &room) && room > reach;
  if (fits && places == (room - reach - 1) / stride + 1) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                  "convolution of %" PRId64 " %s by a window of %" PRId64 ", stride %" PRId64
                  ", padding %" PRId64 ", dilation %" PRId64 " does not give %" PRId64,
                  image, axis ? "columns" : "rows", size, stride, padding, dilation, places);
}

static tsr_status check_conv_shapes(const tsr_conv_call *call, tsr_error *error) {
  const bool sums = call->kind == TSR_CONV_BIAS_GRADIENT, forward = call->kind == TSR_CONV_FORWARD;
  int64_t c, k, of_x, of_y, of_weight;
  const bool fits =
      tsr_multiply_fits(call->groups, call->c, &c) && tsr_multiply_fits(call->groups, call->k, &k) &&
      tsr_multiply_fits(call->h, call->w, &of_x) && tsr_multiply_fits(of_x, c, &of_x) &&
      tsr_multiply_fits(call->p, call->q, &of_y) && tsr_multiply_fits(of_y, k, &of_y) &&
      tsr_multiply_fits(call->r, call->s, &of_weight) && tsr_multiply_fits(of_weight, call->c, &of_weight);
  if (call->groups < 1 || call->n < 1 || call->c < 1 || call->k < 1 || !fits)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "convolution of n = %" PRId64 ", groups = %" PRId64 ", c = %" PRId64 ", k = %" PRId64
                    ": each must be at least 1, and images below 2^63 elements",
                    call->n, call->groups, call->c, call->k);
  TSR_RETURN_IF_FAILED(check_shape(&call->y, "y", call->dtype, call->n, of_y, 0, error));
  if (sums || (forward && call->bias.buffer))
    TSR_RETURN_IF_FAILED(check_shape(&call->bias, "bias", call->dtype, 1, k, 0, error));
  if (sums) return TSR_OK;
  TSR_RETURN_IF_FAILED(check_shape(&call->x, "x", call->dtype, call->n, of_x, 0, error));
  return check_shape(&call->weight, "weight", call->dtype, k, of_weight, 0, error);
}

tsr_status tsr_device_conv(tsr_device *device, const tsr_conv_call *call, tsr_error *error) {
  if ((unsigned)call->kind > TSR_CONV_BIAS_GRADIENT || (unsigned)call->unary >= TSR_UNARY_COUNT)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "convolution of kind %d and unary %d: at most %d and %d", (int)call->kind,
                    (int)call->unary, TSR_CONV_BIAS_GRADIENT, TSR_UNARY_COUNT - 1);
  TSR_RETURN_IF_FAILED(check_dtype(device, call->dtype, error));
  for (int axis = 0; axis < 2; axis++) TSR_RETURN_IF_FAILED(check_conv_axis(call, axis, error));
  TSR_RETURN_IF_FAILED(check_conv_shapes(call, error));
  return device->ops->conv(device, call, error);
}

static tsr_status check_windows(const tsr_pool_call *call, tsr_error *error) {
  const int64_t image[] = {call->h, call->w}, size[] = {call->r, call->s}, places[] = {call->p, call->q};
  for (int i = 0; i < 2; i++) {
    bool fits = size[i] >= 1 && call->stride[i] >= 1 && call->padding[i] >= 0 && call->padding[i] < size[i] &&
                image[i] >= 1 && image[i] + 2 * call->padding[i] >= size[i];
    if (fits && places[i] == (image[i] + 2 * call->padding[i] - size[i]) / call->stride[i] + 1) continue;
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "pooling %" PRId64 " %s by windows of %" PRId64 ", stride %" PRId64 ", padding %" PRId64
                    " does not give %" PRId64,
                    image[i], i ? "columns" : "rows", size[i], call->stride[i], call->padding[i], places[i]);
  }
  return TSR_OK;
}

tsr_status tsr_device_pool(tsr_device *device, const tsr_pool_call *call, tsr_error *error) {
  const bool gradient = call->gradient;
  TSR_RETURN_IF_FAILED(check_dtype(device, call->dtype, error));
  TSR_RETURN_IF_FAILED(check_windows(call, error));
  const int64_t of_x = call->c * call->h * call->w, of_y = call->c * call->p * call->q;
  TSR_RETURN_IF_FAILED(check_shape(&call->x, "x", call->dtype, call->n, of_x, 0, error));
  if (gradient) TSR_RETURN_IF_FAILED(check_shape(&call->y, "y", call->dtype, call->n, of_y, 0, error));
  TSR_RETURN_IF_FAILED(
      check_shape(&call->out, "out", call->dtype, call->n, gradient ? of_x : of_y, 0, error));
  return device->ops->pool(device, call, error);
}

/* Some drivers give every command a nanosecond. Commands cannot take longer than the host saw (clocks may
 * differ a little), and but for what it takes to submit and to wait they fill a good part of it. */
double tsr_device_span_seconds(tsr_device *device, tsr_device_span *span, double host_seconds) {
  static const double shortest = 1e-6, differ = 1.02, part = 0.1, to_submit = 1e-4;
  double begin, end;
  if (!device->ops->span_take(device, span, &begin, &end)) return 0;
  const double seconds = end - begin;
  const bool sane =
      seconds >= shortest && seconds <= differ * host_seconds && seconds >= part * (host_seconds - to_submit);
  return sane ? seconds : 0;
}
