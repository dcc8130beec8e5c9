/* test_cache_files.c: the files of the program cache: the limit and what makes room, what killed processes
 * leave behind, locks, and several processes at it at once. */
#include "fixture.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/context.h"
#include "device/opencl_gemm.h"
#include "device/program_cache.h"

enum { PAYLOAD = 1000, HEADER = 48, ENTRIES = 10, PROCESSES = 4 };

static tsr_cache_key key_of(int number) {
  const uint64_t before[2] = {1, 2};
  char text[16];
  snprintf(text, sizeof text, "%d", number);
  const char *const parts[] = {text};
  return tsr_cache_key_of(before, parts, 1);
}

static const char *path_of(const fixture *f, int number, const char *ending) {
  static char path[1024];
  tsr_cache_key key = key_of(number);
  snprintf(path, sizeof path, "%s/programs/%016" PRIx64 "%016" PRIx64 "%s", f->folder, key.half[0],
           key.half[1], ending);
  return path;
}

static tsr_context *limited(fixture *f, uint64_t bytes) {
  tsr_context *context = NULL;
  assert_int_equal(
      tsr_context_create(TSR_CONTEXT_OPTIONS(.log = keep_log, .log_user = f, .log_level = TSR_LOG_DEBUG,
                                             .cache_folder = f->folder, .cache_bytes = bytes),
                         &context, NULL),
      TSR_OK);
  return context;
}

static void put(const tsr_context *context, int number) {
  char payload[PAYLOAD];
  memset(payload, number, sizeof payload);
  tsr_cache_write(context, key_of(number), payload, sizeof payload);
}

/* Whether it is there; what is there is right. */
static bool get(const tsr_context *context, int number) {
  void *payload;
  size_t bytes;
  bool found = tsr_cache_read(context, key_of(number), &payload, &bytes);
  if (found) assert_int_equal(bytes, PAYLOAD);
  for (size_t i = 0; i < bytes; i++) assert_int_equal(((unsigned char *)payload)[i], (unsigned char)number);
  free(payload);
  return found;
}

static bool is_there(const char *path) {
  return access(path, F_OK) == 0;
}

