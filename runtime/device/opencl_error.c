/* opencl_error.c: OpenCL's error codes as names and as statuses. */
#include "device/opencl_device.h"

#include <stdio.h>

#define ROW(code, status)                                                                                    \
  { code, #code, status }

static const struct {
  cl_int code;
  const char *name;
  tsr_status status;
} codes[] = {
    ROW(CL_SUCCESS, TSR_OK),
    ROW(CL_DEVICE_NOT_FOUND, TSR_ERROR_NOT_FOUND),
    ROW(CL_DEVICE_NOT_AVAILABLE, TSR_ERROR_DEVICE),
    ROW(CL_COMPILER_NOT_AVAILABLE, TSR_ERROR_UNSUPPORTED),
    ROW(CL_MEM_OBJECT_ALLOCATION_FAILURE, TSR_ERROR_OUT_OF_MEMORY),
    ROW(CL_OUT_OF_RESOURCES, TSR_ERROR_DEVICE), /* NVIDIA: also a kernel that went out of bounds */
    ROW(CL_OUT_OF_HOST_MEMORY, TSR_ERROR_OUT_OF_MEMORY),
    ROW(CL_MEM_COPY_OVERLAP, TSR_ERROR_DEVICE),
    ROW(CL_BUILD_PROGRAM_FAILURE, TSR_ERROR_COMPILE),
    ROW(CL_MAP_FAILURE, TSR_ERROR_DEVICE),
    ROW(CL_MISALIGNED_SUB_BUFFER_OFFSET, TSR_ERROR_DEVICE),
    ROW(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, TSR_ERROR_DEVICE),
    ROW(CL_COMPILE_PROGRAM_FAILURE, TSR_ERROR_COMPILE),
    ROW(CL_LINKER_NOT_AVAILABLE, TSR_ERROR_UNSUPPORTED),
    ROW(CL_LINK_PROGRAM_FAILURE, TSR_ERROR_COMPILE),
    ROW(CL_INVALID_VALUE, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_PLATFORM, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_DEVICE, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_CONTEXT, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_COMMAND_QUEUE, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_MEM_OBJECT, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_BINARY, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_BUILD_OPTIONS, TSR_ERROR_COMPILE),
    ROW(CL_INVALID_PROGRAM, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_PROGRAM_EXECUTABLE, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_KERNEL_NAME, TSR_ERROR_COMPILE),
    ROW(CL_INVALID_KERNEL_DEFINITION, TSR_ERROR_COMPILE),
    ROW(CL_INVALID_KERNEL, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_ARG_INDEX, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_ARG_VALUE, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_ARG_SIZE, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_KERNEL_ARGS, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_WORK_DIMENSION, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_WORK_GROUP_SIZE, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_WORK_ITEM_SIZE, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_GLOBAL_OFFSET, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_EVENT_WAIT_LIST, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_EVENT, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_OPERATION, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_BUFFER_SIZE, TSR_ERROR_OUT_OF_MEMORY),
    ROW(CL_INVALID_GLOBAL_WORK_SIZE, TSR_ERROR_DEVICE),
    ROW(CL_INVALID_PROPERTY, TSR_ERROR_DEVICE),
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR", TSR_ERROR_NOT_FOUND},
};

enum { CODE_COUNT = sizeof codes / sizeof *codes };

static size_t find(cl_int code) {
  size_t i = 0;
  while (i < CODE_COUNT && codes[i].code != code) i++;
  return i;
}

const char *tsr_opencl_error_name(cl_int code) {
  size_t i = find(code);
  return i < CODE_COUNT ? codes[i].name : "a code of its vendor";
}

tsr_status tsr_opencl_fail(const tsr_opencl_device *device, const char *call, cl_int code, tsr_error *error) {
  size_t i = find(code);
  tsr_status status = i < CODE_COUNT && codes[i].status ? codes[i].status : TSR_ERROR_DEVICE;
  status = tsr_fail(error, status, "%s failed on %s (driver %s): %s, %d", call, device->base.info.name,
                    device->base.info.driver, tsr_opencl_error_name(code), (int)code);
  tsr_error_native(error, "opencl", code);
  if (error)
    snprintf(error->device, sizeof error->device, "%.*s", (int)sizeof error->device - 1,
             device->base.info.name);
  return status;
}
