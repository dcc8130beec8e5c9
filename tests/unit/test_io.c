/* Room runtime/io: conversions, random contents, files of tensors, sources. Files are made in a folder of
 * their own below $TMPDIR; the MiniLM fixture is found in $TSR_TEST_DATA or below TSR_SOURCE_ROOT. */
#include "io_support.h"

#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/narrow.h"
#include "io/convert.h"
#include "io/philox.h"
#include "io/quantise.h"

enum { DTYPES = TSR_DTYPE_COUNT };
static const tsr_dtype all_dtypes[DTYPES] = {TSR_F32, TSR_F64, TSR_F16, TSR_BF16, TSR_I8};

static double get(const tsr_array *array, const int64_t *index) {
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

static void set(const tsr_array *array, const int64_t *index, double value) {
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
static bool next_index(const tsr_shape *shape, int64_t *index) {
  for (int axis = shape->axes - 1; axis >= 0; axis--) {
    if (++index[axis] < shape->extent[axis]) return true;
    index[axis] = 0;
  }
  return false;
}

/* Small whole numbers are exact in all types. */
static double pattern(int64_t i) {
  return (double)(i * 37 % 251) - 125;
}

/* A source with one file entry "v". */
static tsr_source *source_of(const char *path, const char *tensor, bool transposed) {
  tsr_source *source;
  assert_ok(tsr_source_create(context, &source, &error_));
  assert_ok(tsr_source_add_file(source, "v", path, tensor, transposed, &error_));
  return source;
}

static int files_in_folder(const char *containing) {
  int count = 0;
  DIR *stream = opendir(folder);
  for (struct dirent *item; (item = readdir(stream));) count += strstr(item->d_name, containing) != NULL;
  closedir(stream);
  return count;
}

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

/* ---- random contents ---- */

static void philox_matches_the_vectors_of_random123(void **state) {
  (void)state;
  static const struct {
    uint32_t counter[4], key[2], wanted[4];
  } vectors[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
    uint32_t out[4];
    tsr_philox_block(vectors[i].counter, vectors[i].key, out);
    assert_memory_equal(out, vectors[i].wanted, sizeof out);
  }
}

static void check_random_slices(tsr_source *source, const char *name, tsr_dtype dtype) {
  enum { ROWS = 61, COLUMNS = 47 };
  static uint64_t whole_data[ROWS * COLUMNS], block_data[ROWS * COLUMNS];
  tsr_shape shape = tsr_shape_of(2, ROWS, COLUMNS);
  tsr_array whole = tsr_array_dense(whole_data, dtype, &shape);
  int64_t start[2] = {0, 0};
  assert_ok(tsr_source_read(source, name, &shape, start, &whole, &error_));
  for (int round = 0; round < 60; round++) {
    start[0] = below(ROWS), start[1] = below(COLUMNS);
    tsr_shape part = tsr_shape_of(2, 1 + below(ROWS - start[0]), 1 + below(COLUMNS - start[1]));
    tsr_array block = tsr_array_dense(block_data, dtype, &part);
    if (round % 2) block.stride[0] = 1, block.stride[1] = part.extent[0];
    assert_ok(tsr_source_read(source, name, &shape, start, &block, &error_));
    int64_t index[2] = {0, 0};
    do {
      int64_t at[2] = {start[0] + index[0], start[1] + index[1]};
      assert_true(get(&block, index) == get(&whole, at));
    } while (next_index(&part, index));
  }
}

static void random_contents_do_not_depend_on_how_they_are_sliced(void **state) {
  (void)state;
  tsr_source *source;
  random_state = 3;
  assert_ok(tsr_source_create(context, &source, &error_));
  assert_ok(tsr_source_add_random(source, "u", TSR_RANDOM_UNIFORM, 7, -1, 1, &error_));
  assert_ok(tsr_source_add_random(source, "i", TSR_RANDOM_INTEGER, 7, -3, 3, &error_));
  for (int i = 0; i < DTYPES; i++) {
    check_random_slices(source, "u", all_dtypes[i]);
    check_random_slices(source, "i", all_dtypes[i]);
  }
  tsr_source_destroy(&source);
}

static void read_random(const char *name, tsr_random kind, uint64_t seed, double low, double high,
                        tsr_dtype dtype, void *data, int64_t count) {
  tsr_source *source;
  tsr_shape shape = tsr_shape_of(1, count, 0);
  tsr_array out = tsr_array_dense(data, dtype, &shape);
  int64_t start = 0;
  assert_ok(tsr_source_create(context, &source, &error_));
  assert_ok(tsr_source_add_random(source, name, kind, seed, low, high, &error_));
  assert_ok(tsr_source_read(source, name, &shape, &start, &out, &error_));
  tsr_source_destroy(&source);
}

static void random_contents_follow_name_seed_and_range(void **state) {
  (void)state;
  enum { COUNT = 70000 };
  double *a = malloc(COUNT * sizeof *a), *b = malloc(COUNT * sizeof *b);
  read_random("w", TSR_RANDOM_UNIFORM, 1, 2, 4, TSR_F64, a, COUNT);
  read_random("w", TSR_RANDOM_UNIFORM, 1, 2, 4, TSR_F64, b, COUNT);
  assert_memory_equal(a, b, COUNT * sizeof *a);
  double sum = 0, squares = 0;
  for (int i = 0; i < COUNT; i++) {
    assert_true(a[i] >= 2 && a[i] < 4);
    sum += a[i], squares += (a[i] - 3) * (a[i] - 3);
  }
  assert_true(fabs(sum / COUNT - 3) < 0.01 && fabs(squares / COUNT - 1 / 3.0) < 0.01);
  read_random("w", TSR_RANDOM_UNIFORM, 2, 2, 4, TSR_F64, b, COUNT);
  assert_memory_not_equal(a, b, COUNT * sizeof *a);
  read_random("x", TSR_RANDOM_UNIFORM, 1, 2, 4, TSR_F64, b, COUNT);
  assert_memory_not_equal(a, b, COUNT * sizeof *a);
  int seen[7] = {0};
  read_random("w", TSR_RANDOM_INTEGER, 1, -3.5, 3.5, TSR_F64, a, COUNT);
  for (int i = 0; i < COUNT; i++) {
    assert_true(a[i] == floor(a[i]) && fabs(a[i]) <= 3);
    seen[(int)a[i] + 3]++;
  }
  for (int i = 0; i < 7; i++) assert_in_range(seen[i], COUNT / 7 * 0.95, COUNT / 7 * 1.05);
  free(a), free(b);
}

/* 2 - 2^-12 and more would round to 2 in f16. */
static void uniform_never_rounds_up_to_high(void **state) {
  (void)state;
  enum { COUNT = 100000 };
  uint16_t *half = malloc(COUNT * sizeof *half);
  unsigned largest = 0;
  read_random("w", TSR_RANDOM_UNIFORM, 1, 1, 2, TSR_F16, half, COUNT);
  for (int i = 0; i < COUNT; i++) largest = half[i] > largest ? half[i] : largest;
  assert_int_equal(largest, 0x3fff);
  free(half);
}

static void a_bad_random_range_is_refused(void **state) {
  (void)state;
  static const struct {
    tsr_random kind;
    double low, high;
    const char *fragment;
  } rows[] = {
      {TSR_RANDOM_UNIFORM, 1, 1, "empty"},          {TSR_RANDOM_UNIFORM, 2, 1, "empty"},
      {TSR_RANDOM_UNIFORM, NAN, 1, "finite"},       {TSR_RANDOM_UNIFORM, -1e308, 1e308, "finite"},
      {TSR_RANDOM_INTEGER, 0, 0x1p32, "2^32"},      {TSR_RANDOM_INTEGER, 0.2, 0.8, "2^32"},
      {TSR_RANDOM_INTEGER, 0x1p54, 0x1p54, "2^53"}, {(tsr_random)9, 0, 1, "kind is 9"},
  };
  tsr_source *source;
  assert_ok(tsr_source_create(context, &source, &error_));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    tsr_error error;
    tsr_status status =
        tsr_source_add_random(source, "r", rows[i].kind, 1, rows[i].low, rows[i].high, &error);
    expect(rows[i].fragment, status, &error, TSR_ERROR_INVALID_ARGUMENT, rows[i].fragment);
  }
  assert_false(tsr_source_has(source, "r"));
  assert_ok(tsr_source_add_random(source, "r", TSR_RANDOM_INTEGER, 1, 0, 0x1p32 - 1, &error_));
  tsr_source_destroy(&source);
}

/* ---- files: what is written is read ---- */

static void the_written_bytes_are_those_of_the_format(void **state) {
  (void)state;
  char path[PATH_BYTES];
  float b[2] = {1, -2};
  uint16_t a[3] = {0x3c00, 0x4000, 0x4200};
  tsr_shape three = tsr_shape_of(1, 3, 0), column = tsr_shape_of(2, 2, 1), empty = tsr_shape_of(2, 0, 5);
  const char *names[] = {"b", "a \"q\"", "e"};
  tsr_array arrays[] = {tsr_array_dense(b, TSR_F32, &column), tsr_array_dense(a, TSR_F16, &three),
                        tsr_array_dense(NULL, TSR_BF16, &empty)};
  static const char header[] = "{\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
                               "\"a \\\"q\\\"\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[8,14]},"
                               "\"e\":{\"dtype\":\"BF16\",\"shape\":[0,5],\"data_offsets\":[14,14]}}";
  assert_ok(tsr_file_write(path_of(path, "bytes.safetensors"), names, arrays, 3, &error_));
  uint8_t bytes[512];
  FILE *file = fopen(path, "rb");
  size_t count = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  uint64_t length;
  memcpy(&length, bytes, 8);
  assert_int_equal(length % 8, 0);
  assert_in_range(length, sizeof header - 1, sizeof header + 6);
  assert_int_equal(count, 8 + length + sizeof b + sizeof a);
  assert_memory_equal(bytes + 8, header, sizeof header - 1);
  for (size_t i = sizeof header - 1; i < length; i++) assert_int_equal(bytes[8 + i], ' ');
  assert_memory_equal(bytes + 8 + length, b, sizeof b);
  assert_memory_equal(bytes + 8 + length + sizeof b, a, sizeof a);
  struct stat info;
  mode_t mask = umask(0);
  umask(mask);
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_mode & 0777, 0666 & ~mask);
}

