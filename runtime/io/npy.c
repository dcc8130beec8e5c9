#include "io/npy.h"

#include <string.h>

#include "base/memory.h"
#include "base/text.h"

static const struct {
  const char *descr;
  tsr_dtype dtype;
} dtypes[] = {{"<f4", TSR_F32}, {"<f8", TSR_F64}, {"<f2", TSR_F16}, {"|i1", TSR_I8}};
enum { DTYPES = sizeof dtypes / sizeof *dtypes, DESCR_BYTES = 32 };

/* The header's text and how far it is read. */
typedef struct reader {
  const char *text;
  size_t bytes, at;
} reader;

typedef struct header {
  char descr[DESCR_BYTES];
  bool fortran_order;
  tsr_tensor tensor;
} header;

static void skip_spaces(reader *r) {
  while (r->at < r->bytes && memchr(" \t\r\n", r->text[r->at], 4)) r->at++;
}

/* Takes `word` if it comes next. */
static bool take(reader *r, const char *word) {
  skip_spaces(r);
  size_t length = strlen(word);
  if (r->bytes - r->at < length || memcmp(r->text + r->at, word, length)) return false;
  r->at += length;
  return true;
}

static bool next_is_digit(const reader *r) {
  return r->at < r->bytes && r->text[r->at] >= '0' && r->text[r->at] <= '9';
}

static tsr_status fail_expected(const reader *r, const char *what, tsr_error *error) {
  return tsr_fail(error, TSR_ERROR_FORMAT,
                  "header is not the dictionary of a .npy: expected %s at its byte %zu", what, r->at);
}

/* A string without escapes, which no writer of this format makes. */
static tsr_status read_string(reader *r, char *out, size_t bytes, tsr_error *error) {
  bool single = take(r, "'");
  if (!single && !take(r, "\"")) return fail_expected(r, "a string", error);
  const char *begin = r->text + r->at, *end = memchr(begin, single ? '\'' : '"', r->bytes - r->at);
  size_t length = end ? (size_t)(end - begin) : bytes;
  if (length >= bytes || memchr(begin, '\\', length) || memchr(begin, 0, length))
    return fail_expected(r, "a short string", error);
  memcpy(out, begin, length);
  out[length] = 0;
  r->at += length + 1;
  return TSR_OK;
}

static tsr_status read_extent(reader *r, int64_t *out, tsr_error *error) {
  skip_spaces(r);
  if (!next_is_digit(r)) return fail_expected(r, "an extent (a whole number from 0)", error);
  int64_t value = 0;
  for (; next_is_digit(r); r->at++) {
    int digit = r->text[r->at] - '0';
    if (value > (INT64_MAX - digit) / 10)
      return tsr_fail(error, TSR_ERROR_FORMAT, "extent at byte %zu of the header does not fit 64 bits",
                      r->at);
    value = value * 10 + digit;
  }
  *out = value;
  return TSR_OK;
}

/* (), (2,), (2, 3), (2, 3,) but not (2), which is no tuple. */
static tsr_status read_shape(reader *r, header *h, tsr_error *error) {
  if (!take(r, "(")) return fail_expected(r, "'(' of the shape", error);
  bool comma = true;
  while (!take(r, ")")) {
    int64_t extent = 0;
    if (!comma) return fail_expected(r, "',' or ')' in the shape", error);
    TSR_RETURN_IF_FAILED(read_extent(r, &extent, error));
    TSR_RETURN_IF_FAILED(tsr_tensor_add_axis(&h->tensor, extent, error));
    comma = take(r, ",");
  }
  return h->tensor.axes == 1 && !comma ? fail_expected(r, "',' after a single extent", error) : TSR_OK;
}

static tsr_status read_order(reader *r, header *h, tsr_error *error) {
  h->fortran_order = take(r, "True");
  return h->fortran_order || take(r, "False") ? TSR_OK : fail_expected(r, "True or False", error);
}

static tsr_status read_descr(reader *r, header *h, tsr_error *error) {
  if (take(r, "["))
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "array of records: expected descr '<f4', '<f8', '<f2' or '|i1'");
  return read_string(r, h->descr, sizeof h->descr, error);
}

static const struct {
  const char *name;
  tsr_status (*read)(reader *r, header *h, tsr_error *error);
} keys[] = {{"descr", read_descr}, {"fortran_order", read_order}, {"shape", read_shape}};
enum { KEYS = sizeof keys / sizeof *keys };

/* One "'key': value"; seen has a bit for each key. */
static tsr_status read_item(reader *r, header *h, unsigned *seen, tsr_error *error) {
  char name[DESCR_BYTES], shown[DESCR_BYTES];
  TSR_RETURN_IF_FAILED(read_string(r, name, sizeof name, error));
  int key = 0;
  while (key < KEYS && strcmp(name, keys[key].name)) key++;
  if (key == KEYS || (*seen >> key & 1))
    return tsr_fail(error, TSR_ERROR_FORMAT,
                    "header has %s key \"%s\": expected descr, fortran_order, shape, each once",
                    key == KEYS ? "the unknown" : "twice the", tsr_name_print(shown, sizeof shown, name));
  *seen |= 1u << key;
  if (!take(r, ":")) return fail_expected(r, "':'", error);
  return keys[key].read(r, h, error);
}

