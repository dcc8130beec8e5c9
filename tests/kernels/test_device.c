/* test_device.c: devices: selectors, the ledger, mappings, the program cache. */
#include "fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/memory.h"

enum { KIB = 1024 };

static void test_selectors(void **state) {
  (void)state;
  const tsr_device_info info = {
      .platform = "NVIDIA CUDA", .short_name = "nvidia", .name = "H200 (PCIe)", .backend = "nvidia"};
  assert_true(tsr_device_matches("nvidia", &info));
  assert_true(tsr_device_matches("NVIDIA*:7", &info));
  assert_true(tsr_device_matches("nvidia c?da", &info));
  assert_true(tsr_device_matches("h[12]00*", &info));
  assert_false(tsr_device_matches("amd", &info));
  assert_false(tsr_device_matches("nvidia:x", &info));
  assert_false(tsr_device_matches("", &info));
}

static void expect_open_failure(fixture *f, const char *selector, const tsr_device_options *options,
                                tsr_status wanted, const char *part) {
  tsr_error error = {0};
  tsr_device *device = NULL;
  assert_int_equal(tsr_device_open(f->context, selector, options, &device, &error), wanted);
  assert_null(device);
  if (!strstr(error.message, part)) fail_msg("\"%s\" is not in \"%s\"", part, error.message);
  assert_null(strchr(error.message, '\n'));
}

static void test_wrong_selectors(void **state) {
  fixture *f = *state;
  expect_open_failure(f, "abacus", NULL, TSR_ERROR_NOT_FOUND, "host (");
  expect_open_failure(f, "host:3", NULL, TSR_ERROR_NOT_FOUND, "index 3");
  expect_open_failure(f, "", NULL, TSR_ERROR_INVALID_ARGUMENT, "PATTERN");
  expect_open_failure(f, ":1", NULL, TSR_ERROR_INVALID_ARGUMENT, "PATTERN");
  expect_open_failure(f, "host", TSR_DEVICE_OPTIONS(.gemm = "magic"), TSR_ERROR_INVALID_ARGUMENT,
                      "reference");
  expect_open_failure(f, "host", TSR_DEVICE_OPTIONS(.gemm = "panel"), TSR_ERROR_UNSUPPORTED, "panel");
  expect_open_failure(f, "host", &(tsr_device_options){0}, TSR_ERROR_INVALID_ARGUMENT, "struct_size");
  if (has_device(f))
    expect_open_failure(f, test_selector(), TSR_DEVICE_OPTIONS(.gemm = "host"), TSR_ERROR_UNSUPPORTED,
                        "host");
}

static void test_list_ends_with_host(void **state) {
  fixture *f = *state;
  tsr_device_list *list = NULL;
  assert_int_equal(tsr_device_list_create(f->context, &list, NULL), TSR_OK);
  size_t count = tsr_device_list_count(list);
  assert_true(count > 0);
  assert_string_equal(tsr_device_list_get(list, count - 1)->short_name, "host");
  assert_null(tsr_device_list_get(list, count));
  for (size_t i = 0; i < count; i++) {
    const tsr_device_info *info = tsr_device_list_get(list, i);
    assert_true(*info->name && *info->backend && *info->reason);
    assert_true(info->memory_bytes > 0 && info->max_allocation_bytes > 0);
  }
  tsr_device_list_destroy(&list);
}

static void expect_no_buffer(tsr_device *device, size_t bytes, tsr_status wanted, const char *part) {
  tsr_error error = {0};
  tsr_buffer *buffer = NULL;
  assert_int_equal(tsr_buffer_create(device, bytes, &buffer, &error), wanted);
  assert_null(buffer);
  if (!strstr(error.message, part)) fail_msg("\"%s\" is not in \"%s\"", part, error.message);
}

static void check_ledger(tsr_device *device) {
  tsr_buffer *first = NULL, *second = NULL;
  tsr_error error = {0};
  assert_int_equal(tsr_device_get_info(device)->memory_bytes, 100 * KIB);
  assert_int_equal(tsr_device_get_info(device)->max_allocation_bytes, 64 * KIB);
  assert_int_equal(tsr_device_bytes_peak(device), 0);
  expect_no_buffer(device, 0, TSR_ERROR_INVALID_ARGUMENT, "0 bytes");
  expect_no_buffer(device, 64 * KIB + 1, TSR_ERROR_OUT_OF_MEMORY, "65536");
  assert_ok(tsr_buffer_create(device, 60 * KIB, &first, &error), &error);
  expect_no_buffer(device, 60 * KIB, TSR_ERROR_OUT_OF_MEMORY, "61440 of 102400");
  assert_ok(tsr_buffer_create(device, 40 * KIB, &second, &error), &error);
  expect_no_buffer(device, 1, TSR_ERROR_OUT_OF_MEMORY, "0 are left");
  assert_int_equal(tsr_device_bytes_used(device), 100 * KIB);
  tsr_buffer_destroy(device, &first);
  assert_null(first);
  tsr_buffer_destroy(device, &first);
  assert_int_equal(tsr_device_bytes_used(device), 40 * KIB);
  assert_int_equal(tsr_device_bytes_peak(device), 100 * KIB);
  tsr_buffer_destroy(device, &second);
  assert_int_equal(tsr_device_bytes_used(device), 0);
}