/* Elements of a matrix in a file against its pattern. */
static void check_whole(const char *path, const char *tensor, const tsr_shape *shape, tsr_dtype dtype) {
  tsr_source *source = source_of(path, tensor, false);
  int64_t start[TSR_AXES_MAX] = {0}, index[TSR_AXES_MAX] = {0}, i = 0;
  tsr_array out = tsr_array_dense(malloc((size_t)tsr_shape_count(shape) * 8), dtype, shape);
  assert_ok(tsr_source_read(source, "v", shape, start, &out, &error_));
  do assert_true(get(&out, index) == pattern(i++));
  while (next_index(shape, index));
  free(out.data);
  tsr_source_destroy(&source);
}

static void every_dtype_goes_out_and_comes_back_as_every_dtype(void **state) {
  (void)state;
  char path[PATH_BYTES];
  static const char *const names[DTYPES] = {"f32", "f64", "f16", "bf16", "i8"};
  tsr_shape shape = {.axes = 3, .extent = {3, 5, 7}};
  static uint64_t data[DTYPES][3 * 5 * 7];
  tsr_array arrays[DTYPES];
  for (int d = 0; d < DTYPES; d++) {
    int64_t index[TSR_AXES_MAX] = {0}, i = 0;
    arrays[d] = tsr_array_dense(data[d], all_dtypes[d], &shape);
    do set(&arrays[d], index, pattern(i++));
    while (next_index(&shape, index));
  }
  assert_ok(tsr_file_write(path_of(path, "dtypes.safetensors"), names, arrays, DTYPES, &error_));
  for (int from = 0; from < DTYPES; from++)
    for (int to = 0; to < DTYPES; to++) check_whole(path, names[from], &shape, all_dtypes[to]);
}

