/* tuning_save.c: writing rows, beside those that are there. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/gemm_json.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/text.h"
#include "device/tuning.h"

/* NULL if there is no memory, or a text is not UTF-8. */
static json_t *row_to_json(const tsr_tuned *tuned) {
  const tsr_tuning_row *row = &tuned->row;
  const tsr_tuning_product *product = &row->product;
  return json_pack("{s:{s:s, s:s, s:s}, s:s, s:s, s:I, s:I, s:I, s:o, s:{s:f, s:s, s:s, s:s}}", "match",
                   "vendor", row->vendor, "architecture", row->architecture, "device", row->device, "types",
                   product->types, "form", product->form, "m", (json_int_t)product->m, "n",
                   (json_int_t)product->n, "k", (json_int_t)product->k, "variant",
                   tsr_gemm_facts_to_json(&tuned->facts), "provenance", "gflops", row->gflops, "driver",
                   row->driver, "date", row->date, "version", row->version);
}

/* Likewise. */
static json_t *list_to_json(const tsr_tuned_list *list) {
  json_t *rows = json_array();
  bool good = true;
  for (size_t i = 0; i < list->count; i++)
    good = !json_array_append_new(rows, row_to_json(&list->items[i])) && good;
  json_t *document = good ? json_pack("{s:s, s:O}", "schema", TSR_TUNING_SCHEMA, "rows", rows) : NULL;
  json_decref(rows);
  return document;
}

/* Each text ends within its array. */
static tsr_status check_texts(const tsr_tuning_row *row, size_t index, tsr_error *error) {
  const struct {
    const char *name, *text;
    size_t bytes;
  } texts[] = {{"vendor", row->vendor, sizeof row->vendor},
               {"architecture", row->architecture, sizeof row->architecture},
               {"device", row->device, sizeof row->device},
               {"types", row->product.types, sizeof row->product.types},
               {"form", row->product.form, sizeof row->product.form},
               {"variant", row->variant, sizeof row->variant},
               {"driver", row->driver, sizeof row->driver},
               {"date", row->date, sizeof row->date},
               {"version", row->version, sizeof row->version}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (!memchr(texts[i].text, 0, texts[i].bytes))
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                      "tuning row %zu: %s does not end within its %zu bytes: end it by 0", index,
                      texts[i].name, texts[i].bytes);
  return TSR_OK;
}

/* Appends a row as a reader will see it: what that refuses is not written. */
static tsr_status append_row(tsr_tuned_list *list, const tsr_tuning_row *row, size_t index,
                             tsr_error *error) {
  tsr_tuned tuned = {.row = *row};
  char name[32];
  TSR_RETURN_IF_FAILED(check_texts(row, index, error));
  if (!isfinite(row->gflops))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "tuning row %zu: gflops is %g, expected a finite number from 0 on", index, row->gflops);
  snprintf(name, sizeof name, "tuning row %zu", index);
  tsr_status status = tsr_gemm_facts_parse(row->variant, &tuned.facts, error);
  if (status != TSR_OK) return tsr_error_wrap(error, "%s", name), status;
  json_t *document = list_to_json(&(tsr_tuned_list){.items = &tuned, .count = 1});
  char *text = document ? json_dumps(document, 0) : NULL;
  json_decref(document);
  if (!text) return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s: its texts must be UTF-8", name);
  status = tsr_tuned_list_parse(list, text, strlen(text), name, error);
  free(text);
  if (status != TSR_ERROR_FORMAT) return status;
  if (error) error->status = TSR_ERROR_INVALID_ARGUMENT;
  return TSR_ERROR_INVALID_ARGUMENT;
}

/* Whether one row takes the other's place. */
static bool same_place(const tsr_tuning_row *a, const tsr_tuning_row *b) {
  const tsr_tuning_product *x = &a->product, *y = &b->product;
  return !strcmp(a->vendor, b->vendor) && !strcmp(a->architecture, b->architecture) &&
         !strcmp(a->device, b->device) && !strcmp(x->types, y->types) && !strcmp(x->form, y->form) &&
         x->m == y->m && x->n == y->n && x->k == y->k;
}

static tsr_status merge(tsr_tuned_list *list, const tsr_tuned *tuned, tsr_error *error) {
  size_t place = 0;
  while (place < list->count && !same_place(&list->items[place].row, &tuned->row)) place++;
  if (place == list->count) {
    if (!TSR_GROW(list->items, list->count, list->capacity))
      return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for tuning rows");
    list->count++;
  }
  list->items[place] = *tuned;
  return TSR_OK;
}

static tsr_status make_folders(char *path, tsr_error *error) {
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    int code = mkdir(path, 0777) && errno != EEXIST ? errno : 0;
    if (code) tsr_fail(error, TSR_ERROR_IO, "cannot make the folder %s: %s", path, strerror(code));
    *slash = '/';
    if (code) return TSR_ERROR_IO;
  }
  return TSR_OK;
}

