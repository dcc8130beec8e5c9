/* Room runtime/io: files that are broken, or mean harm. Nothing may crash or read outside (run under ASan);
 * every refusal names the fault on one line. */
#include "io_support.h"

#include <sys/stat.h>

#include "io/npy.h"
#include "io/safetensors.h"

/* ---- hostile files ---- */

#define ENTRY(name, dtype, shape, offsets)                                                                   \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void hostile_safetensors_are_refused_with_the_fault(void **state) {
  (void)state;
  static const struct {
    const char *header;
    size_t data_bytes;
    const char *fragment; /* NULL: the file is good */
  } rows[] = {
      {"{" ENTRY("a", "F32", "[2]", "[0,8]") "}", 8, NULL},
      {"{" ENTRY("a", "F32", "[2]", "[0,8]") "}   \n", 8, NULL},
      {"{\"__metadata__\":{\"format\":\"pt\"}," ENTRY("a", "F32", "[]", "[0,4]") "}", 4, NULL},
      {"{" ENTRY("z", "F32", "[0,3]", "[8,8]") "," ENTRY("b", "I64", "[1]", "[0,8]") "}", 8, NULL},
      {"{" ENTRY("a", "F4", "[3,2]", "[0,3]") "}", 3, NULL},
      {"{" ENTRY("a", "F32", "[1,1,1,1,1,1,2]", "[0,8]") "}", 8, NULL},
      {"{}", 0, NULL},
      {"", 0, "not a JSON object"},
      {"[]", 0, "not a JSON object"},
      {" {}", 0, "not a JSON object"},
      {"{\"a\":", 0, "not valid JSON at line 1, column 5"},
      {"{}x", 0, "not valid JSON"},
      {"{\n\n \"a\" 1}", 0, "not valid JSON at line 3"},
      {"{\"a\":\"\xff\"}", 0, "not valid JSON"},
      {"{\"\\u0000\":1}", 0, "not valid JSON"},
      {"{" ENTRY("a", "F32", "[2]", "[0,8]") "," ENTRY("a", "F32", "[2]", "[0,8]") "}", 8, "duplicate"},
      {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "duplicate"},
      {"{\"a\":[1]}", 0, "not a JSON object"},
      {"{\"a\":null}", 0, "not a JSON object"},
      {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no \"dtype\""},
      {"{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no \"dtype\""},
      {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "no \"shape\""},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, "no \"shape\""},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "no \"data_offsets\""},
      {"{" ENTRY("a", "F33", "[2]", "[0,8]") "}", 8, "unknown dtype \"F33\""},
      {"{" ENTRY("a", "f32", "[2]", "[0,8]") "}", 8, "unknown dtype \"f32\""},
      {"{" ENTRY("a", "F\\n3", "[2]", "[0,8]") "}", 8, "unknown dtype \"F?3\""},
      {"{" ENTRY("a", "F32", "[-2]", "[0,8]") "}", 8, "axis 0 is not a whole number"},
      {"{" ENTRY("a", "F32", "[1,2.0]", "[0,8]") "}", 8, "axis 1 is not a whole number"},
      {"{" ENTRY("a", "F32", "[\"2\"]", "[0,8]") "}", 8, "not a whole number"},
      {"{" ENTRY("a", "F32", "[1e400]", "[0,8]") "}", 8, "not valid JSON"},
      {"{" ENTRY("a", "F32", "[18446744073709551618]", "[0,8]") "}", 8, "not valid JSON"},
      {"{" ENTRY("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "does not fit 64 bits"},
      {"{" ENTRY("a", "F32", "[0,9223372036854775807,2]", "[0,0]") "}", 0, "does not fit 64 bits"},
      {"{" ENTRY("a", "F32", "[4611686018427387904]", "[0,0]") "}", 0, "disagree"},
      {"{" ENTRY("a", "F64", "[2305843009213693952]", "[0,0]") "}", 0, "disagree"},
      {"{" ENTRY("a", "F32", "[2]", "[8,0]") "}", 8, "reversed"},
      {"{" ENTRY("a", "F32", "[2]", "[-8,0]") "}", 8, "negative or reversed"},
      {"{" ENTRY("a", "F32", "[2]", "[0,9]") "}", 8, "out of range"},
      {"{" ENTRY("a", "F32", "[2]", "[9223372036854775799,9223372036854775807]") "}", 8, "out of range"},
      {"{" ENTRY("a", "F32", "[2]", "[0,8]") "}", 7, "out of range: the file holds 7 bytes"},
      {"{" ENTRY("a", "F32", "[2]", "[0,8,9]") "}", 9, "two whole numbers"},
      {"{" ENTRY("a", "F32", "[2]", "[0]") "}", 8, "two whole numbers"},
      {"{" ENTRY("a", "F32", "[2]", "[0,8.0]") "}", 8, "two whole numbers"},
      {"{" ENTRY("a", "F32", "[2]", "{}") "}", 8, "two whole numbers"},
      {"{" ENTRY("a", "F32", "[3]", "[0,8]") "}", 8, "3 elements of F32, 32 bits each: they disagree"},
      {"{" ENTRY("a", "F16", "[2]", "[0,8]") "}", 8, "disagree"},
      {"{" ENTRY("a", "F4", "[3]", "[0,1]") "}", 1, "disagree"},
      {"{" ENTRY("a", "F32", "[2]", "[0,8]") "," ENTRY("b", "F32", "[2]", "[4,12]") "}", 12, "overlap"},
      {"{" ENTRY("a", "F32", "[2]", "[0,8]") "," ENTRY("b", "F32", "[2]", "[0,8]") "}", 8, "overlap"},
      {"{" ENTRY("a", "F32", "[2]", "[0,8]") "," ENTRY("b", "F32", "[0]", "[4,4]") "}", 8, "overlap"},
      {"{" ENTRY("a", "F32", "[2]", "[4,12]") "}", 12, "hole before it"},
      {"{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("b", "F32", "[1]", "[8,12]") "}", 12,
       "hole before it"},
      {"{" ENTRY("a", "F32", "[2]", "[0,8]") "}", 9, "hole at the end"},
      {"{}", 1, "hole at the end"},
  };
  char path[PATH_BYTES];
  path_of(path, "hostile.safetensors");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    tsr_error error = {0};
    tsr_source *source;
    write_safetensors(path, rows[i].header, strlen(rows[i].header), rows[i].data_bytes);
    assert_ok(tsr_source_create(context, &source, &error_));
    tsr_status status = tsr_source_add_file(source, "v", path, "no such", false, &error);
    tsr_source_destroy(&source);
    expect(rows[i].header, status, &error, rows[i].fragment ? TSR_ERROR_FORMAT : TSR_ERROR_NOT_FOUND,
           rows[i].fragment ? rows[i].fragment : "no tensor \"no such\"");
    assert_ptr_equal(strstr(error.message, path), error.message);
  }
}

