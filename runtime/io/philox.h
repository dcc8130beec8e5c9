/* io/philox.h: random contents by global index.
 *
 * Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC11) is a
 * function of a key and a counter and has no state. The key is XXH64 of the value's name, seeded with the
 * user's seed; the counter is the element's index in the whole value, four elements to a counter. So every
 * member makes its own slice, and any other way to slice gives the same value.
 *
 * Thread safety: pure functions. */
#ifndef TSR_IO_PHILOX_H
#define TSR_IO_PHILOX_H

#include <stdint.h>

#include <tessera/array.h>
#include <tessera/source.h>

#include "base/error.h"

void tsr_philox_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

typedef struct tsr_random_stream {
  uint32_t key[2];
  tsr_random kind;
  double low, high; /* INTEGER: whole numbers */
} tsr_random_stream;

/* Errors: INVALID_ARGUMENT (the range is empty, not finite or, for INTEGER, holds more than 2^32 numbers). */
tsr_status tsr_random_init(tsr_random_stream *stream, const char *name, tsr_random kind, uint64_t seed,
                           double low, double high, tsr_error *error);

/* Fills out with the block that begins at start[axis] of a value of shape `whole`, whose count fits 64 bits
 * and which holds the block. UNIFORM rounds to out's dtype but never up to high. */
void tsr_random_fill(const tsr_random_stream *stream, const tsr_shape *whole, const int64_t *start,
                     const tsr_array *out);

#endif
