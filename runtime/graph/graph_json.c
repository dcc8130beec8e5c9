/* graph/graph_json.c: a graph as JSON within a plan, and back through the builders' own checks. A value's id
 * is its place in "values", counted from 1; keys stand in one order, and absent means the default:
 *   {"values": [{"kind": "parameter", "name": "w1", "dtype": "f32", "shape": [384, 1536], "output": "w",
 *                "pin": {"axis": 1, "offsets": [0, 512, 1536]}, "assigned": 7}, {"kind": "intermediate",
 * ...}], "nodes": [{"op": "matmul", "inputs": [1, 2], "output": 3, "alpha": 1.0, ...}]} */
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "graph/graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 256, PLACE_BYTES = 48 };

/* --- writing: every helper sets *failed when memory runs out; jansson's "_new" functions take the reference
 * --- */

static void put(json_t *object, const char *key, json_t *value, bool *failed) {
  if (json_object_set_new(object, key, value)) *failed = true;
}

static json_t *array_of_numbers(const int64_t *numbers, int count, bool *failed) {
  json_t *array = json_array();
  for (int i = 0; i < count; i++)
    if (json_array_append_new(array, json_integer(numbers[i]))) *failed = true;
  return array;
}

static json_t *pin_to_json(const tsr_graph_value *value, bool *failed) {
  json_t *pin = json_object();
  if (value->pin.on[0].kind != TSR_SHARD) return pin;
  put(pin, "axis", json_integer(value->pin.on[0].axis), failed);
  if (value->pin_offsets)
    put(pin, "offsets", array_of_numbers(value->pin_offsets, value->pin_parts + 1, failed), failed);
  return pin;
}

static json_t *value_to_json(const tsr_graph_value *value, bool *failed) {
  json_t *object = json_object();
  put(object, "kind", json_string(tsr_value_kind_name(value->kind)), failed);
  if (value->name) put(object, "name", json_string(value->name), failed);
  put(object, "dtype", json_string(tsr_dtype_name(value->dtype)), failed);
  put(object, "shape", array_of_numbers(value->shape.extent, value->shape.axes, failed), failed);
  if (value->output) put(object, "output", json_string(value->output), failed);
  if (value->pinned) put(object, "pin", pin_to_json(value, failed), failed);
  if (value->assigned.id) put(object, "assigned", json_integer(value->assigned.id), failed);
  if (value->gradient_of.id) put(object, "gradient_of", json_integer(value->gradient_of.id), failed);
  return object;
}

static void put_attributes(json_t *object, const tsr_node *node, unsigned attributes, bool *failed) {
  if (attributes & TSR_ATTRIBUTE_ALPHA) put(object, "alpha", json_real(node->alpha), failed);
  if (attributes & TSR_ATTRIBUTE_BETA) put(object, "beta", json_real(node->beta), failed);
  if (attributes & TSR_ATTRIBUTE_TRANSPOSES) {
    put(object, "transpose_a", json_boolean(node->transpose_a), failed);
    put(object, "transpose_b", json_boolean(node->transpose_b), failed);
  }
  if (attributes & TSR_ATTRIBUTE_UNARY)
    put(object, "function", json_string(tsr_unary_name(node->unary)), failed);
  if (attributes & TSR_ATTRIBUTE_REDUCTION)
    put(object, "reduction", json_string(node->reduction == TSR_MAX ? "max" : "sum"), failed);
  if (attributes & TSR_ATTRIBUTE_AXIS) {
    put(object, "axis", json_integer(node->axis), failed);
    put(object, "unit_axis", json_boolean(node->unit_axis), failed);
  }
  if (attributes & TSR_ATTRIBUTE_WINDOW) {
    put(object, "stride", array_of_numbers(node->window.stride, 2, failed), failed);
    put(object, "padding", array_of_numbers(node->window.padding, 2, failed), failed);
    put(object, "dilation", array_of_numbers(node->window.dilation, 2, failed), failed);
    put(object, "groups", json_integer(node->window.groups), failed);
    put(object, "extent", array_of_numbers(node->window.extent, 2, failed), failed);
  }
}

