/* Elementwise steps on sampled rows, reductions whole: the operator's own f64 oracle on the inputs as stored. What is
 * expected is computed before the step runs, because it may overwrite its input. */
#include <string.h>

#include "base/memory.h"
#include "exec/check.h"

enum { SAMPLED_ROWS = 16, SAMPLED_COLS = 1 << 14, WHOLE_MAX = 1 << 25 };

static bool is_reduction(const tsr_node *node) {
  return node->op == TSR_OPERATOR_REDUCE || node->op == TSR_OPERATOR_SQUARED_ERROR;
}

/* Rows of the output that are looked at: the edges, and random ones; and a window of columns, at a multiple of any
 * panel width. */
static void choose_sample(const tsr_tensor *output, uint64_t seed, tsr_step_probe *probe) {
  probe->row_count = output->rows < SAMPLED_ROWS ? output->rows : SAMPLED_ROWS;
  for (int64_t i = 0; i < probe->row_count; i++) {
    uint64_t random = (seed + (uint64_t)i) * 0x9e3779b97f4a7c15u;
    probe->rows[i] = output->rows <= SAMPLED_ROWS ? i
                     : i == 0                     ? 0
                     : i == 1                     ? output->rows - 1
                                                  : (int64_t)((random >> 11) % (uint64_t)output->rows);
  }
  probe->cols = output->cols < SAMPLED_COLS ? output->cols : SAMPLED_COLS;
  int64_t windows = (output->cols + SAMPLED_COLS - 1) / SAMPLED_COLS;
  probe->col = windows ? (int64_t)(seed % (uint64_t)windows) * SAMPLED_COLS : 0;
  if (probe->col + probe->cols > output->cols) probe->cols = output->cols - probe->col;
}

/* The part of an operand that belongs to one sampled row. */
static tsr_tensor row_of(tsr_tensor tensor, int64_t row, int64_t col, int64_t cols) {
  if (tensor.rows > 1) tensor.row0 += row;
  if (tensor.cols > 1) {
    tensor.col0 += col;
    tensor.cols = cols;
  }
  tensor.rows = 1;
  return tensor;
}

static void drop(tsr_step_probe *probe) {
  free(probe->expected);
  free(probe->bound);
  memset(probe, 0, sizeof *probe);
}

/* The oracle of one operator on small dense matrices; operands that this member does not add are zero. */
static tsr_status evaluate(const tsr_node *node, const tsr_rule *rule, bool owner, tsr_device *device,
                           const tsr_tensor *inputs, const tsr_shape *output, double epsilon, double *expected,
                           double *bound, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_shape shapes[TSR_NODE_INPUTS_MAX];
  tsr_oracle_value values[TSR_NODE_INPUTS_MAX] = {{0}};
  for (int j = 0; j < node->input_count; j++) {
    size_t count = (size_t)(inputs[j].rows * inputs[j].cols);
    shapes[j] = tsr_shape_of(2, inputs[j].rows, inputs[j].cols);
    values[j].exact = tsr_calloc(count, sizeof(double));
    values[j].error = tsr_calloc(count, sizeof(double));
    if (!values[j].exact || !values[j].error) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory to check a step");
    if (!rule->one_owner[j] || owner)
      TSR_TRY(tsr_tensor_read(device, &inputs[j], values[j].exact, TSR_F64, inputs[j].cols, 1, error));
  }
  tsr_operator_rules_of(node->op)->evaluate(node, shapes, output, values, epsilon,
                                            (tsr_oracle_value){expected, bound});
done:
  for (int j = 0; j < node->input_count; j++) {
    free(values[j].exact);
    free(values[j].error);
  }
  return status;
}

/* bias + activation in one step: the oracle of one after the other. */
static void evaluate_fused(const tsr_node *unary, int64_t cols, double epsilon, double *expected, double *bound) {
  tsr_shape shape = tsr_shape_of(2, 1, cols);
  tsr_oracle_value value = {expected, bound};
  tsr_operator_rules_of(unary->op)->evaluate(unary, &shape, &shape, &value, epsilon, value);
}