static void large_strided_arrays_are_written_dense(void **state) {
  (void)state;
  enum { ROWS = 1000, COLUMNS = 1300 }; /* more than the writer's chunk */
  char path[PATH_BYTES];
  tsr_shape shape = tsr_shape_of(2, ROWS, COLUMNS);
  tsr_array array = {
      .data = malloc(ROWS * COLUMNS * 4), .dtype = TSR_F32, .shape = shape, .stride = {1, ROWS}};
  int64_t index[2] = {0, 0}, i = 0;
  do set(&array, index, pattern(i++));
  while (next_index(&shape, index));
  const char *name = "t";
  assert_ok(tsr_file_write(path_of(path, "strided.safetensors"), &name, &array, 1, &error_));
  check_whole(path, "t", &shape, TSR_F32);
  free(array.data);
}

static void scalars_and_empty_files_round_trip(void **state) {
  (void)state;
  char path[PATH_BYTES];
  double value = 2.5;
  float out = 0;
  tsr_shape scalar = {.axes = 0}, shape;
  tsr_array array = tsr_array_dense(&value, TSR_F64, &scalar), view = tsr_array_dense(&out, TSR_F32, &scalar);
  const char *name = "s";
  assert_ok(tsr_file_write(path_of(path, "scalar.safetensors"), &name, &array, 1, &error_));
  tsr_source *source = source_of(path, "s", false);
  int64_t start[1] = {0};
  assert_ok(tsr_source_read(source, "v", &scalar, start, &view, &error_));
  assert_true(out == 2.5f);
  tsr_source_destroy(&source);
  assert_ok(tsr_file_shape(context, path, "s", &shape, &error_));
  assert_int_equal(shape.axes, 0);
  tsr_error error;
  assert_ok(tsr_file_write(path_of(path, "none.safetensors"), NULL, NULL, 0, &error_));
  tsr_status status = tsr_file_shape(context, path, "s", &shape, &error);
  expect("empty", status, &error, TSR_ERROR_NOT_FOUND, "nearest: none");
}

