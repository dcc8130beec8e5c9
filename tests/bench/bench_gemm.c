/* bench_gemm.c: f32 products on PoCL, through the library's device interface, against OpenBLAS in the same
 * process on the same cores. Pairs alternate; what counts is the median of their ratios, so a noisy machine
 * widens the range that is printed before it moves the verdict.
 *
 *     bench_gemm [--cores N] [--seconds S] [--shape m,n,k] [--cpu-time] [--json]
 *
 * Exit code: 0 goal reached, 1 not reached or a wrong result, 2 wrong usage, 77 skipped. */
#include <cblas.h>
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_cores.h"
#include "bench_product.h"

enum { EXIT_WRONG_USAGE = 2, EXIT_SKIPPED = 77, PAIRS_MIN = 3, PAIRS_MAX = 41 };

static const double goal = 0.8;           /* of OpenBLAS, for square NN products */
static const double batch_seconds = 0.05; /* launches are batched up to this: a core that sleeps wakes late */

static const struct {
  int64_t m, n, k;
} sizes[] = {{1024, 1024, 1024}, {2048, 2048, 2048}, {4096, 4096, 4096}, {64, 2048, 2048}, {512, 2048, 2048}};

static const struct {
  const char *name;
  bool transpose_a, transpose_b;
} forms[] = {{"NN", false, false}, {"NT", false, true}, {"TN", true, false}};

typedef struct options {
  int cores;
  double seconds;  /* per product */
  int64_t m, n, k; /* one shape instead of the table; m = 0: the table */
  clockid_t clock;
  bool json;
} options;

typedef struct result {
  int pairs;
  double ratio, lowest, highest; /* OpenBLAS's seconds over ours */
  double ours, openblas;         /* seconds of one product, medians */
} result;

typedef struct verdict {
  int judged;
  double lowest;
  int64_t lowest_size;
} verdict;

static double now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int compare_numbers(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, compare_numbers);
  return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Seconds of one of `count` products, by us or by OpenBLAS. */
static tsr_status time_one(const options *o, bench_product *product, bool ours, int count, double *seconds,
                           tsr_error *error) {
  tsr_status status = TSR_OK;
  double start = now(o->clock);
  if (ours)
    status = bench_product_run_ours(product, count, error);
  else
    bench_product_run_openblas(product, count);
  *seconds = (now(o->clock) - start) / count;
  return status;
}

/* A pair, each side first in every other one; its results are compared afterwards, outside the clock. */
static tsr_status time_pair(const options *o, bench_product *product, int turn, int count, double seconds[2],
                            tsr_error *error) {
  TSR_RETURN_IF_FAILED(bench_product_spoil(product, error));
  for (int i = 0; i < 2; i++) {
    int side = (i + turn) % 2;
    TSR_RETURN_IF_FAILED(time_one(o, product, side == 0, count, &seconds[side], error));
  }
  return bench_product_check(product, error);
}

static tsr_status measure(const options *o, bench_product *product, result *out, tsr_error *error) {
  double pair[2], ratios[PAIRS_MAX], ours[PAIRS_MAX], openblas[PAIRS_MAX];
  int pairs = 0, count;
  TSR_RETURN_IF_FAILED(time_pair(o, product, 0, 1, pair, error)); /* warms up: compiles, touches every page */
  TSR_RETURN_IF_FAILED(time_pair(o, product, 0, 1, pair, error));
  count = pair[1] < batch_seconds ? (int)(batch_seconds / fmax(pair[1], 1e-6)) + 1 : 1;
  double end = now(CLOCK_MONOTONIC) + o->seconds;
  while (pairs < PAIRS_MAX && (pairs < PAIRS_MIN || now(CLOCK_MONOTONIC) < end)) {
    TSR_RETURN_IF_FAILED(time_pair(o, product, pairs, count, pair, error));
    ours[pairs] = pair[0];
    openblas[pairs] = pair[1];
    ratios[pairs++] = pair[1] / pair[0];
  }
  *out = (result){.pairs = pairs, .ratio = median(ratios, pairs)};
  out->lowest = ratios[0];
  out->highest = ratios[pairs - 1];
  out->ours = median(ours, pairs);
  out->openblas = median(openblas, pairs);
  return TSR_OK;
}

