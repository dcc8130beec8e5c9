/* Room runtime/io: elements turned into one another, blocks of any strides, weights into whole numbers. */
#include "io_support.h"

#include <float.h>
#include <math.h>

#include "io/convert.h"
#include "io/quantise.h"

/* ---- conversions ---- */

/* By the definition of a binary format: an independent computation. */
static double value_by_definition(unsigned bits, int fraction) {
  int exponent_bits = 15 - fraction, bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = (int)(bits >> fraction & ((1u << exponent_bits) - 1));
  double digits = bits & ((1u << fraction) - 1), sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return digits != 0 ? NAN : sign * INFINITY;
  if (!exponent) return sign * ldexp(digits, 1 - bias - fraction);
  return sign * ldexp(digits + (1 << fraction), exponent - bias - fraction);
}

static void check_all_values(int fraction, float (*widen)(uint16_t), uint16_t (*narrow)(double)) {
  for (unsigned bits = 0; bits < 0x10000; bits++) {
    double value = widen((uint16_t)bits), wanted = value_by_definition(bits, fraction);
    if (isnan(wanted)) {
      assert_true(isnan(value));
      uint16_t back = narrow(value);
      assert_true(isnan(value_by_definition(back, fraction)));
      assert_int_equal(back & 0x8000, bits & 0x8000);
      continue;
    }
    assert_true(value == wanted && signbit(value) == signbit(wanted));
    assert_int_equal(narrow(value), bits);
  }
}

static void every_f16_and_bf16_widens_and_comes_back(void **state) {
  (void)state;
  check_all_values(10, tsr_widen_f16, tsr_narrow_f16);
  check_all_values(7, tsr_widen_bf16, tsr_narrow_bf16);
}

/* Around the middle between each number and the next in magnitude, for both signs. The number after the
 * largest is what would follow if the exponents went on: beyond the middle to it lies infinity. */
static void check_all_middles(int fraction, uint16_t (*narrow)(double)) {
  unsigned infinity = (0x7fffu >> fraction) << fraction;
  for (unsigned bits = 0; bits < infinity; bits++) {
    double here = value_by_definition(bits, fraction), next = value_by_definition(bits + 1, fraction);
    if (isinf(next)) next = 2 * here - value_by_definition(bits - 1, fraction);
    double middle = (here + next) / 2;
    for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000) {
      double s = sign ? -1 : 1;
      assert_int_equal(narrow(s * middle), sign | (bits + (bits & 1)));
      assert_int_equal(narrow(s * nextafter(middle, 0)), sign | bits);
      assert_int_equal(narrow(s * nextafter(middle, INFINITY)), sign | (bits + 1));
    }
  }
  assert_int_equal(narrow(INFINITY), infinity);
  assert_int_equal(narrow(-DBL_MAX), 0x8000 | infinity);
  assert_int_equal(narrow(-4.9e-324), 0x8000);
  uint64_t low_payload = UINT64_C(0x7ff0000000000001);
  double nan_with_low_payload; /* its payload does not fit, but it must not become infinity */
  memcpy(&nan_with_low_payload, &low_payload, sizeof low_payload);
  assert_true((narrow(NAN) & 0x7fff) > infinity);
  assert_true((narrow(nan_with_low_payload) & 0x7fff) > infinity);
}

static void narrowing_rounds_to_nearest_even_at_every_middle(void **state) {
  (void)state;
  check_all_middles(10, tsr_narrow_f16);
  check_all_middles(7, tsr_narrow_bf16);
}

static void f16_agrees_with_the_compilers_own(void **state) {
  (void)state;
#if defined(__FLT16_MANT_DIG__) && !defined(__clang__)
  __extension__ typedef _Float16 half;
  for (unsigned bits = 0; bits < 0x10000; bits++) {
    uint16_t stored = (uint16_t)bits;
    half value;
    memcpy(&value, &stored, 2);
    float wanted = (float)value, got = tsr_widen_f16(stored);
    if (wanted == wanted) assert_memory_equal(&wanted, &got, sizeof got);
  }
  random_state = 1;
  for (int i = 0; i < 1000000; i++) {
    uint64_t random = next_random(), exponent = 1023 - 30 + random % 50;
    uint64_t bits = (random & UINT64_C(0x800fffffffffffff)) | exponent << 52;
    if (i % 2) bits &= ~UINT64_C(0) << 41; /* near ties */
    double value;
    memcpy(&value, &bits, 8);
    half wanted = (half)value;
    uint16_t got = tsr_narrow_f16(value);
    assert_memory_equal(&wanted, &got, 2);
  }
#else
  skip();
#endif
}

