/* clblast_none.c: stands in for clblast.c in a build without CLBlast: backends go on to their next family. */
#include "device/opencl_gemm.h"

bool tsr_clblast_available(void) {
  return false;
}

bool tsr_clblast_identify(char *text, size_t bytes) {
  (void)text, (void)bytes;
  return false;
}

void tsr_clblast_forget(void) {}

tsr_status tsr_clblast_gemm(tsr_opencl_device *device, const tsr_gemm_facts *facts, const tsr_gemm_call *call,
                            tsr_error *error) {
  (void)device, (void)facts, (void)call;
  return tsr_fail(
      error, TSR_ERROR_UNSUPPORTED,
      "GEMM family clblast: this library was built without CLBlast; configure it with -Dclblast=enabled");
}