static json_t *node_to_json(const tsr_node *node, bool *failed) {
  const tsr_operator_rules *rules = tsr_operator_rules_of(node->op);
  int64_t inputs[TSR_NODE_INPUTS_MAX];
  for (int i = 0; i < node->input_count; i++) inputs[i] = node->inputs[i].id;
  json_t *object = json_object();
  put(object, "op", json_string(rules->name), failed);
  put(object, "inputs", array_of_numbers(inputs, node->input_count, failed), failed);
  put(object, "output", json_integer(node->output.id), failed);
  put_attributes(object, node, rules->attributes, failed);
  return object;
}

json_t *tsr_graph_to_json(const tsr_graph *graph) {
  bool failed = false;
  json_t *object = json_object(), *values = json_array(), *nodes = json_array();
  for (size_t id = 1; id < graph->value_count; id++)
    if (json_array_append_new(values, value_to_json(&graph->values[id], &failed))) failed = true;
  for (size_t i = 0; i < graph->node_count; i++)
    if (json_array_append_new(nodes, node_to_json(&graph->nodes[i], &failed))) failed = true;
  put(object, "values", values, &failed);
  put(object, "nodes", nodes, &failed);
  if (!failed) return object;
  json_decref(object);
  return NULL;
}

/* What is written is all that a graph is. */
tsr_status tsr_graph_equal(const tsr_graph *a, const tsr_graph *b, bool *equal, tsr_error *error) {
  json_t *first = tsr_graph_to_json(a), *second = tsr_graph_to_json(b);
  const bool written = first && second;
  *equal = written && json_equal(first, second);
  json_decref(first);
  json_decref(second);
  return written ? TSR_OK : tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to compare two graphs");
}

/* --- reading --- */

/* Which of count names a member is. */
static tsr_status read_choice(const json_t *object, const char *place, const char *key,
                              const char *const *names, int count, int *out, tsr_error *error) {
  char text[NAME_BYTES];
  TSR_RETURN_IF_FAILED(tsr_json_text(object, place, key, text, sizeof text, error));
  for (*out = 0; *out < count; ++*out)
    if (!strcmp(text, names[*out])) return TSR_OK;
  char nearest[128];
  tsr_nearest_names(text, names, (size_t)count, nearest, sizeof nearest);
  return tsr_fail(error, TSR_ERROR_FORMAT, "%s.%s: \"%.80s\" is unknown; the nearest are %s", place, key,
                  text, nearest);
}

/* A new array of the integers in a member, each within [low, high]. */
static tsr_status read_numbers(const json_t *object, const char *place, const char *key, int64_t low,
                               int64_t high, int64_t **out, size_t *count, tsr_error *error) {
  json_t *array;
  TSR_RETURN_IF_FAILED(tsr_json_array(object, place, key, &array, error));
  *count = json_array_size(array);
  int64_t *numbers = tsr_calloc(*count, sizeof *numbers);
  if (!numbers) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %s.%s", place, key);
  for (size_t i = 0; i < *count; i++) {
    const json_t *item = json_array_get(array, i);
    numbers[i] = json_integer_value(item);
    if (json_is_integer(item) && numbers[i] >= low && numbers[i] <= high) continue;
    free(numbers);
    return tsr_fail(error, TSR_ERROR_FORMAT, "%s.%s[%zu] is no integer in [%lld, %lld]", place, key, i,
                    (long long)low, (long long)high);
  }
  *out = numbers;
  return TSR_OK;
}

/* What a builder refused is a fault of the document. */
static tsr_status blame_document(tsr_status status, const char *place, tsr_error *error) {
  if (status != TSR_ERROR_INVALID_ARGUMENT) return status;
  tsr_error_wrap(error, "%s", place);
  if (error) error->status = TSR_ERROR_FORMAT;
  return TSR_ERROR_FORMAT;
}

