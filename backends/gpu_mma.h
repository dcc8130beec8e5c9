/* backends/gpu_mma.h: which GPUs have matrix units, and how gemm_mma.cl uses them. */
#ifndef TSR_BACKENDS_GPU_MMA_H
#define TSR_BACKENDS_GPU_MMA_H

#include "device/backend.h"

/* Gives the variant for these types; false if the device has no matrix units for them that are known here.
 * Never an emulated one. */
bool tsr_gpu_mma(const tsr_opencl_facts *facts, tsr_gemm_types types, tsr_gemm_facts *out);

#endif
