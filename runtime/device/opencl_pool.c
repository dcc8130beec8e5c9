/* opencl_pool.c: launches cl_kernels/pool.cl. */
#include "device/opencl_gemm.h"

enum { GROUP_ITEMS = 64 };

static tsr_status get_kernel(tsr_opencl_device *device, const tsr_pool_call *call, cl_kernel *out,
                             tsr_error *error) {
  tsr_text options = {0};
  tsr_text_append(
      &options,
      "-DREAL=%s -DGRADIENT=%d -DMEAN=%d -DR=%lld -DS=%lld -DSTRIDE_ROWS=%lld -DSTRIDE_COLUMNS=%lld "
      "-DPADDING_ROWS=%lld -DPADDING_COLUMNS=%lld",
      call->dtype == TSR_F64 ? "double" : "float", call->gradient, call->reduction == TSR_SUM,
      (long long)call->r, (long long)call->s, (long long)call->stride[0], (long long)call->stride[1],
      (long long)call->padding[0], (long long)call->padding[1]);
  return tsr_opencl_gemm_kernel(device, "pool.cl", "pool", &options, out, error);
}

tsr_status tsr_opencl_pool(tsr_device *base, const tsr_pool_call *call, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  const int64_t rows = call->gradient ? call->h : call->p, columns = call->gradient ? call->w : call->q;
  const bool cpu = device->facts.float_vector_width > 1;
  const int64_t block = cpu ? columns : 1;
  const size_t local[2] = {cpu ? 1 : GROUP_ITEMS, 1};
  const int64_t numbers[] = {call->n, call->c, call->h, call->w, call->p, call->q, block};
  tsr_arguments arguments = {.device = device};
  TSR_RETURN_IF_FAILED(get_kernel(device, call, &arguments.kernel, error));
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) tsr_argument_count(&arguments, numbers[i]);
  tsr_argument_matrix(&arguments, &call->x);
  tsr_argument_matrix(&arguments, call->gradient ? &call->y : &call->x);
  tsr_argument_matrix(&arguments, &call->out);
  TSR_RETURN_IF_FAILED(tsr_arguments_end(&arguments, error));
  return tsr_opencl_enqueue_rows(device, arguments.kernel, (size_t)tsr_ceil_div(columns, block),
                                 (size_t)(call->n * call->c * rows), local, error);
}
