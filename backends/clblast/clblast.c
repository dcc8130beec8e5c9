/* clblast.c: CLBlast as the GEMM provider. It works on cl_mem and queues, so this is the one file of
 * backends/ that may include device/opencl_gemm.h.
 *
 * CLBlast compiles its own programs at the first call and keeps them, by the address of their context, for
 * the life of the process. A new context may get the address of a closed one, so closing a device empties
 * that store.
 *
 * It uses its own tuning database. What it needs beside the matrices it allocates itself, past the ledger:
 * how much depends on the device's row of that database, which a plan, made without the device, cannot see.
 */
#define _GNU_SOURCE /* dladdr */
#include "device/opencl_gemm.h"

#include <clblast_c.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

bool tsr_clblast_available(void) {
  return true;
}

/* The header's version is that of the build, and no function tells the loaded library's. */
bool tsr_clblast_identify(char *text, size_t bytes) {
  Dl_info info = {0};
  struct stat file = {0};
  union {
    CLBlastStatusCode (*function)(void);
    void *address;
  } known = {.function = CLBlastClearCache};
  if (!dladdr(known.address, &info) || !info.dli_fname || stat(info.dli_fname, &file)) return false;
  int length = snprintf(text, bytes, "%s %" PRIdMAX " %" PRIdMAX, info.dli_fname, (intmax_t)file.st_size,
                        (intmax_t)file.st_mtime);
  return length > 0 && (size_t)length < bytes;
}

void tsr_clblast_forget(void) {
  CLBlastClearCache();
}

/* CLBlast's codes above -1000 are OpenCL's own. */
static tsr_status fail(const tsr_opencl_device *device, CLBlastStatusCode code, tsr_error *error) {
  if (code > -1000) return tsr_opencl_fail(device, "CLBlast's GEMM", (cl_int)code, error);
  tsr_status status =
      tsr_fail(error, TSR_ERROR_DEVICE,
               "CLBlast's GEMM failed on %s (driver %s): its status %d, see CLBlastStatusCode",
               device->base.info.name, device->base.info.driver, (int)code);
  tsr_error_native(error, "clblast", code);
  return status;
}

static CLBlastTranspose transpose_of(bool transposed) {
  return transposed ? CLBlastTransposeYes : CLBlastTransposeNo;
}

tsr_status tsr_clblast_gemm(tsr_opencl_device *device, const tsr_gemm_facts *facts, const tsr_gemm_call *call,
                            tsr_error *error) {
  (void)facts;
  const tsr_matrix *a = &call->a, *b = &call->b, *c = &call->c;
  const cl_mem memory_a = tsr_opencl_memory(a->buffer), memory_b = tsr_opencl_memory(b->buffer),
               memory_c = tsr_opencl_memory(c->buffer);
  const CLBlastTranspose turn_a = transpose_of(call->transpose_a), turn_b = transpose_of(call->transpose_b);
  const size_t m = (size_t)call->m, n = (size_t)call->n, k = (size_t)call->k;
  cl_event event = NULL;
  device->uses_clblast = true;
  CLBlastStatusCode code =
      call->types == TSR_GEMM_TYPES_F64
          ? CLBlastDgemm(CLBlastLayoutRowMajor, turn_a, turn_b, m, n, k, call->alpha, memory_a,
                         (size_t)a->offset, (size_t)a->ld, memory_b, (size_t)b->offset, (size_t)b->ld,
                         call->beta, memory_c, (size_t)c->offset, (size_t)c->ld, &device->queue, &event)
          : CLBlastSgemm(CLBlastLayoutRowMajor, turn_a, turn_b, m, n, k, (float)call->alpha, memory_a,
                         (size_t)a->offset, (size_t)a->ld, memory_b, (size_t)b->offset, (size_t)b->ld,
                         (float)call->beta, memory_c, (size_t)c->offset, (size_t)c->ld, &device->queue,
                         &event);
  if (code != CLBlastSuccess) return fail(device, code, error);
  tsr_opencl_remember(device, event);
  return TSR_OK;
}
