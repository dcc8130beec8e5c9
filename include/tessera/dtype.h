/* tessera/dtype.h: element types.
 *
 * Storage types. Sums are accumulated in f32 (f64 for f64). f16, bf16 and i8, the narrow ones, are types of
 * files and of weights that f32 is multiplied by: a device widens them in registers. I64 and the like appear
 * in files only.
 *
 * Thread safety: pure functions. */
#ifndef TESSERA_DTYPE_H
#define TESSERA_DTYPE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* name, text, bytes per element */
#define TSR_DTYPE_LIST(X)                                                                                    \
  X(F32, "f32", 4)                                                                                           \
  X(F64, "f64", 8)                                                                                           \
  X(F16, "f16", 2)                                                                                           \
  X(BF16, "bf16", 2)                                                                                         \
  X(I8, "i8", 1)

typedef enum tsr_dtype {
#define TSR_DTYPE_ENUM(name, text, bytes) TSR_##name,
  TSR_DTYPE_LIST(TSR_DTYPE_ENUM)
#undef TSR_DTYPE_ENUM
      TSR_DTYPE_COUNT
} tsr_dtype;

/* "f32"; "?" for a value outside the list. */
const char *tsr_dtype_name(tsr_dtype dtype);
/* Bytes per element; 0 for a value outside the list. */
size_t tsr_dtype_bytes(tsr_dtype dtype);
/* Unit roundoff (half the distance from 1 to the next number): 2^-24 for f32, 2^-53 for f64, 1/2 for
 * i8. */
double tsr_dtype_epsilon(tsr_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
