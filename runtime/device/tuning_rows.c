/* tuning_rows.c: reading rows from documents, "tessera.tuning/1": those that are built in, and the user's. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/gemm_json.h"
#include "base/memory.h"
#include "base/text.h"
#include "device/tuning.h"
#include <tessera/version.h>

enum { FILES_MAX = 256 };

void tsr_tuned_list_free(tsr_tuned_list *list) {
  free(list->items);
  *list = (tsr_tuned_list){0};
}

/* ---- reading ---- */

static tsr_tuning_level level_of(const tsr_tuning_row *row) {
  return row->device[0]         ? TSR_TUNING_DEVICE
         : row->architecture[0] ? TSR_TUNING_ARCHITECTURE
         : row->vendor[0]       ? TSR_TUNING_VENDOR
                                : TSR_TUNING_ALL;
}

/* Left out is "". */
static tsr_status read_text(const json_t *object, const char *path, const char *key, char *out, size_t bytes,
                            tsr_error *error) {
  out[0] = 0;
  return json_object_get(object, key) ? tsr_json_text(object, path, key, out, bytes, error) : TSR_OK;
}

static tsr_status read_match(const json_t *json, const char *path, tsr_tuning_row *row, tsr_error *error) {
  json_t *match;
  char place[64];
  TSR_RETURN_IF_FAILED(tsr_json_object(json, path, "match", &match, error));
  snprintf(place, sizeof place, "%s.match", path);
  TSR_RETURN_IF_FAILED(read_text(match, place, "vendor", row->vendor, sizeof row->vendor, error));
  TSR_RETURN_IF_FAILED(
      read_text(match, place, "architecture", row->architecture, sizeof row->architecture, error));
  return read_text(match, place, "device", row->device, sizeof row->device, error);
}

static tsr_status read_product(const json_t *json, const char *path, tsr_tuned *out, tsr_error *error) {
  tsr_tuning_product *product = &out->row.product;
  TSR_RETURN_IF_FAILED(tsr_json_text(json, path, "types", product->types, sizeof product->types, error));
  TSR_RETURN_IF_FAILED(tsr_json_text(json, path, "form", product->form, sizeof product->form, error));
  TSR_RETURN_IF_FAILED(tsr_json_integer(json, path, "m", 1, INT64_MAX, &product->m, error));
  TSR_RETURN_IF_FAILED(tsr_json_integer(json, path, "n", 1, INT64_MAX, &product->n, error));
  TSR_RETURN_IF_FAILED(tsr_json_integer(json, path, "k", 1, INT64_MAX, &product->k, error));
  tsr_status status = tsr_tuning_product_read(product, &out->types, &out->form, error);
  if (status == TSR_OK) return TSR_OK;
  tsr_error_wrap(error, "%s", path);
  if (error) error->status = TSR_ERROR_FORMAT;
  return TSR_ERROR_FORMAT;
}

static bool is_parameter(const char *key) {
  int index = 0;
  while (index < tsr_gemm_parameter_count() && strcmp(key, tsr_gemm_parameter_name(index))) index++;
  return index < tsr_gemm_parameter_count();
}

/* Those that are not 0 belong to its family. */
static tsr_status check_parameters(const tsr_gemm_facts *facts, const char *place, tsr_error *error) {
  tsr_gemm_facts copy = *facts;
  for (int i = 0; i < tsr_gemm_parameter_count(); i++)
    if (*tsr_gemm_parameter(&copy, i) && !tsr_gemm_family_has(copy.family, i))
      return tsr_fail(error, TSR_ERROR_FORMAT, "%s.%s: family %s has no such parameter; take it out", place,
                      tsr_gemm_parameter_name(i), tsr_gemm_family_name(copy.family));
  return TSR_OK;
}

/* A parameter that is not known here belongs to another version. */
static tsr_status read_variant(const json_t *json, const char *path, tsr_tuned *out, tsr_error *error) {
  json_t *variant, *value;
  char place[64];
  const char *key;
  TSR_RETURN_IF_FAILED(tsr_json_object(json, path, "variant", &variant, error));
  snprintf(place, sizeof place, "%s.variant", path);
  json_object_foreach(variant, key, value) {
    if (strcmp(key, "family") && !is_parameter(key))
      return tsr_fail(error, TSR_ERROR_FORMAT,
                      "%s.%s: no kernel has this parameter in version %s; tune again", place, key,
                      tsr_version());
  }
  TSR_RETURN_IF_FAILED(tsr_gemm_facts_from_json(variant, place, &out->facts, error));
  if (out->facts.family == TSR_GEMM_NONE)
    return tsr_fail(error, TSR_ERROR_FORMAT, "%s.family: \"%s\" is not a GEMM family", place,
                    tsr_gemm_family_name(TSR_GEMM_NONE));
  TSR_RETURN_IF_FAILED(check_parameters(&out->facts, place, error));
  tsr_gemm_facts_format(&out->facts, out->row.variant, sizeof out->row.variant);
  return TSR_OK;
}

static tsr_status read_provenance(const json_t *json, const char *path, tsr_tuning_row *row,
                                  tsr_error *error) {
  json_t *provenance;
  char place[64];
  TSR_RETURN_IF_FAILED(tsr_json_object(json, path, "provenance", &provenance, error));
  snprintf(place, sizeof place, "%s.provenance", path);
  TSR_RETURN_IF_FAILED(tsr_json_real(provenance, place, "gflops", 0, &row->gflops, error));
  TSR_RETURN_IF_FAILED(read_text(provenance, place, "driver", row->driver, sizeof row->driver, error));
  TSR_RETURN_IF_FAILED(read_text(provenance, place, "date", row->date, sizeof row->date, error));
  return read_text(provenance, place, "version", row->version, sizeof row->version, error);
}

