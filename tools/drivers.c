/* drivers.c: which ICD files there are, and a key that changes with them. */
#include "drivers.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "message.h"

static const char VENDOR_FOLDER[] = "/etc/OpenCL/vendors";

/* Variables by which a driver shows other devices, or more of them. */
static const char *const environment[] = {
    "OCL_ICD_VENDORS",        "RUSTICL_ENABLE",       "RUSTICL_DEVICE_TYPE", "POCL_DEVICES",
    "POCL_MEMORY_LIMIT",      "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",  "ROCR_VISIBLE_DEVICES",
    "ONEAPI_DEVICE_SELECTOR", "ZE_AFFINITY_MASK",     "LD_LIBRARY_PATH",
};

static bool is_folder(const char *path) {
  struct stat facts;
  return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

static tsr_status add_path(tool_drivers *drivers, const char *folder, const char *name, tsr_error *error) {
  size_t bytes = strlen(folder) + strlen(name) + 2;
  char *path = malloc(bytes);
  char **paths = realloc(drivers->paths, (drivers->count + 1) * sizeof *paths);
  if (paths) drivers->paths = paths;
  if (!path || !paths) {
    free(path);
    return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the list of OpenCL drivers");
  }
  snprintf(path, bytes, "%s%s%s", folder, folder[0] ? "/" : "", name);
  drivers->paths[drivers->count++] = path;
  return TSR_OK;
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static tsr_status list_folder(const char *folder, tool_drivers *out, tsr_error *error) {
  DIR *entries = opendir(folder);
  tsr_status status = TSR_OK;
  if (!entries) return TSR_OK;
  for (struct dirent *entry; status == TSR_OK && (entry = readdir(entries));) {
    const char *dot = strrchr(entry->d_name, '.');
    if (dot && strcmp(dot, ".icd") == 0) status = add_path(out, folder, entry->d_name, error);
  }
  closedir(entries);
  if (out->count) qsort(out->paths, out->count, sizeof *out->paths, by_name);
  return status;
}

tsr_status tool_drivers_list(tool_drivers *out, tsr_error *error) {
  *out = (tool_drivers){0};
#ifdef TSR_HAVE_OPENCL
  const char *chosen = getenv("OCL_ICD_VENDORS");
  if (!chosen || !chosen[0]) chosen = VENDOR_FOLDER;
  return is_folder(chosen) || chosen == VENDOR_FOLDER ? list_folder(chosen, out, error)
                                                      : add_path(out, "", chosen, error);
#else
  (void)error, (void)VENDOR_FOLDER, (void)is_folder, (void)list_folder; /* no OpenCL, no drivers */
  return TSR_OK;
#endif
}

void tool_drivers_free(tool_drivers *drivers) {
  for (size_t i = 0; i < drivers->count; i++) free(drivers->paths[i]);
  free(drivers->paths);
  *drivers = (tool_drivers){0};
}

uint64_t tool_hash(uint64_t hash, const char *text) {
  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211u;
  return (hash ^ 0xff) * 1099511628211u; /* so that "a", "bc" is not "ab", "c" */
}

static uint64_t hash_file_facts(uint64_t hash, const char *path) {
  struct stat facts;
  char text[96] = "missing";
  if (stat(path, &facts) == 0)
    snprintf(text, sizeof text, "%" PRId64 " %" PRId64, (int64_t)facts.st_mtime, (int64_t)facts.st_size);
  return tool_hash(tool_hash(hash, path), text);
}

uint64_t tool_drivers_key(const tool_drivers *drivers) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  uint64_t hash = tool_hash(TOOL_HASH_BEGIN, host); /* a cache folder may be shared by hosts */
  hash = tool_hash(hash, tsr_version());
  hash = hash_file_facts(hash, tool_program_path("tessera"));
  for (size_t i = 0; i < drivers->count; i++) hash = hash_file_facts(hash, drivers->paths[i]);
  for (size_t i = 0; i < sizeof environment / sizeof environment[0]; i++) {
    const char *value = getenv(environment[i]);
    hash = tool_hash(hash, value ? value : "");
  }
  return hash;
}