static void broken_file_heads_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *name, *bytes;
    size_t count;
    const char *fragment;
  } rows[] = {
      {"0.safetensors", "", 0, "file too short: 0 bytes"},
      {"7.safetensors", "1234567", 7, "file too short: 7 bytes"},
      {"8.safetensors", "\0\0\0\0\0\0\0\0", 8, "not a JSON object"},
      {"beyond.safetensors", "\5\0\0\0\0\0\0\0{}  ", 12, "5 bytes, but only 4 follow"},
      {"huge.safetensors", "\1\341\365\5\0\0\0\0{}", 10,
       "header length is 100000001 bytes, the limit is 100000000"},
      {"max.safetensors", "\377\377\377\377\377\377\377\377{}", 10, "18446744073709551615 bytes, the limit"},
      {"0.npy", "", 0, "file too short"},
      {"magic.npy", "\x93NUMPX\1\0\2\0{}", 12, "does not begin with"},
      {"long.npy", "\x93NUMPY\1\0\377\377{}", 12, "65535 bytes, but only 2 follow"},
      {"long2.npy", "\x93NUMPY\2\0\377\377\377\377{}", 14, "4294967295 bytes, but only 2 follow"},
  };
  char path[PATH_BYTES];
  tsr_shape shape;
  tsr_error error;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    write_bytes(path_of(path, rows[i].name), rows[i].bytes, rows[i].count);
    tsr_status status = tsr_file_shape(context, path, "a", &shape, &error);
    expect(rows[i].name, status, &error, TSR_ERROR_FORMAT, rows[i].fragment);
  }
  tsr_status status = tsr_file_shape(context, path_of(path, "missing.safetensors"), "a", &shape, &error);
  expect("missing", status, &error, TSR_ERROR_IO, "cannot open");
  assert_true(error.native_code == 2 && !strcmp(error.domain, "errno"));
  status = tsr_file_shape(context, folder, "a", &shape, &error);
  expect("folder", status, &error, TSR_ERROR_IO, "not a regular file");
  assert_int_equal(mkfifo(path_of(path, "fifo.safetensors"), 0600), 0);
  status = tsr_file_shape(context, path, "a", &shape, &error);
  expect("fifo", status, &error, TSR_ERROR_IO, "not a regular file");
}