static tsr_status read_row(const json_t *json, const char *path, tsr_tuned *out, tsr_error *error) {
  if (!json_is_object(json)) return tsr_fail(error, TSR_ERROR_FORMAT, "%s: not an object", path);
  TSR_RETURN_IF_FAILED(read_match(json, path, &out->row, error));
  TSR_RETURN_IF_FAILED(read_product(json, path, out, error));
  TSR_RETURN_IF_FAILED(read_variant(json, path, out, error));
  TSR_RETURN_IF_FAILED(read_provenance(json, path, &out->row, error));
  out->level = level_of(&out->row);
  return TSR_OK;
}

static const char *end_of_path(const char *path) {
  size_t bytes = strlen(path);
  return bytes < TSR_TUNING_FILE_BYTES ? path : path + bytes - TSR_TUNING_FILE_BYTES + 1;
}

tsr_status tsr_tuned_list_parse(tsr_tuned_list *list, const char *text, size_t bytes, const char *file,
                                tsr_error *error) {
  tsr_status status = TSR_OK;
  json_t *document = NULL, *rows, *item;
  size_t before = list->count, index;
  if (!bytes) return TSR_OK;
  TSR_TRY(tsr_json_parse(text, bytes, file, TSR_TUNING_SCHEMA, &document, error));
  TSR_TRY(tsr_json_array(document, file, "rows", &rows, error));
  json_array_foreach(rows, index, item) {
    char path[32];
    tsr_tuned row = {.usable = false};
    snprintf(path, sizeof path, "rows[%zu]", index);
    status = read_row(item, path, &row, error);
    if (status != TSR_OK) tsr_error_wrap(error, "%s", file);
    if (status != TSR_OK) goto done;
    if (!TSR_GROW(list->items, list->count, list->capacity))
      TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for tuning rows");
    snprintf(row.file, sizeof row.file, "%s", end_of_path(file));
    list->items[list->count++] = row;
  }
done:
  json_decref(document);
  if (status != TSR_OK) list->count = before;
  return status;
}

/* Only a lack of memory stops the reading. */
static tsr_status or_warn(tsr_context *context, tsr_status status, const tsr_error *failure,
                          tsr_error *error) {
  if (status == TSR_OK) return TSR_OK;
  if (status != TSR_ERROR_OUT_OF_MEMORY) {
    tsr_log(context, TSR_LOG_WARNING, "device", "tuning rows are left out: %s", failure->message);
    return TSR_OK;
  }
  if (error) *error = *failure;
  return status;
}

static tsr_status read_file(tsr_tuned_list *list, tsr_context *context, const char *path, tsr_error *error) {
  char *text = NULL;
  size_t bytes = 0, first = list->count;
  tsr_error failure = {0};
  tsr_status status = tsr_regular_file_read(path, &text, &bytes, &failure);
  if (status == TSR_OK) status = tsr_tuned_list_parse(list, text, bytes, path, &failure);
  for (size_t i = first; i < list->count; i++) list->items[i].user = true;
  free(text);
  return or_warn(context, status, &failure, error);
}

static bool ends_with(const char *text, const char *end) {
  size_t bytes = strlen(text), end_bytes = strlen(end);
  return bytes > end_bytes && !strcmp(text + bytes - end_bytes, end);
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* In the order of their names, so that which row counts does not hang on the file system. */
static tsr_status read_folder(tsr_tuned_list *list, tsr_context *context, tsr_error *error) {
  tsr_status status = TSR_OK;
  char *paths[FILES_MAX];
  size_t count = 0;
  const char *folder = tsr_context_tuning_folder(context);
  DIR *entries = *folder ? opendir(folder) : NULL;
  for (struct dirent *entry; entries && count < FILES_MAX && (entry = readdir(entries));) {
    if (entry->d_name[0] == '.' || !ends_with(entry->d_name, ".json")) continue;
    paths[count] = tsr_text_format("%s/%s", folder, entry->d_name);
    if (paths[count]) count++;
  }
  if (entries) closedir(entries);
  if (count) qsort(paths, count, sizeof *paths, by_name);
  for (size_t i = 0; i < count; i++) {
    if (status == TSR_OK) status = read_file(list, context, paths[i], error);
    free(paths[i]);
  }
  return status;
}

static tsr_status read_built_in(tsr_tuned_list *list, tsr_context *context, const tsr_kernel_source *source,
                                tsr_error *error) {
  for (; source->name; source++) {
    tsr_error failure = {0};
    if (!ends_with(source->name, ".json")) continue;
    tsr_status status = tsr_tuned_list_parse(list, source->text, source->bytes, source->name, &failure);
    TSR_RETURN_IF_FAILED(or_warn(context, status, &failure, error));
  }
  return TSR_OK;
}

tsr_status tsr_tuned_list_read(tsr_tuned_list *list, tsr_context *context, const tsr_kernel_source *built_in,
                               tsr_error *error) {
  TSR_RETURN_IF_FAILED(read_folder(list, context, error));
  return read_built_in(list, context, built_in, error);
}
