/* device_json.c: the members of a device's object, as tables. */
#include "device_json.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define INFO(field) offsetof(tsr_device_info, field)
#define SIZE(field) sizeof(((tsr_device_info *)0)->field)

static const struct {
  const char *name;
  size_t offset, bytes;
} texts[] = {
    {"platform", INFO(platform), SIZE(platform)},
    {"short_name", INFO(short_name), SIZE(short_name)},
    {"name", INFO(name), SIZE(name)},
    {"vendor", INFO(vendor), SIZE(vendor)},
    {"driver", INFO(driver), SIZE(driver)},
    {"backend", INFO(backend), SIZE(backend)},
    {"reason", INFO(reason), SIZE(reason)},
};

static const struct {
  const char *name;
  size_t offset;
} sizes[] = {
    {"memory_bytes", INFO(memory_bytes)},
    {"max_allocation_bytes", INFO(max_allocation_bytes)},
    {"local_memory_bytes", INFO(local_memory_bytes)},
};

static const char *const kinds[] = {"cpu", "gpu", "other"};

enum { TEXTS = sizeof texts / sizeof texts[0], SIZES = sizeof sizes / sizeof sizes[0] };

/* What a device does not have is null. */
static json_t *text_or_null(const char *text) {
  return text[0] ? tool_json_text(text) : json_null();
}

static json_t *precisions(const tsr_device_info *info) {
  json_t *list = json_pack("[s]", "f32");
  if (info->f64) json_array_append_new(list, json_string("f64"));
  if (info->f16) json_array_append_new(list, json_string("f16"));
  return list;
}

json_t *tool_device_to_json(const tool_device *device) {
  const tsr_device_info *info = &device->info;
  const char *base = (const char *)info;
  json_t *object = json_object();
  for (size_t i = 0; i < TEXTS; i++)
    json_object_set_new(object, texts[i].name, text_or_null(base + texts[i].offset));
  json_object_set_new(object, "usable", json_boolean(info->usable));
  json_object_set_new(object, "kind", json_string(kinds[info->kind <= TSR_DEVICE_OTHER ? info->kind : 2]));
  for (size_t i = 0; i < SIZES; i++) {
    uint64_t bytes;
    memcpy(&bytes, base + sizes[i].offset, sizeof bytes);
    json_object_set_new(object, sizes[i].name, tool_json_bytes(bytes));
  }
  json_object_set_new(object, "compute_units", json_integer(info->compute_units));
  json_object_set_new(object, "unified_memory", json_boolean(info->unified_memory));
  json_object_set_new(object, "precisions", precisions(info));
  json_object_set_new(object, "icd", text_or_null(device->icd));
  return object;
}

static bool has_precision(const json_t *object, const char *name) {
  size_t index;
  json_t *value;
  json_array_foreach(json_object_get(object, "precisions"), index, value) {
    if (json_is_string(value) && strcmp(json_string_value(value), name) == 0) return true;
  }
  return false;
}

void tool_device_from_json(const json_t *object, tool_device *out) {
  memset(out, 0, sizeof *out);
  tsr_device_info *info = &out->info;
  char *base = (char *)info;
  for (size_t i = 0; i < TEXTS; i++)
    snprintf(base + texts[i].offset, texts[i].bytes, "%s", tool_json_get_text(object, texts[i].name));
  for (size_t i = 0; i < SIZES; i++) {
    uint64_t bytes = tool_json_get_bytes(object, sizes[i].name);
    memcpy(base + sizes[i].offset, &bytes, sizeof bytes);
  }
  info->usable = json_is_true(json_object_get(object, "usable"));
  info->unified_memory = json_is_true(json_object_get(object, "unified_memory"));
  info->compute_units = (uint32_t)tool_json_get_bytes(object, "compute_units");
  info->kind = TSR_DEVICE_OTHER;
  for (int kind = TSR_DEVICE_CPU; kind < TSR_DEVICE_OTHER; kind++)
    if (strcmp(tool_json_get_text(object, "kind"), kinds[kind]) == 0) info->kind = (tsr_device_kind)kind;
  info->f64 = has_precision(object, "f64");
  info->f16 = has_precision(object, "f16");
  snprintf(out->icd, sizeof out->icd, "%s", tool_json_get_text(object, "icd"));
}
