/* One step in lockstep: every member ends a part before anybody begins the next, and each part is checked.
 *
 * A collective is checked by sums with random signs over 256 classes of elements (by global index): what the
 * members held before must, added up, be what they hold after. */
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "exec/check.h"

enum { CLASSES = 256 };

/* splitmix64 (Steele, Lea, Flood 2014). */
double tsr_check_sign(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) & 1 ? 1 : -1;
}

/* Where there is no bound. */
static bool is_wrong_kind(double found, double expected, double bound) {
  if (isfinite(expected)) return isnan(found) && fabs(expected) <= FLT_MAX;
  return isnan(bound) && isfinite(found);
}

void tsr_finding_note(tsr_finding *finding, double found, double expected, double bound, const char *format,
                      ...) {
  double error = fabs(found - expected);
  bool bounded = isfinite(bound) && isfinite(expected);
  double ratio = found == expected ? 0 : bound > 0 && error <= HUGE_VAL ? error / bound : HUGE_VAL;
  finding->compared++;
  finding->not_finite += !bounded;
  if (!bounded && !is_wrong_kind(found, expected, bound)) return;
  if (!bounded) ratio = HUGE_VAL;
  if (bounded && 2 * bound > finding->detectable) finding->detectable = 2 * bound;
  if (finding->where[0] && ratio <= finding->ratio) return;
  finding->ratio = ratio;
  finding->error = found == expected ? 0 : error;
  finding->bound = bound;
  finding->found = found;
  finding->expected = expected;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(finding->where, sizeof finding->where, format, arguments);
  va_end(arguments);
}

void tsr_finding_merge(tsr_finding *finding, const tsr_finding *other) {
  tsr_finding sum = *finding;
  if (other->where[0] && (!finding->where[0] || other->ratio > finding->ratio)) sum = *other;
  sum.detectable = fmax(finding->detectable, other->detectable);
  sum.compared = finding->compared + other->compared;
  sum.not_finite = finding->not_finite + other->not_finite;
  *finding = sum;
}

double tsr_check_no_bound(tsr_dtype dtype) {
  return dtype == TSR_F64 ? INFINITY : NAN;
}

double tsr_check_bound(tsr_dtype dtype, double magnitude, double products, double bound) {
  double largest = dtype == TSR_F64 ? DBL_MAX : FLT_MAX, smallest = dtype == TSR_F64 ? DBL_MIN : FLT_MIN;
  return magnitude + bound < largest ? bound + products * smallest : tsr_check_no_bound(dtype);
}

double tsr_check_sum(double sum, double absolute) {
  return isnan(sum) && !isnan(absolute) ? INFINITY : sum;
}

tsr_rule tsr_check_rule(const tsr_plan *plan, int node) {
  tsr_rule rules[TSR_RULES_MAX];
  tsr_operator_rules_of(plan->graph->nodes[node].op)->rules(plan->graph, &plan->graph->nodes[node], rules);
  return rules[plan->decision.rules[node]];
}

const char *tsr_check_name(const tsr_plan *plan, tsr_value value, char *buffer, size_t bytes) {
  const tsr_graph_value *at = tsr_graph_at(plan->graph, value);
  if (at->name || at->output)
    snprintf(buffer, bytes, "%s", at->name ? at->name : at->output);
  else
    snprintf(buffer, bytes, "%s %%%u", tsr_operator_rules_of(plan->graph->nodes[at->producer].op)->name,
             value.id);
  return buffer;
}

/* Signed and absolute sums of what one member holds, by class of global index. */
typedef struct class_sums {
  double sum[CLASSES], absolute[CLASSES];
} class_sums;

static tsr_status sum_classes(tsr_session *session, tsr_local *local, tsr_value value, tsr_place place,
                              uint64_t seed, class_sums *sums, tsr_error *error) {
  const tsr_plan *plan = session->plan;
  tsr_tensor tensor;
  TSR_RETURN_IF_FAILED(tsr_tensor_of(plan, local->stores, local->active_index, value, place, &tensor, error));
  if (tsr_tensor_is_empty(&tensor)) return TSR_OK;
  const tsr_shape *shape = &tsr_graph_at(plan->graph, value)->shape;
  int64_t rows, cols, row0 = 0, col0 = 0, begin, end, unit;
  bool along_cols;
  tsr_shape_matrix(shape, &rows, &cols);
  if (place >= 0 && tsr_axis_matrix(shape, place, &along_cols, &unit)) {
    tsr_plan_range(plan, value, place, place, local->active_index, &begin, &end);
    *(along_cols ? &col0 : &row0) = begin * unit;
  }
  double *data = tsr_calloc((size_t)(tensor.rows * tensor.cols), sizeof *data);
  if (!data) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to check a collective");
  tsr_status status = tsr_tensor_read(local->device, &tensor, data, TSR_F64, tensor.cols, 1, error);
  for (int64_t i = 0; i < tensor.rows && status == TSR_OK; i++)
    for (int64_t j = 0; j < tensor.cols; j++) {
      uint64_t index = (uint64_t)((row0 + i) * cols + col0 + j);
      double element = data[i * tensor.cols + j];
      sums->sum[index % CLASSES] += tsr_check_sign(seed, index) * element;
      sums->absolute[index % CLASSES] += fabs(element);
    }
  free(data);
  return status;
}

