/* bench_gemm.c: products on PoCL, through the library's device interface, against OpenBLAS in the same
 * process on the same cores; or with an epilogue, against the same without fusion. Pairs alternate; what
 * counts is the median of their ratios, so a noisy machine widens the range that is printed before it moves
 * the verdict.
 *
 *     bench_gemm [--cores N] [--seconds S] [--shapes short|layers] [--shape m,n,k] [--dtype f32|f64]
 * [--cpu-time]
 *                [--form NN|NT|TN] [--epilogue bias|bias+relu|bias+gelu|gate|residual]
 *                [--against openblas|sequence|bare] [--json]
 *
 * Exit code: 0 goals reached, 1 not reached or a wrong result, 2 wrong usage, 77 skipped. */
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
#include "bench_time.h"

enum { EXIT_WRONG_USAGE = 2, EXIT_SKIPPED = 77, PAIRS_MIN = 3, PAIRS_MAX = 41 };

static const double batch_seconds = 0.05; /* launches are batched up to this: a core that sleeps wakes late */

typedef struct size {
  int64_t m, n, k;
} size;
static const size short_list[] = {
    {1024, 1024, 1024}, {2048, 2048, 2048}, {4096, 4096, 4096}, {64, 2048, 2048}, {512, 2048, 2048}};
#define ROWS(m)                                                                                              \
  {m, 1024, 1024}, {m, 2048, 2048}, {m, 4096, 4096}, {m, 8192, 2048}, {                                      \
    m, 2048, 8192                                                                                            \
  }
