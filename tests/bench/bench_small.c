/* bench_small.c: products of few rows on PoCL: f32 and narrow weights, against OpenBLAS, against the panel
 * kernel and against reading the weights, in one process on the same cores. Every side takes its turn in each
 * round; what counts are medians of ratios within a round. Cold: each side goes through so many copies of its
 * weights that no cache holds them.
 *
 *     bench_small [--cores N] [--seconds S] [--shape m,n,k] [--cold BYTES] [--cpu-time]
 *                 [--sides NAME,...] [--types NAME] [--kernels FOLDER] [--variant "panel ..."]
 *
 * --kernels and --variant: what the column `other` runs instead of the panel kernel as it is; --types: what
 * it and the first column multiply, instead of f32. Exit code: 0 done, 1 a wrong result, 2 wrong usage, 77
 * skipped. */
#include <cblas.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/narrow.h"
#include "bench_cores.h"
#include "bench_read.h"
#include "bench_time.h"
#include "device/device.h"

enum {
  EXIT_WRONG_USAGE = 2,
  EXIT_SKIPPED = 77,
  ROUNDS_MIN = 3,
  ROUNDS_MAX = 401,
  COPIES_MAX = 1024,
  SAMPLES = 61
};

/* Launches are batched up to this. Wall time: a core that sleeps wakes late. CPU time: short turns, so that
 * all sides see the same neighbours. */
static const double batch_seconds_wall = 0.05, batch_seconds_cpu = 0.004;

typedef enum side { F32, F16, BF16, I8, OTHER, OPENBLAS, READ, SIDES } side;
static const char *const side_names[SIDES] = {"f32", "f16", "bf16", "i8", "other", "OpenBLAS", "read"};
static tsr_gemm_types side_types[] = {TSR_GEMM_TYPES_F32, TSR_GEMM_TYPES_F32_F16, TSR_GEMM_TYPES_F32_BF16,
                                      TSR_GEMM_TYPES_F32_I8, TSR_GEMM_TYPES_F32};

static const int64_t rows_of_table[] = {1, 2, 4, 8, 16};
static const struct {
  int64_t n, k;
} weights_of_table[] = {{1024, 1024}, {2048, 2048}, {4096, 4096}, {8192, 2048}, {2048, 8192}};

typedef struct options {
  int cores;
  double seconds; /* per product */
  size_t cold;    /* bytes of weights that a side goes through; 0 = one copy */
  int64_t m, n, k;
  clockid_t clock;
  const char *kernels, *variant, *sides;
} options;

/* One product as a side runs it, with its copies of the weight. */
typedef struct runner {
  tsr_device *device;
  tsr_gemm_facts facts;
  tsr_gemm_call call;
  tsr_buffer *copies[COPIES_MAX];
  int count, next;
  bool shares; /* the copies are the f32 runner's */
} runner;

typedef struct bench {
  const options *o;
  tsr_context *contexts[2];
  tsr_device *devices[2]; /* ours, other */
  int64_t m, n, k;
  float *a, *b, *c; /* OpenBLAS's; b: its copies, one after another */
  int copies, next;
  runner runners[OTHER + 1];
  const void *read[COPIES_MAX]; /* the f32 runner's copies as the host sees them */
} bench;

/* f32 is always there: the others are compared with it. */
static bool has_side(const bench *bench, int side) {
  const char *list = bench->o->sides, *name = side_names[side];
  const char *at = list ? strstr(list, name) : NULL;
  return side == F32 || !list || (at && (at == list || at[-1] == ',') && strchr(",", at[strlen(name)]));
}

/* ---- operands: every type holds the weight exactly, q / 64 with |q| < 128 ---- */

static int weight_at(int64_t p, int64_t j) {
  uint64_t x = (uint64_t)(p * 1000003 + j);
  x = (x ^ (x >> 15)) * 0x9E3779B97F4A7C15u;
  return (int)(x >> 56) - 128 + (x >> 56 == 0);
}

