/* cmd_tune.c: tessera tune: a search per shape, and rows of what it found; or which row a product uses. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "choice.h"
#include "commands.h"
#include "json.h"
#include "message.h"
#include "numbers.h"
#include "stop.h"
#include "tune_search.h"

typedef struct tune {
  const tool_options *options;
  tsr_context *context;
  tsr_device *device;
  tool_choice choice;
  tool_shapes shapes;
  size_t row_count; /* that were written */
  json_t *products, *not_searched;
} tune;

static tsr_status choose(tune *t, tsr_error *error) {
  tool_device_table table;
  tsr_status status = tool_devices_find(t->context, false, &table, error);
  if (status == TSR_OK) status = tool_choose(&table, t->options, 0, 0, &t->choice, error);
  if (status == TSR_OK) tool_choices_restrict(&t->choice, 1);
  tool_devices_free(&table);
  return status;
}

/* This process builds and runs no product: a kernel that hangs or crashes is a child's affair. */
static tsr_status open_device(tune *t, tsr_error *error) {
  tsr_device_options options;
  tsr_device_options_init(&options);
  options.work = TSR_WORK_ELEMENTWISE;
  tsr_status status = tool_context_create(-1, &t->context, error);
  if (status == TSR_OK) status = choose(t, error);
  return status == TSR_OK ? tsr_device_open(t->context, t->choice.selector, &options, &t->device, error)
                          : status;
}

/* ---- --explain ---- */

static int read_product(const tool_options *options, tsr_tuning_product *out) {
  static const char *const names[] = {"M", "N", "K"};
  int64_t *const sizes[] = {&out->m, &out->n, &out->k};
  for (int i = 0; i < 3; i++)
    if (!tool_read_count(options->workload.items[i], 1, INT64_MAX, sizes[i]))
      return tool_usage(options->name, "%s is '%s', expected a whole number from 1 on", names[i],
                        options->workload.items[i]);
  snprintf(out->types, sizeof out->types, "%s", tool_types_names[options->types]);
  snprintf(out->form, sizeof out->form, "%s", tool_form_names[options->form]);
  return 0;
}

/* ---- the search ---- */

static double gflops_of(const tool_shape *shape, double seconds) {
  return 2e-9 * (double)shape->m * (double)shape->n * (double)shape->k / seconds;
}

static bool is_faster(const tool_search_result *found) {
  return strcmp(found->best, found->baseline) != 0;
}

static tsr_tuning_row make_row(const tune *t, const tool_shape *shape, const tool_search_result *found) {
  tsr_tuning_row row = {.gflops = gflops_of(shape, found->seconds)};
  time_t now = time(NULL);
  tsr_tuning_identify(t->device, &row);
  row.product.m = shape->m;
  row.product.n = shape->n;
  row.product.k = shape->k;
  snprintf(row.product.types, sizeof row.product.types, "%s", tool_types_names[t->options->types]);
  snprintf(row.product.form, sizeof row.product.form, "%s", tool_form_names[t->options->form]);
  snprintf(row.variant, sizeof row.variant, "%s", found->best);
  snprintf(row.version, sizeof row.version, "%s", tsr_version());
  strftime(row.date, sizeof row.date, "%Y-%m-%d", gmtime(&now));
  return row;
}

static void add_document(tune *t, const tool_shape *shape, const tool_search_result *found) {
  json_t *failures = json_array();
  for (int i = 0; i < found->failed; i++)
    json_array_append_new(failures, json_pack("{s:s, s:o}", "variant", found->failures[i].variant, "why",
                                              tool_json_text(found->failures[i].why)));
  json_array_append_new(t->products,
                        json_pack("{s:I, s:I, s:I, s:{s:s, s:f}, s:{s:s, s:f}, s:f, s:i, s:b, s:o}", "m",
                                  (json_int_t)shape->m, "n", (json_int_t)shape->n, "k", (json_int_t)shape->k,
                                  "current", "variant", found->baseline, "gflops",
                                  gflops_of(shape, found->baseline_seconds), "best", "variant", found->best,
                                  "gflops", gflops_of(shape, found->seconds), "ratio", found->ratio, "tried",
                                  found->tried, "complete", (int)found->complete, "failures", failures));
}

