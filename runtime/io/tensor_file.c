#include "io/tensor_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include <tessera/source.h>

bool tsr_path_is_npy(const char *path) {
  size_t length = strlen(path);
  return length >= 4 && !strcmp(path + length - 4, ".npy");
}

char *tsr_name_print(char *buffer, size_t bytes, const char *name) {
  size_t length = strlen(name), kept = length;
  if (length >= bytes) {
    kept = bytes - sizeof "...";
    while (kept && ((unsigned char)name[kept] & 0xC0) == 0x80) kept--; /* not in the middle of a character */
  }
  for (size_t i = 0; i < kept; i++)
    buffer[i] = (unsigned char)name[i] < ' ' || name[i] == 0x7f ? '?' : name[i];
  strcpy(buffer + kept, kept < length ? "..." : "");
  return buffer;
}

char *tsr_nearest_print(char *buffer, size_t bytes, const char *wanted, const char *const *names,
                        size_t count) {
  *buffer = 0;
  if (!names) return buffer;
  char raw[TSR_ERROR_MESSAGE_BYTES];
  tsr_nearest_names(wanted, names, count, raw, sizeof raw);
  return tsr_name_print(buffer, bytes, raw);
}

char *tsr_tensor_print(char *buffer, size_t bytes, const tsr_tensor_file *file, const tsr_tensor *tensor) {
  char shown[TSR_NAME_BYTES];
  tsr_name_print(shown, sizeof shown, tensor->name);
  if (file->npy)
    snprintf(buffer, bytes, "%s", file->path);
  else
    snprintf(buffer, bytes, "%s: tensor \"%s\"", file->path, shown);
  return buffer;
}

static tsr_status fail_errno(const char *what, int code, tsr_error *error) {
  tsr_fail(error, TSR_ERROR_IO, "cannot %s: %s", what, strerror(code));
  tsr_error_native(error, "errno", code);
  return TSR_ERROR_IO;
}

static tsr_status map(tsr_tensor_file *file, tsr_error *error) {
  tsr_status status = TSR_OK;
  struct stat info;
  int descriptor = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */
  if (descriptor < 0) return fail_errno("open the file", errno, error);
  if (fstat(descriptor, &info)) {
    status = fail_errno("examine the file", errno, error);
    goto done;
  }
  if (!S_ISREG(info.st_mode)) TSR_THROW(TSR_ERROR_IO, "not a regular file: only those can be mapped");
  if ((uintmax_t)info.st_size > SIZE_MAX / 2)
    TSR_THROW(TSR_ERROR_IO, "%lld bytes do not fit the address space", (long long)info.st_size);
  file->byte_count = (size_t)info.st_size;
  if (!file->byte_count) goto done; /* an empty file cannot be mapped; its format's reader refuses it */
  void *mapped = mmap(NULL, file->byte_count, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (mapped == MAP_FAILED)
    status = fail_errno("map the file", errno, error);
  else
    file->bytes = mapped;
done:
  close(descriptor);
  return status;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const tsr_tensor *)a)->name, ((const tsr_tensor *)b)->name);
}

tsr_status tsr_tensor_file_open(const char *path, tsr_tensor_file **out, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_tensor_file *file = tsr_calloc(1, sizeof *file);
  if (!file || !(file->path = tsr_text_copy(path)))
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for a file");
  file->npy = tsr_path_is_npy(path);
  TSR_TRY(map(file, error));
  TSR_TRY(file->npy ? tsr_npy_parse(file, error) : tsr_safetensors_parse(file, error));
  if (file->tensor_count) qsort(file->tensors, file->tensor_count, sizeof *file->tensors, by_name);
  *out = file;
  return TSR_OK;
done:
  tsr_error_wrap(error, "%s", path);
  tsr_tensor_file_close(&file);
  return status;
}