static void hostile_npy_headers_are_refused_with_the_fault(void **state) {
  (void)state;
#define NPY(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"
  static const struct {
    const char *header;
    size_t data_bytes;
    tsr_status status;
    const char *fragment;
  } rows[] = {
      {NPY("'<f4'", "True", "(2,)"), 8, TSR_ERROR_UNSUPPORTED, "Fortran order"},
      {NPY("'<i8'", "False", "(1,)"), 8, TSR_ERROR_UNSUPPORTED, "dtype '<i8'"},
      {NPY("'>f4'", "False", "(2,)"), 8, TSR_ERROR_UNSUPPORTED, "dtype '>f4'"},
      {NPY("[('a', '<f4')]", "False", "(2,)"), 8, TSR_ERROR_UNSUPPORTED, "array of records"},
      {NPY("'<f4'", "False", "(1, 1, 1, 1, 2)"), 8, TSR_ERROR_UNSUPPORTED, "5 axes"},
      {NPY("'<f4'", "False", "(2,)"), 7, TSR_ERROR_FORMAT, "7 bytes of data"},
      {NPY("'<f4'", "False", "(2,)"), 9, TSR_ERROR_FORMAT, "9 bytes of data"},
      {NPY("'<f4'", "False", "(2)"), 8, TSR_ERROR_FORMAT, "',' after a single extent"},
      {NPY("'<f4'", "False", "(2 1)"), 8, TSR_ERROR_FORMAT, "',' or ')'"},
      {NPY("'<f4'", "False", "(,)"), 4, TSR_ERROR_FORMAT, "an extent"},
      {NPY("'<f4'", "False", "(-2,)"), 8, TSR_ERROR_FORMAT, "an extent"},
      {NPY("'<f4'", "False", "(2.0,)"), 8, TSR_ERROR_FORMAT, "expected"},
      {NPY("'<f4'", "False", "[2]"), 8, TSR_ERROR_FORMAT, "'(' of the shape"},
      {NPY("'<f4'", "False", "(9223372036854775808,)"), 8, TSR_ERROR_FORMAT, "does not fit 64 bits"},
      {NPY("'<f4'", "False", "(4294967296, 4294967296)"), 0, TSR_ERROR_FORMAT, "does not fit 64 bits"},
      {NPY("'<f4'", "False", "(4611686018427387904,)"), 0, TSR_ERROR_FORMAT, "bytes of data"},
      {NPY("'<f4'", "0", "(2,)"), 8, TSR_ERROR_FORMAT, "True or False"},
      {NPY("<f4", "False", "(2,)"), 8, TSR_ERROR_FORMAT, "a string"},
      {NPY("'<f4", "False", "(2,)"), 8, TSR_ERROR_FORMAT, "expected"},
      {NPY("'\\x3cf4'", "False", "(2,)"), 8, TSR_ERROR_FORMAT, "a short string"},
      {"{'descr': '<f4', 'fortran_order': False, }", 8, TSR_ERROR_FORMAT, "no key \"shape\""},
      {"{'descr': '<f4', 'descr': '<f4', 'shape': (2,), }", 8, TSR_ERROR_FORMAT, "twice the key \"descr\""},
      {"{'descr': '<f4', 'order': False}", 8, TSR_ERROR_FORMAT, "unknown key \"order\""},
      {"{'descr' '<f4'}", 8, TSR_ERROR_FORMAT, "expected ':'"},
      {"{'descr': '<f4' 'shape': (2,)}", 8, TSR_ERROR_FORMAT, "',' or '}'"},
      {"{,}", 8, TSR_ERROR_FORMAT, "a string"},
      {"", 0, TSR_ERROR_FORMAT, "expected '{'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", 8, TSR_ERROR_FORMAT, "nothing more"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,", 8, TSR_ERROR_FORMAT, "an extent"},
      {"{'a\nb': 1}", 8, TSR_ERROR_FORMAT, "unknown key \"a?b\""},
  };
  static const uint8_t zeros[16];
  char path[PATH_BYTES];
  tsr_shape shape;
  tsr_error error;
  path_of(path, "hostile.npy");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    write_npy(path, 2, rows[i].header, zeros, rows[i].data_bytes);
    tsr_status status = tsr_file_shape(context, path, NULL, &shape, &error);
    expect(rows[i].header, status, &error, rows[i].status, rows[i].fragment);
    assert_ptr_equal(strstr(error.message, path), error.message);
  }
  write_npy(path, 4, NPY("'<f4'", "False", "(2,)"), zeros, 8);
  tsr_status status = tsr_file_shape(context, path, NULL, &shape, &error);
  expect("version 4", status, &error, TSR_ERROR_UNSUPPORTED, "version 4.0");
}