static void print_found(const tool_shape *shape, const tool_search_result *found) {
  printf("%6" PRId64 " %6" PRId64 " %6" PRId64 "  %8.1f %8.1f %6.2f  %5d %6d  %-8s %s\n", shape->m, shape->n,
         shape->k, gflops_of(shape, found->baseline_seconds), gflops_of(shape, found->seconds), found->ratio,
         found->tried, found->failed,
         found->complete    ? "done"
         : tool_stop_signal ? "stopped"
                            : "time up",
         is_faster(found) ? found->best : "kept");
  fflush(stdout);
}

static void print_head(const tune *t) {
  const tsr_device_info *info = tsr_device_get_info(t->device);
  printf("products in %s, %s, on %s (%s)\n", tool_types_names[t->options->types],
         tool_form_names[t->options->form], info->name, info->driver);
  printf("%6s %6s %6s  %8s %8s %6s  %5s %6s  %-8s %s\n", "m", "n", "k", "current", "best", "ratio", "tried",
         "failed", "search", "variant");
  fflush(stdout);
}

/* Each is said: what is missing in a table is not seen. */
static void tell_not_searched(tune *t, size_t first, const char *why) {
  for (size_t i = first; i < t->shapes.count; i++) {
    const tool_shape *shape = &t->shapes.items[i];
    json_array_append_new(t->not_searched,
                          json_pack("{s:I, s:I, s:I, s:s}", "m", (json_int_t)shape->m, "n",
                                    (json_int_t)shape->n, "k", (json_int_t)shape->k, "why", why));
    if (!t->options->json)
      printf("%6" PRId64 " %6" PRId64 " %6" PRId64 "  not searched: %s\n", shape->m, shape->n, shape->k, why);
  }
}

/* A row is written when it is found, so that nothing that comes later can take it away. */
static tsr_status keep(tune *t, const tool_shape *shape, const tool_search_result *found, tsr_error *error) {
  if (t->options->json)
    add_document(t, shape, found);
  else
    print_found(shape, found);
  if (!is_faster(found)) return TSR_OK;
  const tsr_tuning_row row = make_row(t, shape, found);
  tsr_status status = tsr_tuning_save(t->context, t->options->output, &row, 1, error);
  t->row_count += status == TSR_OK;
  return status;
}

/* Each shape has an equal part of the time that is left. */
static tsr_status search_all(tune *t, tsr_error *error) {
  const double end = tool_seconds_now() + t->options->budget;
  tsr_status status = TSR_OK;
  size_t i = 0;
  for (; status == TSR_OK && i < t->shapes.count; i++) {
    const tool_shape *shape = &t->shapes.items[i];
    tool_search_result found;
    double seconds = (end - tool_seconds_now()) / (double)(t->shapes.count - i);
    if (tool_stop_signal || seconds <= 0) break;
    tool_progress("%" PRId64 " x %" PRId64 " x %" PRId64 ", %.0f s", shape->m, shape->n, shape->k, seconds);
    status = tool_search(t->options, t->device, t->choice.selector, shape, seconds, &found, error);
    const bool known = status == TSR_OK && found.tried;
    if (known) status = keep(t, shape, &found, error);
    free(found.failures);
    if (status == TSR_OK && !known) break;
  }
  tell_not_searched(t, i,
                    status != TSR_OK   ? "the one before it failed"
                    : tool_stop_signal ? "tune was stopped"
                                       : "the time was up; give --budget more");
  return status;
}

static void tell_rows(const tune *t, FILE *file) {
  const char *output = t->options->output;
  fprintf(file, "%zu row%s written to %s%s\n", t->row_count, t->row_count == 1 ? "" : "s",
          output ? "" : "the folder ", output ? output : tsr_context_tuning_folder(t->context));
}