static tsr_status expect_rows(const tsr_node *node, const tsr_node *fused, const tsr_rule *rule, bool owner,
                              tsr_device *device, const tsr_tensor *inputs, double epsilon, tsr_step_probe *probe,
                              tsr_error *error) {
  tsr_shape output = tsr_shape_of(2, 1, probe->cols);
  for (int64_t i = 0; i < probe->row_count; i++) {
    tsr_tensor rows[TSR_NODE_INPUTS_MAX];
    double *expected = probe->expected + i * probe->cols, *bound = probe->bound + i * probe->cols;
    for (int j = 0; j < node->input_count; j++) rows[j] = row_of(inputs[j], probe->rows[i], probe->col, probe->cols);
    TSR_RETURN_IF_FAILED(
        evaluate(node, rule, owner, device, rows, &output, epsilon, expected, bound, error));
    if (fused) evaluate_fused(fused, probe->cols, epsilon, expected, bound);
  }
  return TSR_OK;
}

tsr_status tsr_check_elements_before(tsr_session *session, tsr_local *local, const tsr_step *step, uint64_t seed,
                                     tsr_step_probe *probe, tsr_error *error) {
  tsr_status status = TSR_OK;
  const tsr_plan *plan = session->plan;
  const tsr_node *node = &plan->graph->nodes[step->node];
  tsr_rule rule = tsr_check_rule(plan, step);
  tsr_tensor inputs[TSR_NODE_INPUTS_MAX], output;
  double epsilon = tsr_dtype_epsilon(tsr_graph_at(plan->graph, step->value)->dtype);
  bool whole = is_reduction(node), owner = local->active_index == 0;
  for (int j = 0; j < node->input_count; j++)
    TSR_RETURN_IF_FAILED(tsr_tensor_of(plan, local->stores, local->active_index, node->inputs[j], rule.in[j],
                                       &inputs[j], error));
  TSR_RETURN_IF_FAILED(
      tsr_tensor_of(plan, local->stores, local->active_index, step->value, step->to, &output, error));
  if (tsr_tensor_is_empty(&output) || (whole && tsr_tensor_is_empty(&inputs[0]))) return TSR_OK;
  if (whole && inputs[0].rows * inputs[0].cols > WHOLE_MAX) return TSR_OK;
  choose_sample(&output, seed, probe);
  if (whole) {
    probe->row_count = 1;
    probe->col = 0;
    probe->cols = output.cols;
  }
  probe->count = probe->row_count * probe->cols;
  probe->expected = tsr_calloc((size_t)probe->count, sizeof(double));
  probe->bound = tsr_calloc((size_t)probe->count, sizeof(double));
  if (!probe->expected || !probe->bound) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory to check a step");
  if (whole) {
    tsr_shape shape = tsr_plan_local_shape(plan, step->value, step->to, local->active_index);
    tsr_node as_matrix = *node; /* [n] is seen as [1, n] */
    if (tsr_graph_at(plan->graph, node->inputs[0])->shape.axes == 1) as_matrix.axis++;
    if (tsr_graph_at(plan->graph, node->inputs[0])->shape.axes == 1 && node->op == TSR_OPERATOR_REDUCE)
      shape = (tsr_shape){.axes = 1, .extent = {1}};
    TSR_TRY(evaluate(&as_matrix, &rule, owner, local->device, inputs, &shape, epsilon, probe->expected, probe->bound,
                     error));
  } else {
    const tsr_node *fused = step->fused < 0 ? NULL : &plan->graph->nodes[step->fused];
    TSR_TRY(expect_rows(node, fused, &rule, owner, local->device, inputs, epsilon, probe, error));
  }
done:
  if (status != TSR_OK) drop(probe);
  return status;
}

tsr_status tsr_check_elements_after(tsr_session *session, tsr_local *local, const tsr_step *step,
                                    tsr_step_probe *probe, tsr_finding *finding, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_tensor output;
  char buffer[80];
  const char *name = tsr_check_name(session->plan, step->value, buffer, sizeof buffer);
  double *found = tsr_calloc((size_t)probe->cols, sizeof *found);
  if (!probe->count) goto done;
  if (!found) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory to check a step");
  TSR_TRY(
      tsr_tensor_of(session->plan, local->stores, local->active_index, step->value, step->to, &output, error));
  for (int64_t i = 0; i < probe->row_count; i++) {
    tsr_tensor row = row_of(output, probe->rows[i], probe->col, probe->cols);
    TSR_TRY(tsr_tensor_read(local->device, &row, found, TSR_F64, probe->cols, 1, error));
    for (int64_t j = 0; j < probe->cols; j++)
      tsr_finding_note(finding, found[j], probe->expected[i * probe->cols + j], probe->bound[i * probe->cols + j],
                       "%s, element (%lld, %lld) of rank %d", name, (long long)probe->rows[i],
                       (long long)(probe->col + j), local->member);
  }
done:
  free(found);
  drop(probe);
  return status;
}
