#include "exec/session.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "plan/buffers.h"
#include "profile/measure.h"

enum { TURNS_BEFORE_REST = 1000 }; /* short work ends within these, and without the lateness of a sleep */

tsr_status tsr_session_usable(const tsr_session *session, const char *call, tsr_error *error) {
  if (session->poisoned)
    return tsr_fail(error, TSR_ERROR_POISONED,
                    "%s: the session failed earlier; only tsr_session_destroy is legal", call);
  if (session->in_flight)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s: a step is in flight; call tsr_session_wait first",
                    call);
  return TSR_OK;
}

tsr_status tsr_session_local(tsr_session *session, int member, tsr_local **out, tsr_error *error) {
  for (int i = 0; i < session->local_count; i++)
    if (session->locals[i].member == member) {
      *out = &session->locals[i];
      return TSR_OK;
    }
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "member %d is not driven by this process", member);
}

tsr_status tsr_session_agree(tsr_session *session, tsr_status own, tsr_error *error) {
  tsr_status status = tsr_group_agree(session->group, own, error, error);
  if (status == TSR_ERROR_RANK_LOST || status == TSR_ERROR_COMM) session->poisoned = true;
  return status;
}

tsr_status tsr_session_fail(tsr_session *session, tsr_status status) {
  session->poisoned = true;
  tsr_group_abandon(session->group);
  return status;
}

tsr_status tsr_local_blame(const tsr_local *local, tsr_status status, tsr_error *error) {
  if (status == TSR_OK || !error || error->rank >= 0) return status;
  error->rank = local->member;
  if (!error->device[0])
    snprintf(error->device, sizeof error->device, "%.*s", (int)sizeof error->device - 1,
             local->device->info.name);
  return status;
}

tsr_status tsr_session_tensor(const tsr_session *session, const tsr_local *local, tsr_value value,
                              tsr_tensor *out, tsr_error *error) {
  return tsr_tensor_of(session->plan, local->stores, local->active_index, value,
                       tsr_plan_final_place(session->plan, value), out, error);
}

/* ---- creation ---- */

static tsr_status allocate_stores(tsr_local *local, const tsr_plan *plan, tsr_error *error) {
  uint64_t before = tsr_device_bytes_used(local->device);
  local->stores = tsr_calloc((size_t)plan->storage_count, sizeof *local->stores);
  if (!local->stores)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %d stores", plan->storage_count);
  for (int i = 0; i < plan->storage_count; i++) {
    tsr_status status = tsr_store_init(&local->stores[i], plan, i, local->active_index, local->device, error);
    if (status != TSR_OK) {
      tsr_error_wrap(error, "while allocating the plan's %llu bytes",
                     (unsigned long long)plan->members[local->member].bytes);
      return status;
    }
  }
  local->allocated_bytes = tsr_device_bytes_used(local->device) - before;
  return TSR_OK;
}

static tsr_status allocate_host(tsr_local *local, const tsr_plan *plan, tsr_error *error) {
  size_t scratch = 0, packing = 0;
  for (int i = 0; i < plan->step_count; i++) {
    if (plan->steps[i].kind != TSR_STEP_CONVERT) continue;
    size_t own, all = tsr_plan_convert_host_bytes(plan, &plan->steps[i], local->active_index, &own);
    if (own > scratch) scratch = own;
    if (all - own > packing) packing = all - own;
  }
  local->scratch = tsr_malloc_pages(scratch);
  local->packing = tsr_malloc_pages(packing);
  local->converts = tsr_calloc((size_t)plan->step_count, sizeof *local->converts);
  if (!local->scratch || !local->packing || !local->converts)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no host memory for collectives (%zu bytes)",
                    scratch + packing);
  return TSR_OK;
}

static tsr_status create_converts(tsr_session *session, tsr_local *local, tsr_error *error) {
  const tsr_plan *plan = session->plan;
  for (int i = 0; i < plan->step_count; i++)
    if (plan->steps[i].kind == TSR_STEP_CONVERT)
      TSR_RETURN_IF_FAILED(tsr_convert_init(&local->converts[i], plan, &plan->steps[i], local->active_index,
                                            local->device, local->stores, session->group, local->scratch,
                                            local->packing, error));
  return TSR_OK;
}

/* States begin as zero. */
static tsr_status clear_states(tsr_session *session, tsr_local *local, tsr_error *error) {
  const tsr_graph *graph = session->plan->graph;
  for (size_t id = 1; id < graph->value_count; id++) {
    tsr_tensor tensor;
    if (graph->values[id].kind != TSR_STATE) continue;
    TSR_RETURN_IF_FAILED(tsr_session_tensor(session, local, (tsr_value){(uint32_t)id}, &tensor, error));
    TSR_RETURN_IF_FAILED(tsr_tensor_zero(local->device, &tensor, error));
  }
  return tsr_device_finish(local->device, error);
}

