#include "io/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

enum { LENGTH_BYTES = 8 };

static const struct {
  const char *name;
  int bits; /* per element: some formats pack several into a byte */
  bool readable;
  tsr_dtype dtype;
} dtypes[] = {
    {"F32", 32, true, TSR_F32},   {"F64", 64, true, TSR_F64}, {"F16", 16, true, TSR_F16},
    {"BF16", 16, true, TSR_BF16}, {"BOOL", 8, false, 0},      {"U8", 8, false, 0},
    {"I8", 8, true, TSR_I8},      {"U16", 16, false, 0},      {"I16", 16, false, 0},
    {"U32", 32, false, 0},        {"I32", 32, false, 0},      {"U64", 64, false, 0},
    {"I64", 64, false, 0},        {"C64", 64, false, 0},      {"F8_E4M3", 8, false, 0},
    {"F8_E5M2", 8, false, 0},     {"F8_E8M0", 8, false, 0},   {"F6_E2M3", 6, false, 0},
    {"F6_E3M2", 6, false, 0},     {"F4", 4, false, 0},
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

const char *tsr_safetensors_dtype(tsr_dtype dtype) {
  for (int i = 0; i < DTYPES; i++)
    if (dtypes[i].readable && dtypes[i].dtype == dtype) return dtypes[i].name;
  return NULL;
}

/* Loads the header and gives it; data is where the tensors begin. */
static tsr_status load_header(const tsr_tensor_file *file, json_t **header, size_t *data, tsr_error *error) {
  if (file->byte_count < LENGTH_BYTES)
    return tsr_fail(error, TSR_ERROR_FORMAT,
                    "file too short: %zu bytes, a safetensors file begins with an 8-byte header length",
                    file->byte_count);
  uint64_t length;
  memcpy(&length, file->bytes, sizeof length);
  if (length > TSR_SAFETENSORS_HEADER_MAX)
    return tsr_fail(error, TSR_ERROR_FORMAT,
                    "header length is %llu bytes, the limit is %d: not a safetensors file",
                    (unsigned long long)length, TSR_SAFETENSORS_HEADER_MAX);
  if (length > file->byte_count - LENGTH_BYTES)
    return tsr_fail(error, TSR_ERROR_FORMAT,
                    "header length is %llu bytes, but only %zu follow: the file is truncated",
                    (unsigned long long)length, file->byte_count - LENGTH_BYTES);
  const char *text = (const char *)file->bytes + LENGTH_BYTES;
  if (!length || *text != '{')
    return tsr_fail(error, TSR_ERROR_FORMAT, "header is not a JSON object: it must begin with '{'");
  json_error_t fault;
  *header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &fault);
  if (!*header && json_error_code(&fault) == json_error_out_of_memory)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the header");
  char shown[JSON_ERROR_TEXT_LENGTH];
  if (!*header)
    return tsr_fail(error, TSR_ERROR_FORMAT, "header is not valid JSON at line %d, column %d: %s", fault.line,
                    fault.column, tsr_name_print(shown, sizeof shown, fault.text));
  *data = LENGTH_BYTES + (size_t)length;
  return TSR_OK;
}

/* Gives the element's bits. */
static tsr_status read_dtype(const json_t *entry, tsr_tensor *tensor, int *bits, tsr_error *error) {
  const json_t *value = json_object_get(entry, "dtype");
  if (!json_is_string(value)) return tsr_fail(error, TSR_ERROR_FORMAT, "no \"dtype\", or it is not a string");
  const char *name = json_string_value(value);
  for (int i = 0; i < DTYPES; i++)
    if (!strcmp(dtypes[i].name, name)) {
      tensor->dtype_name = dtypes[i].name;
      tensor->readable = dtypes[i].readable;
      tensor->dtype = dtypes[i].dtype;
      *bits = dtypes[i].bits;
      return TSR_OK;
    }
  char shown[TSR_NAME_BYTES];
  return tsr_fail(error, TSR_ERROR_FORMAT,
                  "unknown dtype \"%s\": expected F32, F64, F16, BF16 or another of the format",
                  tsr_name_print(shown, sizeof shown, name));
}

static tsr_status read_shape(const json_t *entry, tsr_tensor *tensor, tsr_error *error) {
  const json_t *value = json_object_get(entry, "shape"), *item;
  if (!json_is_array(value)) return tsr_fail(error, TSR_ERROR_FORMAT, "no \"shape\", or it is not an array");
  size_t i;
  json_array_foreach(value, i, item) {
    int64_t extent = json_integer_value(item);
    if (!json_is_integer(item) || extent < 0)
      return tsr_fail(error, TSR_ERROR_FORMAT, "extent of axis %zu is not a whole number from 0", i);
    TSR_RETURN_IF_FAILED(tsr_tensor_add_axis(tensor, extent, error));
  }
  return TSR_OK;
}