static void bad_arrays_and_names_are_not_written(void **state) {
  (void)state;
  char path[PATH_BYTES];
  float data[4] = {0};
  tsr_shape good = tsr_shape_of(1, 4, 0), negative = tsr_shape_of(1, -1, 0), many = {.axes = 5};
  tsr_shape huge = tsr_shape_of(2, INT64_C(1) << 40, INT64_C(1) << 22);
  struct {
    const char *name, *fragment;
    tsr_array array;
  } rows[] = {
      {"__metadata__", "reserved", tsr_array_dense(data, TSR_F32, &good)},
      {"\xff", "UTF-8", tsr_array_dense(data, TSR_F32, &good)},
      {"first", "two tensors", tsr_array_dense(data, TSR_F32, &good)},
      {"d", "dtype is 9", tsr_array_dense(data, (tsr_dtype)9, &good)},
      {"n", "negative", tsr_array_dense(data, TSR_F32, &negative)},
      {"h", "64 bits", tsr_array_dense(data, TSR_F32, &huge)},
      {"m", "5 axes", {.data = data, .dtype = TSR_F32, .shape = many}},
      {"null", "data is NULL", tsr_array_dense(NULL, TSR_F32, &good)},
  };
  path_of(path, "never.safetensors");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    tsr_error error;
    const char *names[] = {"first", rows[i].name};
    tsr_array arrays[] = {tsr_array_dense(data, TSR_F32, &good), rows[i].array};
    tsr_status status = tsr_file_write(path, names, arrays, 2, &error);
    expect(rows[i].fragment, status, &error, TSR_ERROR_INVALID_ARGUMENT, rows[i].fragment);
    assert_non_null(strstr(error.message, path));
  }
  tsr_error error;
  tsr_status status = tsr_file_write(path_of(path, "never.npy"), NULL, NULL, 0, &error);
  expect("npy", status, &error, TSR_ERROR_INVALID_ARGUMENT, ".npy");
  assert_int_equal(files_in_folder("never"), 0);
}

static void a_failed_write_leaves_the_old_file_and_nothing_else(void **state) {
  (void)state;
  enum { COUNT = 200000 };
  char path[PATH_BYTES];
  float *data = calloc(COUNT, sizeof *data);
  tsr_shape small = tsr_shape_of(1, 3, 0), large = tsr_shape_of(1, COUNT, 0), shape;
  tsr_array array = tsr_array_dense(data, TSR_F32, &small);
  const char *name = "a";
  assert_ok(tsr_file_write(path_of(path, "old.safetensors"), &name, &array, 1, &error_));
  struct rlimit old, tight;
  getrlimit(RLIMIT_FSIZE, &old);
  tight = old;
  tight.rlim_cur = 4096;
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &tight);
  array = tsr_array_dense(data, TSR_F32, &large);
  tsr_error error;
  tsr_status status = tsr_file_write(path, &name, &array, 1, &error);
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  expect("file size limit", status, &error, TSR_ERROR_IO, "cannot write");
  assert_string_equal(error.domain, "errno");
  assert_int_equal(files_in_folder("old.safetensors"), 1);
  assert_ok(tsr_file_shape(context, path, "a", &shape, &error_));
  assert_int_equal(shape.extent[0], 3);
  status = tsr_file_write(path_of(path, "no/such/folder.safetensors"), &name, &array, 1, &error);
  expect("no folder", status, &error, TSR_ERROR_IO, "No such file");
  free(data);
}

/* Not /dev/full itself: were this broken, the machine would lose it. */
static void pipes_and_links_stay_what_they_are(void **state) {
  (void)state;
  char path[PATH_BYTES], special[PATH_BYTES], received[8];
  struct stat facts;
  float data[3] = {0};
  tsr_shape shape = tsr_shape_of(1, 3, 0), held;
  tsr_array array = tsr_array_dense(data, TSR_F32, &shape);
  const char *name = "a";
  assert_int_equal(mkfifo(path_of(special, "pipe.safetensors"), 0600), 0);
  int pipe_end = open(special, O_RDWR);
  assert_ok(tsr_file_write(special, &name, &array, 1, &error_));
  assert_int_equal(read(pipe_end, received, sizeof received), sizeof received);
  close(pipe_end);
  assert_true(lstat(special, &facts) == 0 && S_ISFIFO(facts.st_mode));
  assert_ok(tsr_file_write(path_of(path, "linked.safetensors"), NULL, NULL, 0, &error_));
  assert_int_equal(symlink(path, path_of(special, "link.safetensors")), 0);
  assert_ok(tsr_file_write(special, &name, &array, 1, &error_));
  assert_true(lstat(special, &facts) == 0 && S_ISLNK(facts.st_mode));
  assert_ok(tsr_file_shape(context, path, "a", &held, &error_));
}

