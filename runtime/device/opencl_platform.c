/* opencl_platform.c: what OpenCL says of every device, and which backend takes it. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "device/device_list.h"
#include "device/opencl_device.h"

#define FACT(query, field)                                                                                   \
  { query, offsetof(tsr_opencl_facts, field), sizeof((tsr_opencl_facts *)0)->field }

typedef struct fact {
  cl_device_info query;
  size_t offset, bytes;
} fact;

static const fact text_facts[] = {
    FACT(CL_DEVICE_NAME, name),       FACT(CL_DEVICE_VENDOR, vendor),         FACT(CL_DRIVER_VERSION, driver),
    FACT(CL_DEVICE_VERSION, version), FACT(CL_DEVICE_EXTENSIONS, extensions),
};

/* Their types in OpenCL have the sizes of the fields. */
static const fact number_facts[] = {
    FACT(CL_DEVICE_VENDOR_ID, vendor_id),
    FACT(CL_DEVICE_MAX_COMPUTE_UNITS, compute_units),
    FACT(CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, float_vector_width),
    FACT(CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE, double_vector_width),
    FACT(CL_DEVICE_GLOBAL_MEM_SIZE, memory_bytes),
    FACT(CL_DEVICE_MAX_MEM_ALLOC_SIZE, max_allocation_bytes),
    FACT(CL_DEVICE_LOCAL_MEM_SIZE, local_memory_bytes),
    FACT(CL_DEVICE_MAX_WORK_GROUP_SIZE, work_group_size_max),
};

/* Some drivers pad names with blanks. */
static void trim(char *text) {
  size_t length = strlen(text), start = strspn(text, " \t\n");
  while (length > start && isspace((unsigned char)text[length - 1])) length--;
  memmove(text, text + start, length - start);
  text[length - start] = 0;
}

static cl_int read_text(cl_device_id id, cl_device_info query, char *to, size_t bytes) {
  size_t needed = 0;
  cl_int code = clGetDeviceInfo(id, query, 0, NULL, &needed);
  char *text = code == CL_SUCCESS ? tsr_calloc(needed + 1, 1) : NULL;
  if (!text) return code == CL_SUCCESS ? CL_OUT_OF_HOST_MEMORY : code;
  code = clGetDeviceInfo(id, query, needed, text, NULL);
  trim(text);
  snprintf(to, bytes, "%s", text);
  free(text);
  return code;
}

/* The platform's text, cut to what fits; *to = "" if the query fails. */
static cl_int read_platform_text(cl_platform_id platform, cl_platform_info query, char *to, size_t bytes) {
  char text[1024] = "";
  cl_int code = clGetPlatformInfo(platform, query, sizeof text - 1, text, NULL);
  trim(text);
  snprintf(to, bytes, "%.*s", (int)bytes - 1, code == CL_SUCCESS ? text : "");
  return code;
}

static cl_bool read_flag(cl_device_id id, cl_device_info query) {
  cl_bool value = CL_FALSE;
  return clGetDeviceInfo(id, query, sizeof value, &value, NULL) == CL_SUCCESS && value;
}

static bool has_double(cl_device_id id) {
  cl_device_fp_config config = 0;
  return clGetDeviceInfo(id, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof config, &config, NULL) == CL_SUCCESS &&
         config;
}

/* Vendors' own queries, of extensions whose headers not every system has. */
enum { CAPABILITY_MAJOR_NV = 0x4000, CAPABILITY_MINOR_NV = 0x4001, SUB_GROUP_SIZES_INTEL = 0x4108 };

static uint32_t read_capability(cl_device_id id) {
  cl_uint major = 0, minor = 0;
  if (clGetDeviceInfo(id, CAPABILITY_MAJOR_NV, sizeof major, &major, NULL) != CL_SUCCESS ||
      clGetDeviceInfo(id, CAPABILITY_MINOR_NV, sizeof minor, &minor, NULL) != CL_SUCCESS)
    return 0;
  return 10 * major + minor;
}

static uint32_t read_sub_group_least(cl_device_id id) {
  size_t sizes[16], bytes = 0, least = 0;
  if (clGetDeviceInfo(id, SUB_GROUP_SIZES_INTEL, sizeof sizes, sizes, &bytes) != CL_SUCCESS) return 0;
  for (size_t i = 0; i < bytes / sizeof *sizes; i++)
    if (!least || sizes[i] < least) least = sizes[i];
  return (uint32_t)least;
}

cl_int tsr_opencl_facts_read(cl_device_id id, tsr_opencl_facts *facts) {
  memset(facts, 0, sizeof *facts);
  cl_platform_id platform = NULL;
  cl_device_type type = 0;
  cl_int code = clGetDeviceInfo(id, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL);
  if (code == CL_SUCCESS)
    code = read_platform_text(platform, CL_PLATFORM_NAME, facts->platform, sizeof facts->platform);
  if (code == CL_SUCCESS)
    code = read_platform_text(platform, CL_PLATFORM_VERSION, facts->platform_version,
                              sizeof facts->platform_version);
  if (code == CL_SUCCESS) code = clGetDeviceInfo(id, CL_DEVICE_TYPE, sizeof type, &type, NULL);
  for (size_t i = 0; code == CL_SUCCESS && i < sizeof text_facts / sizeof *text_facts; i++)
    code = read_text(id, text_facts[i].query, (char *)facts + text_facts[i].offset, text_facts[i].bytes);
  for (size_t i = 0; code == CL_SUCCESS && i < sizeof number_facts / sizeof *number_facts; i++)
    code = clGetDeviceInfo(id, number_facts[i].query, number_facts[i].bytes,
                           (char *)facts + number_facts[i].offset, NULL);
  facts->kind = type & CL_DEVICE_TYPE_GPU   ? TSR_DEVICE_GPU
                : type & CL_DEVICE_TYPE_CPU ? TSR_DEVICE_CPU
                                            : TSR_DEVICE_OTHER;
  facts->unified_memory = read_flag(id, CL_DEVICE_HOST_UNIFIED_MEMORY);
  facts->compiler = read_flag(id, CL_DEVICE_COMPILER_AVAILABLE);
  facts->little_endian = read_flag(id, CL_DEVICE_ENDIAN_LITTLE);
  facts->f64 = has_double(id);
  facts->f16 = strstr(facts->extensions, "cl_khr_fp16") != NULL;
  if (strstr(facts->extensions, "cl_nv_device_attribute_query"))
    facts->compute_capability = read_capability(id);
  if (strstr(facts->extensions, "cl_intel_required_subgroup_size"))
    facts->sub_group_least = read_sub_group_least(id);
  return code;
}