static void check_round_trip(tsr_device *device) {
  tsr_error error = {0};
  tsr_buffer *buffer = NULL;
  unsigned char *bytes = NULL;
  assert_ok(tsr_buffer_create(device, 1000, &buffer, &error), &error);
  assert_ok(tsr_device_host_wait(device, buffer, 0, 1000, TSR_HOST_WRITE, (void **)&bytes, &error), &error);
  for (int i = 0; i < 1000; i++) bytes[i] = (unsigned char)(i % 251 + 1);
  assert_ok(tsr_device_host_end(device, buffer, bytes, &error), &error);
  assert_ok(tsr_device_fill_zero(device, buffer, 101, 7, &error), &error);
  assert_ok(tsr_device_fill_zero(device, buffer, 512, 64, &error), &error);
  assert_ok(tsr_device_host_wait(device, buffer, 100, 900, TSR_HOST_READ, (void **)&bytes, &error), &error);
  for (int i = 100; i < 1000; i++) {
    bool zero = (i >= 101 && i < 108) || (i >= 512 && i < 576);
    assert_int_equal(bytes[i - 100], zero ? 0 : i % 251 + 1);
  }
  assert_ok(tsr_device_host_end(device, buffer, bytes, &error), &error);
  assert_ok(tsr_device_finish(device, &error), &error);
  void *pointer = NULL;
  assert_int_equal(tsr_device_host_wait(device, buffer, 999, 2, TSR_HOST_READ, &pointer, &error),
                   TSR_ERROR_INVALID_ARGUMENT);
  assert_int_equal(tsr_device_fill_zero(device, buffer, 1001, 1, &error), TSR_ERROR_INVALID_ARGUMENT);
  assert_int_equal(tsr_device_fill_zero(device, buffer, SIZE_MAX, 2, &error), TSR_ERROR_INVALID_ARGUMENT);
  tsr_buffer_destroy(device, &buffer);
}

/* Every mistake in a product is found before the device is asked. */
static void check_refusals(tsr_device *device) {
  tsr_error error = {0};
  tsr_buffer *buffer = NULL;
  assert_ok(tsr_buffer_create(device, 64 * sizeof(float), &buffer, &error), &error);
  const tsr_matrix matrix = {.buffer = buffer, .rows = 8, .cols = 8, .ld = 8};
  const tsr_gemm_call right = {.m = 8, .n = 8, .k = 8, .alpha = 1, .a = matrix, .b = matrix, .c = matrix};
  struct {
    tsr_gemm_call call;
    const char *part;
  } wrong[12];
  for (size_t i = 0; i < 12; i++) wrong[i].call = right;
  size_t count = 0;
  wrong[count].call.m = 0, wrong[count++].part = "at least 1";
  wrong[count].call.k = 7, wrong[count++].part = "matrix a";
  wrong[count].call.a.offset = 1, wrong[count++].part = "beyond its buffer";
  wrong[count].call.b.ld = 7, wrong[count++].part = "ld >= 8";
  wrong[count].call.b.ld = INT64_MAX, wrong[count++].part = "beyond its buffer";
  wrong[count].call.c.offset = -1, wrong[count++].part = "matrix c";
  wrong[count].call.c.offset = INT64_MAX, wrong[count++].part = "matrix c";
  wrong[count].call.a.panel = 8, wrong[count++].part = "panels of 8";
  wrong[count].call.b.panel = 5, wrong[count++].part = "panels of 5";
  wrong[count].call.b.buffer = NULL, wrong[count++].part = "no buffer";
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(tsr_device_gemm(device, &wrong[i].call, &error), TSR_ERROR_INVALID_ARGUMENT);
    if (!strstr(error.message, wrong[i].part))
      fail_msg("\"%s\" is not in \"%s\"", wrong[i].part, error.message);
  }
  tsr_gemm_call half = right;
  half.dtype = TSR_F16;
  assert_int_equal(tsr_device_gemm(device, &half, &error), TSR_ERROR_UNSUPPORTED);
  tsr_buffer_destroy(device, &buffer);
}

