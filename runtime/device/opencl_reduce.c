/* opencl_reduce.c: launches cl_kernels/reduce.cl. How a reduction is cut into parts depends on its shape
 * alone, so that every device adds in the same order; the device decides only who computes what. */
#include "device/opencl_device.h"

#include <stdio.h>

#include "base/memory.h"

/* LANES and CHAIN are those of reduce.cl. */
enum {
  LANES = 64,
  CHAIN = 64,
  PARTIALS_MAX = 256,    /* numbers in the workspace */
  PART_ELEMENTS = 16384, /* a part has at least as many */
  BLOCK_ELEMENTS = 4096, /* of a CPU's work-group */
  GROUP_ITEMS = 64,
  ARGUMENTS_MAX = 16
};

typedef enum kernel_kind { LINES, ROWS, PARTS } kernel_kind;
static const char *const kernel_names[] = {
    [LINES] = "reduce_lines", [ROWS] = "reduce_rows", [PARTS] = "reduce_parts"};

/* The work: `outputs` results of `length` elements each, cut into `parts`. In a ROWS kernel an output is a
 * column; in a LINES kernel a line, which runs over rows of `width` elements. */
typedef struct reduction {
  kernel_kind kind;
  cl_ulong outputs, length, width, parts;
  cl_ulong lda, line_stride, ldb;
} reduction;

typedef struct argument {
  size_t bytes;
  const void *value;
} argument;

static cl_ulong smaller(cl_ulong a, cl_ulong b) {
  return a < b ? a : b;
}

static cl_ulong parts_of(cl_ulong outputs, cl_ulong length, cl_ulong unit) {
  cl_ulong wanted = smaller(PARTIALS_MAX / outputs, outputs * length / PART_ELEMENTS);
  cl_ulong parts = smaller(wanted, tsr_ceil_div(length, unit));
  return parts ? parts : 1;
}

/* Rows that lie without gaps are one long row: the same order, fewer steps from row to row. */
static void join_rows(reduction *work) {
  if (work->lda != work->width || work->ldb != work->width) return;
  work->width = work->lda = work->ldb = work->length;
}

static reduction plan_lines(cl_ulong lines, cl_ulong length, cl_ulong width, const tsr_reduce_call *call) {
  reduction work = {.kind = LINES, .outputs = lines, .length = length, .width = width};
  work.lda = work.line_stride = (cl_ulong)call->a.ld;
  work.ldb = call->kind == TSR_REDUCE_SQUARED_ERROR ? (cl_ulong)call->b.ld : work.lda;
  work.parts = lines > PARTIALS_MAX ? 1 : parts_of(lines, length, LANES * CHAIN);
  if (lines == 1) join_rows(&work);
  return work;
}

static reduction plan(const tsr_reduce_call *call) {
  cl_ulong rows = (cl_ulong)call->a.rows, cols = (cl_ulong)call->a.cols;
  if (call->kind == TSR_REDUCE_COLS) return plan_lines(rows, cols, cols, call);
  if (call->kind == TSR_REDUCE_SQUARED_ERROR || cols == 1) return plan_lines(1, rows * cols, cols, call);
  return (reduction){.kind = ROWS,
                     .outputs = cols,
                     .length = rows,
                     .parts = cols > PARTIALS_MAX ? 1 : parts_of(cols, rows, CHAIN),
                     .lda = (cl_ulong)call->a.ld};
}

static bool is_cpu(const tsr_opencl_device *device) {
  return device->facts.float_vector_width > 1;
}

static int lanes_per_item(const tsr_opencl_device *device) {
  return is_cpu(device) ? LANES : 1;
}

static int vector_width(const tsr_opencl_device *device, tsr_dtype dtype) {
  int native = (int)(dtype == TSR_F64 ? device->facts.double_vector_width : device->facts.float_vector_width);
  int width = 1;
  while (is_cpu(device) && width < 16 && 2 * width <= native) width *= 2;
  return width;
}

static tsr_status get_kernel(tsr_opencl_device *device, const tsr_reduce_call *call, kernel_kind kind,
                             cl_kernel *out, tsr_error *error) {
  const char *operation = call->kind == TSR_REDUCE_SQUARED_ERROR ? "SQUARED_ERROR"
                          : call->reduction == TSR_MAX           ? "MAX"
                                                                 : "SUM";
  char options[128];
  snprintf(options, sizeof options, "-DREAL=%s -DVECTOR=%d -DLANES_PER_ITEM=%d -DOPERATION=%s",
           call->dtype == TSR_F64 ? "double" : "float", vector_width(device, call->dtype),
           lanes_per_item(device), operation);
  return tsr_opencl_kernel_get(device, "reduce.cl", kernel_names[kind], options, out, error);
}

static tsr_status set_arguments(tsr_opencl_device *device, cl_kernel kernel, kernel_kind kind,
                                const argument *arguments, cl_uint count, tsr_error *error) {
  for (cl_uint i = 0; i < count; i++) {
    cl_int code = clSetKernelArg(kernel, i, arguments[i].bytes, arguments[i].value);
    if (code == CL_SUCCESS) continue;
    tsr_opencl_kernel_abandon(device, kernel);
    char text[64];
    snprintf(text, sizeof text, "clSetKernelArg %u of %s", (unsigned)i, kernel_names[kind]);
    return tsr_opencl_fail(device, text, code, error);
  }
  return TSR_OK;
}

/* Where a launch writes, and what it does to a result on the way. */
typedef struct target {
  cl_mem memory;
  cl_ulong offset;
  double scale;
  cl_uint accumulate;
  cl_float narrow_scale;
} target;

