/* cmd_bench.c: tessera bench: products on one device, against other libraries, each result checked. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_cores.h"
#include "bench_measure.h"
#include "choice.h"
#include "commands.h"
#include "json.h"
#include "message.h"
#include "report.h"

/* Of a series of ratios against one yardstick. */
typedef struct summary {
  double *ratios;
  int count;
  double lowest;
  tool_shape lowest_shape;
} summary;

typedef struct bench {
  const tool_options *options;
  const char *types, *form;
  int cores;
  tsr_context *context;
  tsr_device *ours, *clblast; /* clblast: the same device, opened a second time */
  tool_runner runners[TOOL_RUNNERS];
  int runner_count; /* ours, then the yardsticks in the order of --against */
  tool_clock clock;
  tool_shapes shapes;
  summary summaries[TOOL_RUNNERS];
  json_t *products;
} bench;

/* ---- preparation ---- */

static bool has(const bench *b, tool_runner runner) {
  for (int i = 0; i < b->runner_count; i++)
    if (b->runners[i] == runner) return true;
  return false;
}

/* False: there is no yardstick of that name. */
static bool add_yardstick(bench *b, const char *name) {
  int i = 1;
  while (i < TOOL_RUNNERS && strcmp(name, tool_runner_name((tool_runner)i)) != 0) i++;
  if (i == TOOL_RUNNERS) return false;
  if (!has(b, (tool_runner)i)) b->runners[b->runner_count++] = (tool_runner)i;
  return true;
}

/* 0, or wrong usage. *status: of a file of shapes. */
static int read_words(bench *b, tsr_status *status, tsr_error *error) {
  const tool_texts *against = &b->options->against;
  b->types = tool_types_names[b->options->types];
  b->form = tool_form_names[b->options->form];
  b->runner_count = 1; /* ours */
  for (size_t i = 0; i < against->count; i++)
    if (!add_yardstick(b, against->items[i]))
      return tool_usage(b->options->name, "--against is '%s', expected openblas, clblast or both",
                        against->items[i]);
  *status = tool_shapes_read(b->options->shapes, &b->shapes, error);
  return *status == TSR_ERROR_INVALID_ARGUMENT ? tool_usage(b->options->name, "%s", error->message) : 0;
}

static tsr_status choose(const tool_options *options, tsr_context *context, tool_choice *out,
                         tsr_error *error) {
  tool_device_table table;
  tsr_status status = tool_devices_find(context, false, &table, error);
  if (status == TSR_OK) status = tool_choose(&table, options, 0, 0, out, error);
  if (status == TSR_OK) tool_choices_restrict(out, 1);
  tool_devices_free(&table);
  return status;
}

static tsr_status open_devices(bench *b, tsr_error *error) {
  tool_choice choice;
  tsr_device_options options;
  tsr_device_options_init(&options);
  options.work = TSR_WORK_F32 | (unsigned)(b->form[0] == b->form[1] ? TSR_WORK_FORWARD : TSR_WORK_BACKWARD);
  tsr_status status = choose(b->options, b->context, &choice, error);
  if (status == TSR_OK) status = tsr_device_open(b->context, choice.selector, &options, &b->ours, error);
  options.gemm = tool_runner_name(TOOL_RUNNER_CLBLAST);
  if (status == TSR_OK && has(b, TOOL_RUNNER_CLBLAST))
    status = tsr_device_open(b->context, choice.selector, &options, &b->clblast, error);
  return status;
}

/* Each contender has copies of its own. */
static tsr_status check_cold_memory(const bench *b, tsr_error *error) {
  const tsr_device_info *info = tsr_device_get_info(b->ours);
  const uint64_t most = info->memory_bytes / (uint64_t)b->runner_count;
  char asked[16], there[16], least[16];
  if (!info->memory_bytes || b->options->cold_bytes <= most) return TSR_OK;
  return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY,
                   "--cold %s for each of %d contender%s, but %s has %s of memory: say at most %s",
                   tool_format_bytes(asked, (double)b->options->cold_bytes), b->runner_count,
                   b->runner_count == 1 ? "" : "s", info->name,
                   tool_format_bytes(there, (double)info->memory_bytes),
                   tool_format_bytes(least, (double)most));
}

