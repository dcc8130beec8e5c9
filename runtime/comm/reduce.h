/* comm/reduce.h: combining the contributions of several members, element by element, and the types in which
 * they travel. */
#ifndef TSR_COMM_REDUCE_H
#define TSR_COMM_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include <tessera/dtype.h>
#include <tessera/layout.h>

/* Whether values of this dtype can be combined: f32, f64; f16 and bf16, summed in f32. */
bool tsr_reduce_supports(tsr_dtype dtype);

/* target = contribution 0 + contribution 1 + ..., from left to right (or the maximum; a NaN stays). Each has
 * `count` elements of `dtype`, as has target, which may be the same place as any of them; all but number
 * `own` are of the type `wire` (dtype itself, or a narrower one of f32); `own` is rounded to it first if
 * `rounded`. */
typedef struct tsr_reduction_job {
  tsr_dtype dtype, wire;
  tsr_reduction reduction;
  int contributions, own;
  bool rounded;
  const void *const *sources; /* by contribution */
  void *target;
  int64_t count;
} tsr_reduction_job;
void tsr_reduce(const tsr_reduction_job *job);

/* f32 to the wire's type, back, and there and back. `wire` is f16 or bf16. ROUND may work in place. */
void tsr_reduce_narrow(tsr_dtype wire, const void *source, void *target, int64_t count);
void tsr_reduce_widen(tsr_dtype wire, const void *source, void *target, int64_t count);
void tsr_reduce_round(tsr_dtype wire, const void *source, void *target, int64_t count);

#endif