static float input_at(int64_t i, int64_t p) {
  return (float)weight_at(i + 77, p + 1) / 100;
}

static void put(void *data, tsr_dtype dtype, int64_t index, int q) {
  switch (dtype) {
  case TSR_F16: ((uint16_t *)data)[index] = tsr_narrow_f16(q / 64.0); break;
  case TSR_BF16: ((uint16_t *)data)[index] = tsr_narrow_bf16(q / 64.0); break;
  case TSR_I8: ((int8_t *)data)[index] = (int8_t)q; break;
  default: ((float *)data)[index] = (float)q / 64;
  }
}

static tsr_status map(tsr_device *device, tsr_buffer *buffer, tsr_host_mode mode, void **data,
                      tsr_error *error) {
  return tsr_device_host_wait(device, buffer, 0, buffer->bytes, mode, data, error);
}

static tsr_status unmap(tsr_device *device, tsr_buffer *buffer, void *data, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_device_host_end(device, buffer, data, error));
  return tsr_device_finish(device, error);
}

static tsr_status make_weight(runner *r, tsr_matrix *b, const void *same, tsr_error *error) {
  const tsr_dtype dtype = tsr_gemm_dtype_b(r->call.types);
  const size_t bytes = (size_t)tsr_matrix_bytes(b->panel, dtype, b->rows, b->cols);
  void *data = NULL;
  TSR_RETURN_IF_FAILED(tsr_buffer_create(r->device, bytes, &b->buffer, error));
  TSR_RETURN_IF_FAILED(map(r->device, b->buffer, TSR_HOST_WRITE, &data, error));
  if (same)
    memcpy(data, same, bytes);
  else
    for (int64_t p = 0; p < b->rows; p++)
      for (int64_t j = 0; j < b->cols; j++) put(data, dtype, tsr_matrix_index(b, p, j), weight_at(p, j));
  return unmap(r->device, b->buffer, data, error);
}

static tsr_status make_copies(const bench *bench, runner *r, tsr_error *error) {
  const tsr_dtype dtype = tsr_gemm_dtype_b(r->call.types);
  const size_t bytes = (size_t)tsr_matrix_bytes(r->call.b.panel, dtype, bench->k, bench->n);
  const size_t wanted = bench->o->cold / bytes;
  void *first = NULL;
  const runner *f32 = &bench->runners[F32];
  r->shares = r != f32 && r->device == f32->device && r->call.types == f32->call.types &&
              r->call.b.panel == f32->call.b.panel;
  if (r->shares) { /* where a buffer lies must not decide */
    memcpy(r->copies, f32->copies, sizeof r->copies);
    r->count = f32->count;
    return TSR_OK;
  }
  r->count = wanted < 1 ? 1 : wanted > COPIES_MAX ? COPIES_MAX : (int)wanted;
  for (int i = 0; i < r->count; i++) {
    tsr_matrix b = r->call.b;
    TSR_RETURN_IF_FAILED(make_weight(r, &b, first, error));
    r->copies[i] = b.buffer;
    if (i == 0) TSR_RETURN_IF_FAILED(map(r->device, b.buffer, TSR_HOST_READ, &first, error));
  }
  return unmap(r->device, r->copies[0], first, error);
}

