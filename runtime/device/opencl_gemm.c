/* opencl_gemm.c: from a product to a launcher; and what all launchers share. */
#include "device/opencl_gemm.h"

#include <stdlib.h>

enum { REFERENCE_GROUP_COLUMNS = 16, REFERENCE_GROUP_ROWS = 4, FINISH_GROUP = 64 };

static const char *const element_names[TSR_DTYPE_COUNT] = {
    [TSR_F32] = "F32", [TSR_F64] = "F64", [TSR_F16] = "F16", [TSR_BF16] = "BF16", [TSR_I8] = "I8"};

/* ---- options ---- */

static const char *real_name(tsr_gemm_types types) {
  return tsr_gemm_dtype_c(types) == TSR_F64 ? "double" : "float";
}

static void epilogue_options(const tsr_gemm_call *call, tsr_text *options) {
  const tsr_epilogue *e = &call->epilogue;
  tsr_text_append(options, " -DREAL=%s -DBIAS=%d -DUNARY=%s -DGATE=%d -DRESIDUAL=%d", real_name(call->types),
                  e->bias.buffer != NULL, e->activate ? tsr_opencl_unary_names[e->unary] : "NONE",
                  e->gate.buffer != NULL, e->residual.buffer != NULL);
}

void tsr_opencl_gemm_options(const tsr_gemm_call *call, tsr_text *options) {
  tsr_text_append(options,
                  " -DA_TYPE=%s -DB_TYPE=%s -DA_TRANSPOSED=%d -DB_TRANSPOSED=%d -DB_PANEL=%d -DC_PANEL=%d "
                  "-DSCALED=%d",
                  element_names[tsr_gemm_dtype_a(call->types)], element_names[tsr_gemm_dtype_b(call->types)],
                  call->transpose_a, call->transpose_b, call->b.panel, call->c.panel,
                  call->scale.buffer != NULL);
  epilogue_options(call, options);
}

tsr_status tsr_opencl_gemm_kernel(tsr_opencl_device *device, const char *file, const char *name,
                                  tsr_text *options, cl_kernel *out, tsr_error *error) {
  tsr_status status = options->failed
                          ? tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for build options")
                          : tsr_opencl_kernel_get(device, file, name, options->data, out, error);
  free(options->data);
  return status;
}

/* ---- arguments ---- */

void tsr_argument_add(tsr_arguments *arguments, size_t bytes, const void *value) {
  cl_int code = clSetKernelArg(arguments->kernel, arguments->count++, bytes, value);
  if (arguments->code == CL_SUCCESS) arguments->code = code;
}

void tsr_argument_count(tsr_arguments *arguments, int64_t count) {
  const cl_ulong value = (cl_ulong)count;
  tsr_argument_add(arguments, sizeof value, &value);
}

void tsr_argument_real(tsr_arguments *arguments, tsr_gemm_types types, double value) {
  const cl_float single = (cl_float)value;
  if (tsr_gemm_dtype_c(types) == TSR_F64)
    tsr_argument_add(arguments, sizeof(cl_double), &value);
  else
    tsr_argument_add(arguments, sizeof single, &single);
}

static void add_row(tsr_arguments *arguments, const tsr_matrix *matrix) {
  const cl_mem memory = tsr_opencl_memory(matrix->buffer);
  tsr_argument_add(arguments, sizeof memory, &memory);
  tsr_argument_count(arguments, matrix->offset);
}

void tsr_argument_matrix(tsr_arguments *arguments, const tsr_matrix *matrix) {
  add_row(arguments, matrix);
  tsr_argument_count(arguments, matrix->ld);
}

void tsr_argument_epilogue(tsr_arguments *arguments, const tsr_gemm_call *call) {
  const tsr_epilogue *e = &call->epilogue;
  if (call->scale.buffer) add_row(arguments, &call->scale);
  if (e->bias.buffer) add_row(arguments, &e->bias);
  if (e->gate.buffer) tsr_argument_matrix(arguments, &e->gate);
  if (e->residual.buffer) tsr_argument_matrix(arguments, &e->residual);
}

tsr_status tsr_arguments_end(const tsr_arguments *arguments, tsr_error *error) {
  if (arguments->code == CL_SUCCESS) return TSR_OK;
  tsr_opencl_kernel_abandon(arguments->device, arguments->kernel);
  return tsr_opencl_fail(arguments->device, "clSetKernelArg", arguments->code, error);
}

