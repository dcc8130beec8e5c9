/* opencl_gemm_tile.c: launches cl_kernels/gemm_tile.cl, and gemm_join.cl where k is cut. */
#include "device/opencl_gemm.h"

enum { JOIN_GROUP = 64 };

static bool is_aligned(const tsr_matrix *matrix, int vector) {
  return matrix->offset % vector == 0 && matrix->ld % vector == 0;
}

int64_t tsr_opencl_gemm_parts(const tsr_gemm_facts *facts, const tsr_gemm_call *call) {
  const int64_t parts = tsr_gemm_split(facts, call->m, call->n, call->k);
  const size_t part_bytes =
      (size_t)call->m * (size_t)call->n * tsr_dtype_bytes(tsr_gemm_dtype_c(call->types));
  const int64_t held = call->workspace ? (int64_t)(call->workspace->bytes / part_bytes) : 1;
  return parts < held ? parts : held < 1 ? 1 : held;
}

tsr_gemm_call tsr_opencl_gemm_partial(const tsr_gemm_call *call) {
  tsr_gemm_call partial = *call;
  partial.alpha = call->alpha == 0 ? 0 : 1;
  partial.beta = 0;
  partial.c = (tsr_matrix){.buffer = call->workspace, .rows = call->m, .cols = call->n, .ld = call->n};
  partial.scale = (tsr_matrix){0};
  partial.epilogue = (tsr_epilogue){0};
  return partial;
}

static tsr_status multiply(tsr_opencl_device *device, const tsr_gemm_facts *facts, const tsr_gemm_call *call,
                           int64_t parts, tsr_error *error) {
  tsr_text options = {0};
  cl_kernel kernel = NULL;
  const int vector = facts->vector;
  tsr_text_append(&options,
                  "-DTILE_M=%d -DTILE_N=%d -DTILE_K=%d -DITEM_M=%d -DITEM_N=%d -DVECTOR=%d -DBUFFERS=%d "
                  "-DSUB_GROUP=%d -DA_ALIGNED=%d -DB_ALIGNED=%d -DC_ALIGNED=%d",
                  facts->tile_m, facts->tile_n, facts->tile_k, facts->item_m, facts->item_n, vector,
                  facts->buffers, facts->sub_group, is_aligned(&call->a, vector),
                  is_aligned(&call->b, vector), is_aligned(&call->c, vector));
  tsr_opencl_gemm_options(call, &options);
  TSR_RETURN_IF_FAILED(tsr_opencl_gemm_kernel(device, "gemm_tile.cl", "gemm_tile", &options, &kernel, error));
  TSR_RETURN_IF_FAILED(tsr_opencl_gemm_arguments(device, kernel, call, error));
  const size_t threads = (size_t)(facts->tile_m / facts->item_m) * (size_t)(facts->tile_n / facts->item_n);
  const size_t tiles = (size_t)(tsr_ceil_div(call->m, facts->tile_m) * tsr_ceil_div(call->n, facts->tile_n));
  const size_t local[3] = {threads, 1, 1}, global[3] = {tiles * threads, 1, (size_t)parts};
  return tsr_opencl_enqueue(device, kernel, 3, global, local, error);
}

tsr_status tsr_opencl_gemm_join(tsr_opencl_device *device, const tsr_gemm_call *call, int vector,
                                int64_t parts, tsr_error *error) {
  tsr_text options = {0};
  cl_kernel kernel = NULL;
  tsr_text_append(&options, "-DVECTOR=%d", vector);
  tsr_opencl_gemm_options(call, &options);
  TSR_RETURN_IF_FAILED(tsr_opencl_gemm_kernel(device, "gemm_join.cl", "gemm_join", &options, &kernel, error));
  tsr_arguments arguments = {.device = device, .kernel = kernel, .code = CL_SUCCESS};
  const cl_mem partial = tsr_opencl_memory(call->workspace);
  tsr_argument_count(&arguments, call->m);
  tsr_argument_count(&arguments, call->n);
  tsr_argument_count(&arguments, parts);
  tsr_argument_real(&arguments, call->types, call->alpha);
  tsr_argument_real(&arguments, call->types, call->beta);
  tsr_argument_add(&arguments, sizeof partial, &partial);
  tsr_argument_matrix(&arguments, &call->c);
  tsr_argument_epilogue(&arguments, call);
  TSR_RETURN_IF_FAILED(tsr_arguments_end(&arguments, error));
  const size_t local[2] = {JOIN_GROUP, 1};
  const size_t global[2] = {(size_t)tsr_ceil_div(call->n, vector * JOIN_GROUP) * JOIN_GROUP, (size_t)call->m};
  return tsr_opencl_enqueue(device, kernel, 2, global, local, error);
}

/* In f64 they are long, and beside a tile's registers too much for some compilers. */
static bool activates_apart(const tsr_gemm_call *call) {
  return call->types == TSR_GEMM_TYPES_F64 && call->epilogue.activate &&
         call->epilogue.unary != TSR_UNARY_RELU;
}

static tsr_status run(tsr_opencl_device *device, const tsr_gemm_facts *facts, const tsr_gemm_call *call,
                      tsr_error *error) {
  const int64_t parts = tsr_opencl_gemm_parts(facts, call);
  if (parts < 2) return multiply(device, facts, call, 1, error);
  const tsr_gemm_call partial = tsr_opencl_gemm_partial(call);
  TSR_RETURN_IF_FAILED(multiply(device, facts, &partial, parts, error));
  return tsr_opencl_gemm_join(device, call, facts->vector, parts, error);
}

tsr_status tsr_opencl_gemm_tile(tsr_opencl_device *device, const tsr_gemm_facts *facts,
                                const tsr_gemm_call *call, tsr_error *error) {
  if (!activates_apart(call)) return run(device, facts, call, error);
  tsr_gemm_call product = *call;
  product.epilogue = (tsr_epilogue){0};
  TSR_RETURN_IF_FAILED(run(device, facts, &product, error));
  return tsr_opencl_gemm_finish(device, call, error);
}
