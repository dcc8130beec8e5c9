/* device_list.c: lists the devices, and opens the one that a selector names. */
#include "device/device_list.h"

#include <ctype.h>
#include <fnmatch.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "device/backend.h"
#include "device/device.h"

enum { NAME_BYTES = 256 };

struct tsr_device_list {
  tsr_device_entry **entries; /* each on its own, so that what was lent out stays when the array grows */
  size_t count, capacity;
};

tsr_status tsr_device_list_add(tsr_device_list *list, const tsr_device_info *info, void *native,
                               tsr_error *error) {
  tsr_device_entry *entry = tsr_malloc(sizeof *entry);
  if (!entry || !TSR_GROW(list->entries, list->count, list->capacity)) {
    free(entry);
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a list of devices");
  }
  *entry = (tsr_device_entry){.info = *info, .native = native};
  list->entries[list->count++] = entry;
  return TSR_OK;
}

tsr_status tsr_device_list_create(tsr_context *context, tsr_device_list **out, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_device_info host = {0};
  tsr_device_list *list = tsr_calloc(1, sizeof *list);
  if (!list) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for a list of devices");
  TSR_TRY(tsr_opencl_devices_list(context, list, error));
  tsr_host_device_describe(&host);
  TSR_TRY(tsr_device_list_add(list, &host, NULL, error));
  *out = list;
  return TSR_OK;
done:
  tsr_device_list_destroy(&list);
  return status;
}

void tsr_device_list_destroy(tsr_device_list **list) {
  if (!list || !*list) return;
  for (size_t i = 0; i < (*list)->count; i++) free((*list)->entries[i]);
  free((*list)->entries);
  free(*list);
  *list = NULL;
}

size_t tsr_device_list_count(const tsr_device_list *list) {
  return list->count;
}

const tsr_device_info *tsr_device_list_get(const tsr_device_list *list, size_t index) {
  return index < list->count ? &list->entries[index]->info : NULL;
}

static void lower_case(char *to, const char *from, size_t length) {
  if (length >= NAME_BYTES) length = NAME_BYTES - 1;
  for (size_t i = 0; i < length; i++) to[i] = (char)tolower((unsigned char)from[i]);
  to[length] = 0;
}

/* Length of the selector's pattern; *index = what follows its last colon, if that is a number, else 0. */
static size_t parse_selector(const char *selector, size_t *index) {
  *index = 0;
  const char *colon = strrchr(selector, ':');
  size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
  if (!digits || digits > 9 || colon[1 + digits]) return strlen(selector);
  *index = strtoul(colon + 1, NULL, 10);
  return (size_t)(colon - selector);
}

/* FNM_CASEFOLD is not everywhere: both sides are lowered instead. */
bool tsr_device_matches(const char *selector, const tsr_device_info *info) {
  const char *const names[] = {info->platform, info->short_name, info->backend, info->name};
  char pattern[NAME_BYTES], name[NAME_BYTES];
  size_t index;
  lower_case(pattern, selector, parse_selector(selector, &index));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    lower_case(name, names[i], strlen(names[i]));
    if (!fnmatch(pattern, name, 0)) return true;
  }
  return false;
}

/* Entry `index` of those that match; *matching = how many match. */
static const tsr_device_entry *find_selected(const tsr_device_list *list, const char *selector, size_t index,
                                             size_t *matching) {
  const tsr_device_entry *found = NULL;
  *matching = 0;
  for (size_t i = 0; i < list->count; i++)
    if (tsr_device_matches(selector, &list->entries[i]->info) && (*matching)++ == index)
      found = list->entries[i];
  return found;
}

static bool is_gpu(const tsr_device_info *info) {
  return info->kind == TSR_DEVICE_GPU;
}

static bool is_fast_cpu(const tsr_device_info *info) {
  return info->kind == TSR_DEVICE_CPU && strcmp(info->short_name, "rusticl") &&
         strcmp(info->short_name, "host");
}

static const tsr_device_entry *find_default(const tsr_device_list *list) {
  static bool (*const wanted[])(const tsr_device_info *) = {is_gpu, is_fast_cpu};
  for (size_t rule = 0; rule < sizeof wanted / sizeof *wanted; rule++)
    for (size_t i = 0; i < list->count; i++)
      if (list->entries[i]->info.usable && wanted[rule](&list->entries[i]->info)) return list->entries[i];
  return list->entries[list->count - 1]; /* the host backend */
}