static void make_older(const char *path, time_t seconds) {
  const time_t then = time(NULL) - seconds;
  const struct timespec times[2] = {{.tv_sec = then}, {.tv_sec = then}};
  assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static uint64_t sum_bytes;
static int file_count;
static void add_up(const char *path) {
  struct stat about;
  if (stat(path, &about)) return;
  sum_bytes += (uint64_t)about.st_size;
  file_count++;
}

static uint64_t bytes_of(const fixture *f, const char *ending) {
  sum_bytes = 0;
  file_count = 0;
  visit_cache(f, ending, add_up);
  return sum_bytes;
}

/* Ten entries that are older the higher their number; one more, and room for five: the younger half stays,
 * but for the entry that a read has just renewed. */
static void test_least_recently_used_goes_first(void **state) {
  fixture *f = *state;
  const uint64_t limit = 5 * (PAYLOAD + HEADER);
  tsr_context *context = limited(f, limit);
  for (int i = 0; i < ENTRIES; i++) {
    put(f->context, i);
    make_older(path_of(f, i, ".bin"), 1000 * (i + 1));
  }
  assert_int_equal(bytes_of(f, ".bin"), ENTRIES * (PAYLOAD + HEADER));
  assert_true(get(context, 9));
  put(context, ENTRIES);
  assert_int_equal(bytes_of(f, ".bin"), limit);
  for (int i = 0; i < ENTRIES; i++) assert_int_equal(is_there(path_of(f, i, ".bin")), i < 3 || i == 9);
  assert_true(get(context, ENTRIES));
  assert_int_equal(count_in_log(f, "removed 6 cache entries"), 1);
  tsr_context_destroy(&context);
}

static void test_entry_beyond_the_limit(void **state) {
  fixture *f = *state;
  tsr_context *context = limited(f, PAYLOAD + HEADER - 1);
  put(f->context, 1);
  put(context, 2);
  assert_true(is_there(path_of(f, 1, ".bin")) && !is_there(path_of(f, 2, ".bin")));
  assert_int_equal(count_in_log(f, "is not stored: it takes"), 1);
  tsr_context_destroy(&context);
  context = limited(f, PAYLOAD + HEADER);
  put(context, 2);
  assert_true(!is_there(path_of(f, 1, ".bin")) && is_there(path_of(f, 2, ".bin")));
  tsr_context_destroy(&context);
}

static void create(const char *path, time_t age) {
  close(open(path, O_CREAT | O_WRONLY, 0600));
  make_older(path, age);
}

/* What a killed writer left goes after an hour; what somebody may be writing, and what is no name of ours,
 * stays. */
static void test_abandoned_files(void **state) {
  fixture *f = *state;
  char foreign[1024];
  put(f->context, 1);
  snprintf(foreign, sizeof foreign, "%s/programs/notes.abcdef", f->folder);
  create(foreign, 100000);
  create(path_of(f, 2, ".Xa90Zz"), 3700);
  create(path_of(f, 3, ".Xa90Zz"), 3500);
  put(f->context, 4);
  assert_false(is_there(path_of(f, 2, ".Xa90Zz")));
  assert_true(is_there(path_of(f, 3, ".Xa90Zz")));
  assert_true(is_there(foreign));
  unlink(foreign);
}

static void test_lock_files_are_few(void **state) {
  fixture *f = *state;
  for (int i = 0; i < 500; i++) {
    tsr_cache_lock device, program;
    assert_true(tsr_cache_lock_take(f->context, TSR_CACHE_LOCK_DEVICE, key_of(i), 0, &device));
    assert_true(tsr_cache_lock_take(f->context, TSR_CACHE_LOCK_PROGRAM, key_of(i), 0, &program));
    tsr_cache_lock again;
    assert_false(tsr_cache_lock_take(f->context, TSR_CACHE_LOCK_PROGRAM, key_of(i), 0, &again));
    tsr_cache_lock_release(&program);
    tsr_cache_lock_release(&device);
  }
  bytes_of(f, ".lock");
  assert_in_range(file_count, 2, 128);
}

/* One of several processes that write, read and evict the same entries. */
static void crowd_the_cache(fixture *f, unsigned seed) {
  tsr_context *context = limited(f, 7 * (PAYLOAD + HEADER));
  for (int i = 0; i < 400; i++) {
    seed = seed * 1103515245u + 12345u;
    int number = (int)(seed >> 16) % 20;
    if (!get(context, number)) put(context, number);
  }
  tsr_context_destroy(&context);
}

static void test_processes_evict_at_once(void **state) {
  fixture *f = *state;
  pid_t children[PROCESSES];
  for (unsigned i = 0; i < PROCESSES; i++) {
    children[i] = fork();
    assert_true(children[i] >= 0);
    if (children[i]) continue;
    crowd_the_cache(f, i);
    _exit(count_in_log(f, "passed over") + count_in_log(f, "cannot store") ? 1 : 0);
  }
  for (int i = 0; i < PROCESSES; i++) {
    int code;
    assert_int_equal(waitpid(children[i], &code, 0), children[i]);
    assert_int_equal(code, 0);
  }
  put(f->context, 100); /* the last writer of all sees everything */
  tsr_context *context = limited(f, 7 * (PAYLOAD + HEADER));
  put(context, 101);
  assert_in_range(bytes_of(f, ".bin"), PAYLOAD + HEADER, 7 * (PAYLOAD + HEADER));
  bytes_of(f, "");
  assert_in_range(file_count, 1, 7); /* and no temporary files */
  tsr_context_destroy(&context);
}

static void test_empty_folder_in_place_of_an_entry(void **state) {
  fixture *f = *state;
  put(f->context, 1);
  unlink(path_of(f, 1, ".bin"));
  assert_int_equal(mkdir(path_of(f, 1, ".bin"), 0700), 0);
  assert_false(get(f->context, 1));
  assert_int_equal(count_in_log(f, "not a file"), 1);
  put(f->context, 1);
  assert_true(get(f->context, 1));
}

static uint64_t limit_of(fixture *f, const char *variable) {
  clear_log(f);
  setenv("TESSERA_CACHE_BYTES", variable, 1);
  tsr_context *context = make_context(f, f->folder);
  uint64_t bytes = tsr_context_cache_bytes(context);
  tsr_context_destroy(&context);
  unsetenv("TESSERA_CACHE_BYTES");
  return bytes;
}

static void test_limit_from_the_environment(void **state) {
  fixture *f = *state;
  const uint64_t usual = 256u << 20;
  assert_int_equal(tsr_context_cache_bytes(f->context), usual);
  assert_int_equal(limit_of(f, "5000000000"), 5000000000);
  assert_int_equal(count_in_log(f, "TESSERA_CACHE_BYTES"), 0);
  static const char *const wrong[] = {"", "0", "-1", "1GB", " 7", "99999999999999999999999"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_equal(limit_of(f, wrong[i]), usual);
    assert_int_equal(count_in_log(f, "TESSERA_CACHE_BYTES"), 1);
  }
  setenv("TESSERA_CACHE_BYTES", "1000", 1);
  tsr_context *context = limited(f, 77);
  assert_int_equal(tsr_context_cache_bytes(context), 77);
  tsr_context_destroy(&context);
  unsetenv("TESSERA_CACHE_BYTES");
}

static cl_kernel compile_fresh(tsr_device *device, const char *constant) {
  char options[128];
  tsr_error error = {0};
  cl_kernel kernel = NULL;
  snprintf(options, sizeof options, "-DREAL=float -DVECTOR=1 -DLANES_PER_ITEM=1 -DOPERATION=SUM -DUNIQUE=%s",
           constant);
  assert_ok(
      tsr_opencl_kernel_get(tsr_opencl_of(device), "reduce.cl", "reduce_parts", options, &kernel, &error),
      &error);
  assert_non_null(tsr_opencl_of(device)->fresh);
  return kernel;
}

/* A program's lock is held until it has run; if it cannot, other ranks need not wait for that. */
static void test_lock_after_a_failed_launch(void **state) {
  if (!has_device(*state)) skip();
  const size_t global[1] = {1}, local[2] = {1, 1};
  tsr_device *device = open_device(*state, test_selector(), TSR_DEVICE_OPTIONS(.gemm = "reference"));
  tsr_opencl_device *inside = tsr_opencl_of(device);
  cl_kernel kernel = compile_fresh(device, "1");
  assert_int_not_equal(tsr_opencl_enqueue(inside, kernel, 1, global, NULL, NULL), TSR_OK);
  assert_null(inside->fresh);
  kernel = compile_fresh(device, "2");
  assert_int_not_equal(tsr_opencl_enqueue_rows(inside, kernel, 1, 1, local, NULL), TSR_OK);
  assert_null(inside->fresh);
  tsr_arguments arguments = {
      .device = inside, .kernel = compile_fresh(device, "3"), .count = 99, .code = CL_SUCCESS};
  tsr_argument_count(&arguments, 1);
  assert_int_not_equal(tsr_arguments_end(&arguments, NULL), TSR_OK);
  assert_null(inside->fresh);
  tsr_device_close(&device);
}

int main(void) {
  unsetenv("TESSERA_CACHE_BYTES");
#define CACHE_TEST(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
  const struct CMUnitTest tests[] = {
      CACHE_TEST(test_least_recently_used_goes_first),
      CACHE_TEST(test_entry_beyond_the_limit),
      CACHE_TEST(test_abandoned_files),
      CACHE_TEST(test_lock_files_are_few),
      CACHE_TEST(test_processes_evict_at_once),
      CACHE_TEST(test_empty_folder_in_place_of_an_entry),
      CACHE_TEST(test_limit_from_the_environment),
      CACHE_TEST(test_lock_after_a_failed_launch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
