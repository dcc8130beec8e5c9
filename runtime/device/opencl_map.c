/* opencl_map.c: launches cl_kernels/elementwise.cl: which variant of the kernel, how a matrix becomes
 * strides, and how the work is cut into blocks. */
#include "device/opencl_device.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum { VECTOR_MAX = 16, BLOCK_ELEMENTS = 16384, BLOCK_COLUMNS = 4096, GROUP_ITEMS = 64 };

static const char *const operation_names[] = {
    [TSR_MAP_ADD] = "ADD",
    [TSR_MAP_MULTIPLY] = "MULTIPLY",
    [TSR_MAP_SCALE] = "SCALE",
    [TSR_MAP_UNARY] = "APPLY",
    [TSR_MAP_BIAS_UNARY] = "BIAS_APPLY",
    [TSR_MAP_UNARY_GRADIENT] = "APPLY_GRADIENT",
};

const char *const tsr_opencl_unary_names[TSR_UNARY_COUNT] = {
#define UNARY_MACRO(name, text) #name,
    TSR_UNARY_LIST(UNARY_MACRO)
#undef UNARY_MACRO
};

/* A matrix as the kernel sees it: see "Memory" in elementwise.cl. */
typedef struct view {
  cl_mem memory;
  cl_ulong offset, row_stride, column_stride, panel_stride;
  int panel;
} view;

typedef struct launch {
  tsr_dtype dtype;
  cl_ulong rows, cols, block_rows, block_columns;
  view a, b, out;
  int vector;
} launch;

static bool reads_b(tsr_map_kind kind) {
  return kind != TSR_MAP_SCALE && kind != TSR_MAP_UNARY;
}

static bool applies_unary(tsr_map_kind kind) {
  return kind == TSR_MAP_UNARY || kind == TSR_MAP_UNARY_GRADIENT || kind == TSR_MAP_BIAS_UNARY;
}

/* An extent of 1 has the stride 0, so that broadcasting needs no case of its own. */
static view view_of(const tsr_matrix *matrix) {
  cl_ulong width = matrix->panel ? (cl_ulong)matrix->panel : 1;
  return (view){
      .memory = tsr_opencl_memory(matrix->buffer),
      .offset = (cl_ulong)matrix->offset,
      .row_stride = matrix->rows == 1 ? 0
                    : matrix->panel   ? width
                                      : (cl_ulong)matrix->ld,
      .column_stride = matrix->cols == 1 ? 0 : 1,
      .panel_stride = matrix->panel && matrix->cols > 1 ? (cl_ulong)matrix->ld * width : 0,
      .panel = matrix->panel,
  };
}

/* Row-major without gaps between rows, or one number for all. */
static bool is_flat(const view *operand, cl_ulong cols) {
  bool dense = operand->column_stride == 1 && operand->row_stride == cols;
  bool scalar = operand->column_stride == 0 && operand->row_stride == 0;
  return !operand->panel && (dense || scalar);
}

/* One long row is cut into even blocks, whatever the shape was. */
static void flatten(launch *work) {
  if (work->rows == 1 || !is_flat(&work->a, work->cols) || !is_flat(&work->b, work->cols) ||
      !is_flat(&work->out, work->cols))
    return;
  work->cols *= work->rows;
  work->rows = 1;
}

/* The largest power of two up to the device's vectors that divides every panel. A GPU's work-item moves 16
 * bytes. */
static int vector_width(const tsr_opencl_device *device, const launch *work) {
  bool wide = work->dtype == TSR_F64;
  int native = (int)(wide ? device->facts.double_vector_width : device->facts.float_vector_width);
  int limit = native > 1 ? native : wide ? 2 : 4, width = 1;
  int panels = work->a.panel | work->b.panel | work->out.panel; /* its lowest bit set divides them all */
  while (2 * width <= limit && 2 * width <= VECTOR_MAX && panels % (2 * width) == 0) width *= 2;
  return width;
}

/* A CPU's work-item does thousands of elements, down a panel where there is one; a GPU's one vector. */
static void choose_blocks(const tsr_opencl_device *device, launch *work) {
  work->vector = vector_width(device, work);
  work->block_rows = 1;
  work->block_columns = (cl_ulong)work->vector;
  if (device->facts.float_vector_width <= 1) return;
  int panel = work->out.panel ? work->out.panel : work->a.panel ? work->a.panel : work->b.panel;
  cl_ulong wanted = panel ? (cl_ulong)panel : work->rows == 1 ? BLOCK_ELEMENTS : BLOCK_COLUMNS;
  cl_ulong columns = work->cols < wanted ? work->cols : wanted;
  work->block_columns = tsr_ceil_div(columns, (cl_ulong)work->vector) * (cl_ulong)work->vector;
  work->block_rows = tsr_ceil_div(BLOCK_ELEMENTS, work->block_columns);
}

