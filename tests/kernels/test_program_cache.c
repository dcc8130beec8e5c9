/* test_program_cache.c: the disk cache of programs: it spares compiling, and no damage to it does harm;
 * kernels that do not work or do not compile. */
#include "fixture.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { RANKS = 8, PROGRAMS_MAX = 64, LABEL_BYTES = 512 };

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

/* No home, homes that nobody can make (below a file, in /proc), a cache that cannot be made: with a warning
 * at most, nothing is cached. PoCL has its own folder, and had it before. */
static void test_homes_that_are_missing(void **state) {
  static const char *const homes[] = {NULL, "", "/proc/nowhere", "/etc/passwd/home"};
  fixture *f = *state;
  if (!has_device(f)) skip();
  const char *own = getenv("HOME");
  char *home = own ? strdup(own) : NULL;
  tsr_context *with_cache = f->context;
  unsetenv("TESSERA_CACHE");
  unsetenv("XDG_CACHE_HOME");
  for (size_t i = 0; i < sizeof homes / sizeof *homes; i++) {
    clear_log(f);
    if (homes[i])
      setenv("HOME", homes[i], 1);
    else
      unsetenv("HOME");
    f->context = make_context(f, NULL);
    assert_string_equal(tsr_context_cache_folder(f->context), "");
    assert_int_equal(count_in_log(f, "nothing is cached on disk"), i >= 2);
    use_device(f);
    assert_int_equal(count_in_log(f, "stored"), 0);
    tsr_context_destroy(&f->context);
  }
  if (home) setenv("HOME", home, 1);
  free(home);
  f->context = with_cache;
}

/* f(x) of one element: each function is a program of its own. */
static float apply(tsr_device *device, tsr_buffer *buffer, tsr_unary unary, float x) {
  tsr_error error = {0};
  float *data = NULL;
  assert_ok(tsr_device_host_wait(device, buffer, 0, 2 * sizeof *data, TSR_HOST_WRITE, (void **)&data, &error),
            &error);
  data[0] = x;
  assert_ok(tsr_device_host_end(device, buffer, data, &error), &error);
  tsr_map_call call = {.kind = TSR_MAP_UNARY, .unary = unary};
  call.a = (tsr_matrix){.buffer = buffer, .rows = 1, .cols = 1, .ld = 1};
  call.out = call.a;
  call.out.offset = 1;
  assert_ok(tsr_device_map(device, &call, &error), &error);
  assert_ok(tsr_device_host_wait(device, buffer, 0, 2 * sizeof *data, TSR_HOST_READ, (void **)&data, &error),
            &error);
  float y = data[1];
  assert_ok(tsr_device_host_end(device, buffer, data, &error), &error);
  return y;
}

/* The same kernel with other options is another program, also when both come from the disk. */
static void test_options_do_not_shadow_each_other(void **state) {
  fixture *f = *state;
  if (!has_device(f)) skip();
  for (int turn = 0; turn < 2; turn++) {
    tsr_buffer *buffer = NULL;
    tsr_device *device = open_device(f, test_selector(), TSR_DEVICE_OPTIONS(.gemm = "reference"));
    assert_int_equal(tsr_buffer_create(device, 2 * sizeof(float), &buffer, NULL), TSR_OK);
    clear_log(f);
    assert_true(apply(device, buffer, TSR_UNARY_RELU, -2) == 0);
    float silu = apply(device, buffer, TSR_UNARY_SILU, -2);
    assert_true(silu < -0.23 && silu > -0.24);
    assert_int_equal(count_in_log(f, turn ? "loaded elementwise.cl" : "compiled elementwise.cl"), 2);
    tsr_buffer_destroy(device, &buffer);
    tsr_device_close(&device);
  }
}

