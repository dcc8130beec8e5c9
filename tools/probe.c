/* probe.c: one child for each driver, all at once, and what they answer. */
#include "probe.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cache.h"
#include "child.h"
#include "device_json.h"
#include "drivers.h"
#include "message.h"

static const double PROBE_SECONDS = 20;
/* A driver may be replaced without a trace in its ICD file: what the cache says is believed for an hour. */
static const double CACHE_SECONDS = 3600;

enum { DRIVERS_MAX = 32 };

void tool_icd_restrict(const char *icd) {
  /* To the loader a name without a file behind it is a library that cannot be loaded: no platform at all. */
  setenv("OCL_ICD_VENDORS", icd[0] ? icd : "none", 1);
}

/* The library that an ICD file names, on its first line. */
static bool read_library_name(const char *icd, char *name, int bytes) {
  const char *dot = strrchr(icd, '.');
  if (!dot || strcmp(dot, ".icd") != 0) return snprintf(name, (size_t)bytes, "%s", icd) < bytes;
  FILE *file = fopen(icd, "r");
  if (!file) return false;
  bool good = fgets(name, bytes, file) != NULL;
  fclose(file);
  name[good ? strcspn(name, "\r\n \t") : 0] = 0;
  return name[0] != 0;
}

/* The OpenCL loader passes over a library that it cannot load in silence: find out why. */
static tsr_status try_library(const char *icd, tsr_error *error) {
  char name[TOOL_ICD_BYTES];
  if (!read_library_name(icd, name, sizeof name))
    return tool_fail(error, TSR_ERROR_IO, "the file cannot be read, or names no library");
  if (dlopen(name, RTLD_LAZY | RTLD_LOCAL)) return TSR_OK; /* stays: the loader opens it again */
  return tool_fail(error, TSR_ERROR_DEVICE, "the driver cannot be loaded: %s", dlerror());
}

static json_t *device_list_json(const tsr_device_list *list, const char *icd, bool host) {
  json_t *devices = json_array();
  for (size_t i = 0; i < tsr_device_list_count(list); i++) {
    tool_device device = {.info = *tsr_device_list_get(list, i)};
    if (host != (strcmp(device.info.short_name, "host") == 0)) continue;
    if (!host) snprintf(device.icd, sizeof device.icd, "%s", icd);
    json_array_append_new(devices, tool_device_to_json(&device));
  }
  return devices;
}

json_t *tool_probe_one(tsr_context *context, const char *icd, tsr_error *error) {
  bool host = strcmp(icd, TOOL_PROBE_HOST) == 0;
  tsr_device_list *list = NULL;
  if (!host && try_library(icd, error) != TSR_OK) return NULL;
  tool_icd_restrict(host ? "" : icd);
  setenv("RUSTICL_ENABLE", "llvmpipe", 0);
  if (tsr_device_list_create(context, &list, error) != TSR_OK) return NULL;
  json_t *document =
      json_pack("{s:s, s:o}", "schema", "tessera.devices/1", "devices", device_list_json(list, icd, host));
  tsr_device_list_destroy(&list);
  return document;
}

static void skip(json_t *document, const char *icd, const char *message) {
  json_array_append_new(
      json_object_get(document, "skipped"),
      json_pack("{s:o, s:o}", "icd", tool_json_text(icd), "message", tool_json_text(message)));
}

/* Why a child gave no document. */
static void describe_failure(const tool_child *child, const json_t *answer, char *text, size_t bytes) {
  int code = tool_child_code(child);
  const char *said = tool_json_get_text(json_object_get(answer, "error"), "message");
  if (child->late)
    snprintf(text, bytes, "the driver did not answer within %g s", PROBE_SECONDS);
  else if (said[0])
    snprintf(text, bytes, "%s", said);
  else if (code > 128)
    snprintf(text, bytes, "the driver crashed with signal %d (%s)", code - 128, strsignal(code - 128));
  else
    snprintf(text, bytes, "the driver ended the process that loaded it, with exit code %d", code);
}

/* PoCL has no device when it cannot write its cache, as where there is no home; it does not say so. */
static const char *explain_no_device(const char *icd) {
  return strstr(icd, "pocl")
             ? "the driver has no device; PoCL needs a cache folder that it can write: set POCL_CACHE_DIR"
             : "the driver has no device";
}

