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

/* The launch rule of gemm_panel.cl: whole groups of panels, as many for each core; rows are cut only if
 * panels alone do not keep every core busy. */
static void count_groups(const tsr_opencl_device *device, const tsr_gemm_facts *facts, blocking blocking,
                         const tsr_gemm_call *call, size_t groups[2]) {
  const size_t cores = device->facts.compute_units ? device->facts.compute_units : 1;
  const size_t panels = (size_t)tsr_ceil_div(call->n, facts->panel),
               tile_rows = (size_t)tsr_ceil_div(call->m, facts->tile_m);
  groups[0] = (size_t)tsr_ceil_div(tsr_ceil_div((int64_t)panels, blocking.panels), (int64_t)cores) * cores;
  if (groups[0] > panels) groups[0] = panels;
  groups[1] = groups[0] < cores ? (size_t)tsr_ceil_div((int64_t)cores, (int64_t)groups[0]) : 1;
  if (groups[1] > tile_rows) groups[1] = tile_rows;
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
  count_groups(device, facts, blocking, call, global);
  return tsr_opencl_enqueue(device, kernel, 2, global, local, error);
}
