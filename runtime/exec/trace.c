/* trace.c: recording. */
#include "exec/trace.h"

#include "base/clock.h"
#include "base/memory.h"

static tsr_status start_clock(tsr_trace *trace, tsr_device *device, tsr_error *error) {
  if (!device->ops->timing_set) return TSR_OK;
  TSR_RETURN_IF_FAILED(tsr_device_finish(device, error));
  TSR_RETURN_IF_FAILED(device->ops->timing_set(device, true, error));
  trace->by_device = tsr_trace_look(device, &trace->first);
  if (!trace->by_device)
    tsr_log(device->context, TSR_LOG_WARNING, "exec",
            "the clock of %s cannot be believed: the trace waits for the kernels of each step and uses the "
            "host's",
            device->info.name);
  return TSR_OK;
}

tsr_status tsr_trace_create(const tsr_plan *plan, tsr_device *device, size_t capacity, tsr_trace **out,
                            tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_trace *trace = tsr_calloc(1, sizeof *trace);
  if (trace) trace->events = tsr_calloc(capacity, sizeof *trace->events);
  if (trace) trace->spans = tsr_calloc((size_t)plan->step_count * 2, sizeof *trace->spans);
  if (!trace || !trace->events || !trace->spans)
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for a trace of %zu events", capacity);
  trace->plan = plan;
  trace->capacity = capacity;
  TSR_TRY(start_clock(trace, device, error));
  *out = trace;
  return TSR_OK;
done:
  tsr_trace_destroy(&trace, device);
  return status;
}

static void drop_spans(tsr_trace *trace, tsr_device *device) {
  double begin, end;
  for (int i = 0; trace->plan && i < 2 * trace->plan->step_count; i++)
    if (trace->spans[i].first) device->ops->span_take(device, &trace->spans[i], &begin, &end);
}

void tsr_trace_destroy(tsr_trace **trace, tsr_device *device) {
  if (!*trace) return;
  drop_spans(*trace, device);
  if (device->ops->timing_set) device->ops->timing_set(device, false, NULL); /* if not, it only costs time */
  free((*trace)->spans);
  free((*trace)->events);
  free(*trace);
  *trace = NULL;
}

static void record(tsr_trace *trace, uint64_t turn, int step, tsr_trace_part part, double begin, double end,
                   bool by_device) {
  trace->events[trace->recorded++ % trace->capacity] = (tsr_trace_event){
      .begin = begin, .end = end, .turn = turn, .step = step, .part = (uint8_t)part, .by_device = by_device};
}

void tsr_trace_begin(tsr_trace *trace, tsr_device *device, int step, tsr_trace_part part) {
  if (!trace) return;
  trace->host_begin = tsr_clock_seconds();
  if (trace->by_device)
    device->ops->span_watch(device, &trace->spans[2 * step + (part == TSR_TRACE_TO_DEVICE)]);
}

tsr_status tsr_trace_end(tsr_trace *trace, tsr_device *device, uint64_t turn, int step, tsr_trace_part part,
                         tsr_error *error) {
  if (!trace) return TSR_OK;
  if (trace->by_device) device->ops->span_watch(device, NULL);
  if (trace->by_device || part != TSR_TRACE_KERNELS) return TSR_OK;
  TSR_RETURN_IF_FAILED(tsr_device_finish(device, error));
  record(trace, turn, step, part, trace->host_begin, tsr_clock_seconds(), false);
  return TSR_OK;
}

void tsr_trace_convert(tsr_trace *trace, uint64_t turn, int step, const tsr_convert *convert) {
  if (!trace) return;
  const tsr_convert_times *times = &convert->times;
  if (convert->packed) record(trace, turn, step, TSR_TRACE_PACK, times->ready, times->sent, false);
  record(trace, turn, step, TSR_TRACE_COLLECTIVE, times->sent, times->received, false);
  if (convert->packed) record(trace, turn, step, TSR_TRACE_UNPACK, times->received, times->ended, false);
}

static tsr_trace_part part_of_span(const tsr_trace *trace, int span) {
  if (span % 2) return TSR_TRACE_TO_DEVICE;
  return trace->plan->steps[span / 2].kind == TSR_STEP_CONVERT ? TSR_TRACE_TO_HOST : TSR_TRACE_KERNELS;
}

void tsr_trace_turn_end(tsr_trace *trace, tsr_device *device, uint64_t turn, bool ended) {
  double begin, end;
  if (!trace || !trace->by_device) return;
  device->ops->span_watch(device, NULL); /* a launch that failed left it */
  for (int i = 0; ended && i < 2 * trace->plan->step_count; i++)
    if (device->ops->span_take(device, &trace->spans[i], &begin, &end))
      record(trace, turn, i / 2, part_of_span(trace, i), begin, end, true);
  drop_spans(trace, device);
}
