/* device/device_list.h: what a list holds beside the public description, and where OpenCL joins in. A build
 * without OpenCL has opencl_none.c in place of the OpenCL files. */
#ifndef TSR_DEVICE_DEVICE_LIST_H
#define TSR_DEVICE_DEVICE_LIST_H

#include <tessera/device.h>

typedef struct tsr_device_entry {
  tsr_device_info info;
  void *native; /* cl_device_id; NULL = the host backend */
} tsr_device_entry;

/* Copies info into the list. */
tsr_status tsr_device_list_add(tsr_device_list *list, const tsr_device_info *info, void *native,
                               tsr_error *error);

/* Adds every OpenCL device. What has no devices or cannot be asked is skipped, and logged. */
tsr_status tsr_opencl_devices_list(tsr_context *context, tsr_device_list *list, tsr_error *error);

/* Opens the cl_device_id; of options, gemm and work count. Gives *out, without caps. */
tsr_status tsr_opencl_device_create(tsr_context *context, void *native, const tsr_device_options *options,
                                    tsr_device **out, tsr_error *error);

#endif
