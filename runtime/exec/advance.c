/* advance.c: a step on its way. One thread enqueues kernels and lets collectives go on behind them.
 *
 * A collective is looked after whenever the session is tested: between two enqueued kernels, and while the
 * device computes. A thread of its own would gain nothing: whoever waits for a step calls all the time, and
 * where a rank has one core that thread would take it from the kernels just as this one does. Where nobody
 * calls because the device computes in the calling thread (the host device), chunks are the moments at which
 * messages go on. */
#include "base/clock.h"
#include "exec/session.h"
#include "plan/buffers.h"

/* The nodes that are computed with a step's own, but for what another member adds. */
static tsr_status find_fused(const tsr_plan *plan, const tsr_local *local, const tsr_step *step,
                             tsr_launch *launch, tsr_error *error) {
  for (int i = 0; i < step->fused_count; i++) {
    const tsr_fused *fused = &step->fused[i];
    const tsr_node *node = &plan->graph->nodes[fused->node];
    tsr_rule rule = tsr_plan_rule(plan, fused->node);
    if (fused->operand >= 0 && rule.one_owner[fused->operand] && !launch->owner) continue;
    tsr_launch_fused *out = &launch->fused[launch->fused_count++];
    *out = (tsr_launch_fused){.role = fused->role, .node = node};
    if (fused->operand >= 0)
      TSR_RETURN_IF_FAILED(tsr_tensor_of(plan, local->stores, local->active_index,
                                         node->inputs[fused->operand], rule.in[fused->operand], &out->operand,
                                         error));
  }
  return TSR_OK;
}

/* A chunk is launched range by range, into the buffers that its CONVERT will map. */
static tsr_status launch_chunk(const tsr_local *local, int step, tsr_launch *launch, tsr_error *error) {
  const tsr_convert_side *side = &local->converts[step + 1].from;
  for (int i = 0; i < side->region_count; i++) {
    const tsr_convert_region *region = &side->regions[i];
    launch->chunk = (tsr_launch_rows){region->row, region->row + region->rows, region->part};
    TSR_RETURN_IF_FAILED(tsr_launch_node(launch, error));
  }
  return TSR_OK;
}

tsr_status tsr_local_launch(const tsr_session *session, const tsr_local *local, int index, bool alone,
                            tsr_error *error) {
  const tsr_plan *plan = session->plan;
  const tsr_step *step = &plan->steps[index];
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
                       .active_index = local->active_index,
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
  return step->chunks > 1 ? launch_chunk(local, index, &launch, error) : tsr_launch_node(&launch, error);
}

/* ---- collectives ---- */

static tsr_trace *trace_of(const tsr_session *session, const tsr_local *local) {
  return session->in_flight ? local->trace : NULL; /* steps that are checked are not normal */
}

static tsr_status begin_convert(const tsr_session *session, tsr_local *local, int index, tsr_error *error) {
  tsr_trace *trace = trace_of(session, local);
  tsr_trace_begin(trace, local->device, index, TSR_TRACE_TO_HOST);
  TSR_RETURN_IF_FAILED(tsr_convert_begin(&local->converts[index], error));
  return tsr_trace_end(trace, local->device, session->step_count, index, TSR_TRACE_TO_HOST, error);
}

/* Between two stretches of the device's work the host does the rest. */
static tsr_status test_convert(const tsr_session *session, tsr_local *local, int index, bool *ended,
                               tsr_error *error) {
  tsr_trace *trace = trace_of(session, local);
  tsr_convert *convert = &local->converts[index];
  TSR_RETURN_IF_FAILED(tsr_convert_test(convert, ended, error));
  if (!*ended) return TSR_OK;
  tsr_trace_convert(trace, session->step_count, index, convert);
  tsr_trace_begin(trace, local->device, index, TSR_TRACE_TO_DEVICE);
  TSR_RETURN_IF_FAILED(tsr_convert_end(convert, error));
  local->report.comm_seconds += tsr_clock_seconds() - convert->times.ready;
  return tsr_trace_end(trace, local->device, session->step_count, index, TSR_TRACE_TO_DEVICE, error);
}

/* The first CONVERT from `index` on; step_count = none. */
static int next_convert(const tsr_plan *plan, int index) {
  while (index < plan->step_count && plan->steps[index].kind != TSR_STEP_CONVERT) index++;
  return index;
}

/* The step that must have been enqueued before the device's part of a CONVERT is: the one in front of it, or
 * the product of the last chunk. */
