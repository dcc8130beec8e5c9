/* Elementwise steps whole (large ones on sampled rows), reductions whole: the operator's own f64 oracle on
 * the inputs as stored. What is expected is computed before the step runs, because it may overwrite its
 * input. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "exec/check.h"

enum {
  SAMPLED_ROWS = 16,
  SAMPLED_COLS = 1 << 14,
  REDUCED_MAX = 1 << 25,
  WHOLE_MAX = 1 << 22,
  AT_A_TIME = 1 << 18
};

static bool is_images(const tsr_node *node) {
  return tsr_operator_is_conv(node->op) || node->op == TSR_OPERATOR_CHANNEL_SUM ||
         node->op == TSR_OPERATOR_POOL || node->op == TSR_OPERATOR_POOL_GRADIENT;
}

static bool is_reduction(const tsr_node *node) {
  return node->op == TSR_OPERATOR_REDUCE || node->op == TSR_OPERATOR_SQUARED_ERROR;
}

/* Rows of the output that are looked at: all, up to `limit` elements, or the edges and random ones; and a
 * window of columns. */
static void choose_sample(const tsr_tensor *output, int64_t limit, uint64_t seed, tsr_step_probe *probe) {
  const int64_t fit = limit / SAMPLED_ROWS < SAMPLED_COLS ? limit / SAMPLED_ROWS : SAMPLED_COLS;
  probe->all_rows = output->rows * output->cols <= limit;
  if (probe->all_rows) {
    probe->row_count = output->rows;
    probe->cols = output->cols;
    return;
  }
  probe->row_count = output->rows < SAMPLED_ROWS ? output->rows : SAMPLED_ROWS;
  for (int64_t i = 0; i < probe->row_count; i++) {
    uint64_t random = (seed + (uint64_t)i) * 0x9e3779b97f4a7c15u;
    probe->rows[i] = output->rows <= SAMPLED_ROWS ? i
                     : i == 0                     ? 0
                     : i == 1                     ? output->rows - 1
                                                  : (int64_t)((random >> 11) % (uint64_t)output->rows);
  }
  probe->cols = output->cols < fit ? output->cols : fit;
  int64_t windows = (output->cols + fit - 1) / fit;
  probe->col = windows ? (int64_t)(seed % (uint64_t)windows) * fit : 0;
  if (probe->col + probe->cols > output->cols) probe->cols = output->cols - probe->col;
}

/* Sampled rows that are looked at together, from the i-th on. */
static int64_t rows_together(const tsr_step_probe *probe, int64_t i) {
  int64_t fit = AT_A_TIME / (probe->cols + 1) + 1, left = probe->row_count - i;
  return !probe->all_rows ? 1 : fit < left ? fit : left;
}

static int64_t row_at(const tsr_step_probe *probe, int64_t i) {
  return probe->all_rows ? i : probe->rows[i];
}

/* The part of an operand that belongs to sampled rows of the output; a single row or column is broadcast. */
static tsr_tensor rows_of(tsr_tensor tensor, const tsr_step_probe *probe, int64_t i) {
  if (tensor.rows > 1) {
    tensor.row0 += row_at(probe, i);
    tensor.rows = rows_together(probe, i);
  }
  if (tensor.cols > 1) {
    tensor.col0 += probe->col;
    tensor.cols = probe->cols;
  }
  return tensor;
}

void tsr_check_elements_drop(tsr_step_probe *probe) {
  free(probe->expected);
  free(probe->bound);
  memset(probe, 0, sizeof *probe);
}

