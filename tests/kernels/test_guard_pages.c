/* test_guard_pages.c: no kernel touches memory outside of its buffers: products by the panel kernels, the
 * reference, the tile and an emulated matrix unit's kernel; elementwise operations and reductions. Each
 * buffer lies on memory of its own that ends at, or begins after, a page that nobody may touch, so that an
 * access outside kills the process. Every family runs in a process of its own, which says what it was doing
 * when it died. For devices that use the host's memory in place: PoCL. */
#include "gemm_case.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "backends/gpu_gemm.h"
#include "device/opencl_device.h"
#include "images_run.h"

enum { CASES = 6, BUFFERS_MAX = 16, VECTOR_BYTES = 16 };

enum {
  F32 = 1 << TSR_GEMM_TYPES_F32,
  F64 = 1 << TSR_GEMM_TYPES_F64,
  F32_BF16 = 1 << TSR_GEMM_TYPES_F32_BF16,
  F32_I8 = 1 << TSR_GEMM_TYPES_F32_I8,
  BF16 = 1 << TSR_GEMM_TYPES_BF16,
};

static const struct run {
  const char *name, *family;
  unsigned types;         /* none: no products, but elementwise operations and reductions */
  tsr_gemm_facts variant; /* NONE = the family's own */
} runs[] = {
    {.name = "panel", .family = "panel", .types = F32 | F64 | F32_BF16 | F32_I8},
    {.name = "reference", .family = "reference", .types = F32 | F64 | F32_I8},
    {.name = "tile, single elements",
     .family = "reference",
     .types = F32 | F32_I8,
     .variant = TSR_GPU_TILE(16, 16, 16, 1, 1, 1, 1, 3)},
    {.name = "tile, vectors",
     .family = "reference",
     .types = F32 | F64 | F32_BF16 | F32_I8,
     .variant = TSR_GPU_TILE(16, 32, 8, 4, 4, 4, 2, 3)},
    {.name = "matrix unit",
     .family = "reference",
     .types = BF16,
     .variant = {.family = TSR_GEMM_MMA,
                 .instruction = TSR_MMA_NVIDIA_MMA,
                 .tile_m = 32,
                 .tile_n = 16,
                 .tile_k = 16,
                 .warp_m = 16,
                 .warp_n = 16,
                 .stages = 2,
                 .split_k = 3,
                 .emulated = 1}},
    {.name = "elementwise, reductions and images", .family = "reference"},
    {.name = "images as products", .family = "panel"},
};
enum { RUNS = sizeof runs / sizeof *runs };

/* The memory below each cl_mem that is there. */
static struct mapping {
  cl_mem memory;
  char *pages, *start;
  size_t bytes, buffer_bytes;
} mappings[BUFFERS_MAX];
static bool at_end;      /* the guard is behind the buffer, not before it */
static size_t alignment; /* of a buffer's start: kernels that read whole vectors need it */

static struct mapping *find(cl_mem memory) {
  for (int i = 0; i < BUFFERS_MAX; i++)
    if (mappings[i].memory == memory) return &mappings[i];
  fail_msg("more than %d buffers", BUFFERS_MAX);
  return NULL;
}

static tsr_status guarded_create(tsr_device *device, size_t bytes, tsr_buffer **out, tsr_error *error) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), held = (bytes + page - 1) / page * page;
  const size_t padded = (bytes + alignment - 1) / alignment * alignment;
  tsr_opencl_buffer *buffer = calloc(1, sizeof *buffer);
  struct mapping *mapping = find(NULL);
  (void)error;
  char *pages = mmap(NULL, held + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(pages, MAP_FAILED);
  assert_int_equal(mprotect(at_end ? pages + held : pages, page, PROT_NONE), 0);
  char *start = at_end ? pages + held - padded : pages + page;
  cl_int code = CL_SUCCESS;
  buffer->memory = clCreateBuffer(tsr_opencl_of(device)->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                  bytes, start, &code);
  assert_int_equal(code, CL_SUCCESS);
  *mapping = (struct mapping){buffer->memory, pages, start, held + page, bytes};
  *out = &buffer->base;
  return TSR_OK;
}

static void guarded_destroy(tsr_device *device, tsr_buffer *buffer) {
  struct mapping *mapping = find(tsr_opencl_memory(buffer));
  clFinish(tsr_opencl_of(device)->queue);
  clReleaseMemObject(mapping->memory);
  munmap(mapping->pages, mapping->bytes);
  *mapping = (struct mapping){0};
  free(buffer);
}