static tsr_status read_shape(const json_t *object, const char *place, tsr_shape *out, tsr_error *error) {
  int64_t *extents;
  size_t axes;
  TSR_RETURN_IF_FAILED(read_numbers(object, place, "shape", 1, INT64_MAX, &extents, &axes, error));
  *out = (tsr_shape){.axes = axes > TSR_AXES_MAX ? -1 : (int)axes};
  for (int i = 0; i < out->axes; i++) out->extent[i] = extents[i];
  free(extents);
  if (out->axes >= 0) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_FORMAT, "%s.shape has %zu axes, at most %d are allowed", place, axes,
                  TSR_AXES_MAX);
}

static tsr_status read_dtype(const json_t *object, const char *place, tsr_dtype *out, tsr_error *error) {
  static const char *const names[] = {
#define DTYPE_NAME(name, text, bytes) text,
      TSR_DTYPE_LIST(DTYPE_NAME)
#undef DTYPE_NAME
  };
  int choice;
  TSR_RETURN_IF_FAILED(
      read_choice(object, place, "dtype", names, sizeof names / sizeof *names, &choice, error));
  *out = (tsr_dtype)choice;
  return TSR_OK;
}

static tsr_status read_pair(const json_t *object, const char *place, const char *key, int64_t *out,
                            tsr_error *error) {
  int64_t *numbers = NULL;
  size_t count = 0;
  TSR_RETURN_IF_FAILED(read_numbers(object, place, key, 0, INT64_MAX, &numbers, &count, error));
  for (size_t i = 0; i < 2 && i < count; i++) out[i] = numbers[i];
  free(numbers);
  if (count == 2) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_FORMAT, "%s.%s has %zu numbers, 2 are needed", place, key, count);
}

static tsr_status read_window(const json_t *object, const char *place, tsr_window *out, tsr_error *error) {
  TSR_RETURN_IF_FAILED(read_pair(object, place, "stride", out->stride, error));
  TSR_RETURN_IF_FAILED(read_pair(object, place, "padding", out->padding, error));
  TSR_RETURN_IF_FAILED(read_pair(object, place, "dilation", out->dilation, error));
  TSR_RETURN_IF_FAILED(read_pair(object, place, "extent", out->extent, error));
  return tsr_json_integer(object, place, "groups", 1, INT64_MAX, &out->groups, error);
}

static tsr_status read_attributes(const json_t *object, const char *place, unsigned attributes,
                                  tsr_node *node, tsr_error *error) {
  static const char *const reductions[] = {[TSR_SUM] = "sum", [TSR_MAX] = "max"};
  const char *functions[TSR_UNARY_COUNT];
  int64_t axis = 0;
  int choice;
  for (int i = 0; i < TSR_UNARY_COUNT; i++) functions[i] = tsr_unary_name((tsr_unary)i);
  if (attributes & TSR_ATTRIBUTE_ALPHA)
    TSR_RETURN_IF_FAILED(tsr_json_real(object, place, "alpha", -INFINITY, &node->alpha, error));
  if (attributes & TSR_ATTRIBUTE_BETA)
    TSR_RETURN_IF_FAILED(tsr_json_real(object, place, "beta", -INFINITY, &node->beta, error));
  if (attributes & TSR_ATTRIBUTE_TRANSPOSES) {
    TSR_RETURN_IF_FAILED(tsr_json_bool(object, place, "transpose_a", &node->transpose_a, error));
    TSR_RETURN_IF_FAILED(tsr_json_bool(object, place, "transpose_b", &node->transpose_b, error));
  }
  if (attributes & TSR_ATTRIBUTE_UNARY) {
    TSR_RETURN_IF_FAILED(read_choice(object, place, "function", functions, TSR_UNARY_COUNT, &choice, error));
    node->unary = (tsr_unary)choice;
  }
  if (attributes & TSR_ATTRIBUTE_REDUCTION) {
    TSR_RETURN_IF_FAILED(read_choice(object, place, "reduction", reductions, 2, &choice, error));
    node->reduction = (tsr_reduction)choice;
  }
  if (attributes & TSR_ATTRIBUTE_AXIS) {
    TSR_RETURN_IF_FAILED(tsr_json_integer(object, place, "axis", 0, TSR_AXES_MAX, &axis, error));
    TSR_RETURN_IF_FAILED(tsr_json_bool(object, place, "unit_axis", &node->unit_axis, error));
  }
  node->axis = (int)axis;
  if (attributes & TSR_ATTRIBUTE_WINDOW)
    TSR_RETURN_IF_FAILED(read_window(object, place, &node->window, error));
  return TSR_OK;
}

