/* tuning.c: which rows are in force on a device, and which of them a product takes. */
#include "device/tuning.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/text.h"

static const char *const level_names[] = {"device", "architecture", "vendor", "all"};
static const char *const form_names[] = {"nn", "tn", "nt", "tt"};
enum { FORMS = 4 };

const char *tsr_tuning_form_name(int form) {
  return form_names[form];
}

tsr_status tsr_tuning_product_read(const tsr_tuning_product *product, tsr_gemm_types *types, int *form,
                                   tsr_error *error) {
  *types = tsr_gemm_types_of(product->types);
  if (*types == TSR_GEMM_TYPES_COUNT)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "types \"%s\" of a product: expected f32, f64, f32xf16, f32xbf16, f32xi8, f16 or bf16",
                    product->types);
  for (*form = 0; *form < FORMS && strcmp(product->form, form_names[*form]);) ++*form;
  if (*form == FORMS)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "form \"%s\" of a product: expected nn, nt, tn or tt",
                    product->form);
  if (product->m < 1 || product->n < 1 || product->k < 1)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "product of m = %" PRId64 ", n = %" PRId64 ", k = %" PRId64 ": each must be at least 1",
                    product->m, product->n, product->k);
  return TSR_OK;
}

void tsr_tuning_identify(const tsr_device *device, tsr_tuning_row *out) {
  const tsr_device_info *info = &device->info;
  snprintf(out->vendor, sizeof out->vendor, "%s", info->vendor);
  snprintf(out->architecture, sizeof out->architecture, "%s", device->architecture);
  snprintf(out->device, sizeof out->device, "%s", info->name);
  snprintf(out->driver, sizeof out->driver, "%s", info->driver);
}

/* ---- what is in force ---- */

static bool fits(const char *wanted, const char *is) {
  return !wanted[0] || !strcmp(wanted, is);
}

static bool matches(const tsr_device *device, const tsr_tuning_row *row) {
  return fits(row->vendor, device->info.vendor) && fits(row->architecture, device->architecture) &&
         fits(row->device, device->info.name);
}

/* The device has the variant's family, and stores weights as the variant wants them. */
static bool is_usable(const tsr_device *device, const tsr_tuned *row, tsr_gemm_family forced) {
  const tsr_gemm_facts *own = &device->gemm[row->types];
  return own->family != TSR_GEMM_NONE && own->panel == row->facts.panel &&
         (!forced || row->facts.family == forced) && tsr_tuning_offered(device, row->types, &row->facts) &&
         tsr_tuning_check(device, row->types, &row->facts, NULL) == TSR_OK;
}

/* Leaves the rows that match the device. */
static void keep_matching(const tsr_device *device, tsr_tuned_list *rows, tsr_gemm_family forced) {
  size_t kept = 0;
  for (size_t i = 0; i < rows->count; i++) {
    if (!matches(device, &rows->items[i].row)) continue;
    rows->items[kept] = rows->items[i];
    rows->items[kept].usable = is_usable(device, &rows->items[kept], forced);
    kept++;
  }
  rows->count = kept;
}

static bool in_force(const tsr_tuning *tuning, const tsr_tuned *row, tsr_gemm_types types) {
  return row->usable && row->types == types && row->level == tuning->level[types] &&
         row->user == tuning->user[types];
}

/* What of the rows decides which variant runs. Never 0. */
static int32_t fingerprint(const tsr_tuning *tuning, tsr_gemm_types types) {
  tsr_text text = {0};
  for (size_t i = 0; i < tuning->rows.count; i++) {
    const tsr_tuned *row = &tuning->rows.items[i];
    const tsr_tuning_product *product = &row->row.product;
    if (in_force(tuning, row, types))
      tsr_text_append(&text, "%s %" PRId64 " %" PRId64 " %" PRId64 " %s\n", product->form, product->m,
                      product->n, product->k, row->row.variant);
  }
  uint64_t hash = text.failed ? 0 : XXH3_64bits(text.data, text.bytes);
  free(text.data);
  return (int32_t)(hash & INT32_MAX) | 1;
}

