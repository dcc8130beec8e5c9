/* graph/broadcast.h: what elementwise operators of two operands share: b has a's axes, aligned from the last
 * one, and is repeated along those that it lacks or that have extent 1. */
#ifndef TSR_GRAPH_BROADCAST_H
#define TSR_GRAPH_BROADCAST_H

#include "graph/graph.h"

/* Checks that input b of node broadcasts to input a (exact: has the same shape); *out is a's shape. */
tsr_status tsr_broadcast_shape(const tsr_graph *graph, const tsr_node *node, bool exact, tsr_shape *out,
                               tsr_error *error);

/* The axis of b that goes along with an axis of a; -1 if b is repeated along it. */
int tsr_broadcast_axis(const tsr_shape *a, const tsr_shape *b, int axis);

/* One rule per axis of a: a and the output split there, b as well or replicated. Returns their number. */
int tsr_broadcast_shard_rules(const tsr_graph *graph, const tsr_node *node, tsr_rule *out);

/* Axes of a with the output's, and with b's where b is not repeated. Returns their number. */
int tsr_broadcast_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out);

/* Sums dy, of the shape of input a, over the axes along which b is repeated: it gets b's shape. */
tsr_status tsr_broadcast_reduce(tsr_graph *graph, const tsr_node *node, tsr_value dy, tsr_value *out,
                                tsr_error *error);

/* Walks over the elements of a in order: offset is the place of b's element. */
typedef struct tsr_broadcast_walk {
  int axes;
  int64_t extent[TSR_AXES_MAX], stride[TSR_AXES_MAX], index[TSR_AXES_MAX];
  int64_t offset;
} tsr_broadcast_walk;
tsr_broadcast_walk tsr_broadcast_start(const tsr_shape *a, const tsr_shape *b);
void tsr_broadcast_next(tsr_broadcast_walk *walk);

#endif
