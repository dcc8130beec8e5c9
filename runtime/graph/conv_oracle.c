/* graph/conv_oracle.c: what convolutions compute, in f64. */
#include <math.h>

#include "graph/conv.h"

tsr_conv_geometry tsr_conv_geometry_of(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                                       int64_t k_group, int64_t k_first, int64_t c_first) {
  const bool input = node->op == TSR_OPERATOR_CONV_INPUT, weight = node->op == TSR_OPERATOR_CONV_WEIGHT;
  const tsr_shape *x = input ? output : &inputs[0], *w = weight ? output : &inputs[1],
                  *y = input    ? &inputs[0]
                       : weight ? &inputs[1]
                                : output;
  const bool grouped = node->window.groups > 1;
  return (tsr_conv_geometry){.n = x->extent[0],
                             .h = x->extent[2],
                             .w = x->extent[3],
                             .r = w->extent[2],
                             .s = w->extent[3],
                             .p = y->extent[2],
                             .q = y->extent[3],
                             .c_held = x->extent[1],
                             .c_first = grouped ? c_first : 0,
                             .k_held = w->extent[0],
                             .k_first = grouped ? k_first : 0,
                             .c = w->extent[1],
                             .k_group = grouped ? k_group : w->extent[0],
                             .window = &node->window};
}

/* A sum of products, with the sums that its error bound needs. */
typedef struct sums {
  double exact, error, magnitude;
  double depth;
} sums;

static void add_product(sums *sum, const tsr_oracle_value *a, int64_t at_a, const tsr_oracle_value *b,
                        int64_t at_b) {
  double x = a->exact[at_a], y = b->exact[at_b], e_x = a->error[at_a], e_y = b->error[at_b];
  sum->exact += x * y;
  sum->magnitude += fabs(x * y);
  sum->error += fabs(x) * e_y + e_x * (fabs(y) + e_y);
  sum->depth++;
}

/* Place of x[image, channel, i, j] when window element (r, s) is at (p, q); -1 = outside. */
static int64_t x_at(const tsr_conv_geometry *g, int64_t image, int64_t channel, int64_t p, int64_t q,
                    int64_t r, int64_t s) {
  const tsr_window *window = g->window;
  int64_t i = p * window->stride[0] - window->padding[0] + r * window->dilation[0];
  int64_t j = q * window->stride[1] - window->padding[1] + s * window->dilation[1];
  if (i < 0 || i >= g->h || j < 0 || j >= g->w) return -1;
  return ((image * g->c_held + channel) * g->h + i) * g->w + j;
}

static int64_t w_at(const tsr_conv_geometry *g, int64_t k, int64_t c, int64_t r, int64_t s) {
  return ((k * g->c + c) * g->r + r) * g->s + s;
}

static int64_t y_at(const tsr_conv_geometry *g, int64_t image, int64_t k, int64_t p, int64_t q) {
  return ((image * g->k_held + k) * g->p + p) * g->q + q;
}

/* Where, among the input channels that are here, the group of output channel k begins. */
static int64_t group_begin(const tsr_conv_geometry *g, int64_t k) {
  return (g->k_first + k) / g->k_group * g->c - g->c_first;
}

static void sum_output(const tsr_conv_geometry *g, const tsr_conv_arrays *arrays, const int64_t *place,
                       sums *sum) {
  for (int64_t c = 0; c < g->c; c++)
    for (int64_t r = 0; r < g->r; r++)
      for (int64_t s = 0; s < g->s; s++) {
        int64_t at = x_at(g, place[0], group_begin(g, place[1]) + c, place[2], place[3], r, s);
        if (at >= 0) add_product(sum, &arrays->x, at, &arrays->weight, w_at(g, place[1], c, r, s));
      }
}

/* p where window element r reads row (or column) i; -1 = nowhere. */
static int64_t place_of(const tsr_window *window, int axis, int64_t i, int64_t r, int64_t count) {
  int64_t from = i + window->padding[axis] - r * window->dilation[axis];
  if (from < 0 || from % window->stride[axis] || from / window->stride[axis] >= count) return -1;
  return from / window->stride[axis];
}

static void sum_input(const tsr_conv_geometry *g, const tsr_conv_arrays *arrays, const int64_t *place,
                      sums *sum) {
  for (int64_t r = 0; r < g->r; r++)
    for (int64_t s = 0; s < g->s; s++) {
      int64_t p = place_of(g->window, 0, place[2], r, g->p), q = place_of(g->window, 1, place[3], s, g->q);
      for (int64_t k = 0; k < g->k_held && p >= 0 && q >= 0; k++) {
        int64_t c = place[1] - group_begin(g, k);
        if (c < 0 || c >= g->c) continue;
        add_product(sum, &arrays->y, y_at(g, place[0], k, p, q), &arrays->weight, w_at(g, k, c, r, s));
      }
    }
}