/* Adds up every active member's sums for a layout of which each holds a part; of a replicated one, the own
 * sums. */
static tsr_status gather_sums(tsr_session *session, const class_sums *own, class_sums *total,
                              tsr_error *error) {
  size_t members = (size_t)tsr_group_member_count(session->group);
  class_sums *all = tsr_calloc(members, sizeof *all);
  tsr_status status =
      all ? TSR_OK : tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to check a collective");
  TSR_TRY(tsr_session_agree(session, status, error));
  TSR_TRY(tsr_session_agree(session, tsr_group_gather(session->group, own, sizeof *own, all, error), error));
  memset(total, 0, sizeof *total);
  for (size_t i = 0; i < members; i++)
    for (int j = 0; j < CLASSES; j++) {
      total->sum[j] += all[i].sum[j];
      total->absolute[j] += all[i].absolute[j];
    }
done:
  free(all);
  return status;
}

/* What the checks of one plan step remember from before it. */
typedef struct lockstep {
  tsr_session *session;
  uint64_t seed;
  class_sums *own; /* [local] */
  class_sums before;
  tsr_step_probe *probes; /* [local] */
  tsr_finding *finding;
} lockstep;

static tsr_status all_sums(lockstep *l, tsr_value value, tsr_place place, class_sums *total,
                           tsr_error *error) {
  tsr_status status = TSR_OK;
  memset(l->own, 0, (size_t)l->session->local_count * sizeof *l->own);
  for (int i = 0; i < l->session->local_count && status == TSR_OK; i++) {
    tsr_local *local = &l->session->locals[i];
    if (local->active_index >= 0)
      status = tsr_local_blame(
          local, sum_classes(l->session, local, value, place, l->seed, &l->own[i], error), error);
  }
  TSR_RETURN_IF_FAILED(tsr_session_agree(l->session, status, error));
  return gather_sums(l->session, l->own, total, error);
}

/* A maximum has no such sums, and of a block in the middle of three axes the global index is not known here.
 */
static bool has_sums(const lockstep *l, const tsr_step *step) {
  const tsr_shape *shape = &tsr_graph_at(l->session->plan->graph, step->value)->shape;
  return step->kind == TSR_STEP_CONVERT && step->from != TSR_PLACE_MAX && shape->axes != 3;
}

static bool is_product(const lockstep *l, const tsr_step *step) {
  return l->session->plan->graph->nodes[step->node].op == TSR_OPERATOR_MATMUL;
}

static bool is_plain_product(const lockstep *l, const tsr_step *step) {
  return is_product(l, step) && !step->fused_count;
}

/* A product with an epilogue is computed without it first, and checked; the whole step must then give what
 * the epilogue makes of that. */
static tsr_status before_local(lockstep *l, int index, const tsr_step *step, tsr_error *error) {
  tsr_local *local = &l->session->locals[index];
  if (is_product(l, step)) {
    int number = (int)(step - l->session->plan->steps), chunks = step->chunks > 1 ? step->chunks : 1;
    for (int i = 0; i < chunks; i++)
      TSR_RETURN_IF_FAILED(tsr_local_launch(l->session, local, number + 2 * i, true, error));
    TSR_RETURN_IF_FAILED(tsr_device_finish(local->device, error));
    TSR_RETURN_IF_FAILED(tsr_check_product(l->session, local, step, l->seed, l->finding, error));
  }
  return tsr_check_elements_before(l->session, local, step, l->seed, &l->probes[index], error);
}