static tsr_status read_header(reader *r, header *h, tsr_error *error) {
  unsigned seen = 0;
  bool comma = true;
  if (!take(r, "{")) return fail_expected(r, "'{'", error);
  while (!take(r, "}")) {
    if (!comma) return fail_expected(r, "',' or '}'", error);
    TSR_RETURN_IF_FAILED(read_item(r, h, &seen, error));
    comma = take(r, ",");
  }
  for (int key = 0; key < KEYS; key++)
    if (!(seen >> key & 1))
      return tsr_fail(error, TSR_ERROR_FORMAT, "header has no key \"%s\"", keys[key].name);
  skip_spaces(r);
  return r->at < r->bytes ? fail_expected(r, "nothing more", error) : TSR_OK;
}

/* Finds the header's text; what follows it is data. */
static tsr_status find_header(const tsr_tensor_file *file, reader *r, tsr_error *error) {
  static const char magic[] = "\x93NUMPY";
  enum { MAGIC_BYTES = sizeof magic - 1, LENGTH_AT = MAGIC_BYTES + 2 };
  const uint8_t *bytes = file->bytes;
  if (file->byte_count < LENGTH_AT + 4)
    return tsr_fail(error, TSR_ERROR_FORMAT, "file too short: %zu bytes, a .npy file has at least %d",
                    file->byte_count, LENGTH_AT + 4);
  if (memcmp(bytes, magic, MAGIC_BYTES))
    return tsr_fail(error, TSR_ERROR_FORMAT, "file does not begin with \\x93NUMPY: not a .npy file");
  int major = bytes[MAGIC_BYTES], minor = bytes[MAGIC_BYTES + 1];
  if (major < 1 || major > 3 || minor)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, ".npy version %d.%d: expected 1.0, 2.0 or 3.0", major,
                    minor);
  size_t begin = LENGTH_AT + (major == 1 ? 2 : 4);
  uint32_t length = 0;
  memcpy(&length, bytes + LENGTH_AT, begin - LENGTH_AT); /* little-endian, as the host is (io/convert.c) */
  if (length > file->byte_count - begin)
    return tsr_fail(error, TSR_ERROR_FORMAT,
                    "header length is %lu bytes, but only %zu follow: the file is truncated",
                    (unsigned long)length, file->byte_count - begin);
  *r = (reader){.text = (const char *)bytes + begin, .bytes = length};
  return TSR_OK;
}

/* Of a header that is well formed: can it be read, and does the data have its size? */
static tsr_status check_header(const header *h, int64_t available, int *dtype, tsr_error *error) {
  char shown[DESCR_BYTES];
  if (h->fortran_order)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "array is in Fortran order: save numpy.ascontiguousarray(array) instead");
  *dtype = 0;
  while (*dtype < DTYPES && strcmp(h->descr, dtypes[*dtype].descr)) ++*dtype;
  if (*dtype == DTYPES)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "dtype '%s': expected '<f4', '<f8', '<f2' or '|i1'; save array.astype('<f4') instead",
                    tsr_name_print(shown, sizeof shown, h->descr));
  int64_t bytes, count = tsr_tensor_count(&h->tensor), each = (int64_t)tsr_dtype_bytes(dtypes[*dtype].dtype);
  if (!tsr_multiply_fits(count, each, &bytes) || bytes != available)
    return tsr_fail(error, TSR_ERROR_FORMAT,
                    "%lld bytes of data, but the shape has %lld elements of %lld bytes: truncated or damaged",
                    (long long)available, (long long)count, (long long)each);
  return TSR_OK;
}

tsr_status tsr_npy_parse(tsr_tensor_file *file, tsr_error *error) {
  reader r;
  header h = {.tensor = {.span = 1}};
  int dtype = 0;
  TSR_RETURN_IF_FAILED(find_header(file, &r, error));
  TSR_RETURN_IF_FAILED(read_header(&r, &h, error));
  size_t begin = (size_t)((const uint8_t *)r.text - file->bytes) + r.bytes;
  TSR_RETURN_IF_FAILED(check_header(&h, (int64_t)(file->byte_count - begin), &dtype, error));
  tsr_tensor *tensor = tsr_tensor_file_add(file, tsr_text_copy(""));
  if (!tensor) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a tensor");
  h.tensor.name = tensor->name;
  h.tensor.dtype_name = dtypes[dtype].descr;
  h.tensor.readable = true;
  h.tensor.dtype = dtypes[dtype].dtype;
  h.tensor.data = file->bytes + begin;
  h.tensor.bytes = (int64_t)(file->byte_count - begin);
  *tensor = h.tensor;
  return TSR_OK;
}
