/* gpu_gemm.c: see the header. Shares of CLBlast are cut at 32 columns: it pads to its tiles whatever it gets,
 * so this bounds what is lost without making shares coarse. */
#include "gpu_gemm.h"

static const tsr_gemm_facts families[] = {
    {.family = TSR_GEMM_CLBLAST, .tile_m = 32, .tile_n = 32},
    {.family = TSR_GEMM_REFERENCE, .tile_m = 4, .tile_n = 16},
};

void tsr_gpu_gemm(const tsr_opencl_facts *facts, tsr_dtype dtype, int preference, tsr_gemm_facts *out) {
  if (dtype == TSR_F64 && !facts->f64) return;
  if (preference < (int)(sizeof families / sizeof *families)) *out = families[preference];
}
