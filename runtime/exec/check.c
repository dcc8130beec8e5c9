/* tsr_session_check: one step, checked part by part, and against the whole f64 oracle where that is
 * affordable. */
#include "exec/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

static const double DEFAULT_ORACLE_FLOPS = 1e9;

void tsr_check_options_init(tsr_check_options *options) {
  *options = (tsr_check_options){.struct_size = sizeof *options};
}

/* ---- parameters as they were before ---- */

/* What the step will overwrite, one block per local member and assigned value, in f64 (which holds f32
 * exactly). */
typedef struct snapshot {
  double **blocks; /* [local * value_count + value id] */
} snapshot;

static tsr_status transfer_assigned(tsr_session *session, snapshot *kept, bool restore, tsr_error *error) {
  const tsr_graph *graph = session->plan->graph;
  for (int i = 0; i < session->local_count; i++) {
    tsr_local *local = &session->locals[i];
    for (size_t id = 1; id < graph->value_count && local->active_index >= 0; id++) {
      tsr_tensor tensor;
      double **block = &kept->blocks[(size_t)i * graph->value_count + id];
      if (!graph->values[id].assigned.id) continue;
      TSR_RETURN_IF_FAILED(tsr_session_tensor(session, local, (tsr_value){(uint32_t)id}, &tensor, error));
      if (!*block) *block = tsr_calloc((size_t)(tensor.rows * tensor.cols), sizeof **block);
      if (!*block) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to keep the parameters");
      TSR_RETURN_IF_FAILED(tsr_local_blame(
          local,
          restore ? tsr_tensor_write(local->device, &tensor, *block, TSR_F64, tensor.cols, 1, error)
                  : tsr_tensor_read(local->device, &tensor, *block, TSR_F64, tensor.cols, 1, error),
          error));
    }
  }
  return TSR_OK;
}

static void free_snapshot(const tsr_session *session, snapshot *kept) {
  size_t count = (size_t)session->local_count * session->plan->graph->value_count;
  for (size_t i = 0; kept->blocks && i < count; i++) free(kept->blocks[i]);
  free(kept->blocks);
}

/* ---- the whole oracle ---- */

static tsr_status gather_f64(tsr_session *session, tsr_value value, double **out, tsr_error *error) {
  const tsr_shape *shape = &tsr_graph_at(session->plan->graph, value)->shape;
  *out = tsr_calloc((size_t)tsr_shape_count(shape), sizeof **out);
  tsr_status status = *out ? TSR_OK : tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the oracle");
  TSR_RETURN_IF_FAILED(tsr_session_agree(session, status, error));
  tsr_array array = tsr_array_dense(*out, TSR_F64, shape);
  return tsr_session_gather(session, value, &array, error);
}

/* What a narrow wire may add to an element, at most, relative to the sizes that are summed. */
static double wire_error(const tsr_plan *plan) {
  double most = 0;
  for (int i = 0; i < plan->step_count; i++) most = fmax(most, tsr_check_wire_error(plan, &plan->steps[i]));
  return most;
}

/* Every leaf as it is stored now; a narrow wire rounds it where it is gathered. */
static tsr_status gather_leaves(tsr_session *session, tsr_oracle_value *values, tsr_error *error) {
  const tsr_graph *graph = session->plan->graph;
  for (size_t id = 1; id < graph->value_count; id++) {
    if (graph->values[id].producer >= 0) continue;
    TSR_RETURN_IF_FAILED(gather_f64(session, (tsr_value){(uint32_t)id}, &values[id].exact, error));
    values[id].error = tsr_calloc((size_t)tsr_shape_count(&graph->values[id].shape), sizeof(double));
    tsr_status status =
        values[id].error ? TSR_OK : tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the oracle");
    TSR_RETURN_IF_FAILED(tsr_session_agree(session, status, error));
    int64_t count = graph->values[id].dtype == TSR_F32 ? tsr_shape_count(&graph->values[id].shape) : 0;
    for (int64_t i = 0; i < count; i++)
      values[id].error[i] = wire_error(session->plan) * fabs(values[id].exact[i]);
  }
  return TSR_OK;
}

/* found: outputs, and targets of assigns, which hold the assigned value now. */
static tsr_status compare(tsr_session *session, tsr_value found, tsr_value expected,
                          const tsr_oracle_value *values, tsr_finding *finding, tsr_error *error) {
  double *data = NULL;
  char buffer[80];
  const char *name = tsr_check_name(session->plan, found, buffer, sizeof buffer);
  const tsr_shape *shape = &tsr_graph_at(session->plan->graph, found)->shape;
  tsr_dtype dtype = tsr_graph_at(session->plan->graph, found)->dtype;
  tsr_status status = gather_f64(session, found, &data, error);
  int64_t count = tsr_shape_count(shape), rows, cols;
  tsr_shape_matrix(shape, &rows, &cols);
  for (int64_t i = 0; status == TSR_OK && i < count; i++) {
    double exact = values[expected.id].exact[i], bound = values[expected.id].error[i];
    /* Each operator's bound is at least a rounding of the largest number in it, which may overflow. */
    bound = tsr_check_bound(dtype, fabs(exact) + bound / tsr_dtype_epsilon(dtype), 4, bound);
    tsr_finding_note(finding, data[i], exact, bound, "%s, element (%lld, %lld) against the oracle", name,
                     (long long)(i / cols), (long long)(i % cols));
  }
  free(data);
  return status;
}

