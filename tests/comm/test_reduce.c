/* tests/comm/test_reduce.c: combining and converting, against base/narrow.h and the plainest sums. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/narrow.h"
#include "comm/reduce.h"

static uint16_t narrow(tsr_dtype type, float value) {
  return type == TSR_F16 ? tsr_narrow_f16(value) : tsr_narrow_bf16(value);
}

static float widen(tsr_dtype type, uint16_t bits) {
  return type == TSR_F16 ? tsr_widen_f16(bits) : tsr_widen_bf16(bits);
}

static const tsr_dtype narrow_types[] = {TSR_F16, TSR_BF16};

/* f32 of all signs and exponents, and with fractions where rounding has something to decide. */
static void conversions(void **state) {
  (void)state;
  enum { COUNT = 512 * 67 };
  static float values[COUNT], rounded[COUNT], wide[COUNT];
  static uint16_t bits[COUNT];
  for (uint32_t i = 0; i < COUNT; i++) {
    const uint32_t at = i % 67, shift = at % 22;
    const uint32_t fraction = (at < 22 ? 1u << shift : at < 44 ? (3u << shift) : at * 0x1f3d5u) & 0x7fffffu;
    values[i] = tsr_float_of_bits((i / 67) << 23 | (at == 66 ? 0 : at == 65 ? 0x7fffffu : fraction));
  }
  for (int t = 0; t < 2; t++) {
    const tsr_dtype type = narrow_types[t];
    tsr_reduce_narrow(type, values, bits, COUNT);
    tsr_reduce_widen(type, bits, wide, COUNT);
    tsr_reduce_round(type, values, rounded, COUNT);
    for (int i = 0; i < COUNT; i++) {
      const uint16_t expected = narrow(type, values[i]);
      const float back = widen(type, expected);
      if (isnan(values[i])
              ? !isnan(wide[i]) || !isnan(rounded[i])
              : bits[i] != expected || memcmp(&wide[i], &back, 4) || memcmp(&rounded[i], &back, 4))
        fail_msg("%s: %.9g became 0x%04x, %.9g, %.9g; 0x%04x is right", tsr_dtype_name(type), values[i],
                 bits[i], wide[i], rounded[i], expected);
    }
  }
}

/* Small integers: every sum is exact in every type. */
static double value_of(int contribution, int64_t at) {
  return (double)((at * 5 + contribution * 3) % 15 - 7);
}

static void check(tsr_dtype dtype, tsr_dtype wire, int contributions, int own, int64_t count, int target_is,
                  tsr_reduction reduction) {
  static double data[5][3000], out[3000];
  const void *sources[5];
  for (int i = 0; i < contributions; i++) {
    sources[i] = data[i];
    for (int64_t k = 0; k < count; k++) tsr_number_store(data[i], i == own ? dtype : wire, k, value_of(i, k));
  }
  void *target = target_is < 0 ? out : data[target_is];
  tsr_reduce(&(tsr_reduction_job){.dtype = dtype,
                                  .wire = wire,
                                  .reduction = reduction,
                                  .contributions = contributions,
                                  .own = own,
                                  .rounded = dtype != wire,
                                  .sources = sources,
                                  .target = target,
                                  .count = count});
  for (int64_t k = 0; k < count; k++) {
    double expected = value_of(0, k);
    for (int i = 1; i < contributions; i++)
      expected = reduction == TSR_SUM ? expected + value_of(i, k) : fmax(expected, value_of(i, k));
    if (tsr_number_load(target, dtype, k) != expected)
      fail_msg("%s from %s, %d contributions, own %d, target %d: element %lld of %lld is %g, not %g",
               tsr_dtype_name(dtype), tsr_dtype_name(wire), contributions, own, target_is, (long long)k,
               (long long)count, tsr_number_load(target, dtype, k), expected);
  }
}

static void sums_and_maxima(void **state) {
  (void)state;
  const tsr_dtype types[][2] = {{TSR_F32, TSR_F32},   {TSR_F64, TSR_F64},  {TSR_F16, TSR_F16},
                                {TSR_BF16, TSR_BF16}, {TSR_F32, TSR_BF16}, {TSR_F32, TSR_F16}};
  const int64_t counts[] = {0, 1, 15, 16, 17, 1023, 1024, 1025, 2999};
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
      for (int way = 0; way < 4 * 5 * 2; way++) {
        const int contributions = 2 + way % 4, own = way / 4 % contributions;
        const tsr_reduction reduction = way / 20 ? TSR_MAX : TSR_SUM;
        check(types[t][0], types[t][1], contributions, own, counts[c], -1, reduction);
        check(types[t][0], types[t][1], contributions, own, counts[c], own, reduction);
      }
}

/* bf16 data is summed in f32: 256 + 1 + 1 is 258, though 256 + 1 is 256 in bf16. */
static void narrow_data_is_summed_in_f32(void **state) {
  (void)state;
  const uint16_t a = tsr_narrow_bf16(256), one = tsr_narrow_bf16(1);
  const void *sources[] = {&a, &one, &one};
  uint16_t sum;
  tsr_reduce(&(tsr_reduction_job){.dtype = TSR_BF16,
                                  .wire = TSR_BF16,
                                  .reduction = TSR_SUM,
                                  .contributions = 3,
                                  .sources = sources,
                                  .target = &sum,
                                  .count = 1});
  assert_true(tsr_widen_bf16(sum) == 258);
}

/* The own contribution is rounded as the others are, or not at all. */
static void own_is_rounded_if_asked(void **state) {
  (void)state;
  const float own = 1 + 0x1p-12f;
  const uint16_t other = tsr_narrow_bf16(1);
  const void *sources[] = {&own, &other};
  for (int rounded = 0; rounded < 2; rounded++) {
    float sum;
    tsr_reduce(&(tsr_reduction_job){.dtype = TSR_F32,
                                    .wire = TSR_BF16,
                                    .reduction = TSR_SUM,
                                    .contributions = 2,
                                    .rounded = rounded,
                                    .sources = sources,
                                    .target = &sum,
                                    .count = 1});
    assert_true(sum == (rounded ? 2 : 2 + 0x1p-12f));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(conversions),
      cmocka_unit_test(sums_and_maxima),
      cmocka_unit_test(narrow_data_is_summed_in_f32),
      cmocka_unit_test(own_is_rounded_if_asked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
