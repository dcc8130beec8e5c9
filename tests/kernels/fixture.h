/* tests/kernels/fixture.h: a context whose log is kept, a folder for its caches, and the device under test:
 * the one that $TSR_TEST_DEVICE selects, else pocl. A test is skipped where there is no such device. */
#ifndef TSR_TESTS_KERNELS_FIXTURE_H
#define TSR_TESTS_KERNELS_FIXTURE_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/device.h"

typedef struct fixture {
  char folder[256];
  tsr_context *context;
  char log[65536];
  size_t log_bytes;
} fixture;

static inline const char *test_selector(void) {
  const char *chosen = getenv("TSR_TEST_DEVICE");
  return chosen && *chosen ? chosen : "pocl";
}

static inline void keep_log(void *user, tsr_log_level level, const char *area, const char *message) {
  fixture *f = user;
  (void)area;
  int written = snprintf(f->log + f->log_bytes, sizeof f->log - f->log_bytes, "%d %s\n", (int)level, message);
  f->log_bytes += (size_t)written;
  if (f->log_bytes >= sizeof f->log) f->log_bytes = 0; /* old lines make room */
}

static inline void clear_log(fixture *f) {
  f->log_bytes = 0;
  f->log[0] = 0;
}

static inline int count_in_log(const fixture *f, const char *text) {
  int count = 0;
  for (const char *at = f->log; (at = strstr(at, text)); at += strlen(text)) count++;
  return count;
}

static inline tsr_context *make_context(fixture *f, const char *folder) {
  tsr_context *context = NULL;
  assert_int_equal(tsr_context_create(TSR_CONTEXT_OPTIONS(.log = keep_log, .log_user = f,
                                                          .log_level = TSR_LOG_DEBUG, .cache_folder = folder,
                                                          .kernel_folder = "", .tuning_folder = ""),
                                      &context, NULL),
                   TSR_OK);
  return context;
}

static inline int fixture_setup(void **state) {
  const char *temporary = getenv("TMPDIR");
  fixture *f = calloc(1, sizeof *f);
  snprintf(f->folder, sizeof f->folder, "%s/tessera-test-XXXXXX", temporary ? temporary : "/tmp");
  if (!mkdtemp(f->folder)) return -1;
  f->context = make_context(f, f->folder);
  *state = f;
  return 0;
}

/* Calls visit with the path of every file of the program cache whose name ends so. */
static inline void visit_cache(const fixture *f, const char *ending, void (*visit)(const char *path)) {
  char path[1024];
  snprintf(path, sizeof path, "%s/programs", f->folder);
  DIR *folder = opendir(path);
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    snprintf(path, sizeof path, "%s/programs/%s", f->folder, entry->d_name);
    if (entry->d_name[0] != '.' && !strcmp(path + strlen(path) - strlen(ending), ending)) visit(path);
  }
  if (folder) closedir(folder);
}

static inline void remove_file(const char *path) {
  unlink(path);
}

static inline int fixture_teardown(void **state) {
  fixture *f = *state;
  char path[1024];
  tsr_context_destroy(&f->context);
  visit_cache(f, "", remove_file);
  snprintf(path, sizeof path, "%s/programs", f->folder);
  rmdir(path);
  rmdir(f->folder);
  free(f);
  return 0;
}

/* Whether the device under test is there; says so if not. */
static inline bool has_device(fixture *f) {
  tsr_device_list *list = NULL;
  bool found = false;
  assert_int_equal(tsr_device_list_create(f->context, &list, NULL), TSR_OK);
  for (size_t i = 0; i < tsr_device_list_count(list); i++) {
    const tsr_device_info *info = tsr_device_list_get(list, i);
    found = found || (info->usable && tsr_device_matches(test_selector(), info));
  }
  tsr_device_list_destroy(&list);
  if (!found) print_message("skipped: no OpenCL device matches \"%s\"\n", test_selector());
  return found;
}

static inline tsr_device *open_device(fixture *f, const char *selector, const tsr_device_options *options) {
  tsr_device *device = NULL;
  tsr_error error = {0};
  tsr_status status = tsr_device_open(f->context, selector, options, &device, &error);
  if (status != TSR_OK) print_message("%s\n", error.message);
  assert_int_equal(status, TSR_OK);
  return device;
}

/* An error of one line that names `part`. */
static inline void expect_open_failure(fixture *f, const char *selector, const tsr_device_options *options,
                                       tsr_status wanted, const char *part) {
  tsr_error error = {0};
  tsr_device *device = NULL;
  assert_int_equal(tsr_device_open(f->context, selector, options, &device, &error), wanted);
  assert_null(device);
  if (!strstr(error.message, part)) fail_msg("\"%s\" is not in \"%s\"", part, error.message);
  assert_null(strchr(error.message, '\n'));
}

/* Fails the test with the error's message. */
static inline void assert_ok(tsr_status status, const tsr_error *error) {
  if (status != TSR_OK) print_message("%s\n%s\n", error->message, error->build_log);
  assert_int_equal(status, TSR_OK);
}

#endif
