/* tessera/array.h: shapes, and views of arrays in host memory.
 *
 * Thread safety: plain data. */
#ifndef TESSERA_ARRAY_H
#define TESSERA_ARRAY_H

#include <stdint.h>

#include <tessera/dtype.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TSR_AXES_MAX = 4 };

/* Extents of a value, slowest axis first; axes = 0 is a scalar. symbol[i] = 0 means that extent[i] is a
 * number; other values are reserved for extents that are known only when a step runs. */
typedef struct tsr_shape {
  int axes;
  int64_t extent[TSR_AXES_MAX];
  uint32_t symbol[TSR_AXES_MAX];
} tsr_shape;

/* tsr_shape_of(2, 64, 384): a shape of up to TSR_AXES_MAX axes; further arguments are ignored. */
static inline tsr_shape tsr_shape_of(int axes, int64_t e0, int64_t e1) {
  tsr_shape shape = {axes, {e0, e1, 0, 0}, {0, 0, 0, 0}};
  return shape;
}

/* A view of host memory. `data` is borrowed by whoever is given the view. Strides count elements, not
 * bytes; element (i, j) of a matrix is at data + (i * stride[0] + j * stride[1]) elements. */
typedef struct tsr_array {
  void *data;
  tsr_dtype dtype;
  tsr_shape shape;
  int64_t stride[TSR_AXES_MAX];
} tsr_array;

/* Number of elements; 1 for a scalar. -1 if the product does not fit 64 bits or an extent is negative. */
int64_t tsr_shape_count(const tsr_shape *shape);

/* A dense row-major view of `data`. */
tsr_array tsr_array_dense(void *data, tsr_dtype dtype, const tsr_shape *shape);

#ifdef __cplusplus
}
#endif
#endif
