#include "exec/session.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
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

tsr_status tsr_session_note(tsr_session *session, tsr_status status) {
  if (status == TSR_ERROR_RANK_LOST || status == TSR_ERROR_COMM) session->poisoned = true;
  return status;
}

tsr_status tsr_session_agree(tsr_session *session, tsr_status own, tsr_error *error) {
  return tsr_session_note(session, tsr_group_agree(session->group, own, error, error));
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

/* Whether a storage holds an end of a conversion: what other members read. */
static bool is_exchanged(const tsr_plan *plan, int storage) {
  for (int i = 0; i < plan->step_count; i++) {
    const tsr_step *step = &plan->steps[i];
    const tsr_place ends[] = {step->from, step->to};
    for (int end = 0; end < 2 && step->kind == TSR_STEP_CONVERT; end++) {
      bool is_view;
      int buffer = tsr_plan_find_buffer(plan, step->value, ends[end], &is_view);
      if (buffer >= 0 && plan->buffers[buffer].storage == storage) return true;
    }
  }
  return false;
}

static tsr_status allocate_stores(tsr_session *session, tsr_local *local, tsr_error *error) {
  const tsr_plan *plan = session->plan;
  uint64_t before = tsr_device_bytes_used(local->device);
  local->stores = tsr_calloc((size_t)plan->storage_count, sizeof *local->stores);
  if (!local->stores)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %d stores", plan->storage_count);
  for (int i = 0; i < plan->storage_count; i++) {
    tsr_group *group = is_exchanged(plan, i) ? session->group : NULL;
    tsr_status status =
        tsr_store_init(&local->stores[i], plan, i, local->active_index, local->device, group, error);
    if (status != TSR_OK) {
      tsr_error_wrap(error, "while allocating the plan's %llu bytes",
                     (unsigned long long)plan->members[local->member].bytes);
      return status;
    }
  }
  local->allocated_bytes = tsr_device_bytes_used(local->device) - before;
  return TSR_OK;
}

/* Of the group where it has any. */
static tsr_host_pages allocate_pages(const tsr_session *session, const tsr_local *local, size_t bytes) {
  void *shared = tsr_group_memory_create(session->group, local->member, bytes);
  return (tsr_host_pages){.data = shared ? shared : tsr_malloc_pages(bytes), .of_group = shared != NULL};
}

static void free_pages(const tsr_session *session, tsr_host_pages *pages) {
  if (pages->of_group)
    tsr_group_memory_destroy(session->group, pages->data);
  else
    tsr_group_free(session->group, pages->data);
}

static tsr_status allocate_host(const tsr_session *session, tsr_local *local, tsr_error *error) {
  const tsr_plan *plan = session->plan;
  size_t scratch = 0, packing = 0;
  for (int i = 0; i < plan->step_count; i++) {
    if (plan->steps[i].kind != TSR_STEP_CONVERT) continue;
    size_t own, all = tsr_plan_convert_host_bytes(plan, &plan->steps[i], local->active_index, &own);
    if (own > scratch) scratch = own;
    if (all - own > packing) packing = all - own;
  }
  local->scratch = allocate_pages(session, local, scratch);
  local->packing = allocate_pages(session, local, packing);
  local->converts = tsr_calloc((size_t)plan->step_count, sizeof *local->converts);
  if (!local->scratch.data || !local->packing.data || !local->converts)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no host memory for collectives (%zu bytes)",
                    scratch + packing);
  return TSR_OK;
}

