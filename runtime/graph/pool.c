/* graph/pool.c: the largest or the mean element of each window of an image, channel by channel, and its
 * gradient. */
#include <math.h>

#include "graph/adjoint.h"
#include "graph/conv.h"

void tsr_pool_options_init(tsr_pool_options *options) {
  *options = (tsr_pool_options){.struct_size = sizeof *options};
}

tsr_status tsr_graph_pool(tsr_graph *graph, tsr_value x, const tsr_pool_options *options, tsr_value *out,
                          tsr_error *error) {
  TSR_CHECK_OPTIONS_SIZE(options, tsr_pool_options);
  tsr_node node = {.op = TSR_OPERATOR_POOL, .input_count = 1, .inputs = {x}};
  node.window = (tsr_window){.dilation = {1, 1}, .groups = 1};
  if (options) node.reduction = options->mean ? TSR_SUM : TSR_MAX;
  for (int i = 0; options && i < 2; i++) {
    node.window.extent[i] = options->window[i];
    node.window.stride[i] = options->stride[i] ? options->stride[i] : options->window[i];
    node.window.padding[i] = options->padding[i];
  }
  return tsr_graph_append(graph, &node, out, error);
}

static tsr_status check_padding(const tsr_window *window, tsr_error *error) {
  for (int i = 0; i < 2; i++)
    if (window->padding[i] >= window->extent[i])
      return tsr_fail(
          error, TSR_ERROR_INVALID_ARGUMENT,
          "padding of %s is %lld, with windows of %lld: it must be less, or some windows would be empty",
          i ? "columns" : "rows", (long long)window->padding[i], (long long)window->extent[i]);
  return TSR_OK;
}

static tsr_status output_shape(const tsr_graph *graph, const tsr_node *node, tsr_shape *out,
                               tsr_error *error) {
  const tsr_shape *x = &tsr_graph_at(graph, node->inputs[0])->shape;
  TSR_RETURN_IF_FAILED(tsr_conv_check_images(graph, node->inputs[0], "x", error));
  TSR_RETURN_IF_FAILED(
      tsr_window_places(&node->window, x->extent + 2, node->window.extent, out->extent + 2, error));
  TSR_RETURN_IF_FAILED(check_padding(&node->window, error));
  out->axes = 4;
  for (int i = 0; i < 2; i++) out->extent[i] = x->extent[i];
  return TSR_OK;
}

static tsr_status pool_shape(const tsr_graph *graph, const tsr_node *node, tsr_dtype *dtype, tsr_shape *out,
                             tsr_error *error) {
  (void)dtype;
  return output_shape(graph, node, out, error);
}

static tsr_status pool_gradient_shape(const tsr_graph *graph, const tsr_node *node, tsr_dtype *dtype,
                                      tsr_shape *out, tsr_error *error) {
  (void)dtype;
  tsr_shape y = {0};
  TSR_RETURN_IF_FAILED(output_shape(graph, node, &y, error));
  *out = tsr_graph_at(graph, node->inputs[0])->shape;
  if (tsr_shape_equal(&y, &tsr_graph_at(graph, node->inputs[1])->shape)) return TSR_OK;
  return tsr_fail(
      error, TSR_ERROR_INVALID_ARGUMENT, "the gradient of the output, %s, has not the shape of what %s gives",
      tsr_graph_describe(graph, node->inputs[1]).text, tsr_graph_describe(graph, node->inputs[0]).text);
}

/* Windows keep to an image and a channel. */
static int pool_rules(const tsr_graph *graph, const tsr_node *node, tsr_rule *out) {
  (void)graph, (void)node;
  const tsr_place r = TSR_PLACE_REPLICATE;
  out[0] = (tsr_rule){.in = {r, r, r}, .out = r};
  for (tsr_place axis = 0; axis < 2; axis++)
    out[1 + axis] = (tsr_rule){.in = {axis, node->input_count > 1 ? axis : r, r}, .out = axis};
  return 3;
}

static int pool_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out) {
  (void)graph;
  int count = 0;
  for (int axis = 0; axis < 2; axis++) {
    out[count++] = (tsr_axis_link){{0, -1}, {axis, axis}};
    if (node->input_count > 1) out[count++] = (tsr_axis_link){{0, 1}, {axis, axis}};
  }
  return count;
}

