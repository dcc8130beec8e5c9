/* graph/gradients.c: reverse accumulation. From y backwards over the nodes in reverse order; each adds its
 * part to its inputs' adjoints, input by input, so that the order of every sum is fixed. Only values that lie
 * between y and a wanted value get an adjoint: nothing else is appended. */
#include "base/memory.h"
#include "graph/adjoint.h"
#include "graph/graph.h"

static tsr_status fail_needs_dy(const char *what, tsr_error *error) {
  return tsr_fail(
      error, TSR_ERROR_UNSUPPORTED,
      "%s needs the gradient it starts from as a value: give dy (an input that holds 1) instead of none",
      what);
}

tsr_status tsr_adjoint_value(tsr_adjoint dy, const tsr_node *node, tsr_value *out, tsr_error *error) {
  *out = dy.value;
  return dy.value.id ? TSR_OK : fail_needs_dy(tsr_operator_rules_of(node->op)->name, error);
}

tsr_status tsr_adjoint_finish(tsr_graph *graph, tsr_adjoint adjoint, tsr_value *out, tsr_error *error) {
  if (!adjoint.value.id) return fail_needs_dy("a gradient that is a constant", error);
  *out = adjoint.value;
  if (adjoint.factor == 1) return TSR_OK;
  return tsr_graph_scale(graph, adjoint.factor, adjoint.value, out, error);
}

tsr_status tsr_adjoint_accumulate(tsr_graph *graph, tsr_adjoint term, tsr_adjoint *sum, tsr_error *error) {
  if (!sum->value.id && !term.value.id) {
    sum->factor += term.factor;
    return TSR_OK;
  }
  if (!sum->value.id || !term.value.id) return fail_needs_dy("a sum with a constant", error);
  tsr_adjoint both = {.factor = 1};
  TSR_RETURN_IF_FAILED(
      tsr_graph_add(graph, sum->factor, sum->value, term.factor, term.value, &both.value, error));
  *sum = both;
  return TSR_OK;
}

static tsr_status check_wanted(const tsr_graph *graph, tsr_value wanted, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_graph_check_value(graph, wanted, "gradients: a value in wrt", error));
  tsr_dtype dtype = tsr_graph_at(graph, wanted)->dtype;
  if (!tsr_dtype_is_narrow(dtype)) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                  "gradients: %s is %s and has no gradient: train in f32, narrow weights serve",
                  tsr_graph_describe(graph, wanted).text, tsr_dtype_name(dtype));
}

/* Of each value that was there before. */
typedef struct mark {
  bool needed;  /* a wanted value, or computed from one */
  bool reached; /* and y depends on it: adjoint is valid */
  tsr_adjoint adjoint;
} mark;

static tsr_status check_arguments(const tsr_graph *graph, tsr_value y, tsr_value dy, const tsr_value *wrt,
                                  size_t count, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_graph_check_open(graph, error));
  TSR_RETURN_IF_FAILED(tsr_graph_check_value(graph, y, "gradients: y", error));
  for (size_t i = 0; i < count; i++) TSR_RETURN_IF_FAILED(check_wanted(graph, wrt[i], error));
  const tsr_graph_value *of = tsr_graph_at(graph, y);
  if (!dy.id && of->shape.axes)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "gradients: y, %s, is no scalar: dy of the same shape is needed",
                    tsr_graph_describe(graph, y).text);
  if (!dy.id) return TSR_OK;
  TSR_RETURN_IF_FAILED(tsr_graph_check_value(graph, dy, "gradients: dy", error));
  const tsr_graph_value *start = tsr_graph_at(graph, dy);
  if (start->dtype != of->dtype || !tsr_shape_equal(&start->shape, &of->shape))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "gradients: dy, %s of %s, must have the shape and type of y, %s of %s",
                    tsr_graph_describe(graph, dy).text, tsr_dtype_name(start->dtype),
                    tsr_graph_describe(graph, y).text, tsr_dtype_name(of->dtype));
  return TSR_OK;
}

static bool any_needed(const tsr_node *node, const mark *marks) {
  for (int i = 0; i < node->input_count; i++)
    if (marks[node->inputs[i].id].needed) return true;
  return false;
}

