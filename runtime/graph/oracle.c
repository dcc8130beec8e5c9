/* graph/oracle.c: the whole graph in f64, with bounds of the rounding error of computing it in its own types.
 */
#include "base/memory.h"
#include "graph/graph.h"

static tsr_status prepare_leaf(const tsr_graph *graph, tsr_value value, tsr_oracle_value *slot,
                               tsr_error *error) {
  if (!slot->exact)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "the %s %s has no data for the oracle: fill it first",
                    tsr_value_kind_name(tsr_graph_at(graph, value)->kind),
                    tsr_graph_describe(graph, value).text);
  if (slot->error) return TSR_OK;
  slot->error = tsr_calloc((size_t)tsr_shape_count(&tsr_graph_at(graph, value)->shape), sizeof *slot->error);
  if (!slot->error)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the oracle of %s",
                    tsr_graph_describe(graph, value).text);
  return TSR_OK;
}

static tsr_status evaluate_node(const tsr_graph *graph, const tsr_node *node, double wire_error,
                                tsr_oracle_value *values, tsr_error *error) {
  const tsr_graph_value *output = tsr_graph_at(graph, node->output);
  tsr_oracle_value *out = &values[node->output.id], in[TSR_NODE_INPUTS_MAX] = {{0}};
  tsr_shape shapes[TSR_NODE_INPUTS_MAX] = {{0}};
  size_t count = (size_t)tsr_shape_count(&output->shape);
  for (int i = 0; i < node->input_count; i++) {
    in[i] = values[node->inputs[i].id];
    shapes[i] = tsr_graph_at(graph, node->inputs[i])->shape;
  }
  if (!out->exact) out->exact = tsr_calloc(count, sizeof *out->exact);
  if (!out->error) out->error = tsr_calloc(count, sizeof *out->error);
  if (!out->exact || !out->error)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the oracle of %s (two f64 arrays of %zu)",
                    tsr_graph_describe(graph, node->output).text, count);
  double epsilon = tsr_dtype_epsilon(output->dtype) + (output->dtype == TSR_F32 ? wire_error : 0);
  tsr_operator_rules_of(node->op)->evaluate(node, shapes, &output->shape, in, epsilon, *out);
  return TSR_OK;
}

tsr_status tsr_graph_evaluate(const tsr_graph *graph, double wire_error, tsr_oracle_value *values,
                              tsr_error *error) {
  for (uint32_t id = 1; id < graph->value_count; id++)
    if (graph->values[id].producer < 0)
      TSR_RETURN_IF_FAILED(prepare_leaf(graph, (tsr_value){id}, &values[id], error));
  for (size_t i = 0; i < graph->node_count; i++)
    TSR_RETURN_IF_FAILED(evaluate_node(graph, &graph->nodes[i], wire_error, values, error));
  return TSR_OK;
}
