/* intel.c: GPUs behind Intel's own driver (NEO). The platform was "Intel(R) OpenCL HD Graphics" in old
 * versions. Intel's CPU runtime, "Intel(R) OpenCL", belongs to cpu; so does PoCL, which shows Intel's vendor
 * id.
 *
 * Buffers stay below 4 GiB. Larger ones need the flag CL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL (1 << 23) and, in
 * every program that sees them, -cl-intel-greater-than-4GB-buffer-required; one without the other computes
 * garbage (compute-runtime #627), and CLBlast builds programs of its own, which this library cannot give the
 * option. Shards beyond the limit are cut into several buffers instead. */
#include <stdio.h>
#include <string.h>

#include "backend_list.h"
#include "gpu_gemm.h"

static const uint64_t allocation_limit = ((uint64_t)1 << 32) - ((uint64_t)1 << 16);

static bool claim(const tsr_opencl_facts *facts, const char **reason) {
  *reason = "a GPU of the platform \"Intel(R) OpenCL Graphics\"";
  return facts->kind == TSR_DEVICE_GPU &&
         !strncmp(facts->platform, "Intel(R) OpenCL", strlen("Intel(R) OpenCL"));
}

static void describe(const tsr_opencl_facts *facts, tsr_device_info *info) {
  (void)facts;
  snprintf(info->short_name, sizeof info->short_name, "intel");
  if (info->max_allocation_bytes > allocation_limit) info->max_allocation_bytes = allocation_limit;
}

/* Sums that leave room in 128 registers of 32 bytes for 8 work-items, or of 64 bytes for 16. */
static const tsr_gpu_tiles tiles = {
    .local_bytes = 32 << 10,
    .f32 = TSR_GPU_TILE(64, 64, 8, 8, 4, 4, 2, 16),
    .f64 = TSR_GPU_TILE(32, 64, 8, 2, 4, 2, 2, 16),
};

/* The compiler alone would put 32 work-items into a thread of wide registers, and spill. Those that have them
 * multiply tf32 too. */
static int sub_group(const tsr_opencl_facts *facts) {
  if (!strstr(facts->extensions, "cl_intel_required_subgroup_size")) return 0;
  return strstr(facts->extensions, "cl_intel_subgroup_matrix_multiply_accumulate_tf32") ? 16 : 8;
}

static void gemm(const tsr_opencl_facts *facts, tsr_gemm_types types, int preference, tsr_gemm_facts *out) {
  tsr_gpu_gemm(facts, &tiles, types, preference, out);
  if (out->family == TSR_GEMM_TILE) out->sub_group = sub_group(facts);
}

const tsr_backend tsr_backend_intel = {
    .name = "intel",
    .claim = claim,
    .describe = describe,
    .gemm = gemm,
};
