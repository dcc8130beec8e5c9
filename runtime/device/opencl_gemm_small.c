/* opencl_gemm_small.c: launches cl_kernels/gemm_small.cl. */
#include "device/opencl_gemm.h"

enum { GROUPS_PER_CORE = 8, GROUP_BYTES_MIN = 32 * 1024 };

/* Rows of the largest of the fewest, nearly equal groups that the registers allow. */
static int64_t rows_of(const tsr_gemm_facts *facts, int64_t m) {
  return tsr_ceil_div(m, tsr_ceil_div(m, facts->tile_m));
}

/* Several groups a core, so that one that comes late takes fewer; but none too small for its own start. */
static size_t count_groups(const tsr_opencl_device *device, const tsr_gemm_call *call, int panel) {
  const size_t cores = device->facts.compute_units ? device->facts.compute_units : 1;
  const size_t panels = (size_t)tsr_ceil_div(call->n, panel);
  const int64_t panel_bytes = tsr_matrix_bytes(panel, tsr_gemm_dtype_b(call->types), call->k, panel);
  const size_t per_group = (size_t)tsr_ceil_div(GROUP_BYTES_MIN, panel_bytes);
  size_t groups = panels / per_group;
  if (groups > cores * GROUPS_PER_CORE) groups = cores * GROUPS_PER_CORE;
  if (cores == 1) groups = 1;
  return groups ? groups : 1;
}

tsr_status tsr_opencl_gemm_small(tsr_opencl_device *device, const tsr_gemm_facts *facts,
                                 const tsr_gemm_call *call, tsr_error *error) {
  const int fetch = call->m == 1 ? facts->small_fetch_row : facts->small_fetch;
  tsr_text options = {0};
  cl_kernel kernel = NULL;
  tsr_text_append(&options, "-DROWS=%d -DSMALL_M=%d -DPANEL=%d -DVECTOR=%d -DK_BLOCK=%d -DFETCH=%d",
                  (int)rows_of(facts, call->m), facts->small_m, facts->panel, facts->vector,
                  facts->small_k_block, facts->prefetch ? fetch : 0);
  tsr_opencl_gemm_options(call, &options);
  TSR_RETURN_IF_FAILED(
      tsr_opencl_gemm_kernel(device, "gemm_small.cl", "gemm_small", &options, &kernel, error));
  TSR_RETURN_IF_FAILED(tsr_opencl_gemm_arguments(device, kernel, call, error));
  const size_t local[1] = {1}, global[1] = {count_groups(device, call, facts->panel)};
  return tsr_opencl_enqueue(device, kernel, 1, global, local, error);
}