static void check_device(fixture *f, const char *selector) {
  tsr_device *device = open_device(
      f, selector, TSR_DEVICE_OPTIONS(.memory_bytes = 100 * KIB, .max_allocation_bytes = 64 * KIB));
  check_ledger(device);
  check_round_trip(device);
  check_refusals(device);
  tsr_device_close(&device);
  assert_null(device);
  tsr_device_close(&device);
}

static void test_host(void **state) {
  check_device(*state, "host");
}

static void test_opencl(void **state) {
  if (!has_device(*state)) skip();
  check_device(*state, test_selector());
}

/* More than the driver can give is an error, not a crash. */
static void test_device_memory(void **state) {
  fixture *f = *state;
  if (!has_device(f)) skip();
  tsr_device *device = open_device(f, test_selector(), NULL);
  expect_no_buffer(device, (size_t)1 << 50, TSR_ERROR_OUT_OF_MEMORY, "at most");
  device->info.max_allocation_bytes = device->info.memory_bytes = UINT64_MAX; /* past the ledger */
  expect_no_buffer(device, (size_t)1 << 50, TSR_ERROR_OUT_OF_MEMORY, "clCreateBuffer");
  assert_int_equal(tsr_device_bytes_used(device), 0);
  tsr_device_close(&device);
}

/* One product in the reference family: a device that is opened, used and closed. */
static void use_device(fixture *f) {
  tsr_error error = {0};
  tsr_buffer *buffer = NULL;
  float *data = NULL;
  tsr_device *device = open_device(f, test_selector(), TSR_DEVICE_OPTIONS(.gemm = "reference"));
  assert_ok(tsr_buffer_create(device, 3 * sizeof(float), &buffer, &error), &error);
  assert_ok(
      tsr_device_host_wait(device, buffer, 0, 3 * sizeof(float), TSR_HOST_WRITE, (void **)&data, &error),
      &error);
  data[0] = 3, data[1] = 5, data[2] = 0;
  assert_ok(tsr_device_host_end(device, buffer, data, &error), &error);
  tsr_gemm_call call = {.m = 1, .n = 1, .k = 1, .alpha = 1};
  call.a = (tsr_matrix){.buffer = buffer, .rows = 1, .cols = 1, .ld = 1};
  call.b = call.c = call.a;
  call.b.offset = 1, call.c.offset = 2;
  assert_ok(tsr_device_gemm(device, &call, &error), &error);
  assert_ok(tsr_device_host_wait(device, buffer, 0, 3 * sizeof(float), TSR_HOST_READ, (void **)&data, &error),
            &error);
  assert_true(data[2] == 15);
  assert_ok(tsr_device_host_end(device, buffer, data, &error), &error);
  tsr_buffer_destroy(device, &buffer);
  tsr_device_close(&device);
}

static void test_second_open_compiles_nothing(void **state) {
  fixture *f = *state;
  if (!has_device(f)) skip();
  use_device(f);
  clear_log(f);
  use_device(f);
  assert_int_equal(count_in_log(f, "compiled "), 0);
  assert_int_equal(count_in_log(f, "loaded gemm_reference.cl"), 1);
  assert_int_equal(count_in_log(f, "stored "), 0);
}

static void flip_last_byte(const char *path) {
  char byte = 0;
  int file = open(path, O_RDWR);
  off_t size = lseek(file, 0, SEEK_END);
  assert_int_equal(pread(file, &byte, 1, size - 1), 1);
  byte ^= 1;
  assert_int_equal(pwrite(file, &byte, 1, size - 1), 1);
  close(file);
}

static void cut_short(const char *path) {
  assert_int_equal(truncate(path, 50), 0);
}

static void empty(const char *path) {
  assert_int_equal(truncate(path, 0), 0);
}

static void replace_by_folder(const char *path) {
  unlink(path);
  assert_int_equal(mkdir(path, 0700), 0);
}

static void remove_folder(const char *path) {
  rmdir(path);
}

static void give_away(const char *path) {
  assert_int_equal(chown(path, 12345, 12345), 0);
}

static void check_damage(fixture *f, void (*damage)(const char *path), const char *reason) {
  use_device(f);
  visit_cache(f, ".bin", damage);
  clear_log(f);
  use_device(f);
  if (!count_in_log(f, reason)) fail_msg("\"%s\" is not in the log:\n%s", reason, f->log);
  assert_true(count_in_log(f, f->folder) > 0);
  assert_true(count_in_log(f, "compiled gemm_reference.cl") > 0);
}

static void test_damaged_entries_are_made_anew(void **state) {
  fixture *f = *state;
  if (!has_device(f)) skip();
  check_damage(f, flip_last_byte, "checksum");
  check_damage(f, cut_short, "cut short");
  check_damage(f, empty, "cut short");
  if (!geteuid()) check_damage(f, give_away, "another user");
  clear_log(f);
  use_device(f);
  assert_int_equal(count_in_log(f, "compiled "), 0);
  check_damage(f, replace_by_folder, "not a file");
  visit_cache(f, ".bin", remove_folder);
}