/* Somebody empties the cache while it is in use: what is open stays, what comes then is made anew. */
static void test_cache_removed_while_in_use(void **state) {
  fixture *f = *state;
  char path[1024];
  if (!has_device(f)) skip();
  snprintf(path, sizeof path, "%s/programs", f->folder);
  tsr_buffer *buffer = NULL;
  tsr_device *device = open_device(f, test_selector(), TSR_DEVICE_OPTIONS(.gemm = "reference"));
  assert_int_equal(tsr_buffer_create(device, 2 * sizeof(float), &buffer, NULL), TSR_OK);
  visit_cache(f, "", remove_file);
  assert_int_equal(rmdir(path), 0);
  assert_int_equal(rmdir(f->folder), 0);
  clear_log(f);
  assert_true(apply(device, buffer, TSR_UNARY_RELU, 7) == 7);
  assert_int_equal(count_in_log(f, "compiled elementwise.cl"), 1);
  assert_int_equal(mkdir(f->folder, 0700), 0);
  float gelu = apply(device, buffer, TSR_UNARY_GELU, 7);
  assert_true(gelu > 6.9 && gelu <= 7);
  assert_true(count_in_log(f, "stored ") > 0);
  tsr_buffer_destroy(device, &buffer);
  tsr_device_close(&device);
}

/* ---- ranks that start at once ---- */

static void write_line(void *user, tsr_log_level level, const char *area, const char *message) {
  (void)level, (void)area;
  fprintf(user, "%s\n", message);
}

static void use_in_f64(tsr_device *device) {
  tsr_buffer *buffer = NULL;
  tsr_gemm_call call = {.types = TSR_GEMM_TYPES_F64, .m = 1, .n = 1, .k = 1, .alpha = 1};
  if (device->gemm[TSR_GEMM_TYPES_F64].family == TSR_GEMM_NONE) return;
  assert_int_equal(tsr_buffer_create(device, 3 * sizeof(double), &buffer, NULL), TSR_OK);
  call.a = (tsr_matrix){.buffer = buffer, .rows = 1, .cols = 1, .ld = 1};
  call.b = call.c = call.a;
  call.b.offset = 1, call.c.offset = 2;
  assert_int_equal(tsr_device_gemm(device, &call, NULL), TSR_OK);
  assert_int_equal(tsr_device_finish(device, NULL), TSR_OK);
  tsr_buffer_destroy(device, &buffer);
}

/* What one rank does, once the pipe on its standard input closes: self-tests, and then programs that are
 * built when they are first used. */
static int be_a_rank(const char *folder, const char *log) {
  static const tsr_unary functions[] = {TSR_UNARY_RELU, TSR_UNARY_SILU, TSR_UNARY_GELU};
  FILE *file = fopen(log, "w");
  char nothing;
  fixture f = {0};
  tsr_device *device;
  tsr_buffer *buffer = NULL;
  if (!file || read(STDIN_FILENO, &nothing, 1) != 0) return 2;
  if (tsr_context_create(TSR_CONTEXT_OPTIONS(.log = write_line, .log_user = file, .log_level = TSR_LOG_DEBUG,
                                             .cache_folder = folder, .kernel_folder = ""),
                         &f.context, NULL))
    return 3;
  if (tsr_device_open(f.context, test_selector(), NULL, &device, NULL)) return 4;
  if (tsr_buffer_create(device, 2 * sizeof(float), &buffer, NULL)) return 5;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) apply(device, buffer, functions[i], 1);
  use_in_f64(device);
  tsr_buffer_destroy(device, &buffer);
  tsr_device_close(&device);
  tsr_context_destroy(&f.context);
  return fclose(file) ? 6 : 0;
}

/* Programs by label: how often they were compiled, and got in any way. */
typedef struct program_counts {
  int count;
  struct {
    char label[LABEL_BYTES];
    int compiled, loaded;
  } programs[PROGRAMS_MAX];
} program_counts;

static void count_program(program_counts *counts, const char *label, size_t bytes, bool compiled) {
  int i = 0;
  assert_true(bytes < LABEL_BYTES);
  while (i < counts->count &&
         (strncmp(counts->programs[i].label, label, bytes) || counts->programs[i].label[bytes]))
    i++;
  assert_true(i < PROGRAMS_MAX);
  if (i == counts->count) memcpy(counts->programs[counts->count++].label, label, bytes);
  counts->programs[i].compiled += compiled;
  counts->programs[i].loaded += !compiled;
}

