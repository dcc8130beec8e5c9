/* bench_contender.c: who runs a product. */
#include "bench_contender.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench_cores.h"
#include "message.h"

const char *tool_runner_name(tool_runner runner) {
  static const char *const names[TOOL_RUNNERS] = {"ours", "clblast", "openblas"};
  return names[runner];
}

static size_t element_bytes(const tool_product *product) {
  return tsr_dtype_bytes(product->wide);
}

/* The other copies of b. */
static bool copy_weights(tool_contender *contender, int64_t count) {
  const tool_shape *shape = &contender->product->shape;
  size_t bytes = (size_t)(shape->k * shape->n) * element_bytes(contender->product);
  contender->weights = calloc((size_t)count, sizeof *contender->weights);
  if (!contender->weights) return false;
  contender->weights[0] = contender->product->b;
  for (contender->weight_count = 1; contender->weight_count < count; contender->weight_count++) {
    void *copy = malloc(bytes);
    if (!copy) return false;
    memcpy(copy, contender->product->b, bytes);
    contender->weights[contender->weight_count] = copy;
  }
  return true;
}

tsr_status tool_contender_init(tool_contender *contender, tool_runner runner, const tool_product *product,
                               tsr_device *device, const char *variant, int64_t weights, tsr_error *error) {
  const tool_shape *shape = &product->shape;
  *contender = (tool_contender){.runner = runner, .product = product};
  contender->c = malloc((size_t)(shape->m * shape->n) * element_bytes(product));
  if (!contender->c || (runner == TOOL_RUNNER_OPENBLAS && !copy_weights(contender, weights)))
    return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the operands of %s",
                     tool_runner_name(runner));
  if (runner == TOOL_RUNNER_OPENBLAS) return TSR_OK;
  return tool_product_place(product, device, weights, variant, runner == TOOL_RUNNER_CLBLAST,
                            &contender->gemm, error);
}

void tool_contender_finish(tool_contender *contender) {
  tsr_gemm_destroy(&contender->gemm);
  for (int64_t i = 1; i < contender->weight_count; i++) free(contender->weights[i]);
  free(contender->weights);
  free(contender->c);
  *contender = (tool_contender){0};
}

static tsr_array result_of(const tool_contender *contender, void *data) {
  const tool_shape *shape = &contender->product->shape;
  tsr_shape extents = tsr_shape_of(2, shape->m, shape->n);
  return tsr_array_dense(data, contender->product->wide, &extents);
}

tsr_status tool_contender_spoil(tool_contender *contender, tsr_error *error) {
  double nan_wide = NAN;
  float nan_narrow = NAN;
  bool wide = contender->product->wide == TSR_F64;
  if (!contender->gemm) {
    const tool_shape *shape = &contender->product->shape;
    memset(contender->c, 0xff, (size_t)(shape->m * shape->n) * element_bytes(contender->product)); /* NaN */
    return TSR_OK;
  }
  tsr_array nothing = result_of(contender, wide ? (void *)&nan_wide : (void *)&nan_narrow);
  nothing.stride[0] = nothing.stride[1] = 0;
  return tsr_gemm_write(contender->gemm, TSR_GEMM_OPERAND_C, &nothing, error);
}

static void run_openblas(tool_contender *contender, int64_t count) {
  const tool_product *product = contender->product;
  tool_blas_call call = {.wide = product->wide == TSR_F64,
                         .transpose_a = product->transpose_a,
                         .transpose_b = product->transpose_b,
                         .m = (int)product->shape.m,
                         .n = (int)product->shape.n,
                         .k = (int)product->shape.k,
                         .a = product->a,
                         .c = contender->c};
  for (int64_t i = 0; i < count; i++) {
    call.b = contender->weights[contender->next];
    contender->next = (contender->next + 1) % contender->weight_count;
    tool_blas_run(&call);
  }
}

tsr_status tool_contender_run(tool_contender *contender, int64_t count, double *device_seconds,
                              tsr_error *error) {
  if (contender->gemm) return tsr_gemm_run(contender->gemm, count, NULL, device_seconds, error);
  if (device_seconds) *device_seconds = 0;
  run_openblas(contender, count);
  return TSR_OK;
}

tsr_status tool_contender_check(tool_contender *contender, tsr_error *error) {
  if (contender->gemm) {
    tsr_array result = result_of(contender, contender->c);
    tsr_status status = tsr_gemm_read(contender->gemm, TSR_GEMM_OPERAND_C, &result, error);
    if (status != TSR_OK) return status;
  }
  return tool_product_check(contender->product, contender->c, tool_runner_name(contender->runner), error);
}