static void npy_files_of_all_versions_are_read(void **state) {
  (void)state;
  static const float f4[6] = {-125, -88, -51, -14, 23, 60}; /* pattern(0 .. 5) */
  static const double f8[6] = {-125, -88, -51, -14, 23, 60};
  static const int8_t i1[6] = {-125, -88, -51, -14, 23, 60};
  uint16_t f2[6];
  for (int i = 0; i < 6; i++) f2[i] = tsr_narrow_f16(f8[i]);
  const struct {
    int major;
    const char *header;
    const void *data;
    size_t bytes;
  } rows[] = {
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", f4, sizeof f4},
      {2, "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3)}\n", f8, sizeof f8},
      {3, "{\"shape\":(2,3,),\"fortran_order\":False,\"descr\":\"<f2\"}", f2, sizeof f2},
      {1, "{'descr': '|i1', 'fortran_order': False, 'shape': (2, 3), }\n", i1, sizeof i1},
  };
  char path[PATH_BYTES];
  tsr_shape shape = tsr_shape_of(2, 2, 3), held;
  path_of(path, "good.npy");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    write_npy(path, rows[i].major, rows[i].header, rows[i].data, rows[i].bytes);
    assert_ok(tsr_file_shape(context, path, NULL, &held, &error_));
    assert_int_equal(held.extent[1], 3);
    check_whole(path, NULL, &shape, TSR_F32);
  }
  write_npy(path, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n", f4, 4);
  assert_ok(tsr_file_shape(context, path, NULL, &held, &error_));
  assert_int_equal(held.axes, 0);
  write_npy(path, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }\n", f4, sizeof f4);
  assert_ok(tsr_file_shape(context, path, NULL, &held, &error_));
  assert_int_equal(held.extent[0], 6);
}

/* ---- slices ---- */

enum { OUT = 70, IN = 45 };

/* Blocks of a matrix against its pattern, into padded rows whose padding must stay. */
static void check_blocks(const char *path, bool transposed, tsr_dtype dtype) {
  tsr_source *source = source_of(path, "w", transposed);
  static uint64_t data[OUT * (OUT + 3)];
  tsr_shape whole = transposed ? tsr_shape_of(2, IN, OUT) : tsr_shape_of(2, OUT, IN);
  for (int round = 0; round < 100; round++) {
    int64_t start[2] = {below(whole.extent[0]), below(whole.extent[1])};
    if (!round) start[0] = start[1] = 0;
    tsr_shape part = tsr_shape_of(2, whole.extent[0] - start[0], whole.extent[1] - start[1]);
    if (round) part = tsr_shape_of(2, below(part.extent[0] + 1), below(part.extent[1] + 1));
    int64_t padded = part.extent[1] + 3;
    tsr_array block = {.data = data, .dtype = dtype, .shape = part, .stride = {padded, 1}};
    memset(data, 0, sizeof data);
    assert_ok(tsr_source_read(source, "v", &whole, start, &block, &error_));
    tsr_array all = block;
    for (int64_t i = 0; i < part.extent[0]; i++)
      for (int64_t j = 0; j < padded; j++) {
        int64_t index[2] = {i, j}, row = start[0] + i, column = start[1] + j;
        double wanted = j >= part.extent[1] ? 0 : pattern(transposed ? column * IN + row : row * IN + column);
        assert_true(get(&all, index) == wanted);
      }
  }
  tsr_source_destroy(&source);
}

static void slices_equal_the_same_part_of_the_whole(void **state) {
  (void)state;
  char path[PATH_BYTES];
  static uint64_t data[OUT * IN];
  tsr_shape shape = tsr_shape_of(2, OUT, IN);
  const char *name = "w";
  random_state = 4;
  path_of(path, "slices.safetensors");
  for (int from = 0; from < DTYPES; from++) {
    tsr_array array = tsr_array_dense(data, all_dtypes[from], &shape);
    int64_t index[2] = {0, 0}, i = 0;
    do set(&array, index, pattern(i++));
    while (next_index(&shape, index));
    assert_ok(tsr_file_write(path, &name, &array, 1, &error_));
    for (int to = 0; to < DTYPES; to++) {
      check_blocks(path, false, all_dtypes[to]);
      check_blocks(path, true, all_dtypes[to]);
    }
  }
}

/* ---- sources ---- */