static tsr_status prepare(bench *b, tsr_error *error) {
  tsr_status status = tool_cores_take(b->options, &b->cores, error);
  if (status == TSR_OK && has(b, TOOL_RUNNER_OPENBLAS)) status = tool_blas_load(b->options, error);
  b->clock = b->options->cpu_time           ? TOOL_CLOCK_CPU
             : has(b, TOOL_RUNNER_OPENBLAS) ? TOOL_CLOCK_HOST
                                            : TOOL_CLOCK_DEVICE;
  if (status == TSR_OK) status = tool_context_create(-1, &b->context, error);
  if (status == TSR_OK) status = open_devices(b, error);
  if (status == TSR_OK) status = check_cold_memory(b, error);
  for (int i = 0; status == TSR_OK && i < TOOL_RUNNERS; i++)
    if (!(b->summaries[i].ratios = calloc(b->shapes.count, sizeof(double))))
      status = tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %zu products", b->shapes.count);
  return status;
}

/* ---- one product ---- */

static double gflop_of(const tool_shape *shape) {
  return 2e-9 * (double)shape->m * (double)shape->n * (double)shape->k;
}

static json_t *spread_to_json(const tool_spread *spread) {
  return json_pack("{s:f, s:f, s:f, s:f, s:f}", "min", spread->least, "q1", spread->lower, "median",
                   spread->median, "q3", spread->upper, "max", spread->most);
}

static json_t *result_to_json(const bench *b, const tool_product *product, const tool_measurement *measured,
                              int index) {
  const tool_result *result = &measured->results[index];
  bool wide = b->runners[index] != TOOL_RUNNER_OURS;
  double bytes = wide ? (double)(product->shape.k * product->shape.n) * (double)tsr_dtype_bytes(product->wide)
                      : tool_product_weight_bytes(product);
  json_t *json =
      json_pack("{s:s, s:f, s:f, s:o, s:b}", "name", tool_runner_name(b->runners[index]), "gflops",
                gflop_of(&product->shape) / result->seconds.median, "weight_bytes_per_second",
                bytes / result->seconds.median, "seconds", spread_to_json(&result->seconds), "verified", 1);
  if (index) json_object_set_new(json, "ratio", spread_to_json(&result->ratio));
  return json;
}

static void add_document(bench *b, const tool_product *product, const tool_measurement *measured,
                         const char *variant) {
  const tool_shape *shape = &product->shape;
  json_t *results = json_array();
  for (int i = 0; i < b->runner_count; i++)
    json_array_append_new(results, result_to_json(b, product, measured, i));
  json_array_append_new(b->products,
                        json_pack("{s:I, s:I, s:I, s:s, s:s, s:i, s:I, s:o}", "m", (json_int_t)shape->m, "n",
                                  (json_int_t)shape->n, "k", (json_int_t)shape->k, "variant", variant,
                                  "clock", tool_clock_name(measured->clock), "turns", measured->turns,
                                  "batch", (json_int_t)measured->batch, "results", results));
}

/* Spread: between the quartiles, of the median. */
static void print_row(const bench *b, const tool_shape *shape, const tool_measurement *measured,
                      double weight_bytes) {
  const tool_spread *own = &measured->results[0].seconds;
  printf("%6" PRId64 " %6" PRId64 " %6" PRId64 "  %8.1f %5.1f%%", shape->m, shape->n, shape->k,
         gflop_of(shape) / own->median, 100 * (own->upper - own->lower) / own->median);
  if (shape->m == 1)
    printf(" %6.1f", 1e-9 * weight_bytes / own->median);
  else
    printf(" %6s", "");
  for (int i = 1; i < b->runner_count; i++) {
    const tool_result *result = &measured->results[i];
    printf("  %8.1f %6.2f %5.2f-%-5.2f", gflop_of(shape) / result->seconds.median, result->ratio.median,
           result->ratio.lower, result->ratio.upper);
  }
  printf("  %3d  %s\n", measured->turns, tool_clock_name(measured->clock));
  fflush(stdout);
}

