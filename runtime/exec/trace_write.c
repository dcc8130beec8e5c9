/* trace_write.c: the trace as a document, in the format that chrome://tracing and Perfetto read: a process
 * for each rank, in it one thread for what the device does and one for what the host does between devices. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "exec/session.h"
#include "plan/plan_text.h"

enum { EVENTS_MAX = 1 << 28, THREAD_KERNELS = 0, THREAD_COLLECTIVES = 1 };

static const struct {
  const char *verb; /* before the step's name; NULL: the step's name is enough */
  const char *category;
  int thread;
} parts[TSR_TRACE_PARTS] = {
    [TSR_TRACE_KERNELS] = {NULL, "kernel", THREAD_KERNELS},
    [TSR_TRACE_TO_HOST] = {"to host", "copy", THREAD_KERNELS},
    [TSR_TRACE_TO_DEVICE] = {"to device", "copy", THREAD_KERNELS},
    [TSR_TRACE_PACK] = {"pack", "host", THREAD_COLLECTIVES},
    [TSR_TRACE_COLLECTIVE] = {NULL, "collective", THREAD_COLLECTIVES},
    [TSR_TRACE_UNPACK] = {"unpack", "host", THREAD_COLLECTIVES},
};

/* What a member says of its trace. */
typedef struct trace_head {
  uint64_t recorded, held;
  double first;           /* the earliest beginning, of its host's clock; infinite = it holds nothing */
  double device_accuracy; /* of its device's clock against its host's */
  bool by_device;
} trace_head;

/* The document while it is written. */
typedef struct trace_document {
  const tsr_session *session;
  tsr_writer writer; /* NULL = not on this process */
  void *user;
  const trace_head *heads;
  const tsr_trace_offset *offsets;
  double origin; /* of rank 0's clock: where the document's time begins */
  bool begun;    /* an event was written */
} trace_document;

/* ---- switching it on and off ---- */

static tsr_status start(tsr_session *session, size_t event_count, tsr_error *error) {
  for (int i = 0; i < session->local_count; i++) {
    tsr_local *local = &session->locals[i];
    if (local->active_index < 0) continue;
    tsr_status status = tsr_trace_create(session->plan, local->device, event_count, &local->trace, error);
    if (status != TSR_OK) return tsr_local_blame(local, status, error);
  }
  return TSR_OK;
}

static void stop(tsr_session *session) {
  for (int i = 0; i < session->local_count; i++)
    tsr_trace_destroy(&session->locals[i].trace, session->locals[i].device);
}

tsr_status tsr_session_trace(tsr_session *session, size_t event_count, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_session_usable(session, "tsr_session_trace", error));
  if (event_count > EVENTS_MAX)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "a trace of %zu events: at most %d are kept",
                    event_count, EVENTS_MAX);
  stop(session);
  session->tracing = event_count > 0;
  tsr_status status = session->tracing ? start(session, event_count, error) : TSR_OK;
  status = tsr_session_agree(session, status, error);
  if (status == TSR_OK) return TSR_OK;
  stop(session);
  session->tracing = false;
  return status;
}

/* ---- events, of the host's clock ---- */

/* Copies what the ring holds, the oldest first. */
static void copy_events(const tsr_trace *trace, const tsr_trace_sight *last, tsr_trace_event *out) {
  uint64_t held = trace->recorded < trace->capacity ? trace->recorded : trace->capacity;
  for (uint64_t i = 0; i < held; i++) {
    out[i] = trace->events[(trace->recorded - held + i) % trace->capacity];
    if (!out[i].by_device) continue;
    out[i].begin = tsr_trace_host_time(&trace->first, last, out[i].begin);
    out[i].end = tsr_trace_host_time(&trace->first, last, out[i].end);
  }
}

/* Gives *events, NULL if it holds none. */
static tsr_status prepare_local(const tsr_local *local, trace_head *head, tsr_trace_event **events,
                                tsr_error *error) {
  const tsr_trace *trace = local->trace;
  *head = (trace_head){.first = HUGE_VAL};
  if (!trace) return TSR_OK;
  tsr_trace_sight last = trace->first;
  if (trace->by_device && !tsr_trace_look(local->device, &last)) last = trace->first;
  head->recorded = trace->recorded;
  head->held = trace->recorded < trace->capacity ? trace->recorded : trace->capacity;
  head->by_device = trace->by_device;
  head->device_accuracy = fmax(trace->first.accuracy, last.accuracy);
  *events = tsr_malloc(head->held * sizeof **events);
  if (!*events)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %llu events of the trace",
                    (unsigned long long)head->held);
  copy_events(trace, &last, *events);
  for (uint64_t i = 0; i < head->held; i++) head->first = fmin(head->first, (*events)[i].begin);
  return TSR_OK;
}

/* ---- the document ---- */