static tsr_status create_local(tsr_session *session, tsr_local *local, tsr_device *device, tsr_error *error) {
  const tsr_plan *plan = session->plan;
  local->device = device;
  local->active_index = -1;
  for (int r = 0; r < plan->decision.active_count; r++)
    if (plan->decision.active[r] == local->member) local->active_index = r;
  local->report.bytes_planned = plan->members[local->member].bytes;
  if (local->active_index < 0) return TSR_OK;
  TSR_RETURN_IF_FAILED(
      tsr_member_match(&plan->cluster->members[local->member], device, local->member, error));
  TSR_RETURN_IF_FAILED(allocate_stores(local, plan, error));
  local->report.bytes_allocated = local->allocated_bytes;
  TSR_RETURN_IF_FAILED(allocate_host(local, plan, error));
  return clear_states(session, local, error);
}

static tsr_status check_create(const tsr_group *group, const tsr_plan *plan, tsr_error *error) {
  if (!plan->feasible) return tsr_fail(error, TSR_ERROR_INFEASIBLE, "%s", plan->reason);
  if (tsr_group_member_count(group) != plan->cluster->member_count)
    return tsr_fail(error, TSR_ERROR_MISMATCH, "the plan is for %d members, the group has %d",
                    plan->cluster->member_count, tsr_group_member_count(group));
  return TSR_OK;
}

/* What this process alone can get wrong. */
static tsr_status allocate_session(tsr_group *group, const tsr_plan *plan, tsr_device *const *devices,
                                   size_t count, tsr_session **out, tsr_error *error) {
  if (count != (size_t)tsr_group_local_count(group))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%zu devices given, this process drives %d members",
                    count, tsr_group_local_count(group));
  for (size_t i = 0; i < count; i++)
    if (!devices || !devices[i])
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                      "device %zu of %zu is NULL: open one for each local member", i, count);
  tsr_session *session = tsr_calloc(1, sizeof *session);
  if (session) session->locals = tsr_calloc(count, sizeof *session->locals);
  if (session) session->sample_seconds = tsr_calloc(TSR_SESSION_SAMPLES, sizeof *session->sample_seconds);
  *out = session;
  if (!session || !session->locals || !session->sample_seconds) {
    tsr_session_destroy(out);
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a session");
  }
  *session = (tsr_session){.context = plan->context,
                           .group = group,
                           .plan = plan,
                           .local_count = (int)count,
                           .locals = session->locals,
                           .sample_seconds = session->sample_seconds,
                           .sample_stride = 1};
  return TSR_OK;
}

tsr_status tsr_session_create(tsr_group *group, const tsr_plan *plan, tsr_device *const *devices,
                              size_t count, tsr_session **out, tsr_error *error) {
  tsr_session *session;
  TSR_RETURN_IF_FAILED(check_create(group, plan, error));
  tsr_status status = allocate_session(group, plan, devices, count, &session, error);
  if (status != TSR_OK) return tsr_group_agree(group, status, error, error);
  for (size_t i = 0; i < count; i++) {
    tsr_local *local = &session->locals[i];
    local->member = tsr_group_local_member(group, (int)i);
    if (status == TSR_OK)
      status = tsr_local_blame(local, create_local(session, local, devices[i], error), error);
  }
  TSR_TRY(tsr_session_agree(session, status, error));
  for (int i = 0; i < session->local_count && status == TSR_OK; i++)
    if (session->locals[i].active_index >= 0)
      status =
          tsr_local_blame(&session->locals[i], create_converts(session, &session->locals[i], error), error);
  TSR_TRY(tsr_session_agree(session, status, error));
  *out = session;
  return TSR_OK;
done:
  tsr_session_destroy(&session);
  return status;
}

static void destroy_local(tsr_local *local, const tsr_plan *plan) {
  for (int i = 0; local->converts && i < plan->step_count; i++) tsr_convert_finish(&local->converts[i]);
  for (int i = 0; local->stores && i < plan->storage_count; i++)
    tsr_store_finish(&local->stores[i], local->device);
  tsr_trace_destroy(&local->trace, local->device);
  free(local->converts);
  free(local->stores);
  free(local->scratch);
  free(local->packing);
}

void tsr_session_destroy(tsr_session **session) {
  if (!*session) return;
  for (int i = 0; i < (*session)->local_count; i++) {
    if ((*session)->locals[i].device) tsr_device_finish((*session)->locals[i].device, NULL);
    destroy_local(&(*session)->locals[i], (*session)->plan);
  }
  free((*session)->sample_seconds);
  free((*session)->locals);
  free(*session);
  *session = NULL;
}

/* ---- a step ---- */