static void mark_needed(const tsr_graph *graph, const tsr_value *wrt, size_t count, mark *marks) {
  for (size_t i = 0; i < count; i++) marks[wrt[i].id].needed = true;
  for (size_t i = 0; i < graph->node_count; i++)
    if (any_needed(&graph->nodes[i], marks)) marks[graph->nodes[i].output.id].needed = true;
}

static tsr_status pull_back(tsr_graph *graph, tsr_node node, mark *marks, tsr_error *error) {
  const tsr_operator_rules *rules = tsr_operator_rules_of(node.op);
  tsr_adjoint dy = marks[node.output.id].adjoint, term;
  for (int i = 0; i < node.input_count; i++) {
    mark *input = &marks[node.inputs[i].id];
    if (!input->needed) continue;
    TSR_RETURN_IF_FAILED(rules->gradient(graph, &node, dy, i, &term, error));
    if (input->reached)
      TSR_RETURN_IF_FAILED(tsr_adjoint_accumulate(graph, term, &input->adjoint, error));
    else
      input->adjoint = term;
    input->reached = true;
  }
  return TSR_OK;
}

/* The gradient of a parameter ends in the parameter's layout: it must be a value of its own, not one that was
 * there before (it begins at value_count) or that is another parameter's as well. */
static tsr_status own_gradient(tsr_graph *graph, tsr_value parameter, size_t value_count, tsr_value *gradient,
                               tsr_error *error) {
  uint32_t of = tsr_graph_at(graph, *gradient)->gradient_of.id;
  bool is_new = gradient->id >= value_count;
  if (tsr_graph_at(graph, parameter)->kind != TSR_PARAMETER || (is_new && of == parameter.id)) return TSR_OK;
  if (!is_new || of) TSR_RETURN_IF_FAILED(tsr_graph_scale(graph, 1, *gradient, gradient, error));
  return tsr_graph_mark_gradient(graph, *gradient, parameter, error);
}

static tsr_status finish_wanted(tsr_graph *graph, tsr_value y, const tsr_value *wrt, size_t count,
                                size_t value_count, mark *marks, tsr_error *error) {
  for (size_t i = 0; i < count; i++) {
    mark *wanted = &marks[wrt[i].id];
    if (!wanted->reached)
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "gradients: y, %s, does not depend on wrt[%zu], %s",
                      tsr_graph_describe(graph, y).text, i, tsr_graph_describe(graph, wrt[i]).text);
    TSR_RETURN_IF_FAILED(tsr_adjoint_finish(graph, wanted->adjoint, &wanted->adjoint.value, error));
    wanted->adjoint.factor = 1;
    TSR_RETURN_IF_FAILED(own_gradient(graph, wrt[i], value_count, &wanted->adjoint.value, error));
  }
  return TSR_OK;
}

tsr_status tsr_graph_gradients(tsr_graph *graph, tsr_value y, tsr_value dy, const tsr_value *wrt,
                               size_t count, tsr_value *out, tsr_error *error) {
  tsr_status status = TSR_OK;
  size_t value_count = graph->value_count, node_count = graph->node_count;
  TSR_RETURN_IF_FAILED(check_arguments(graph, y, dy, wrt, count, error));
  mark *marks = tsr_calloc(value_count, sizeof *marks);
  if (!marks)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the gradients of %zu values",
                    value_count - 1);

  mark_needed(graph, wrt, count, marks);
  marks[y.id].reached = marks[y.id].needed;
  marks[y.id].adjoint = (tsr_adjoint){dy, 1};
  for (size_t i = node_count; i-- > 0;)
    if (marks[graph->nodes[i].output.id].reached) TSR_TRY(pull_back(graph, graph->nodes[i], marks, error));
  TSR_TRY(finish_wanted(graph, y, wrt, count, value_count, marks, error));
  for (size_t i = 0; i < count; i++) out[i] = marks[wrt[i].id].adjoint.value;
done:
  if (status != TSR_OK) tsr_graph_truncate(graph, value_count, node_count);
  free(marks);
  return status;
}