static tsr_status make_input(const bench *bench, runner *r, tsr_error *error) {
  float *data = NULL;
  tsr_matrix *a = &r->call.a, *scale = &r->call.scale;
  *a = (tsr_matrix){.rows = bench->m, .cols = bench->k, .ld = bench->k};
  r->call.c = (tsr_matrix){.rows = bench->m, .cols = bench->n, .ld = bench->n};
  TSR_RETURN_IF_FAILED(
      tsr_buffer_create(r->device, (size_t)(bench->m * bench->n) * 4, &r->call.c.buffer, error));
  TSR_RETURN_IF_FAILED(tsr_buffer_create(r->device, (size_t)(bench->m * bench->k) * 4, &a->buffer, error));
  TSR_RETURN_IF_FAILED(map(r->device, a->buffer, TSR_HOST_WRITE, (void **)&data, error));
  memcpy(data, bench->a, (size_t)(bench->m * bench->k) * sizeof *data);
  TSR_RETURN_IF_FAILED(unmap(r->device, a->buffer, data, error));
  if (r->call.types != TSR_GEMM_TYPES_F32_I8) return TSR_OK;
  *scale = (tsr_matrix){.rows = 1, .cols = bench->n, .ld = bench->n};
  TSR_RETURN_IF_FAILED(tsr_buffer_create(r->device, (size_t)bench->n * 4, &scale->buffer, error));
  TSR_RETURN_IF_FAILED(map(r->device, scale->buffer, TSR_HOST_WRITE, (void **)&data, error));
  for (int64_t j = 0; j < bench->n; j++) data[j] = 1.0f / 64;
  return unmap(r->device, scale->buffer, data, error);
}

static tsr_status make_runner(bench *bench, side side, tsr_error *error) {
  runner *r = &bench->runners[side];
  const tsr_gemm_types types = side_types[side];
  r->device = bench->devices[side == OTHER && bench->o->kernels ? 1 : 0];
  r->facts = r->device->gemm[types];
  if (side == OTHER && bench->o->variant)
    TSR_RETURN_IF_FAILED(tsr_gemm_facts_parse(bench->o->variant, &r->facts, error));
  else if (side == OTHER && !bench->o->kernels)
    r->facts.small_m = 0;
  r->call = (tsr_gemm_call){
      .types = types, .m = bench->m, .n = bench->n, .k = bench->k, .alpha = 1, .facts = &r->facts};
  r->call.b = (tsr_matrix){.rows = bench->k, .cols = bench->n, .ld = bench->k, .panel = r->facts.panel};
  if (!r->facts.panel) r->call.b.ld = bench->n;
  TSR_RETURN_IF_FAILED(make_input(bench, r, error));
  return make_copies(bench, r, error);
}

static tsr_status make_host_operands(bench *bench, tsr_error *error) {
  const int64_t m = bench->m, n = bench->n, k = bench->k;
  size_t wanted = bench->o->cold / (size_t)(n * k * 4);
  bench->copies = wanted < 1 || !has_side(bench, OPENBLAS) ? 1 : (int)wanted;
  bench->a = tsr_malloc_pages((size_t)(m * k) * sizeof *bench->a);
  bench->b = tsr_malloc_pages((size_t)(n * k * bench->copies) * sizeof *bench->b);
  bench->c = tsr_malloc_pages((size_t)(m * n) * sizeof *bench->c);
  if (!bench->a || !bench->b || !bench->c)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the operands");
  for (int64_t i = 0; i < m; i++)
    for (int64_t p = 0; p < k; p++) bench->a[i * k + p] = input_at(i, p);
  for (int64_t p = 0; p < k; p++)
    for (int64_t j = 0; j < n; j++) bench->b[p * n + j] = (float)weight_at(p, j) / 64;
  for (int i = 1; i < bench->copies; i++)
    memcpy(bench->b + n * k * i, bench->b, (size_t)(n * k) * sizeof *bench->b);
  return TSR_OK;
}

static tsr_status make_all(bench *bench, tsr_error *error) {
  TSR_RETURN_IF_FAILED(make_host_operands(bench, error));
  for (int side = 0; side <= OTHER; side++)
    if (has_side(bench, side)) TSR_RETURN_IF_FAILED(make_runner(bench, side, error));
  runner *r = &bench->runners[F32];
  for (int i = 0; i < r->count; i++) {
    void *data = NULL;
    TSR_RETURN_IF_FAILED(map(r->device, r->copies[i], TSR_HOST_READ, &data, error));
    bench->read[i] = data; /* zero-copy on a CPU: the same place after it is given back */
    TSR_RETURN_IF_FAILED(unmap(r->device, r->copies[i], data, error));
  }
  return TSR_OK;
}

