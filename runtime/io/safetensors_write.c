#include "io/safetensors.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/output.h"
#include "base/text.h"
#include "io/convert.h"
#include <tessera/source.h>

enum { CHUNK_BYTES = 1 << 20, ALIGNMENT = 8 };

/* Adds one tensor to the header; *end is where its data begins, then where it ends. */
static tsr_status describe(json_t *header, const char *name, const tsr_array *array, int64_t *end,
                           tsr_error *error) {
  int64_t begin = *end;
  if (!strcmp(name, "__metadata__"))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "that name is reserved by safetensors: choose another");
  TSR_RETURN_IF_FAILED(tsr_array_check(array, error));
  int64_t bytes = tsr_shape_count(&array->shape) * (int64_t)tsr_dtype_bytes(array->dtype);
  if (__builtin_add_overflow(begin, bytes, end))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "the size of the file does not fit 64 bits");
  if (json_object_get(header, name))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "there are two tensors of that name: each must have its own");
  json_t *shape = json_array();
  for (int i = 0; i < array->shape.axes; i++)
    json_array_append_new(shape, json_integer(array->shape.extent[i]));
  json_t *entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", tsr_safetensors_dtype(array->dtype), "shape",
                            shape, "data_offsets", (json_int_t)begin, (json_int_t)*end);
  if (!entry || json_array_size(shape) != (size_t)array->shape.axes) {
    json_decref(entry);
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the header");
  }
  if (json_object_set_new(header, name, entry))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "the name is not valid UTF-8, which JSON needs");
  return TSR_OK;
}

/* Gives the header's text, padded so that the data is aligned. */
static tsr_status make_header(const char *const *names, const tsr_array *arrays, size_t count, tsr_text *text,
                              tsr_error *error) {
  tsr_status status = TSR_OK;
  char shown[TSR_NAME_BYTES];
  int64_t end = 0;
  char *dumped = NULL;
  json_t *header = json_object();
  for (size_t i = 0; header && i < count; i++) {
    status = describe(header, names[i], &arrays[i], &end, error);
    if (status == TSR_OK) continue;
    tsr_error_wrap(error, "tensor \"%s\"", tsr_name_print(shown, sizeof shown, names[i]));
    goto done;
  }
  dumped = header ? json_dumps(header, JSON_COMPACT) : NULL;
  if (!dumped) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for the header");
  tsr_text_append(text, "%s", dumped);
  int padding = (int)((ALIGNMENT - text->bytes % ALIGNMENT) % ALIGNMENT);
  tsr_text_append(text, "%*s", padding, "");
  if (text->failed) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for the header");
  if (text->bytes > TSR_SAFETENSORS_HEADER_MAX)
    TSR_THROW(TSR_ERROR_INVALID_ARGUMENT, "header takes %zu bytes, the limit is %d: write several files",
              text->bytes, TSR_SAFETENSORS_HEADER_MAX);
done:
  free(dumped);
  json_decref(header);
  return status;
}

static bool is_dense(const tsr_array *array) {
  int64_t stride = 1;
  for (int i = array->shape.axes - 1; i >= 0; i--) {
    if (array->shape.extent[i] != 1 && array->stride[i] != stride) return false;
    stride *= array->shape.extent[i];
  }
  return true;
}

/* Dense data goes out as it is. The rest is halved along the slowest axis until it fits the chunk
 * (CHUNK_BYTES), which keeps the order and leaves transposes in blocks of many rows. */
static bool write_array(FILE *stream, const tsr_array *array, uint8_t *chunk) {
  size_t each = tsr_dtype_bytes(array->dtype), count = (size_t)tsr_shape_count(&array->shape);
  if (!count) return true;
  if (is_dense(array)) return fwrite(array->data, each, count, stream) == count;
  if (count * each <= CHUNK_BYTES) {
    tsr_array dense = tsr_array_dense(chunk, array->dtype, &array->shape);
    tsr_array_convert(array, &dense);
    return fwrite(chunk, each, count, stream) == count;
  }
  int axis = 0;
  while (array->shape.extent[axis] == 1) axis++;
  tsr_array first = *array, second = *array;
  first.shape.extent[axis] /= 2;
  second.shape.extent[axis] -= first.shape.extent[axis];
  second.data = (uint8_t *)array->data + first.shape.extent[axis] * array->stride[axis] * (int64_t)each;
  return write_array(stream, &first, chunk) && write_array(stream, &second, chunk);
}

static tsr_status write_all(tsr_output *o, const char *path, const tsr_text *header, const tsr_array *arrays,
                            size_t count, uint8_t *chunk, tsr_error *error) {
  uint64_t length = header->bytes;
  bool written = fwrite(&length, sizeof length, 1, o->stream) == 1 &&
                 fwrite(header->data, 1, header->bytes, o->stream) == header->bytes;
  for (size_t i = 0; written && i < count; i++) written = write_array(o->stream, &arrays[i], chunk);
  return tsr_output_commit(o, path, written, error);
}

tsr_status tsr_file_write(const char *path, const char *const *names, const tsr_array *arrays, size_t count,
                          tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_text header = {0};
  tsr_output o = {0};
  uint8_t *chunk = tsr_malloc(CHUNK_BYTES);
  if (!chunk) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "%s: no memory to write it", path);
  if (tsr_path_is_npy(path))
    TSR_THROW(TSR_ERROR_INVALID_ARGUMENT, "%s: only safetensors are written: choose another ending than .npy",
              path);
  status = make_header(names, arrays, count, &header, error);
  if (status != TSR_OK) {
    tsr_error_wrap(error, "%s", path);
    goto done;
  }
  TSR_TRY(tsr_output_open(&o, path, error));
  TSR_TRY(write_all(&o, path, &header, arrays, count, chunk, error));
done:
  tsr_output_close(&o);
  free(chunk);
  free(header.data);
  return status;
}
