/* test_gemm.c: every GEMM family that the device under test can run, against a double loop on the host: all
 * transposes, row-major and panels, ragged sizes, views with offsets and gaps. See gemm_case.h. */
#include "gemm_case.h"

enum { CASES = 48 };

static void check_family(fixture *f, const char *selector, const char *family, tsr_gemm_types types,
                         int cases, bool extreme) {
  tsr_error error = {0};
  tsr_device *device = NULL;
  clear_log(f);
  tsr_status status =
      tsr_device_open(f->context, selector, TSR_DEVICE_OPTIONS(.gemm = family), &device, &error);
  if (status == TSR_ERROR_UNSUPPORTED) {
    print_message("skipped: %s\n", error.message);
    return;
  }
  assert_ok(status, &error);
  if (count_in_log(f, "is passed over")) fail_msg("a family failed its self-test:\n%s", f->log);
  seed = 20240229;
  if (device->gemm[types].family == TSR_GEMM_NONE)
    print_message("skipped: no %s on this device\n", tsr_gemm_types_name(types));
  else
    for (int i = 0; i < cases; i++) {
      test_case t = draw_case(&device->gemm[types], types, i);
      if (extreme) make_extreme(&t);
      run_case(device, &t);
    }
  assert_int_equal(tsr_device_bytes_used(device), 0);
  tsr_device_close(&device);
}

static void test_host(void **state) {
  for (int types = 0; types < TSR_GEMM_TYPES_COUNT; types++)
    check_family(*state, "host", NULL, (tsr_gemm_types)types, CASES, false);
}

static void test_chosen(void **state) {
  if (!has_device(*state)) skip();
  check_family(*state, test_selector(), NULL, TSR_GEMM_TYPES_F32, 2 * CASES, false);
  for (int types = TSR_GEMM_TYPES_F64; types < TSR_GEMM_TYPES_COUNT; types++)
    check_family(*state, test_selector(), NULL, (tsr_gemm_types)types, CASES / 3, false);
}

static void test_reference(void **state) {
  if (!has_device(*state)) skip();
  for (int types = 0; types < TSR_GEMM_TYPES_COUNT; types++)
    check_family(*state, test_selector(), "reference", (tsr_gemm_types)types, types ? CASES / 4 : CASES,
                 false);
}

static void test_extreme(void **state) {
  const bool there = has_device(*state);
  for (int types = 0; types < TSR_GEMM_TYPES_COUNT; types++) {
    check_family(*state, "host", NULL, (tsr_gemm_types)types, CASES, true);
    if (there) check_family(*state, test_selector(), NULL, (tsr_gemm_types)types, CASES / 4, true);
    if (there) check_family(*state, test_selector(), "reference", (tsr_gemm_types)types, CASES / 8, true);
  }
}

/* Its f64 programs take too long to compile for a test. */
static void test_clblast(void **state) {
  if (!has_device(*state)) skip();
  check_family(*state, test_selector(), "clblast", TSR_GEMM_TYPES_F32, CASES / 4, false);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_host),    cmocka_unit_test(test_chosen),  cmocka_unit_test(test_reference),
      cmocka_unit_test(test_extreme), cmocka_unit_test(test_clblast),
  };
  return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
