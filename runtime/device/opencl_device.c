/* opencl_device.c: an OpenCL device: one context, one queue in order, buffers, mappings. */
#include "device/opencl_device.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "device/device_list.h"
#include "device/tuning.h"
#include <tessera/version.h>

enum { HUGE_PAGES_FROM = 2 << 20 }; /* bytes: one such page */
enum { ROW_GROUPS_MAX = 65535 };    /* NVIDIA's second and third dimension */

void tsr_opencl_remember(tsr_opencl_device *device, cl_event event) {
  if (event && device->span) tsr_opencl_span_add(device->span, event);
  if (device->last) clReleaseEvent(device->last);
  device->last = event;
}

static void CL_CALLBACK free_pages(cl_mem memory, void *pages) {
  (void)memory;
  free(pages);
}

/* Whether the driver uses host memory that it is given where it lies. */
static bool uses_in_place(const tsr_opencl_device *device) {
  bool (*says_so)(const tsr_opencl_facts *) = device->backend->uses_huge_pages;
  return says_so && says_so(&device->facts);
}

/* NULL: the driver is to allocate, or to say that it cannot. */
static void *make_pages(const tsr_opencl_device *device, size_t bytes) {
  if (bytes < HUGE_PAGES_FROM || bytes > device->facts.max_allocation_bytes) return NULL;
  return uses_in_place(device) ? tsr_malloc_huge(bytes) : NULL;
}

/* NULL memory: the driver allocates. */
static tsr_status make_buffer(tsr_opencl_device *device, void *memory, size_t bytes, bool owned,
                              tsr_buffer **out, tsr_error *error) {
  cl_int code = CL_SUCCESS;
  tsr_opencl_buffer *buffer = tsr_calloc(1, sizeof *buffer);
  if (!buffer) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a buffer's description");
  buffer->memory = clCreateBuffer(device->context, CL_MEM_READ_WRITE | (memory ? CL_MEM_USE_HOST_PTR : 0),
                                  bytes, memory, &code);
  if (buffer->memory && memory && owned) { /* it stays until the last command that uses it has ended */
    code = clSetMemObjectDestructorCallback(buffer->memory, free_pages, memory);
    if (code != CL_SUCCESS) {
      clReleaseMemObject(buffer->memory);
      buffer->memory = NULL;
    }
  }
  if (buffer->memory) {
    *out = &buffer->base;
    return TSR_OK;
  }
  free(buffer);
  tsr_status status = tsr_opencl_fail(device, "clCreateBuffer", code, error);
  tsr_error_wrap(error, "a buffer of %zu bytes beside %llu in use", bytes,
                 (unsigned long long)device->base.bytes_used);
  return status;
}

static tsr_status buffer_create(tsr_device *base, size_t bytes, tsr_buffer **out, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  void *pages = make_pages(device, bytes);
  tsr_status status = make_buffer(device, pages, bytes, true, out, error);
  if (status != TSR_OK) free(pages);
  return status;
}

static tsr_status buffer_create_over(tsr_device *base, void *memory, size_t bytes, tsr_buffer **out,
                                     tsr_error *error) {
  return make_buffer(tsr_opencl_of(base), memory, bytes, false, out, error);
}

/* Commands that use the memory keep it alive until they have ended. */
static void buffer_destroy(tsr_device *base, tsr_buffer *buffer) {
  (void)base;
  clReleaseMemObject(tsr_opencl_memory(buffer));
  free(buffer);
}

/* What a WRITE mapping held before is not wanted: a GPU need not send it. */
static const cl_map_flags map_flags[] = {
    [TSR_HOST_READ] = CL_MAP_READ,
    [TSR_HOST_WRITE] = CL_MAP_WRITE_INVALIDATE_REGION,
    [TSR_HOST_READ_WRITE] = CL_MAP_READ | CL_MAP_WRITE,
};