static void arrays_and_constants_are_sources(void **state) {
  (void)state;
  float data[12], out[4];
  for (int i = 0; i < 12; i++) data[i] = (float)i;
  tsr_shape shape = tsr_shape_of(2, 3, 4), part = tsr_shape_of(2, 2, 2);
  tsr_array array = {.data = data, .dtype = TSR_F32, .shape = shape, .stride = {1, 3}};
  tsr_array block = tsr_array_dense(out, TSR_F32, &part);
  int64_t start[2] = {1, 2};
  tsr_source *source;
  assert_ok(tsr_source_create(context, &source, &error_));
  assert_ok(tsr_source_add_array(source, "a", &array, &error_));
  assert_ok(tsr_source_add_constant(source, "c", 0.1, &error_));
  assert_true(tsr_source_has(source, "a") && tsr_source_has(source, "c") && !tsr_source_has(source, "b"));
  assert_false(tsr_source_has(source, NULL));
  assert_int_equal(tsr_source_add_constant(source, NULL, 1, NULL), TSR_ERROR_INVALID_ARGUMENT);
  assert_int_equal(tsr_source_add_constant(source, "", 1, NULL), TSR_ERROR_INVALID_ARGUMENT);
  assert_int_equal(tsr_source_add_array(source, "d", NULL, NULL), TSR_ERROR_INVALID_ARGUMENT);
  assert_int_equal(tsr_source_add_file(source, "d", NULL, "d", false, NULL), TSR_ERROR_INVALID_ARGUMENT);
  assert_ok(tsr_source_read(source, "a", &shape, start, &block, &error_));
  assert_true(out[0] == 7 && out[1] == 10 && out[2] == 8 && out[3] == 11);
  assert_ok(tsr_source_read(source, "c", &shape, start, &block, &error_));
  for (int i = 0; i < 4; i++) assert_true(out[i] == 0.1f);
  tsr_source_destroy(&source);
  tsr_source_destroy(&source);
  assert_null(source);
}

static void what_does_not_fit_a_source_is_refused(void **state) {
  (void)state;
  char path[PATH_BYTES];
  static const char header[] = "{\"weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                               "\"ids\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[24,32]},"
                               "\"deep\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,2],\"data_offsets\":[32,40]},"
                               "\"bi\\nas\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[40,48]}}";
  write_safetensors(path_of(path, "refuse.safetensors"), header, sizeof header - 1, 48);
  tsr_source *source = source_of(path, "weight", true);
  assert_ok(tsr_source_add_file(source, "ids", path, "ids", false, &error_));
  assert_ok(tsr_source_add_file(source, "deep", path, "deep", false, &error_));
  tsr_error error;
#define REFUSED(call, status, fragment) expect(#call, call, &error, status, fragment)
  REFUSED(tsr_source_add_file(source, "b", path, "wieght", false, &error), TSR_ERROR_NOT_FOUND, "weight");
  assert_non_null(strstr(error.message, path));
  REFUSED(tsr_source_add_file(source, "b", path, "bias", false, &error), TSR_ERROR_NOT_FOUND, "bi?as");
  REFUSED(tsr_source_add_file(source, "b", path, NULL, false, &error), TSR_ERROR_INVALID_ARGUMENT, "NULL");
  REFUSED(tsr_source_add_file(source, "b", path, "bi\nas", true, &error), TSR_ERROR_INVALID_ARGUMENT,
          "1 axes");
  REFUSED(tsr_source_add_file(source, "v", path, "weight", true, &error), TSR_ERROR_INVALID_ARGUMENT,
          "already");
  REFUSED(tsr_file_shape(context, path, "deep", &(tsr_shape){0}, &error), TSR_ERROR_UNSUPPORTED, "5 axes");
  float out[8];
  tsr_shape file = tsr_shape_of(2, 2, 3), value = tsr_shape_of(2, 3, 2), one = tsr_shape_of(1, 1, 0);
  tsr_array block = tsr_array_dense(out, TSR_F32, &value), vector = tsr_array_dense(out, TSR_F32, &one);
  int64_t start[TSR_AXES_MAX] = {0}, late[TSR_AXES_MAX] = {1, 0}, early[TSR_AXES_MAX] = {0, -1};
  assert_ok(tsr_source_read(source, "v", &value, start, &block, &error_));
  REFUSED(tsr_source_read(source, "w", &value, start, &block, &error), TSR_ERROR_NOT_FOUND, "nearest: v");
  REFUSED(tsr_source_read(source, "v", &value, late, &block, &error), TSR_ERROR_INVALID_ARGUMENT,
          "outside of [3, 2]");
  REFUSED(tsr_source_read(source, "v", &value, early, &block, &error), TSR_ERROR_INVALID_ARGUMENT, "outside");
  REFUSED(tsr_source_read(source, "v", &one, start, &block, &error), TSR_ERROR_INVALID_ARGUMENT, "axes");
  block.shape.extent[0] = 2;
  REFUSED(tsr_source_read(source, "v", &file, start, &block, &error), TSR_ERROR_INVALID_ARGUMENT,
          "[2, 3], but");
  assert_non_null(strstr(error.message, "holds [3, 2]"));
  block.data = NULL;
  REFUSED(tsr_source_read(source, "v", &value, start, &block, &error), TSR_ERROR_INVALID_ARGUMENT,
          "data is NULL");
  REFUSED(tsr_source_read(source, "ids", &one, start, &vector, &error), TSR_ERROR_UNSUPPORTED, "I64");
  REFUSED(tsr_source_read(source, "deep", &one, start, &vector, &error), TSR_ERROR_UNSUPPORTED, "5 axes");
  tsr_array array = tsr_array_dense(out, TSR_F32, &one);
  assert_ok(tsr_source_add_array(source, "array", &array, &error_));
  vector.shape.extent[0] = 0;
  REFUSED(tsr_source_read(source, "array", &(tsr_shape){.axes = 1, .extent = {2}}, start, &vector, &error),
          TSR_ERROR_INVALID_ARGUMENT, "[2], but its array holds [1]");
  array.dtype = (tsr_dtype)7;
  REFUSED(tsr_source_add_array(source, "bad", &array, &error), TSR_ERROR_INVALID_ARGUMENT, "dtype is 7");
  assert_int_equal(tsr_source_read(source, "w", &value, start, &block, NULL), TSR_ERROR_NOT_FOUND);
  tsr_source_destroy(&source);
}