static int begins_behind(const tsr_local *local, const tsr_plan *plan, int convert) {
  const tsr_step *step = &plan->steps[convert];
  if (step->chunks < 2 || local->converts[convert].apart) return convert - 1;
  return convert + 2 * (step->chunks - 1 - step->chunk) - 1;
}

/* ---- a step ---- */

void tsr_local_rewind(tsr_local *local) {
  local->step = 0;
  local->begun = local->ended = 0;
  local->idle = false;
  local->idle_since = 0;
  local->report.comm_seconds = local->report.compute_seconds = local->report.exposed_seconds = 0;
}

/* The device's part of collectives whose source has been enqueued. */
static tsr_status begin_converts(const tsr_session *session, tsr_local *local, tsr_error *error) {
  for (;;) {
    int next = next_convert(session->plan, local->begun);
    if (next >= local->step || begins_behind(local, session->plan, next) >= local->step) return TSR_OK;
    TSR_RETURN_IF_FAILED(begin_convert(session, local, next, error));
    local->begun = next + 1;
  }
}

/* The oldest collective goes on; *moved = it has ended. One at a time: they share scratch and packing. */
static tsr_status test_oldest(const tsr_session *session, tsr_local *local, bool *moved, tsr_error *error) {
  int oldest = next_convert(session->plan, local->ended);
  if (oldest >= local->begun) return TSR_OK;
  TSR_RETURN_IF_FAILED(test_convert(session, local, oldest, moved, error));
  if (*moved) local->ended = oldest + 1;
  return TSR_OK;
}

static tsr_status enqueue(const tsr_session *session, tsr_local *local, int index, tsr_error *error) {
  tsr_trace *trace = trace_of(session, local);
  tsr_trace_begin(trace, local->device, index, TSR_TRACE_KERNELS);
  TSR_RETURN_IF_FAILED(tsr_local_launch(session, local, index, false, error));
  return tsr_trace_end(trace, local->device, session->step_count, index, TSR_TRACE_KERNELS, error);
}

/* The next step, unless it waits for a collective that has not ended. */
static tsr_status enqueue_next(const tsr_session *session, tsr_local *local, bool *moved, tsr_error *error) {
  const tsr_plan *plan = session->plan;
  if (local->step == plan->step_count) return TSR_OK;
  const tsr_step *step = &plan->steps[local->step];
  if (next_convert(plan, local->ended) <= step->waits_for) return TSR_OK;
  if (step->kind != TSR_STEP_CONVERT) TSR_RETURN_IF_FAILED(enqueue(session, local, local->step, error));
  local->step++;
  *moved = true;
  return TSR_OK;
}

/* Whether the oldest collective waits for others. While it waits for the device, it may since have had that:
 * then its messages are this process's to send, and nobody would wake it. */
static bool waits_for_messages(const tsr_session *session, const tsr_local *local) {
  const int oldest = next_convert(session->plan, local->ended);
  return oldest < local->begun && local->converts[oldest].phase == TSR_CONVERT_COLLECTIVE;
}

/* Nothing that was enqueued is left to do: time counts until the next call if a collective is waited for. */
static tsr_status note_idle(const tsr_session *session, tsr_local *local, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_device_poll(local->device, &local->idle, error));
  const bool waits = waits_for_messages(session, local);
  local->idle_since = local->idle && waits ? tsr_clock_seconds() : 0;
  return TSR_OK;
}

tsr_status tsr_local_progress(const tsr_session *session, tsr_local *local, tsr_error *error) {
  const tsr_plan *plan = session->plan;
  if (local->idle_since > 0) local->report.exposed_seconds += tsr_clock_seconds() - local->idle_since;
  for (bool moved = true; moved;) {
    moved = false;
    TSR_RETURN_IF_FAILED(begin_converts(session, local, error));
    TSR_RETURN_IF_FAILED(test_oldest(session, local, &moved, error));
    TSR_RETURN_IF_FAILED(enqueue_next(session, local, &moved, error));
  }
  TSR_RETURN_IF_FAILED(note_idle(session, local, error));
  local->done =
      local->idle && local->step == plan->step_count && next_convert(plan, local->ended) == plan->step_count;
  return TSR_OK;
}

tsr_status tsr_local_run(const tsr_session *session, tsr_local *local, int index, bool *ended,
                         tsr_error *error) {
  *ended = true;
  if (session->plan->steps[index].kind != TSR_STEP_CONVERT) return enqueue(session, local, index, error);
  if (local->converts[index].phase == TSR_CONVERT_IDLE)
    TSR_RETURN_IF_FAILED(begin_convert(session, local, index, error));
  return test_convert(session, local, index, ended, error);
}