static void count_ratios(bench *b, const tool_shape *shape, const tool_measurement *measured) {
  for (int i = 1; i < b->runner_count; i++) {
    summary *summary = &b->summaries[i];
    double ratio = measured->results[i].ratio.median;
    if (!summary->count || ratio < summary->lowest) {
      summary->lowest = ratio;
      summary->lowest_shape = *shape;
    }
    summary->ratios[summary->count++] = ratio;
  }
}

/* Copies of b that take so many bytes together. */
static tsr_status count_copies(const bench *b, const tool_product *product, tool_runner runner, int64_t *out,
                               tsr_error *error) {
  const double cold = (double)b->options->cold_bytes;
  double bytes = runner == TOOL_RUNNER_OURS
                     ? tool_product_weight_bytes(product)
                     : (double)(product->shape.k * product->shape.n) * (double)tsr_dtype_bytes(product->wide);
  char asked[16], weight[16], most[16];
  *out = cold / bytes < TSR_GEMM_COPIES_MAX ? 1 + (int64_t)(cold / bytes) : 0;
  if (*out) return TSR_OK;
  return tool_fail(
      error, TSR_ERROR_UNSUPPORTED,
      "--cold %s would be %.0f copies of a weight of %s, the limit is %d: say less than %s, or give "
      "a larger shape",
      tool_format_bytes(asked, cold), cold / bytes, tool_format_bytes(weight, bytes), TSR_GEMM_COPIES_MAX,
      tool_format_bytes(most, bytes * TSR_GEMM_COPIES_MAX));
}

static tsr_status run_product(bench *b, const tool_product *product, tool_contender *contenders,
                              tsr_error *error) {
  tool_measurement measured;
  tsr_status status = TSR_OK;
  for (int i = 0; status == TSR_OK && i < b->runner_count; i++) {
    tool_runner runner = b->runners[i];
    tsr_device *device = runner == TOOL_RUNNER_OURS      ? b->ours
                         : runner == TOOL_RUNNER_CLBLAST ? b->clblast
                                                         : NULL;
    int64_t copies;
    status = count_copies(b, product, runner, &copies, error);
    if (status == TSR_OK)
      status = tool_contender_init(&contenders[i], runner, product, device, NULL, copies, error);
  }
  if (status == TSR_OK)
    status = tool_measure(contenders, b->runner_count, b->clock, b->options->seconds, &measured, error);
  if (status != TSR_OK) return status;
  if (b->options->json)
    add_document(b, product, &measured, tsr_gemm_variant(contenders[0].gemm));
  else
    print_row(b, &product->shape, &measured, tool_product_weight_bytes(product));
  count_ratios(b, &product->shape, &measured);
  return TSR_OK;
}

static tsr_status run_shape(bench *b, const tool_shape *shape, tsr_error *error) {
  tool_product product;
  tool_contender contenders[TOOL_RUNNERS] = {{0}};
  tsr_status status = tool_product_init(&product, shape, b->types, b->form, error);
  if (status == TSR_OK) status = run_product(b, &product, contenders, error);
  for (int i = 0; i < b->runner_count; i++) tool_contender_finish(&contenders[i]);
  tool_product_finish(&product);
  if (status == TSR_OK || !error) return status;
  tsr_error own = *error;
  return tool_fail(error, status, "%s %s %" PRId64 " x %" PRId64 " x %" PRId64 ": %s", b->types, b->form,
                   shape->m, shape->n, shape->k, own.message);
}

/* ---- all ---- */

