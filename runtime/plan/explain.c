/* What lost: the plan is made again under one condition at a time, and compared. */
#include <stdio.h>

#include "base/memory.h"
#include "plan/decide.h"
#include "plan/plan_json.h"
#include "plan/plan_text.h"

/* A plan for the same graph and options on this cluster (taken), under a condition. */
static tsr_status plan_under(const tsr_plan *plan, tsr_cluster *cluster, tsr_search_options condition,
                             bool *allowed, bool *fits, double *seconds, tsr_error *error) {
  tsr_plan trial = {.context = plan->context,
                    .graph = plan->graph,
                    .cluster = cluster,
                    .options = plan->options,
                    .dims = plan->dims,
                    .dim_extents = plan->dim_extents,
                    .dim_count = plan->dim_count};
  tsr_status status = TSR_OK;
  *allowed = *fits = false;
  trial.members = tsr_calloc((size_t)cluster->member_count, sizeof *trial.members);
  if (!trial.members) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for %d members", cluster->member_count);
  status = tsr_plan_decide_with(&trial, condition, error);
  *allowed = status == TSR_OK;
  *fits = trial.feasible;
  *seconds = trial.predicted_seconds;
  if (status == TSR_ERROR_INFEASIBLE) status = TSR_OK;
done:
  tsr_plan_release(&trial);
  return status;
}

static tsr_status compare(const tsr_plan *plan, tsr_cluster *cluster, tsr_search_options condition,
                          const char *what, const char *remark, tsr_text *text, tsr_error *error) {
  bool allowed, fits;
  double seconds;
  char time[16];
  TSR_RETURN_IF_FAILED(plan_under(plan, cluster, condition, &allowed, &fits, &seconds, error));
  if (!allowed)
    tsr_text_append(text, "  %-40s not possible\n", what);
  else if (!fits)
    tsr_text_append(text, "  %-40s does not fit the memory\n", what);
  else
    tsr_text_append(text, "  %-40s %10s  %+7.1f %%%s\n", what, tsr_format_seconds(time, seconds),
                    100 * (seconds / plan->predicted_seconds - 1), remark);
  return TSR_OK;
}

/* The cluster, or its fastest member alone. */
static tsr_status copy_cluster(const tsr_plan *plan, int only, tsr_cluster **out, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_cluster_copy(plan->cluster, out, error));
  if (only < 0) return TSR_OK;
  (*out)->members[0] = plan->cluster->members[only];
  (*out)->member_count = 1;
  return TSR_OK;
}

static tsr_status explain_parameter(const tsr_plan *plan, tsr_value value, tsr_text *text, tsr_error *error) {
  const tsr_graph_value *at = tsr_graph_at(plan->graph, value);
  tsr_place chosen = plan->decision.choices[value.id].produced;
  for (tsr_place place = TSR_PLACE_REPLICATE; place < tsr_shape_split_axes(&at->shape); place++) {
    char what[80], remark[48] = "";
    tsr_cluster *cluster;
    if (place == chosen) continue;
    snprintf(what, sizeof what, "%.40s as %s, not %s", at->name, tsr_place_name(place),
             tsr_place_name(chosen));
    if (place == TSR_PLACE_REPLICATE && plan->options.replicate != TSR_REPLICATE_AUTO)
      snprintf(remark, sizeof remark, "  (--replicate %s)", tsr_replicate_name(plan->options.replicate));
    TSR_RETURN_IF_FAILED(copy_cluster(plan, -1, &cluster, error));
    tsr_search_options condition = {.forced = value, .forced_place = place};
    TSR_RETURN_IF_FAILED(compare(plan, cluster, condition, what, remark, text, error));
  }
  return TSR_OK;
}

tsr_status tsr_plan_explain(const tsr_plan *plan, tsr_text *text, tsr_error *error) {
  if (plan->cluster->member_count == 1) return TSR_OK;
  tsr_text_append(text, "\nwhat lost, and by how much\n");
  for (size_t id = 1; id < plan->graph->value_count; id++)
    if (plan->graph->values[id].kind == TSR_PARAMETER && plan->graph->values[id].shape.axes >= 2)
      TSR_RETURN_IF_FAILED(explain_parameter(plan, (tsr_value){(uint32_t)id}, text, error));
  tsr_cluster *cluster;
  TSR_RETURN_IF_FAILED(copy_cluster(plan, -1, &cluster, error));
  tsr_search_options replicated = {.replicate_all = true};
  char policy[48] = "";
  if (plan->options.replicate != TSR_REPLICATE_AUTO)
    snprintf(policy, sizeof policy, "  (--replicate %s)", tsr_replicate_name(plan->options.replicate));
  TSR_RETURN_IF_FAILED(compare(plan, cluster, replicated, "every parameter replicated", policy, text, error));
  int fastest = 0;
  for (int i = 1; i < plan->cluster->member_count; i++)
    if (plan->members[i].share > plan->members[fastest].share) fastest = i;
  char alone[48];
  snprintf(alone, sizeof alone, "rank %d alone", fastest);
  TSR_RETURN_IF_FAILED(copy_cluster(plan, fastest, &cluster, error));
  return compare(plan, cluster, (tsr_search_options){0}, alone, "", text, error);
}