static void add_answer(json_t *document, const char *icd, const tool_child *child) {
  json_t *answer = tool_json_find(child->text);
  json_t *devices = json_object_get(answer, "devices");
  char text[TSR_ERROR_MESSAGE_BYTES];
  if (child->late || child->wait_status != 0 || !json_is_array(devices)) {
    describe_failure(child, answer, text, sizeof text);
    skip(document, icd, text);
  } else if (!json_array_size(devices)) {
    skip(document, icd, explain_no_device(icd));
  } else {
    json_array_extend(json_object_get(document, "devices"), devices);
  }
  json_decref(answer);
}

static tsr_status start_probe(const char *icd, tool_child *child, tsr_error *error) {
  char *program = strdup(tool_program_path("tessera"));
  char *file = strdup(icd);
  char words[][10] = {"devices", "--probe", "--json"};
  char *arguments[] = {program, words[0], words[1], file, words[2], NULL};
  const tool_child_options options = {.quiet = true, .alone = true};
  tsr_status status = program && file
                          ? tool_child_start(arguments, &options, child, error)
                          : tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to probe %s", icd);
  free(program);
  free(file);
  return status;
}

/* The host backend comes last, as in tsr_device_list. *lasting: a driver that was slow may answer next time.
 */
static json_t *ask_all(const tool_drivers *drivers, bool *lasting, tsr_error *error) {
  tool_child children[DRIVERS_MAX + 1];
  size_t count = drivers->count < DRIVERS_MAX ? drivers->count : DRIVERS_MAX;
  size_t started = 0;
  tsr_status status = TSR_OK;
  for (; status == TSR_OK && started <= count; started += status == TSR_OK)
    status =
        start_probe(started < count ? drivers->paths[started] : TOOL_PROBE_HOST, &children[started], error);
  tool_children_collect(children, started, PROBE_SECONDS);
  json_t *document = json_pack("{s:s, s:[], s:[]}", "schema", "tessera.devices/1", "devices", "skipped");
  for (size_t i = 0; i < started; i++) {
    if (document) add_answer(document, i < count ? drivers->paths[i] : TOOL_PROBE_HOST, &children[i]);
    *lasting &= !children[i].late;
    tool_child_free(&children[i]);
  }
  if (status == TSR_OK) return document;
  json_decref(document);
  return NULL;
}

static json_t *read_cached(tsr_context *context, uint64_t key) {
  char *text = tool_cache_read(context, "devices", key, CACHE_SECONDS);
  json_t *document = text ? json_loads(text, 0, NULL) : NULL;
  free(text);
  if (json_array_size(json_object_get(document, "devices"))) return document;
  json_decref(document);
  return NULL;
}

static void write_cached(tsr_context *context, uint64_t key, const json_t *document) {
  char *text = json_dumps(document, JSON_INDENT(1));
  if (text) tool_cache_write(context, "devices", key, text);
  free(text);
}

static tsr_status fill_table(tool_device_table *table, tsr_error *error) {
  json_t *devices = json_object_get(table->document, "devices");
  table->items = calloc(json_array_size(devices) + 1, sizeof *table->items);
  if (!table->items) return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the list of devices");
  size_t index;
  json_t *object;
  json_array_foreach(devices, index, object) tool_device_from_json(object, &table->items[table->count++]);
  return TSR_OK;
}

tsr_status tool_devices_find(tsr_context *context, bool fresh, tool_device_table *out, tsr_error *error) {
  *out = (tool_device_table){0};
  tool_drivers drivers;
  tsr_status status = tool_drivers_list(&drivers, error);
  uint64_t key = tool_drivers_key(&drivers);
  if (status == TSR_OK && !fresh) out->document = read_cached(context, key);
  if (status == TSR_OK && !out->document) {
    tsr_error why = {.status = TSR_ERROR_OUT_OF_MEMORY, .rank = -1, .message = "no memory to probe devices"};
    bool lasting = true;
    out->document = ask_all(&drivers, &lasting, &why);
    if (!out->document)
      status = tool_fail(error, why.status, "%s", why.message);
    else if (lasting)
      write_cached(context, key, out->document);
  }
  tool_drivers_free(&drivers);
  return status == TSR_OK ? fill_table(out, error) : status;
}

void tool_devices_free(tool_device_table *table) {
  free(table->items);
  json_decref(table->document);
  *table = (tool_device_table){0};
}
