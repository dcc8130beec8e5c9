/* io/tensor_file.h: a mapped file, and the tensors that its header says it holds.
 *
 * A file whose name ends in .npy is NumPy's and holds one tensor; any other is safetensors. Opening checks
 * all of the header against the length of the file: whatever a tensor here says can be read without another
 * check.
 *
 * Thread safety: an open file may be read by several threads. */
#ifndef TSR_IO_TENSOR_FILE_H
#define TSR_IO_TENSOR_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/array.h>

#include "base/error.h"

typedef struct tsr_tensor {
  char *name;             /* "" in a .npy */
  const char *dtype_name; /* as the file spells it; static */
  bool readable;          /* dtype is valid; otherwise one that the library does not compute with */
  tsr_dtype dtype;
  int axes; /* may exceed TSR_AXES_MAX: then extent holds the first ones only */
  int64_t extent[TSR_AXES_MAX];
  bool empty;   /* an extent is 0 */
  int64_t span; /* product of the other extents */
  void *data;   /* in the mapping: read-only, and aligned to nothing */
  int64_t bytes;
} tsr_tensor;

typedef struct tsr_tensor_file {
  char *path;
  bool npy;
  uint8_t *bytes; /* NULL if the file is empty */
  size_t byte_count;
  tsr_tensor *tensors; /* ordered by name */
  size_t tensor_count, tensor_capacity;
} tsr_tensor_file;

bool tsr_path_is_npy(const char *path);

/* Gives *out. Errors: IO, FORMAT, UNSUPPORTED (.npy in Fortran order or of another dtype), OUT_OF_MEMORY; all
 * begin with the path. */
tsr_status tsr_tensor_file_open(const char *path, tsr_tensor_file **out, tsr_error *error);
void tsr_tensor_file_close(tsr_tensor_file **file);

/* Borrows *out from file. name is ignored for .npy. Errors: INVALID_ARGUMENT (name is NULL), NOT_FOUND with
 * the nearest tensors. */
tsr_status tsr_tensor_file_find(const tsr_tensor_file *file, const char *name, const tsr_tensor **out,
                                tsr_error *error);

/* Errors: UNSUPPORTED (more than TSR_AXES_MAX axes). */
tsr_status tsr_tensor_shape(const tsr_tensor_file *file, const tsr_tensor *tensor, tsr_shape *out,
                            tsr_error *error);

/* For the two formats: gives the tensor one more axis. Errors: FORMAT (the count, where 0 counts as 1 so that
 * the strides of an empty tensor fit as well, does not fit 64 bits). */
tsr_status tsr_tensor_add_axis(tsr_tensor *tensor, int64_t extent, tsr_error *error);
/* Number of elements. */
int64_t tsr_tensor_count(const tsr_tensor *tensor);

/* For the two formats: the next tensor, a scalar so far, or NULL without memory. Its name is taken (may be
 * NULL, which is no memory too). */
tsr_tensor *tsr_tensor_file_add(tsr_tensor_file *file, char *name);

/* A name from a file as part of a message: on one line, at most bytes - 1 long. Returns buffer. */
enum { TSR_NAME_BYTES = 96 };
char *tsr_name_print(char *buffer, size_t bytes, const char *name);
/* A tensor for people: 'PATH: tensor "NAME"', or the path alone of a .npy, whose tensor has no name. */
enum { TSR_TENSOR_BYTES = TSR_ERROR_MESSAGE_BYTES / 2 };
char *tsr_tensor_print(char *buffer, size_t bytes, const tsr_tensor_file *file, const tsr_tensor *tensor);
/* The nearest of count names, likewise. names may be NULL (no memory): "". */
char *tsr_nearest_print(char *buffer, size_t bytes, const char *wanted, const char *const *names,
                        size_t count);

#endif