/* What the process was doing, for the signal handler. */
static char doing[256];
static void say_and_die(int number, siginfo_t *info, void *context) {
  char line[512];
  int length = snprintf(line, sizeof line, "%s", doing);
  (void)number, (void)context;
  for (int i = 0; i < BUFFERS_MAX; i++) {
    const struct mapping *mapping = &mappings[i];
    const char *at = info->si_addr;
    if (mapping->memory && at >= mapping->pages && at < mapping->pages + mapping->bytes)
      length +=
          snprintf(line + length, sizeof line - (size_t)length, "at byte %td of buffer %d, of %zu bytes\n",
                   at - mapping->start, i, mapping->buffer_bytes);
  }
  ssize_t written = write(STDERR_FILENO, line, (size_t)length);
  _exit(written < 0 ? 2 : 3);
}

static void run_guarded(tsr_device *device, const struct run *run, tsr_gemm_types types) {
  tsr_gemm_facts facts = run->variant.family ? run->variant : device->gemm[types];
  if (device->gemm[types].family == TSR_GEMM_NONE) return;
  const int cases = types == TSR_GEMM_TYPES_F32 ? CASES : CASES / 2; /* to compile them takes a while */
  seed = 7;
  for (int i = 0; i < 2 * cases; i++) {
    test_case t = draw_case(&facts, types, i % cases);
    t.tight = true;
    t.aligned = i % 3 == 2;
    if (run->variant.family) t.variant = &run->variant;
    at_end = i < cases;
    alignment = t.aligned ? VECTOR_BYTES : 1;
    snprintf(doing, sizeof doing, "%s touched memory %s a buffer: %s %c%c m %d n %d k %d case %d\n",
             run->name, at_end ? "behind" : "before", tsr_gemm_types_name(types), t.transpose_a ? 'T' : 'N',
             t.transpose_b ? 'T' : 'N', (int)t.m, (int)t.n, (int)t.k, i);
    run_case(device, &t);
  }
}

/* A matrix with gaps and one without, as CPUs and as GPUs run them. */
static void run_others(tsr_device *device, tsr_dtype dtype) {
  uint32_t *width = &tsr_opencl_of(device)->facts.float_vector_width;
  const uint32_t own = *width;
  alignment = 1;
  for (int i = 0; i < 8; i++) {
    at_end = i & 1;
    *width = i & 2 ? 1 : own;
    snprintf(
        doing, sizeof doing,
        "an elementwise operation, a reduction, a convolution or pooling of %s touched memory %s a buffer\n",
        tsr_dtype_name(dtype), at_end ? "behind" : "before");
    run_maps_and_reductions(device, dtype, 37, 75, i & 4 ? 3 : 0);
    run_images(device, dtype, i & 4 ? 3 : 0);
  }
  *width = own;
}

/* In the child. */
static void test_family(void **state) {
  const struct run *run = &runs[atoi(getenv("TSR_TEST_RUN"))];
  tsr_device *device = open_device(*state, test_selector(), TSR_DEVICE_OPTIONS(.gemm = run->family));
  const tsr_device_ops *own = device->ops;
  tsr_device_ops guarded = *own;
  guarded.buffer_create = guarded_create;
  guarded.buffer_destroy = guarded_destroy;
  device->ops = &guarded;
  const struct sigaction action = {.sa_sigaction = say_and_die, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
  for (int types = 0; types < TSR_GEMM_TYPES_COUNT; types++)
    if (run->types & 1u << types) run_guarded(device, run, (tsr_gemm_types)types);
  if (!run->types) run_others(device, TSR_F32);
  if (!run->types && device->gemm[TSR_GEMM_TYPES_F64].family) run_others(device, TSR_F64);
  device->ops = own;
  tsr_device_close(&device);
}

static void test_families(void **state) {
  if (!has_device(*state)) skip();
  if (strcmp(test_selector(), "pocl")) skip();
  for (int i = 0; i < RUNS; i++) {
    pid_t child = fork();
    if (child == 0) {
      char number[16];
      snprintf(number, sizeof number, "%d", i);
      setenv("TSR_TEST_RUN", number, 1);
      execl("/proc/self/exe", "test_guard_pages", (char *)NULL);
      _exit(4);
    }
    int ended = 0;
    assert_int_equal(waitpid(child, &ended, 0), child);
    if (ended) fail_msg("%s: its process ended with status %d", runs[i].name, ended);
  }
}

int main(void) {
  const struct CMUnitTest parent[] = {cmocka_unit_test(test_families)},
                          child[] = {cmocka_unit_test(test_family)};
  return getenv("TSR_TEST_RUN") ? cmocka_run_group_tests(child, fixture_setup, fixture_teardown)
                                : cmocka_run_group_tests(parent, fixture_setup, fixture_teardown);
}
