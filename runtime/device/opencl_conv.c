/* opencl_conv.c: launches cl_kernels/conv_panel.cl on a CPU whose products are of that family, else conv.cl.
 */
#include "device/opencl_gemm.h"

enum { GROUP_ITEMS = 64, CPU_ELEMENTS = 256, CHANNELS_LEAST = 16 };

static const char *const kind_names[] = {
    [TSR_CONV_FORWARD] = "FORWARD",
    [TSR_CONV_INPUT_GRADIENT] = "INPUT",
    [TSR_CONV_WEIGHT_GRADIENT] = "WEIGHT",
    [TSR_CONV_BIAS_GRADIENT] = "BIAS",
};

/* Constants of both kernels. */
static void add_options(const tsr_conv_call *call, tsr_text *options) {
  const bool forward = call->kind == TSR_CONV_FORWARD;
  tsr_text_append(options, " -DREAL=%s -DKIND=%s -DHAS_BIAS=%d -DUNARY=%s",
                  call->dtype == TSR_F64 ? "double" : "float", kind_names[call->kind],
                  forward && call->bias.buffer,
                  forward && call->activate ? tsr_opencl_unary_names[call->unary] : "NONE");
}

/* An operand that the call does not have: another stands in for it. */
static const tsr_matrix *operand(const tsr_conv_call *call, const tsr_matrix *matrix) {
  return matrix->buffer ? matrix : &call->y;
}

static void add_extents(const tsr_conv_call *call, tsr_arguments *arguments) {
  const int64_t numbers[] = {call->groups,     call->n,          call->c,           call->h,
                             call->w,          call->k,          call->r,           call->s,
                             call->p,          call->q,          call->stride[0],   call->stride[1],
                             call->padding[0], call->padding[1], call->dilation[0], call->dilation[1]};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) tsr_argument_count(arguments, numbers[i]);
}

static void add_operands(const tsr_conv_call *call, tsr_arguments *arguments) {
  const tsr_matrix *bias = operand(call, &call->bias);
  const cl_mem memory = tsr_opencl_memory(bias->buffer);
  tsr_argument_matrix(arguments, operand(call, &call->x));
  tsr_argument_matrix(arguments, operand(call, &call->weight));
  tsr_argument_matrix(arguments, &call->y);
  tsr_argument_add(arguments, sizeof memory, &memory);
  tsr_argument_count(arguments, bias->offset);
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

static tsr_status launch_elements(tsr_opencl_device *device, const tsr_conv_call *call, tsr_error *error) {
  const bool cpu = device->facts.float_vector_width > 1;
  const size_t local[2] = {cpu ? 1 : GROUP_ITEMS, 1};
  int64_t lines, elements;
  tsr_text options = {0};
  tsr_arguments arguments = {.device = device};
  lines_of(call, &lines, &elements);
  const int64_t block = !cpu ? 1 : elements < CPU_ELEMENTS ? elements : CPU_ELEMENTS;
  add_options(call, &options);
  TSR_RETURN_IF_FAILED(tsr_opencl_gemm_kernel(device, "conv.cl", "conv", &options, &arguments.kernel, error));
  add_extents(call, &arguments);
  tsr_argument_count(&arguments, block);
  add_operands(call, &arguments);
  TSR_RETURN_IF_FAILED(tsr_arguments_end(&arguments, error));
  return tsr_opencl_enqueue_rows(device, arguments.kernel, (size_t)tsr_ceil_div(elements, block),
                                 (size_t)lines, local, error);
}

/* m and n of the product that a convolution is, see conv_panel.cl. */
static void product_of(const tsr_conv_call *call, int64_t *m, int64_t *n) {
  *m = call->kind == TSR_CONV_INPUT_GRADIENT ? call->c : call->k;
  *n = call->kind == TSR_CONV_FORWARD          ? call->n * call->p * call->q
       : call->kind == TSR_CONV_INPUT_GRADIENT ? call->n * call->h * call->w
                                               : call->c * call->r * call->s;
}

static tsr_status launch_panel(tsr_opencl_device *device, const tsr_gemm_facts *facts,
                               const tsr_conv_call *call, tsr_error *error) {
  const size_t cores = device->facts.compute_units ? device->facts.compute_units : 1, local[3] = {1, 1, 1};
  int64_t m, n;
  size_t global[3] = {0, 0, (size_t)call->groups};
  tsr_text options = {0};
  tsr_arguments arguments = {.device = device};
  product_of(call, &m, &n);
  tsr_text_append(
      &options,
      "-DTILE_M=%d -DPANEL=%d -DVECTOR=%d -DK_BLOCK=%d -DROW_BLOCK=%d -DPANELS_PER_GROUP=%d -DPREFETCH=%d",
      facts->tile_m, facts->panel, facts->vector, facts->copied_k_block, facts->copied_row_block,
      facts->copied_panels, facts->prefetch);
  add_options(call, &options);
  TSR_RETURN_IF_FAILED(
      tsr_opencl_gemm_kernel(device, "conv_panel.cl", "conv_panel", &options, &arguments.kernel, error));
  add_extents(call, &arguments);
  add_operands(call, &arguments);
  TSR_RETURN_IF_FAILED(tsr_arguments_end(&arguments, error));
  tsr_opencl_panel_groups(facts, facts->copied_panels, m, n, tsr_ceil_div((int64_t)cores, call->groups),
                          global);
  return tsr_opencl_enqueue(device, arguments.kernel, 3, global, local, error);
}

/* Whether products are what pays: not where a group has a channel or two, nor for sums. */
static bool is_product(const tsr_conv_call *call) {
  return call->kind != TSR_CONV_BIAS_GRADIENT && (call->groups == 1 || call->c * call->k >= CHANNELS_LEAST);
}

tsr_status tsr_opencl_conv(tsr_device *base, const tsr_conv_call *call, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  const tsr_gemm_facts *facts = &base->gemm[call->dtype];
  if (facts->family == TSR_GEMM_PANEL && is_product(call)) return launch_panel(device, facts, call, error);
  return launch_elements(device, call, error);
}
