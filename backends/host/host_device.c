/* host_device.c: opens and describes the host device; its buffers are ordinary memory, its own or given. */
#include "host.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tessera/version.h>

#include "base/memory.h"
#include "device/backend.h"

static void host_close(tsr_device *device) {
  free(device);
}

static tsr_status host_buffer_create(tsr_device *device, size_t bytes, tsr_buffer **out, tsr_error *error) {
  (void)device;
  tsr_host_buffer *buffer = tsr_calloc(1, sizeof *buffer);
  void *data = buffer ? tsr_malloc_pages(bytes) : NULL;
  if (!data) {
    free(buffer);
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY,
                    "a buffer of %zu bytes on the host: the system has no memory for it; use more devices",
                    bytes);
  }
  buffer->data = data;
  *out = &buffer->base;
  return TSR_OK;
}

static tsr_status host_buffer_create_over(tsr_device *device, void *memory, size_t bytes, tsr_buffer **out,
                                          tsr_error *error) {
  (void)device, (void)bytes;
  tsr_host_buffer *buffer = tsr_calloc(1, sizeof *buffer);
  if (!buffer) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a buffer's description");
  buffer->data = memory;
  buffer->borrowed = true;
  *out = &buffer->base;
  return TSR_OK;
}

static void host_buffer_destroy(tsr_device *device, tsr_buffer *buffer) {
  (void)device;
  tsr_host_buffer *own = (tsr_host_buffer *)buffer;
  if (!own->borrowed) free(own->data);
  free(own);
}

static tsr_status host_buffer_part(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                                   tsr_buffer **out, tsr_error *error) {
  return host_buffer_create_over(device, (char *)((tsr_host_buffer *)buffer)->data + offset, bytes, out,
                                 error);
}

static tsr_status host_begin(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                             tsr_host_mode mode, void **pointer, tsr_error *error) {
  (void)device, (void)bytes, (void)mode, (void)error;
  *pointer = (char *)((tsr_host_buffer *)buffer)->data + offset;
  return TSR_OK;
}

static tsr_status host_end(tsr_device *device, tsr_buffer *buffer, void *pointer, tsr_error *error) {
  (void)device, (void)buffer, (void)pointer, (void)error;
  return TSR_OK;
}

static tsr_status host_fill_zero(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                                 tsr_error *error) {
  (void)device, (void)error;
  memset((char *)((tsr_host_buffer *)buffer)->data + offset, 0, bytes);
  return TSR_OK;
}

/* Every call has ended when it returns. */
static tsr_status host_poll(tsr_device *device, bool *idle, tsr_error *error) {
  (void)device, (void)error;
  *idle = true;
  return TSR_OK;
}

static uint64_t usable_memory_bytes(void) {
  const uint64_t kept = 2ull << 30; /* for the system and the program itself */
  long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  uint64_t bytes = pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
  return bytes > 2 * kept ? bytes - kept : bytes / 2;
}

void tsr_host_device_describe(tsr_device_info *out) {
  uint64_t bytes = usable_memory_bytes();
  *out = (tsr_device_info){
      .platform = "host",
      .short_name = "host",
      .name = "plain C",
      .driver = "Tessera " TSR_VERSION, /* it is its own: no OpenCL is below */
      .backend = "host",
      .reason = "plain C on the calling thread: always there, exact rather than fast",
      .usable = true,
      .kind = TSR_DEVICE_CPU,
      .memory_bytes = bytes,
      .max_allocation_bytes = bytes,
      .compute_units = 1,
      .unified_memory = true,
      .f64 = true,
  };
}

static const tsr_device_ops host_ops;

tsr_status tsr_host_device_create(tsr_context *context, tsr_device **out, tsr_error *error) {
  tsr_host_device *device = tsr_calloc(1, sizeof *device);
  if (!device)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "opening the host device: no memory for %zu bytes",
                    sizeof *device);
  const tsr_gemm_facts gemm = {.family = TSR_GEMM_HOST, .tile_m = 1, .tile_n = 1};
  device->base = (tsr_device){.ops = &host_ops, .context = context, .alignment = 1, .takes_memory = true};
  for (int types = 0; types < TSR_GEMM_TYPES_COUNT; types++) device->base.gemm[types] = gemm;
  tsr_host_device_describe(&device->base.info);
  *out = &device->base;
  return TSR_OK;
}

static const tsr_device_ops host_ops = {
    .close = host_close,
    .buffer_create = host_buffer_create,
    .buffer_create_over = host_buffer_create_over,
    .buffer_destroy = host_buffer_destroy,
    .buffer_part = host_buffer_part,
    .host_begin = host_begin,
    .host_end = host_end,
    .fill_zero = host_fill_zero,
    .gemm = tsr_host_gemm,
    .map = tsr_host_map,
    .conv = tsr_host_conv,
    .pool = tsr_host_pool,
    .reduce = tsr_host_reduce,
    .poll = host_poll,
};
