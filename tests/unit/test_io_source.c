/* Room runtime/io: sources: random contents, slices, arrays and files, and a real layer. The MiniLM fixture
 * is found in $TSR_TEST_DATA or below TSR_SOURCE_ROOT. */
#include "io_support.h"

#include <math.h>

#include "base/memory.h"
#include "io/philox.h"

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

/* Files, arrays, constants and random numbers say whose element a type cannot hold, and which one it is. */
static void numbers_beyond_the_type_are_refused(void **state) {
  (void)state;
  char path[PATH_BYTES];
  float data[6] = {1, 2, 3, 4, 70000, 1e30f};
  uint16_t out[2];
  const tsr_shape whole = tsr_shape_of(2, 2, 3), part = tsr_shape_of(2, 1, 2);
  const int64_t start[] = {1, 1}, elsewhere[] = {0, 0};
  tsr_array array = tsr_array_dense(data, TSR_F32, &whole), block = tsr_array_dense(out, TSR_F16, &part);
  const char *name = "t";
  tsr_source *source;
  assert_ok(tsr_file_write(path_of(path, "large.safetensors"), &name, &array, 1, &error_));
  assert_ok(tsr_source_create(context, &source, &error_));
  assert_ok(tsr_source_add_file(source, "file", path, "t", false, &error_));
  assert_ok(tsr_source_add_array(source, "array", &array, &error_));
  assert_ok(tsr_source_add_constant(source, "constant", -1e6, &error_));
  assert_ok(tsr_source_add_constant(source, "nan", NAN, &error_));
  assert_ok(tsr_source_add_random(source, "uniform", TSR_RANDOM_UNIFORM, 1, -1e6, 0, &error_));
  assert_ok(tsr_source_add_random(source, "integer", TSR_RANDOM_INTEGER, 1, 0, 70000, &error_));
  static const char *const rows[][2] = {
      {"file", "value \"file\": element (1, 1) is 70000, but f16 holds at most 65504"},
      {"array", "value \"array\": element (1, 1) is 70000, but f16 holds at most 65504"},
      {"constant", "value \"constant\": its constant is -1000000, but f16"},
      {"uniform", "value \"uniform\": an end of its range is -1000000, but f16"},
      {"integer", "value \"integer\": an end of its range is 70000, but f16"}};
  for (int i = 0; i < 5; i++) {
    tsr_error error = {0};
    tsr_status status = tsr_source_read(source, rows[i][0], &whole, start, &block, &error);
    expect(rows[i][0], status, &error, TSR_ERROR_INVALID_ARGUMENT, rows[i][1]);
  }
  assert_ok(tsr_source_read(source, "file", &whole, elsewhere, &block, &error_));
  assert_ok(tsr_source_read(source, "nan", &whole, start, &block, &error_));
  block.dtype = TSR_BF16;
  assert_ok(tsr_source_read(source, "file", &whole, start, &block, &error_));
  tsr_source_destroy(&source);
}

/* The tensor of a .npy has no name: messages have the file's. */
static void messages_name_the_tensor_or_the_file(void **state) {
  (void)state;
  char path[PATH_BYTES], wanted[2 * PATH_BYTES];
  float out[6];
  const int64_t start[] = {0, 0};
  const tsr_shape whole = tsr_shape_of(2, 3, 2);
  tsr_array block = tsr_array_dense(out, TSR_F32, &whole);
  tsr_source *source;
  tsr_error error = {0};
  write_npy(path_of(path, "two_by_three.npy"), 1,
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", (float[6]){0}, 24);
  assert_ok(tsr_source_create(context, &source, &error_));
  assert_ok(tsr_source_add_file(source, "v", path, NULL, false, &error_));
  tsr_status status = tsr_source_read(source, "v", &whole, start, &block, &error);
  snprintf(wanted, sizeof wanted, "has shape [3, 2], but %s holds [2, 3]", path);
  expect("shape", status, &error, TSR_ERROR_INVALID_ARGUMENT, wanted);
  write_npy(path_of(path, "vector.npy"), 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n",
            (float[2]){0}, 8);
  status = tsr_source_add_file(source, "w", path, NULL, true, &error);
  snprintf(wanted, sizeof wanted, "%s has 1 axes, transposed needs 2", path);
  expect("transposed", status, &error, TSR_ERROR_INVALID_ARGUMENT, wanted);
  write_npy(path_of(path, "five.npy"), 1,
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1), }\n", (float[1]){0}, 4);
  status = tsr_file_shape(context, path, NULL, &(tsr_shape){0}, &error);
  snprintf(wanted, sizeof wanted, "%s has 5 axes, the limit is 4", path);
  expect("axes", status, &error, TSR_ERROR_UNSUPPORTED, wanted);
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(philox_matches_the_vectors_of_random123),
      cmocka_unit_test(random_contents_do_not_depend_on_how_they_are_sliced),
      cmocka_unit_test(random_contents_follow_name_seed_and_range),
      cmocka_unit_test(uniform_never_rounds_up_to_high),
      cmocka_unit_test(a_bad_random_range_is_refused),
      cmocka_unit_test(slices_equal_the_same_part_of_the_whole),
      cmocka_unit_test(arrays_and_constants_are_sources),
      cmocka_unit_test(what_does_not_fit_a_source_is_refused),
      cmocka_unit_test(numbers_beyond_the_type_are_refused),
      cmocka_unit_test(messages_name_the_tensor_or_the_file),
      cmocka_unit_test(a_file_is_mapped_once_for_many_names),
      cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
      cmocka_unit_test(the_minilm_block_gives_its_recorded_output),
  };
  return cmocka_run_group_tests_name("io source", tests, make_folder, remove_folder);
}
