/* tuning_explain.c: which rows there are for a product, and why it takes the one that it takes: for people,
 * and as a document. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "device/tuning.h"

typedef struct explanation {
  const tsr_device *device;
  tsr_gemm_types types;
  int form;
  int64_t m, n, k;
  const tsr_tuned *row; /* NULL: the default */
  char variant[TSR_VARIANT_BYTES];
} explanation;

static explanation explain(const tsr_device *device, tsr_gemm_types types, int form, int64_t m, int64_t n,
                           int64_t k) {
  explanation e = {device, types, form, m, n, k, tsr_tuning_find(device, types, form, m, n, k), ""};
  tsr_gemm_facts facts = e.row ? e.row->facts : device->gemm[types];
  facts.tuning = 0;
  tsr_gemm_facts_format(&facts, e.variant, sizeof e.variant);
  return e;
}

static const char *level_is(const explanation *e, int level) {
  const char *const names[] = {e->device->info.name, e->device->architecture, e->device->info.vendor,
                               "any device"};
  return names[level];
}

/* The next row of these types from *place on, which goes behind it; NULL: no more. */
static const tsr_tuned *next_row(const explanation *e, size_t *place) {
  const tsr_tuning *tuning = e->device->tuning;
  while (tuning && *place < tuning->rows.count) {
    const tsr_tuned *row = &tuning->rows.items[(*place)++];
    if (row->types == e->types) return row;
  }
  return NULL;
}

static int count_rows(const explanation *e, int level, bool user) {
  int count = 0;
  const tsr_tuned *row;
  for (size_t place = 0; (row = next_row(e, &place));)
    count += row->usable && (int)row->level == level && row->user == user;
  return count;
}

static const char *why_unusable(const explanation *e, const tsr_tuned *row, tsr_error *error) {
  *error = (tsr_error){0};
  tsr_tuning_use(e->device, row, e->device->tuning->forced, error);
  return error->message;
}

static const char *why_default(const explanation *e) {
  return e->device->gemm[e->types].tuning ? "the variant of the row that fits best failed its self-test"
                                          : "there is no row for it";
}

static const char *or_else(const char *text, const char *other) {
  return text[0] ? text : other;
}

/* ---- for people ---- */

static void write_levels(const explanation *e, tsr_text *text) {
  for (int level = 0; level < TSR_TUNING_LEVELS; level++)
    tsr_text_append(text, "%-13s %s: %d of the user, %d built in\n",
                    tsr_tuning_level_name((tsr_tuning_level)level), level_is(e, level),
                    count_rows(e, level, true), count_rows(e, level, false));
}

static void write_product(const tsr_tuning_product *product, tsr_text *text) {
  tsr_text_append(text, "%s, m = %" PRId64 ", n = %" PRId64 ", k = %" PRId64, product->form, product->m,
                  product->n, product->k);
}

static void write_passed_over(const explanation *e, tsr_text *text) {
  tsr_error error;
  const tsr_tuned *row;
  for (size_t place = 0; (row = next_row(e, &place));) {
    if (row->usable) continue;
    tsr_text_append(text, "passed over   ");
    write_product(&row->row.product, text);
    tsr_text_append(text, ", from %s%s: %s\n", row->user ? "" : "built in, ", row->file,
                    why_unusable(e, row, &error));
  }
}

static void write_row(const explanation *e, tsr_text *text) {
  const tsr_tuning_row *row = &e->row->row;
  tsr_text_append(text, "row           ");
  write_product(&row->product, text);
  tsr_text_append(text, ": at distance %.2f, for %s, %s\n", tsr_tuning_distance(e->row, e->m, e->n, e->k),
                  level_is(e, (int)e->row->level), e->row->user ? "of the user" : "built in");
  tsr_text_append(text, "from          %s%s: %.1f GFLOPS, driver %s, %s, Tessera %s\n",
                  e->row->user ? "" : "built in, ", e->row->file, row->gflops,
                  or_else(row->driver, "unknown"), or_else(row->date, "no date"),
                  or_else(row->version, "unknown"));
}

static tsr_status give(tsr_text *text, tsr_writer writer, void *user, tsr_error *error) {
  tsr_status status = TSR_OK;
  if (text->failed)
    status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for an explanation");
  else if (writer(user, text->data, text->bytes))
    status = tsr_fail(error, TSR_ERROR_IO, "an explanation could not be written");
  free(text->data);
  return status;
}

