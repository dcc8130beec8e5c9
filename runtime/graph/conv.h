/* graph/conv.h: convolutions as one member sees them. */
#ifndef TSR_GRAPH_CONV_H
#define TSR_GRAPH_CONV_H

#include "graph/graph.h"

/* Images x [n, c_held, h, w] and weights [k_held, c, r, s] give y [n, k_held, p, q]. Output channel k
 * (counted in the whole layer) is of group k / k_group, and reads input channels c_group * group .. + c. Who
 * has a part of the input channels of an ungrouped layer has c_group = c = c_held: what it has is its layer.
 */
typedef struct tsr_conv_geometry {
  int64_t n, h, w, r, s, p, q;
  int64_t c_held, c_first; /* input channels that are here, and the first one's number */
  int64_t k_held, k_first; /* output channels */
  int64_t c, k_group;      /* channels of a group */
  const tsr_window *window;
} tsr_conv_geometry;

bool tsr_operator_is_conv(tsr_operator op);

/* `value` has the four axes of images; role: what messages call it. */
tsr_status tsr_conv_check_images(const tsr_graph *graph, tsr_value value, const char *role, tsr_error *error);
/* In how many places a window of size[0] x size[1] elements is laid on an image[0] x image[1] one: out[0] x
 * out[1]. */
tsr_status tsr_window_places(const tsr_window *window, const int64_t *image, const int64_t *size,
                             int64_t *out, tsr_error *error);

/* Of a node conv, conv_input or conv_weight, whose operands have these shapes on a member that holds output
 * channels from k_first on and input channels from c_first on, k_group of them in each group (all three mean
 * something where there are groups). window stays the node's. */
tsr_conv_geometry tsr_conv_geometry_of(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                                       int64_t k_group, int64_t k_first, int64_t c_first);

/* Dense host arrays of a convolution; the one that is computed is not read. */
typedef struct tsr_conv_arrays {
  tsr_oracle_value x, weight, y;
} tsr_conv_arrays;

/* Of a node, from its inputs. */
tsr_conv_arrays tsr_conv_arrays_of(const tsr_node *node, const tsr_oracle_value *in);

/* One element of the node's output, by its place in the dense output, in f64, and the error bound of
 * computing it in a type of unit roundoff epsilon; bias not included. */
void tsr_conv_element(tsr_operator op, const tsr_conv_geometry *g, const tsr_conv_arrays *arrays,
                      int64_t index, double epsilon, double *exact, double *error);

/* What the table of operators takes from conv_rules.c and conv_oracle.c. */
int tsr_conv_layouts(const tsr_graph *graph, const tsr_node *node, tsr_rule *out);
int tsr_conv_input_layouts(const tsr_graph *graph, const tsr_node *node, tsr_rule *out);
int tsr_conv_weight_layouts(const tsr_graph *graph, const tsr_node *node, tsr_rule *out);
int tsr_channel_sum_layouts(const tsr_graph *graph, const tsr_node *node, tsr_rule *out);
int tsr_conv_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out);
int tsr_conv_input_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out);
int tsr_conv_weight_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out);
int tsr_channel_sum_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out);
tsr_status tsr_conv_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i, tsr_adjoint *out,
                             tsr_error *error);
tsr_status tsr_conv_input_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                                   tsr_adjoint *out, tsr_error *error);
tsr_status tsr_conv_weight_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                                    tsr_adjoint *out, tsr_error *error);
tsr_status tsr_channel_sum_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                                    tsr_adjoint *out, tsr_error *error);
double tsr_conv_flops(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output);
void tsr_conv_evaluate(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                       const tsr_oracle_value *in, double epsilon, tsr_oracle_value out);
void tsr_channel_sum_evaluate(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                              const tsr_oracle_value *in, double epsilon, tsr_oracle_value out);

#endif