void tsr_tensor_file_close(tsr_tensor_file **file) {
  if (!*file) return;
  for (size_t i = 0; i < (*file)->tensor_count; i++) free((*file)->tensors[i].name);
  free((*file)->tensors);
  if ((*file)->bytes) munmap((*file)->bytes, (*file)->byte_count);
  free((*file)->path);
  free(*file);
  *file = NULL;
}

tsr_tensor *tsr_tensor_file_add(tsr_tensor_file *file, char *name) {
  if (!name || !TSR_GROW(file->tensors, file->tensor_count, file->tensor_capacity)) {
    free(name);
    return NULL;
  }
  tsr_tensor *tensor = &file->tensors[file->tensor_count++];
  *tensor = (tsr_tensor){.name = name, .span = 1};
  return tensor;
}

tsr_status tsr_tensor_add_axis(tsr_tensor *tensor, int64_t extent, tsr_error *error) {
  if (!tsr_multiply_fits(tensor->span, extent ? extent : 1, &tensor->span))
    return tsr_fail(error, TSR_ERROR_FORMAT,
                    "extent %lld of axis %d: the number of elements does not fit 64 bits", (long long)extent,
                    tensor->axes);
  if (tensor->axes < TSR_AXES_MAX) tensor->extent[tensor->axes] = extent;
  tensor->axes++;
  tensor->empty |= !extent;
  return TSR_OK;
}

int64_t tsr_tensor_count(const tsr_tensor *tensor) {
  return tensor->empty ? 0 : tensor->span;
}

static tsr_status fail_not_found(const tsr_tensor_file *file, const char *name, tsr_error *error) {
  char shown[TSR_NAME_BYTES], nearest[3 * TSR_NAME_BYTES];
  const char **names = tsr_malloc(file->tensor_count * sizeof *names);
  for (size_t i = 0; names && i < file->tensor_count; i++) names[i] = file->tensors[i].name;
  tsr_nearest_print(nearest, sizeof nearest, name, names, file->tensor_count);
  free(names);
  return tsr_fail(error, TSR_ERROR_NOT_FOUND, "%s: no tensor \"%s\" among %zu; nearest: %s", file->path,
                  tsr_name_print(shown, sizeof shown, name), file->tensor_count, *nearest ? nearest : "none");
}

tsr_status tsr_tensor_file_find(const tsr_tensor_file *file, const char *name, const tsr_tensor **out,
                                tsr_error *error) {
  if (file->npy) {
    *out = file->tensors;
    return TSR_OK;
  }
  if (!name)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%s: tensor is NULL: name the tensor wanted of a safetensors file", file->path);
  size_t low = 0, high = file->tensor_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int order = strcmp(name, file->tensors[middle].name);
    if (!order) {
      *out = &file->tensors[middle];
      return TSR_OK;
    }
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return fail_not_found(file, name, error);
}

tsr_status tsr_tensor_shape(const tsr_tensor_file *file, const tsr_tensor *tensor, tsr_shape *out,
                            tsr_error *error) {
  char shown[TSR_TENSOR_BYTES];
  if (tensor->axes > TSR_AXES_MAX)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "%s has %d axes, the limit is %d: reshape it",
                    tsr_tensor_print(shown, sizeof shown, file, tensor), tensor->axes, TSR_AXES_MAX);
  *out = (tsr_shape){.axes = tensor->axes};
  memcpy(out->extent, tensor->extent, sizeof out->extent);
  return TSR_OK;
}

tsr_status tsr_file_shape(tsr_context *context, const char *path, const char *tensor, tsr_shape *out,
                          tsr_error *error) {
  (void)context;
  tsr_status status = TSR_OK;
  tsr_tensor_file *file = NULL;
  const tsr_tensor *found;
  TSR_TRY(tsr_tensor_file_open(path, &file, error));
  TSR_TRY(tsr_tensor_file_find(file, tensor, &found, error));
  TSR_TRY(tsr_tensor_shape(file, found, out, error));
done:
  tsr_tensor_file_close(&file);
  return status;
}