/* A file where the folder should be: nobody can write there, root neither. */
static void test_cache_that_cannot_be_written(void **state) {
  fixture *f = *state;
  if (!has_device(f)) skip();
  char path[1024];
  snprintf(path, sizeof path, "%s/programs", f->folder);
  visit_cache(f, "", remove_file);
  rmdir(path);
  close(open(path, O_CREAT | O_WRONLY, 0600));
  clear_log(f);
  use_device(f);
  assert_true(count_in_log(f, "cannot store") > 0);
  unlink(path);
}

static void test_no_cache(void **state) {
  fixture *f = *state;
  if (!has_device(f)) skip();
  tsr_context *with_cache = f->context;
  f->context = make_context(f, "");
  clear_log(f);
  use_device(f);
  assert_int_equal(count_in_log(f, "store"), 0);
  tsr_context_destroy(&f->context);
  f->context = with_cache;
}

static void write_kernel(const char *folder, const char *file, const char *text) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  FILE *kernel = fopen(path, "w");
  assert_non_null(kernel);
  fputs(text, kernel);
  fclose(kernel);
}

static void remove_file_in(const char *folder, const char *file) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  unlink(path);
}

/* A kernel that computes nothing fails its self-test, one that does not compile shows its build log. */
static void test_broken_kernels(void **state) {
  static const char does_nothing[] =
      "kernel void gemm_reference(ulong m, ulong n, ulong k, REAL alpha, REAL beta, global const REAL *a, "
      "ulong x,\n"
      "ulong lda, global const REAL *b, ulong y, ulong ldb, global REAL *c, ulong z, ulong ldc) {}\n";
  fixture *f = *state;
  if (!has_device(f)) skip();
  tsr_context *own = f->context;
  tsr_error error = {0};
  tsr_device *device = NULL;
  const tsr_context_options options = {.struct_size = sizeof options,
                                       .log = keep_log,
                                       .log_user = f,
                                       .log_level = TSR_LOG_DEBUG,
                                       .cache_folder = f->folder,
                                       .kernel_folder = f->folder};
  assert_int_equal(tsr_context_create(&options, &f->context, NULL), TSR_OK);
  clear_log(f);
  write_kernel(f->folder, "gemm_reference.cl", does_nothing);
  expect_open_failure(f, test_selector(), TSR_DEVICE_OPTIONS(.gemm = "reference"), TSR_ERROR_DEVICE,
                      "self-test");
  assert_int_equal(count_in_log(f, "GEMM family reference is passed over"), 1);
  write_kernel(f->folder, "gemm_reference.cl", "kernel void gemm_reference( {\n");
  assert_int_equal(
      tsr_device_open(f->context, test_selector(), TSR_DEVICE_OPTIONS(.gemm = "reference"), &device, &error),
      TSR_ERROR_COMPILE);
  assert_non_null(strstr(error.build_log, "gemm_reference.cl"));
  write_kernel(f->folder, "gemm_panel.cl", "#error on purpose\n");
  remove_file_in(f->folder, "gemm_reference.cl");
  device = open_device(f, test_selector(), NULL);
  assert_int_not_equal(device->gemm[TSR_F32].family, TSR_GEMM_PANEL);
  tsr_device_close(&device);
  remove_file_in(f->folder, "gemm_panel.cl");
  tsr_context_destroy(&f->context);
  f->context = own;
}

/* Whatever allocation fails while a device is opened and used, there is an error and no leak, or it works. */
static void test_memory_failures(void **state) {
  fixture *f = *state;
  const char *selector = has_device(f) ? test_selector() : "host";
  for (int64_t after = 0; after < 60; after++) {
    tsr_device *device = NULL;
    tsr_error error = {0};
    tsr_memory_fail_after(after);
    tsr_status status = tsr_device_open(f->context, selector, NULL, &device, &error);
    tsr_memory_fail_after(-1);
    assert_true((status == TSR_OK) == (device != NULL));
    assert_true(status == TSR_OK || *error.message);
    tsr_device_close(&device);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_selectors),
      cmocka_unit_test(test_wrong_selectors),
      cmocka_unit_test(test_list_ends_with_host),
      cmocka_unit_test(test_host),
      cmocka_unit_test(test_opencl),
      cmocka_unit_test(test_device_memory),
      cmocka_unit_test(test_second_open_compiles_nothing),
      cmocka_unit_test(test_damaged_entries_are_made_anew),
      cmocka_unit_test(test_cache_that_cannot_be_written),
      cmocka_unit_test(test_no_cache),
      cmocka_unit_test(test_broken_kernels),
      cmocka_unit_test(test_memory_failures),
  };
  return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
