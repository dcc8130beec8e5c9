/* graph/conv_rules.c: how convolutions are split, and their gradients.
 *
 * Batch, output channels and, of a layer without groups, input channels (whose results add up). Where there
 * are groups and as many output as input channels, both are one dimension, cut at groups' boundaries: members
 * then need none of each other's images. With other numbers of channels, a member that computes some output
 * channels has all of the images. */
#include "graph/adjoint.h"
#include "graph/conv.h"

enum { BATCH, CHANNEL };           /* axes of images */
enum { K_OF_WEIGHT, C_OF_WEIGHT }; /* axes of weights */
static const tsr_place R = TSR_PLACE_REPLICATE, P = TSR_PLACE_SUM;

static bool is_grouped(const tsr_node *node) {
  return node->window.groups > 1;
}

static int64_t channels_of(const tsr_graph *graph, tsr_value value) {
  return tsr_graph_at(graph, value)->shape.extent[CHANNEL];
}

/* Whether input and output channels are one dimension; x and y: the node's images. */
static bool is_paired(const tsr_graph *graph, const tsr_node *node, tsr_value x, tsr_value y) {
  return is_grouped(node) && channels_of(graph, x) == channels_of(graph, y);
}

static int add_rule(tsr_rule *out, int count, tsr_place a, tsr_place b, tsr_place c, tsr_place result) {
  out[count] = (tsr_rule){.in = {a, b, c}, .out = result};
  return count + 1;
}

/* To a sum, the bias is added by one owner, or is a summand itself. */
static int add_sum(const tsr_node *node, tsr_rule *out, int count, tsr_place a, tsr_place b) {
  if (node->input_count == 3) count = add_rule(out, count, a, b, P, P);
  count = add_rule(out, count, a, b, R, P);
  out[count - 1].one_owner[2] = node->input_count == 3;
  return count;
}

int tsr_conv_layouts(const tsr_graph *graph, const tsr_node *node, tsr_rule *out) {
  const tsr_place bias = node->input_count == 3 ? 0 : R;
  const bool paired = is_paired(graph, node, node->inputs[0], node->output);
  int count = add_rule(out, 0, R, R, R, R);
  count = add_rule(out, count, BATCH, R, R, BATCH);
  count = add_rule(out, count, paired ? CHANNEL : R, K_OF_WEIGHT, bias, CHANNEL);
  if (!is_grouped(node)) count = add_sum(node, out, count, CHANNEL, C_OF_WEIGHT);
  count = add_sum(node, out, count, P, R);
  return add_sum(node, out, count, R, P);
}

int tsr_conv_input_layouts(const tsr_graph *graph, const tsr_node *node, tsr_rule *out) {
  const bool paired = is_paired(graph, node, node->output, node->inputs[0]);
  int count = add_rule(out, 0, R, R, R, R);
  count = add_rule(out, count, BATCH, R, R, BATCH);
  count = add_rule(out, count, CHANNEL, K_OF_WEIGHT, R, paired ? CHANNEL : P);
  if (!is_grouped(node)) count = add_rule(out, count, R, C_OF_WEIGHT, R, CHANNEL);
  count = add_rule(out, count, P, R, R, P);
  return add_rule(out, count, R, P, R, P);
}

int tsr_conv_weight_layouts(const tsr_graph *graph, const tsr_node *node, tsr_rule *out) {
  const bool paired = is_paired(graph, node, node->inputs[0], node->inputs[1]);
  int count = add_rule(out, 0, R, R, R, R);
  count = add_rule(out, count, BATCH, BATCH, R, P);
  count = add_rule(out, count, paired ? CHANNEL : R, CHANNEL, R, K_OF_WEIGHT);
  if (!is_grouped(node)) count = add_rule(out, count, CHANNEL, R, R, C_OF_WEIGHT);
  count = add_rule(out, count, P, R, R, P);
  return add_rule(out, count, R, P, R, P);
}

int tsr_channel_sum_layouts(const tsr_graph *graph, const tsr_node *node, tsr_rule *out) {
  (void)graph, (void)node;
  int count = add_rule(out, 0, R, R, R, R);
  count = add_rule(out, count, BATCH, R, R, P);
  count = add_rule(out, count, CHANNEL, R, R, 0);
  return add_rule(out, count, P, R, R, P);
}

static int add_link(tsr_axis_link *out, int count, int operand, int axis, int other, int other_axis) {
  out[count] = (tsr_axis_link){{operand, other}, {axis, other_axis}};
  return count + 1;
}

