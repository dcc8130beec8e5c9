/* device.c: the front of every device, host or OpenCL: arguments are checked and bytes are counted here, the
 * device's own table does the work. Operands that overlap are the caller's concern: values share buffers, so
 * only the plan knows what may be overwritten. */
#include "device/device.h"

#include <inttypes.h>
#include <sched.h>

#include "base/memory.h"

const tsr_device_info *tsr_device_get_info(const tsr_device *device) {
  return &device->info;
}

uint64_t tsr_device_bytes_used(const tsr_device *device) {
  return device->bytes_used;
}

uint64_t tsr_device_bytes_peak(const tsr_device *device) {
  return device->bytes_peak;
}

void tsr_device_close(tsr_device **device) {
  if (!device || !*device) return;
  (*device)->ops->close(*device);
  *device = NULL;
}

static tsr_status check_ledger(const tsr_device *device, size_t bytes, tsr_error *error) {
  const tsr_device_info *info = &device->info;
  if (!bytes)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "a buffer of 0 bytes on %s: it must have at least 1",
                    info->name);
  if (bytes > info->max_allocation_bytes)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY,
                    "a buffer of %zu bytes on %s: one buffer has at most %" PRIu64
                    "; split the matrix over several",
                    bytes, info->name, info->max_allocation_bytes);
  uint64_t left = info->memory_bytes > device->bytes_used ? info->memory_bytes - device->bytes_used : 0;
  if (bytes > left)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY,
                    "a buffer of %zu bytes on %s: %" PRIu64 " of %" PRIu64 " bytes are in use, %" PRIu64
                    " are left; give this device a smaller share or a larger cap",
                    bytes, info->name, device->bytes_used, info->memory_bytes, left);
  return TSR_OK;
}

static void enter_in_ledger(tsr_device *device, tsr_buffer *buffer, size_t bytes) {
  buffer->bytes = bytes;
  device->bytes_used += bytes;
  if (device->bytes_used > device->bytes_peak) device->bytes_peak = device->bytes_used;
}

tsr_status tsr_buffer_create(tsr_device *device, size_t bytes, tsr_buffer **out, tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_ledger(device, bytes, error));
  TSR_RETURN_IF_FAILED(device->ops->buffer_create(device, bytes, out, error));
  enter_in_ledger(device, *out, bytes);
  return TSR_OK;
}

tsr_status tsr_buffer_create_over(tsr_device *device, void *memory, size_t bytes, tsr_buffer **out,
                                  tsr_error *error) {
  if (!device->takes_memory) return tsr_buffer_create(device, bytes, out, error);
  TSR_RETURN_IF_FAILED(check_ledger(device, bytes, error));
  TSR_RETURN_IF_FAILED(device->ops->buffer_create_over(device, memory, bytes, out, error));
  enter_in_ledger(device, *out, bytes);
  return TSR_OK;
}

void tsr_buffer_destroy(tsr_device *device, tsr_buffer **buffer) {
  if (!buffer || !*buffer) return;
  device->bytes_used -= (*buffer)->bytes;
  device->ops->buffer_destroy(device, *buffer);
  *buffer = NULL;
}

static tsr_status check_range(const tsr_device *device, const tsr_buffer *buffer, size_t offset, size_t bytes,
                              tsr_error *error) {
  if (!buffer)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "no buffer is given, on %s", device->info.name);
  if (!bytes || offset > buffer->bytes || bytes > buffer->bytes - offset)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%zu bytes at offset %zu: expected at least 1, within the buffer's %zu bytes", bytes,
                    offset, buffer->bytes);
  return TSR_OK;
}

tsr_status tsr_buffer_part(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                           tsr_buffer **out, tsr_error *error) {
  *out = NULL;
  TSR_RETURN_IF_FAILED(check_range(device, buffer, offset, bytes, error));
  if (!device->ops->buffer_part) return TSR_OK;
  TSR_RETURN_IF_FAILED(device->ops->buffer_part(device, buffer, offset, bytes, out, error));
  if (*out) (*out)->bytes = bytes;
  return TSR_OK;
}

void tsr_buffer_part_destroy(tsr_device *device, tsr_buffer **part) {
  if (!*part) return;
  device->ops->buffer_destroy(device, *part);
  *part = NULL;
}

tsr_status tsr_device_host_begin(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                                 tsr_host_mode mode, void **pointer, tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_range(device, buffer, offset, bytes, error));
  if (device->alignment > 1 && offset % device->alignment)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "offset %zu of a mapping on %s: it must be a multiple of %" PRIu64, offset,
                    device->info.name, device->alignment);
  return device->ops->host_begin(device, buffer, offset, bytes, mode, pointer, error);
}

tsr_status tsr_device_host_end(tsr_device *device, tsr_buffer *buffer, void *pointer, tsr_error *error) {
  if (!buffer || !pointer)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "giving back a mapping on %s: no %s is given",
                    device->info.name, buffer ? "pointer" : "buffer");
  return device->ops->host_end(device, buffer, pointer, error);
}

tsr_status tsr_device_host_wait(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                                tsr_host_mode mode, void **pointer, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_device_host_begin(device, buffer, offset, bytes, mode, pointer, error));
  return tsr_device_finish(device, error);
}

tsr_status tsr_device_fill_zero(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                                tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_range(device, buffer, offset, bytes, error));
  return device->ops->fill_zero(device, buffer, offset, bytes, error);
}

tsr_status tsr_device_poll(tsr_device *device, bool *idle, tsr_error *error) {
  return device->ops->poll(device, idle, error);
}

void tsr_device_mark_set(tsr_device *device, tsr_device_mark *mark) {
  if (device->ops->mark_set) device->ops->mark_set(device, mark);
}

tsr_status tsr_device_mark_test(tsr_device *device, tsr_device_mark *mark, bool *reached, tsr_error *error) {
  *reached = true;
  return device->ops->mark_test ? device->ops->mark_test(device, mark, reached, error) : TSR_OK;
}

void tsr_device_mark_drop(tsr_device *device, tsr_device_mark *mark) {
  if (device->ops->mark_drop) device->ops->mark_drop(device, mark);
}

tsr_status tsr_device_finish(tsr_device *device, tsr_error *error) {
  if (device->ops->wait) device->ops->wait(device);
  for (;;) {
    bool idle = false;
    TSR_RETURN_IF_FAILED(tsr_device_poll(device, &idle, error));
    if (idle) return TSR_OK;
    sched_yield();
  }
}