static tsr_status host_begin(tsr_device *base, tsr_buffer *buffer, size_t offset, size_t bytes,
                             tsr_host_mode mode, void **pointer, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  cl_event event = NULL;
  cl_int code = CL_SUCCESS;
  *pointer = clEnqueueMapBuffer(device->queue, tsr_opencl_memory(buffer), CL_FALSE, map_flags[mode], offset,
                                bytes, 0, NULL, &event, &code);
  if (code != CL_SUCCESS) return tsr_opencl_fail(device, "clEnqueueMapBuffer", code, error);
  tsr_opencl_remember(device, event);
  return TSR_OK;
}

static tsr_status host_end(tsr_device *base, tsr_buffer *buffer, void *pointer, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  cl_event event = NULL;
  cl_int code = clEnqueueUnmapMemObject(device->queue, tsr_opencl_memory(buffer), pointer, 0, NULL, &event);
  if (code != CL_SUCCESS) return tsr_opencl_fail(device, "clEnqueueUnmapMemObject", code, error);
  tsr_opencl_remember(device, event);
  return TSR_OK;
}

/* The widest pattern that divides both is the fastest. */
static tsr_status fill_zero(tsr_device *base, tsr_buffer *buffer, size_t offset, size_t bytes,
                            tsr_error *error) {
  static const char zeros[16] = {0};
  tsr_opencl_device *device = tsr_opencl_of(base);
  size_t width = sizeof zeros;
  while ((offset | bytes) % width) width /= 2;
  cl_event event = NULL;
  cl_int code = clEnqueueFillBuffer(device->queue, tsr_opencl_memory(buffer), zeros, width, offset, bytes, 0,
                                    NULL, &event);
  if (code != CL_SUCCESS) return tsr_opencl_fail(device, "clEnqueueFillBuffer", code, error);
  tsr_opencl_remember(device, event);
  return TSR_OK;
}

tsr_status tsr_opencl_enqueue(tsr_opencl_device *device, cl_kernel kernel, cl_uint dimensions,
                              const size_t *global, const size_t *local, tsr_error *error) {
  cl_event event = NULL;
  cl_int code =
      clEnqueueNDRangeKernel(device->queue, kernel, dimensions, NULL, global, local, 0, NULL, &event);
  if (code != CL_SUCCESS) {
    tsr_opencl_kernel_abandon(device, kernel);
    return tsr_opencl_fail(device, "clEnqueueNDRangeKernel", code, error);
  }
  tsr_opencl_remember(device, event);
  tsr_opencl_kernel_settle(device, kernel);
  return TSR_OK;
}

tsr_status tsr_opencl_enqueue_rows(tsr_opencl_device *device, cl_kernel kernel, size_t columns, size_t rows,
                                   const size_t local[2], tsr_error *error) {
  const size_t groups = (size_t)tsr_ceil_div((int64_t)rows, (int64_t)local[1]),
               layers = (size_t)tsr_ceil_div((int64_t)groups, ROW_GROUPS_MAX);
  const size_t group[3] = {local[0], local[1], 1};
  const size_t global[3] = {tsr_ceil_div(columns, local[0]) * local[0],
                            tsr_ceil_div(groups, layers) * local[1], layers};
  return tsr_opencl_enqueue(device, kernel, layers > 1 ? 3 : 2, global, group, error);
}

static tsr_status poll(tsr_device *base, bool *idle, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  tsr_device_mark mark = {device->last}; /* its reference passes to the mark */
  device->last = NULL;
  tsr_status status = tsr_opencl_mark_test(base, &mark, idle, error);
  device->last = mark.last;
  return status;
}

/* A CPU device's threads may have no core but ours: the driver's own wait leaves it to them. */
static void wait(tsr_device *base) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  if (device->last) clFinish(device->queue);
}

static void device_close(tsr_device *base) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  if (device->queue) clFinish(device->queue);
  tsr_opencl_kernels_destroy(device);
  tsr_opencl_gemm_forget(device);
  tsr_tuning_free(base);
  tsr_opencl_remember(device, NULL);
  if (device->uses_clblast) tsr_clblast_forget();
  if (device->queue) clReleaseCommandQueue(device->queue);
  if (device->context) clReleaseContext(device->context);
  free(device);
}

static void gemm_offer(const tsr_device *base, tsr_gemm_types types, int preference, tsr_gemm_facts *out) {
  const tsr_opencl_device *device = (const tsr_opencl_device *)base;
  *out = (tsr_gemm_facts){.family = TSR_GEMM_NONE};
  device->backend->gemm(&device->facts, types, preference, out);
}

