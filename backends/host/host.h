/* host.h: the inside of the host device: plain C on the calling thread, executed at once. It is always there,
 * and it is what every other device is compared with: clear before fast, sums in f64. */
#ifndef TSR_HOST_H
#define TSR_HOST_H

#include "base/narrow.h"
#include "device/device.h"

/* A block of op(B) and the sums of a block of C, in f64. */
enum { TSR_HOST_ROWS = 64, TSR_HOST_COLUMNS = 128, TSR_HOST_DEPTH = 64 };

typedef struct tsr_host_device {
  tsr_device base;
  double a[TSR_HOST_ROWS][TSR_HOST_DEPTH];
  double b[TSR_HOST_DEPTH][TSR_HOST_COLUMNS];
  double sum[TSR_HOST_ROWS][TSR_HOST_COLUMNS];
} tsr_host_device;

typedef struct tsr_host_buffer {
  tsr_buffer base;
  void *data;
  bool borrowed; /* data is somebody else's */
} tsr_host_buffer;

static inline void *tsr_host_data(const tsr_matrix *matrix) {
  return ((tsr_host_buffer *)matrix->buffer)->data;
}

/* Slots of the device's table; arguments are valid. */
tsr_status tsr_host_gemm(tsr_device *device, const tsr_gemm_call *call, tsr_error *error);
tsr_status tsr_host_map(tsr_device *device, const tsr_map_call *call, tsr_error *error);
tsr_status tsr_host_conv(tsr_device *device, const tsr_conv_call *call, tsr_error *error);
tsr_status tsr_host_pool(tsr_device *device, const tsr_pool_call *call, tsr_error *error);
tsr_status tsr_host_reduce(tsr_device *device, const tsr_reduce_call *call, tsr_error *error);

#endif
