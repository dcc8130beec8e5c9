#include <math.h>

#include "base/memory.h"
#include <tessera/array.h>
#include <tessera/layout.h>

static const struct {
  const char *name;
  size_t bytes;
} dtypes[] = {
#define TSR_DTYPE_ROW(name, text, bytes) {text, bytes},
    TSR_DTYPE_LIST(TSR_DTYPE_ROW)
#undef TSR_DTYPE_ROW
};

static bool is_dtype(tsr_dtype dtype) {
  return (size_t)dtype < sizeof dtypes / sizeof *dtypes;
}

const char *tsr_dtype_name(tsr_dtype dtype) {
  return is_dtype(dtype) ? dtypes[dtype].name : "?";
}

size_t tsr_dtype_bytes(tsr_dtype dtype) {
  return is_dtype(dtype) ? dtypes[dtype].bytes : 0;
}

double tsr_dtype_epsilon(tsr_dtype dtype) {
  static const int digits[] = {[TSR_F32] = 24, [TSR_F64] = 53, [TSR_F16] = 11, [TSR_BF16] = 8, [TSR_I8] = 1};
  return is_dtype(dtype) ? ldexp(1, -digits[dtype]) : 0;
}

int64_t tsr_shape_count(const tsr_shape *shape) {
  int64_t count = 1;
  for (int i = 0; i < shape->axes; i++)
    if (!tsr_multiply_fits(count, shape->extent[i], &count)) return -1;
  return count;
}

tsr_array tsr_array_dense(void *data, tsr_dtype dtype, const tsr_shape *shape) {
  tsr_array array = {.data = data, .dtype = dtype, .shape = *shape};
  int64_t stride = 1;
  for (int i = shape->axes - 1; i >= 0; i--) {
    array.stride[i] = stride;
    if (!tsr_multiply_fits(stride, shape->extent[i], &stride))
      stride = 0; /* an empty array has no element to find */
  }
  return array;
}

tsr_layout tsr_layout_replicate(void) {
  return (tsr_layout){.mesh_axes = 1, .on = {{.kind = TSR_REPLICATE}}};
}

tsr_layout tsr_layout_shard(int axis, int parts, const int64_t *offsets) {
  return (tsr_layout){.mesh_axes = 1,
                      .on = {{.kind = TSR_SHARD, .axis = axis, .parts = parts, .offsets = offsets}}};
}

tsr_layout tsr_layout_partial(tsr_reduction reduction) {
  return (tsr_layout){.mesh_axes = 1, .on = {{.kind = TSR_PARTIAL, .reduction = reduction}}};
}