static const tsr_device_ops ops = {
    .close = device_close,
    .buffer_create = buffer_create,
    .buffer_create_over = buffer_create_over,
    .buffer_destroy = buffer_destroy,
    .buffer_part = tsr_opencl_buffer_part,
    .host_begin = host_begin,
    .host_end = host_end,
    .fill_zero = fill_zero,
    .gemm = tsr_opencl_gemm,
    .map = tsr_opencl_map,
    .conv = tsr_opencl_conv,
    .pool = tsr_opencl_pool,
    .reduce = tsr_opencl_reduce,
    .poll = poll,
    .mark_set = tsr_opencl_mark_set,
    .mark_test = tsr_opencl_mark_test,
    .mark_drop = tsr_opencl_mark_drop,
    .wait = wait,
    .gemm_offer = gemm_offer,
    .timing_set = tsr_opencl_timing_set,
    .timing_probe = tsr_opencl_timing_probe,
    .span_watch = tsr_opencl_span_watch,
    .span_take = tsr_opencl_span_take,
};

static void take_fingerprint(tsr_opencl_device *device) {
  const tsr_opencl_facts *facts = &device->facts;
  char text[2048];
  int length = snprintf(text, sizeof text, "%s|%s|%s|%s|%s|%s", tsr_version(), facts->platform,
                        facts->platform_version, facts->name, facts->version, facts->driver);
  XXH128_hash_t hash = XXH3_128bits(text, (size_t)length);
  device->fingerprint[0] = hash.high64;
  device->fingerprint[1] = hash.low64;
}

/* What tuning wants to know. */
static void describe(tsr_opencl_device *device) {
  const tsr_opencl_facts *facts = &device->facts;
  tsr_device *base = &device->base;
  base->work_group_size = facts->work_group_size_max;
  base->takes_memory = facts->unified_memory && uses_in_place(device);
  if (device->backend->vector_registers) base->vector_registers = device->backend->vector_registers(facts);
  if (device->backend->architecture)
    device->backend->architecture(facts, base->architecture, sizeof base->architecture);
  else
    snprintf(base->architecture, sizeof base->architecture, "%.*s", (int)strcspn(facts->name, ":"),
             facts->name);
}

static tsr_status open_queue(tsr_opencl_device *device, tsr_error *error) {
  cl_int code = CL_SUCCESS;
  device->context = clCreateContext(NULL, 1, &device->id, NULL, NULL, &code);
  if (!device->context) return tsr_opencl_fail(device, "clCreateContext", code, error);
  device->queue = clCreateCommandQueue(device->context, device->id, 0, &code);
  return device->queue ? TSR_OK : tsr_opencl_fail(device, "clCreateCommandQueue", code, error);
}

tsr_status tsr_opencl_device_create(tsr_context *context, void *native, const tsr_device_options *options,
                                    tsr_device **out, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_opencl_device *device = tsr_calloc(1, sizeof *device);
  if (!device) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a device");
  device->base.ops = &ops;
  device->base.context = context;
  device->base.alignment = 1;
  device->id = native;
  device->work = options->work;
  cl_int code = tsr_opencl_facts_read(device->id, &device->facts);
  if (code != CL_SUCCESS) {
    status = tsr_opencl_fail(device, "clGetDeviceInfo", code, error);
    goto done;
  }
  device->backend = tsr_opencl_claim(&device->facts, &device->base.info);
  if (!device->base.info.usable)
    TSR_THROW(TSR_ERROR_UNSUPPORTED, "%s cannot be used: %s", device->base.info.name,
              device->base.info.reason);
  take_fingerprint(device);
  TSR_TRY(open_queue(device, error));
  TSR_TRY(tsr_opencl_gemm_choose(device, options->gemm, error));
  describe(device);
  TSR_TRY(tsr_tuning_load(&device->base, options->gemm, tsr_kernel_sources, error));
  *out = &device->base;
  return TSR_OK;
done:
  device_close(&device->base);
  return status;
}
