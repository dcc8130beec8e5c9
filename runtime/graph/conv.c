/* graph/conv.c: convolutions: builder, shapes, table entries. */
#include "graph/conv.h"

#include "base/memory.h"
#include "base/text.h"

void tsr_conv_options_init(tsr_conv_options *options) {
  *options = (tsr_conv_options){.struct_size = sizeof *options};
}

static int64_t one_unless_set(int64_t x) {
  return x ? x : 1;
}

tsr_status tsr_graph_conv(tsr_graph *graph, tsr_value x, tsr_value w, tsr_value bias,
                          const tsr_conv_options *options, tsr_value *out, tsr_error *error) {
  TSR_CHECK_OPTIONS_SIZE(options, tsr_conv_options);
  tsr_conv_options defaults;
  tsr_conv_options_init(&defaults);
  if (!options) options = &defaults;
  tsr_node node = {.op = TSR_OPERATOR_CONV, .input_count = bias.id ? 3 : 2, .inputs = {x, w, bias}};
  for (int i = 0; i < 2; i++) {
    node.window.stride[i] = one_unless_set(options->stride[i]);
    node.window.dilation[i] = one_unless_set(options->dilation[i]);
    node.window.padding[i] = options->padding[i];
  }
  node.window.groups = one_unless_set(options->groups);
  return tsr_graph_append(graph, &node, out, error);
}

bool tsr_operator_is_conv(tsr_operator op) {
  return op == TSR_OPERATOR_CONV || op == TSR_OPERATOR_CONV_INPUT || op == TSR_OPERATOR_CONV_WEIGHT;
}

tsr_status tsr_conv_check_images(const tsr_graph *graph, tsr_value value, const char *role,
                                 tsr_error *error) {
  int axes = tsr_graph_at(graph, value)->shape.axes;
  if (axes == 4) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s, %s, has %d axes, 4 are needed", role,
                  tsr_graph_describe(graph, value).text, axes);
}

enum { WINDOW_MAX = 1 << 30 }; /* of any number, so that places in an image fit 64 bits */

static tsr_status check_window(const tsr_window *window, tsr_error *error) {
  for (int i = 0; i < 2; i++) {
    const struct {
      const char *what;
      int64_t number, low;
    } limits[] = {{"stride", window->stride[i], 1},
                  {"dilation", window->dilation[i], 1},
                  {"padding", window->padding[i], 0}};
    for (int j = 0; j < 3; j++)
      if (limits[j].number < limits[j].low || limits[j].number > WINDOW_MAX)
        return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s of %s is %lld, expected %lld to %d",
                        limits[j].what, i ? "columns" : "rows", (long long)limits[j].number,
                        (long long)limits[j].low, WINDOW_MAX);
  }
  if (window->groups >= 1) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "groups is %lld, at least 1 is needed",
                  (long long)window->groups);
}

tsr_status tsr_window_places(const tsr_window *window, const int64_t *image, const int64_t *size,
                             int64_t *out, tsr_error *error) {
  static const char *const names[] = {"rows", "columns"};
  TSR_RETURN_IF_FAILED(check_window(window, error));
  for (int i = 0; i < 2; i++) {
    int64_t reach;
    if (size[i] < 1 || image[i] > WINDOW_MAX ||
        !tsr_multiply_fits(size[i] - 1, window->dilation[i], &reach) || reach > WINDOW_MAX)
      return tsr_fail(
          error, TSR_ERROR_INVALID_ARGUMENT,
          "images of %lld %s, windows of %lld with dilation %lld: images and what a window covers are to be "
          "from 1 to %d",
          (long long)image[i], names[i], (long long)size[i], (long long)window->dilation[i], WINDOW_MAX);
    int64_t room = image[i] + 2 * window->padding[i] - reach - 1;
    if (room < 0)
      return tsr_fail(
          error, TSR_ERROR_INVALID_ARGUMENT,
          "the window of %lld %s with dilation %lld is larger than the image of %lld with padding %lld on "
          "both sides: nothing would be computed",
          (long long)size[i], names[i], (long long)window->dilation[i], (long long)image[i],
          (long long)window->padding[i]);
    out[i] = room / window->stride[i] + 1;
  }
  return TSR_OK;
}

