/* graph/append.c: the common end of all builders of operators: one more node, checked, and its output. */
#include "base/memory.h"
#include "base/text.h"
#include "graph/graph.h"

#include <assert.h>
#include <math.h>

bool tsr_shape_equal(const tsr_shape *a, const tsr_shape *b) {
  if (a->axes != b->axes) return false;
  for (int i = 0; i < a->axes; i++)
    if (a->extent[i] != b->extent[i]) return false;
  return true;
}

tsr_status tsr_graph_check_size(tsr_dtype dtype, const tsr_shape *shape, tsr_error *error) {
  int64_t bytes, count = tsr_shape_count(shape);
  char text[96];
  if (count >= 0 && tsr_multiply_fits(count, (int64_t)tsr_dtype_bytes(dtype), &bytes)) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                  "a value of shape %s takes more bytes than the limit of 2^63 - 1",
                  tsr_format_shape(text, sizeof text, shape));
}

/* All inputs have one type, but for the narrow weight of a product of f32. */
static tsr_status check_type(const tsr_graph *graph, const tsr_node *node, int i, const char *role,
                             tsr_error *error) {
  tsr_dtype first = tsr_graph_at(graph, node->inputs[0])->dtype,
            own = tsr_graph_at(graph, node->inputs[i])->dtype;
  bool weight = node->op == TSR_OPERATOR_MATMUL && i == 1;
  if (tsr_dtype_is_narrow(own) && !weight)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%s, %s, is %s: a narrow weight can be operand b of a product, and nothing else; make it "
                    "f32",
                    role, tsr_graph_describe(graph, node->inputs[i]).text, tsr_dtype_name(own));
  if (own == first || (weight && tsr_dtype_is_narrow(own) && first == TSR_F32)) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s is %s and a is %s, they must have one type%s", role,
                  tsr_dtype_name(own), tsr_dtype_name(first),
                  tsr_dtype_is_narrow(own) ? ", or a be f32" : "");
}

static tsr_status check_inputs(const tsr_graph *graph, const tsr_node *node, const tsr_operator_rules *rules,
                               tsr_error *error) {
  static const char *const roles[TSR_NODE_INPUTS_MAX] = {"a", "b", "c"};
  if (node->input_count < rules->inputs_min || node->input_count > rules->inputs_max)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%d inputs, %d to %d are needed", node->input_count,
                    rules->inputs_min, rules->inputs_max);
  for (int i = 0; i < node->input_count; i++) {
    TSR_RETURN_IF_FAILED(tsr_graph_check_value(graph, node->inputs[i], roles[i], error));
    TSR_RETURN_IF_FAILED(check_type(graph, node, i, roles[i], error));
  }
  return TSR_OK;
}

static tsr_status check_attributes(const tsr_node *node, tsr_error *error) {
  if (!isfinite(node->alpha) || !isfinite(node->beta))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "factors alpha = %g and beta = %g: both must be finite", node->alpha, node->beta);
  if ((size_t)node->unary >= TSR_UNARY_COUNT)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "function number %d, there are %d", (int)node->unary,
                    TSR_UNARY_COUNT);
  if (node->reduction != TSR_SUM && node->reduction != TSR_MAX)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "reduction number %d, there are 2",
                    (int)node->reduction);
  return TSR_OK;
}

static tsr_status check_node(const tsr_graph *graph, const tsr_node *node, const tsr_operator_rules *rules,
                             tsr_dtype *dtype, tsr_shape *shape, tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_inputs(graph, node, rules, error));
  TSR_RETURN_IF_FAILED(check_attributes(node, error));
  *dtype = tsr_graph_at(graph, node->inputs[0])->dtype;
  TSR_RETURN_IF_FAILED(rules->shape(graph, node, dtype, shape, error));
  return tsr_graph_check_size(*dtype, shape, error);
}

tsr_status tsr_graph_append(tsr_graph *graph, tsr_node *node, tsr_value *out, tsr_error *error) {
  tsr_graph_value value = {.kind = TSR_INTERMEDIATE, .producer = (int)graph->node_count};
  const tsr_operator_rules *rules = tsr_operator_rules_of(node->op);
  assert(rules);
  TSR_RETURN_IF_FAILED(tsr_graph_check_open(graph, error));
  tsr_status status = check_node(graph, node, rules, &value.dtype, &value.shape, error);
  if (status != TSR_OK) {
    tsr_error_wrap(error, "%s", rules->name);
    return status;
  }
  if (!TSR_GROW(graph->nodes, graph->node_count, graph->node_capacity))
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for node %zu of a graph",
                    graph->node_count + 1);
  TSR_RETURN_IF_FAILED(tsr_graph_add_value(graph, &value, &node->output, error));
  graph->nodes[graph->node_count++] = *node;
  *out = node->output;
  return TSR_OK;
}