static void the_number_below_is_below_and_the_next(void **state) {
  (void)state;
  assert_true(tsr_dtype_below(TSR_F64, 1) == 1 - 0x1p-53);
  assert_true(tsr_dtype_below(TSR_F32, 1) == 1 - 0x1p-24);
  assert_true(tsr_dtype_below(TSR_F16, 1) == 1 - 0x1p-11);
  assert_true(tsr_dtype_below(TSR_BF16, 1) == 1 - 0x1p-8);
  assert_true(tsr_dtype_below(TSR_F16, 1 + 0x1p-30) == 1);
  assert_true(tsr_dtype_below(TSR_F16, 1 - 0x1p-30) == 1 - 0x1p-11);
  assert_true(tsr_dtype_below(TSR_F16, 0) == -0x1p-24);
  assert_true(tsr_dtype_below(TSR_BF16, -1) == -1 - 0x1p-7);
  assert_true(tsr_dtype_below(TSR_F16, 1e9) == 65504);
}

/* Strides of a permuted, padded layout; gives the number of elements it spans. */
static int64_t random_strides(const tsr_shape *shape, int64_t *stride) {
  int order[TSR_AXES_MAX] = {0, 1, 2, 3};
  for (int i = shape->axes - 1; i > 0; i--) {
    int j = (int)below(i + 1), swap = order[i];
    order[i] = order[j];
    order[j] = swap;
  }
  int64_t span = below(4) ? 1 : 2;
  for (int i = 0; i < shape->axes; i++) {
    stride[order[i]] = span;
    span *= shape->extent[order[i]] + (below(3) ? 0 : 1);
  }
  return span;
}

static void convert_and_compare(const tsr_shape *shape, tsr_dtype from_dtype, tsr_dtype to_dtype) {
  tsr_array from = {.dtype = from_dtype, .shape = *shape}, to = {.dtype = to_dtype, .shape = *shape};
  size_t from_bytes = (size_t)random_strides(shape, from.stride) * tsr_dtype_bytes(from_dtype);
  size_t to_bytes = (size_t)random_strides(shape, to.stride) * tsr_dtype_bytes(to_dtype);
  uint8_t *unaligned = malloc(from_bytes + 1), *expected = malloc(to_bytes);
  from.data = malloc(from_bytes);
  to.data = malloc(to_bytes);
  memset(from.data, 0x55, from_bytes);
  memset(to.data, 0x77, to_bytes); /* what lies between the elements must stay */
  memset(expected, 0x77, to_bytes);
  tsr_array wanted = to;
  wanted.data = expected;
  int64_t index[TSR_AXES_MAX] = {0}, i = 0;
  do {
    set(&from, index, pattern(i));
    set(&wanted, index, pattern(i++));
  } while (next_index(shape, index));
  memcpy(unaligned + 1, from.data, from_bytes);
  tsr_array view = from;
  view.data = unaligned + 1;
  tsr_array_convert(&view, &to);
  assert_memory_equal(to.data, expected, to_bytes);
  free(from.data), free(to.data), free(unaligned), free(expected);
}

static void any_strides_and_dtypes_convert_as_a_plain_loop_does(void **state) {
  (void)state;
  random_state = 2;
  for (int round = 0; round < 3000; round++) {
    tsr_shape shape = {.axes = (int)below(TSR_AXES_MAX + 1)};
    for (int i = 0; i < shape.axes; i++) shape.extent[i] = 1 + below(shape.axes > 2 ? 7 : 75);
    convert_and_compare(&shape, all_dtypes[below(DTYPES)], all_dtypes[below(DTYPES)]);
  }
}