static void free_all(bench *bench) {
  for (int side = 0; side <= OTHER; side++) {
    runner *r = &bench->runners[side];
    for (int i = 0; i < r->count && !r->shares; i++) tsr_buffer_destroy(r->device, &r->copies[i]);
    tsr_buffer_destroy(r->device, &r->call.a.buffer);
    tsr_buffer_destroy(r->device, &r->call.c.buffer);
    tsr_buffer_destroy(r->device, &r->call.scale.buffer);
    *r = (runner){0};
  }
  free(bench->a);
  free(bench->b);
  free(bench->c);
}

/* ---- running ---- */

static tsr_status run_ours(runner *r, int count, tsr_error *error) {
  for (int i = 0; i < count; i++) {
    r->next = (r->next + 1) % r->count;
    r->call.b.buffer = r->copies[r->next];
    TSR_RETURN_IF_FAILED(tsr_device_gemm(r->device, &r->call, error));
  }
  return tsr_device_finish(r->device, error);
}

static void run_openblas(bench *bench, int count) {
  const int m = (int)bench->m, n = (int)bench->n, k = (int)bench->k;
  for (int i = 0; i < count; i++) {
    bench->next = (bench->next + 1) % bench->copies;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, bench->a, k,
                bench->b + bench->n * bench->k * bench->next, n, 0, bench->c, n);
  }
}

static void run_read(bench *bench, int count) {
  const runner *r = &bench->runners[F32];
  const size_t bytes = r->copies[0]->bytes;
  static int next;
  static volatile float kept;
  const void *parts[COPIES_MAX];
  for (int done = 0; done < count;) {
    int some = count - done < COPIES_MAX ? count - done : COPIES_MAX;
    for (int i = 0; i < some; i++) parts[i] = bench->read[next++ % r->count];
    kept = bench_read(parts, some, bytes, bench->o->cores);
    done += some;
  }
  (void)kept;
}

static tsr_status time_side(bench *bench, side side, int count, double *seconds, tsr_error *error) {
  tsr_status status = TSR_OK;
  double start = now(bench->o->clock);
  if (!has_side(bench, side)) {
    *seconds = NAN;
    return TSR_OK;
  }
  if (side <= OTHER)
    status = run_ours(&bench->runners[side], count, error);
  else if (side == OPENBLAS)
    run_openblas(bench, count);
  else
    run_read(bench, count);
  *seconds = (now(bench->o->clock) - start) / count;
  return status;
}

/* Sampled elements, in f64: at most 4 sqrt(k) eps |A||B| apart. */
static tsr_status check(const bench *bench, const char *name, const float *c, tsr_error *error) {
  for (int64_t i = 0; i < bench->m; i++)
    for (int64_t s = 0; s < SAMPLES; s++) {
      int64_t j = s < SAMPLES - 1 ? s * bench->n / SAMPLES : bench->n - 1;
      double sum = 0, size = 0;
      for (int64_t p = 0; p < bench->k; p++) {
        double term = (double)input_at(i, p) * weight_at(p, j) / 64;
        sum += term;
        size += fabs(term);
      }
      double is = c[i * bench->n + j], bound = 4 * sqrt((double)bench->k) * tsr_dtype_epsilon(TSR_F32) * size;
      if (!(fabs(is - sum) <= bound))
        return tsr_fail(error, TSR_ERROR_CHECK_FAILED,
                        "%s: element (%d, %d) is %g, expected %g: at most %g apart", name, (int)i, (int)j, is,
                        sum, bound);
    }
  return TSR_OK;
}

static tsr_status check_all(bench *bench, tsr_error *error) {
  if (has_side(bench, OPENBLAS)) TSR_RETURN_IF_FAILED(check(bench, "OpenBLAS", bench->c, error));
  for (int side = 0; side <= OTHER; side++) {
    runner *r = &bench->runners[side];
    void *data = NULL;
    if (!has_side(bench, side)) continue;
    TSR_RETURN_IF_FAILED(map(r->device, r->call.c.buffer, TSR_HOST_READ_WRITE, &data, error));
    TSR_RETURN_IF_FAILED(check(bench, side_names[side], data, error));
    memset(data, 0xff, r->call.c.buffer->bytes); /* not a number */
    TSR_RETURN_IF_FAILED(unmap(r->device, r->call.c.buffer, data, error));
  }
  return TSR_OK;
}