static target target_of(tsr_buffer *buffer, int64_t offset, double scale, bool accumulate) {
  return (target){.memory = tsr_opencl_memory(buffer),
                  .offset = (cl_ulong)offset,
                  .scale = scale,
                  .accumulate = accumulate,
                  .narrow_scale = (cl_float)scale};
}

static argument scale_argument(const target *to, tsr_dtype dtype) {
  return dtype == TSR_F64 ? (argument){sizeof(cl_double), &to->scale}
                          : (argument){sizeof(cl_float), &to->narrow_scale};
}

#define ARGUMENT(variable)                                                                                   \
  (argument) {                                                                                               \
    sizeof(variable), &(variable)                                                                            \
  }

static tsr_status launch_lines(tsr_opencl_device *device, const tsr_reduce_call *call, const reduction *work,
                               const target *to, tsr_error *error) {
  const bool two = call->kind == TSR_REDUCE_SQUARED_ERROR;
  const cl_mem a = tsr_opencl_memory(call->a.buffer), b = two ? tsr_opencl_memory(call->b.buffer) : a;
  const cl_ulong a_offset = (cl_ulong)call->a.offset, b_offset = two ? (cl_ulong)call->b.offset : 0;
  const cl_ulong block_lines = is_cpu(device) ? tsr_ceil_div(BLOCK_ELEMENTS, work->length) : 1;
  const argument arguments[] = {
      ARGUMENT(work->outputs),
      ARGUMENT(work->length),
      ARGUMENT(work->width),
      ARGUMENT(block_lines),
      scale_argument(to, call->dtype),
      ARGUMENT(to->accumulate),
      ARGUMENT(a),
      ARGUMENT(a_offset),
      ARGUMENT(work->lda),
      ARGUMENT(work->line_stride),
      ARGUMENT(b),
      ARGUMENT(b_offset),
      ARGUMENT(work->ldb),
      ARGUMENT(to->memory),
      ARGUMENT(to->offset),
  };
  cl_kernel kernel;
  TSR_RETURN_IF_FAILED(get_kernel(device, call, LINES, &kernel, error));
  TSR_RETURN_IF_FAILED(
      set_arguments(device, kernel, LINES, arguments, sizeof arguments / sizeof *arguments, error));
  const size_t local[2] = {(size_t)(LANES / lanes_per_item(device)), 1};
  return tsr_opencl_enqueue_rows(device, kernel, (size_t)work->parts * local[0],
                                 (size_t)tsr_ceil_div(work->outputs, block_lines), local, error);
}

static tsr_status launch_rows(tsr_opencl_device *device, const tsr_reduce_call *call, const reduction *work,
                              const target *to, tsr_error *error) {
  const cl_mem a = tsr_opencl_memory(call->a.buffer);
  const cl_ulong a_offset = (cl_ulong)call->a.offset;
  const argument arguments[] = {
      ARGUMENT(work->length),
      ARGUMENT(work->outputs),
      scale_argument(to, call->dtype),
      ARGUMENT(to->accumulate),
      ARGUMENT(a),
      ARGUMENT(a_offset),
      ARGUMENT(work->lda),
      ARGUMENT(to->memory),
      ARGUMENT(to->offset),
  };
  cl_kernel kernel;
  TSR_RETURN_IF_FAILED(get_kernel(device, call, ROWS, &kernel, error));
  TSR_RETURN_IF_FAILED(
      set_arguments(device, kernel, ROWS, arguments, sizeof arguments / sizeof *arguments, error));
  size_t local[2] = {is_cpu(device) ? 1 : GROUP_ITEMS, 1};
  size_t items = (size_t)tsr_ceil_div(work->outputs, (cl_ulong)lanes_per_item(device));
  size_t global[2] = {(size_t)tsr_ceil_div(items, local[0]) * local[0], (size_t)work->parts};
  return tsr_opencl_enqueue(device, kernel, 2, global, local, error);
}

static tsr_status launch_parts(tsr_opencl_device *device, const tsr_reduce_call *call, const reduction *work,
                               const target *to, tsr_error *error) {
  const cl_mem partial = tsr_opencl_memory(call->workspace);
  const argument arguments[] = {
      ARGUMENT(work->outputs),  ARGUMENT(work->parts), scale_argument(to, call->dtype),
      ARGUMENT(to->accumulate), ARGUMENT(partial),     ARGUMENT(to->memory),
      ARGUMENT(to->offset),
  };
  cl_kernel kernel;
  TSR_RETURN_IF_FAILED(get_kernel(device, call, PARTS, &kernel, error));
  TSR_RETURN_IF_FAILED(
      set_arguments(device, kernel, PARTS, arguments, sizeof arguments / sizeof *arguments, error));
  size_t global[1] = {(size_t)work->outputs};
  return tsr_opencl_enqueue(device, kernel, 1, global, NULL, error);
}

tsr_status tsr_opencl_reduce(tsr_device *base, const tsr_reduce_call *call, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  const reduction work = plan(call);
  const target result = target_of(call->out.buffer, call->out.offset, call->scale, call->accumulate);
  const target partial = target_of(call->workspace, 0, 1, false);
  const target *first = work.parts > 1 ? &partial : &result;
  TSR_RETURN_IF_FAILED(work.kind == LINES ? launch_lines(device, call, &work, first, error)
                                          : launch_rows(device, call, &work, first, error));
  return work.parts > 1 ? launch_parts(device, call, &work, &result, error) : TSR_OK;
}