static tsr_status before_step(lockstep *l, const tsr_step *step, tsr_error *error) {
  tsr_status status = TSR_OK;
  if (has_sums(l, step)) return all_sums(l, step->value, step->from, &l->before, error);
  if (step->kind != TSR_STEP_NODE || is_plain_product(l, step)) return TSR_OK;
  for (int i = 0; i < l->session->local_count && status == TSR_OK; i++)
    if (l->session->locals[i].active_index >= 0)
      status = tsr_local_blame(&l->session->locals[i], before_local(l, i, step, error), error);
  return tsr_session_agree(l->session, status, error);
}

/* Relative rounding error of the sums themselves, in f64, whatever the order. */
static double sum_error(const tsr_plan *plan, tsr_value value) {
  double count = (double)tsr_shape_count(&tsr_graph_at(plan->graph, value)->shape);
  return (count / CLASSES + plan->decision.active_count + 2) * DBL_EPSILON;
}

/* Where every element is moved as it is: sums that are not finite have elements that are not. */
static double moved_bound(const tsr_plan *plan, tsr_value value, double bound) {
  return isfinite(bound) ? bound : tsr_check_no_bound(tsr_graph_at(plan->graph, value)->dtype);
}

static double class_sum(const class_sums *sums, int i) {
  return tsr_check_sum(sums->sum[i], sums->absolute[i]);
}

double tsr_check_wire_error(const tsr_plan *plan, const tsr_step *step) {
  int64_t counts[plan->decision.active_count];
  tsr_collective_options options;
  if (step->kind != TSR_STEP_CONVERT) return 0;
  tsr_plan_collective(plan, step, counts, &options);
  return tsr_collective_wire_error(&options);
}

static void compare_sums(lockstep *l, const tsr_step *step, const class_sums *after, int member) {
  char buffer[80];
  const tsr_plan *plan = l->session->plan;
  const char *name = tsr_check_name(plan, step->value, buffer, sizeof buffer);
  double epsilon = tsr_dtype_epsilon(tsr_graph_at(plan->graph, step->value)->dtype);
  /* Adding up n summands rounds n - 1 times; moving data not at all. */
  double roundings = step->from < 0 ? plan->decision.active_count - 1 : 0;
  for (int j = 0; j < CLASSES; j++) {
    double absolute = l->before.absolute[j];
    double bound =
        (roundings * epsilon + sum_error(plan, step->value) + tsr_check_wire_error(plan, step)) * absolute;
    if (roundings > 0)
      bound = tsr_check_bound(tsr_graph_at(plan->graph, step->value)->dtype, absolute, 0, bound);
    bound = moved_bound(plan, step->value, bound);
    tsr_finding_note(l->finding, class_sum(after, j), class_sum(&l->before, j), bound,
                     "%s of %s, elements %d modulo %d of rank %d", tsr_collective_kind_name(step->collective),
                     name, j, CLASSES, member);
  }
}

static tsr_status after_convert(lockstep *l, const tsr_step *step, tsr_error *error) {
  class_sums total;
  TSR_RETURN_IF_FAILED(all_sums(l, step->value, step->to, &total, error));
  for (int i = 0; i < l->session->local_count; i++)
    if (l->session->locals[i].active_index >= 0)
      compare_sums(l, step, step->to >= 0 ? &total : &l->own[i], l->session->locals[i].member);
  return TSR_OK;
}

/* The target of an assign holds the value's own elements. */
static tsr_status after_copy(lockstep *l, const tsr_step *step, tsr_error *error) {
  class_sums total;
  char buffer[80];
  const tsr_plan *plan = l->session->plan;
  const char *name = tsr_check_name(plan, step->target, buffer, sizeof buffer);
  TSR_RETURN_IF_FAILED(all_sums(l, step->value, step->from, &l->before, error));
  TSR_RETURN_IF_FAILED(all_sums(l, step->target, step->to, &total, error));
  for (int j = 0; j < CLASSES; j++)
    tsr_finding_note(l->finding, class_sum(&total, j), class_sum(&l->before, j),
                     moved_bound(plan, step->value, sum_error(plan, step->value) * l->before.absolute[j]),
                     "assign to %s, elements %d modulo %d", name, j, CLASSES);
  return TSR_OK;
}

/* What is loaded or bound, and replicated, must be the same everywhere: every member's sums are the mean of
 * all. What is trained may differ by roundings, because every member updates its own copy. */
