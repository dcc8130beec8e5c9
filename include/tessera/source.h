/* tessera/source.h: where the contents of values come from, and files of tensors.
 *
 * A source answers "elements start .. start + extent of the value named N". Every member asks for its own
 * slices only; files are mapped, and read where they are asked for. Contents are converted to the dtype that
 * is asked for.
 *
 * Files: a path that ends in .npy is NumPy's (float16, float32, float64, int8, little-endian, C order), any
 * other is safetensors (F16, BF16, F32, F64, I8; a file may hold tensors of other dtypes, which are refused
 * when read). All of a header is checked before anything is read: truncated, overlapping, oversized or
 * malformed files are FORMAT, with the place. A file must not shrink while it is mapped.
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

/* Gives *out; context is borrowed until destroy. Errors: OUT_OF_MEMORY. */
tsr_status tsr_source_create(tsr_context *context, tsr_source **out, tsr_error *error);
/* Takes *source (may be NULL), leaves NULL; unmaps its files. */
void tsr_source_destroy(tsr_source **source);

/* In all that add: name is copied; a name that the source has already is INVALID_ARGUMENT.
 *
 * name comes from a tensor of a file. transposed: the file holds [out, in] where the value is [in, out]; only
 * for tensors of 2 axes, otherwise INVALID_ARGUMENT. tensor is ignored for .npy. Each path is mapped once.
 * Errors: IO, FORMAT, NOT_FOUND (naming the nearest tensors), UNSUPPORTED (.npy of another dtype or order).
 */
tsr_status tsr_source_add_file(tsr_source *source, const char *name, const char *path, const char *tensor,
                               bool transposed, tsr_error *error);
/* name comes from host memory, which is borrowed until the source is destroyed; the view is copied. */
tsr_status tsr_source_add_array(tsr_source *source, const char *name, const tsr_array *array,
                                tsr_error *error);
/* name is a constant. */
tsr_status tsr_source_add_constant(tsr_source *source, const char *name, double constant, tsr_error *error);

typedef enum tsr_random { TSR_RANDOM_UNIFORM, TSR_RANDOM_INTEGER } tsr_random;
/* name is random by global index (Philox 4x32-10; Salmon et al. 2011), seed and name: the same on any number
 * of members. UNIFORM: in [low, high), also after rounding to the dtype that is asked for; INTEGER: whole
 * numbers in [low, high], at most 2^32 of them. Errors: INVALID_ARGUMENT (empty or infinite range). */
tsr_status tsr_source_add_random(tsr_source *source, const char *name, tsr_random kind, uint64_t seed,
                                 double low, double high, tsr_error *error);

bool tsr_source_has(const tsr_source *source, const char *name);
/* Fills out (its dtype, shape and strides; what lies between its elements is not touched) with the block of
 * `name` that begins at start[axis]; `whole` is the shape that the value must have. Narrowing rounds to
 * nearest even; a finite number must not become infinity by it, nor stop at the end of i8. Errors: NOT_FOUND
 * (nearest names), INVALID_ARGUMENT (another shape: both are named; a block outside of whole; a number beyond
 * the dtype, with its place, its value and the limit), UNSUPPORTED (the tensor's dtype; more than
 * TSR_AXES_MAX axes). */
tsr_status tsr_source_read(const tsr_source *source, const char *name, const tsr_shape *whole,
                           const int64_t *start, const tsr_array *out, tsr_error *error);

/* Shape of a tensor in a file, as the file holds it (path, tensor as above). Errors: as tsr_source_add_file,
 * and UNSUPPORTED for more than TSR_AXES_MAX axes. */
tsr_status tsr_file_shape(tsr_context *context, const char *path, const char *tensor, tsr_shape *out,
                          tsr_error *error);

/* Writes a safetensors file, tensors in the order given: under a temporary name beside it, then renamed, so
 * that a reader never sees half, and a failure leaves what was there before; what is no regular file (a
 * device, a pipe) is written as it is, and a link stays a link. Strided arrays are written dense. All is
 * borrowed for the call. Errors: INVALID_ARGUMENT (a name that is given twice, reserved or not UTF-8; an
 * array; a path that ends in .npy), IO, OUT_OF_MEMORY. */
tsr_status tsr_file_write(const char *path, const char *const *names, const tsr_array *arrays, size_t count,
                          tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