/* The most specific that has a row, of the user or built in. */
static tsr_tuning_level find_level(const tsr_tuning *tuning, tsr_gemm_types types, bool user) {
  tsr_tuning_level level = TSR_TUNING_LEVELS;
  for (size_t i = 0; i < tuning->rows.count; i++) {
    const tsr_tuned *row = &tuning->rows.items[i];
    if (row->usable && row->user == user && row->types == types && row->level < level) level = row->level;
  }
  return level;
}

/* A row of the user, of whatever level, goes over all that are built in. */
static void find_levels(tsr_device *device) {
  tsr_tuning *tuning = device->tuning;
  for (int i = 0; i < TSR_GEMM_TYPES_COUNT; i++) {
    const tsr_gemm_types types = (tsr_gemm_types)i;
    tuning->level[i] = find_level(tuning, types, true);
    tuning->user[i] = tuning->level[i] < TSR_TUNING_LEVELS;
    if (!tuning->user[i]) tuning->level[i] = find_level(tuning, types, false);
    if (tuning->level[i] < TSR_TUNING_LEVELS) device->gemm[i].tuning = fingerprint(tuning, types);
  }
}

tsr_status tsr_tuning_load(tsr_device *device, const char *family, const tsr_kernel_source *built_in,
                           tsr_error *error) {
  device->tuning = tsr_calloc(1, sizeof *device->tuning);
  if (!device->tuning) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for tuning rows");
  TSR_RETURN_IF_FAILED(tsr_tuned_list_read(&device->tuning->rows, device->context, built_in, error));
  keep_matching(device, &device->tuning->rows, family ? tsr_gemm_family_of(family) : TSR_GEMM_NONE);
  find_levels(device);
  return TSR_OK;
}

void tsr_tuning_free(tsr_device *device) {
  if (device->tuning) tsr_tuned_list_free(&device->tuning->rows);
  free(device->tuning);
  device->tuning = NULL;
}

/* ---- lookup ---- */

double tsr_tuning_distance(const tsr_tuned *row, int64_t m, int64_t n, int64_t k) {
  const tsr_tuning_product *product = &row->row.product;
  return fabs(log((double)m / (double)product->m)) + fabs(log((double)n / (double)product->n)) +
         fabs(log((double)k / (double)product->k));
}

/* Of two rows at the same distance the first. A default that a test has put in the place of the device's own
 * has no hash, and no rows. */
tsr_tuned *tsr_tuning_find(const tsr_device *device, tsr_gemm_types types, int form, int64_t m, int64_t n,
                           int64_t k) {
  tsr_tuned *best = NULL;
  if (!device->tuning || !device->gemm[types].tuning) return NULL;
  for (size_t i = 0; i < device->tuning->rows.count; i++) {
    tsr_tuned *row = &device->tuning->rows.items[i];
    if (!in_force(device->tuning, row, types)) continue;
    bool nearer = best && tsr_tuning_distance(row, m, n, k) < tsr_tuning_distance(best, m, n, k);
    bool same_form = row->form == form, best_same = best && best->form == form;
    if (!best || (same_form && !best_same) || (same_form == best_same && nearer)) best = row;
  }
  return best && !best->refused ? best : NULL;
}

/* ---- explanation ---- */

static const char *source_of(bool user) {
  return user ? "of the user" : "built in";
}

/* "2 of the user" */
static void write_level(const tsr_device *device, tsr_gemm_types types, tsr_tuning_level level, bool user,
                        const char *name, tsr_text *text) {
  int usable = 0, unusable = 0;
  const tsr_tuning *tuning = device->tuning;
  for (size_t i = 0; tuning && i < tuning->rows.count; i++) {
    const tsr_tuned *row = &tuning->rows.items[i];
    if (row->types != types || row->level != level || row->user != user) continue;
    if (row->usable)
      usable++;
    else
      unusable++;
  }
  tsr_text_append(text, "%-13s %s: ", level_names[level], name);
  if (usable)
    tsr_text_append(text, "%d %s", usable, source_of(user));
  else
    tsr_text_append(text, "no rows %s", source_of(user));
  if (unusable)
    tsr_text_append(
        text, "; %d passed over: variants that the device does not have, limits, or another form of weights",
        unusable);
  tsr_text_append(text, "\n");
}