/* Of images x, weights w, images y: operands by their number. */
static int links_of(const tsr_node *node, bool paired, int x, int w, int y, tsr_axis_link *out) {
  int count = add_link(out, 0, x, BATCH, y, BATCH);
  count = add_link(out, count, w, K_OF_WEIGHT, y, CHANNEL);
  if (!is_grouped(node)) count = add_link(out, count, x, CHANNEL, w, C_OF_WEIGHT);
  return paired ? add_link(out, count, x, CHANNEL, w, K_OF_WEIGHT) : count;
}

int tsr_conv_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out) {
  int count = links_of(node, is_paired(graph, node, node->inputs[0], node->output), 0, 1, -1, out);
  return node->input_count == 3 ? add_link(out, count, 2, 0, 1, K_OF_WEIGHT) : count;
}

int tsr_conv_input_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out) {
  return links_of(node, is_paired(graph, node, node->output, node->inputs[0]), -1, 1, 0, out);
}

int tsr_conv_weight_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out) {
  return links_of(node, is_paired(graph, node, node->inputs[0], node->inputs[1]), 0, -1, 1, out);
}

int tsr_channel_sum_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out) {
  (void)graph, (void)node;
  return add_link(out, 0, 0, CHANNEL, -1, 0);
}

/* One of the three operators, which is bilinear: its gradients are the other two. like: the value whose last
 * two extents the result has; no value: the operator does not ask. */
static tsr_status append(tsr_graph *graph, tsr_operator op, const tsr_window *window, tsr_value a,
                         tsr_value b, tsr_value like, tsr_value *out, tsr_error *error) {
  tsr_node node = {.op = op, .input_count = 2, .inputs = {a, b}, .window = *window};
  for (int i = 0; i < 2; i++)
    node.window.extent[i] = like.id ? tsr_graph_at(graph, like)->shape.extent[2 + i] : 0;
  return tsr_graph_append(graph, &node, out, error);
}

tsr_status tsr_conv_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i, tsr_adjoint *out,
                             tsr_error *error) {
  const tsr_value x = node->inputs[0], w = node->inputs[1];
  tsr_value d;
  TSR_RETURN_IF_FAILED(tsr_adjoint_value(dy, node, &d, error));
  out->factor = dy.factor;
  if (i == 0) return append(graph, TSR_OPERATOR_CONV_INPUT, &node->window, d, w, x, &out->value, error);
  if (i == 1) return append(graph, TSR_OPERATOR_CONV_WEIGHT, &node->window, x, d, w, &out->value, error);
  tsr_node sum = {.op = TSR_OPERATOR_CHANNEL_SUM, .input_count = 1, .inputs = {d}};
  return tsr_graph_append(graph, &sum, &out->value, error);
}

tsr_status tsr_conv_input_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                                   tsr_adjoint *out, tsr_error *error) {
  const tsr_value y = node->inputs[0], w = node->inputs[1];
  tsr_value d;
  TSR_RETURN_IF_FAILED(tsr_adjoint_value(dy, node, &d, error));
  out->factor = dy.factor;
  if (i == 0) return append(graph, TSR_OPERATOR_CONV, &node->window, d, w, TSR_NO_VALUE, &out->value, error);
  return append(graph, TSR_OPERATOR_CONV_WEIGHT, &node->window, d, y, w, &out->value, error);
}

tsr_status tsr_conv_weight_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                                    tsr_adjoint *out, tsr_error *error) {
  const tsr_value x = node->inputs[0], y = node->inputs[1];
  tsr_value d;
  TSR_RETURN_IF_FAILED(tsr_adjoint_value(dy, node, &d, error));
  out->factor = dy.factor;
  if (i == 0) return append(graph, TSR_OPERATOR_CONV_INPUT, &node->window, y, d, x, &out->value, error);
  return append(graph, TSR_OPERATOR_CONV, &node->window, x, d, TSR_NO_VALUE, &out->value, error);
}

tsr_status tsr_channel_sum_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                                    tsr_adjoint *out, tsr_error *error) {
  (void)dy, (void)i, (void)out;
  return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "the gradient of channel_sum of %s is not supported",
                  tsr_graph_describe(graph, node->inputs[0]).text);
}

/* Of one member too: each output pixel that is held takes the input channels that are held. */
double tsr_conv_flops(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output) {
  const tsr_shape *w = node->op == TSR_OPERATOR_CONV_WEIGHT ? output : &inputs[1],
                  *y = node->op == TSR_OPERATOR_CONV         ? output
                       : node->op == TSR_OPERATOR_CONV_INPUT ? &inputs[0]
                                                             : &inputs[1];
  return 2.0 * (double)tsr_shape_count(y) * (double)(w->extent[1] * w->extent[2] * w->extent[3]) +
         (node->input_count == 3 ? (double)tsr_shape_count(y) : 0);
}