static void print_row(const bench_shape *shape, const char *form, const result *r, json_t *rows) {
  double gflop = 2e-9 * (double)shape->m * (double)shape->n * (double)shape->k;
  if (!rows) {
    printf("%5lld %5lld %5lld  %s %9.1f %9.1f %7.2f  %.2f - %.2f  %3d\n", (long long)shape->m,
           (long long)shape->n, (long long)shape->k, form, gflop / r->ours, gflop / r->openblas, r->ratio,
           r->lowest, r->highest, r->pairs);
    fflush(stdout);
    return;
  }
  json_array_append_new(rows, json_pack("{s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:i}", "m",
                                        (json_int_t)shape->m, "n", (json_int_t)shape->n, "k",
                                        (json_int_t)shape->k, "form", form, "gflops", gflop / r->ours,
                                        "openblas_gflops", gflop / r->openblas, "ratio", r->ratio,
                                        "ratio_min", r->lowest, "ratio_max", r->highest, "pairs", r->pairs));
}

/* Square forward products have a goal, the others are reported. */
static void judge(const bench_shape *shape, const result *r, verdict *verdict) {
  bool square = shape->m == shape->n && shape->n == shape->k;
  if (!square || shape->transpose_a || shape->transpose_b) return;
  if (verdict->judged++ && verdict->lowest <= r->ratio) return;
  verdict->lowest = r->ratio;
  verdict->lowest_size = shape->m;
}

/* Also where nothing was judged. */
static bool reached(const verdict *verdict) {
  return !verdict->judged || verdict->lowest >= goal;
}

static tsr_status run_one(const options *o, tsr_device *device, bench_shape shape, const char *form,
                          verdict *verdict, json_t *rows, tsr_error *error) {
  bench_product product;
  result r;
  tsr_status status = bench_product_init(&product, &shape, device, error);
  if (status == TSR_OK) status = measure(o, &product, &r, error);
  bench_product_finish(&product);
  if (status != TSR_OK) {
    tsr_error_wrap(error, "%s of %lld x %lld x %lld", form, (long long)shape.m, (long long)shape.n,
                   (long long)shape.k);
    return status;
  }
  print_row(&shape, form, &r, rows);
  judge(&shape, &r, verdict);
  return TSR_OK;
}

static tsr_status run_all(const options *o, tsr_device *device, verdict *verdict, json_t *rows,
                          tsr_error *error) {
  size_t count = o->m ? 1 : sizeof sizes / sizeof *sizes;
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < sizeof forms / sizeof *forms; j++) {
      bench_shape shape = {o->m, o->n, o->k, forms[j].transpose_a, forms[j].transpose_b};
      if (!o->m) shape.m = sizes[i].m, shape.n = sizes[i].n, shape.k = sizes[i].k;
      TSR_RETURN_IF_FAILED(run_one(o, device, shape, forms[j].name, verdict, rows, error));
    }
  return TSR_OK;
}

static void print_head(const options *o, const tsr_device *device) {
  const char *set = getenv("OPENBLAS_CORETYPE");
  const tsr_device_info *info = tsr_device_get_info(device);
  printf("f32 products, %d core%s, %s: %s (%s) against OpenBLAS as %s%s, %s threads\n", o->cores,
         o->cores == 1 ? "" : "s", o->clock == CLOCK_MONOTONIC ? "wall time" : "CPU time", info->name,
         info->driver, openblas_get_corename(), set ? " (set by OPENBLAS_CORETYPE)" : " (detected)",
         getenv("OPENBLAS_NUM_THREADS"));
  printf("    m     n     k  form  GFLOPS  OpenBLAS   ratio  range        pairs\n");
  fflush(stdout);
}

