/* graph/graph.c: a graph as a container: made, copied, taken back, counted, asked. */
#include "graph/graph.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

/* Axes are numbered in 32 bits. */
enum { VALUES_MAX = 1 << 28 };

static const char *const kind_names[] = {[TSR_INPUT] = "input",
                                         [TSR_PARAMETER] = "parameter",
                                         [TSR_STATE] = "state",
                                         [TSR_INTERMEDIATE] = "intermediate"};

const char *tsr_value_kind_name(tsr_value_kind kind) {
  return (size_t)kind < sizeof kind_names / sizeof *kind_names ? kind_names[kind] : "?";
}

const char *tsr_place_name(tsr_place place) {
  static const char *const names[] = {"partial(max)", "partial(sum)", "replicate", "shard(0)",
                                      "shard(1)",     "shard(2)",     "shard(3)"};
  return place >= TSR_PLACE_MAX && place < TSR_AXES_MAX ? names[place - TSR_PLACE_MAX] : "?";
}

tsr_status tsr_graph_create(tsr_context *context, tsr_graph **out, tsr_error *error) {
  tsr_graph *graph = tsr_calloc(1, sizeof *graph);
  if (!graph || !TSR_GROW(graph->values, 0, graph->value_capacity)) {
    free(graph);
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a graph");
  }
  graph->context = context;
  memset(graph->values, 0, sizeof *graph->values);
  graph->value_count = 1;
  *out = graph;
  return TSR_OK;
}

void tsr_graph_destroy(tsr_graph **graph) {
  if (!*graph) return;
  tsr_graph_truncate(*graph, 1, 0);
  free((*graph)->values);
  free((*graph)->nodes);
  free(*graph);
  *graph = NULL;
}

static void free_value(tsr_graph_value *value) {
  free(value->name);
  free(value->output);
  free(value->pin_offsets);
}

void tsr_graph_truncate(tsr_graph *graph, size_t value_count, size_t node_count) {
  while (graph->value_count > value_count) free_value(&graph->values[--graph->value_count]);
  if (graph->node_count > node_count) graph->node_count = node_count;
}

tsr_status tsr_graph_add_value(tsr_graph *graph, const tsr_graph_value *value, tsr_value *out,
                               tsr_error *error) {
  if (graph->value_count >= VALUES_MAX)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "the graph has %zu values, the most there can be",
                    graph->value_count - 1);
  if (!TSR_GROW(graph->values, graph->value_count, graph->value_capacity))
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for value %zu of a graph", graph->value_count);
  out->id = (uint32_t)graph->value_count;
  graph->values[graph->value_count++] = *value;
  return TSR_OK;
}

/* Copies a text that may be NULL; false if there is no memory. */
static bool copy_text(const char *from, char **to) {
  *to = from ? tsr_text_copy(from) : NULL;
  return *to || !from;
}

static bool copy_offsets(const tsr_graph_value *from, tsr_graph_value *to) {
  if (!from->pin_offsets) return true;
  size_t bytes = ((size_t)from->pin_parts + 1) * sizeof *from->pin_offsets;
  to->pin_offsets = tsr_malloc(bytes);
  if (to->pin_offsets) memcpy(to->pin_offsets, from->pin_offsets, bytes);
  to->pin.on[0].offsets = to->pin_offsets;
  return to->pin_offsets != NULL;
}

static tsr_status copy_value(tsr_graph *graph, const tsr_graph_value *from, tsr_error *error) {
  tsr_graph_value value = *from;
  tsr_value ignored;
  value.name = value.output = NULL;
  value.pin_offsets = NULL;
  tsr_status status = TSR_ERROR_OUT_OF_MEMORY;
  if (copy_text(from->name, &value.name) && copy_text(from->output, &value.output) &&
      copy_offsets(from, &value))
    status = tsr_graph_add_value(graph, &value, &ignored, error);
  else
    tsr_fail(error, status, "no memory for the copy of a graph");
  if (status != TSR_OK) free_value(&value);
  return status;
}

tsr_status tsr_graph_copy(const tsr_graph *graph, tsr_graph **out, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_graph *copy = NULL;
  TSR_TRY(tsr_graph_create(graph->context, &copy, error));
  for (size_t id = 1; id < graph->value_count; id++) TSR_TRY(copy_value(copy, &graph->values[id], error));
  copy->nodes = tsr_calloc(graph->node_count, sizeof *copy->nodes);
  if (!copy->nodes) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for the copy of a graph");
  if (graph->node_count) memcpy(copy->nodes, graph->nodes, graph->node_count * sizeof *copy->nodes);
  copy->node_count = copy->node_capacity = graph->node_count;
  copy->frozen = true;
  *out = copy;
  return TSR_OK;
done:
  tsr_graph_destroy(&copy);
  return status;
}

tsr_status tsr_graph_check_open(const tsr_graph *graph, tsr_error *error) {
  if (!graph->frozen) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                  "the graph of %zu values is frozen, because a plan was made of it: build another one",
                  graph->value_count - 1);
}

tsr_status tsr_graph_check_value(const tsr_graph *graph, tsr_value value, const char *role,
                                 tsr_error *error) {
  if (value.id && value.id < graph->value_count) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s is value %u, but the graph has values 1 to %zu",
                  role, (unsigned)value.id, graph->value_count - 1);
}

tsr_description tsr_graph_describe(const tsr_graph *graph, tsr_value value) {
  tsr_description description;
  const tsr_graph_value *v = tsr_graph_at(graph, value);
  const char *name = v->name ? v->name : v->output ? v->output : "";
  char shape[96];
  tsr_format_shape(shape, sizeof shape, &v->shape);
  if (*name)
    snprintf(description.text, sizeof description.text, "value %u \"%.40s\" %s", (unsigned)value.id, name,
             shape);
  else
    snprintf(description.text, sizeof description.text, "value %u %s", (unsigned)value.id, shape);
  return description;
}

size_t tsr_graph_value_count(const tsr_graph *graph) {
  return graph->value_count - 1;
}

tsr_status tsr_graph_value_info(const tsr_graph *graph, tsr_value value, tsr_value_info *out,
                                tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_graph_check_value(graph, value, "the value asked for", error));
  const tsr_graph_value *v = tsr_graph_at(graph, value);
  *out = (tsr_value_info){.kind = v->kind,
                          .dtype = v->dtype,
                          .shape = v->shape,
                          .name = v->name ? v->name : "",
                          .output = v->output ? v->output : "",
                          .assigned = v->assigned.id != 0};
  return TSR_OK;
}

double tsr_graph_flops(const tsr_graph *graph) {
  double flops = 0;
  for (size_t i = 0; i < graph->node_count; i++) {
    const tsr_node *node = &graph->nodes[i];
    tsr_shape inputs[TSR_NODE_INPUTS_MAX];
    for (int j = 0; j < node->input_count; j++) inputs[j] = tsr_graph_at(graph, node->inputs[j])->shape;
    flops += tsr_operator_rules_of(node->op)->flops(node, inputs, &tsr_graph_at(graph, node->output)->shape);
  }
  return flops;
}
