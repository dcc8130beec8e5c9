/* comm/reduce.h: combining the contributions of several members, element by element. */
#ifndef TSR_COMM_REDUCE_H
#define TSR_COMM_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include <tessera/dtype.h>
#include <tessera/layout.h>

/* Whether values of this dtype can be combined. */
bool tsr_reduce_supports(tsr_dtype dtype);

/* target = contribution 0 + contribution 1 + ..., from left to right (or the maximum; a NaN stays). There are
 * `contributions` of `bytes` bytes each: number `own` is at own_data, the others one after the other at
 * others. target may be the same place as any of them. */
void tsr_reduce(tsr_dtype dtype, tsr_reduction reduction, int contributions, int own, const void *own_data,
                const void *others, void *target, int64_t bytes);

#endif