static tsr_status check_channels(const tsr_window *window, int64_t c, int64_t c_of_weight, int64_t k,
                                 tsr_error *error) {
  const long long groups = (long long)window->groups;
  if (c % window->groups || k % window->groups)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "groups is %lld: it must divide the %lld input and the %lld output channels", groups,
                    (long long)c, (long long)k);
  if (c / window->groups == c_of_weight) return TSR_OK;
  return tsr_fail(
      error, TSR_ERROR_INVALID_ARGUMENT,
      "images of %lld channels in %lld groups need weights [K, %lld, R, S], but these have %lld channels",
      (long long)c, groups, (long long)(c / window->groups), (long long)c_of_weight);
}

static tsr_shape shape_of_images(int64_t n, int64_t c, int64_t h, int64_t w) {
  return (tsr_shape){.axes = 4, .extent = {n, c, h, w}};
}

/* y of x and w. */
static tsr_status output_shape(const tsr_window *window, const tsr_shape *x, const tsr_shape *w,
                               tsr_shape *out, tsr_error *error) {
  int64_t places[2];
  TSR_RETURN_IF_FAILED(tsr_window_places(window, x->extent + 2, w->extent + 2, places, error));
  TSR_RETURN_IF_FAILED(check_channels(window, x->extent[1], w->extent[1], w->extent[0], error));
  *out = shape_of_images(x->extent[0], w->extent[0], places[0], places[1]);
  return TSR_OK;
}

static tsr_status conv_shape(const tsr_graph *graph, const tsr_node *node, tsr_dtype *dtype, tsr_shape *out,
                             tsr_error *error) {
  (void)dtype;
  TSR_RETURN_IF_FAILED(tsr_conv_check_images(graph, node->inputs[0], "x", error));
  TSR_RETURN_IF_FAILED(tsr_conv_check_images(graph, node->inputs[1], "w", error));
  const tsr_shape *w = &tsr_graph_at(graph, node->inputs[1])->shape;
  TSR_RETURN_IF_FAILED(
      output_shape(&node->window, &tsr_graph_at(graph, node->inputs[0])->shape, w, out, error));
  if (node->input_count < 3) return TSR_OK;
  const tsr_shape *bias = &tsr_graph_at(graph, node->inputs[2])->shape;
  if (bias->axes == 1 && bias->extent[0] == w->extent[0]) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                  "the bias, %s, must be [%lld], one for each output channel",
                  tsr_graph_describe(graph, node->inputs[2]).text, (long long)w->extent[0]);
}

/* The third of x, w, y must have the shape that convolution gives. */
static tsr_status check_output(const tsr_graph *graph, const tsr_node *node, const tsr_shape *x,
                               const tsr_shape *w, tsr_value dy, tsr_error *error) {
  tsr_shape y;
  char wanted[96];
  TSR_RETURN_IF_FAILED(output_shape(&node->window, x, w, &y, error));
  if (tsr_shape_equal(&y, &tsr_graph_at(graph, dy)->shape)) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "the gradient of the output, %s, must be %s",
                  tsr_graph_describe(graph, dy).text, tsr_format_shape(wanted, sizeof wanted, &y));
}

static tsr_status check_extent(const tsr_window *window, tsr_error *error) {
  if (window->groups >= 1 && window->extent[0] >= 1 && window->extent[1] >= 1) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                  "groups %lld, extent [%lld, %lld]: at least 1 each is needed", (long long)window->groups,
                  (long long)window->extent[0], (long long)window->extent[1]);
}

