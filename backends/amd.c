/* amd.c: GPUs behind AMD's own driver (ROCm). The same GPU behind rusticl has another compiler and other
 * limits, and belongs to generic. The largest buffer, 85 % of the memory, is as OpenCL says. */
#include <stdio.h>
#include <string.h>

#include "backend_list.h"
#include "gpu_gemm.h"

static bool claim(const tsr_opencl_facts *facts, const char **reason) {
  *reason = "a GPU of the platform \"AMD Accelerated Parallel Processing\"";
  return facts->kind == TSR_DEVICE_GPU && !strcmp(facts->platform, "AMD Accelerated Parallel Processing");
}

static void describe(const tsr_opencl_facts *facts, tsr_device_info *info) {
  (void)facts;
  snprintf(info->short_name, sizeof info->short_name, "amd");
}

/* Half of a compute unit's local memory, so that two groups fit. */
static const tsr_gpu_tiles tiles = {
    .local_bytes = 32 << 10,
    .f32 = TSR_GPU_TILE(128, 64, 16, 8, 4, 4, 2, 16),
    .f64 = TSR_GPU_TILE(64, 64, 8, 4, 4, 2, 2, 16),
};

static void gemm(const tsr_opencl_facts *facts, tsr_gemm_types types, int preference, tsr_gemm_facts *out) {
  tsr_gpu_gemm(facts, &tiles, types, preference, out);
}

const tsr_backend tsr_backend_amd = {
    .name = "amd",
    .claim = claim,
    .describe = describe,
    .gemm = gemm,
};