static void print_json(const options *o, const tsr_device *device, const verdict *verdict, json_t *rows) {
  const tsr_device_info *info = tsr_device_get_info(device);
  json_t *document =
      json_pack("{s:s, s:i, s:s, s:s, s:s, s:f, s:f, s:b, s:O}", "schema", "tessera.bench_gemm/1", "cores",
                o->cores, "clock", o->clock == CLOCK_MONOTONIC ? "wall" : "cpu", "device", info->name,
                "openblas", openblas_get_corename(), "goal", goal, "lowest", verdict->lowest, "reached",
                (int)reached(verdict), "products", rows);
  json_dumpf(document, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
  putchar('\n');
  json_decref(document);
}

static void print_verdict(const options *o, const verdict *verdict) {
  if (!verdict->judged) return;
  printf("goal: square NN products at %.2f of OpenBLAS or more on %d core%s: %s (lowest %.2f, at %lld)\n",
         goal, o->cores, o->cores == 1 ? "" : "s", reached(verdict) ? "reached" : "NOT reached",
         verdict->lowest, (long long)verdict->lowest_size);
}

static int bench(const options *o) {
  tsr_error error = {0};
  tsr_context *context = NULL;
  tsr_device *device = NULL;
  verdict verdict = {0};
  json_t *rows = o->json ? json_array() : NULL;
  int code = EXIT_FAILURE;
  tsr_status status = tsr_context_create(NULL, &context, &error);
  if (status == TSR_OK) status = tsr_device_open(context, "pocl", NULL, &device, &error);
  if (status == TSR_ERROR_NOT_FOUND) code = EXIT_SKIPPED;
  if (status == TSR_OK && !o->json) print_head(o, device);
  if (status == TSR_OK) status = run_all(o, device, &verdict, rows, &error);
  if (status != TSR_OK) {
    fprintf(stderr, "bench_gemm: %s\n", error.message);
  } else {
    if (o->json)
      print_json(o, device, &verdict, rows);
    else
      print_verdict(o, &verdict);
    code = reached(&verdict) ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  json_decref(rows);
  tsr_device_close(&device);
  tsr_context_destroy(&context);
  return code;
}

static bool read_options(int argc, char **argv, options *o) {
  static const struct option known[] = {
      {"cores", required_argument, NULL, 'c'}, {"seconds", required_argument, NULL, 's'},
      {"shape", required_argument, NULL, 'm'}, {"cpu-time", no_argument, NULL, 't'},
      {"json", no_argument, NULL, 'j'},        {0}};
  long long m = 0, n = 0, k = 0;
  *o = (options){.cores = 1, .seconds = 6, .clock = CLOCK_MONOTONIC};
  for (int letter; (letter = getopt_long(argc, argv, "", known, NULL)) != -1;) {
    if (letter == 'c') o->cores = atoi(optarg);
    if (letter == 's') o->seconds = atof(optarg);
    if (letter == 'm' && sscanf(optarg, "%lld,%lld,%lld", &m, &n, &k) != 3) return false;
    if (letter == 't') o->clock = CLOCK_PROCESS_CPUTIME_ID;
    if (letter == 'j') o->json = true;
    if (letter == '?') return false;
  }
  o->m = m;
  o->n = n;
  o->k = k;
  bool shape_good = (!m && !n && !k) || (m > 0 && n > 0 && k > 0);
  return optind == argc && o->cores > 0 && o->seconds >= 0 && shape_good;
}

int main(int argc, char **argv) {
  options o;
  if (!read_options(argc, argv, &o)) {
    fprintf(stderr, "usage: bench_gemm [--cores N] [--seconds S] [--shape m,n,k] [--cpu-time] [--json]\n");
    return EXIT_WRONG_USAGE;
  }
  bench_cores_take(o.cores, argv);
  return bench(&o);
}