tsr_status tsr_tuning_write(const tsr_device *device, tsr_gemm_types types, int form, int64_t m, int64_t n,
                            int64_t k, tsr_writer writer, void *user, tsr_error *error) {
  tsr_text text = {0};
  const explanation e = explain(device, types, form, m, n, k);
  tsr_text_append(&text, "product       %s %s, m = %" PRId64 ", n = %" PRId64 ", k = %" PRId64 "\n",
                  tsr_gemm_types_name(types), tsr_tuning_form_name(form), m, n, k);
  write_levels(&e, &text);
  write_passed_over(&e, &text);
  if (e.row)
    write_row(&e, &text);
  else
    tsr_text_append(&text, "row           none: the backend's default is used, because %s\n",
                    why_default(&e));
  tsr_text_append(&text, "variant       %s\n", e.variant);
  return give(&text, writer, user, error);
}

/* ---- as a document ---- */

/* What a driver says may not be UTF-8. */
static json_t *json_of(const char *text) {
  json_t *json = json_string(text);
  return json ? json : json_string("?");
}

static json_t *levels_to_json(const explanation *e) {
  json_t *levels = json_array();
  for (int level = 0; level < TSR_TUNING_LEVELS; level++)
    json_array_append_new(levels, json_pack("{s:s, s:o, s:i, s:i}", "level",
                                            tsr_tuning_level_name((tsr_tuning_level)level), "name",
                                            json_of(level_is(e, level)), "user", count_rows(e, level, true),
                                            "built_in", count_rows(e, level, false)));
  return levels;
}

static json_t *row_to_json(const tsr_tuned *row) {
  const tsr_tuning_product *product = &row->row.product;
  return json_pack("{s:s, s:I, s:I, s:I, s:s, s:b, s:o}", "form", product->form, "m", (json_int_t)product->m,
                   "n", (json_int_t)product->n, "k", (json_int_t)product->k, "level",
                   tsr_tuning_level_name(row->level), "user", (int)row->user, "file", json_of(row->file));
}

static json_t *passed_over_to_json(const explanation *e) {
  json_t *rows = json_array();
  tsr_error error;
  const tsr_tuned *row;
  for (size_t place = 0; (row = next_row(e, &place));) {
    if (row->usable) continue;
    json_t *json = row_to_json(row);
    json_object_set_new(json, "why", json_of(why_unusable(e, row, &error)));
    json_array_append_new(rows, json);
  }
  return rows;
}

static json_t *taken_to_json(const explanation *e) {
  if (!e->row) return json_null();
  const tsr_tuning_row *row = &e->row->row;
  json_t *json = row_to_json(e->row);
  json_object_set_new(json, "distance", json_real(tsr_tuning_distance(e->row, e->m, e->n, e->k)));
  json_object_set_new(json, "gflops", json_real(row->gflops));
  json_object_set_new(json, "driver", json_of(row->driver));
  json_object_set_new(json, "date", json_of(row->date));
  json_object_set_new(json, "version", json_of(row->version));
  return json;
}

static json_t *to_json(const explanation *e) {
  const tsr_device_info *info = &e->device->info;
  json_t *json = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:{s:o, s:o}, s:o, s:o, s:o, s:s}", "schema",
                           "tessera.explain/1", "types", tsr_gemm_types_name(e->types), "form",
                           tsr_tuning_form_name(e->form), "m", (json_int_t)e->m, "n", (json_int_t)e->n, "k",
                           (json_int_t)e->k, "device", "name", json_of(info->name), "driver",
                           json_of(info->driver), "levels", levels_to_json(e), "passed_over",
                           passed_over_to_json(e), "row", taken_to_json(e), "variant", e->variant);
  if (!e->row) json_object_set_new(json, "why", json_string(why_default(e)));
  return json;
}

static tsr_status write_json(const explanation *e, tsr_writer writer, void *user, tsr_error *error) {
  json_t *json = to_json(e);
  char *dump = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
  tsr_text text = {0};
  tsr_text_append(&text, "%s\n", dump ? dump : "");
  text.failed |= !dump;
  free(dump);
  json_decref(json);
  return give(&text, writer, user, error);
}

tsr_status tsr_tuning_explain(const tsr_device *device, const tsr_tuning_product *product,
                              tsr_tuning_format format, tsr_writer writer, void *user, tsr_error *error) {
  tsr_gemm_types types;
  int form;
  TSR_RETURN_IF_FAILED(tsr_tuning_product_read(product, &types, &form, error));
  if (device->gemm[types].family == TSR_GEMM_NONE)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "products in %s: %s does not have them",
                    tsr_gemm_types_name(types), device->info.name);
  if (format == TSR_TUNING_TEXT)
    return tsr_tuning_write(device, types, form, product->m, product->n, product->k, writer, user, error);
  const explanation e = explain(device, types, form, product->m, product->n, product->k);
  return write_json(&e, writer, user, error);
}
