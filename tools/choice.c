/* choice.c: selectors against what the probe found. */
#include "choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "message.h"

static bool is_gpu(const tsr_device_info *info) {
  return info->usable && info->kind == TSR_DEVICE_GPU;
}

/* rusticl on a CPU is there to test with, not to be fast. */
static bool is_fast_cpu(const tsr_device_info *info) {
  return info->usable && info->kind == TSR_DEVICE_CPU && strcmp(info->short_name, "rusticl") != 0 &&
         strcmp(info->short_name, "host") != 0;
}

static bool is_host(const tsr_device_info *info) {
  return strcmp(info->short_name, "host") == 0;
}

static const tool_device *find_default(const tool_device_table *table, int local_rank) {
  static bool (*const wanted[])(const tsr_device_info *) = {is_gpu, is_fast_cpu, is_host};
  for (size_t rule = 0; rule < sizeof wanted / sizeof wanted[0]; rule++) {
    size_t matching = 0, seen = 0;
    for (size_t i = 0; i < table->count; i++) matching += wanted[rule](&table->items[i].info);
    for (size_t i = 0; matching && i < table->count; i++)
      if (wanted[rule](&table->items[i].info) && seen++ == (size_t)local_rank % matching)
        return &table->items[i];
  }
  return NULL;
}

/* The number behind the last colon; -1 if there is none. */
static long selector_index(const char *selector) {
  const char *colon = strrchr(selector, ':');
  if (!colon || !colon[1] || colon[1 + strspn(colon + 1, "0123456789")]) return -1;
  return strtol(colon + 1, NULL, 10);
}

static size_t count_matching(const tool_device_table *table, const char *selector) {
  size_t matching = 0;
  for (size_t i = 0; i < table->count; i++) matching += tsr_device_matches(selector, &table->items[i].info);
  return matching;
}

static const char *selector_of(const tool_options *options, int rank) {
  if (!options->devices.count) return NULL;
  return options->devices.items[options->devices.count == 1 ? 0 : (size_t)rank];
}

/* How many ranks of this host before this one use the same selector. Ranks of a host follow each other. */
static size_t same_before(const tool_options *options, int rank, int local_rank) {
  size_t same = 0;
  for (int other = rank - local_rank; other < rank; other++)
    same += other >= 0 && strcmp(selector_of(options, other), selector_of(options, rank)) == 0;
  return same;
}

static tsr_status refuse(const tool_device_table *table, const char *selector, size_t index, size_t matching,
                         tsr_error *error) {
  char there[512] = "";
  for (size_t i = 0; i < table->count; i++) {
    size_t used = strlen(there);
    snprintf(there + used, sizeof there - used, "%s%s (%s)", i ? ", " : "", table->items[i].info.short_name,
             table->items[i].info.name);
  }
  if (table->count <= 1)
    return tool_fail(
        error, TSR_ERROR_NOT_FOUND,
        "no device matches '%s': no OpenCL device was found; install a driver (pocl-opencl-icd for a "
        "CPU), see tessera devices, or use --device host",
        selector);
  if (!matching)
    return tool_fail(error, TSR_ERROR_NOT_FOUND, "no device matches '%s'; there are: %s", selector, there);
  return tool_fail(error, TSR_ERROR_NOT_FOUND,
                   "device '%s' has index %zu, but only %zu match, counted from 0; there are: %s", selector,
                   index, matching, there);
}

static tsr_status find_selected(const tool_device_table *table, const tool_options *options, int rank,
                                int local_rank, const tool_device **out, tsr_error *error) {
  const char *selector = selector_of(options, rank);
  size_t matching = count_matching(table, selector), seen = 0;
  long stated = selector_index(selector);
  size_t index = stated >= 0 ? (size_t)stated
                 : matching  ? same_before(options, rank, local_rank) % matching
                             : 0;
  if (index >= matching) return refuse(table, selector, index, matching, error);
  for (size_t i = 0; i < table->count; i++) {
    if (!tsr_device_matches(selector, &table->items[i].info) || seen++ != index) continue;
    *out = &table->items[i];
  }
  const tsr_device_info *info = &(*out)->info;
  return info->usable ? TSR_OK
                      : tool_fail(error, TSR_ERROR_UNSUPPORTED, "device '%s' (%s) cannot be used: %s",
                                  selector, info->name, info->reason);
}

/* The device's name, with what a pattern takes for its own replaced by "?". */
static void name_pattern(const char *name, char *pattern, size_t bytes) {
  snprintf(pattern, bytes, "%s", name);
  for (char *c = pattern; *c; c++)
    if (strchr("*?[]\\:,", *c)) *c = '?';
}

tsr_status tool_choose(const tool_device_table *table, const tool_options *options, int rank, int local_rank,
                       tool_choice *out, tsr_error *error) {
  const tool_device *found = NULL;
  tsr_status status = TSR_OK;
  if (options->devices.count)
    status = find_selected(table, options, rank, local_rank, &found, error);
  else
    found = find_default(table, local_rank);
  if (status != TSR_OK) return status;
  if (!found)
    return tool_fail(error, TSR_ERROR_NOT_FOUND,
                     "no device was found, not even the host; see tessera devices");
  out->device = *found;
  char pattern[128];
  name_pattern(found->info.name, pattern, sizeof pattern);
  size_t index = 0;
  for (const tool_device *device = table->items; device < found; device++)
    index += strcmp(device->icd, found->icd) == 0 && tsr_device_matches(pattern, &device->info);
  snprintf(out->selector, sizeof out->selector, "%s:%zu", pattern, index);
  return TSR_OK;
}

void tool_choices_restrict(const tool_choice *choices, int count) {
  const char *icd = "";
  setenv("RUSTICL_ENABLE", "llvmpipe", 0); /* as when it was probed */
  for (int i = 0; i < count; i++) {
    const char *mine = choices[i].device.icd;
    if (!mine[0]) continue;
    if (icd[0] && strcmp(icd, mine) != 0) return;
    icd = mine;
  }
  tool_icd_restrict(icd);
}