static void print_head(const bench *b) {
  const tsr_device_info *info = tsr_device_get_info(b->ours);
  printf("products in %s, %s, on %s (%s), %d core%s of the host\n", b->types, b->form, info->name,
         info->driver, b->cores, b->cores == 1 ? "" : "s");
  if (has(b, TOOL_RUNNER_OPENBLAS)) printf("OpenBLAS as %s\n", tool_blas_name());
  printf("%6s %6s %6s  %8s %6s %6s", "m", "n", "k", "GFLOPS", "spread", "GB/s");
  for (int i = 1; i < b->runner_count; i++)
    printf("  %8s %6s %11s", tool_runner_name(b->runners[i]), "ratio", "quartiles");
  printf("  turns clock\n");
  fflush(stdout);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_of(summary *summary) {
  int count = summary->count;
  qsort(summary->ratios, (size_t)count, sizeof *summary->ratios, by_size);
  return (summary->ratios[count / 2] + summary->ratios[(count - 1) / 2]) / 2;
}

static void print_summaries(bench *b) {
  for (int i = 1; i < b->runner_count; i++) {
    summary *summary = &b->summaries[i];
    const tool_shape *shape = &summary->lowest_shape;
    printf("against %s: median ratio %.2f, lowest %.2f, at %" PRId64 " x %" PRId64 " x %" PRId64
           " (%d products; above 1 = ours is faster)\n",
           tool_runner_name(b->runners[i]), median_of(summary), summary->lowest, shape->m, shape->n, shape->k,
           summary->count);
  }
}

static json_t *document_of(bench *b) {
  const tsr_device_info *info = tsr_device_get_info(b->ours);
  json_t *summaries = json_array();
  for (int i = 1; i < b->runner_count; i++) {
    summary *summary = &b->summaries[i];
    const tool_shape *shape = &summary->lowest_shape;
    json_array_append_new(
        summaries, json_pack("{s:s, s:s, s:f, s:f, s:[I, I, I]}", "against", tool_runner_name(b->runners[i]),
                             "as", b->runners[i] == TOOL_RUNNER_OPENBLAS ? tool_blas_name() : "", "median",
                             median_of(summary), "lowest", summary->lowest, "lowest_at", (json_int_t)shape->m,
                             (json_int_t)shape->n, (json_int_t)shape->k));
  }
  return json_pack("{s:s, s:s, s:s, s:s, s:{s:o, s:o, s:o}, s:i, s:o, s:O, s:o}", "schema", "tessera.bench/1",
                   "workload", "gemm", "types", b->types, "form", b->form, "device", "name",
                   tool_json_text(info->name), "driver", tool_json_text(info->driver), "platform",
                   tool_json_text(info->platform), "cores", b->cores, "cold_bytes",
                   tool_json_bytes(b->options->cold_bytes), "products", b->products, "summary", summaries);
}

static tsr_status run_all(bench *b, tsr_error *error) {
  tsr_status status = prepare(b, error);
  if (status == TSR_OK && !b->options->json) print_head(b);
  for (size_t i = 0; status == TSR_OK && i < b->shapes.count; i++)
    status = run_shape(b, &b->shapes.items[i], error);
  return status;
}

static void finish(bench *b) {
  for (int i = 0; i < TOOL_RUNNERS; i++) free(b->summaries[i].ratios);
  json_decref(b->products);
  tool_shapes_free(&b->shapes);
  tsr_device_close(&b->clblast);
  tsr_device_close(&b->ours);
  if (b->context) tsr_context_destroy(&b->context);
}

int tool_command_bench(const tool_options *options) {
  bench b = {.options = options, .products = json_array()};
  tsr_error error = {.rank = -1};
  tsr_status status = TSR_OK;
  int code = read_words(&b, &status, &error);
  if (code) {
    finish(&b);
    return code;
  }
  if (status == TSR_OK) status = run_all(&b, &error);
  bool good = status == TSR_OK;
  if (good && !options->json) print_summaries(&b);
  if (options->json)
    good =
        tool_json_print(options->name, good ? document_of(&b) : tool_json_failure(options->name, &error)) &&
        good;
  if (error.message[0]) tool_complain(options->name, -1, &error);
  finish(&b);
  return good ? TOOL_EXIT_DONE : TOOL_EXIT_FAILED;
}
