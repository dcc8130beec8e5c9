/* tessera/source.h: where the contents of values come from, and files of tensors.
 *
 * A source answers "elements start .. start + extent of the value named N". Every member asks for its own
 * slices only; files are mapped, and read where they are asked for. Contents are converted to the dtype that
 * is asked for.
 *
 * Files: safetensors (F16, BF16, F32, F64) and NumPy .npy (float32, float64, C order). Both are checked
 * before anything is read: truncated, overlapping, oversized or malformed files are FORMAT, with the place.
 *
 * Thread safety: a source may be read by several threads once it is filled. */
#ifndef TESSERA_SOURCE_H
#define TESSERA_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/array.h>
#include <tessera/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_source tsr_source;

tsr_status tsr_source_create(tsr_context *context, tsr_source **out, tsr_error *error);
void tsr_source_destroy(tsr_source **source);

/* name comes from a tensor of a file; transposed: the file holds it as [out, in]. tensor is ignored for .npy.
 * Errors: IO, FORMAT, NOT_FOUND (naming the nearest tensors). Each file is mapped once. */
tsr_status tsr_source_add_file(tsr_source *source, const char *name, const char *path, const char *tensor,
                               bool transposed, tsr_error *error);
/* name comes from host memory, borrowed until the source is destroyed. */
tsr_status tsr_source_add_array(tsr_source *source, const char *name, const tsr_array *array, tsr_error *error);
/* name is a constant. */
tsr_status tsr_source_add_constant(tsr_source *source, const char *name, double constant, tsr_error *error);

typedef enum tsr_random { TSR_RANDOM_UNIFORM, TSR_RANDOM_INTEGER } tsr_random;
/* name is random by global index (Philox 4x32-10; Salmon et al. 2011): the same on any number of members.
 * UNIFORM: in [low, high); INTEGER: whole numbers in [low, high]. */
tsr_status tsr_source_add_random(tsr_source *source, const char *name, tsr_random kind, uint64_t seed,
                                 double low, double high, tsr_error *error);

bool tsr_source_has(const tsr_source *source, const char *name);
/* Fills out (its dtype, shape and strides) with the block of `name` that begins at start[axis]; `whole` is
 * the shape that the value must have. Errors: NOT_FOUND (nearest names), INVALID_ARGUMENT (another shape:
 * both are named), IO. */
tsr_status tsr_source_read(const tsr_source *source, const char *name, const tsr_shape *whole,
                           const int64_t *start, const tsr_array *out, tsr_error *error);

/* Shape of a tensor in a file (path, tensor as above). */
tsr_status tsr_file_shape(tsr_context *context, const char *path, const char *tensor, tsr_shape *out,
                          tsr_error *error);

/* Writes a safetensors file: a temporary name, then renamed, so that a reader never sees half. Strided
 * arrays are written dense. */
tsr_status tsr_file_write(const char *path, const char *const *names, const tsr_array *arrays, size_t count,
                          tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