/* The user's, then those that are built in, down to the level that is in force. */
static void write_levels(const tsr_device *device, tsr_gemm_types types, tsr_text *text) {
  const char *const names[] = {device->info.name, device->architecture, device->info.vendor, "any device"};
  const tsr_tuning *tuning = device->tuning;
  const int last = tuning ? (int)tuning->level[types] : TSR_TUNING_LEVELS;
  for (int user = 1; user >= 0; user--)
    for (int level = 0; level < TSR_TUNING_LEVELS; level++) {
      write_level(device, types, (tsr_tuning_level)level, user, names[level], text);
      if (tuning && user == tuning->user[types] && level == last) return;
    }
}

static void write_row(const tsr_tuned *tuned, int64_t m, int64_t n, int64_t k, tsr_text *text) {
  const tsr_tuning_row *row = &tuned->row;
  const tsr_tuning_product *product = &row->product;
  tsr_text_append(text,
                  "row           %s, m = %" PRId64 ", n = %" PRId64 ", k = %" PRId64
                  ": the nearest, at distance %.2f\n",
                  product->form, product->m, product->n, product->k, tsr_tuning_distance(tuned, m, n, k));
  tsr_text_append(text, "from          %s%s: %.1f GFLOPS, driver %s, %s, Tessera %s\n",
                  tuned->user ? "" : "built in, ", tuned->file, row->gflops,
                  row->driver[0] ? row->driver : "unknown", row->date[0] ? row->date : "no date",
                  row->version[0] ? row->version : "unknown");
}

static const char *why_default(const tsr_device *device, tsr_gemm_types types) {
  const tsr_tuning *tuning = device->tuning;
  if (!tuning || tuning->level[types] == TSR_TUNING_LEVELS) return "there is no row for it";
  return "the variant of the nearest row failed its self-test";
}

tsr_status tsr_tuning_write(const tsr_device *device, tsr_gemm_types types, int form, int64_t m, int64_t n,
                            int64_t k, tsr_writer writer, void *user, tsr_error *error) {
  tsr_text text = {0};
  char variant[TSR_VARIANT_BYTES];
  const tsr_tuned *row = tsr_tuning_find(device, types, form, m, n, k);
  tsr_gemm_facts facts = row ? row->facts : device->gemm[types];
  facts.tuning = 0;
  tsr_text_append(&text, "product       %s %s, m = %" PRId64 ", n = %" PRId64 ", k = %" PRId64 "\n",
                  tsr_gemm_types_name(types), form_names[form], m, n, k);
  write_levels(device, types, &text);
  if (row)
    write_row(row, m, n, k, &text);
  else
    tsr_text_append(&text, "row           none: the backend's default is used, because %s\n",
                    why_default(device, types));
  tsr_text_append(&text, "variant       %s\n", tsr_gemm_facts_format(&facts, variant, sizeof variant));
  tsr_status status = text.failed ? tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for an explanation")
                      : writer(user, text.data, text.bytes)
                          ? tsr_fail(error, TSR_ERROR_IO, "an explanation could not be written")
                          : TSR_OK;
  free(text.data);
  return status;
}

tsr_status tsr_tuning_explain(const tsr_device *device, const tsr_tuning_product *product, tsr_writer writer,
                              void *user, tsr_error *error) {
  tsr_gemm_types types;
  int form;
  TSR_RETURN_IF_FAILED(tsr_tuning_product_read(product, &types, &form, error));
  if (device->gemm[types].family == TSR_GEMM_NONE)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "products in %s: %s does not have them",
                    tsr_gemm_types_name(types), device->info.name);
  return tsr_tuning_write(device, types, form, product->m, product->n, product->k, writer, user, error);
}
