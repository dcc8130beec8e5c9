/* What the tests of runtime/io share: a temporary folder below $TMPDIR, files of any bytes, elements by
 * index, checks of messages. */
#ifndef TSR_TESTS_IO_SUPPORT_H
#define TSR_TESTS_IO_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tessera/source.h>

#include "base/narrow.h"

enum { PATH_BYTES = 512 };

static char folder[256];
static tsr_context *context;
static int mapped_lines;

static uint64_t random_state;
static inline uint64_t next_random(void) { /* splitmix64 */
  uint64_t z = random_state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return z ^ z >> 31;
}
static inline int64_t below(int64_t limit) {
  return (int64_t)(next_random() % (uint64_t)limit);
}

static inline char *path_of(char *buffer, const char *name) {
  snprintf(buffer, PATH_BYTES, "%s/%s", folder, name);
  return buffer;
}

static inline void write_bytes(const char *path, const void *bytes, size_t count) {
  unlink(path); /* some file systems flush a file that is truncated and written again */
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  assert_int_equal(fclose(file), 0);
}

/* Length, header, then data_bytes bytes that count up. */
static inline void write_safetensors(const char *path, const char *header, size_t header_bytes,
                                     size_t data_bytes) {
  uint64_t length = header_bytes;
  uint8_t *bytes = malloc(8 + header_bytes + data_bytes);
  memcpy(bytes, &length, 8);
  memcpy(bytes + 8, header, header_bytes);
  for (size_t i = 0; i < data_bytes; i++) bytes[8 + header_bytes + i] = (uint8_t)i;
  write_bytes(path, bytes, 8 + header_bytes + data_bytes);
  free(bytes);
}

static inline void write_npy(const char *path, int major, const char *header, const void *data,
                             size_t data_bytes) {
  uint8_t bytes[8192] = "\x93NUMPY";
  size_t used = 8, length = strlen(header);
  bytes[6] = (uint8_t)major;
  memcpy(bytes + used, &length, major == 1 ? 2 : 4);
  used += major == 1 ? 2 : 4;
  memcpy(bytes + used, header, length);
  if (data) memcpy(bytes + used + length, data, data_bytes);
  write_bytes(path, bytes, used + length + data_bytes);
}

static inline bool is_one_line(const char *text) {
  while ((unsigned char)*text >= ' ' && *text != 0x7f) text++;
  return !*text;
}

/* The status, and a message on one line that names the fault. */
static inline void expect(const char *what, tsr_status status, const tsr_error *error, tsr_status wanted,
                          const char *fragment) {
  if (status != wanted ||
      (status != TSR_OK && (!strstr(error->message, fragment) || !is_one_line(error->message))))
    fail_msg("%s: %s \"%s\", expected %s with \"%s\" on one line", what, tsr_status_name(status),
             status == TSR_OK ? "" : error->message, tsr_status_name(wanted), fragment);
}
#define assert_ok(call)                                                                                      \
  do {                                                                                                       \
    tsr_error error_ = {0};                                                                                  \
    tsr_status status_ = (call);                                                                             \
    if (status_ != TSR_OK) fail_msg("%s: %s %s", #call, tsr_status_name(status_), error_.message);           \
  } while (0)

static void count_mapped(void *user, tsr_log_level level, const char *area, const char *message) {
  (void)user, (void)level, (void)area;
  mapped_lines += !strncmp(message, "mapped ", 7);
}

static int make_folder(void **state) {
  (void)state;
  const char *base = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/tessera-io-XXXXXX", base ? base : "/tmp");
  if (!mkdtemp(folder)) return -1;
  return tsr_context_create(
      TSR_CONTEXT_OPTIONS(.log = count_mapped, .log_level = TSR_LOG_DEBUG, .cache_folder = ""), &context,
      NULL);
}

static int remove_folder(void **state) {
  (void)state;
  char path[2 * PATH_BYTES];
  DIR *stream = opendir(folder);
  for (struct dirent *item; (item = readdir(stream));) {
    snprintf(path, sizeof path, "%s/%s", folder, item->d_name);
    if (item->d_name[0] != '.') unlink(path);
  }
  closedir(stream);
  tsr_context_destroy(&context);
  return rmdir(folder);
}

enum { DTYPES = TSR_DTYPE_COUNT };
static const tsr_dtype all_dtypes[DTYPES] = {TSR_F32, TSR_F64, TSR_F16, TSR_BF16, TSR_I8};

static inline double get(const tsr_array *array, const int64_t *index) {
  int64_t at = 0;
  for (int i = 0; i < array->shape.axes; i++) at += index[i] * array->stride[i];
  switch (array->dtype) {
  case TSR_F32: return ((float *)array->data)[at];
  case TSR_F64: return ((double *)array->data)[at];
  case TSR_F16: return tsr_widen_f16(((uint16_t *)array->data)[at]);
  case TSR_BF16: return tsr_widen_bf16(((uint16_t *)array->data)[at]);
  case TSR_I8: return ((int8_t *)array->data)[at];
  case TSR_DTYPE_COUNT: break;
  }
  return NAN;
}

static inline void set(const tsr_array *array, const int64_t *index, double value) {
  int64_t at = 0;
  for (int i = 0; i < array->shape.axes; i++) at += index[i] * array->stride[i];
  switch (array->dtype) {
  case TSR_F32: ((float *)array->data)[at] = (float)value; break;
  case TSR_F64: ((double *)array->data)[at] = value; break;
  case TSR_F16: ((uint16_t *)array->data)[at] = tsr_narrow_f16(value); break;
  case TSR_BF16: ((uint16_t *)array->data)[at] = tsr_narrow_bf16(value); break;
  case TSR_I8: ((int8_t *)array->data)[at] = (int8_t)value; break;
  case TSR_DTYPE_COUNT: break;
  }
}

/* Next index of shape, row-major; false after the last. */
static inline bool next_index(const tsr_shape *shape, int64_t *index) {
  for (int axis = shape->axes - 1; axis >= 0; axis--) {
    if (++index[axis] < shape->extent[axis]) return true;
    index[axis] = 0;
  }
  return false;
}

/* Small whole numbers are exact in all types. */
static inline double pattern(int64_t i) {
  return (double)(i * 37 % 251) - 125;
}

/* A source with one file entry "v". */
static inline tsr_source *source_of(const char *path, const char *tensor, bool transposed) {
  tsr_source *source;
  assert_ok(tsr_source_create(context, &source, &error_));
  assert_ok(tsr_source_add_file(source, "v", path, tensor, transposed, &error_));
  return source;
}

static inline int files_in_folder(const char *containing) {
  int count = 0;
  DIR *stream = opendir(folder);
  for (struct dirent *item; (item = readdir(stream));) count += strstr(item->d_name, containing) != NULL;
  closedir(stream);
  return count;
}

#endif