static void runs_give_the_same_bits_as_single_values(void **state) {
  (void)state;
  uint16_t *halves = malloc(0x10000 * sizeof *halves);
  float *floats = malloc(0x10000 * sizeof *floats);
  for (unsigned bits = 0; bits < 0x10000; bits++) halves[bits] = (uint16_t)bits;
  tsr_shape shape = tsr_shape_of(1, 0x10000, 0);
  for (int bf16 = 0; bf16 < 2; bf16++) {
    tsr_array from = tsr_array_dense(halves, bf16 ? TSR_BF16 : TSR_F16, &shape);
    tsr_array to = tsr_array_dense(floats, TSR_F32, &shape);
    tsr_array_convert(&from, &to);
    for (unsigned bits = 0; bits < 0x10000; bits++) {
      double wanted = value_by_definition(bits, bf16 ? 7 : 10);
      assert_true(isnan(wanted) ? isnan(floats[bits]) : floats[bits] == wanted);
      assert_int_equal(!!signbit(floats[bits]), bits >> 15);
    }
  }
  free(halves), free(floats);
}

/* A row longer than what is read at a time; whatever blocks are asked for, and in whatever order, a column
 * has one factor and its elements are whole parts of it. */
static void reals_become_whole_numbers(void **state) {
  (void)state;
  enum { ROWS = 5, COLS = 40000 };
  float *w = malloc(ROWS * COLS * sizeof *w), scales[COLS];
  double most[COLS] = {0};
  const tsr_shape whole = tsr_shape_of(2, ROWS, COLS);
  for (int i = 0; i < ROWS * COLS; i++) w[i] = (float)(below(2001) - 1000) * (float)(1 + i % COLS % 97);
  const tsr_array array = tsr_array_dense(w, TSR_F32, &whole);
  tsr_source *source = NULL;
  assert_ok(tsr_source_create(context, &source, &error_));
  assert_ok(tsr_source_add_array(source, "w", &array, &error_));
  assert_ok(tsr_quantise_most(source, "w", &whole, 3, 2, 0, COLS, most, &error_));
  assert_ok(tsr_quantise_most(source, "w", &whole, 0, 3, 100, COLS - 100, most + 100, &error_));
  assert_ok(tsr_quantise_most(source, "w", &whole, 0, 3, 0, 100, most, &error_));
  for (int j = 0; j < COLS; j++) {
    double expected = 0;
    for (int i = 0; i < ROWS; i++) expected = fmax(expected, fabs((double)w[i * COLS + j]));
    assert_true(most[j] == expected);
    scales[j] = tsr_quantise_scale(most[j]);
    assert_true(scales[j] == (float)(expected / 127));
  }
  int8_t *found = malloc(ROWS * COLS);
  memset(found, 99, ROWS * COLS);
  const tsr_shape shape = tsr_shape_of(2, 3, COLS - 1);
  tsr_array block = {
      .data = found, .dtype = TSR_I8, .shape = shape, .stride = {1, 5}}; /* by columns, with gaps */
  assert_ok(tsr_quantise_read(source, "w", &whole, (const int64_t[]){2, 1}, scales + 1, &block, &error_));
  for (int j = 0; j < COLS - 1; j++)
    for (int i = 0; i < 5; i++) {
      double exact = i < 3 ? (double)w[(i + 2) * COLS + j + 1] / (double)scales[j + 1] : 99;
      if (found[j * 5 + i] != rint(exact)) fail_msg("(%d, %d) is %d, of %g", i, j, found[j * 5 + i], exact);
    }
  tsr_source_destroy(&source);
  free(found);
  free(w);
}

/* The first element, by rows, that the other type turns into something else; what is as it was before passes.
 */
