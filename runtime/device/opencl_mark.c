/* opencl_mark.c: what lets the host use one part of a buffer while kernels are at another: sub-buffers, and
 * marks in the queue. */
#include "base/memory.h"
#include "device/opencl_device.h"

/* OpenCL 1.2, 5.2.3: what is mapped may not be written by kernels, nor may its sub-buffers or its parent; a
 * sub-buffer beside it may. */
tsr_status tsr_opencl_buffer_part(tsr_device *base, tsr_buffer *whole, size_t offset, size_t bytes,
                                  tsr_buffer **out, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  const cl_buffer_region region = {.origin = offset, .size = bytes};
  cl_int code = CL_SUCCESS;
  tsr_opencl_buffer *part = tsr_calloc(1, sizeof *part);
  if (!part) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a buffer's description");
  part->memory = clCreateSubBuffer(tsr_opencl_memory(whole), 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  if (part->memory) {
    *out = &part->base;
    return TSR_OK;
  }
  free(part);
  return code == CL_MISALIGNED_SUB_BUFFER_OFFSET ? TSR_OK
                                                 : tsr_opencl_fail(device, "clCreateSubBuffer", code, error);
}

void tsr_opencl_mark_set(tsr_device *base, tsr_device_mark *mark) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  if (device->last) clRetainEvent(device->last);
  mark->last = device->last;
}

void tsr_opencl_mark_drop(tsr_device *base, tsr_device_mark *mark) {
  (void)base;
  if (mark->last) clReleaseEvent(mark->last);
  mark->last = NULL;
}

/* The queue runs in order, so the command in front of the mark speaks for all before it. */
tsr_status tsr_opencl_mark_test(tsr_device *base, tsr_device_mark *mark, bool *reached, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  *reached = !mark->last;
  if (*reached) return TSR_OK;
  cl_int state = CL_QUEUED;
  cl_int code = clGetEventInfo(mark->last, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
  if (code != CL_SUCCESS) return tsr_opencl_fail(device, "clGetEventInfo", code, error);
  if (state > CL_COMPLETE) {
    code = clFlush(device->queue);
    return code == CL_SUCCESS ? TSR_OK : tsr_opencl_fail(device, "clFlush", code, error);
  }
  *reached = true;
  tsr_opencl_mark_drop(base, mark);
  if (state == CL_COMPLETE) return TSR_OK;
  tsr_opencl_fail(device, "a command of the queue", state, error);
  if (error) error->status = TSR_ERROR_DEVICE;
  return TSR_ERROR_DEVICE;
}