/* ---- mutated files ---- */

static const char *const tokens[] = {"0",
                                     "-1",
                                     "9223372036854775807",
                                     "18446744073709551616",
                                     "1e3",
                                     "[]",
                                     "{}",
                                     "null",
                                     "\"\"",
                                     "\"F64\"",
                                     "\"BOOL\"",
                                     ",",
                                     "[0,8",
                                     "],[4,12]",
                                     "\"shape\":[4],",
                                     "(1, 2)",
                                     "()",
                                     "True",
                                     "'<f8'",
                                     "\xff"};

/* Overwrites a byte, cuts a piece, doubles a piece or puts a token in; returns the new length. */
static size_t mutate(char *text, size_t length, size_t capacity) {
  size_t at = (size_t)below((int64_t)length + 1), rest = length - at;
  size_t piece = rest ? (size_t)below((int64_t)(rest < 12 ? rest : 12) + 1) : 0;
  const char *token = tokens[below(sizeof tokens / sizeof *tokens)];
  switch (below(4)) {
  case 0:
    if (rest) text[at] = (char)(below(2) ? 32 + below(96) : below(256));
    return length;
  case 1: memmove(text + at, text + at + piece, rest - piece); return length - piece;
  case 2:
    if (length + piece > capacity) return length;
    memmove(text + at + piece, text + at, rest);
    return length + piece;
  default:
    if (length + strlen(token) > capacity) return length;
    memmove(text + at + strlen(token), text + at, rest);
    memcpy(text + at, token, strlen(token));
    return length + strlen(token);
  }
}

/* Parses a heap copy, whose bounds ASan watches (a mapping ends with its page and has neighbours), and checks
 * what tensor_file.h promises: what a parsed file says lies in the file. */
static void check_bounds(const char *path) {
  FILE *stream = fopen(path, "rb");
  uint8_t buffer[8192];
  size_t count = fread(buffer, 1, sizeof buffer, stream);
  fclose(stream);
  tsr_tensor_file file = {.bytes = malloc(count), .byte_count = count};
  memcpy(file.bytes, buffer, count);
  tsr_status status = tsr_path_is_npy(path) ? tsr_npy_parse(&file, NULL) : tsr_safetensors_parse(&file, NULL);
  for (size_t i = 0; i < file.tensor_count; i++) {
    const tsr_tensor *tensor = &file.tensors[i];
    size_t begin = (size_t)((uint8_t *)tensor->data - file.bytes);
    if (!status) assert_true(begin <= count && (size_t)tensor->bytes <= count - begin);
    if (!status && tensor->readable)
      assert_int_equal(tsr_tensor_count(tensor) * (int64_t)tsr_dtype_bytes(tensor->dtype), tensor->bytes);
    free(tensor->name);
  }
  free(file.tensors);
  free(file.bytes);
}