/* How often the process has path mapped, by the kernel's own list; -1 where there is none. */
static int mappings_of(const char *path) {
  char line[2 * PATH_BYTES];
  int count = 0;
  FILE *stream = fopen("/proc/self/maps", "r");
  if (!stream) return -1;
  while (fgets(line, sizeof line, stream)) count += strstr(line, path) != NULL;
  fclose(stream);
  return count;
}

static void a_file_is_mapped_once_for_many_names(void **state) {
  (void)state;
  char path[PATH_BYTES], name[16];
  static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
  write_safetensors(path_of(path, "once.safetensors"), header, sizeof header - 1, 4);
  tsr_source *source;
  mapped_lines = 0;
  assert_ok(tsr_source_create(context, &source, &error_));
  for (int i = 0; i < 100; i++) {
    snprintf(name, sizeof name, "n%d", i * 37 % 100);
    assert_ok(tsr_source_add_file(source, name, path, "a", false, &error_));
  }
  assert_int_equal(mapped_lines, 1);
  assert_int_equal(abs(mappings_of(path)), 1);
  for (int i = 0; i < 100; i++) {
    snprintf(name, sizeof name, "n%d", i);
    assert_true(tsr_source_has(source, name));
  }
  tsr_source_destroy(&source);
  assert_true(mappings_of(path) <= 0);
}

static void every_failed_allocation_is_reported_and_leaks_nothing(void **state) {
  (void)state;
  char path[PATH_BYTES], copy[PATH_BYTES];
  float data[4] = {1, 2, 3, 4}, out[4];
  tsr_shape shape = tsr_shape_of(2, 2, 2);
  tsr_array array = tsr_array_dense(data, TSR_F32, &shape), view = tsr_array_dense(out, TSR_F32, &shape);
  const char *name = "a";
  int64_t start[2] = {0, 0};
  path_of(path, "memory.safetensors");
  path_of(copy, "memory-copy.safetensors");
  assert_ok(tsr_file_write(path, &name, &array, 1, &error_));
  int failures = 0;
  for (int after = 0; after < 40; after++) {
    tsr_error error = {0};
    tsr_source *source = NULL;
    tsr_memory_fail_after(after);
    tsr_status status = tsr_source_create(context, &source, &error);
    if (!status) status = tsr_source_add_file(source, "v", path, "a", true, &error);
    if (!status) status = tsr_source_add_array(source, "w", &array, &error);
    if (!status) status = tsr_source_read(source, "v", &shape, start, &view, &error);
    if (!status) status = tsr_file_write(copy, &name, &view, 1, &error);
    tsr_memory_fail_after(-1);
    tsr_source_destroy(&source);
    failures += status != TSR_OK;
    if (status) expect("allocation", status, &error, TSR_ERROR_OUT_OF_MEMORY, "no memory");
  }
  assert_in_range(failures, 8, 39);
  assert_int_equal(files_in_folder("tmp-"), 0);
}

/* ---- the fixture ---- */

static void fixture_path(char *path, const char *name) {
  const char *data = getenv("TSR_TEST_DATA");
#ifdef TSR_SOURCE_ROOT
  if (!data) data = TSR_SOURCE_ROOT "/tests/data";
#endif
  if (!data) data = "tests/data";
  snprintf(path, PATH_BYTES, "%s/minilm_ffn/%s", data, name);
}