static tsr_status check_replica(lockstep *l, tsr_value value, tsr_error *error) {
  class_sums total;
  char buffer[80];
  const tsr_plan *plan = l->session->plan;
  const char *name = tsr_check_name(plan, value, buffer, sizeof buffer);
  double members = plan->decision.active_count;
  TSR_RETURN_IF_FAILED(all_sums(l, value, TSR_PLACE_REPLICATE, &total, error));
  for (int i = 0; i < l->session->local_count; i++)
    for (int j = 0; j < CLASSES && l->session->locals[i].active_index >= 0; j++)
      tsr_finding_note(l->finding, class_sum(&l->own[i], j), class_sum(&total, j) / members,
                       moved_bound(plan, value, sum_error(plan, value) * total.absolute[j] / members),
                       "%s of rank %d against the others, elements %d modulo %d", name,
                       l->session->locals[i].member, j, CLASSES);
  return TSR_OK;
}

static tsr_status check_replicas(lockstep *l, tsr_error *error) {
  const tsr_plan *plan = l->session->plan;
  for (size_t id = 1; id < plan->graph->value_count; id++) {
    const tsr_graph_value *at = &plan->graph->values[id];
    bool leaf = at->producer < 0 && !at->assigned.id && at->shape.axes != 3;
    if (leaf && plan->decision.active_count > 1 && plan->decision.choices[id].produced == TSR_PLACE_REPLICATE)
      TSR_RETURN_IF_FAILED(check_replica(l, (tsr_value){(uint32_t)id}, error));
  }
  return TSR_OK;
}

static tsr_status after_step(lockstep *l, const tsr_step *step, tsr_error *error) {
  tsr_status status = TSR_OK;
  if (has_sums(l, step)) return after_convert(l, step, error);
  if (step->kind == TSR_STEP_COPY) return after_copy(l, step, error);
  if (step->kind != TSR_STEP_NODE) return TSR_OK;
  for (int i = 0; i < l->session->local_count && status == TSR_OK; i++) {
    tsr_local *local = &l->session->locals[i];
    if (local->active_index < 0) continue;
    status = is_plain_product(l, step)
                 ? tsr_check_product(l->session, local, step, l->seed, l->finding, error)
                 : tsr_check_elements_after(l->session, local, step, &l->probes[i], l->finding, error);
    tsr_local_blame(local, status, error);
  }
  return tsr_session_agree(l->session, status, error);
}

/* All local members go through plan step `index`. */
static tsr_status run_one(tsr_session *session, int index, tsr_error *error) {
  for (int i = 0; i < session->local_count; i++)
    session->locals[i].done = session->locals[i].active_index < 0;
  for (bool all = false; !all;) {
    all = true;
    for (int i = 0; i < session->local_count; i++) {
      tsr_local *local = &session->locals[i];
      if (local->done) continue;
      TSR_RETURN_IF_FAILED(
          tsr_local_blame(local, tsr_local_run(session, local, index, &local->done, error), error));
      all &= local->done;
    }
    if (!all) TSR_RETURN_IF_FAILED(tsr_group_wait_turn(session->group, error));
  }
  for (int i = 0; i < session->local_count; i++)
    if (session->locals[i].active_index >= 0)
      TSR_RETURN_IF_FAILED(tsr_device_finish(session->locals[i].device, error));
  return TSR_OK;
}

/* And the other chunks of its product, or of its collective. */
static tsr_status run_part(tsr_session *session, int index, tsr_error *error) {
  int chunks = session->plan->steps[index].chunks;
  for (int i = 0; i < (chunks > 1 ? chunks : 1); i++)
    TSR_RETURN_IF_FAILED(run_one(session, index + 2 * i, error));
  return TSR_OK;
}

tsr_status tsr_check_run_step(tsr_session *session, uint64_t seed, tsr_finding *finding, tsr_error *error) {
  tsr_status status = TSR_OK;
  size_t locals = (size_t)session->local_count;
  lockstep l = {.session = session, .seed = seed, .finding = finding};
  l.own = tsr_calloc(locals, sizeof *l.own);
  l.probes = tsr_calloc(locals, sizeof *l.probes);
  if (!l.own || !l.probes) status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to check a step");
  TSR_TRY(tsr_session_agree(session, status, error));
  TSR_TRY(check_replicas(&l, error));
  for (int i = 0; i < session->plan->step_count; i++) {
    const tsr_step *step = &session->plan->steps[i];
    if (step->chunk) continue; /* ran with the first */
    TSR_TRY(before_step(&l, step, error));
    if ((status = run_part(session, i, error)) != TSR_OK) {
      tsr_session_fail(session, status);
      goto done;
    }
    TSR_TRY(after_step(&l, step, error));
  }
done:
  for (size_t i = 0; l.probes && i < locals; i++) tsr_check_elements_drop(&l.probes[i]);
  free(l.own);
  free(l.probes);
  return status;
}
