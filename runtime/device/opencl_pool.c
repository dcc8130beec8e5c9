/* opencl_pool.c: launches cl_kernels/pool.cl. */
#include "device/opencl_device.h"

#include <stdio.h>

#include "base/memory.h"

enum { GROUP_ITEMS = 64 };

static tsr_status get_kernel(tsr_opencl_device *device, const tsr_pool_call *call, cl_kernel *out,
                             tsr_error *error) {
  char options[256];
  snprintf(options, sizeof options,
           "-DREAL=%s -DGRADIENT=%d -DMEAN=%d -DR=%lld -DS=%lld -DSTRIDE_ROWS=%lld -DSTRIDE_COLUMNS=%lld "
           "-DPADDING_ROWS=%lld -DPADDING_COLUMNS=%lld",
           call->dtype == TSR_F64 ? "double" : "float", call->gradient, call->reduction == TSR_SUM,
           (long long)call->r, (long long)call->s, (long long)call->stride[0], (long long)call->stride[1],
           (long long)call->padding[0], (long long)call->padding[1]);
  return tsr_opencl_kernel_get(device, "pool.cl", "pool", options, out, error);
}

static tsr_status set_arguments(tsr_opencl_device *device, cl_kernel kernel, const tsr_pool_call *call,
                                cl_ulong block, tsr_error *error) {
  const tsr_matrix *operands[] = {&call->x, call->gradient ? &call->y : &call->x, &call->out};
  const cl_ulong sizes[] = {(cl_ulong)call->n,
                            (cl_ulong)call->c,
                            (cl_ulong)call->h,
                            (cl_ulong)call->w,
                            (cl_ulong)call->p,
                            (cl_ulong)call->q,
                            block};
  enum { SIZES = sizeof sizes / sizeof *sizes, OPERANDS = sizeof operands / sizeof *operands };
  cl_int code = CL_SUCCESS;
  cl_uint place = 0;
  for (int i = 0; i < SIZES && code == CL_SUCCESS; i++)
    code = clSetKernelArg(kernel, place++, sizeof sizes[i], &sizes[i]);
  for (int i = 0; i < OPERANDS && code == CL_SUCCESS; i++) {
    const cl_mem memory = tsr_opencl_memory(operands[i]->buffer);
    const cl_ulong numbers[] = {(cl_ulong)operands[i]->offset, (cl_ulong)operands[i]->ld};
    code = clSetKernelArg(kernel, place++, sizeof memory, &memory);
    for (int j = 0; j < 2 && code == CL_SUCCESS; j++)
      code = clSetKernelArg(kernel, place++, sizeof numbers[j], &numbers[j]);
  }
  if (code == CL_SUCCESS) return TSR_OK;
  tsr_opencl_kernel_abandon(device, kernel);
  return tsr_opencl_fail(device, "clSetKernelArg of pool", code, error);
}

tsr_status tsr_opencl_pool(tsr_device *base, const tsr_pool_call *call, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  const int64_t rows = call->gradient ? call->h : call->p, columns = call->gradient ? call->w : call->q;
  const bool cpu = device->facts.float_vector_width > 1;
  const cl_ulong block = cpu ? (cl_ulong)columns : 1;
  const size_t local[2] = {cpu ? 1 : GROUP_ITEMS, 1};
  cl_kernel kernel;
  TSR_RETURN_IF_FAILED(get_kernel(device, call, &kernel, error));
  TSR_RETURN_IF_FAILED(set_arguments(device, kernel, call, block, error));
  return tsr_opencl_enqueue_rows(device, kernel, (size_t)tsr_ceil_div((cl_ulong)columns, block),
                                 (size_t)(call->n * call->c * rows), local, error);
}
