/* graph/broadcast.c: see broadcast.h. */
#include "graph/broadcast.h"

static const tsr_shape *shape_of(const tsr_graph *graph, const tsr_node *node, int input) {
  return &tsr_graph_at(graph, node->inputs[input])->shape;
}

int tsr_broadcast_axis(const tsr_shape *a, const tsr_shape *b, int axis) {
  int own = axis - (a->axes - b->axes);
  if (own < 0 || (b->extent[own] == 1 && a->extent[axis] != 1)) return -1;
  return own;
}

static bool fits(const tsr_shape *a, const tsr_shape *b, bool exact) {
  if (b->axes > a->axes || (exact && b->axes != a->axes)) return false;
  for (int i = 0; i < b->axes; i++) {
    int64_t wanted = a->extent[a->axes - b->axes + i];
    if (b->extent[i] != wanted && (exact || b->extent[i] != 1)) return false;
  }
  return true;
}

tsr_status tsr_broadcast_shape(const tsr_graph *graph, const tsr_node *node, bool exact, tsr_shape *out,
                               tsr_error *error) {
  *out = *shape_of(graph, node, 0);
  if (fits(out, shape_of(graph, node, 1), exact)) return TSR_OK;
  return tsr_fail(
      error, TSR_ERROR_INVALID_ARGUMENT, "b, %s, does not fit a, %s: %s",
      tsr_graph_describe(graph, node->inputs[1]).text, tsr_graph_describe(graph, node->inputs[0]).text,
      exact ? "it must have the same shape" : "from the last axis on, each of its extents must be a's or 1");
}

int tsr_broadcast_shard_rules(const tsr_graph *graph, const tsr_node *node, tsr_rule *out) {
  const tsr_shape *a = shape_of(graph, node, 0), *b = shape_of(graph, node, 1);
  const int axes = tsr_shape_split_axes(a);
  for (int i = 0; i < axes; i++) {
    int own = tsr_broadcast_axis(a, b, i);
    tsr_place place = (tsr_place)(own < 0 ? TSR_PLACE_REPLICATE : own);
    out[i] = (tsr_rule){.in = {(tsr_place)i, place, TSR_PLACE_REPLICATE}, .out = (tsr_place)i};
  }
  return axes;
}

int tsr_broadcast_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out) {
  const tsr_shape *a = shape_of(graph, node, 0), *b = shape_of(graph, node, 1);
  int count = 0;
  for (int i = 0; i < a->axes; i++) {
    int own = tsr_broadcast_axis(a, b, i);
    out[count++] = (tsr_axis_link){{0, -1}, {i, i}};
    if (own >= 0) out[count++] = (tsr_axis_link){{0, 1}, {i, own}};
  }
  return count;
}

static tsr_status sum_over(tsr_graph *graph, tsr_value a, int axis, bool unit_axis, tsr_value *out,
                           tsr_error *error) {
  tsr_node node = {.op = TSR_OPERATOR_REDUCE,
                   .input_count = 1,
                   .inputs = {a},
                   .reduction = TSR_SUM,
                   .axis = axis,
                   .unit_axis = unit_axis};
  return tsr_graph_append(graph, &node, out, error);
}

tsr_status tsr_broadcast_reduce(tsr_graph *graph, const tsr_node *node, tsr_value dy, tsr_value *out,
                                tsr_error *error) {
  const tsr_shape a = *shape_of(graph, node, 0), b = *shape_of(graph, node, 1);
  for (int i = a.axes; i > b.axes; i--) TSR_RETURN_IF_FAILED(sum_over(graph, dy, 0, false, &dy, error));
  for (int i = 0; i < b.axes; i++)
    if (b.extent[i] != a.extent[a.axes - b.axes + i])
      TSR_RETURN_IF_FAILED(sum_over(graph, dy, i, true, &dy, error));
  *out = dy;
  return TSR_OK;
}

tsr_broadcast_walk tsr_broadcast_start(const tsr_shape *a, const tsr_shape *b) {
  tsr_broadcast_walk walk = {.axes = a->axes};
  int64_t stride = 1;
  for (int i = a->axes - 1; i >= 0; i--) {
    int own = i - (a->axes - b->axes);
    walk.extent[i] = a->extent[i];
    if (own < 0) continue;
    walk.stride[i] = b->extent[own] == 1 ? 0 : stride;
    stride *= b->extent[own];
  }
  return walk;
}

void tsr_broadcast_next(tsr_broadcast_walk *walk) {
  for (int i = walk->axes - 1; i >= 0; i--) {
    walk->offset += walk->stride[i];
    if (++walk->index[i] < walk->extent[i]) return;
    walk->offset -= walk->stride[i] * walk->extent[i];
    walk->index[i] = 0;
  }
}