static tsr_status read_node(const tsr_graph *graph, const json_t *object, const char *place, tsr_node *out,
                            tsr_error *error) {
  const char *names[TSR_OPERATOR_COUNT];
  int64_t *inputs, output;
  size_t count;
  int op;
  for (int i = 0; i < TSR_OPERATOR_COUNT; i++) names[i] = tsr_operator_rules_of((tsr_operator)i)->name;
  TSR_RETURN_IF_FAILED(read_choice(object, place, "op", names, TSR_OPERATOR_COUNT, &op, error));
  *out = (tsr_node){.op = (tsr_operator)op};
  TSR_RETURN_IF_FAILED(tsr_json_integer(object, place, "output", (int64_t)graph->value_count,
                                        (int64_t)graph->value_count, &output, error));
  TSR_RETURN_IF_FAILED(
      read_attributes(object, place, tsr_operator_rules_of(out->op)->attributes, out, error));
  TSR_RETURN_IF_FAILED(
      read_numbers(object, place, "inputs", 1, (int64_t)graph->value_count - 1, &inputs, &count, error));
  out->input_count = count > TSR_NODE_INPUTS_MAX ? TSR_NODE_INPUTS_MAX + 1 : (int)count;
  for (size_t i = 0; i < count && i < TSR_NODE_INPUTS_MAX; i++) out->inputs[i].id = (uint32_t)inputs[i];
  free(inputs);
  return TSR_OK;
}

/* The next intermediate is the output of the next node, and must be what that node makes. */
static tsr_status read_intermediate(tsr_graph *graph, const json_t *nodes, tsr_dtype dtype,
                                    const tsr_shape *shape, tsr_error *error) {
  char place[PLACE_BYTES];
  tsr_node node;
  tsr_value value;
  snprintf(place, sizeof place, "nodes[%zu]", graph->node_count);
  TSR_RETURN_IF_FAILED(read_node(graph, json_array_get(nodes, graph->node_count), place, &node, error));
  TSR_RETURN_IF_FAILED(blame_document(tsr_graph_append(graph, &node, &value, error), place, error));
  const tsr_graph_value *made = tsr_graph_at(graph, value);
  if (made->dtype == dtype && tsr_shape_equal(&made->shape, shape)) return TSR_OK;
  char stated[96];
  return tsr_fail(error, TSR_ERROR_FORMAT, "%s makes %s of %s, but \"values\" says %s of %s", place,
                  tsr_graph_describe(graph, value).text, tsr_dtype_name(made->dtype),
                  tsr_format_shape(stated, sizeof stated, shape), tsr_dtype_name(dtype));
}

static tsr_status read_value(tsr_graph *graph, const json_t *object, const json_t *nodes, const char *place,
                             tsr_error *error) {
  static const char *const kinds[] = {"input", "parameter", "state", "intermediate"};
  int kind;
  tsr_dtype dtype;
  tsr_shape shape;
  tsr_value value;
  char name[NAME_BYTES];
  TSR_RETURN_IF_FAILED(read_choice(object, place, "kind", kinds, 4, &kind, error));
  TSR_RETURN_IF_FAILED(read_dtype(object, place, &dtype, error));
  TSR_RETURN_IF_FAILED(read_shape(object, place, &shape, error));
  if (kind == TSR_INTERMEDIATE) return read_intermediate(graph, nodes, dtype, &shape, error);
  TSR_RETURN_IF_FAILED(tsr_json_text(object, place, "name", name, sizeof name, error));
  tsr_status status = tsr_graph_leaf(graph, (tsr_value_kind)kind, name, dtype, &shape, &value, error);
  return blame_document(status, place, error);
}

