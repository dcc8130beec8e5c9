/* Converting what a caller or a file holds, where nothing may be lost in silence. The elements are converted
 * first, which is fast, and only rows of the result that look as if they had lost something are compared. */
#include "io/convert.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/narrow.h"

enum { PLACE_BYTES = 128 };

double tsr_dtype_largest(tsr_dtype dtype) {
  return dtype == TSR_I8 ? 127 : tsr_dtype_below(dtype, INFINITY);
}

static const char *wider_than(tsr_dtype dtype) {
  switch (dtype) {
  case TSR_F16: return "bf16 or f32";
  case TSR_BF16: return "f32";
  case TSR_I8: return "f16, bf16 or f32";
  default: return "f64";
  }
}

static bool is_lost(tsr_dtype dtype, double value) {
  switch (dtype) {
  case TSR_F16: return isfinite(value) && isinf(tsr_widen_f16(tsr_narrow_f16(value)));
  case TSR_BF16: return isfinite(value) && isinf(tsr_widen_bf16(tsr_narrow_bf16(value)));
  case TSR_F32: return isfinite(value) && isinf(tsr_narrow_f32(value));
  case TSR_I8: return !(fabs(rint(value)) <= tsr_dtype_largest(TSR_I8));
  default: return false;
  }
}

tsr_status tsr_dtype_check(tsr_dtype dtype, double value, const char *what, tsr_error *error) {
  if (!is_lost(dtype, value)) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                  "%s is %.9g, but %s holds at most %.9g: keep it in %s, or scale it down", what, value,
                  tsr_dtype_name(dtype), tsr_dtype_largest(dtype), wider_than(dtype));
}

/* Whether an element of a run may be one that is_lost: there is an infinity in it. */
static bool may_have_lost(tsr_dtype dtype, const uint8_t *run, int64_t step, int64_t count) {
  bool found = false;
  for (int64_t i = 0; dtype == TSR_F32 && i < count; i++) {
    float value;
    memcpy(&value, run + i * step, sizeof value);
    found |= fabsf(value) > FLT_MAX;
  }
  const unsigned infinity = dtype == TSR_F16 ? 0x7c00 : 0x7f80;
  for (int64_t i = 0; dtype != TSR_F32 && i < count; i++) {
    uint16_t bits;
    memcpy(&bits, run + i * step, sizeof bits);
    found |= (bits & 0x7fffu) == infinity;
  }
  return found;
}

static double element_of(const tsr_array *array, int64_t at) {
  double value;
  const int64_t bytes = (int64_t)tsr_dtype_bytes(array->dtype);
  tsr_convert_run_of(array->dtype, TSR_F64)((const uint8_t *)array->data + at * bytes, bytes,
                                            (uint8_t *)&value, sizeof value, 1);
  return value;
}

static const char *print_place(char *buffer, const tsr_shape *shape, const int64_t *start,
                               const int64_t *index) {
  int used = snprintf(buffer, PLACE_BYTES, shape->axes ? "element (" : "it");
  for (int i = 0; i < shape->axes; i++)
    used += snprintf(buffer + used, PLACE_BYTES - (size_t)used, "%s%lld", i ? ", " : "",
                     (long long)((start ? start[i] : 0) + index[i]));
  if (shape->axes) snprintf(buffer + used, PLACE_BYTES - (size_t)used, ")");
  return buffer;
}

/* One row, along the last axis; index[last] is 0 and is used. */
static tsr_status check_row(const tsr_array *from, const tsr_array *to, const int64_t *start, int64_t *index,
                            tsr_error *error) {
  char place[PLACE_BYTES];
  const int last = to->shape.axes - 1;
  const int64_t count = last < 0 ? 1 : to->shape.extent[last], bytes = (int64_t)tsr_dtype_bytes(to->dtype);
  int64_t from_at = 0, to_at = 0;
  for (int i = 0; i < last; i++) from_at += index[i] * from->stride[i], to_at += index[i] * to->stride[i];
  if (to->dtype != TSR_I8 && !may_have_lost(to->dtype, (const uint8_t *)to->data + to_at * bytes,
                                            last < 0 ? 0 : to->stride[last] * bytes, count))
    return TSR_OK;
  for (int64_t i = 0; i < count; i++) {
    double value = element_of(from, last < 0 ? 0 : from_at + i * from->stride[last]);
    if (!is_lost(to->dtype, value)) continue;
    if (last >= 0) index[last] = i;
    return tsr_dtype_check(to->dtype, value, print_place(place, &to->shape, start, index), error);
  }
  return TSR_OK;
}

tsr_status tsr_array_narrow(const tsr_array *from, const tsr_array *to, const int64_t *start,
                            tsr_error *error) {
  int64_t index[TSR_AXES_MAX] = {0};
  tsr_array_convert(from, to);
  if (tsr_dtype_largest(from->dtype) <= tsr_dtype_largest(to->dtype) || !tsr_shape_count(&to->shape))
    return TSR_OK;
  for (int axis = 0; axis >= 0;) {
    TSR_RETURN_IF_FAILED(check_row(from, to, start, index, error));
    for (axis = to->shape.axes - 2; axis >= 0; axis--) {
      if (++index[axis] < to->shape.extent[axis]) break;
      index[axis] = 0;
    }
  }
  return TSR_OK;
}