static void sum_weight(const tsr_conv_geometry *g, const tsr_conv_arrays *arrays, const int64_t *place,
                       sums *sum) {
  for (int64_t image = 0; image < g->n; image++)
    for (int64_t p = 0; p < g->p; p++)
      for (int64_t q = 0; q < g->q; q++) {
        int64_t at = x_at(g, image, group_begin(g, place[0]) + place[1], p, q, place[2], place[3]);
        if (at >= 0) add_product(sum, &arrays->x, at, &arrays->y, y_at(g, image, place[0], p, q));
      }
}

void tsr_conv_element(tsr_operator op, const tsr_conv_geometry *g, const tsr_conv_arrays *arrays,
                      int64_t index, double epsilon, double *exact, double *error) {
  const int64_t extents[] = {op == TSR_OPERATOR_CONV_WEIGHT ? g->c
                             : op == TSR_OPERATOR_CONV      ? g->k_held
                                                            : g->c_held,
                             op == TSR_OPERATOR_CONV_WEIGHT ? g->r
                             : op == TSR_OPERATOR_CONV      ? g->p
                                                            : g->h,
                             op == TSR_OPERATOR_CONV_WEIGHT ? g->s
                             : op == TSR_OPERATOR_CONV      ? g->q
                                                            : g->w};
  int64_t place[4];
  sums sum = {0};
  for (int i = 3; i > 0; i--) {
    place[i] = index % extents[i - 1];
    index /= extents[i - 1];
  }
  place[0] = index;
  if (op == TSR_OPERATOR_CONV)
    sum_output(g, arrays, place, &sum);
  else if (op == TSR_OPERATOR_CONV_INPUT)
    sum_input(g, arrays, place, &sum);
  else
    sum_weight(g, arrays, place, &sum);
  *exact = sum.exact;
  *error = sum.error + 4 * sqrt(sum.depth) * epsilon * sum.magnitude + epsilon * fabs(sum.exact);
}

tsr_conv_arrays tsr_conv_arrays_of(const tsr_node *node, const tsr_oracle_value *in) {
  return (tsr_conv_arrays){
      .x = in[0], .weight = in[1], .y = node->op == TSR_OPERATOR_CONV_INPUT ? in[0] : in[1]};
}

void tsr_conv_evaluate(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                       const tsr_oracle_value *in, double epsilon, tsr_oracle_value out) {
  tsr_conv_geometry g = tsr_conv_geometry_of(node, inputs, output, 1, 0, 0);
  /* As many groups as the images have channels for: all, or a member's where both images are split. */
  if (node->window.groups > 1 && g.c_held) g.k_group = g.k_held / (g.c_held / g.c);
  const tsr_conv_arrays arrays = tsr_conv_arrays_of(node, in);
  int64_t count = tsr_shape_count(output), plane = g.p * g.q;
  for (int64_t i = 0; i < count; i++) {
    tsr_conv_element(node->op, &g, &arrays, i, epsilon, &out.exact[i], &out.error[i]);
    if (node->input_count < 3) continue;
    int64_t channel = i / plane % g.k_held;
    out.exact[i] += in[2].exact[channel];
    out.error[i] += in[2].error[channel] + epsilon * (fabs(in[2].exact[channel]) + fabs(out.exact[i]));
  }
}

void tsr_channel_sum_evaluate(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                              const tsr_oracle_value *in, double epsilon, tsr_oracle_value out) {
  (void)node;
  int64_t channels = output->extent[0], plane = inputs[0].extent[2] * inputs[0].extent[3];
  for (int64_t k = 0; k < channels; k++) {
    double size = 0;
    out.exact[k] = out.error[k] = 0;
    for (int64_t image = 0; image < inputs[0].extent[0]; image++)
      for (int64_t i = 0; i < plane; i++) {
        int64_t at = (image * channels + k) * plane + i;
        out.exact[k] += in[0].exact[at];
        out.error[k] += in[0].error[at];
        size += fabs(in[0].exact[at]);
      }
    double depth = (double)(inputs[0].extent[0] * plane);
    out.error[k] += epsilon * (4 * sqrt(depth) * size + fabs(out.exact[k]));
  }
}
