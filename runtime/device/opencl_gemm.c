/* opencl_gemm.c: launches a product in the family that the device's facts name. */
#include "device/opencl_device.h"

#include <stdio.h>

enum { OPTION_BYTES = 512, TRANSPOSE_TILE = 32, REFERENCE_GROUP_COLUMNS = 16, REFERENCE_GROUP_ROWS = 4 };

typedef struct argument {
  size_t bytes;
  const void *value;
} argument;

static tsr_status set_arguments(tsr_opencl_device *device, cl_kernel kernel, const argument *arguments,
                                cl_uint count, tsr_error *error) {
  for (cl_uint i = 0; i < count; i++) {
    cl_int code = clSetKernelArg(kernel, i, arguments[i].bytes, arguments[i].value);
    if (code != CL_SUCCESS) return tsr_opencl_fail(device, "clSetKernelArg", code, error);
  }
  return TSR_OK;
}

static size_t ceil_div(int64_t x, int64_t y) {
  return (size_t)((x + y - 1) / y);
}

static const char *real_name(tsr_dtype dtype) {
  return dtype == TSR_F64 ? "double" : "float";
}

/* Reference and panel take the same arguments. */
static tsr_status set_gemm_arguments(tsr_opencl_device *device, cl_kernel kernel, const tsr_gemm_call *call,
                                     const tsr_matrix *a, tsr_error *error) {
  const cl_ulong m = (cl_ulong)call->m, n = (cl_ulong)call->n, k = (cl_ulong)call->k;
  const cl_float alpha = (cl_float)call->alpha, beta = (cl_float)call->beta;
  const bool wide = call->dtype == TSR_F64;
  const tsr_matrix *const matrices[] = {a, &call->b, &call->c};
  cl_mem memory[3];
  cl_ulong offset[3], ld[3];
  for (int i = 0; i < 3; i++) {
    memory[i] = tsr_opencl_memory(matrices[i]->buffer);
    offset[i] = (cl_ulong)matrices[i]->offset;
    ld[i] = (cl_ulong)matrices[i]->ld;
  }
  const argument arguments[] = {
      {sizeof m, &m},
      {sizeof n, &n},
      {sizeof k, &k},
      {wide ? sizeof(cl_double) : sizeof(cl_float), wide ? (const void *)&call->alpha : &alpha},
      {wide ? sizeof(cl_double) : sizeof(cl_float), wide ? (const void *)&call->beta : &beta},
      {sizeof *memory, &memory[0]},
      {sizeof *offset, &offset[0]},
      {sizeof *ld, &ld[0]},
      {sizeof *memory, &memory[1]},
      {sizeof *offset, &offset[1]},
      {sizeof *ld, &ld[1]},
      {sizeof *memory, &memory[2]},
      {sizeof *offset, &offset[2]},
      {sizeof *ld, &ld[2]},
  };
  return set_arguments(device, kernel, arguments, sizeof arguments / sizeof *arguments, error);
}

/* A fixed work-group, because PoCL compiles a kernel anew for every one that it has not seen. */
static tsr_status launch_reference(tsr_opencl_device *device, const tsr_gemm_call *call, tsr_error *error) {
  char options[OPTION_BYTES];
  cl_kernel kernel = NULL;
  snprintf(options, sizeof options, "-DREAL=%s -DA_TRANSPOSED=%d -DB_TRANSPOSED=%d -DB_PANEL=%d -DC_PANEL=%d",
           real_name(call->dtype), call->transpose_a, call->transpose_b, call->b.panel, call->c.panel);
  TSR_RETURN_IF_FAILED(
      tsr_opencl_kernel_get(device, "gemm_reference.cl", "gemm_reference", options, &kernel, error));
  TSR_RETURN_IF_FAILED(set_gemm_arguments(device, kernel, call, &call->a, error));
  const size_t local[2] = {REFERENCE_GROUP_COLUMNS, REFERENCE_GROUP_ROWS};
  const size_t global[2] = {ceil_div(call->n, REFERENCE_GROUP_COLUMNS) * REFERENCE_GROUP_COLUMNS,
                            ceil_div(call->m, REFERENCE_GROUP_ROWS) * REFERENCE_GROUP_ROWS};
  return tsr_opencl_enqueue(device, kernel, 2, global, local, error);
}