static tsr_status get_kernel(tsr_opencl_device *device, const tsr_map_call *call, const launch *work,
                             cl_kernel *out, tsr_error *error) {
  char options[256];
  snprintf(options, sizeof options,
           "-DREAL=%s -DVECTOR=%d -DOPERATION=%s -DUNARY=%s -DA_PANEL=%d -DB_PANEL=%d -DOUT_PANEL=%d "
           "-DBLOCKS=%d",
           call->dtype == TSR_F64 ? "double" : "float", work->vector, operation_names[call->kind],
           applies_unary(call->kind) ? tsr_opencl_unary_names[call->unary] : "NONE", work->a.panel,
           work->b.panel, work->out.panel,
           work->block_columns > (cl_ulong)work->vector || work->block_rows > 1);
  return tsr_opencl_kernel_get(device, "elementwise.cl", "map", options, out, error);
}

static tsr_status set_arguments(tsr_opencl_device *device, cl_kernel kernel, const tsr_map_call *call,
                                const launch *work, tsr_error *error) {
  const cl_float narrow[] = {(cl_float)call->alpha, (cl_float)call->beta};
  const cl_double wide[] = {call->alpha, call->beta};
  const bool is_wide = call->dtype == TSR_F64;
  const size_t real_bytes = is_wide ? sizeof *wide : sizeof *narrow;
  const view *a = &work->a, *b = &work->b, *to = &work->out;
  const struct {
    size_t bytes;
    const void *value;
  } arguments[] = {
      {sizeof(cl_ulong), &work->rows},
      {sizeof(cl_ulong), &work->cols},
      {sizeof(cl_ulong), &work->block_rows},
      {sizeof(cl_ulong), &work->block_columns},
      {real_bytes, is_wide ? (const void *)&wide[0] : &narrow[0]},
      {real_bytes, is_wide ? (const void *)&wide[1] : &narrow[1]},
      {sizeof(cl_mem), &a->memory},
      {sizeof(cl_ulong), &a->offset},
      {sizeof(cl_ulong), &a->row_stride},
      {sizeof(cl_ulong), &a->column_stride},
      {sizeof(cl_ulong), &a->panel_stride},
      {sizeof(cl_mem), &b->memory},
      {sizeof(cl_ulong), &b->offset},
      {sizeof(cl_ulong), &b->row_stride},
      {sizeof(cl_ulong), &b->column_stride},
      {sizeof(cl_ulong), &b->panel_stride},
      {sizeof(cl_mem), &to->memory},
      {sizeof(cl_ulong), &to->offset},
      {sizeof(cl_ulong), &to->row_stride},
      {sizeof(cl_ulong), &to->panel_stride},
  };
  for (cl_uint i = 0; i < sizeof arguments / sizeof *arguments; i++) {
    cl_int code = clSetKernelArg(kernel, i, arguments[i].bytes, arguments[i].value);
    if (code == CL_SUCCESS) continue;
    tsr_opencl_kernel_abandon(device, kernel);
    return tsr_opencl_fail(device, "clSetKernelArg of map", code, error);
  }
  return TSR_OK;
}

tsr_status tsr_opencl_map(tsr_device *base, const tsr_map_call *call, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  /* Where b is not read, a stands in for it. */
  launch work = {
      .dtype = call->dtype,
      .rows = (cl_ulong)call->out.rows,
      .cols = (cl_ulong)call->out.cols,
      .a = view_of(&call->a),
      .b = view_of(reads_b(call->kind) ? &call->b : &call->a),
      .out = view_of(&call->out),
  };
  flatten(&work);
  choose_blocks(device, &work);
  cl_kernel kernel;
  TSR_RETURN_IF_FAILED(get_kernel(device, call, &work, &kernel, error));
  TSR_RETURN_IF_FAILED(set_arguments(device, kernel, call, &work, error));

  bool cpu = device->facts.float_vector_width > 1;
  const size_t local[2] = {cpu ? 1 : GROUP_ITEMS, 1};
  return tsr_opencl_enqueue_rows(device, kernel, (size_t)tsr_ceil_div(work.cols, work.block_columns),
                                 (size_t)tsr_ceil_div(work.rows, work.block_rows), local, error);
}
