/* opencl_none.c: stands in for the OpenCL files in a build without OpenCL: the host backend is all there is.
 */
#include "base/error.h"
#include "device/device_list.h"

tsr_status tsr_opencl_devices_list(tsr_context *context, tsr_device_list *list, tsr_error *error) {
  (void)context, (void)list, (void)error;
  return TSR_OK;
}

tsr_status tsr_opencl_device_create(tsr_context *context, void *native, const tsr_device_options *options,
                                    tsr_device **out, tsr_error *error) {
  (void)context, (void)native, (void)options;
  *out = NULL;
  return tsr_fail(
      error, TSR_ERROR_UNSUPPORTED,
      "OpenCL devices: this library was built without OpenCL; configure it with -Dopencl=enabled");
}