/* Launches are batched to a time or to one pass over the copies, whichever takes longer. */
static int batch(const bench *bench, side side, double seconds) {
  int least = side <= OTHER  ? bench->runners[side].count
              : side == READ ? bench->runners[F32].count
                             : bench->copies;
  double batch_seconds = bench->o->clock == CLOCK_MONOTONIC ? batch_seconds_wall : batch_seconds_cpu;
  int count = (int)(batch_seconds / fmax(seconds, 1e-7)) + 1;
  return bench->o->cold && count < least ? least : count;
}

static tsr_status measure(bench *bench, double ratios[SIDES], double times[SIDES], tsr_error *error) {
  static double seconds[SIDES][ROUNDS_MAX], relative[SIDES][ROUNDS_MAX];
  int counts[SIDES], rounds = 0;
  for (int side = 0; side < SIDES; side++) { /* compiles and touches every page; then how long it takes */
    double once;
    TSR_RETURN_IF_FAILED(time_side(bench, side, 1, &once, error));
    TSR_RETURN_IF_FAILED(time_side(bench, side, 4, &once, error));
    counts[side] = batch(bench, side, once);
  }
  TSR_RETURN_IF_FAILED(check_all(bench, error));
  const double end = now(CLOCK_MONOTONIC) + bench->o->seconds;
  for (; rounds < ROUNDS_MAX && (rounds < ROUNDS_MIN || now(CLOCK_MONOTONIC) < end); rounds++) {
    for (int i = 0; i < SIDES; i++) {
      int side = rounds % 2 ? SIDES - 1 - i : i;
      TSR_RETURN_IF_FAILED(time_side(bench, side, counts[side], &seconds[side][rounds], error));
    }
    for (int side = 0; side < SIDES; side++)
      relative[side][rounds] = seconds[F32][rounds] / seconds[side][rounds];
  }
  for (int side = 0; side < SIDES; side++) {
    ratios[side] = median(relative[side], rounds);
    times[side] = median(seconds[side], rounds);
  }
  return check_all(bench, error);
}

static void print_row(const bench *bench, const double ratios[SIDES], const double times[SIDES]) {
  const double elements = (double)bench->n * (double)bench->k;
  printf("%3d %5d %5d %8.1f %7.2f %7.2f", (int)bench->m, (int)bench->n, (int)bench->k,
         2e-9 * elements * (double)bench->m / times[F32], 4e-9 * elements / times[F32],
         4e-9 * elements / times[READ]);
  printf(" %9.2f %6.2f %6.2f |", 1 / ratios[OPENBLAS], 1 / ratios[READ], 1 / ratios[OTHER]);
  printf(" %6.2f %6.2f %6.2f\n", ratios[F16], ratios[BF16], ratios[I8]);
  fflush(stdout);
}

static tsr_status run_one(bench *bench, int64_t m, int64_t n, int64_t k, tsr_error *error) {
  double ratios[SIDES], times[SIDES];
  bench->m = m;
  bench->n = n;
  bench->k = k;
  tsr_status status = make_all(bench, error);
  if (status == TSR_OK) status = measure(bench, ratios, times, error);
  free_all(bench);
  if (status == TSR_OK) print_row(bench, ratios, times);
  return status;
}

