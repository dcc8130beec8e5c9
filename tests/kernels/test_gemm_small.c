/* test_gemm_small.c: the panel family's products of few rows by a weight in panels, as decoding has them:
 * every number of rows up to one more than gemm_small.cl takes, all types of weights, ragged widths, depths
 * of several blocks; as gemm_case.h says. */
#include "gemm_case.h"

enum { ROUNDS = 3 };

/* Few epilogues and panels of C, since each is a program of its own. */
static test_case draw_small(const tsr_gemm_facts *facts, tsr_gemm_types types, int64_t m, int round) {
  test_case t = draw_case(facts, types, (int)m * ROUNDS + round);
  t.transpose_a = t.transpose_b = false;
  t.m = m;
  t.b_panel = facts->panel;
  t.c_panel = m % 5 == 0 && round == 1 ? facts->panel : 0;
  t.scaled = tsr_gemm_dtype_b(types) == TSR_I8;
  t.extreme = round == 2;
  t.integers = round == 1;
  t.bias = t.activate = t.gate = t.residual = false;
  if (types == TSR_GEMM_TYPES_F32 && m % 4 == 3 && round == 0) draw_epilogue(&t);
  if (m % 2) t.k += 2 * facts->small_k_block;
  return t;
}

static void check_types(tsr_device *device, tsr_gemm_types types) {
  const tsr_gemm_facts *facts = &device->gemm[types];
  if (facts->family != TSR_GEMM_PANEL || !facts->small_m) {
    print_message("skipped: no products of few rows in %s on this device\n", tsr_gemm_types_name(types));
    return;
  }
  seed = 20240301;
  for (int64_t m = 1; m <= facts->small_m + 1; m++)
    for (int round = 0; round < ROUNDS; round++) {
      test_case t = draw_small(facts, types, m, round);
      run_case(device, &t);
    }
}

static void test_small(void **state) {
  if (!has_device(*state)) skip();
  clear_log(*state);
  tsr_device *device = open_device(*state, test_selector(), NULL);
  for (int types = 0; types < TSR_GEMM_TYPES_COUNT; types++) check_types(device, (tsr_gemm_types)types);
  if (count_in_log(*state, "is passed over")) fail_msg("a family failed its self-test");
  assert_int_equal(tsr_device_bytes_used(device), 0);
  tsr_device_close(&device);
}

/* Other vectors than the device's, as plain code: their groups, phases and blocks differ. */
static void test_widths(void **state) {
  static const char *const variants[] = {
      "panel tile_m=6 tile_n=64 panel=64 vector=16 prefetch=1 stored_k_block=256 stored_panels=1 "
      "copied_k_block=128 "
      "copied_row_block=12 copied_panels=1 small_m=12 small_k_block=32 small_fetch=512",
      "panel tile_m=6 tile_n=8 panel=8 vector=4 stored_k_block=256 stored_row_block=12 stored_panels=4 "
      "copied_k_block=64 copied_row_block=12 copied_panels=4 small_m=12 small_k_block=64 small_fetch=512"};
  if (!has_device(*state)) skip();
  tsr_device *device = open_device(*state, test_selector(), NULL);
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
    for (int64_t m = 1; m <= 11 && device->gemm[0].family == TSR_GEMM_PANEL; m += 2) {
      tsr_gemm_facts facts;
      assert_int_equal(tsr_gemm_facts_parse(variants[i], &facts, NULL), TSR_OK);
      test_case t = draw_small(&facts, TSR_GEMM_TYPES_F32, m, 0);
      t.variant = &facts;
      run_case(device, &t);
    }
  tsr_device_close(&device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_small), cmocka_unit_test(test_widths)};
  return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