/* Takes object; a line of its own. */
static tsr_status write_object(trace_document *document, json_t *object, tsr_error *error) {
  char *dump = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
  char *line = dump ? tsr_text_format("%s\n%s", document->begun ? "," : "", dump) : NULL;
  tsr_status status = TSR_OK;
  if (!line)
    status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to write a trace");
  else if (document->writer(document->user, line, strlen(line)))
    status = tsr_fail(error, TSR_ERROR_IO, "the trace could not be written");
  document->begun = true;
  free(line);
  free(dump);
  json_decref(object);
  return status;
}

static tsr_status write_text(const trace_document *document, const char *text, tsr_error *error) {
  if (!document->writer(document->user, text, strlen(text))) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_IO, "the trace could not be written");
}

static tsr_status write_name(trace_document *document, const char *what, int rank, int thread,
                             const char *name, tsr_error *error) {
  return write_object(document,
                      json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", what, "ph", "M", "pid", rank, "tid",
                                thread, "args", "name", name),
                      error);
}

/* "?" in the place of what is no UTF-8: a driver may call its device as it likes. */
static void device_name(const trace_document *document, int rank, char *buffer, size_t bytes) {
  const char *name = document->session->plan->cluster->members[rank].name;
  json_t *text = json_string(name);
  snprintf(buffer, bytes, "rank %d: %s", rank, text ? name : "?");
  json_decref(text);
}

static tsr_status write_names(trace_document *document, int rank, tsr_error *error) {
  char name[192];
  device_name(document, rank, name, sizeof name);
  TSR_RETURN_IF_FAILED(write_name(document, "process_name", rank, THREAD_KERNELS, name, error));
  TSR_RETURN_IF_FAILED(write_name(
      document, "thread_name", rank, THREAD_KERNELS,
      document->heads[rank].by_device ? "kernels (device's clock)" : "kernels (host's clock)", error));
  return write_name(document, "thread_name", rank, THREAD_COLLECTIVES, "collectives (host's clock)", error);
}

static int active_index_of(const tsr_plan *plan, int rank) {
  for (int r = 0; r < plan->decision.active_count; r++)
    if (plan->decision.active[r] == rank) return r;
  return -1;
}

static tsr_status write_event(trace_document *document, int rank, const tsr_trace_event *event,
                              tsr_error *error) {
  const tsr_plan *plan = document->session->plan;
  const tsr_step *step = &plan->steps[event->step];
  char text[128], name[160];
  bool whole = !parts[event->part].verb;
  tsr_plan_step_text(plan, step, text, sizeof text);
  snprintf(name, sizeof name, "%s%s%s", whole ? "" : parts[event->part].verb, whole ? "" : ": ", text);
  json_t *args = json_pack("{s:I, s:i, s:s}", "turn", (json_int_t)event->turn, "step", (int)event->step,
                           "layout", tsr_place_name(step->to));
  if (whole) {
    tsr_step_cost cost = tsr_plan_step_cost(plan, step, active_index_of(plan, rank));
    json_object_set_new(args, "bytes", json_integer((json_int_t)cost.bytes));
    json_object_set_new(args, "flops", json_integer((json_int_t)cost.flops));
    json_object_set_new(args, "predicted_seconds", json_real(cost.seconds));
  }
  double begin = event->begin + document->offsets[rank].seconds - document->origin;
  return write_object(document,
                      json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:o}", "name", name, "cat",
                                parts[event->part].category, "ph", "X", "pid", rank, "tid",
                                parts[event->part].thread, "ts", 1e6 * begin, "dur",
                                1e6 * (event->end - event->begin), "args", args),
                      error);
}

/* How far its times can be trusted, by rank. */
static json_t *clocks_json(const trace_document *document) {
  json_t *clocks = json_array();
  for (int rank = 0; rank < document->session->plan->cluster->member_count; rank++) {
    const trace_head *head = &document->heads[rank];
    json_array_append_new(
        clocks, json_pack("{s:i, s:s, s:f, s:f, s:f, s:I, s:I}", "rank", rank, "kernels",
                          head->by_device ? "device" : "host", "kernels_accuracy_seconds",
                          head->device_accuracy, "offset_seconds", document->offsets[rank].seconds,
                          "offset_accuracy_seconds", document->offsets[rank].accuracy, "events",
                          (json_int_t)head->held, "dropped", (json_int_t)(head->recorded - head->held)));
  }
  return clocks;
}

static tsr_status begin_document(trace_document *document, tsr_error *error) {
  int members = document->session->plan->cluster->member_count;
  document->origin = HUGE_VAL;
  for (int rank = 0; rank < members; rank++)
    document->origin = fmin(document->origin, document->heads[rank].first + document->offsets[rank].seconds);
  if (!isfinite(document->origin)) document->origin = 0;
  if (!document->writer) return TSR_OK;
  json_t *clocks = clocks_json(document);
  char *dump = json_dumps(clocks, JSON_COMPACT | JSON_REAL_PRECISION(15));
  char *head = dump ? tsr_text_format("{\"displayTimeUnit\": \"ms\",\n\"otherData\": {\"schema\": "
                                      "\"tessera.trace/1\", \"clocks\": %s},\n\"traceEvents\": [",
                                      dump)
                    : NULL;
  json_decref(clocks);
  free(dump);
  tsr_status status = head ? write_text(document, head, error)
                           : tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to write a trace");
  free(head);
  for (int rank = 0; status == TSR_OK && rank < members; rank++) status = write_names(document, rank, error);
  return status;
}