static double *read_fixture(const char *name, const char *tensor, bool transposed, int axes, int64_t e0,
                            int64_t e1) {
  char path[PATH_BYTES];
  fixture_path(path, name);
  tsr_shape shape = tsr_shape_of(axes, e0, axes == 2 ? e1 : 0);
  int64_t start[2] = {0, 0};
  tsr_array out = tsr_array_dense(malloc((size_t)(e0 * e1) * sizeof(double)), TSR_F64, &shape);
  tsr_source *source = source_of(path, tensor, transposed);
  assert_ok(tsr_source_read(source, "v", &shape, start, &out, &error_));
  tsr_source_destroy(&source);
  return out.data;
}

/* y = W2 gelu(W1 x + b1) + b2 of some rows, with weights read transposed, against the stored f64 output. */
static void the_minilm_block_gives_its_recorded_output(void **state) {
  (void)state;
  enum { TOKENS = 64, WIDTH = 384, HIDDEN = 1536 };
#define LAYER "encoder.layer.0."
  double *w1 = read_fixture("weights.safetensors", LAYER "intermediate.dense.weight", true, 2, WIDTH, HIDDEN);
  double *b1 = read_fixture("weights.safetensors", LAYER "intermediate.dense.bias", false, 1, HIDDEN, 1);
  double *w2 = read_fixture("weights.safetensors", LAYER "output.dense.weight", true, 2, HIDDEN, WIDTH);
  double *b2 = read_fixture("weights.safetensors", LAYER "output.dense.bias", false, 1, WIDTH, 1);
  double *input = read_fixture("reference.safetensors", "input", false, 2, TOKENS, WIDTH);
  double *output = read_fixture("reference.safetensors", "output", false, 2, TOKENS, WIDTH);
  double *target = read_fixture("reference.safetensors", "target", false, 2, TOKENS, WIDTH);
  for (int token = 0; token < TOKENS; token += 21) {
    double hidden[HIDDEN], y[WIDTH];
    memcpy(hidden, b1, sizeof hidden);
    memcpy(y, b2, sizeof y);
    for (int k = 0; k < WIDTH; k++)
      for (int j = 0; j < HIDDEN; j++) hidden[j] += input[token * WIDTH + k] * w1[k * HIDDEN + j];
    for (int k = 0; k < HIDDEN; k++) {
      double gelu = hidden[k] * (0.5 + 0.5 * erf(hidden[k] / sqrt(2)));
      for (int j = 0; j < WIDTH; j++) y[j] += gelu * w2[k * WIDTH + j];
    }
    for (int j = 0; j < WIDTH; j++) {
      assert_true(fabs(y[j] - output[token * WIDTH + j]) < 1e-12);
      assert_true(target[token * WIDTH + j] == (float)(output[token * WIDTH + j] + 0.1));
    }
  }
  free(w1), free(b1), free(w2), free(b2), free(input), free(output), free(target);
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_f16_and_bf16_widens_and_comes_back),
      cmocka_unit_test(narrowing_rounds_to_nearest_even_at_every_middle),
      cmocka_unit_test(f16_agrees_with_the_compilers_own),
      cmocka_unit_test(the_number_below_is_below_and_the_next),
      cmocka_unit_test(any_strides_and_dtypes_convert_as_a_plain_loop_does),
      cmocka_unit_test(runs_give_the_same_bits_as_single_values),
      cmocka_unit_test(philox_matches_the_vectors_of_random123),
      cmocka_unit_test(random_contents_do_not_depend_on_how_they_are_sliced),
      cmocka_unit_test(random_contents_follow_name_seed_and_range),
      cmocka_unit_test(uniform_never_rounds_up_to_high),
      cmocka_unit_test(a_bad_random_range_is_refused),
      cmocka_unit_test(the_written_bytes_are_those_of_the_format),
      cmocka_unit_test(every_dtype_goes_out_and_comes_back_as_every_dtype),
      cmocka_unit_test(large_strided_arrays_are_written_dense),
      cmocka_unit_test(scalars_and_empty_files_round_trip),
      cmocka_unit_test(bad_arrays_and_names_are_not_written),
      cmocka_unit_test(a_failed_write_leaves_the_old_file_and_nothing_else),
      cmocka_unit_test(pipes_and_links_stay_what_they_are),
      cmocka_unit_test(npy_files_of_all_versions_are_read),
      cmocka_unit_test(slices_equal_the_same_part_of_the_whole),
      cmocka_unit_test(arrays_and_constants_are_sources),
      cmocka_unit_test(reals_become_whole_numbers),
      cmocka_unit_test(what_does_not_fit_a_source_is_refused),
      cmocka_unit_test(a_file_is_mapped_once_for_many_names),
      cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
      cmocka_unit_test(the_minilm_block_gives_its_recorded_output),
  };
  return cmocka_run_group_tests_name("io", tests, make_folder, remove_folder);
}