/* What no OpenCL device may lack, whoever makes it; NULL if it lacks nothing. */
static const char *missing_feature(const tsr_opencl_facts *facts) {
  int major = 0, minor = 0;
  if (sscanf(facts->version, "OpenCL %d.%d", &major, &minor) != 2 || major * 10 + minor < 12)
    return "it has OpenCL before 1.2";
  if (!facts->compiler) return "its driver has no compiler";
  if (!facts->little_endian) return "it is big-endian";
  return NULL;
}

const tsr_backend *tsr_opencl_claim(const tsr_opencl_facts *facts, tsr_device_info *info) {
  *info = (tsr_device_info){.short_name = "opencl",
                            .usable = true,
                            .kind = facts->kind,
                            .memory_bytes = facts->memory_bytes,
                            .max_allocation_bytes = facts->max_allocation_bytes,
                            .local_memory_bytes = facts->local_memory_bytes,
                            .compute_units = facts->compute_units,
                            .unified_memory = facts->unified_memory,
                            .f64 = facts->f64,
                            .f16 = facts->f16};
  snprintf(info->platform, sizeof info->platform, "%.*s", (int)sizeof info->platform - 1, facts->platform);
  snprintf(info->name, sizeof info->name, "%s", facts->name);
  snprintf(info->vendor, sizeof info->vendor, "%.*s", (int)sizeof info->vendor - 1, facts->vendor);
  snprintf(info->driver, sizeof info->driver, "%s", facts->driver);
  const char *reason = "";
  const tsr_backend *const *backend = tsr_backends;
  while (*backend && !(*backend)->claim(facts, &reason)) backend++;
  const char *missing = *backend ? missing_feature(facts) : "no backend takes it";
  snprintf(info->backend, sizeof info->backend, "%s", *backend ? (*backend)->name : "none");
  snprintf(info->reason, sizeof info->reason, "%s", missing ? missing : reason);
  info->usable = !missing;
  if (*backend && (*backend)->describe) (*backend)->describe(facts, info);
  return *backend;
}

static tsr_status list_device(tsr_context *context, cl_device_id id, tsr_device_list *list,
                              tsr_error *error) {
  tsr_opencl_facts *facts = tsr_malloc(sizeof *facts);
  if (!facts) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the description of a device");
  tsr_status status = TSR_OK;
  tsr_device_info info;
  cl_int code = tsr_opencl_facts_read(id, facts);
  if (code == CL_SUCCESS) {
    tsr_opencl_claim(facts, &info);
    status = tsr_device_list_add(list, &info, id, error);
  } else {
    tsr_log(context, TSR_LOG_WARNING, "device",
            "a device of platform \"%s\" is skipped: it does not describe itself (%s)", facts->platform,
            tsr_opencl_error_name(code));
  }
  free(facts);
  return status;
}

/* A driver without its device is common (Mesa installs several): that is no reason to warn. */
static tsr_status list_platform(tsr_context *context, cl_platform_id platform, tsr_device_list *list,
                                tsr_error *error) {
  char name[128];
  cl_uint count = 0;
  cl_int code = read_platform_text(platform, CL_PLATFORM_NAME, name, sizeof name);
  if (code == CL_SUCCESS) code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &count);
  if (code == CL_DEVICE_NOT_FOUND || (code == CL_SUCCESS && !count)) {
    tsr_log(context, TSR_LOG_INFO, "device", "OpenCL platform \"%s\" is skipped: it has no devices", name);
    return TSR_OK;
  }
  if (code != CL_SUCCESS) {
    tsr_log(context, TSR_LOG_WARNING, "device",
            "OpenCL platform \"%s\" is skipped: it does not list its devices (%s)", name,
            tsr_opencl_error_name(code));
    return TSR_OK;
  }
  tsr_status status = TSR_OK;
  cl_device_id *ids = tsr_calloc(count, sizeof *ids);
  if (!ids) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for a list of devices");
  if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, ids, NULL) != CL_SUCCESS) goto done;
  for (cl_uint i = 0; i < count; i++) TSR_TRY(list_device(context, ids[i], list, error));
done:
  free(ids);
  return status;
}

/* The loader says PLATFORM_NOT_FOUND where no driver is installed: that is an empty list. */
tsr_status tsr_opencl_devices_list(tsr_context *context, tsr_device_list *list, tsr_error *error) {
  cl_uint count = 0;
  if (clGetPlatformIDs(0, NULL, &count) != CL_SUCCESS || !count) return TSR_OK;
  tsr_status status = TSR_OK;
  cl_platform_id *platforms = tsr_calloc(count, sizeof *platforms);
  if (!platforms) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for a list of platforms");
  if (clGetPlatformIDs(count, platforms, NULL) != CL_SUCCESS) goto done;
  for (cl_uint i = 0; i < count; i++) TSR_TRY(list_platform(context, platforms[i], list, error));
done:
  free(platforms);
  return status;
}