static tsr_status create_converts(tsr_session *session, tsr_local *local, tsr_error *error) {
  const tsr_plan *plan = session->plan;
  for (int i = 0; i < plan->step_count; i++)
    if (plan->steps[i].kind == TSR_STEP_CONVERT)
      TSR_RETURN_IF_FAILED(tsr_convert_init(&local->converts[i], plan, &plan->steps[i], local->active_index,
                                            local->device, local->stores, session->group, local->scratch.data,
                                            local->packing.data, error));
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
  TSR_RETURN_IF_FAILED(allocate_stores(session, local, error));
  local->report.bytes_allocated = local->allocated_bytes;
  TSR_RETURN_IF_FAILED(allocate_host(session, local, error));
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

static void destroy_local(const tsr_session *session, tsr_local *local) {
  const tsr_plan *plan = session->plan;
  for (int i = 0; local->converts && i < plan->step_count; i++) tsr_convert_finish(&local->converts[i]);
  for (int i = 0; local->stores && i < plan->storage_count; i++)
    tsr_store_finish(&local->stores[i], local->device);
  tsr_trace_destroy(&local->trace, local->device);
  free(local->converts);
  free(local->stores);
  free_pages(session, &local->scratch);
  free_pages(session, &local->packing);
}

void tsr_session_destroy(tsr_session **session) {
  if (!*session) return;
  for (int i = 0; i < (*session)->local_count; i++) {
    if ((*session)->locals[i].device) tsr_device_finish((*session)->locals[i].device, NULL);
    destroy_local(*session, &(*session)->locals[i]);
  }
  free((*session)->sample_seconds);
  free((*session)->locals);
  free(*session);
  *session = NULL;
}

/* ---- a step ---- */

static bool excluded(const tsr_local *local) {
  return local->active_index < 0;
}

tsr_status tsr_session_start(tsr_session *session, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_session_usable(session, "tsr_session_start", error));
  for (int i = 0; i < session->local_count; i++) {
    tsr_local *local = &session->locals[i];
    tsr_local_rewind(local);
    local->done = excluded(local);
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
    local->report.compute_seconds = excluded(local) ? 0 : seconds - local->report.exposed_seconds;
  }
}

tsr_status tsr_session_test(tsr_session *session, bool *done, tsr_error *error) {
  (void)error;
  *done = true;
  if (!session->in_flight || session->own_part_ended) return TSR_OK;
  for (int i = 0; i < session->local_count && session->step_status == TSR_OK; i++) {
    tsr_local *local = &session->locals[i];
    if (!local->done)
      session->step_status = tsr_local_blame(local, tsr_local_progress(session, local, &session->step_error),
                                             &session->step_error);
    *done &= local->done;
  }
  if (session->step_status == TSR_OK && !*done)
    session->step_status = tsr_group_beat(session->group, &session->step_error);
  *done |= session->step_status != TSR_OK;
  if (*done) end_own_part(session);
  return TSR_OK;
}

/* Every local member's device has something to do. A message that is on its way meanwhile is asked for when
 * the rest has ended: no core is to be lost to asking, where it is the device's as well. */
static bool only_devices_work(const tsr_session *session) {
  for (int i = 0; i < session->local_count; i++)
    if (!session->locals[i].done && session->locals[i].idle) return false;
  return true;
}

/* Every local member waits for another's message: that wakes this process, which a device does not. */
static bool only_messages_matter(const tsr_session *session) {
  for (int i = 0; i < session->local_count; i++) {
    const tsr_local *local = &session->locals[i];
    if (!local->done && !(local->idle_since > 0)) return false;
  }
  return true;
}

/* A CPU device's threads may have no core but ours, and asking all the time takes it from them. */
static void rest(void) {
  const struct timespec a_moment = {.tv_nsec = 100000};
  nanosleep(&a_moment, NULL);
}

tsr_status tsr_session_wait(tsr_session *session, tsr_error *error) {
  const double a_turn = 20e-6;
  bool done = false;
  if (!session->in_flight)
    return session->poisoned
               ? tsr_session_usable(session, "tsr_session_wait", error)
               : tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "tsr_session_wait: no step was started");
  for (int turns = 0;; turns++) {
    TSR_RETURN_IF_FAILED(tsr_session_test(session, &done, error));
    if (done) break;
    if (!only_devices_work(session)) turns = 0;
    if (only_messages_matter(session))
      session->step_status = tsr_group_wait_turn(session->group, &session->step_error);
    else if (turns < TURNS_BEFORE_REST)
      session->step_status = tsr_group_wait_for(session->group, a_turn, &session->step_error);
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
