/* io/convert.h: element types turned into one another, a whole strided block at a time; see base/narrow.h.
 *
 * Narrowing rounds to nearest, ties to even; too large becomes infinity (tsr_array_narrow refuses it);
 * denormals are kept; a NaN stays a NaN (quiet, with its sign). Every narrowing starts from f64, so that
 * nothing is rounded twice.
 *
 * Thread safety: pure functions. */
#ifndef TSR_IO_CONVERT_H
#define TSR_IO_CONVERT_H

#include <stdint.h>

#include <tessera/array.h>

#include "base/error.h"

/* Largest number of dtype that is < value; -inf if there is none. */
double tsr_dtype_below(tsr_dtype dtype, double value);

/* Turns `count` elements, whose places are so many bytes apart, from one dtype into another; any alignment.
 */
typedef void (*tsr_convert_run)(const uint8_t *from, int64_t from_step, uint8_t *to, int64_t to_step,
                                int64_t count);
tsr_convert_run tsr_convert_run_of(tsr_dtype from, tsr_dtype to);

/* Checks a view that a caller hands in: dtype, axes, extents, data. Errors: INVALID_ARGUMENT. */
tsr_status tsr_array_check(const tsr_array *array, tsr_error *error);

/* to[i, j, ...] = from[i, j, ...] for two arrays of one shape that do not overlap. Any strides (0 and
 * negative ones too), any alignment. Runs that are contiguous in both are copied as runs, transposes by
 * tiles. */
void tsr_array_convert(const tsr_array *from, const tsr_array *to);

/* The largest finite number of a dtype (i8: 127, which is also the largest magnitude that is used). */
double tsr_dtype_largest(tsr_dtype dtype);
/* Refuses a number that the dtype turns into something else altogether: a finite one into infinity, and in i8
 * one beyond +-127, or NaN. `what` is said of it: "element (3, 7)". Errors: INVALID_ARGUMENT. */
tsr_status tsr_dtype_check(tsr_dtype dtype, double value, const char *what, tsr_error *error);
/* tsr_array_convert, but an element that tsr_dtype_check refuses is an error, which names its place, counted
 * from `start` (NULL: 0). Infinities and NaN of `from` itself pass. */
tsr_status tsr_array_narrow(const tsr_array *from, const tsr_array *to, const int64_t *start,
                            tsr_error *error);

#endif
