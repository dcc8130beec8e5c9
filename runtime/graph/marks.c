/* graph/marks.c: what is said about values that exist: in which layout they lie, what they become. */
#include "base/memory.h"
#include "base/text.h"
#include "graph/graph.h"

#include <string.h>

/* Parts of `offsets`, which begin at 0, never fall and end where they reach extent; -1 if they do not. */
static int64_t count_parts(const int64_t *offsets, int64_t extent, size_t parts_max) {
  if (offsets[0] != 0) return -1;
  for (size_t i = 1; i <= parts_max; i++) {
    if (offsets[i] < offsets[i - 1] || offsets[i] > extent) return -1;
    if (offsets[i] == extent) return (int64_t)i;
  }
  return -1;
}

static tsr_status check_pin(const tsr_graph *graph, tsr_value value, const tsr_layout *layout,
                            tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_graph_check_open(graph, error));
  TSR_RETURN_IF_FAILED(tsr_graph_check_value(graph, value, "the value to pin", error));
  const tsr_graph_value *v = tsr_graph_at(graph, value);
  const tsr_placement *on = &layout->on[0];
  if (v->kind == TSR_INTERMEDIATE && !v->output)
    return tsr_fail(
        error, TSR_ERROR_INVALID_ARGUMENT,
        "%s is an intermediate, only leaves and outputs can be pinned: mark it as an output first",
        tsr_graph_describe(graph, value).text);
  if (layout->mesh_axes != 1)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "a layout on %d mesh axes, 1 is supported",
                    layout->mesh_axes);
  if (on->kind != TSR_REPLICATE && on->kind != TSR_SHARD)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%s cannot be pinned to placement %d: replicate (%d) and shard (%d) can",
                    tsr_graph_describe(graph, value).text, (int)on->kind, TSR_REPLICATE, TSR_SHARD);
  if (on->kind == TSR_SHARD && (on->axis < 0 || on->axis >= v->shape.axes))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s cannot be split on axis %d: it has %d axes",
                    tsr_graph_describe(graph, value).text, on->axis, v->shape.axes);
  return TSR_OK;
}

/* Copies a pin's offsets, NULL if it has none. */
static tsr_status copy_pin_offsets(const tsr_graph *graph, tsr_value value, const tsr_placement *on,
                                   size_t parts_max, int64_t **offsets, int *parts, tsr_error *error) {
  *offsets = NULL;
  *parts = 0;
  if (on->kind != TSR_SHARD || !on->offsets) return TSR_OK;
  int64_t count = count_parts(on->offsets, tsr_graph_at(graph, value)->shape.extent[on->axis], parts_max);
  if (count < 0)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "the offsets of %s, axis %d, must begin at 0, never fall, and end with %lld",
                    tsr_graph_describe(graph, value).text, on->axis,
                    (long long)tsr_graph_at(graph, value)->shape.extent[on->axis]);
  size_t bytes = ((size_t)count + 1) * sizeof **offsets;
  *offsets = tsr_malloc(bytes);
  if (!*offsets)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %lld offsets", (long long)count + 1);
  memcpy(*offsets, on->offsets, bytes);
  *parts = (int)count;
  return TSR_OK;
}

tsr_status tsr_graph_pin_parts(tsr_graph *graph, tsr_value value, const tsr_layout *layout, size_t parts_max,
                               tsr_error *error) {
  int64_t *offsets;
  int parts;
  TSR_RETURN_IF_FAILED(check_pin(graph, value, layout, error));
  TSR_RETURN_IF_FAILED(copy_pin_offsets(graph, value, &layout->on[0], parts_max, &offsets, &parts, error));
  tsr_graph_value *v = &graph->values[value.id];
  free(v->pin_offsets);
  v->pin_offsets = offsets;
  v->pin_parts = parts;
  v->pin = layout->on[0].kind == TSR_SHARD ? tsr_layout_shard(layout->on[0].axis, offsets)
                                           : tsr_layout_replicate();
  v->pinned = true;
  return TSR_OK;
}

tsr_status tsr_graph_pin(tsr_graph *graph, tsr_value value, const tsr_layout *layout, tsr_error *error) {
  enum { PARTS_MAX = 1 << 20 };
  return tsr_graph_pin_parts(graph, value, layout, PARTS_MAX, error);
}

tsr_status tsr_graph_assign(tsr_graph *graph, tsr_value target, tsr_value value, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_graph_check_open(graph, error));
  TSR_RETURN_IF_FAILED(tsr_graph_check_value(graph, target, "the target of this assign", error));
  TSR_RETURN_IF_FAILED(tsr_graph_check_value(graph, value, "the value of this assign", error));
  tsr_graph_value *t = &graph->values[target.id];
  const tsr_graph_value *v = tsr_graph_at(graph, value);
  if (t->kind != TSR_PARAMETER && t->kind != TSR_STATE)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%s is of kind %s, only a parameter or a state can be assigned",
                    tsr_graph_describe(graph, target).text, tsr_value_kind_name(t->kind));
  if (t->assigned.id)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s is assigned %s already, once is allowed",
                    tsr_graph_describe(graph, target).text, tsr_graph_describe(graph, t->assigned).text);
  if (t->dtype != v->dtype || !tsr_shape_equal(&t->shape, &v->shape))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%s of %s cannot become %s of %s: shape and type must be the same",
                    tsr_graph_describe(graph, target).text, tsr_dtype_name(t->dtype),
                    tsr_graph_describe(graph, value).text, tsr_dtype_name(v->dtype));
  t->assigned = value;
  return TSR_OK;
}