static tsr_status write_document(const char *path, const tsr_tuned_list *list, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_output output = {0};
  json_t *document = list_to_json(list);
  if (!document) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for tuning rows");
  TSR_TRY(tsr_output_open(&output, path, error));
  const bool written = !json_dumpf(document, output.stream, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
  TSR_TRY(tsr_output_commit(&output, path, written, error));
done:
  tsr_output_close(&output);
  json_decref(document);
  return status;
}

/* The device's name, in which only letters, digits, dots and dashes stay what they are. */
static char *default_path(tsr_context *context, const tsr_tuning_row *row) {
  const char *name = row->device[0] ? row->device : row->architecture[0] ? row->architecture : "tuning";
  const char *folder = tsr_context_tuning_folder(context);
  char *path = tsr_text_format("%s/%s.json", folder, name);
  for (char *c = path ? path + strlen(path) - strlen(name) - 5 : NULL; c && *c; c++)
    if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
          strchr(".-_", *c)))
      *c = '_';
  return path;
}

/* The caller frees it. */
static char *folder_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? tsr_text_format("%.*s", (int)(slash - path + 1), path) : tsr_text_copy("./");
}

/* Of the folder of a file, so that nothing is left behind: who merges rows into one there does so alone. -1
 * where file systems cannot lock a folder, or there is none: go on without. */
static int lock_folder(const char *path) {
  char *target = realpath(path, NULL), *folder = folder_of(target ? target : path);
  int file = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  free(folder);
  free(target);
  while (file >= 0 && flock(file, LOCK_EX))
    if (errno != EINTR) {
      close(file);
      file = -1;
    }
  return file;
}

/* Where rows go: the caller frees *out. */
static tsr_status find_path(tsr_context *context, const char *path, const tsr_tuning_row *first, char **out,
                            tsr_error *error) {
  if (!path && !*tsr_context_tuning_folder(context))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "no path for tuning rows, and the context has no tuning folder: give one of them");
  *out = path ? tsr_text_copy(path) : default_path(context, first);
  return *out ? TSR_OK : tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a path");
}

/* What is there, if it is a regular file: nothing is read from a device or a pipe. */
static tsr_status read_present(tsr_tuned_list *list, const char *path, tsr_error *error) {
  struct stat facts;
  char *text = NULL;
  size_t bytes;
  if (stat(path, &facts) || !S_ISREG(facts.st_mode)) return TSR_OK;
  TSR_RETURN_IF_FAILED(tsr_regular_file_read(path, &text, &bytes, error));
  tsr_status status = tsr_tuned_list_parse(list, text, bytes, path, error);
  free(text);
  return status;
}

tsr_status tsr_tuning_save(tsr_context *context, const char *path, const tsr_tuning_row *rows, size_t count,
                           tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_tuned_list list = {0}, given = {0};
  char *target = NULL;
  int lock = -1;
  if (!rows || !count)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "no tuning row to write: at least 1 is expected");
  for (size_t i = 0; i < count; i++) TSR_TRY(append_row(&given, &rows[i], i, error));
  TSR_TRY(find_path(context, path, rows, &target, error));
  if (!path) TSR_TRY(make_folders(target, error));
  lock = lock_folder(target);
  TSR_TRY(read_present(&list, target, error));
  for (size_t i = 0; i < given.count; i++) TSR_TRY(merge(&list, &given.items[i], error));
  TSR_TRY(write_document(target, &list, error));
done:
  if (lock >= 0) close(lock);
  tsr_tuned_list_free(&given);
  tsr_tuned_list_free(&list);
  free(target);
  return status;
}

static tsr_status fail_write(const char *path, int code, tsr_error *error) {
  tsr_fail(error, TSR_ERROR_IO, "cannot write '%s': %s: check the path", path, strerror(code));
  tsr_error_native(error, "errno", code);
  return TSR_ERROR_IO;
}

/* The folder of a file; of a default path the first on the way up that is there, in which the others would be
 * made. */
static tsr_status check_folder(const char *path, bool up, tsr_error *error) {
  char *target = realpath(path, NULL), *folder = folder_of(target ? target : path);
  free(target);
  if (!folder) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a path");
  while (up && access(folder, F_OK) && strrchr(folder, '/') > folder) *strrchr(folder, '/') = 0;
  int code = access(folder, W_OK | X_OK) ? errno : 0;
  free(folder);
  return code ? fail_write(path, code, error) : TSR_OK;
}

static tsr_status check_target(const char *path, bool up, tsr_error *error) {
  struct stat facts;
  if (stat(path, &facts) || S_ISREG(facts.st_mode)) return check_folder(path, up, error);
  if (S_ISDIR(facts.st_mode)) return fail_write(path, EISDIR, error);
  return access(path, W_OK) ? fail_write(path, errno, error) : TSR_OK;
}

tsr_status tsr_tuning_save_check(tsr_context *context, const char *path, const tsr_tuning_row *like,
                                 tsr_error *error) {
  tsr_tuned_list list = {0};
  char *target = NULL;
  TSR_RETURN_IF_FAILED(find_path(context, path, like, &target, error));
  tsr_status status = check_target(target, !path, error);
  if (status == TSR_OK) status = read_present(&list, target, error);
  tsr_tuned_list_free(&list);
  free(target);
  return status;
}
