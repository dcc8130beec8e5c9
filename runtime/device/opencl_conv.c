/* opencl_conv.c: launches one of the kernels of convolutions. On CPUs conv_panel.cl, or conv_direct.cl where
 * groups have few channels; elsewhere, and for what these do not take, conv.cl. */
#include "device/opencl_gemm.h"

enum { GROUP_ITEMS = 64, CPU_ELEMENTS = 256, CPU_CHANNELS = 4, CHANNELS_LEAST = 16 };

static const char *const kind_names[] = {
    [TSR_CONV_FORWARD] = "FORWARD",
    [TSR_CONV_INPUT_GRADIENT] = "INPUT",
    [TSR_CONV_WEIGHT_GRADIENT] = "WEIGHT",
    [TSR_CONV_BIAS_GRADIENT] = "BIAS",
};

/* Constants of all kernels. */
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
  const int64_t most = call->kind == TSR_CONV_BIAS_GRADIENT ? CPU_CHANNELS : CPU_ELEMENTS;
  const int64_t block = !cpu ? 1 : elements < most ? elements : most;
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

/* ---- few channels in a group ---- */

/* The numbers of conv_direct.cl, of which rows are [0] and columns [1]. */
typedef struct direct {
  const tsr_matrix *source, *target;
  int64_t sources, targets, source_extent[2], target_extent[2], step[2], up[2], shift[2], width;
} direct;

static direct direct_of(const tsr_conv_call *call, int vector) {
  const bool turned = call->kind == TSR_CONV_INPUT_GRADIENT;
  const int64_t x[2] = {call->h, call->w}, y[2] = {call->p, call->q}, window[2] = {call->r, call->s};
  direct d = {.source = turned ? &call->y : &call->x,
              .target = turned ? &call->x : &call->y,
              .sources = turned ? call->k : call->c,
              .targets = turned ? call->c : call->k};
  for (int i = 0; i < 2; i++) {
    d.source_extent[i] = turned ? y[i] : x[i];
    d.target_extent[i] = turned ? x[i] : y[i];
    d.step[i] = turned ? 1 : call->stride[i];
    d.up[i] = turned ? call->stride[i] : 1;
    d.shift[i] = turned ? (window[i] - 1) * call->dilation[i] - call->padding[i] : call->padding[i];
  }
  d.width = tsr_ceil_div(d.target_extent[1], vector) * vector + (call->s - 1) * call->dilation[1] / d.step[1];
  return d;
}

/* Four rows of the target must find their lines in the strip, and the window its registers. */
static bool is_direct(const tsr_conv_call *call, int vector) {
  enum { STRIP_BYTES = 32768, WINDOW_MOST = 49, STEP_MOST = 16, CHANNELS_MOST = 16, EXTENT_MOST = 1 << 30 };
  if (call->kind == TSR_CONV_BIAS_GRADIENT || vector < 2) return false;
  const direct d = direct_of(call, vector);
  const int64_t size = (int64_t)tsr_dtype_bytes(call->dtype);
  if (d.target_extent[0] > EXTENT_MOST || d.target_extent[1] > EXTENT_MOST) return false;
  if (call->c * call->k > CHANNELS_MOST || call->r > WINDOW_MOST || call->s > WINDOW_MOST / call->r)
    return false;
  for (int i = 0; i < 2; i++)
    if (call->stride[i] > STEP_MOST || call->dilation[i] > STEP_MOST) return false;
  const int64_t lines = 3 * d.step[0] + (call->r - 1) * call->dilation[0] + 1,
                room = STRIP_BYTES / size / (call->kind == TSR_CONV_WEIGHT_GRADIENT ? 1 : d.sources);
  return d.width <= room / d.step[1] / lines;
}

static tsr_status launch_direct(tsr_opencl_device *device, const tsr_conv_call *call, int vector,
                                tsr_error *error) {
  const direct d = direct_of(call, vector);
  const tsr_matrix *bias = operand(call, &call->bias);
  const cl_mem bias_memory = tsr_opencl_memory(bias->buffer);
  const cl_uint width = (cl_uint)d.width,
                extent[2] = {(cl_uint)d.target_extent[0], (cl_uint)d.target_extent[1]};
  const size_t local[1] = {1},
               global[1] = {(size_t)(call->groups *
                                     (call->kind == TSR_CONV_WEIGHT_GRADIENT ? call->c * call->k : call->n))};
  tsr_text options = {0};
  tsr_arguments arguments = {.device = device};
  tsr_text_append(&options, "-DVECTOR=%d -DSOURCES=%d -DTARGETS=%d -DR=%d -DS=%d", vector, (int)d.sources,
                  (int)d.targets, (int)call->r, (int)call->s);
  tsr_text_append(&options, " -DSTEP_ROWS=%d -DSTEP_COLUMNS=%d -DUP_ROWS=%d -DUP_COLUMNS=%d", (int)d.step[0],
                  (int)d.step[1], (int)d.up[0], (int)d.up[1]);
  tsr_text_append(&options, " -DDILATION_ROWS=%d -DDILATION_COLUMNS=%d", (int)call->dilation[0],
                  (int)call->dilation[1]);
  add_options(call, &options);
  TSR_RETURN_IF_FAILED(
      tsr_opencl_gemm_kernel(device, "conv_direct.cl", "conv_direct", &options, &arguments.kernel, error));
  tsr_argument_count(&arguments, call->groups);
  tsr_argument_count(&arguments, call->n);
  tsr_argument_add(&arguments, sizeof width, &width);
  for (int i = 0; i < 2; i++) tsr_argument_count(&arguments, d.source_extent[i]);
  for (int i = 0; i < 2; i++) tsr_argument_add(&arguments, sizeof extent[i], &extent[i]);
  for (int i = 0; i < 2; i++) tsr_argument_count(&arguments, d.shift[i]);
  tsr_argument_matrix(&arguments, d.source);
  tsr_argument_matrix(&arguments, &call->weight);
  tsr_argument_matrix(&arguments, d.target);
  tsr_argument_add(&arguments, sizeof bias_memory, &bias_memory);
  tsr_argument_count(&arguments, bias->offset);
  TSR_RETURN_IF_FAILED(tsr_arguments_end(&arguments, error));
  return tsr_opencl_enqueue(device, arguments.kernel, 1, global, local, error);
}

/* Whether products are what pays: not where groups have a channel or two, nor for sums. One group with one
 * channel of either kind is what a member may have of a depthwise layer. */
static bool is_product(const tsr_conv_call *call) {
  const int64_t channels = call->c * call->k;
  return call->kind != TSR_CONV_BIAS_GRADIENT &&
         (channels >= CHANNELS_LEAST || (call->groups == 1 && channels > 1));
}

tsr_status tsr_opencl_conv(tsr_device *base, const tsr_conv_call *call, tsr_error *error) {
  tsr_opencl_device *device = tsr_opencl_of(base);
  const tsr_gemm_facts *facts = &base->gemm[call->dtype];
  const int vector =
      (int)(call->dtype == TSR_F64 ? device->facts.double_vector_width : device->facts.float_vector_width);
  if (facts->family == TSR_GEMM_PANEL && is_product(call)) return launch_panel(device, facts, call, error);
  if (is_direct(call, vector)) return launch_direct(device, call, vector, error);
  return launch_elements(device, call, error);
}
