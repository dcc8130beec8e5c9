/* opencl_gemm_panel.c: launches cl_kernels/gemm_panel.cl. */
#include "device/opencl_gemm.h"

typedef struct blocking {
  int k_block, row_block, panels;
} blocking;

/* Where a product reads both operands as they are stored, and where it does not. */
static blocking blocking_of(const tsr_gemm_facts *facts, const tsr_gemm_call *call) {
  bool narrow = tsr_gemm_dtype_b(call->types) != tsr_gemm_dtype_a(call->types);
  bool as_stored = !call->transpose_a && call->b.panel && !call->transpose_b && !narrow;
  return as_stored ? (blocking){facts->stored_k_block, facts->stored_row_block, facts->stored_panels}
                   : (blocking){facts->copied_k_block, facts->copied_row_block, facts->copied_panels};
}

void tsr_opencl_panel_groups(const tsr_gemm_facts *facts, int panels_per_group, int64_t m, int64_t n,
                             int64_t cores, size_t groups[2]) {
  const int64_t panels = tsr_ceil_div(n, facts->panel), tile_rows = tsr_ceil_div(m, facts->tile_m);
  int64_t across = tsr_ceil_div(tsr_ceil_div(panels, panels_per_group), cores) * cores;
  if (across > panels) across = panels;
  int64_t down = across < cores ? tsr_ceil_div(cores, across) : 1;
  groups[0] = (size_t)across;
  groups[1] = (size_t)(down < tile_rows ? down : tile_rows);
}

tsr_status tsr_opencl_gemm_panel(tsr_opencl_device *device, const tsr_gemm_facts *facts,
                                 const tsr_gemm_call *call, tsr_error *error) {
  if (tsr_gemm_has_few_rows(facts, call)) return tsr_opencl_gemm_small(device, facts, call, error);
  const blocking blocking = blocking_of(facts, call);
  tsr_text options = {0};
  cl_kernel kernel = NULL;
  tsr_text_append(&options,
                  "-DTILE_M=%d -DPANEL=%d -DVECTOR=%d -DK_BLOCK=%d -DROW_BLOCK=%d -DPANELS_PER_GROUP=%d "
                  "-DPREFETCH=%d",
                  facts->tile_m, facts->panel, facts->vector, blocking.k_block, blocking.row_block,
                  blocking.panels, facts->prefetch);
  tsr_opencl_gemm_options(call, &options);
  TSR_RETURN_IF_FAILED(
      tsr_opencl_gemm_kernel(device, "gemm_panel.cl", "gemm_panel", &options, &kernel, error));
  TSR_RETURN_IF_FAILED(tsr_opencl_gemm_arguments(device, kernel, call, error));
  const size_t local[2] = {1, 1};
  size_t global[2];
  const int64_t cores = device->facts.compute_units ? (int64_t)device->facts.compute_units : 1;
  tsr_opencl_panel_groups(facts, blocking.panels, call->m, call->n, cores, global);
  return tsr_opencl_enqueue(device, kernel, 2, global, local, error);
}