/* *out = A^T in the workspace, row-major without gaps. */
static tsr_status transpose_a(tsr_opencl_device *device, const tsr_gemm_call *call, tsr_matrix *out,
                              tsr_error *error) {
  char options[OPTION_BYTES];
  cl_kernel kernel = NULL;
  const tsr_matrix *a = &call->a;
  *out = (tsr_matrix){.buffer = call->workspace, .rows = a->cols, .cols = a->rows, .ld = a->rows};
  snprintf(options, sizeof options, "-DREAL=%s -DTILE=%d", real_name(call->dtype), TRANSPOSE_TILE);
  TSR_RETURN_IF_FAILED(tsr_opencl_kernel_get(device, "transpose.cl", "transpose", options, &kernel, error));
  const cl_mem from = tsr_opencl_memory(a->buffer), to = tsr_opencl_memory(out->buffer);
  const cl_ulong sizes[] = {(cl_ulong)a->rows, (cl_ulong)a->cols};
  const cl_ulong from_offset = (cl_ulong)a->offset, from_ld = (cl_ulong)a->ld, to_offset = 0,
                 to_ld = (cl_ulong)out->ld;
  const argument arguments[] = {
      {sizeof *sizes, &sizes[0]},         {sizeof *sizes, &sizes[1]}, {sizeof from, &from},
      {sizeof from_offset, &from_offset}, {sizeof from_ld, &from_ld}, {sizeof to, &to},
      {sizeof to_offset, &to_offset},     {sizeof to_ld, &to_ld},
  };
  TSR_RETURN_IF_FAILED(set_arguments(device, kernel, arguments, sizeof arguments / sizeof *arguments, error));
  const size_t local[2] = {1, 1};
  const size_t global[2] = {ceil_div(a->cols, TRANSPOSE_TILE), ceil_div(a->rows, TRANSPOSE_TILE)};
  return tsr_opencl_enqueue(device, kernel, 2, global, local, error);
}

/* The launch rule of gemm_panel.cl: whole groups of panels, as many for each core; rows are cut only if
 * panels alone do not keep every core busy. */
static void panel_groups(const tsr_opencl_device *device, const tsr_gemm_facts *facts,
                         const tsr_gemm_blocking *blocking, const tsr_gemm_call *call, size_t groups[2]) {
  const size_t cores = device->facts.compute_units ? device->facts.compute_units : 1;
  const size_t panels = ceil_div(call->n, facts->panel), tile_rows = ceil_div(call->m, facts->tile_m);
  groups[0] =
      ceil_div((int64_t)ceil_div((int64_t)panels, blocking->panels_per_group), (int64_t)cores) * cores;
  if (groups[0] > panels) groups[0] = panels;
  groups[1] = groups[0] < cores ? ceil_div((int64_t)cores, (int64_t)groups[0]) : 1;
  if (groups[1] > tile_rows) groups[1] = tile_rows;
}

/* Where A's rows are copied anyway, the copy transposes; else A is transposed first. */
static tsr_status launch_panel(tsr_opencl_device *device, const tsr_gemm_call *call, tsr_error *error) {
  const tsr_gemm_facts *facts = &device->base.gemm[call->dtype];
  const uint32_t vector =
      call->dtype == TSR_F64 ? device->facts.double_vector_width : device->facts.float_vector_width;
  const bool as_stored = call->b.panel && !call->transpose_b;
  const tsr_gemm_blocking *blocking = tsr_gemm_blocking_of(facts, call->transpose_a, as_stored);
  const bool turn_in_copy = call->transpose_a && blocking->row_block > 0;
  char options[OPTION_BYTES];
  cl_kernel kernel = NULL;
  tsr_matrix a = call->a;
  if (call->transpose_a && !turn_in_copy) TSR_RETURN_IF_FAILED(transpose_a(device, call, &a, error));
  snprintf(options, sizeof options,
           "-DREAL=%s -DA_TRANSPOSED=%d -DB_TRANSPOSED=%d -DB_PANEL=%d -DC_PANEL=%d -DTILE_M=%d -DPANEL=%d "
           "-DVECTOR=%u -DK_BLOCK=%d -DROW_BLOCK=%d -DPANELS_PER_GROUP=%d -DPREFETCH=%d",
           real_name(call->dtype), turn_in_copy, call->transpose_b, call->b.panel, call->c.panel,
           facts->tile_m, facts->panel, (unsigned)vector, blocking->k_block, blocking->row_block,
           blocking->panels_per_group, facts->prefetch);
  TSR_RETURN_IF_FAILED(tsr_opencl_kernel_get(device, "gemm_panel.cl", "gemm_panel", options, &kernel, error));
  TSR_RETURN_IF_FAILED(set_gemm_arguments(device, kernel, call, &a, error));
  const size_t local[2] = {1, 1};
  size_t global[2];
  panel_groups(device, facts, blocking, call, global);
  return tsr_opencl_enqueue(device, kernel, 2, global, local, error);
}

typedef tsr_status (*launcher)(tsr_opencl_device *device, const tsr_gemm_call *call, tsr_error *error);
static const launcher launchers[TSR_GEMM_FAMILY_COUNT] = {
    [TSR_GEMM_REFERENCE] = launch_reference,
    [TSR_GEMM_PANEL] = launch_panel,
    [TSR_GEMM_CLBLAST] = tsr_clblast_gemm,
};

tsr_status tsr_opencl_gemm_launch(tsr_opencl_device *device, const tsr_gemm_call *call, tsr_error *error) {
  tsr_gemm_family family = device->base.gemm[call->dtype].family;
  if (!launchers[family])
    return tsr_fail(error, TSR_ERROR_INTERNAL, "GEMM family %s: OpenCL devices have no launcher for it",
                    tsr_gemm_family_name(family));
  return launchers[family](device, call, error);
}

tsr_status tsr_opencl_gemm(tsr_device *base, const tsr_gemm_call *call, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  TSR_RETURN_IF_FAILED(
      tsr_opencl_gemm_test(device, call->dtype, call->transpose_a, call->transpose_b, error));
  return tsr_opencl_gemm_launch(device, call, error);
}
