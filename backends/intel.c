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

const tsr_backend tsr_backend_intel = {
    .name = "intel",
    .claim = claim,
    .describe = describe,
    .gemm = tsr_gpu_gemm,
};
