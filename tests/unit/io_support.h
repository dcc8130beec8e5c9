/* What the tests of runtime/io share: a temporary folder, files of any bytes, checks of messages. */
#ifndef TSR_TESTS_IO_SUPPORT_H
#define TSR_TESTS_IO_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tessera/source.h>

enum { PATH_BYTES = 512 };

static char folder[256];
static tsr_context *context;
static int mapped_lines;

static uint64_t random_state;
static uint64_t next_random(void) { /* splitmix64 */
  uint64_t z = random_state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return z ^ z >> 31;
}
static int64_t below(int64_t limit) {
  return (int64_t)(next_random() % (uint64_t)limit);
}

static char *path_of(char *buffer, const char *name) {
  snprintf(buffer, PATH_BYTES, "%s/%s", folder, name);
  return buffer;
}

static void write_bytes(const char *path, const void *bytes, size_t count) {
  unlink(path); /* some file systems flush a file that is truncated and written again */
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  assert_int_equal(fclose(file), 0);
}

/* Length, header, then data_bytes bytes that count up. */
static void write_safetensors(const char *path, const char *header, size_t header_bytes, size_t data_bytes) {
  uint64_t length = header_bytes;
  uint8_t *bytes = malloc(8 + header_bytes + data_bytes);
  memcpy(bytes, &length, 8);
  memcpy(bytes + 8, header, header_bytes);
  for (size_t i = 0; i < data_bytes; i++) bytes[8 + header_bytes + i] = (uint8_t)i;
  write_bytes(path, bytes, 8 + header_bytes + data_bytes);
  free(bytes);
}

static void write_npy(const char *path, int major, const char *header, const void *data, size_t data_bytes) {
  uint8_t bytes[8192] = "\x93NUMPY";
  size_t used = 8, length = strlen(header);
  bytes[6] = (uint8_t)major;
  memcpy(bytes + used, &length, major == 1 ? 2 : 4);
  used += major == 1 ? 2 : 4;
  memcpy(bytes + used, header, length);
  if (data) memcpy(bytes + used + length, data, data_bytes);
  write_bytes(path, bytes, used + length + data_bytes);
}

static bool is_one_line(const char *text) {
  while ((unsigned char)*text >= ' ' && *text != 0x7f) text++;
  return !*text;
}

/* The status, and a message on one line that names the fault. */
static void expect(const char *what, tsr_status status, const tsr_error *error, tsr_status wanted,
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

#endif
