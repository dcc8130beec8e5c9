/* generic.c: any OpenCL device that no other backend takes, as OpenCL describes it. GPUs have what any GPU
 * can use, other kinds the reference kernel. */
#include <stdio.h>
#include <string.h>

#include "backend_list.h"
#include "gpu_gemm.h"

static bool claim(const tsr_opencl_facts *facts, const char **reason) {
  (void)facts;
  *reason = "no other backend takes it";
  return true;
}

static void describe(const tsr_opencl_facts *facts, tsr_device_info *info) {
  static const char *const short_names[][2] = {{"rusticl", "rusticl"},
                                               {"Portable Computing Language", "pocl"}};
  for (size_t i = 0; i < sizeof short_names / sizeof *short_names; i++)
    if (!strcmp(facts->platform, short_names[i][0]))
      snprintf(info->short_name, sizeof info->short_name, "%s", short_names[i][1]);
}

static void gemm(const tsr_opencl_facts *facts, tsr_gemm_types types, int preference, tsr_gemm_facts *out) {
  if (facts->kind == TSR_DEVICE_GPU)
    tsr_gpu_gemm(facts, &tsr_gpu_tiles_generic, types, preference, out);
  else if (preference == 0 && (types != TSR_GEMM_TYPES_F64 || facts->f64))
    *out = (tsr_gemm_facts){.family = TSR_GEMM_REFERENCE, .tile_m = 4, .tile_n = 16};
}

const tsr_backend tsr_backend_generic = {
    .name = "generic",
    .claim = claim,
    .describe = describe,
    .gemm = gemm,
};
