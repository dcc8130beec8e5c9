/* opencl_gemm_mma.c: launches cl_kernels/gemm_mma.cl, and gemm_join.cl where k is cut. */
#include "device/opencl_gemm.h"

enum { UNIT = 8 /* elements that the kernel moves at once */, JOIN_VECTOR = 4 };

static const char *const instruction_names[TSR_MMA_COUNT] = {
#define INSTRUCTION_NAME(name, warp, m, n) [TSR_MMA_##name] = #name,
    TSR_MMA_INSTRUCTION_LIST(INSTRUCTION_NAME)
#undef INSTRUCTION_NAME
};

/* What emulates is compiled for a test or two: not compiling it well takes half the time. Intel's threads
 * have 128 registers by default, which hold too few sums. */
static const char *body_options(const tsr_gemm_facts *facts) {
  if (facts->emulated) return "-DEMULATE=1 -cl-opt-disable";
  bool is_intel = facts->instruction == TSR_MMA_INTEL_DPAS8 || facts->instruction == TSR_MMA_INTEL_DPAS16;
  return is_intel ? "-DEMULATE=0 -cl-intel-256-GRF-per-thread" : "-DEMULATE=0";
}

static bool is_aligned(const tsr_matrix *matrix) {
  return matrix->offset % UNIT == 0 && matrix->ld % UNIT == 0;
}

/* Parameters may come from a user's file; what does not divide is the kernel's to refuse. */
static tsr_status check(const tsr_gemm_facts *facts, tsr_gemm_types types, tsr_error *error) {
  if (types != TSR_GEMM_TYPES_F16 && types != TSR_GEMM_TYPES_BF16)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "products of %s on matrix units: they multiply f16 and bf16; use another family",
                    tsr_gemm_types_name(types));
  if (facts->instruction <= TSR_MMA_NONE || facts->instruction >= TSR_MMA_COUNT)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "matrix instruction %d: expected 1 to %d",
                    (int)facts->instruction, TSR_MMA_COUNT - 1);
  if (facts->warp_m < 1 || facts->warp_n < 1 || facts->tile_m < facts->warp_m ||
      facts->tile_n < facts->warp_n)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "tile of %d x %d for warps of %d x %d: they must be multiples", (int)facts->tile_m,
                    (int)facts->tile_n, (int)facts->warp_m, (int)facts->warp_n);
  return TSR_OK;
}

static tsr_status multiply(tsr_opencl_device *device, const tsr_gemm_facts *facts, const tsr_gemm_call *call,
                           int64_t parts, tsr_error *error) {
  tsr_text options = {0};
  cl_kernel kernel = NULL;
  tsr_text_append(&options,
                  "-DINSTRUCTION=%s -DTILE_M=%d -DTILE_N=%d -DTILE_K=%d -DWARP_M=%d -DWARP_N=%d -DSTAGES=%d "
                  "-DALIGNED=%d %s",
                  instruction_names[facts->instruction], facts->tile_m, facts->tile_n, facts->tile_k,
                  facts->warp_m, facts->warp_n, facts->stages, is_aligned(&call->a) && is_aligned(&call->b),
                  body_options(facts));
  tsr_opencl_gemm_options(call, &options);
  TSR_RETURN_IF_FAILED(tsr_opencl_gemm_kernel(device, "gemm_mma.cl", "gemm_mma", &options, &kernel, error));
  TSR_RETURN_IF_FAILED(tsr_opencl_gemm_arguments(device, kernel, call, error));
  const size_t tiles = (size_t)(tsr_ceil_div(call->m, facts->tile_m) * tsr_ceil_div(call->n, facts->tile_n));
  const size_t local[3] = {tsr_gemm_mma_items(facts), 1, 1};
  const size_t global[3] = {tiles * local[0], 1, (size_t)parts};
  return tsr_opencl_enqueue(device, kernel, 3, global, local, error);
}

tsr_status tsr_opencl_gemm_mma(tsr_opencl_device *device, const tsr_gemm_facts *facts,
                               const tsr_gemm_call *call, tsr_error *error) {
  TSR_RETURN_IF_FAILED(check(facts, call->types, error));
  const int64_t parts = tsr_opencl_gemm_parts(facts, call);
  if (parts < 2) return multiply(device, facts, call, 1, error);
  const tsr_gemm_call partial = tsr_opencl_gemm_partial(call);
  TSR_RETURN_IF_FAILED(multiply(device, facts, &partial, parts, error));
  return tsr_opencl_gemm_join(device, call, JOIN_VECTOR, parts, error);
}