/* The oracle of one operator on small dense matrices; operands that this member does not add are zero. */
static tsr_status evaluate(const tsr_node *node, const tsr_rule *rule, bool owner, tsr_device *device,
                           const tsr_tensor *inputs, const tsr_shape *output, double epsilon,
                           double *expected, double *bound, tsr_error *error) {
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

/* What a step reads: its node's inputs, and the other operands of the nodes computed with it. */
typedef struct operands {
  const tsr_plan *plan;
  const tsr_step *step;
  tsr_device *device;
  tsr_rule rule;
  bool owner;
  double epsilon;
  tsr_tensor inputs[TSR_NODE_INPUTS_MAX], fused[TSR_FUSED_MAX], output;
} operands;

static tsr_status find_operands(const tsr_session *session, const tsr_local *local, const tsr_step *step,
                                operands *out, tsr_error *error) {
  const tsr_plan *plan = session->plan;
  const tsr_node *node = &plan->graph->nodes[step->node];
  *out = (operands){.plan = plan,
                    .step = step,
                    .device = local->device,
                    .rule = tsr_check_rule(plan, step->node),
                    .owner = local->active_index == 0,
                    .epsilon = tsr_dtype_epsilon(tsr_graph_at(plan->graph, step->value)->dtype)};
  for (int j = 0; j < node->input_count; j++)
    TSR_RETURN_IF_FAILED(tsr_tensor_of(plan, local->stores, local->active_index, node->inputs[j],
                                       out->rule.in[j], &out->inputs[j], error));
  for (int i = 0; i < step->fused_count; i++) {
    const tsr_fused *fused = &step->fused[i];
    if (fused->operand < 0) continue;
    TSR_RETURN_IF_FAILED(tsr_tensor_of(
        plan, local->stores, local->active_index, plan->graph->nodes[fused->node].inputs[fused->operand],
        tsr_check_rule(plan, fused->node).in[fused->operand], &out->fused[i], error));
  }
  return tsr_tensor_of(plan, local->stores, local->active_index, step->value, step->to, &out->output, error);
}

/* One node computed with the step's own: its oracle on what was expected so far. */
static tsr_status expect_fused(const operands *o, int index, const tsr_step_probe *probe, int64_t i,
                               tsr_shape shape, tsr_oracle_value expected, tsr_error *error) {
  tsr_status status = TSR_OK;
  const tsr_fused *fused = &o->step->fused[index];
  const tsr_node *node = &o->plan->graph->nodes[fused->node];
  tsr_shape shapes[TSR_NODE_INPUTS_MAX] = {shape, shape};
  tsr_oracle_value values[TSR_NODE_INPUTS_MAX] = {expected, expected}, operand = {0};
  if (fused->operand >= 0) {
    tsr_tensor rows = rows_of(o->fused[index], probe, i);
    size_t count = (size_t)(rows.rows * rows.cols);
    shapes[fused->operand] = tsr_shape_of(2, rows.rows, rows.cols);
    operand = (tsr_oracle_value){tsr_calloc(count, sizeof(double)), tsr_calloc(count, sizeof(double))};
    if (!operand.exact || !operand.error) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory to check a step");
    if (o->owner || !tsr_check_rule(o->plan, fused->node).one_owner[fused->operand])
      TSR_TRY(tsr_tensor_read(o->device, &rows, operand.exact, TSR_F64, rows.cols, 1, error));
    values[fused->operand] = operand;
  }
  tsr_operator_rules_of(node->op)->evaluate(node, shapes, &shape, values, o->epsilon, expected);
done:
  free(operand.exact);
  free(operand.error);
  return status;
}

/* product: the output holds the product alone, which was checked; expected_already: the node's own part is
 * there; else its oracle comes first. */
static tsr_status expect_rows(const operands *o, bool product, bool expected_already, tsr_step_probe *probe,
                              tsr_error *error) {
  const tsr_node *node = &o->plan->graph->nodes[o->step->node];
  for (int64_t i = 0; i < probe->row_count; i += rows_together(probe, i)) {
    tsr_tensor rows[TSR_NODE_INPUTS_MAX], output = rows_of(o->output, probe, i);
    tsr_shape shape = tsr_shape_of(2, rows_together(probe, i), probe->cols);
    double *expected = probe->expected + i * probe->cols, *bound = probe->bound + i * probe->cols;
    for (int j = 0; j < node->input_count && !product && !expected_already; j++)
      rows[j] = rows_of(o->inputs[j], probe, i);
    if (!expected_already)
      TSR_RETURN_IF_FAILED(product
                               ? tsr_tensor_read(o->device, &output, expected, TSR_F64, probe->cols, 1, error)
                               : evaluate(node, &o->rule, o->owner, o->device, rows, &shape, o->epsilon,
                                          expected, bound, error));
    for (int f = 0; f < o->step->fused_count; f++)
      TSR_RETURN_IF_FAILED(expect_fused(o, f, probe, i, shape, (tsr_oracle_value){expected, bound}, error));
  }
  return TSR_OK;
}

static tsr_status expect_reduction(const operands *o, const tsr_local *local, tsr_step_probe *probe,
                                   tsr_error *error) {
  const tsr_plan *plan = o->plan;
  const tsr_node *node = &plan->graph->nodes[o->step->node];
  tsr_shape shape = tsr_plan_local_shape(plan, o->step->value, o->step->to, local->active_index);
  tsr_node as_matrix = *node; /* [n] is seen as [1, n] */
  if (tsr_graph_at(plan->graph, node->inputs[0])->shape.axes == 1) as_matrix.axis++;
  if (tsr_graph_at(plan->graph, node->inputs[0])->shape.axes == 1 && node->op == TSR_OPERATOR_REDUCE)
    shape = (tsr_shape){.axes = 1, .extent = {1}};
  return evaluate(&as_matrix, &o->rule, o->owner, o->device, o->inputs, &shape, o->epsilon, probe->expected,
                  probe->bound, error);
}

tsr_status tsr_check_elements_before(tsr_session *session, tsr_local *local, const tsr_step *step,
                                     uint64_t seed, tsr_step_probe *probe, tsr_error *error) {
  tsr_status status = TSR_OK;
  const tsr_node *node = &session->plan->graph->nodes[step->node];
  operands o;
  const bool whole = is_reduction(node), product = node->op == TSR_OPERATOR_MATMUL;
  TSR_RETURN_IF_FAILED(find_operands(session, local, step, &o, error));
  if (tsr_tensor_is_empty(&o.output) || (whole && tsr_tensor_is_empty(&o.inputs[0]))) return TSR_OK;
  if (whole && o.inputs[0].rows * o.inputs[0].cols > REDUCED_MAX) return TSR_OK;
  if (node->op == TSR_OPERATOR_SCALE && node->unit_axis)
    o.inputs[0] = tsr_tensor_reshape(o.inputs[0], o.output.rows, o.output.cols);
  const bool images = is_images(node);
  choose_sample(&o.output,
                whole    ? INT64_MAX
                : images ? tsr_check_images_limit(session->plan, step, local->active_index)
                         : WHOLE_MAX,
                seed, probe);
  probe->count = probe->row_count * probe->cols;
  probe->expected = tsr_calloc((size_t)probe->count, sizeof(double));
  probe->bound = tsr_calloc((size_t)probe->count, sizeof(double));
  if (!probe->expected || !probe->bound) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory to check a step");
  if (images)
    TSR_TRY(tsr_check_images_expect(session->plan, step, local->active_index, local->device, o.inputs,
                                    &o.output, o.epsilon, probe, error));
  TSR_TRY(whole ? expect_reduction(&o, local, probe, error) : expect_rows(&o, product, images, probe, error));
done:
  if (status != TSR_OK) tsr_check_elements_drop(probe);
  return status;
}

/* Of some sampled rows, from the i-th on. */
static void compare(const tsr_step_probe *probe, int64_t i, const double *found, tsr_dtype dtype,
                    const char *name, int member, tsr_finding *finding) {
  for (int64_t at = 0; at < rows_together(probe, i) * probe->cols; at++) {
    double expected = probe->expected[i * probe->cols + at];
    double bound = probe->bound[i * probe->cols + at];
    bound = tsr_check_bound(dtype, fabs(expected) + bound / tsr_dtype_epsilon(dtype), 4, bound);
    tsr_finding_note(finding, found[at], expected, bound, "%s, element (%lld, %lld) of rank %d", name,
                     (long long)(row_at(probe, i) + at / probe->cols),
                     (long long)(probe->col + at % probe->cols), member);
  }
}

tsr_status tsr_check_elements_after(tsr_session *session, tsr_local *local, const tsr_step *step,
                                    tsr_step_probe *probe, tsr_finding *finding, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_tensor output;
  char buffer[80];
  const char *name = tsr_check_name(session->plan, step->value, buffer, sizeof buffer);
  if (!probe->count) return TSR_OK;
  double *found = tsr_calloc((size_t)(rows_together(probe, 0) * probe->cols), sizeof *found);
  if (!found) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory to check a step");
  TSR_TRY(tsr_tensor_of(session->plan, local->stores, local->active_index, step->value, step->to, &output,
                        error));
  for (int64_t i = 0; i < probe->row_count; i += rows_together(probe, i)) {
    tsr_tensor rows = rows_of(output, probe, i);
    TSR_TRY(tsr_tensor_read(local->device, &rows, found, TSR_F64, probe->cols, 1, error));
    compare(probe, i, found, output.dtype, name, local->member, finding);
  }
done:
  free(found);
  tsr_check_elements_drop(probe);
  return status;
}