static void tell_end(const tune *t, tsr_status status) {
  if (tool_stop_signal) {
    fprintf(stderr, "tessera tune: stopped by %s: %zu of %zu shapes were searched, ", tool_stop_name(),
            t->shapes.count - json_array_size(t->not_searched), t->shapes.count);
    tell_rows(t, stderr);
  } else if (!t->options->json && t->row_count) {
    tell_rows(t, stdout);
  } else if (!t->options->json && status == TSR_OK) {
    printf("kept: nothing was at least 1 %% faster, no row is written\n");
  }
}

static tsr_status check_output(const tune *t, tsr_error *error) {
  tsr_tuning_row like = {.gflops = 0};
  tsr_tuning_identify(t->device, &like);
  if (!t->options->output && !tsr_context_tuning_folder(t->context)[0])
    return tool_fail(error, TSR_ERROR_IO,
                     "there is no folder for tuning rows: set TESSERA_TUNING or HOME, or "
                     "say --output FILE");
  return tsr_tuning_save_check(t->context, t->options->output, &like, error);
}

static tsr_status search_and_save(tune *t, tsr_error *error) {
  tsr_status status = check_output(t, error);
  if (status != TSR_OK) return status;
  tool_stop_watch();
  if (!t->options->json) print_head(t);
  status = search_all(t, error);
  tell_end(t, status);
  return status;
}

static tsr_status explain(tune *t, const tsr_tuning_product *product, tsr_error *error) {
  return tsr_tuning_explain(t->device, product, t->options->json ? TSR_TUNING_JSON : TSR_TUNING_TEXT,
                            tool_write_file, stdout, error);
}

static json_t *document_of(tune *t) {
  const tsr_device_info *info = tsr_device_get_info(t->device);
  return json_pack("{s:s, s:s, s:s, s:{s:o, s:o}, s:O, s:O, s:i, s:s}", "schema", "tessera.tune/1", "types",
                   tool_types_names[t->options->types], "form", tool_form_names[t->options->form], "device",
                   "name", tool_json_text(info->name), "driver", tool_json_text(info->driver), "products",
                   t->products, "not_searched", t->not_searched, "rows_written", (int)t->row_count,
                   "stopped_by", tool_stop_name());
}

static void finish(tune *t) {
  json_decref(t->products);
  json_decref(t->not_searched);
  tool_shapes_free(&t->shapes);
  tsr_device_close(&t->device);
  if (t->context) tsr_context_destroy(&t->context);
}

/* 0, or wrong usage. *status: of a file of shapes. */
static int read_words(tune *t, tsr_tuning_product *product, tsr_status *status, tsr_error *error) {
  if (t->options->explain) return read_product(t->options, product);
  *status = tool_shapes_read(t->options->shapes, &t->shapes, error);
  return *status == TSR_ERROR_INVALID_ARGUMENT ? tool_usage(t->options->name, "%s", error->message) : 0;
}

int tool_command_tune(const tool_options *options) {
  tune t = {.options = options, .products = json_array(), .not_searched = json_array()};
  tsr_tuning_product product = {.m = 0};
  tsr_error error = {.rank = -1};
  tsr_status status = TSR_OK;
  int code = read_words(&t, &product, &status, &error);
  if (code || options->candidate) {
    finish(&t);
    return code ? code : tool_candidate_measure(options);
  }
  if (status == TSR_OK) status = open_device(&t, &error);
  if (status == TSR_OK)
    status = options->explain ? explain(&t, &product, &error) : search_and_save(&t, &error);
  bool good = status == TSR_OK;
  if (options->json && !(good && options->explain))
    good =
        tool_json_print(options->name, good ? document_of(&t) : tool_json_failure(options->name, &error)) &&
        good;
  if (status != TSR_OK) tool_complain(options->name, -1, &error);
  finish(&t);
  tool_stop_end();
  return good ? TOOL_EXIT_DONE : TOOL_EXIT_FAILED;
}
