/* test_program_cache.c: the disk cache of programs: it spares compiling, and no damage to it does harm;
 * kernels that do not work or do not compile. */
#include "fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

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
  assert_true(count_in_log(f, "nothing is stored") > 0);
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_second_open_compiles_nothing),
      cmocka_unit_test(test_damaged_entries_are_made_anew),
      cmocka_unit_test(test_cache_that_cannot_be_written),
      cmocka_unit_test(test_no_cache),
      cmocka_unit_test(test_broken_kernels),
  };
  return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
