/* nvidia.c: GPUs behind NVIDIA's own driver.
 *
 * The largest buffer stays what OpenCL says, a quarter of the memory: the driver is known to give more, but
 * promises nothing. No CL_MEM_ALLOC_HOST_PTR: here it would put every buffer into host memory. */
#include <stdio.h>
#include <string.h>

#include "backend_list.h"
#include "gpu_gemm.h"

static bool claim(const tsr_opencl_facts *facts, const char **reason) {
  *reason = "a GPU of the platform \"NVIDIA CUDA\"";
  return facts->kind == TSR_DEVICE_GPU && !strcmp(facts->platform, "NVIDIA CUDA");
}

static void describe(const tsr_opencl_facts *facts, tsr_device_info *info) {
  (void)facts;
  snprintf(info->short_name, sizeof info->short_name, "nvidia");
}

/* 32 KiB of local memory a step, so that three groups fit a multiprocessor. */
static const tsr_gpu_tiles tiles = {
    .local_bytes = 48 << 10,
    .f32 = TSR_GPU_TILE(128, 128, 16, 8, 8, 4, 2, 16),
    .f64 = TSR_GPU_TILE(64, 64, 16, 4, 4, 2, 2, 16),
};

static void gemm(const tsr_opencl_facts *facts, tsr_gemm_types types, int preference, tsr_gemm_facts *out) {
  tsr_gpu_gemm(facts, &tiles, types, preference, out);
}

const tsr_backend tsr_backend_nvidia = {
    .name = "nvidia",
    .claim = claim,
    .describe = describe,
    .gemm = gemm,
};
