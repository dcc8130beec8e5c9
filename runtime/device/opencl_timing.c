/* opencl_timing.c: when commands ran, by the device's own clock. */
#include "device/opencl_device.h"

/* A queue times its commands or does not, for life: so another takes its place. */
tsr_status tsr_opencl_timing_set(tsr_device *base, bool on, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  cl_int code = CL_SUCCESS;
  cl_command_queue queue =
      clCreateCommandQueue(device->context, device->id, on ? CL_QUEUE_PROFILING_ENABLE : 0, &code);
  if (!queue) return tsr_opencl_fail(device, "clCreateCommandQueue", code, error);
  clFinish(device->queue);
  tsr_opencl_remember(device, NULL);
  clReleaseCommandQueue(device->queue);
  device->queue = queue;
  return TSR_OK;
}

static bool read_time(cl_event event, cl_profiling_info which, double *seconds) {
  cl_ulong nanoseconds = 0;
  cl_int code = clGetEventProfilingInfo(event, which, sizeof nanoseconds, &nanoseconds, NULL);
  *seconds = 1e-9 * (double)nanoseconds;
  return code == CL_SUCCESS && nanoseconds;
}

bool tsr_opencl_timing_probe(tsr_device *base, double *begin, double *end) {
  static const cl_uint zero = 0;
  tsr_opencl_device *device = tsr_opencl_of(base);
  cl_event event = NULL;
  cl_mem memory = clCreateBuffer(device->context, CL_MEM_READ_WRITE, sizeof zero, NULL, NULL);
  bool good = memory && clEnqueueFillBuffer(device->queue, memory, &zero, sizeof zero, 0, sizeof zero, 0,
                                            NULL, &event) == CL_SUCCESS;
  good = good && clWaitForEvents(1, &event) == CL_SUCCESS &&
         read_time(event, CL_PROFILING_COMMAND_START, begin) &&
         read_time(event, CL_PROFILING_COMMAND_END, end) && *begin <= *end;
  if (event) clReleaseEvent(event);
  if (memory) clReleaseMemObject(memory);
  return good;
}

void tsr_opencl_span_watch(tsr_device *base, tsr_device_span *span) {
  tsr_opencl_of(base)->span = span;
}

void tsr_opencl_span_add(tsr_device_span *span, cl_event event) {
  if (!span->first) {
    clRetainEvent(event);
    span->first = event;
  }
  clRetainEvent(event);
  if (span->last) clReleaseEvent(span->last);
  span->last = event;
}

bool tsr_opencl_span_take(tsr_device *base, tsr_device_span *span, double *begin, double *end) {
  (void)base;
  if (!span->first) return false;
  bool good = read_time(span->first, CL_PROFILING_COMMAND_START, begin) &&
              read_time(span->last, CL_PROFILING_COMMAND_END, end) && *begin <= *end;
  clReleaseEvent(span->first);
  clReleaseEvent(span->last);
  *span = (tsr_device_span){0};
  return good;
}