/* Opens the file and reads what it says it holds. True if anything was read. */
static bool try_to_read(const char *path, const char *tensor) {
  tsr_source *source;
  tsr_error error = {0};
  tsr_shape shape;
  bool read = false;
  int64_t start[TSR_AXES_MAX] = {0};
  check_bounds(path);
  assert_ok(tsr_source_create(context, &source, &error_));
  tsr_status status = tsr_file_shape(context, path, tensor, &shape, &error);
  if (!status) status = tsr_source_add_file(source, "v", path, tensor, false, &error);
  int64_t count = status ? 0 : tsr_shape_count(&shape);
  assert_in_range(count, 0, 1000); /* no file is larger */
  if (!status) {
    float *data = malloc((size_t)count * sizeof *data);
    tsr_array out = {.data = data, .dtype = TSR_F32, .shape = shape};
    int64_t stride = 1;
    for (int i = shape.axes - 1; i >= 0; i--) out.stride[i] = stride, stride *= shape.extent[i];
    status = tsr_source_read(source, "v", &shape, start, &out, &error);
    read = status == TSR_OK && count;
    free(data);
  }
  if (status && (!*error.message || !is_one_line(error.message))) fail_msg("message \"%s\"", error.message);
  tsr_source_destroy(&source);
  return read;
}

static void mutated_safetensors_never_crash(void **state) {
  (void)state;
  static const char good[] = "{\"__metadata__\":{\"k\":\"v\"}," ENTRY("a", "F32", "[2]", "[0,8]") "," ENTRY(
      "b", "F16", "[2,3]", "[8,20]") "," ENTRY("c", "I64", "[1]", "[20,28]") "}";
  char path[PATH_BYTES], text[1024];
  int reads = 0;
  random_state = 5;
  path_of(path, "mutated.safetensors");
  for (int round = 0; round < 6000; round++) {
    size_t length = sizeof good - 1;
    memcpy(text, good, length);
    for (int64_t i = 1 + below(4); i; i--) length = mutate(text, length, sizeof text);
    write_safetensors(path, text, length, below(8) ? 28 : (size_t)below(40));
    reads += try_to_read(path, "a");
    reads += try_to_read(path, "b");
  }
  assert_in_range(reads, 100, 11000); /* both ways out were taken */
}

static void mutated_npy_never_crash(void **state) {
  (void)state;
  static const char good[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }      \n";
  static const uint8_t zeros[64];
  char path[PATH_BYTES], text[512];
  int reads = 0;
  random_state = 6;
  path_of(path, "mutated.npy");
  for (int round = 0; round < 6000; round++) {
    size_t length = sizeof good - 1;
    memcpy(text, good, length);
    for (int64_t i = 1 + below(3); i; i--) length = mutate(text, length, sizeof text - 1);
    text[length] = 0;
    write_npy(path, 1 + (int)below(4), text, zeros, below(8) ? 24 : (size_t)below(64));
    reads += try_to_read(path, NULL);
  }
  assert_in_range(reads, 100, 5500);
}

/* The header's length reaches to the end of the file, wherever the text stops. */
static void unfinished_npy_headers_never_crash(void **state) {
  (void)state;
  static const char whole[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 34), }";
  char path[PATH_BYTES], header[sizeof whole];
  path_of(path, "unfinished.npy");
  for (size_t length = 0; length < sizeof whole; length++) {
    memcpy(header, whole, length);
    header[length] = 0;
    write_npy(path, 2, header, NULL, 0);
    assert_false(try_to_read(path, NULL));
  }
}

/* A good file, cut anywhere. */
static void cut_files_never_crash(void **state) {
  (void)state;
  static const char header[] = "{" ENTRY("a", "F32", "[2]", "[0,8]") "}";
  char path[PATH_BYTES];
  uint8_t bytes[128] = {sizeof header - 1};
  memcpy(bytes + 8, header, sizeof header - 1);
  size_t total = 8 + sizeof header - 1 + 8;
  path_of(path, "cut.safetensors");
  for (size_t count = 0; count <= total; count++) {
    write_bytes(path, bytes, count);
    assert_int_equal(try_to_read(path, "a"), count == total);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hostile_safetensors_are_refused_with_the_fault),
      cmocka_unit_test(broken_file_heads_are_refused),
      cmocka_unit_test(hostile_npy_headers_are_refused_with_the_fault),
      cmocka_unit_test(mutated_safetensors_never_crash),
      cmocka_unit_test(mutated_npy_never_crash),
      cmocka_unit_test(unfinished_npy_headers_never_crash),
      cmocka_unit_test(cut_files_never_crash),
  };
  return cmocka_run_group_tests_name("io_hostile", tests, make_folder, remove_folder);
}