static tsr_status conv_input_shape(const tsr_graph *graph, const tsr_node *node, tsr_dtype *dtype,
                                   tsr_shape *out, tsr_error *error) {
  (void)dtype;
  int64_t c;
  TSR_RETURN_IF_FAILED(tsr_conv_check_images(graph, node->inputs[0], "the gradient of the output", error));
  TSR_RETURN_IF_FAILED(tsr_conv_check_images(graph, node->inputs[1], "w", error));
  TSR_RETURN_IF_FAILED(check_extent(&node->window, error));
  const tsr_shape *dy = &tsr_graph_at(graph, node->inputs[0])->shape,
                  *w = &tsr_graph_at(graph, node->inputs[1])->shape;
  if (!tsr_multiply_fits(w->extent[1], node->window.groups, &c)) c = INT64_MAX;
  *out = shape_of_images(dy->extent[0], c, node->window.extent[0], node->window.extent[1]);
  return check_output(graph, node, out, w, node->inputs[0], error);
}

static tsr_status conv_weight_shape(const tsr_graph *graph, const tsr_node *node, tsr_dtype *dtype,
                                    tsr_shape *out, tsr_error *error) {
  (void)dtype;
  TSR_RETURN_IF_FAILED(tsr_conv_check_images(graph, node->inputs[0], "x", error));
  TSR_RETURN_IF_FAILED(tsr_conv_check_images(graph, node->inputs[1], "the gradient of the output", error));
  TSR_RETURN_IF_FAILED(check_extent(&node->window, error));
  const tsr_shape *x = &tsr_graph_at(graph, node->inputs[0])->shape,
                  *dy = &tsr_graph_at(graph, node->inputs[1])->shape;
  *out = shape_of_images(dy->extent[1], x->extent[1] / node->window.groups, node->window.extent[0],
                         node->window.extent[1]);
  return check_output(graph, node, x, out, node->inputs[1], error);
}

static tsr_status channel_sum_shape(const tsr_graph *graph, const tsr_node *node, tsr_dtype *dtype,
                                    tsr_shape *out, tsr_error *error) {
  (void)dtype;
  TSR_RETURN_IF_FAILED(tsr_conv_check_images(graph, node->inputs[0], "a", error));
  *out = tsr_shape_of(1, tsr_graph_at(graph, node->inputs[0])->shape.extent[1], 0);
  return TSR_OK;
}

static double channel_sum_flops(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output) {
  (void)node, (void)output;
  return (double)tsr_shape_count(&inputs[0]);
}

const tsr_operator_rules tsr_conv_rules = {
    .name = "conv",
    .inputs_min = 2,
    .inputs_max = 3,
    .attributes = TSR_ATTRIBUTE_WINDOW,
    .shape = conv_shape,
    .rules = tsr_conv_layouts,
    .links = tsr_conv_links,
    .gradient = tsr_conv_gradient,
    .flops = tsr_conv_flops,
    .evaluate = tsr_conv_evaluate,
};
const tsr_operator_rules tsr_conv_input_rules = {
    .name = "conv_input",
    .inputs_min = 2,
    .inputs_max = 2,
    .attributes = TSR_ATTRIBUTE_WINDOW,
    .shape = conv_input_shape,
    .rules = tsr_conv_input_layouts,
    .links = tsr_conv_input_links,
    .gradient = tsr_conv_input_gradient,
    .flops = tsr_conv_flops,
    .evaluate = tsr_conv_evaluate,
};
const tsr_operator_rules tsr_conv_weight_rules = {
    .name = "conv_weight",
    .inputs_min = 2,
    .inputs_max = 2,
    .attributes = TSR_ATTRIBUTE_WINDOW,
    .shape = conv_weight_shape,
    .rules = tsr_conv_weight_layouts,
    .links = tsr_conv_weight_links,
    .gradient = tsr_conv_weight_gradient,
    .flops = tsr_conv_flops,
    .evaluate = tsr_conv_evaluate,
};
const tsr_operator_rules tsr_channel_sum_rules = {
    .name = "channel_sum",
    .inputs_min = 1,
    .inputs_max = 1,
    .attributes = 0,
    .shape = channel_sum_shape,
    .rules = tsr_channel_sum_layouts,
    .links = tsr_channel_sum_links,
    .gradient = tsr_channel_sum_gradient,
    .flops = channel_sum_flops,
    .evaluate = tsr_channel_sum_evaluate,
};