static void what_a_type_cannot_hold_is_refused(void **state) {
  (void)state;
  static const struct {
    tsr_dtype from, to;
    double lost, kept; /* kept: the largest of that type which rounds to a number */
    const char *fragment;
  } rows[] = {
      {TSR_F32, TSR_F16, 65520, 65519, "is 65520, but f16 holds at most 65504: keep it in bf16 or f32"},
      {TSR_F64, TSR_F16, -65520, -65519.99, "is -65520, but f16 holds"},
      {TSR_BF16, TSR_F16, 1e6, 65280, "is 999424, but f16 holds"},
      {TSR_F32, TSR_BF16, 3.4e38, 3.39e38,
       "is 3.39999995e+38, but bf16 holds at most 3.38953139e+38: keep it in f32"},
      {TSR_F64, TSR_BF16, 1e300, 3.39e38, "is 1e+300, but bf16"},
      {TSR_F64, TSR_F32, -1e39, -3.4e38, "is -1e+39, but f32 holds at most 3.40282347e+38: keep it in f64"},
      {TSR_F32, TSR_I8, 127.75, 127.25, "is 127.75, but i8 holds at most 127"},
      {TSR_F16, TSR_I8, -128, -127.375, "is -128, but i8 holds"},
      {TSR_F64, TSR_I8, NAN, 0, "but i8 holds"},
  };
  enum { ROWS = sizeof rows / sizeof *rows };
  double from_data[5 * 7], to_data[5 * 7];
  const tsr_shape shape = tsr_shape_of(2, 5, 7);
  const int64_t start[] = {100, 1000}, first[] = {2, 6}, second[] = {3, 0};
  for (int i = 0; i < ROWS; i++)
    for (int turned = 0; turned < 2; turned++) {
      tsr_error error = {0};
      tsr_array from = {.data = from_data, .dtype = rows[i].from, .shape = shape, .stride = {7, 1}};
      tsr_array to = {.data = to_data, .dtype = rows[i].to, .shape = shape, .stride = {1, 5}};
      if (!turned) to = tsr_array_dense(to_data, rows[i].to, &shape);
      int64_t index[2] = {0};
      do set(&from, index, pattern(index[0] * 7 + index[1]) / 2);
      while (next_index(&shape, index));
      set(&from, first, rows[i].kept);
      assert_ok(tsr_array_narrow(&from, &to, start, &error_));
      set(&from, second, rows[i].lost);
      tsr_status status = tsr_array_narrow(&from, &to, start, &error);
      expect(rows[i].fragment, status, &error, TSR_ERROR_INVALID_ARGUMENT, rows[i].fragment);
      expect("place", status, &error, TSR_ERROR_INVALID_ARGUMENT, "element (103, 1000) is ");
      set(&from, first, rows[i].lost);
      status = tsr_array_narrow(&from, &to, NULL, &error);
      expect("place", status, &error, TSR_ERROR_INVALID_ARGUMENT, "element (2, 6) is ");
    }
}

/* Infinities and NaN that are in the array already; types that hold all of the other. */
static void what_is_not_finite_already_passes(void **state) {
  (void)state;
  double from_data[4] = {0}, to_data[4];
  static const double values[] = {INFINITY, -INFINITY, NAN, 1};
  const tsr_shape shape = tsr_shape_of(1, 4, 0);
  for (int i = 0; i < DTYPES * DTYPES; i++) {
    tsr_array from = tsr_array_dense(from_data, all_dtypes[i / DTYPES], &shape);
    tsr_array to = tsr_array_dense(to_data, all_dtypes[i % DTYPES], &shape);
    if (from.dtype == TSR_I8 || to.dtype == TSR_I8) continue;
    for (int64_t k = 0; k < 4; k++) set(&from, &k, values[k]);
    assert_ok(tsr_array_narrow(&from, &to, NULL, &error_));
    for (int64_t k = 0; k < 4; k++) assert_true(get(&to, &k) == values[k] || (k == 2 && isnan(get(&to, &k))));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_f16_and_bf16_widens_and_comes_back),
      cmocka_unit_test(narrowing_rounds_to_nearest_even_at_every_middle),
      cmocka_unit_test(f16_agrees_with_the_compilers_own),
      cmocka_unit_test(the_number_below_is_below_and_the_next),
      cmocka_unit_test(any_strides_and_dtypes_convert_as_a_plain_loop_does),
      cmocka_unit_test(runs_give_the_same_bits_as_single_values),
      cmocka_unit_test(reals_become_whole_numbers),
      cmocka_unit_test(what_a_type_cannot_hold_is_refused),
      cmocka_unit_test(what_is_not_finite_already_passes),
  };
  return cmocka_run_group_tests_name("io convert", tests, make_folder, remove_folder);
}