/* The nodes that are computed with a step's own. */
static tsr_status find_fused(const tsr_plan *plan, const tsr_local *local, const tsr_step *step,
                             tsr_launch *launch, tsr_error *error) {
  for (int i = 0; i < step->fused_count; i++) {
    const tsr_fused *fused = &step->fused[i];
    const tsr_node *node = &plan->graph->nodes[fused->node];
    tsr_launch_fused *out = &launch->fused[launch->fused_count++];
    *out = (tsr_launch_fused){.role = fused->role, .node = node};
    if (fused->operand < 0) continue;
    tsr_rule rules[TSR_RULES_MAX];
    tsr_operator_rules_of(node->op)->rules(plan->graph, node, rules);
    tsr_place place = rules[plan->decision.rules[fused->node]].in[fused->operand];
    TSR_RETURN_IF_FAILED(tsr_tensor_of(plan, local->stores, local->active_index, node->inputs[fused->operand],
                                       place, &out->operand, error));
  }
  return TSR_OK;
}

tsr_status tsr_local_launch(const tsr_session *session, const tsr_local *local, const tsr_step *step,
                            bool alone, tsr_error *error) {
  const tsr_plan *plan = session->plan;
  if (step->kind == TSR_STEP_COPY) {
    tsr_tensor from, to;
    TSR_RETURN_IF_FAILED(
        tsr_tensor_of(plan, local->stores, local->active_index, step->value, step->from, &from, error));
    TSR_RETURN_IF_FAILED(
        tsr_tensor_of(plan, local->stores, local->active_index, step->target, step->to, &to, error));
    return tsr_launch_copy(local->device, &from, &to, error);
  }
  const tsr_node *node = &plan->graph->nodes[step->node];
  tsr_rule rules[TSR_RULES_MAX];
  tsr_operator_rules_of(node->op)->rules(plan->graph, node, rules);
  tsr_launch launch = {.plan = plan,
                       .node = node,
                       .rule = &rules[plan->decision.rules[step->node]],
                       .device = local->device,
                       .owner = local->active_index == 0};
  if (!alone) TSR_RETURN_IF_FAILED(find_fused(plan, local, step, &launch, error));
  int workspace = tsr_plan_workspace(plan);
  if (workspace >= 0 && local->stores[workspace].piece_count)
    launch.workspace = local->stores[workspace].pieces[0];
  for (int j = 0; j < node->input_count; j++)
    TSR_RETURN_IF_FAILED(tsr_tensor_of(plan, local->stores, local->active_index, node->inputs[j],
                                       launch.rule->in[j], &launch.inputs[j], error));
  TSR_RETURN_IF_FAILED(
      tsr_tensor_of(plan, local->stores, local->active_index, step->value, step->to, &launch.output, error));
  return tsr_launch_node(&launch, error);
}

/* Between two stretches of the device's work the host does the rest. */
static tsr_status advance_convert(tsr_session *session, tsr_local *local, tsr_trace *trace, bool *ended,
                                  tsr_error *error) {
  tsr_convert *convert = &local->converts[local->step];
  uint64_t turn = session->step_count;
  if (!local->converting) {
    tsr_trace_begin(trace, local->device, local->step, TSR_TRACE_TO_HOST);
    TSR_RETURN_IF_FAILED(tsr_convert_begin(convert, error));
    TSR_RETURN_IF_FAILED(tsr_trace_end(trace, local->device, turn, local->step, TSR_TRACE_TO_HOST, error));
  }
  local->converting = true;
  TSR_RETURN_IF_FAILED(tsr_convert_test(convert, ended, error));
  if (!*ended) return TSR_OK;
  tsr_trace_convert(trace, turn, local->step, convert);
  tsr_trace_begin(trace, local->device, local->step, TSR_TRACE_TO_DEVICE);
  TSR_RETURN_IF_FAILED(tsr_convert_end(convert, error));
  local->report.comm_seconds += tsr_clock_seconds() - convert->times.ready;
  local->converting = false;
  return tsr_trace_end(trace, local->device, turn, local->step, TSR_TRACE_TO_DEVICE, error);
}

tsr_status tsr_local_advance(tsr_session *session, tsr_local *local, bool *ended, tsr_error *error) {
  const tsr_step *step = &session->plan->steps[local->step];
  tsr_trace *trace = session->in_flight ? local->trace : NULL; /* steps that are checked are not normal */
  *ended = false;
  if (step->kind != TSR_STEP_CONVERT) {
    tsr_trace_begin(trace, local->device, local->step, TSR_TRACE_KERNELS);
    TSR_RETURN_IF_FAILED(tsr_local_launch(session, local, step, false, error));
    TSR_RETURN_IF_FAILED(
        tsr_trace_end(trace, local->device, session->step_count, local->step, TSR_TRACE_KERNELS, error));
    *ended = true;
  } else {
    TSR_RETURN_IF_FAILED(advance_convert(session, local, trace, ended, error));
  }
  if (*ended) local->step++;
  return TSR_OK;
}