tsr_status tsr_opencl_gemm_arguments(tsr_opencl_device *device, cl_kernel kernel, const tsr_gemm_call *call,
                                     tsr_error *error) {
  tsr_arguments arguments = {.device = device, .kernel = kernel, .code = CL_SUCCESS};
  tsr_argument_count(&arguments, call->m);
  tsr_argument_count(&arguments, call->n);
  tsr_argument_count(&arguments, call->k);
  tsr_argument_real(&arguments, call->types, call->alpha);
  tsr_argument_real(&arguments, call->types, call->beta);
  tsr_argument_matrix(&arguments, &call->a);
  tsr_argument_matrix(&arguments, &call->b);
  tsr_argument_matrix(&arguments, &call->c);
  tsr_argument_epilogue(&arguments, call);
  return tsr_arguments_end(&arguments, error);
}

/* ---- launchers ---- */

/* A fixed work-group, because PoCL compiles a kernel anew for every one that it has not seen. */
tsr_status tsr_opencl_gemm_reference(tsr_opencl_device *device, const tsr_gemm_facts *facts,
                                     const tsr_gemm_call *call, tsr_error *error) {
  tsr_text options = {0};
  cl_kernel kernel = NULL;
  (void)facts;
  tsr_text_append(&options, "-DVECTOR=1");
  tsr_opencl_gemm_options(call, &options);
  TSR_RETURN_IF_FAILED(
      tsr_opencl_gemm_kernel(device, "gemm_reference.cl", "gemm_reference", &options, &kernel, error));
  TSR_RETURN_IF_FAILED(tsr_opencl_gemm_arguments(device, kernel, call, error));
  const size_t local[2] = {REFERENCE_GROUP_COLUMNS, REFERENCE_GROUP_ROWS};
  return tsr_opencl_enqueue_rows(device, kernel, (size_t)call->n, (size_t)call->m, local, error);
}

tsr_status tsr_opencl_gemm_finish(tsr_opencl_device *device, const tsr_gemm_call *call, tsr_error *error) {
  tsr_text options = {0};
  cl_kernel kernel = NULL;
  if (tsr_epilogue_is_empty(&call->epilogue)) return TSR_OK;
  const int width = 4;
  tsr_text_append(&options, "-DVECTOR=%d", width);
  epilogue_options(call, &options);
  TSR_RETURN_IF_FAILED(
      tsr_opencl_gemm_kernel(device, "gemm_finish.cl", "gemm_finish", &options, &kernel, error));
  tsr_arguments arguments = {.device = device, .kernel = kernel, .code = CL_SUCCESS};
  tsr_argument_count(&arguments, call->m);
  tsr_argument_count(&arguments, call->n);
  tsr_argument_real(&arguments, call->types, 1);
  tsr_argument_matrix(&arguments, &call->c);
  tsr_argument_epilogue(&arguments, call);
  TSR_RETURN_IF_FAILED(tsr_arguments_end(&arguments, error));
  const size_t local[2] = {FINISH_GROUP, 1};
  return tsr_opencl_enqueue_rows(device, kernel, (size_t)tsr_ceil_div(call->n, width), (size_t)call->m, local,
                                 error);
}

static const tsr_gemm_launcher launchers[TSR_GEMM_FAMILY_COUNT] = {
    [TSR_GEMM_REFERENCE] = tsr_opencl_gemm_reference,
    [TSR_GEMM_PANEL] = tsr_opencl_gemm_panel,
    [TSR_GEMM_TILE] = tsr_opencl_gemm_tile,
    [TSR_GEMM_MMA] = tsr_opencl_gemm_mma,
    [TSR_GEMM_CLBLAST] = tsr_clblast_gemm,
};

tsr_status tsr_opencl_gemm_launch(tsr_opencl_device *device, const tsr_gemm_facts *facts,
                                  const tsr_gemm_call *call, tsr_error *error) {
  if (!launchers[facts->family])
    return tsr_fail(error, TSR_ERROR_INTERNAL, "GEMM family %s: OpenCL devices have no launcher for it",
                    tsr_gemm_family_name(facts->family));
  TSR_RETURN_IF_FAILED(launchers[facts->family](device, facts, call, error));
  return facts->family == TSR_GEMM_CLBLAST ? tsr_opencl_gemm_finish(device, call, error) : TSR_OK;
}

tsr_status tsr_opencl_gemm(tsr_device *base, const tsr_gemm_call *call, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  const tsr_gemm_facts *facts = NULL;
  TSR_RETURN_IF_FAILED(tsr_opencl_gemm_facts(device, call, &facts, error));
  return tsr_opencl_gemm_launch(device, facts, call, error);
}