/* "compiled LABEL in TIME" and "loaded LABEL from the cache". */
static void count_programs(program_counts *counts, const char *log) {
  char line[2 * LABEL_BYTES];
  FILE *file = fopen(log, "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    bool compiled = !strncmp(line, "compiled ", 9), loaded = !strncmp(line, "loaded ", 7);
    char *end = compiled ? strstr(line, " in ") : loaded ? strstr(line, " from the cache") : NULL;
    char *label = line + (compiled ? 9 : 7);
    if (end) count_program(counts, label, (size_t)(end - label), compiled);
  }
  fclose(file);
}

static const char *rank_log(const fixture *f, int rank) {
  static char path[1024];
  snprintf(path, sizeof path, "%s/rank%d.log", f->folder, rank);
  return path;
}

static pid_t start_rank(const fixture *f, int rank, const int go[2]) {
  char folder[sizeof f->folder];
  static char program[] = "/proc/self/exe", word[] = "rank";
  snprintf(folder, sizeof folder, "%s", f->folder);
  pid_t child = fork();
  if (child) return child;
  char *arguments[] = {program, word, folder, (char *)rank_log(f, rank), NULL};
  dup2(go[0], STDIN_FILENO);
  close(go[0]);
  close(go[1]);
  execv(program, arguments);
  _exit(127);
}

/* Each program is compiled once, by whoever came first; the seven others load it. */
static void test_ranks_compile_each_program_once(void **state) {
  fixture *f = *state;
  int go[2];
  pid_t children[RANKS];
  static program_counts counts;
  if (!has_device(f)) skip();
  visit_cache(f, "", remove_file);
  assert_int_equal(pipe(go), 0);
  for (int rank = 0; rank < RANKS; rank++) assert_true((children[rank] = start_rank(f, rank, go)) > 0);
  close(go[0]);
  close(go[1]);
  for (int rank = 0; rank < RANKS; rank++) {
    int code;
    assert_int_equal(waitpid(children[rank], &code, 0), children[rank]);
    assert_int_equal(code, 0);
    count_programs(&counts, rank_log(f, rank));
    unlink(rank_log(f, rank));
  }
  for (int i = 0; i < counts.count; i++)
    if (counts.programs[i].compiled != 1)
      fail_msg("compiled %d times, loaded %d times: %s", counts.programs[i].compiled,
               counts.programs[i].loaded, counts.programs[i].label);
  assert_in_range(counts.count, 4, PROGRAMS_MAX); /* a product and three functions at least */
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

/* Errors and warnings, one a line. */
static int count_alarms(const fixture *f) {
  int count = 0;
  for (const char *line = f->log; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
    count += atoi(line) <= TSR_LOG_WARNING;
  return count;
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
  clear_log(f);
  device = open_device(f, test_selector(), NULL);
  assert_int_not_equal(device->gemm[TSR_F32].family, TSR_GEMM_PANEL);
  if (count_alarms(f) > 1) fail_msg("one fault takes more than a line:\n%s", f->log);
  assert_int_equal(count_alarms(f), count_in_log(f, "on purpose; TSR_LOG=device:debug"));
  tsr_device_close(&device);
  remove_file_in(f->folder, "gemm_panel.cl");
  tsr_context_destroy(&f->context);
  f->context = own;
}

int main(int count, char **words) {
  if (count == 4 && !strcmp(words[1], "rank")) return be_a_rank(words[2], words[3]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_second_open_compiles_nothing),
      cmocka_unit_test(test_damaged_entries_are_made_anew),
      cmocka_unit_test(test_cache_that_cannot_be_written),
      cmocka_unit_test(test_no_cache),
      cmocka_unit_test(test_homes_that_are_missing),
      cmocka_unit_test(test_options_do_not_shadow_each_other),
      cmocka_unit_test(test_cache_removed_while_in_use),
      cmocka_unit_test(test_ranks_compile_each_program_once),
      cmocka_unit_test(test_broken_kernels),
  };
  return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