/* Goes on as far as it can without waiting. */
static tsr_status progress(tsr_session *session, tsr_local *local, tsr_error *error) {
  bool ended = true;
  while (ended && local->step < session->plan->step_count)
    TSR_RETURN_IF_FAILED(tsr_local_advance(session, local, &ended, error));
  if (local->step < session->plan->step_count) return TSR_OK;
  return tsr_device_poll(local->device, &local->done, error);
}

static bool excluded(const tsr_local *local) {
  return local->active_index < 0;
}

tsr_status tsr_session_start(tsr_session *session, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_session_usable(session, "tsr_session_start", error));
  for (int i = 0; i < session->local_count; i++) {
    tsr_local *local = &session->locals[i];
    local->step = 0;
    local->converting = false;
    local->done = excluded(local);
    local->report.comm_seconds = local->report.compute_seconds = 0;
    local->sent_before = tsr_group_bytes_sent(session->group, local->member);
  }
  session->started = tsr_group_now(session->group);
  session->in_flight = true;
  session->own_part_ended = false;
  session->step_status = TSR_OK;
  return TSR_OK;
}

/* Keeps the time of every stride-th step. */
static void note_seconds(tsr_session *session, double seconds) {
  uint64_t step = session->step_count++;
  session->last_seconds = seconds;
  if (step % session->sample_stride) return;
  if (session->sample_count == TSR_SESSION_SAMPLES) { /* step is an even multiple of the stride: it stays */
    session->sample_count /= 2;
    session->sample_stride *= 2;
    for (size_t i = 0; i < session->sample_count; i++)
      session->sample_seconds[i] = session->sample_seconds[2 * i];
  }
  session->sample_seconds[session->sample_count++] = seconds;
}

/* This process's part of the step has ended, well or not. */
static void end_own_part(tsr_session *session) {
  double seconds = tsr_group_now(session->group) - session->started;
  session->own_part_ended = true;
  for (int i = 0; i < session->local_count; i++)
    tsr_trace_turn_end(session->locals[i].trace, session->locals[i].device, session->step_count,
                       session->step_status == TSR_OK);
  note_seconds(session, seconds);
  for (int i = 0; i < session->local_count; i++) {
    tsr_local *local = &session->locals[i];
    local->report.bytes_sent = tsr_group_bytes_sent(session->group, local->member) - local->sent_before;
    local->report.compute_seconds = excluded(local) ? 0 : seconds - local->report.comm_seconds;
  }
}

tsr_status tsr_session_test(tsr_session *session, bool *done, tsr_error *error) {
  (void)error;
  *done = true;
  if (!session->in_flight || session->own_part_ended) return TSR_OK;
  for (int i = 0; i < session->local_count && session->step_status == TSR_OK; i++) {
    tsr_local *local = &session->locals[i];
    if (!local->done)
      session->step_status =
          tsr_local_blame(local, progress(session, local, &session->step_error), &session->step_error);
    *done &= local->done;
  }
  if (session->step_status == TSR_OK && !*done)
    session->step_status = tsr_group_beat(session->group, &session->step_error);
  *done |= session->step_status != TSR_OK;
  if (*done) end_own_part(session);
  return TSR_OK;
}

/* No local member waits for another's message. */
static bool only_devices_work(const tsr_session *session) {
  for (int i = 0; i < session->local_count; i++) {
    const tsr_local *local = &session->locals[i];
    if (local->converting && local->converts[local->step].phase == TSR_CONVERT_COLLECTIVE) return false;
  }
  return true;
}

/* A CPU device's threads may have no core but ours, and asking all the time takes it from them. */
static void rest(void) {
  const struct timespec a_moment = {.tv_nsec = 100000};
  nanosleep(&a_moment, NULL);
}

tsr_status tsr_session_wait(tsr_session *session, tsr_error *error) {
  bool done = false;
  if (!session->in_flight)
    return session->poisoned
               ? tsr_session_usable(session, "tsr_session_wait", error)
               : tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "tsr_session_wait: no step was started");
  for (int turns = 0;; turns++) {
    TSR_RETURN_IF_FAILED(tsr_session_test(session, &done, error));
    if (done) break;
    if (!only_devices_work(session)) turns = 0;
    if (turns < TURNS_BEFORE_REST)
      session->step_status = tsr_group_wait_turn(session->group, &session->step_error);
    else
      rest();
  }
  session->in_flight = false;
  if (session->step_status == TSR_OK) {
    tsr_status status = tsr_session_agree(session, TSR_OK, error);
    session->poisoned |= status != TSR_OK;
    return status;
  }
  if (error) *error = session->step_error;
  return tsr_session_fail(session, session->step_status);
}
