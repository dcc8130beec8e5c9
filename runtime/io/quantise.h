/* io/quantise.h: weights in floating point as whole numbers of i8, with a factor for each column.
 *
 *     scale[j] = max over all i of |w[i,j]| / 127, in f32        q[i,j] = w[i,j] / scale[j], to nearest even
 *
 * so that q[i,j] * scale[j] is off by scale[j] / 2 at most. Both depend on a column as the source holds it
 * and on nothing else: members that hold some rows of it agree. A column of zeros has the factor 0.
 *
 * Thread safety: pure functions of a source. */
#ifndef TSR_IO_QUANTISE_H
#define TSR_IO_QUANTISE_H

#include <stdint.h>

#include <tessera/source.h>

#include "base/error.h"

/* most[j] = the largest of most[j] and |w[i, col + j]| for row <= i < row + rows. Errors: tsr_source_read's;
 * INVALID_ARGUMENT (NaN or infinity, with its place). */
tsr_status tsr_quantise_most(const tsr_source *source, const char *name, const tsr_shape *whole, int64_t row,
                             int64_t rows, int64_t col, int64_t cols, double *most, tsr_error *error);
float tsr_quantise_scale(double most);

/* Fills out, a block of i8 that begins at start, as tsr_source_read does, with q. scales[0] is that of the
 * block's first column. */
tsr_status tsr_quantise_read(const tsr_source *source, const char *name, const tsr_shape *whole,
                             const int64_t *start, const float *scales, const tsr_array *out,
                             tsr_error *error);

#endif