static tsr_status read_pin(tsr_graph *graph, tsr_value value, const json_t *object, const char *place,
                           tsr_error *error) {
  json_t *pin;
  int64_t axis, *offsets = NULL;
  size_t count = 2;
  tsr_layout layout = tsr_layout_replicate();
  TSR_RETURN_IF_FAILED(tsr_json_object(object, place, "pin", &pin, error));
  if (json_object_get(pin, "axis")) {
    TSR_RETURN_IF_FAILED(tsr_json_integer(pin, place, "axis", 0, TSR_AXES_MAX, &axis, error));
    if (json_object_get(pin, "offsets"))
      TSR_RETURN_IF_FAILED(read_numbers(pin, place, "offsets", 0, INT64_MAX, &offsets, &count, error));
    layout = tsr_layout_shard((int)axis, offsets ? (int)count - 1 : 0, offsets);
  }
  tsr_status status = TSR_OK;
  if (count < 2)
    status =
        tsr_fail(error, TSR_ERROR_FORMAT, "%s.offsets: %zu numbers, at least 2 are needed", place, count);
  else
    status = blame_document(tsr_graph_pin(graph, value, &layout, error), place, error);
  free(offsets);
  return status;
}

/* A member that is a value's id; absent = no value. */
static tsr_status read_id(const tsr_graph *graph, const json_t *object, const char *place, const char *key,
                          tsr_value *out, tsr_error *error) {
  int64_t id = 0;
  if (json_object_get(object, key))
    TSR_RETURN_IF_FAILED(
        tsr_json_integer(object, place, key, 1, (int64_t)graph->value_count - 1, &id, error));
  out->id = (uint32_t)id;
  return TSR_OK;
}

static tsr_status read_marks(tsr_graph *graph, tsr_value value, const json_t *object, const char *place,
                             tsr_error *error) {
  char name[NAME_BYTES];
  tsr_value becomes, parameter;
  if (json_object_get(object, "output")) {
    TSR_RETURN_IF_FAILED(tsr_json_text(object, place, "output", name, sizeof name, error));
    TSR_RETURN_IF_FAILED(blame_document(tsr_graph_output(graph, name, value, error), place, error));
  }
  if (json_object_get(object, "pin")) TSR_RETURN_IF_FAILED(read_pin(graph, value, object, place, error));
  TSR_RETURN_IF_FAILED(read_id(graph, object, place, "assigned", &becomes, error));
  TSR_RETURN_IF_FAILED(read_id(graph, object, place, "gradient_of", &parameter, error));
  if (becomes.id)
    TSR_RETURN_IF_FAILED(blame_document(tsr_graph_assign(graph, value, becomes, error), place, error));
  if (!parameter.id) return TSR_OK;
  return blame_document(tsr_graph_mark_gradient(graph, value, parameter, error), place, error);
}

tsr_status tsr_graph_from_json(tsr_context *context, const json_t *json, tsr_graph **out, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_graph *graph = NULL;
  json_t *values, *nodes;
  char place[PLACE_BYTES];
  TSR_TRY(tsr_json_array(json, "graph", "values", &values, error));
  TSR_TRY(tsr_json_array(json, "graph", "nodes", &nodes, error));
  TSR_TRY(tsr_graph_create(context, &graph, error));
  for (size_t i = 0; i < json_array_size(values); i++) {
    snprintf(place, sizeof place, "values[%zu]", i);
    TSR_TRY(read_value(graph, json_array_get(values, i), nodes, place, error));
  }
  for (size_t i = 0; i < json_array_size(values); i++) {
    snprintf(place, sizeof place, "values[%zu]", i);
    TSR_TRY(read_marks(graph, (tsr_value){(uint32_t)i + 1}, json_array_get(values, i), place, error));
  }
  if (graph->node_count != json_array_size(nodes))
    TSR_THROW(TSR_ERROR_FORMAT, "%zu nodes for %zu intermediate values: they must be as many",
              json_array_size(nodes), graph->node_count);
  graph->frozen = true;
  *out = graph;
  return TSR_OK;
done:
  tsr_graph_destroy(&graph);
  return status;
}
