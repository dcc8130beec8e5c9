/* tuning.c: which rows a device can use, and which of them a product takes. */
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

const char *tsr_tuning_level_name(tsr_tuning_level level) {
  return level_names[level];
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

tsr_status tsr_tuning_use(const tsr_device *device, const tsr_tuned *row, tsr_gemm_family forced,
                          tsr_error *error) {
  const tsr_gemm_facts *own = &device->gemm[row->types], *facts = &row->facts;
  const char *family = tsr_gemm_family_name(facts->family);
  TSR_RETURN_IF_FAILED(tsr_tuning_check(device, row->types, facts, error));
  if (forced && facts->family != forced)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "family %s: the device was opened with %s alone", family,
                    tsr_gemm_family_name(forced));
  if (own->family == TSR_GEMM_NONE || !tsr_tuning_offered(device, row->types, facts))
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "family %s: %s does not have it, or not so", family,
                    device->info.name);
  if (own->panel != facts->panel)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "panel is %d, but %s stores weights with %d",
                    (int)facts->panel, device->info.name, (int)own->panel);
  return TSR_OK;
}

/* Leaves the rows that match the device. */
static void keep_matching(const tsr_device *device, tsr_tuning *tuning) {
  tsr_tuned_list *rows = &tuning->rows;
  size_t kept = 0;
  for (size_t i = 0; i < rows->count; i++) {
    if (!matches(device, &rows->items[i].row)) continue;
    rows->items[kept] = rows->items[i];
    rows->items[kept].usable = tsr_tuning_use(device, &rows->items[kept], tuning->forced, NULL) == TSR_OK;
    kept++;
  }
  rows->count = kept;
}

static bool in_force(const tsr_tuned *row, tsr_gemm_types types) {
  return row->usable && row->types == types;
}

/* What of the rows decides which variant runs: 0 without any, never with one. */
static int32_t fingerprint(const tsr_tuning *tuning, tsr_gemm_types types) {
  tsr_text text = {0};
  for (size_t i = 0; i < tuning->rows.count; i++) {
    const tsr_tuned *row = &tuning->rows.items[i];
    const tsr_tuning_product *product = &row->row.product;
    if (in_force(row, types))
      tsr_text_append(&text, "%d %s %" PRId64 " %" PRId64 " %" PRId64 " %s\n", (int)row->level, product->form,
                      product->m, product->n, product->k, row->row.variant);
  }
  const bool any = text.bytes || text.failed;
  uint64_t hash = text.failed || !any ? 0 : XXH3_64bits(text.data, text.bytes);
  free(text.data);
  return any ? (int32_t)(hash & INT32_MAX) | 1 : 0;
}

tsr_status tsr_tuning_load(tsr_device *device, const char *family, const tsr_kernel_source *built_in,
                           tsr_error *error) {
  device->tuning = tsr_calloc(1, sizeof *device->tuning);
  if (!device->tuning) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for tuning rows");
  TSR_RETURN_IF_FAILED(tsr_tuned_list_read(&device->tuning->rows, device->context, built_in, error));
  device->tuning->forced = family ? tsr_gemm_family_of(family) : TSR_GEMM_NONE;
  keep_matching(device, device->tuning);
  for (int types = 0; types < TSR_GEMM_TYPES_COUNT; types++)
    device->gemm[types].tuning = fingerprint(device->tuning, (tsr_gemm_types)types);
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

/* Of a row for a product: what comes first counts first, and the smaller is the better. */
typedef struct fit {
  double values[4]; /* another form, steps of distance, level, distance */
} fit;

static fit fit_of(const tsr_tuned *row, int form, int64_t m, int64_t n, int64_t k) {
  const double distance = tsr_tuning_distance(row, m, n, k);
  return (fit){{row->form != form, floor(distance / log(4)), row->level, distance}};
}

static bool is_better(const fit *a, const fit *b) {
  int i = 0;
  while (i < 3 && a->values[i] == b->values[i]) i++;
  return a->values[i] < b->values[i];
}

/* Of two rows that fit as well the first, which is the user's. A default that a test has put in the place of
 * the device's own has no hash, and no rows. */
tsr_tuned *tsr_tuning_find(const tsr_device *device, tsr_gemm_types types, int form, int64_t m, int64_t n,
                           int64_t k) {
  tsr_tuned *best = NULL;
  fit best_fit = {{0}};
  if (!device->tuning || !device->gemm[types].tuning) return NULL;
  for (size_t i = 0; i < device->tuning->rows.count; i++) {
    tsr_tuned *row = &device->tuning->rows.items[i];
    if (!in_force(row, types)) continue;
    const fit own = fit_of(row, form, m, n, k);
    if (best && !is_better(&own, &best_fit)) continue;
    best = row;
    best_fit = own;
  }
  return best && !best->refused ? best : NULL;
}