static const size long_list[] = {{512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {4096, 4096, 4096},
                                 ROWS(8),         ROWS(64),           ROWS(512),          ROWS(2048)};

/* Ratios to reach by the forward product and by the gradients: the median and the lowest. */
typedef struct goals {
  double median, lowest;
} goals;
typedef struct list {
  const char *name;
  const size *sizes;
  size_t count;
  goals f32[2], f64[2];
} list;
static const list lists[] = {
    {"short", short_list, sizeof short_list / sizeof *short_list, {{0, 0.8}, {0, 0}}, {{0, 0.8}, {0, 0}}},
    {"layers",
     long_list,
     sizeof long_list / sizeof *long_list,
     {{1.05, 0.95}, {0.95, 0.85}},
     {{1.0, 0.9}, {0.95, 0.85}}},
};
static const goals epilogue_goals = {0, 1}; /* of the unfused sequence */
static const goals cost_goals = {0, 0.97};  /* of the product alone */

static const struct {
  const char *name;
  bool transpose_a, transpose_b;
} forms[] = {{"NN", false, false}, {"NT", false, true}, {"TN", true, false}};

static const bench_epilogue epilogues[] = {
    {.name = "bias", .bias = true},
    {.name = "bias+relu", .bias = true, .activate = true, .unary = TSR_UNARY_RELU},
    {.name = "bias+gelu", .bias = true, .activate = true, .unary = TSR_UNARY_GELU},
    {.name = "gate", .gate = true},
    {.name = "residual", .residual = true},
};

static const char *const yardsticks[] = {
    [BENCH_OPENBLAS] = "openblas", [BENCH_SEQUENCE] = "sequence", [BENCH_BARE] = "bare"};

typedef struct options {
  int cores;
  double seconds; /* per product */
  const list *list;
  size one;         /* instead of the list; m = 0: the list */
  const char *form; /* NULL: all */
  tsr_dtype dtype;
  bench_epilogue epilogue;
  bench_yardstick yardstick;
  clockid_t clock;
  bool json;
} options;

typedef struct result {
  int pairs;
  double ratio, lowest, highest; /* the yardstick's seconds over ours */
  double ours, yardstick;        /* seconds of one product, medians */
} result;

enum { RATIOS_MAX = 64 };
typedef struct verdict {
  double ratios[2][RATIOS_MAX]; /* of forward products, of gradients; ascending at the end */
  int count[2];
  goals goals[2];
} verdict;

/* Seconds of one of `count` products, by us or by the yardstick. */
static tsr_status time_one(const options *o, bench_product *product, bool ours, int count, double *seconds,
                           tsr_error *error) {
  tsr_status status = TSR_OK;
  double start = now(o->clock);
  if (ours)
    status = bench_product_run_ours(product, count, error);
  else
    status = bench_product_run_yardstick(product, count, error);
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
  double pair[2], ratios[PAIRS_MAX], ours[PAIRS_MAX], yardstick[PAIRS_MAX];
  int pairs = 0, count;
  TSR_RETURN_IF_FAILED(time_pair(o, product, 0, 1, pair, error)); /* warms up: compiles, touches every page */
  TSR_RETURN_IF_FAILED(time_pair(o, product, 0, 1, pair, error));
  count = pair[1] < batch_seconds ? (int)(batch_seconds / fmax(pair[1], 1e-6)) + 1 : 1;
  double end = now(CLOCK_MONOTONIC) + o->seconds;
  while (pairs < PAIRS_MAX && (pairs < PAIRS_MIN || now(CLOCK_MONOTONIC) < end)) {
    TSR_RETURN_IF_FAILED(time_pair(o, product, pairs, count, pair, error));
    ours[pairs] = pair[0];
    yardstick[pairs] = pair[1];
    ratios[pairs++] = pair[1] / pair[0];
  }
  *out = (result){.pairs = pairs, .ratio = median(ratios, pairs)};
  out->lowest = ratios[0];
  out->highest = ratios[pairs - 1];
  out->ours = median(ours, pairs);
  out->yardstick = median(yardstick, pairs);
  return TSR_OK;
}

static void print_row(const bench_shape *shape, const char *form, const result *r, json_t *rows) {
  double gflop = 2e-9 * (double)shape->m * (double)shape->n * (double)shape->k;
  if (!rows) {
    printf("%5lld %5lld %5lld  %s %9.1f %9.1f %7.2f  %.2f - %.2f  %3d\n", (long long)shape->m,
           (long long)shape->n, (long long)shape->k, form, gflop / r->ours, gflop / r->yardstick, r->ratio,
           r->lowest, r->highest, r->pairs);
    fflush(stdout);
    return;
  }
  json_array_append_new(rows, json_pack("{s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:i}", "m",
                                        (json_int_t)shape->m, "n", (json_int_t)shape->n, "k",
                                        (json_int_t)shape->k, "form", form, "gflops", gflop / r->ours,
                                        "yardstick_gflops", gflop / r->yardstick, "ratio", r->ratio,
                                        "ratio_min", r->lowest, "ratio_max", r->highest, "pairs", r->pairs));
}

static void judge(const bench_shape *shape, const result *r, verdict *verdict) {
  const int gradient = shape->transpose_a || shape->transpose_b;
  if (verdict->count[gradient] < RATIOS_MAX) verdict->ratios[gradient][verdict->count[gradient]++] = r->ratio;
}

static void set_goals(const options *o, verdict *verdict) {
  for (int i = 0; i < 2; i++)
    verdict->goals[i] = o->yardstick == BENCH_SEQUENCE ? epilogue_goals
                        : o->yardstick == BENCH_BARE   ? cost_goals
                        : o->dtype == TSR_F64          ? o->list->f64[i]
                                                       : o->list->f32[i];
}

/* Also where nothing was judged. */
static bool reached(verdict *verdict, int gradient) {
  if (!verdict->count[gradient]) return true;
  double middle = median(verdict->ratios[gradient], verdict->count[gradient]);
  return middle >= verdict->goals[gradient].median &&
         verdict->ratios[gradient][0] >= verdict->goals[gradient].lowest;
}

static tsr_status run_one(const options *o, tsr_device *device, bench_shape shape, const char *form,
                          verdict *verdict, json_t *rows, tsr_error *error) {
  bench_product product = {.shape = shape,
                           .dtype = o->dtype,
                           .epilogue = o->epilogue,
                           .yardstick = o->yardstick,
                           .device = device};
  result r;
  tsr_status status = bench_product_init(&product, error);
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

/* A list's products are layers: x [m,k] w [k,n], and their gradients: dy w^T is [m,k], x^T dy is [k,n]. */
static bench_shape shape_of(const options *o, const size *layer, bool transpose_a, bool transpose_b) {
  bench_shape shape = {layer->m, layer->n, layer->k, transpose_a, transpose_b};
  if (o->one.m) return shape;
  if (transpose_b) shape.n = layer->k, shape.k = layer->n;
  if (transpose_a) shape.m = layer->k, shape.k = layer->m;
  return shape;
}

static tsr_status run_all(const options *o, tsr_device *device, verdict *verdict, json_t *rows,
                          tsr_error *error) {
  size_t count = o->one.m ? 1 : o->list->count;
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < sizeof forms / sizeof *forms; j++) {
      const size *size = o->one.m ? &o->one : &o->list->sizes[i];
      bench_shape shape = shape_of(o, size, forms[j].transpose_a, forms[j].transpose_b);
      if (o->form && strcmp(o->form, forms[j].name)) continue;
      TSR_RETURN_IF_FAILED(run_one(o, device, shape, forms[j].name, verdict, rows, error));
    }
  return TSR_OK;
}

static void print_head(const options *o, const tsr_device *device) {
  const char *set = getenv("OPENBLAS_CORETYPE");
  const tsr_device_info *info = tsr_device_get_info(device);
  printf("%s products%s%s, %d core%s, %s: %s (%s) against ", tsr_dtype_name(o->dtype),
         o->epilogue.name ? " with " : "", o->epilogue.name ? o->epilogue.name : "", o->cores,
         o->cores == 1 ? "" : "s", o->clock == CLOCK_MONOTONIC ? "wall time" : "CPU time", info->name,
         info->driver);
  if (o->yardstick == BENCH_OPENBLAS)
    printf("OpenBLAS as %s%s, %s threads\n", openblas_get_corename(),
           set ? " (set by OPENBLAS_CORETYPE)" : " (detected)", getenv("OPENBLAS_NUM_THREADS"));
  else
    printf(o->yardstick == BENCH_SEQUENCE ? "product and passes\n" : "the product alone\n");
  printf("    m     n     k  form  GFLOPS yardstick   ratio  range        pairs\n");
  fflush(stdout);
}

static void print_json(const options *o, const tsr_device *device, verdict *verdict, json_t *rows) {
  static const char *const names[] = {"forward", "gradients"};
  const tsr_device_info *info = tsr_device_get_info(device);
  json_t *document =
      json_pack("{s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:O}", "schema", "tessera.bench_gemm/2", "cores",
                o->cores, "clock", o->clock == CLOCK_MONOTONIC ? "wall" : "cpu", "device", info->name,
                "dtype", tsr_dtype_name(o->dtype), "epilogue", o->epilogue.name ? o->epilogue.name : "",
                "against", yardsticks[o->yardstick], "openblas", openblas_get_corename(), "products", rows);
  for (int i = 0; i < 2; i++) {
    if (!verdict->count[i]) continue;
    bool good = reached(verdict, i);
    json_object_set_new(document, names[i],
                        json_pack("{s:f, s:f, s:f, s:f, s:b}", "median",
                                  median(verdict->ratios[i], verdict->count[i]), "lowest",
                                  verdict->ratios[i][0], "goal_median", verdict->goals[i].median,
                                  "goal_lowest", verdict->goals[i].lowest, "reached", (int)good));
  }
  json_dumpf(document, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
  putchar('\n');
  json_decref(document);
}

static void print_verdict(verdict *verdict) {
  static const char *const names[] = {"NN", "NT and TN"};
  for (int i = 0; i < 2; i++) {
    const goals *goals = &verdict->goals[i];
    if (!verdict->count[i]) continue;
    bool good = reached(verdict, i);
    printf("%s: median %.3f, lowest %.3f of %d", names[i], median(verdict->ratios[i], verdict->count[i]),
           verdict->ratios[i][0], verdict->count[i]);
    if (goals->median > 0 || goals->lowest > 0)
      printf("; goal: median %.2f, lowest %.2f: %s", goals->median, goals->lowest,
             good ? "reached" : "NOT reached");
    putchar('\n');
  }
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
  set_goals(o, &verdict);
  if (status == TSR_OK && !o->json) print_head(o, device);
  if (status == TSR_OK) status = run_all(o, device, &verdict, rows, &error);
  if (status != TSR_OK) {
    fprintf(stderr, "bench_gemm: %s\n", error.message);
  } else {
    if (o->json)
      print_json(o, device, &verdict, rows);
    else
      print_verdict(&verdict);
    code = reached(&verdict, 0) && reached(&verdict, 1) ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  json_decref(rows);
  tsr_device_close(&device);
  tsr_context_destroy(&context);
  return code;
}

static bool read_shape(const char *text, size *out) {
  long long m = 0, n = 0, k = 0;
  bool good = sscanf(text, "%lld,%lld,%lld", &m, &n, &k) == 3 && m > 0 && n > 0 && k > 0;
  *out = (size){m, n, k};
  return good;
}

static bool read_list(const char *name, const list **out) {
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
    if (!strcmp(lists[i].name, name)) return *out = &lists[i], true;
  return false;
}

static bool read_epilogue(const char *name, bench_epilogue *out) {
  for (size_t i = 0; i < sizeof epilogues / sizeof *epilogues; i++)
    if (!strcmp(epilogues[i].name, name)) return *out = epilogues[i], true;
  return false;
}

static bool read_yardstick(const char *name, bench_yardstick *out) {
  for (size_t i = 0; i < sizeof yardsticks / sizeof *yardsticks; i++)
    if (!strcmp(yardsticks[i], name)) return *out = (bench_yardstick)i, true;
  return false;
}

static bool read_option(int letter, options *o) {
  switch (letter) {
  case 'c': return (o->cores = atoi(optarg)) > 0;
  case 's': return (o->seconds = atof(optarg)) >= 0;
  case 'l': return read_list(optarg, &o->list);
  case 'm': return read_shape(optarg, &o->one);
  case 'f': o->form = optarg; return !strcmp(optarg, "NN") || !strcmp(optarg, "NT") || !strcmp(optarg, "TN");
  case 'd': o->dtype = strcmp(optarg, "f64") ? TSR_F32 : TSR_F64; return true;
  case 'e': return read_epilogue(optarg, &o->epilogue);
  case 'a': return read_yardstick(optarg, &o->yardstick);
  case 't': o->clock = CLOCK_PROCESS_CPUTIME_ID; return true;
  case 'j': return o->json = true;
  default: return false;
  }
}

static bool read_options(int argc, char **argv, options *o) {
  static const struct option known[] = {{"cores", required_argument, NULL, 'c'},
                                        {"seconds", required_argument, NULL, 's'},
                                        {"shapes", required_argument, NULL, 'l'},
                                        {"shape", required_argument, NULL, 'm'},
                                        {"form", required_argument, NULL, 'f'},
                                        {"dtype", required_argument, NULL, 'd'},
                                        {"epilogue", required_argument, NULL, 'e'},
                                        {"against", required_argument, NULL, 'a'},
                                        {"cpu-time", no_argument, NULL, 't'},
                                        {"json", no_argument, NULL, 'j'},
                                        {0}};
  bool yardstick_given = false;
  *o = (options){.cores = 1, .seconds = 6, .list = &lists[0], .clock = CLOCK_MONOTONIC};
  for (int letter; (letter = getopt_long(argc, argv, "", known, NULL)) != -1;) {
    if (!read_option(letter, o)) return false;
    yardstick_given |= letter == 'a';
  }
  if (o->epilogue.name && !yardstick_given) o->yardstick = BENCH_SEQUENCE;
  return optind == argc && (o->yardstick == BENCH_OPENBLAS) == !o->epilogue.name;
}

int main(int argc, char **argv) {
  options o;
  if (!read_options(argc, argv, &o)) {
    fprintf(stderr,
            "usage: bench_gemm [--cores N] [--seconds S] [--shapes short|layers] [--shape m,n,k]\n"
            "           [--dtype f32|f64] [--form NN|NT|TN] [--epilogue bias|bias+relu|bias+gelu|gate|\n"
            "           residual [--against sequence|bare]] [--cpu-time] [--json]\n");
    return EXIT_WRONG_USAGE;
  }
  bench_cores_take(o.cores, argv);
  return bench(&o);
}
