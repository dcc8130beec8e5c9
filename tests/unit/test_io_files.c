/* Room runtime/io: files of tensors: what is written is read, what is broken is refused, links and pipes.
 * Hostile files: test_io_hostile.c. */
#include "io_support.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

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

/* Through two links, one of them relative and one absolute: what they lead to is made, and nothing else. */
static void a_link_to_what_is_not_there_stays_one(void **state) {
  (void)state;
  char target[PATH_BYTES], link[PATH_BYTES], again[PATH_BYTES], round[PATH_BYTES];
  struct stat facts;
  tsr_error error = {0};
  assert_int_equal(symlink("made.safetensors", path_of(link, "early.safetensors")), 0);
  assert_int_equal(symlink(link, path_of(again, "earlier.safetensors")), 0);
  assert_ok(tsr_file_write(again, NULL, NULL, 0, &error_));
  assert_true(lstat(link, &facts) == 0 && S_ISLNK(facts.st_mode));
  assert_true(lstat(again, &facts) == 0 && S_ISLNK(facts.st_mode));
  assert_true(lstat(path_of(target, "made.safetensors"), &facts) == 0 && S_ISREG(facts.st_mode));
  assert_int_equal(files_in_folder("tmp-"), 0);
  assert_int_equal(symlink("no/such/folder.safetensors", path_of(link, "lost.safetensors")), 0);
  expect("no folder", tsr_file_write(link, NULL, NULL, 0, &error), &error, TSR_ERROR_IO, "No such file");
  assert_int_equal(symlink("round.safetensors", path_of(round, "round.safetensors")), 0);
  expect("a round", tsr_file_write(round, NULL, NULL, 0, &error), &error, TSR_ERROR_IO, "levels of symbolic");
  assert_true(lstat(round, &facts) == 0 && S_ISLNK(facts.st_mode));
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_written_bytes_are_those_of_the_format),
      cmocka_unit_test(every_dtype_goes_out_and_comes_back_as_every_dtype),
      cmocka_unit_test(large_strided_arrays_are_written_dense),
      cmocka_unit_test(scalars_and_empty_files_round_trip),
      cmocka_unit_test(bad_arrays_and_names_are_not_written),
      cmocka_unit_test(a_failed_write_leaves_the_old_file_and_nothing_else),
      cmocka_unit_test(pipes_and_links_stay_what_they_are),
      cmocka_unit_test(a_link_to_what_is_not_there_stays_one),
      cmocka_unit_test(npy_files_of_all_versions_are_read),
  };
  return cmocka_run_group_tests_name("io files", tests, make_folder, remove_folder);
}