static tsr_status pool_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                                tsr_adjoint *out, tsr_error *error) {
  (void)i;
  tsr_value value;
  TSR_RETURN_IF_FAILED(tsr_adjoint_value(dy, node, &value, error));
  tsr_node gradient = {.op = TSR_OPERATOR_POOL_GRADIENT,
                       .input_count = 2,
                       .inputs = {node->inputs[0], value},
                       .reduction = node->reduction,
                       .window = node->window};
  out->factor = dy.factor;
  return tsr_graph_append(graph, &gradient, &out->value, error);
}

static tsr_status pool_gradient_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                                         tsr_adjoint *out, tsr_error *error) {
  (void)dy, (void)i, (void)out;
  return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "the second derivative of pooling of %s is not supported",
                  tsr_graph_describe(graph, node->inputs[0]).text);
}

static double pool_flops(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output) {
  const tsr_shape *y = node->input_count > 1 ? &inputs[1] : output;
  return (double)tsr_shape_count(y) * (double)(node->window.extent[0] * node->window.extent[1]);
}

/* A plane of an image and one of the result. */
typedef struct planes {
  const tsr_window *window;
  int64_t h, w, p, q;
} planes;

static planes planes_of(const tsr_node *node, const tsr_shape *x, const tsr_shape *y) {
  return (planes){&node->window, x->extent[2], x->extent[3], y->extent[2], y->extent[3]};
}

/* Rows [first[0], last[0]) and columns of the window at (p, q) that are inside of the image. */
static void window_at(const planes *g, int64_t p, int64_t q, int64_t *first, int64_t *last) {
  const int64_t at[] = {p, q}, extent[] = {g->h, g->w};
  for (int i = 0; i < 2; i++) {
    int64_t begin = at[i] * g->window->stride[i] - g->window->padding[i], end = begin + g->window->extent[i];
    first[i] = begin < 0 ? 0 : begin;
    last[i] = end > extent[i] ? extent[i] : end;
  }
}

/* Elements of the window inside of the image, whose mean is taken: padding does not count. */
static double size_of(const int64_t *first, const int64_t *last) {
  return (double)((last[0] - first[0]) * (last[1] - first[1]));
}

/* The first of the largest elements. */
static int64_t largest_of(const planes *g, const double *x, const int64_t *first, const int64_t *last) {
  int64_t most = first[0] * g->w + first[1];
  for (int64_t i = first[0]; i < last[0]; i++)
    for (int64_t j = first[1]; j < last[1]; j++)
      if (x[i * g->w + j] > x[most] || (isnan(x[i * g->w + j]) && !isnan(x[most]))) most = i * g->w + j;
  return most;
}

static void mean_of(const planes *g, tsr_oracle_value x, const int64_t *first, const int64_t *last,
                    double epsilon, double *mean, double *error) {
  double sum = 0, size = 0, own = 0, count = size_of(first, last);
  for (int64_t i = first[0]; i < last[0]; i++)
    for (int64_t j = first[1]; j < last[1]; j++) {
      sum += x.exact[i * g->w + j];
      size += fabs(x.exact[i * g->w + j]);
      own += x.error[i * g->w + j];
    }
  *mean = sum / count;
  *error = (own + 4 * sqrt(count) * epsilon * size) / count + 2 * epsilon * fabs(*mean);
}

static double most_error(const planes *g, tsr_oracle_value x, const int64_t *first, const int64_t *last) {
  double most = 0;
  for (int64_t i = first[0]; i < last[0]; i++)
    for (int64_t j = first[1]; j < last[1]; j++) most = fmax(most, x.error[i * g->w + j]);
  return most;
}

static tsr_oracle_value shifted(tsr_oracle_value value, int64_t count) {
  return (tsr_oracle_value){value.exact + count, value.error + count};
}