static tsr_status write_events(trace_document *document, int rank, const tsr_trace_event *events,
                               tsr_error *error) {
  for (uint64_t i = 0; document->writer && i < document->heads[rank].held; i++)
    TSR_RETURN_IF_FAILED(write_event(document, rank, &events[i], error));
  return TSR_OK;
}

/* ---- from everybody to whoever writes, one member after another ---- */

/* A process that cannot write takes part to the end; *wrote and failure are its own. */
static tsr_status pass_events(tsr_session *session, trace_document *document, tsr_trace_event *const *own,
                              tsr_trace_event *buffer, tsr_status *wrote, tsr_error *failure,
                              tsr_error *error) {
  for (int rank = 0, local = 0; rank < session->plan->cluster->member_count; rank++) {
    uint64_t bytes = document->heads[rank].held * sizeof *buffer;
    bool mine = local < session->local_count && session->locals[local].member == rank;
    if (bytes && mine) memcpy(buffer, own[local], bytes);
    local += mine;
    if (bytes) TSR_RETURN_IF_FAILED(tsr_group_broadcast(session->group, rank, buffer, bytes, error));
    if (*wrote == TSR_OK) *wrote = write_events(document, rank, buffer, failure);
  }
  return TSR_OK;
}

static uint64_t largest_count(const trace_head *heads, int members) {
  uint64_t largest = 0;
  for (int i = 0; i < members; i++)
    if (heads[i].held > largest) largest = heads[i].held;
  return largest;
}

/* All heads and offsets are known. */
static tsr_status write_document(tsr_session *session, trace_document *document, tsr_trace_event *const *own,
                                 tsr_error *error) {
  tsr_status status = TSR_OK;
  uint64_t largest = largest_count(document->heads, session->plan->cluster->member_count);
  tsr_trace_event *buffer = tsr_malloc(largest * sizeof *buffer);
  if (!buffer) status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to write a trace");
  TSR_TRY(tsr_session_agree(session, status, error));
  tsr_error failure = {.rank = -1};
  tsr_status wrote = begin_document(document, &failure);
  TSR_TRY(tsr_session_agree(session, pass_events(session, document, own, buffer, &wrote, &failure, error),
                            error));
  if (wrote == TSR_OK && document->writer) wrote = write_text(document, "\n]}\n", &failure);
  if (wrote != TSR_OK && error) *error = failure;
  status = tsr_session_agree(session, wrote, error);
done:
  free(buffer);
  return status;
}

/* The ranks of one host share its clock. */
static void trust_hosts(const tsr_plan *plan, tsr_trace_offset *offsets) {
  const tsr_cluster_member *members = plan->cluster->members;
  for (int i = 0; i < plan->cluster->member_count; i++)
    if (members[0].host[0] && !strcmp(members[i].host, members[0].host) &&
        fabs(offsets[i].seconds) <= offsets[i].accuracy)
      offsets[i] = (tsr_trace_offset){0};
}

tsr_status tsr_session_trace_write(tsr_session *session, tsr_writer writer, void *user, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_session_usable(session, "tsr_session_trace_write", error));
  if (!session->tracing)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "tsr_session_trace_write: nothing was recorded; call tsr_session_trace first");
  tsr_status status = TSR_OK;
  size_t members = (size_t)session->plan->cluster->member_count, locals = (size_t)session->local_count;
  trace_head *own = tsr_calloc(locals, sizeof *own), *heads = tsr_calloc(members, sizeof *heads);
  tsr_trace_offset *offsets = tsr_calloc(members, sizeof *offsets);
  tsr_trace_event **events = tsr_calloc(locals, sizeof *events);
  if (!own || !heads || !offsets || !events)
    status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to write a trace");
  for (size_t i = 0; status == TSR_OK && i < locals; i++)
    status = prepare_local(&session->locals[i], &own[i], &events[i], error);
  TSR_TRY(tsr_session_agree(session, status, error));
  TSR_TRY(tsr_session_agree(session, tsr_trace_offsets(session->group, offsets, error), error));
  TSR_TRY(
      tsr_session_agree(session, tsr_group_gather(session->group, own, sizeof *own, heads, error), error));
  trust_hosts(session->plan, offsets);
  trace_document document = {
      .session = session, .writer = writer, .user = user, .heads = heads, .offsets = offsets};
  status = write_document(session, &document, events, error);
done:
  for (size_t i = 0; events && i < locals; i++) free(events[i]);
  free(events);
  free(offsets);
  free(heads);
  free(own);
  return status;
}
