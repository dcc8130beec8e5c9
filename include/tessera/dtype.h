/* tessera/dtype.h: element types.
 *
 * Storage types. Sums are accumulated in f32 (f64 for f64). f16 and bf16 are read from files and
 * converted at load; I64 and the like appear in files only.
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
  X(BF16, "bf16", 2)

typedef enum tsr_dtype {
#define TSR_DTYPE_ENUM(name, text, bytes) TSR_##name,
  TSR_DTYPE_LIST(TSR_DTYPE_ENUM)
#undef TSR_DTYPE_ENUM
} tsr_dtype;

/* "f32"; "?" for a value outside the list. */
const char *tsr_dtype_name(tsr_dtype dtype);
/* Bytes per element; 0 for a value outside the list. */
size_t tsr_dtype_bytes(tsr_dtype dtype);
/* Unit roundoff (half the distance from 1 to the next number): 2^-24 for f32, 2^-53 for f64. */
double tsr_dtype_epsilon(tsr_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