/* Lists what there is: "pocl (pthread-haswell), host (plain C)". */
static tsr_status fail_not_found(const tsr_device_list *list, const char *selector, size_t index,
                                 size_t matching, tsr_error *error) {
  tsr_text text = {0};
  if (matching)
    tsr_text_append(&text, "index %zu, but %zu match, counted from 0; there are: ", index, matching);
  else
    tsr_text_append(&text, "nothing matches; there are: ");
  for (size_t i = 0; i < list->count; i++)
    tsr_text_append(&text, "%s%s (%s)", i ? ", " : "", list->entries[i]->info.short_name,
                    list->entries[i]->info.name);
  if (!matching && list->count == 1)
    tsr_text_append(&text, "; no OpenCL device is seen: install a driver (for any CPU: pocl-opencl-icd)");
  tsr_status status = tsr_fail(error, TSR_ERROR_NOT_FOUND, "device \"%s\": %s", selector,
                               text.data && !text.failed ? text.data : "it is not there");
  free(text.data);
  return status;
}

static tsr_status select_device(const tsr_device_list *list, const char *selector,
                                const tsr_device_entry **out, tsr_error *error) {
  size_t index = 0, matching = 0;
  if (!selector) {
    *out = find_default(list);
    return TSR_OK;
  }
  if (!parse_selector(selector, &index))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "device \"%s\": the pattern is empty; expected PATTERN[:INDEX], for example \"host\" or "
                    "\"NVIDIA*:1\"",
                    selector);
  *out = find_selected(list, selector, index, &matching);
  if (!*out) return fail_not_found(list, selector, index, matching, error);
  if (!(*out)->info.usable)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "device \"%s\": %s cannot be used: %s", selector,
                    (*out)->info.name, (*out)->info.reason);
  return TSR_OK;
}

void tsr_device_options_init(tsr_device_options *options) {
  *options = (tsr_device_options){.struct_size = sizeof *options};
}

static tsr_status check_family(const char *name, tsr_error *error) {
  if (!name ||
      (tsr_gemm_family_of(name) != TSR_GEMM_FAMILY_COUNT && tsr_gemm_family_of(name) != TSR_GEMM_NONE))
    return TSR_OK;
  tsr_text names = {0};
  for (int i = TSR_GEMM_NONE + 1; i < TSR_GEMM_FAMILY_COUNT; i++)
    tsr_text_append(&names, "%s%s", i > TSR_GEMM_NONE + 1 ? ", " : "",
                    tsr_gemm_family_name((tsr_gemm_family)i));
  tsr_status status =
      tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "GEMM family \"%s\": expected one of %s", name,
               names.data && !names.failed ? names.data : "those that the manual names");
  free(names.data);
  return status;
}

static tsr_status open_host(tsr_context *context, const char *gemm, tsr_device **out, tsr_error *error) {
  if (gemm && tsr_gemm_family_of(gemm) != TSR_GEMM_HOST)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "GEMM family \"%s\" on host: it has \"%s\" alone", gemm,
                    tsr_gemm_family_name(TSR_GEMM_HOST));
  return tsr_host_device_create(context, out, error);
}

static void apply_caps(tsr_device_info *info, const tsr_device_options *options) {
  if (options->memory_bytes && options->memory_bytes < info->memory_bytes)
    info->memory_bytes = options->memory_bytes;
  if (options->max_allocation_bytes && options->max_allocation_bytes < info->max_allocation_bytes)
    info->max_allocation_bytes = options->max_allocation_bytes;
  if (info->max_allocation_bytes > info->memory_bytes) info->max_allocation_bytes = info->memory_bytes;
}

tsr_status tsr_device_open(tsr_context *context, const char *selector, const tsr_device_options *options,
                           tsr_device **out, tsr_error *error) {
  TSR_CHECK_OPTIONS_SIZE(options, tsr_device_options);
  tsr_status status = TSR_OK;
  tsr_device_list *list = NULL;
  const tsr_device_entry *entry = NULL;
  tsr_device_options defaults;
  tsr_device_options_init(&defaults);
  if (!options) options = &defaults;

  TSR_TRY(check_family(options->gemm, error));
  TSR_TRY(tsr_device_list_create(context, &list, error));
  TSR_TRY(select_device(list, selector, &entry, error));
  if (entry->native)
    TSR_TRY(tsr_opencl_device_create(context, entry->native, options, out, error));
  else
    TSR_TRY(open_host(context, options->gemm, out, error));
  apply_caps(&(*out)->info, options);
done:
  tsr_device_list_destroy(&list);
  return status;
}
