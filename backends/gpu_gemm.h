/* backends/gpu_gemm.h: the GEMM families that any GPU can use, in order: CLBlast, then the reference kernel.
 */
#ifndef TSR_BACKENDS_GPU_GEMM_H
#define TSR_BACKENDS_GPU_GEMM_H

#include "device/backend.h"

/* A tsr_backend's gemm slot. */
void tsr_gpu_gemm(const tsr_opencl_facts *facts, tsr_dtype dtype, int preference, tsr_gemm_facts *out);

#endif
