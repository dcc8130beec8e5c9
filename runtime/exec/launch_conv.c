/* exec/launch_conv.c: what works on images: convolutions, whose channels become calls to the device group by
 * group, and pooling. */
#include "exec/launch.h"

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Which of the node's tensors are images x, weights, images y. */
typedef struct operands {
  const tsr_tensor *x, *weight, *y;
} operands;

static operands operands_of(const tsr_launch *launch) {
  const tsr_tensor *in = launch->inputs, *out = &launch->output;
  switch (launch->node->op) {
  case TSR_OPERATOR_CONV_INPUT: return (operands){out, &in[1], &in[0]};
  case TSR_OPERATOR_CONV_WEIGHT: return (operands){&in[0], out, &in[1]};
  default: return (operands){&in[0], &in[1], out};
  }
}

static const tsr_tensor *bias_of(const tsr_launch *launch) {
  bool adds = launch->node->input_count == 3 && (launch->owner || !launch->rule->one_owner[2]);
  return adds ? &launch->inputs[2] : NULL;
}

/* Output channels that are one call: whole groups, or a part of one. */
typedef struct segment {
  int64_t k, count; /* the first channel, counted in the whole layer, and how many */
  int64_t groups, group;
} segment;

static segment segment_at(const tsr_conv_geometry *g, int64_t k) {
  const int64_t left = g->k_first + g->k_held - k, inside = g->k_group ? k % g->k_group : 0;
  segment s = {.k = k, .groups = 1, .group = g->k_group ? k / g->k_group : 0};
  if (inside || left < g->k_group) {
    s.count = smaller(g->k_group - inside, left);
  } else {
    s.groups = left / g->k_group;
    s.count = s.groups * g->k_group;
  }
  return s;
}

static const tsr_conv_kind kinds[TSR_OPERATOR_COUNT] = {[TSR_OPERATOR_CONV] = TSR_CONV_FORWARD,
                                                        [TSR_OPERATOR_CONV_INPUT] = TSR_CONV_INPUT_GRADIENT,
                                                        [TSR_OPERATOR_CONV_WEIGHT] =
                                                            TSR_CONV_WEIGHT_GRADIENT};

static tsr_conv_call call_of(const tsr_launch *launch, const tsr_conv_geometry *g, const segment *s) {
  tsr_conv_call call = {.kind = kinds[launch->node->op],
                        .dtype = launch->output.dtype,
                        .groups = s->groups,
                        .c = g->c,
                        .h = g->h,
                        .w = g->w,
                        .k = s->count / s->groups,
                        .r = g->r,
                        .s = g->s,
                        .p = g->p,
                        .q = g->q};
  for (int i = 0; i < 2; i++) {
    call.stride[i] = g->window->stride[i];
    call.padding[i] = g->window->padding[i];
    call.dilation[i] = g->window->dilation[i];
  }
  if (launch->fused_count) {
    call.activate = true;
    call.unary = launch->fused[0].node->unary;
  }
  return call;
}

/* Images [first, first + n). */
static tsr_status launch_images(const tsr_launch *launch, const tsr_conv_geometry *g, const segment *s,
                                int64_t first, int64_t n, tsr_error *error) {
  const operands o = operands_of(launch);
  const tsr_tensor *bias = bias_of(launch);
  const int64_t c0 = s->group * g->c - g->c_first, k0 = s->k - g->k_first, plane = g->h * g->w,
                out = g->p * g->q;
  tsr_conv_call call = call_of(launch, g, s);
  call.n = n;
  call.x = tsr_tensor_block(o.x, first, n, c0 * plane, s->groups * g->c * plane);
  call.weight = tsr_tensor_block(o.weight, k0, s->count, 0, o.weight->cols);
  call.y = tsr_tensor_block(o.y, first, n, k0 * out, s->count * out);
  if (bias) call.bias = tsr_tensor_block(bias, 0, 1, k0, s->count);
  return tsr_device_conv(launch->device, &call, error);
}

/* The weights' gradient is a sum over all images, and a window needs all of its weights. */
static tsr_status check_pieces(const tsr_launch *launch, const operands *o, tsr_error *error) {
  const bool sums = launch->node->op == TSR_OPERATOR_CONV_WEIGHT;
  const bool cut =
      tsr_tensor_next_row(o->weight, 0) < o->weight->rows ||
      (sums && (tsr_tensor_next_row(o->x, 0) < o->x->rows || tsr_tensor_next_row(o->y, 0) < o->y->rows));
  if (!cut) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                  "%s is larger than the largest allocation of its device: split it over more members",
                  sums ? "what a convolution's gradient sums over" : "the weight of a convolution");
}

static tsr_status launch_segment(const tsr_launch *launch, const tsr_conv_geometry *g, const segment *s,
                                 tsr_error *error) {
  const operands o = operands_of(launch);
  for (int64_t first = 0, n; first < g->n; first += n) {
    n = smaller(tsr_tensor_next_row(o.x, first), tsr_tensor_next_row(o.y, first)) - first;
    TSR_RETURN_IF_FAILED(launch_images(launch, g, s, first, n, error));
  }
  return TSR_OK;
}

