/* Convolutions: sampled elements of what a member computes, each summed again in f64 from its inputs as
 * stored. Pooling and sums over channels: whole. */
#include <math.h>

#include "base/memory.h"
#include "exec/check.h"

/* Reads what a member holds of an input; *out is released with its arrays. */
static tsr_status read_images(tsr_device *device, const tsr_tensor *tensor, tsr_oracle_value *out,
                              tsr_error *error) {
  size_t count = (size_t)(tensor->rows * tensor->cols);
  *out = (tsr_oracle_value){tsr_calloc(count, sizeof(double)), tsr_calloc(count, sizeof(double))};
  if (!out->exact || !out->error)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to check a convolution");
  return tsr_tensor_read(device, tensor, out->exact, TSR_F64, tensor->cols, 1, error);
}

static double products_per_element(const tsr_node *node, const tsr_conv_geometry *g) {
  if (node->op == TSR_OPERATOR_CONV_WEIGHT) return (double)(g->n * g->p * g->q);
  return (double)((node->op == TSR_OPERATOR_CONV ? g->c : g->k_group) * g->r * g->s);
}

int64_t tsr_check_images_limit(const tsr_plan *plan, const tsr_step *step, int active_index) {
  const double most = 1 << 26; /* products: about a second */
  const tsr_node *node = &plan->graph->nodes[step->node];
  if (!tsr_operator_is_conv(node->op)) return INT64_MAX;
  const tsr_rule rule = tsr_check_rule(plan, step->node);
  const tsr_conv_geometry g = tsr_plan_conv(plan, node, &rule, active_index);
  double limit = most / (products_per_element(node, &g) + 1);
  return limit < 64 ? 64 : (int64_t)limit;
}

/* sum + the bias of the channel, with the error of adding it. */
static void add_bias(const tsr_conv_geometry *g, const double *bias, int64_t index, double epsilon,
                     double *sum, double *error) {
  const double b = bias[index / (g->p * g->q) % g->k_held];
  *sum += b;
  *error += epsilon * (fabs(b) + fabs(*sum));
}

tsr_status tsr_check_images_expect(const tsr_plan *plan, const tsr_step *step, int active_index,
                                   tsr_device *device, const tsr_tensor *inputs, const tsr_tensor *output,
                                   double epsilon, tsr_step_probe *probe, tsr_error *error) {
  tsr_status status = TSR_OK;
  const tsr_node *node = &plan->graph->nodes[step->node];
  const tsr_rule rule = tsr_check_rule(plan, step->node);
  const bool adds = node->input_count == 3 && (!rule.one_owner[2] || active_index == 0);
  tsr_oracle_value in[TSR_NODE_INPUTS_MAX] = {{0}};
  for (int j = 0; j < node->input_count; j++) TSR_TRY(read_images(device, &inputs[j], &in[j], error));
  if (!tsr_operator_is_conv(node->op)) { /* whole: channel_sum, pool and its gradient are quick */
    tsr_shape shapes[TSR_NODE_INPUTS_MAX],
        shape = tsr_plan_local_shape(plan, node->output, rule.out, active_index);
    for (int j = 0; j < node->input_count; j++)
      shapes[j] = tsr_plan_local_shape(plan, node->inputs[j], rule.in[j], active_index);
    tsr_operator_rules_of(node->op)->evaluate(node, shapes, &shape, in, epsilon,
                                              (tsr_oracle_value){probe->expected, probe->bound});
    goto done;
  }
  const tsr_conv_geometry g = tsr_plan_conv(plan, node, &rule, active_index);
  const tsr_conv_arrays arrays = tsr_conv_arrays_of(node, in);
  for (int64_t i = 0; i < probe->row_count; i++)
    for (int64_t j = 0; j < probe->cols; j++) {
      int64_t at = i * probe->cols + j,
              index = (probe->all_rows ? i : probe->rows[i]) * output->cols + probe->col + j;
      tsr_conv_element(node->op, &g, &arrays, index, epsilon, &probe->expected[at], &probe->bound[at]);
      if (adds) add_bias(&g, in[2].exact, index, epsilon, &probe->expected[at], &probe->bound[at]);
    }
done:
  for (int j = 0; j < node->input_count; j++) {
    free(in[j].exact);
    free(in[j].error);
  }
  return status;
}
