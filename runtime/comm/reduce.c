/* comm/reduce.c: combines contributions block by block: a block stays in the nearest cache while all of them
 * are added to it, so every contribution is read once and the result is written once. The sum is formed in a
 * buffer of its own, so the target may be one of the contributions. */
#include "comm/reduce.h"

#include <stdalign.h>
#include <string.h>

enum { BLOCK_BYTES = 4096, STRIDE = 64 };

typedef void combine_function(void *restrict sum, const void *restrict more, int64_t count);

/* The inner loop has a fixed length: compilers then use vectors also at -O2. */
#define DEFINE_COMBINE(name, type, a_and_b)                                                                  \
  static void name(void *restrict sum, const void *restrict more, int64_t count) {                           \
    type *restrict x = sum;                                                                                  \
    const type *restrict y = more;                                                                           \
    int64_t i = 0;                                                                                           \
    for (; i + STRIDE <= count; i += STRIDE)                                                                 \
      for (int j = 0; j < STRIDE; j++) {                                                                     \
        type a = x[i + j], b = y[i + j];                                                                     \
        x[i + j] = a_and_b;                                                                                  \
      }                                                                                                      \
    for (; i < count; i++) {                                                                                 \
      type a = x[i], b = y[i];                                                                               \
      x[i] = a_and_b;                                                                                        \
    }                                                                                                        \
  }
DEFINE_COMBINE(sum_f32, float, a + b)
DEFINE_COMBINE(sum_f64, double, a + b)
/* a stays if it is a NaN; a NaN in b makes a > b false. */
DEFINE_COMBINE(max_f32, float, ((a > b) | (a != a)) ? a : b)
DEFINE_COMBINE(max_f64, double, ((a > b) | (a != a)) ? a : b)

static combine_function *const combine_functions[][2] = {
    [TSR_F32] = {[TSR_SUM] = sum_f32, [TSR_MAX] = max_f32},
    [TSR_F64] = {[TSR_SUM] = sum_f64, [TSR_MAX] = max_f64},
};

bool tsr_reduce_supports(tsr_dtype dtype) {
  return dtype == TSR_F32 || dtype == TSR_F64;
}

void tsr_reduce(tsr_dtype dtype, tsr_reduction reduction, int contributions, int own, const void *own_data,
                const void *others, void *target, int64_t bytes) {
  combine_function *combine = combine_functions[dtype][reduction];
  int64_t element_bytes = (int64_t)tsr_dtype_bytes(dtype);
  alignas(64) char block[BLOCK_BYTES];
  for (int64_t at = 0; at < bytes; at += BLOCK_BYTES) {
    int64_t length = bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;
    for (int i = 0; i < contributions; i++) {
      const char *source = i == own ? own_data : (const char *)others + (i < own ? i : i - 1) * bytes;
      if (i == 0)
        memcpy(block, source + at, (size_t)length);
      else
        combine(block, source + at, length / element_bytes);
    }
    memcpy((char *)target + at, block, (size_t)length);
  }
}
