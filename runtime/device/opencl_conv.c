/* opencl_conv.c: launches cl_kernels/conv.cl. */
#include "device/opencl_device.h"

#include <stdio.h>

#include "base/memory.h"

enum { GROUP_ITEMS = 64 };

static const char *const kind_names[] = {
    [TSR_CONV_FORWARD] = "FORWARD",
    [TSR_CONV_INPUT_GRADIENT] = "INPUT",
    [TSR_CONV_WEIGHT_GRADIENT] = "WEIGHT",
    [TSR_CONV_BIAS_GRADIENT] = "BIAS",
};

static const char *const unary_names[TSR_UNARY_COUNT] = {
#define UNARY_MACRO(name, text) #name,
    TSR_UNARY_LIST(UNARY_MACRO)
#undef UNARY_MACRO
};

static tsr_status get_kernel(tsr_opencl_device *device, const tsr_conv_call *call, cl_kernel *out,
                             tsr_error *error) {
  char options[128];
  snprintf(options, sizeof options, "-DREAL=%s -DKIND=%s -DHAS_BIAS=%d -DUNARY=%s",
           call->dtype == TSR_F64 ? "double" : "float", kind_names[call->kind],
           call->kind == TSR_CONV_FORWARD && call->bias.buffer,
           call->kind == TSR_CONV_FORWARD && call->activate ? unary_names[call->unary] : "NONE");
  return tsr_opencl_kernel_get(device, "conv.cl", "conv", options, out, error);
}

/* An operand that the call does not have: another stands in for it. */
static const tsr_matrix *operand(const tsr_conv_call *call, const tsr_matrix *matrix) {
  return matrix->buffer ? matrix : &call->y;
}

static tsr_status set_arguments(tsr_opencl_device *device, cl_kernel kernel, const tsr_conv_call *call,
                                cl_ulong block, tsr_error *error) {
  const int64_t numbers[] = {call->groups,     call->n,          call->c,           call->h,
                             call->w,          call->k,          call->r,           call->s,
                             call->p,          call->q,          call->stride[0],   call->stride[1],
                             call->padding[0], call->padding[1], call->dilation[0], call->dilation[1],
                             (int64_t)block};
  const tsr_matrix *operands[] = {operand(call, &call->x), operand(call, &call->weight), &call->y,
                                  operand(call, &call->bias)};
  enum { NUMBERS = sizeof numbers / sizeof *numbers, OPERANDS = sizeof operands / sizeof *operands };
  cl_int code = CL_SUCCESS;
  cl_uint place = 0;
  for (int i = 0; i < NUMBERS && code == CL_SUCCESS; i++)
    code = clSetKernelArg(kernel, place++, sizeof numbers[i], &numbers[i]);
  for (int i = 0; i < OPERANDS && code == CL_SUCCESS; i++) {
    const cl_mem memory = tsr_opencl_memory(operands[i]->buffer);
    const cl_ulong offset = (cl_ulong)operands[i]->offset, ld = (cl_ulong)operands[i]->ld;
    code = clSetKernelArg(kernel, place++, sizeof memory, &memory);
    if (code == CL_SUCCESS) code = clSetKernelArg(kernel, place++, sizeof offset, &offset);
    if (code == CL_SUCCESS && i + 1 < OPERANDS) code = clSetKernelArg(kernel, place++, sizeof ld, &ld);
  }
  if (code == CL_SUCCESS) return TSR_OK;
  tsr_opencl_kernel_abandon(device, kernel);
  return tsr_opencl_fail(device, "clSetKernelArg of conv", code, error);
}

/* See "Launch" in conv.cl. */
static void lines_of(const tsr_conv_call *call, int64_t *lines, int64_t *elements) {
  switch (call->kind) {
  case TSR_CONV_FORWARD:
    *lines = call->n * call->groups * call->k;
    *elements = call->p * call->q;
    break;
  case TSR_CONV_INPUT_GRADIENT:
    *lines = call->n * call->groups * call->c;
    *elements = call->h * call->w;
    break;
  case TSR_CONV_WEIGHT_GRADIENT:
    *lines = call->groups * call->k;
    *elements = call->c * call->r * call->s;
    break;
  default: *lines = 1; *elements = call->groups * call->k;
  }
}

tsr_status tsr_opencl_conv(tsr_device *base, const tsr_conv_call *call, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  const bool cpu = device->facts.float_vector_width > 1;
  const size_t local[2] = {cpu ? 1 : GROUP_ITEMS, 1};
  int64_t lines, elements;
  cl_kernel kernel;
  lines_of(call, &lines, &elements);
  const cl_ulong most = 256, block = !cpu ? 1 : (cl_ulong)elements < most ? (cl_ulong)elements : most;
  TSR_RETURN_IF_FAILED(get_kernel(device, call, &kernel, error));
  TSR_RETURN_IF_FAILED(set_arguments(device, kernel, call, block, error));
  return tsr_opencl_enqueue_rows(device, kernel, (size_t)tsr_ceil_div((cl_ulong)elements, block),
                                 (size_t)lines, local, error);
}
