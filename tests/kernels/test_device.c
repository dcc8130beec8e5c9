/* test_device.c: devices: selectors, the ledger, mappings. */
#include "fixture.h"

#include "base/memory.h"
#include "profile/measure.h"

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

/* A buffer over memory that is given: counted like any other, seen where it lies, left alone in the end. */
static void check_given_memory(tsr_device *device) {
  enum { BYTES = 60 * KIB };
  tsr_error error = {0};
  tsr_buffer *buffer = NULL, *second = NULL;
  unsigned char *memory = tsr_malloc_pages(BYTES), *bytes = NULL;
  assert_non_null(memory);
  memset(memory, 7, BYTES);
  assert_ok(tsr_buffer_create_over(device, memory, BYTES, &buffer, &error), &error);
  assert_int_equal(tsr_device_bytes_used(device), BYTES);
  assert_int_equal(tsr_buffer_create_over(device, memory, BYTES, &second, &error), TSR_ERROR_OUT_OF_MEMORY);
  assert_ok(tsr_device_fill_zero(device, buffer, 100, 50, &error), &error);
  assert_ok(tsr_device_host_wait(device, buffer, 0, BYTES, TSR_HOST_READ_WRITE, (void **)&bytes, &error),
            &error);
  assert_int_equal(bytes == memory, device->takes_memory);
  for (int i = 100; i < 150; i++) assert_int_equal(bytes[i], 0);
  if (device->takes_memory) assert_int_equal(bytes[99] + bytes[150] + bytes[BYTES - 1], 21);
  bytes[0] = 3;
  assert_ok(tsr_device_host_end(device, buffer, bytes, &error), &error);
  assert_ok(tsr_device_finish(device, &error), &error);
  tsr_buffer_destroy(device, &buffer);
  assert_int_equal(tsr_device_bytes_used(device), 0);
  assert_int_equal(memory[0], device->takes_memory ? 3 : 7);
  free(memory);
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
  } wrong[20];
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) wrong[i].call = right;
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
  wrong[count].call.types = TSR_GEMM_TYPES_COUNT, wrong[count++].part = "product of types";
  wrong[count].call.scale = matrix, wrong[count++].part = "they go with i8";
  wrong[count].call.types = TSR_GEMM_TYPES_F32_I8, wrong[count].call.scale = matrix,
  wrong[count++].part = "matrix scale";
  wrong[count].call.types = TSR_GEMM_TYPES_F32_I8, wrong[count].call.scale = matrix,
  wrong[count].call.transpose_b = true, wrong[count++].part = "transposed";
  wrong[count].call.epilogue.bias = matrix, wrong[count++].part = "matrix bias";
  wrong[count].call.epilogue.gate = matrix, wrong[count].call.epilogue.gate.cols = 7,
  wrong[count++].part = "matrix gate";
  wrong[count].call.epilogue.residual = matrix, wrong[count].call.epilogue.residual.panel = 8,
  wrong[count++].part = "matrix residual";
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(tsr_device_gemm(device, &wrong[i].call, &error), TSR_ERROR_INVALID_ARGUMENT);
    if (!strstr(error.message, wrong[i].part))
      fail_msg("\"%s\" is not in \"%s\"", wrong[i].part, error.message);
  }
  tsr_buffer_destroy(device, &buffer);
}

static void check_device(fixture *f, const char *selector) {
  tsr_device *device = open_device(
      f, selector, TSR_DEVICE_OPTIONS(.memory_bytes = 100 * KIB, .max_allocation_bytes = 64 * KIB));
  check_ledger(device);
  check_round_trip(device);
  check_given_memory(device);
  check_refusals(device);
  tsr_device_close(&device);
  assert_null(device);
  tsr_device_close(&device);
}

static void test_host(void **state) {
  tsr_device *device = open_device(*state, "host", NULL);
  assert_true(device->takes_memory);
  tsr_device_close(&device);
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

/* 8 x 64 sums of 4096 ones, in at most so many bytes of workspace. */
static void check_ones(tsr_device *device, size_t workspace) {
  enum { M = 8, N = 64, K = 4096 };
  tsr_error error = {0};
  tsr_matrix a = {.rows = M, .cols = K, .ld = K}, b = {.rows = K, .cols = N, .ld = N},
             c = {.rows = M, .cols = N, .ld = N};
  tsr_matrix *const all[] = {&a, &b, &c};
  tsr_gemm_call call = {.m = M, .n = N, .k = K, .alpha = 1};
  void *data = NULL;
  for (int i = 0; i < 3; i++) {
    const size_t count = (size_t)(all[i]->rows * all[i]->cols);
    assert_ok(tsr_buffer_create(device, count * sizeof(float), &all[i]->buffer, &error), &error);
    assert_ok(
        tsr_device_host_wait(device, all[i]->buffer, 0, count * sizeof(float), TSR_HOST_WRITE, &data, &error),
        &error);
    for (size_t j = 0; j < count; j++) ((float *)data)[j] = 1;
    assert_ok(tsr_device_host_end(device, all[i]->buffer, data, &error), &error);
  }
  call.a = a;
  call.b = b;
  call.c = c;
  if (workspace) assert_ok(tsr_buffer_create(device, workspace, &call.workspace, &error), &error);
  assert_ok(tsr_device_gemm(device, &call, &error), &error);
  assert_ok(tsr_device_host_wait(device, c.buffer, 0, c.buffer->bytes, TSR_HOST_READ, &data, &error), &error);
  for (int i = 0; i < M * N; i++) assert_true(((float *)data)[i] == K);
  assert_ok(tsr_device_host_end(device, c.buffer, data, &error), &error);
  assert_ok(tsr_device_finish(device, &error), &error);
  tsr_buffer_destroy(device, &call.workspace);
  for (int i = 0; i < 3; i++) tsr_buffer_destroy(device, &all[i]->buffer);
}

/* A variant that cuts k takes what workspace there is, or none; measuring gives it some. */
static void test_workspace(void **state) {
  fixture *f = *state;
  tsr_error error = {0};
  double gflops[TSR_CLUSTER_DTYPES] = {20};
  if (!has_device(f)) skip();
  tsr_device *device = open_device(f, test_selector(), NULL);
  for (int types = 0; types < TSR_GEMM_TYPES_COUNT; types++) device->gemm[types] = (tsr_gemm_facts){0};
  assert_ok(tsr_gemm_facts_parse(
                "tile tile_m=64 tile_n=64 tile_k=16 item_m=4 item_n=4 vector=4 buffers=1 split_k=16",
                &device->gemm[TSR_GEMM_TYPES_F32], &error),
            &error);
  const size_t wanted =
      tsr_gemm_workspace_bytes(&device->gemm[TSR_GEMM_TYPES_F32], TSR_GEMM_TYPES_F32, 8, 64, 4096);
  assert_true(wanted > 0);
  const size_t sizes[] = {0, 8, wanted / 3, wanted};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) check_ones(device, sizes[i]);
  tsr_cluster_member member;
  tsr_member_describe(device, &member);
  assert_ok(tsr_member_measure(device, TSR_WORK_F32 | TSR_WORK_FORWARD, gflops, &member, &error), &error);
  assert_true(member.curves[TSR_F32][TSR_GEMM_NN].count > 0);
  tsr_device_close(&device);
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
      cmocka_unit_test(test_workspace),
      cmocka_unit_test(test_memory_failures),
  };
  return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