/* y = bias, for a member that has no input channels to sum over. */
static tsr_status launch_bias(const tsr_launch *launch, const tsr_conv_geometry *g, tsr_error *error) {
  const tsr_tensor *bias = bias_of(launch);
  tsr_map_call call = {.kind = TSR_MAP_ADD, .dtype = launch->output.dtype, .alpha = 1, .beta = 1};
  TSR_RETURN_IF_FAILED(tsr_tensor_zero(launch->device, &launch->output, error));
  for (int64_t image = 0; bias && image < g->n; image++) {
    call.out = tsr_tensor_block(&launch->output, image, 1, 0, launch->output.cols);
    call.out.rows = g->k_held;
    call.out.cols = call.out.ld = g->p * g->q;
    call.a = call.out;
    call.b = tsr_tensor_block(bias, 0, 1, 0, g->k_held);
    call.b.rows = g->k_held;
    call.b.cols = call.b.ld = 1;
    TSR_RETURN_IF_FAILED(tsr_device_map(launch->device, &call, error));
  }
  return TSR_OK;
}

tsr_status tsr_launch_conv(const tsr_launch *launch, tsr_error *error) {
  const operands o = operands_of(launch);
  const tsr_conv_geometry g = tsr_plan_conv(launch->plan, launch->node, launch->rule, launch->active_index);
  if (tsr_tensor_is_empty(&launch->output)) return TSR_OK;
  if (!g.c || !g.k_held || !g.n)
    return launch->node->op == TSR_OPERATOR_CONV ? launch_bias(launch, &g, error)
                                                 : tsr_tensor_zero(launch->device, &launch->output, error);
  TSR_RETURN_IF_FAILED(check_pieces(launch, &o, error));
  /* Input channels of groups that this member does not compute. */
  if (launch->node->op == TSR_OPERATOR_CONV_INPUT && g.k_held / g.k_group * g.c < g.c_held)
    TSR_RETURN_IF_FAILED(tsr_tensor_zero(launch->device, &launch->output, error));
  for (int64_t k = g.k_first; k < g.k_first + g.k_held;) {
    segment s = segment_at(&g, k);
    TSR_RETURN_IF_FAILED(launch_segment(launch, &g, &s, error));
    k += s.count;
  }
  return TSR_OK;
}

tsr_status tsr_launch_channel_sum(const tsr_launch *launch, tsr_error *error) {
  const tsr_tensor *a = &launch->inputs[0];
  const tsr_shape shape =
      tsr_plan_local_shape(launch->plan, launch->node->inputs[0], launch->rule->in[0], launch->active_index);
  if (tsr_tensor_is_empty(&launch->output)) return TSR_OK;
  if (tsr_tensor_is_empty(a)) return tsr_tensor_zero(launch->device, &launch->output, error);
  if (tsr_tensor_next_row(a, 0) < a->rows)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "images that are larger than the largest allocation of their device cannot be summed: "
                    "split them over more members");
  tsr_conv_call call = {.kind = TSR_CONV_BIAS_GRADIENT,
                        .dtype = a->dtype,
                        .groups = 1,
                        .n = shape.extent[0],
                        .c = 1,
                        .h = shape.extent[2],
                        .w = shape.extent[3],
                        .k = shape.extent[1],
                        .r = 1,
                        .s = 1,
                        .p = shape.extent[2],
                        .q = shape.extent[3],
                        .stride = {1, 1},
                        .dilation = {1, 1},
                        .y = tsr_tensor_block(a, 0, a->rows, 0, a->cols),
                        .bias = tsr_tensor_block(&launch->output, 0, 1, 0, launch->output.cols)};
  return tsr_device_conv(launch->device, &call, error);
}

tsr_status tsr_launch_pool(const tsr_launch *launch, tsr_error *error) {
  const tsr_node *node = launch->node;
  const bool gradient = node->op == TSR_OPERATOR_POOL_GRADIENT;
  const tsr_tensor *x = &launch->inputs[0], *y = gradient ? &launch->inputs[1] : NULL, *out = &launch->output;
  tsr_shape images =
      tsr_plan_local_shape(launch->plan, node->inputs[0], launch->rule->in[0], launch->active_index);
  const int64_t *places =
      tsr_graph_at(launch->plan->graph, gradient ? node->inputs[1] : node->output)->shape.extent;
  if (tsr_tensor_is_empty(out)) return TSR_OK;
  tsr_pool_call call = {.gradient = gradient,
                        .reduction = node->reduction,
                        .dtype = out->dtype,
                        .c = images.extent[1],
                        .h = images.extent[2],
                        .w = images.extent[3],
                        .r = node->window.extent[0],
                        .s = node->window.extent[1],
                        .p = places[2],
                        .q = places[3]};
  for (int i = 0; i < 2; i++) {
    call.stride[i] = node->window.stride[i];
    call.padding[i] = node->window.padding[i];
  }
  for (int64_t first = 0; first < out->rows; first += call.n) {
    int64_t last = smaller(tsr_tensor_next_row(x, first), tsr_tensor_next_row(out, first));
    call.n = (y ? smaller(last, tsr_tensor_next_row(y, first)) : last) - first;
    call.x = tsr_tensor_block(x, first, call.n, 0, x->cols);
    if (y) call.y = tsr_tensor_block(y, first, call.n, 0, y->cols);
    call.out = tsr_tensor_block(out, first, call.n, 0, out->cols);
    TSR_RETURN_IF_FAILED(tsr_device_pool(launch->device, &call, error));
  }
  return TSR_OK;
}