static tsr_status compare_all(tsr_session *session, const tsr_oracle_value *values, tsr_finding *finding,
                              tsr_error *error) {
  const tsr_graph *graph = session->plan->graph;
  for (size_t id = 1; id < graph->value_count; id++) {
    tsr_value self = {(uint32_t)id};
    if (graph->values[id].output && graph->values[id].producer >= 0)
      TSR_RETURN_IF_FAILED(compare(session, self, self, values, finding, error));
    if (graph->values[id].assigned.id)
      TSR_RETURN_IF_FAILED(compare(session, self, graph->values[id].assigned, values, finding, error));
  }
  return TSR_OK;
}

static void free_values(const tsr_graph *graph, tsr_oracle_value *values) {
  for (size_t id = 1; values && id < graph->value_count; id++) {
    free(values[id].exact);
    free(values[id].error);
  }
  free(values);
}

/* ---------------------------------------------------------------------------------------------------------------
 */

static tsr_status merge_findings(tsr_session *session, tsr_finding *finding, tsr_error *error) {
  tsr_status status = TSR_OK;
  size_t locals = (size_t)session->local_count, members = (size_t)tsr_group_member_count(session->group);
  tsr_finding *own = tsr_calloc(locals, sizeof *own), *all = tsr_calloc(members, sizeof *all);
  if (!own || !all) status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for findings");
  TSR_TRY(tsr_session_agree(session, status, error));
  own[0] = *finding; /* what this process found, once */
  TSR_TRY(tsr_session_agree(session, tsr_group_gather(session->group, own, sizeof *own, all, error), error));
  *finding = (tsr_finding){0};
  for (size_t i = 0; i < members; i++) tsr_finding_merge(finding, &all[i]);
done:
  free(own);
  free(all);
  return status;
}

static tsr_status run_checks(tsr_session *session, uint64_t seed, bool oracle, tsr_oracle_value *values,
                             tsr_finding *finding, tsr_error *error) {
  const tsr_graph *graph = session->plan->graph;
  if (oracle) TSR_RETURN_IF_FAILED(gather_leaves(session, values, error));
  TSR_RETURN_IF_FAILED(tsr_check_run_step(session, seed, finding, error));
  if (!oracle) return TSR_OK;
  TSR_RETURN_IF_FAILED(
      tsr_session_agree(session, tsr_graph_evaluate(graph, wire_error(session->plan), values, error), error));
  tsr_finding whole = {0};
  TSR_RETURN_IF_FAILED(compare_all(session, values, &whole, error));
  if (session->locals[0].member) whole.compared = whole.not_finite = 0; /* of every process the same */
  tsr_finding_merge(finding, &whole);
  return TSR_OK;
}

/* A number, infinity or NaN where another of them is right. */
static tsr_status fail_kind(const tsr_finding *finding, tsr_error *error) {
  bool overflow = isfinite(finding->expected) && !isfinite(finding->bound);
  return tsr_fail(error, TSR_ERROR_CHECK_FAILED, "verification failed: %s is %g, expected %g%s",
                  finding->where, isnan(finding->found) ? fabs(finding->found) : finding->found,
                  finding->expected, overflow ? ": something on the way is too large for its type" : "");
}

tsr_status tsr_session_check(tsr_session *session, const tsr_check_options *options, tsr_check *out,
                             tsr_error *error) {
  TSR_CHECK_OPTIONS_SIZE(options, tsr_check_options);
  TSR_RETURN_IF_FAILED(tsr_session_usable(session, "tsr_session_check", error));
  tsr_status status = TSR_OK;
  tsr_check_options defaults;
  tsr_check_options_init(&defaults);
  if (!options) options = &defaults;
  const tsr_graph *graph = session->plan->graph;
  double limit = options->oracle_flops == 0 ? DEFAULT_ORACLE_FLOPS : options->oracle_flops;
  *out = (tsr_check){.oracle = tsr_graph_flops(graph) <= limit};
  tsr_finding finding = {0};
  snapshot kept = {tsr_calloc((size_t)session->local_count * graph->value_count, sizeof(double *))};
  tsr_oracle_value *values = tsr_calloc(graph->value_count, sizeof *values);
  if (!kept.blocks || !values) status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a check");
  if (status == TSR_OK) status = transfer_assigned(session, &kept, false, error);
  TSR_TRY(tsr_session_agree(session, status, error));
  status = run_checks(session, options->seed, out->oracle, values, &finding, error);
  /* Also when that failed, unless no step can run any more. */
  if (status != TSR_OK && !session->poisoned) transfer_assigned(session, &kept, true, NULL);
  if (status != TSR_OK) goto done;
  TSR_TRY(tsr_session_agree(session, transfer_assigned(session, &kept, true, error), error));
  TSR_TRY(merge_findings(session, &finding, error));
  /* Where contents are NaN or too large, no bound exists. */
  bool compared = finding.where[0] != 0;
  out->passed = compared && finding.ratio <= 1;
  out->max_error = finding.error;
  out->bound = finding.bound;
  out->detectable = finding.detectable;
  out->compared = finding.compared;
  out->not_finite = finding.not_finite;
  out->wire_error = wire_error(session->plan);
  memcpy(out->where, finding.where, sizeof out->where);
  if (!compared)
    status =
        tsr_fail(error, TSR_ERROR_CHECK_FAILED,
                 "nothing could be verified: inputs or parameters hold NaN or infinity, or results overflow");
  else if (!out->passed && !isfinite(finding.error))
    status = fail_kind(&finding, error);
  else if (!out->passed)
    status =
        tsr_fail(error, TSR_ERROR_CHECK_FAILED, "verification failed: %s is off by %.3g, allowed is %.3g",
                 finding.where, finding.error, finding.bound);
done:
  free_snapshot(session, &kept);
  free_values(graph, values);
  return status;
}