static void pool_evaluate(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                          const tsr_oracle_value *in, double epsilon, tsr_oracle_value out) {
  const planes g = planes_of(node, &inputs[0], output);
  for (int64_t plane = 0; plane < output->extent[0] * output->extent[1]; plane++) {
    const tsr_oracle_value x = shifted(in[0], plane * g.h * g.w), y = shifted(out, plane * g.p * g.q);
    for (int64_t at = 0; at < g.p * g.q; at++) {
      int64_t first[2], last[2];
      window_at(&g, at / g.q, at % g.q, first, last);
      if (node->reduction == TSR_SUM) {
        mean_of(&g, x, first, last, epsilon, &y.exact[at], &y.error[at]);
      } else {
        y.exact[at] = x.exact[largest_of(&g, x.exact, first, last)];
        y.error[at] = most_error(&g, x, first, last);
      }
    }
  }
}

/* What one window gives to its elements. Of a maximum that is not certain, each candidate may have all of it.
 */
static void spread(const planes *g, tsr_reduction reduction, tsr_oracle_value x, double dy, double e_dy,
                   const int64_t *first, const int64_t *last, double epsilon, tsr_oracle_value dx) {
  const double count = size_of(first, last);
  const int64_t most = reduction == TSR_MAX ? largest_of(g, x.exact, first, last) : -1;
  for (int64_t i = first[0]; i < last[0]; i++)
    for (int64_t j = first[1]; j < last[1]; j++) {
      const int64_t at = i * g->w + j;
      if (reduction == TSR_SUM) {
        dx.exact[at] += dy / count;
        dx.error[at] += e_dy / count + 2 * epsilon * fabs(dy / count);
        continue;
      }
      bool near = x.exact[at] + x.error[at] + x.error[most] >= x.exact[most],
           certain = !x.error[at] && !x.error[most];
      if (at == most) dx.exact[at] += dy;
      if (at == most || near) dx.error[at] += certain ? e_dy * (at == most) : e_dy + fabs(dy);
    }
}

static void pool_gradient_evaluate(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                                   const tsr_oracle_value *in, double epsilon, tsr_oracle_value out) {
  const planes g = planes_of(node, &inputs[0], &inputs[1]);
  const int64_t count = tsr_shape_count(output);
  /* How many windows an element is in, at most, each of them a rounding. */
  const double windows = ceil((double)node->window.extent[0] / (double)node->window.stride[0]) *
                         ceil((double)node->window.extent[1] / (double)node->window.stride[1]);
  for (int64_t i = 0; i < count; i++) out.exact[i] = out.error[i] = 0;
  for (int64_t plane = 0; plane < output->extent[0] * output->extent[1]; plane++) {
    const tsr_oracle_value x = shifted(in[0], plane * g.h * g.w), dy = shifted(in[1], plane * g.p * g.q),
                           dx = shifted(out, plane * g.h * g.w);
    for (int64_t at = 0; at < g.p * g.q; at++) {
      int64_t first[2], last[2];
      window_at(&g, at / g.q, at % g.q, first, last);
      spread(&g, node->reduction, x, dy.exact[at], dy.error[at], first, last, epsilon, dx);
      for (int64_t i = first[0]; windows > 1 && i < last[0]; i++)
        for (int64_t j = first[1]; j < last[1]; j++)
          dx.error[i * g.w + j] += windows * epsilon * fabs(dy.exact[at]);
    }
  }
}

const tsr_operator_rules tsr_pool_rules = {
    .name = "pool",
    .inputs_min = 1,
    .inputs_max = 1,
    .attributes = TSR_ATTRIBUTE_WINDOW | TSR_ATTRIBUTE_REDUCTION,
    .shape = pool_shape,
    .rules = pool_rules,
    .links = pool_links,
    .gradient = pool_gradient,
    .flops = pool_flops,
    .evaluate = pool_evaluate,
};

const tsr_operator_rules tsr_pool_gradient_rules = {
    .name = "pool_gradient",
    .inputs_min = 2,
    .inputs_max = 2,
    .attributes = TSR_ATTRIBUTE_WINDOW | TSR_ATTRIBUTE_REDUCTION,
    .shape = pool_gradient_shape,
    .rules = pool_rules,
    .links = pool_links,
    .gradient = pool_gradient_gradient,
    .flops = pool_flops,
    .evaluate = pool_gradient_evaluate,
};