static tsr_status run_all(bench *bench, tsr_error *error) {
  const options *o = bench->o;
  printf("%d cores, %s, %zu bytes of weights a side, OpenBLAS as %s; ratios: speeds in f32 over ..., of ... "
         "over "
         "f32\n  m     n     k   GFLOPS    GB/s    read  OpenBLAS   read  other |    f16   bf16     i8\n",
         o->cores, o->clock == CLOCK_MONOTONIC ? "wall time" : "CPU time", o->cold, openblas_get_corename());
  if (o->m) return run_one(bench, o->m, o->n, o->k, error);
  for (size_t w = 0; w < sizeof weights_of_table / sizeof *weights_of_table; w++)
    for (size_t i = 0; i < sizeof rows_of_table / sizeof *rows_of_table; i++)
      TSR_RETURN_IF_FAILED(
          run_one(bench, rows_of_table[i], weights_of_table[w].n, weights_of_table[w].k, error));
  return TSR_OK;
}

static tsr_status open_devices(bench *bench, tsr_error *error) {
  for (int i = 0; i < 2; i++) {
    const char *folder = i ? bench->o->kernels : NULL;
    TSR_RETURN_IF_FAILED(
        tsr_context_create(TSR_CONTEXT_OPTIONS(.kernel_folder = folder), &bench->contexts[i], error));
    TSR_RETURN_IF_FAILED(tsr_device_open(bench->contexts[i], "pocl", NULL, &bench->devices[i], error));
  }
  return TSR_OK;
}

static bool read_options(int argc, char **argv, options *o) {
  static const struct option known[] = {
      {"cores", required_argument, NULL, 'c'},   {"seconds", required_argument, NULL, 's'},
      {"shape", required_argument, NULL, 'm'},   {"cold", required_argument, NULL, 'b'},
      {"kernels", required_argument, NULL, 'k'}, {"variant", required_argument, NULL, 'v'},
      {"types", required_argument, NULL, 'y'},   {"sides", required_argument, NULL, 'o'},
      {"cpu-time", no_argument, NULL, 't'},      {0}};
  long long m = 0, n = 0, k = 0;
  *o = (options){.cores = 1, .seconds = 4, .clock = CLOCK_MONOTONIC};
  for (int letter; (letter = getopt_long(argc, argv, "", known, NULL)) != -1;) {
    if (letter == 'c') o->cores = atoi(optarg);
    if (letter == 's') o->seconds = atof(optarg);
    if (letter == 'm' && (sscanf(optarg, "%lld,%lld,%lld", &m, &n, &k) != 3 || m < 1 || n < 1 || k < 1))
      return false;
    if (letter == 'b') o->cold = (size_t)strtoull(optarg, NULL, 10);
    if (letter == 'k') o->kernels = optarg;
    if (letter == 'o') o->sides = optarg;
    if (letter == 'y') side_types[F32] = side_types[OTHER] = tsr_gemm_types_of(optarg);
    if (letter == 'v') o->variant = optarg;
    if (letter == 't') o->clock = CLOCK_PROCESS_CPUTIME_ID;
    if (letter == '?') return false;
  }
  o->m = m;
  o->n = n;
  o->k = k;
  return optind == argc && o->cores > 0 && o->seconds >= 0 && side_types[F32] < TSR_GEMM_TYPES_COUNT;
}

int main(int argc, char **argv) {
  options o;
  tsr_error error = {0};
  static bench bench;
  if (!read_options(argc, argv, &o)) {
    fprintf(stderr,
            "usage: bench_small [--cores N] [--seconds S] [--shape m,n,k] [--cold BYTES] [--cpu-time] "
            "[--sides NAME,...] [--kernels FOLDER] [--variant TEXT]\n");
    return EXIT_WRONG_USAGE;
  }
  bench_cores_take(o.cores, argv);
  bench.o = &o;
  tsr_status status = open_devices(&bench, &error);
  if (status == TSR_OK) status = run_all(&bench, &error);
  if (status != TSR_OK) fprintf(stderr, "bench_small: %s\n%s", error.message, error.build_log);
  for (int i = 0; i < 2; i++) {
    tsr_device_close(&bench.devices[i]);
    tsr_context_destroy(&bench.contexts[i]);
  }
  if (status == TSR_ERROR_NOT_FOUND) return EXIT_SKIPPED;
  return status == TSR_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