/* data: the bytes that hold all tensors, `available` of them. */
static tsr_status read_offsets(const json_t *entry, tsr_tensor *tensor, uint8_t *data, int64_t available,
                               tsr_error *error) {
  const json_t *value = json_object_get(entry, "data_offsets");
  const json_t *first = json_array_get(value, 0), *last = json_array_get(value, 1);
  if (json_array_size(value) != 2 || !json_is_integer(first) || !json_is_integer(last))
    return tsr_fail(error, TSR_ERROR_FORMAT, "no \"data_offsets\", or they are not two whole numbers");
  int64_t begin = json_integer_value(first), end = json_integer_value(last);
  if (begin < 0 || begin > end)
    return tsr_fail(error, TSR_ERROR_FORMAT, "data_offsets [%lld, %lld] are negative or reversed",
                    (long long)begin, (long long)end);
  if (end > available)
    return tsr_fail(
        error, TSR_ERROR_FORMAT,
        "data_offsets [%lld, %lld] are out of range: the file holds %lld bytes of data, it may be truncated",
        (long long)begin, (long long)end, (long long)available);
  tensor->data = data + begin;
  tensor->bytes = end - begin;
  return TSR_OK;
}

static tsr_status read_entry(const json_t *entry, tsr_tensor *tensor, uint8_t *data, int64_t available,
                             tsr_error *error) {
  int bits_each = 0;
  int64_t bits;
  if (!json_is_object(entry)) return tsr_fail(error, TSR_ERROR_FORMAT, "its entry is not a JSON object");
  TSR_RETURN_IF_FAILED(read_dtype(entry, tensor, &bits_each, error));
  TSR_RETURN_IF_FAILED(read_shape(entry, tensor, error));
  TSR_RETURN_IF_FAILED(read_offsets(entry, tensor, data, available, error));
  int64_t count = tsr_tensor_count(tensor);
  bool fits = tsr_multiply_fits(count, bits_each, &bits);
  if (!fits || bits % 8 || bits / 8 != tensor->bytes)
    return tsr_fail(
        error, TSR_ERROR_FORMAT,
        "data_offsets hold %lld bytes, but the shape has %lld elements of %s, %d bits each: they disagree",
        (long long)tensor->bytes, (long long)count, tensor->dtype_name, bits_each);
  return TSR_OK;
}

static int by_place(const void *a, const void *b) {
  const tsr_tensor *x = a, *y = b;
  if (x->data != y->data) return (uintptr_t)x->data < (uintptr_t)y->data ? -1 : 1;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Tensors neither overlap nor leave bytes out (where a second file could hide). */
static tsr_status check_cover(tsr_tensor_file *file, uint8_t *data, int64_t available, tsr_error *error) {
  char name[TSR_NAME_BYTES];
  int64_t covered = 0;
  if (file->tensor_count) qsort(file->tensors, file->tensor_count, sizeof *file->tensors, by_place);
  for (size_t i = 0; i < file->tensor_count; i++) {
    const tsr_tensor *tensor = &file->tensors[i];
    int64_t begin = (uint8_t *)tensor->data - data;
    if (begin != covered)
      return tsr_fail(error, TSR_ERROR_FORMAT,
                      "tensor \"%s\" begins at byte %lld of the data, expected %lld: %s",
                      tsr_name_print(name, sizeof name, tensor->name), (long long)begin, (long long)covered,
                      begin < covered ? "tensors overlap" : "there is a hole before it");
    covered += tensor->bytes;
  }
  if (covered != available)
    return tsr_fail(error, TSR_ERROR_FORMAT,
                    "%lld bytes of data, but the tensors end at %lld: there is a hole at the end",
                    (long long)available, (long long)covered);
  return TSR_OK;
}

tsr_status tsr_safetensors_parse(tsr_tensor_file *file, tsr_error *error) {
  tsr_status status = TSR_OK;
  json_t *header = NULL, *entry;
  const char *name;
  char shown[TSR_NAME_BYTES];
  size_t begin = 0;
  TSR_TRY(load_header(file, &header, &begin, error));
  uint8_t *data = file->bytes + begin;
  int64_t available = (int64_t)(file->byte_count - begin);
  json_object_foreach(header, name, entry) {
    if (!strcmp(name, "__metadata__")) continue;
    tsr_tensor *tensor = tsr_tensor_file_add(file, tsr_text_copy(name));
    if (!tensor) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for %zu tensors", json_object_size(header));
    status = read_entry(entry, tensor, data, available, error);
    if (status != TSR_OK) {
      tsr_error_wrap(error, "tensor \"%s\"", tsr_name_print(shown, sizeof shown, name));
      goto done;
    }
  }
  TSR_TRY(check_cover(file, data, available, error));
done:
  json_decref(header);
  return status;
}
