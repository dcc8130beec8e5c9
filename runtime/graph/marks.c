/* graph/marks.c: what is said about values that exist: in which layout they lie, what they become. */
#include "base/memory.h"
#include "base/text.h"
#include "graph/graph.h"

#include <string.h>

/* Whether offsets begin at 0, never fall and end at extent. */
static bool are_cuts(const int64_t *offsets, int parts, int64_t extent) {
  for (int i = 0; i < parts; i++)
    if (offsets[i] > offsets[i + 1]) return false;
  return offsets[0] == 0 && offsets[parts] == extent;
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
  if (on->kind == TSR_SHARD && (on->axis < 0 || on->axis >= tsr_shape_split_axes(&v->shape)))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s cannot be split on axis %d: it has %d axes%s",
                    tsr_graph_describe(graph, value).text, on->axis, v->shape.axes,
                    v->shape.axes > 3 ? ", of which 0 and 1 can be split" : "");
  return TSR_OK;
}

/* Copies a pin's offsets, NULL if it has none. */
static tsr_status copy_pin_offsets(const tsr_graph *graph, tsr_value value, const tsr_placement *on,
                                   int64_t **offsets, tsr_error *error) {
  *offsets = NULL;
  if (on->kind != TSR_SHARD || !on->offsets) return TSR_OK;
  int64_t extent = tsr_graph_at(graph, value)->shape.extent[on->axis];
  if (on->parts < 1)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "the layout of %s has offsets, but %d parts: 1 at least",
                    tsr_graph_describe(graph, value).text, on->parts);
  if (!are_cuts(on->offsets, on->parts, extent))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "the offsets of %s, axis %d, must begin at 0, never fall, and end with %lld",
                    tsr_graph_describe(graph, value).text, on->axis, (long long)extent);
  size_t bytes = ((size_t)on->parts + 1) * sizeof **offsets;
  *offsets = tsr_malloc(bytes);
  if (!*offsets) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %d offsets", on->parts + 1);
  memcpy(*offsets, on->offsets, bytes);
  return TSR_OK;
}

tsr_status tsr_graph_pin(tsr_graph *graph, tsr_value value, const tsr_layout *layout, tsr_error *error) {
  const tsr_placement *on = &layout->on[0];
  int64_t *offsets;
  TSR_RETURN_IF_FAILED(check_pin(graph, value, layout, error));
  TSR_RETURN_IF_FAILED(copy_pin_offsets(graph, value, on, &offsets, error));
  tsr_graph_value *v = &graph->values[value.id];
  free(v->pin_offsets);
  v->pin_offsets = offsets;
  v->pin_parts = offsets ? on->parts : 0;
  v->pin = on->kind == TSR_SHARD ? tsr_layout_shard(on->axis, v->pin_parts, offsets) : tsr_layout_replicate();
  v->pinned = true;
  return TSR_OK;
}

/* Two values that are to be one: the same type and shape. */
static tsr_status check_alike(const tsr_graph *graph, tsr_value a, tsr_value b, const char *relation,
                              tsr_error *error) {
  const tsr_graph_value *v = tsr_graph_at(graph, a), *w = tsr_graph_at(graph, b);
  if (v->dtype == w->dtype && tsr_shape_equal(&v->shape, &w->shape)) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                  "%s of %s cannot %s %s of %s: shape and type must be the same",
                  tsr_graph_describe(graph, a).text, tsr_dtype_name(v->dtype), relation,
                  tsr_graph_describe(graph, b).text, tsr_dtype_name(w->dtype));
}

tsr_status tsr_graph_mark_gradient(tsr_graph *graph, tsr_value value, tsr_value parameter, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_graph_check_open(graph, error));
  TSR_RETURN_IF_FAILED(tsr_graph_check_value(graph, value, "this gradient", error));
  TSR_RETURN_IF_FAILED(tsr_graph_check_value(graph, parameter, "the value whose gradient this is", error));
  TSR_RETURN_IF_FAILED(check_alike(graph, value, parameter, "be the gradient of", error));
  tsr_graph_value *v = &graph->values[value.id];
  if (v->kind != TSR_INTERMEDIATE || v->gradient_of.id ||
      tsr_graph_at(graph, parameter)->kind != TSR_PARAMETER)
    return tsr_fail(
        error, TSR_ERROR_INVALID_ARGUMENT,
        "%s of kind %s cannot be the gradient of %s of kind %s: an intermediate can, once, of a parameter",
        tsr_graph_describe(graph, value).text, tsr_value_kind_name(v->kind),
        tsr_graph_describe(graph, parameter).text, tsr_value_kind_name(tsr_graph_at(graph, parameter)->kind));
  v->gradient_of = parameter;
  return TSR_OK;
}

tsr_status tsr_graph_assign(tsr_graph *graph, tsr_value target, tsr_value value, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_graph_check_open(graph, error));
  TSR_RETURN_IF_FAILED(tsr_graph_check_value(graph, target, "the target of this assign", error));
  TSR_RETURN_IF_FAILED(tsr_graph_check_value(graph, value, "the value of this assign", error));
  tsr_graph_value *t = &graph->values[target.id];
  if (t->kind != TSR_PARAMETER && t->kind != TSR_STATE)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%s is of kind %s, only a parameter or a state can be assigned",
                    tsr_graph_describe(graph, target).text, tsr_value_kind_name(t->kind));
  if (tsr_dtype_is_narrow(t->dtype))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%s is %s, nothing can be assigned to it: train in f32, narrow weights serve",
                    tsr_graph_describe(graph, target).text, tsr_dtype_name(t->dtype));
  if (t->assigned.id)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s is assigned %s already, once is allowed",
                    tsr_graph_describe(graph, target).text, tsr_graph_describe(graph, t->assigned).text);
  TSR_RETURN_IF_FAILED(check_alike(graph, target, value, "become", error));
  t->assigned = value;
  return TSR_OK;
}
