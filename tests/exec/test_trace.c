/* test_trace.c: the trace of a session: every step and collective of every member is there once a turn,
 * nothing overlaps on one thread, the times add up to the step's; the ring, the clocks, and what is refused.
 */
#include "exec_support.h"

#include "base/clock.h"

#include <jansson.h>

enum { TURNS = 4, EVENTS = 10000 };

static int add_text(void *user, const char *text, size_t bytes) {
  return fwrite(text, 1, bytes, user) == bytes ? 0 : 1;
}

/* The document, parsed; the test frees it. */
static json_t *write_trace(exec_rig *rig) {
  char *text = NULL;
  size_t bytes = 0;
  json_error_t wrong;
  FILE *memory = open_memstream(&text, &bytes);
  exec_ok(tsr_session_trace_write(rig->session, add_text, memory, &exec_error));
  fclose(memory);
  json_t *document = json_loads(text, 0, &wrong);
  if (!document) fail_msg("line %d: %s\n%.2000s", wrong.line, wrong.text, text);
  free(text);
  return document;
}

static void open_rig(exec_rig *rig, const exec_setup *setup, int64_t m, exec_mode mode) {
  const exec_ffn ffn = {.m = m,
                        .d = 64,
                        .h = 256,
                        .dtype = TSR_F32,
                        .activation = TSR_UNARY_RELU,
                        .pinned = true,
                        .mode = mode,
                        .rate = 0.1};
  exec_open(rig, setup);
  exec_create(rig, exec_ffn_graph(&ffn));
  tsr_source *source = exec_source(rig->plan->graph, false, 1, 3);
  exec_ok(tsr_session_load(rig->session, source, &exec_error));
  tsr_source_destroy(&source);
}

static double number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) fail_msg("no number \"%s\"", key);
  return json_number_value(value);
}

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  if (!text) fail_msg("no text \"%s\"", key);
  return text;
}

static bool is_complete(const json_t *event) {
  return !strcmp(text_of(event, "ph"), "X");
}

static bool is_whole(const json_t *event) {
  return !strcmp(text_of(event, "cat"), "kernel") || !strcmp(text_of(event, "cat"), "collective");
}

static int count_events(const json_t *document, int rank, int turn, int step, const char *category) {
  size_t i;
  json_t *event;
  int count = 0;
  json_array_foreach(json_object_get(document, "traceEvents"), i, event) {
    const json_t *args = json_object_get(event, "args");
    if (!is_complete(event) || strcmp(text_of(event, "cat"), category)) continue;
    count += number(event, "pid") == rank && number(args, "turn") == turn && number(args, "step") == step;
  }
  return count;
}

static void expect_every_step(const exec_rig *rig, const json_t *document) {
  for (int r = 0; r < rig->plan->decision.active_count; r++)
    for (int turn = 0; turn < TURNS; turn++)
      for (int step = 0; step < rig->plan->step_count; step++) {
        bool convert = rig->plan->steps[step].kind == TSR_STEP_CONVERT;
        int rank = rig->plan->decision.active[r];
        int kernels = count_events(document, rank, turn, step, "kernel");
        int collectives = count_events(document, rank, turn, step, "collective");
        if (kernels != !convert || collectives != convert)
          fail_msg("rank %d, turn %d, step %d: %d kernel events, %d collectives", rank, turn, step, kernels,
                   collectives);
      }
}

/* What a reader sees of a step is what the plan says of it. */
static void expect_args(const exec_rig *rig, const json_t *document) {
  size_t i;
  json_t *event;
  double flops = 0;
  json_array_foreach(json_object_get(document, "traceEvents"), i, event) {
    if (!is_complete(event)) continue;
    const json_t *args = json_object_get(event, "args");
    const tsr_step *step = &rig->plan->steps[(int)number(args, "step")];
    assert_string_equal(text_of(args, "layout"), tsr_place_name(step->to));
    assert_true(number(args, "turn") < TURNS);
    if (!is_whole(event)) continue;
    assert_int_equal(number(event, "tid"), step->kind == TSR_STEP_CONVERT);
    if (number(args, "bytes") > (double)step->bytes) fail_msg("more bytes than the member that moves most");
    if (number(args, "predicted_seconds") > step->seconds * 1.000001) fail_msg("slower than the slowest");
    if (number(args, "turn") == 0) flops += number(args, "flops");
    if (step->kind == TSR_STEP_CONVERT)
      assert_int_equal(strncmp(text_of(event, "name"), tsr_collective_kind_name(step->collective),
                               strlen(tsr_collective_kind_name(step->collective))),
                       0);
  }
  assert_true(flops >= tsr_graph_flops(rig->plan->graph)); /* what is replicated is computed by each */
}

typedef struct span {
  double thread, begin, end;
} span;

static int by_begin(const void *a, const void *b) {
  const span *x = a, *y = b;
  if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

/* In microseconds; a nanosecond may be lost in the digits. */
static void expect_no_overlap(const json_t *document) {
  const json_t *events = json_object_get(document, "traceEvents");
  span *spans = calloc(json_array_size(events) + 1, sizeof *spans);
  size_t count = 0, i;
  json_t *event;
  json_array_foreach(events, i, event) {
    if (!is_complete(event)) continue;
    assert_true(number(event, "ts") >= -0.001 && number(event, "dur") >= 0);
    spans[count++] = (span){.thread = 2 * number(event, "pid") + number(event, "tid"),
                            .begin = number(event, "ts"),
                            .end = number(event, "ts") + number(event, "dur")};
  }
  assert_true(count > 0);
  qsort(spans, count, sizeof *spans, by_begin);
  for (i = 1; i < count; i++)
    if (spans[i].thread == spans[i - 1].thread && spans[i].begin < spans[i - 1].end - 0.002)
      fail_msg("thread %g: %.3f us begins before %.3f us, the end of the one before", spans[i].thread,
               spans[i].begin, spans[i - 1].end);
  free(spans);
}

static int count_metadata(const json_t *document, const char *name) {
  size_t i;
  json_t *event;
  int count = 0;
  json_array_foreach(json_object_get(document, "traceEvents"), i, event) count +=
      !is_complete(event) && !strcmp(text_of(event, "name"), name);
  return count;
}

static void every_event_is_there(void **state) {
  (void)state;
  static const exec_mode modes[] = {EXEC_FORWARD, EXEC_BACKWARD, EXEC_UPDATE};
  for (int members = 1; members <= 4; members++)
    for (int i = 0; i < 3; i++) {
      exec_rig rig;
      exec_setup setup = {.members = members, .replicate = TSR_REPLICATE_NEVER, .keep_all = true};
      open_rig(&rig, &setup, 13, modes[i]);
      exec_ok(tsr_session_trace(rig.session, EVENTS, &exec_error));
      tsr_check check;
      for (int turn = 0; turn < TURNS; turn++) exec_ok(exec_step(&rig));
      exec_ok(tsr_session_check(rig.session, NULL, &check, &exec_error)); /* its step is no turn */
      json_t *document = write_trace(&rig);
      expect_every_step(&rig, document);
      expect_args(&rig, document);
      expect_no_overlap(document);
      assert_int_equal(count_metadata(document, "process_name"), members);
      assert_int_equal(count_metadata(document, "thread_name"), 2 * members);
      json_decref(document);
      exec_close(&rig);
    }
}

/* Seconds of all kernels and collectives of rank 0 in a turn. */
static double busy_seconds(const json_t *document, int turn) {
  size_t i;
  json_t *event;
  double sum = 0;
  json_array_foreach(json_object_get(document, "traceEvents"), i,
                     event) if (is_complete(event) && number(json_object_get(event, "args"), "turn") == turn)
      sum += 1e-6 * number(event, "dur");
  return sum;
}

/* On one member something is always running: events are never more than the step, and in the best turn a good
 * part of it, however busy the machine is; a wrong unit would be off by thousands. */
static void times_add_up(const char *selector, double least, const char *clock) {
  exec_rig rig;
  double best = 0;
  exec_setup setup = {.members = 1, .selectors = {selector}};
  open_rig(&rig, &setup, 512, EXEC_BACKWARD);
  exec_ok(exec_step(&rig)); /* compiles */
  exec_ok(tsr_session_trace(rig.session, EVENTS, &exec_error));
  for (int turn = 1; turn <= TURNS; turn++) {
    tsr_report report;
    exec_ok(exec_step(&rig));
    exec_ok(tsr_session_report(rig.session, &report, NULL, &exec_error));
    json_t *document = write_trace(&rig);
    double share = busy_seconds(document, turn) / report.last_seconds;
    const json_t *clocks = json_object_get(json_object_get(document, "otherData"), "clocks");
    assert_string_equal(text_of(json_array_get(clocks, 0), "kernels"), clock);
    if (share > 1.001) fail_msg("%g s of events in a step of %g s", share, report.last_seconds);
    if (share > best) best = share;
    expect_no_overlap(document);
    json_decref(document);
  }
  if (best < least) fail_msg("%s: events make up %g of a step at best, expected %g", selector, best, least);
  exec_close(&rig);
}

static void times_add_up_on_host(void **state) {
  (void)state;
  times_add_up("host", 0.3, "host");
}

static void times_add_up_on_pocl(void **state) {
  (void)state;
  if (!exec_has("pocl")) skip();
  times_add_up("pocl", 0.02, "device");
}

static void oldest_events_go_first(void **state) {
  (void)state;
  exec_rig rig;
  exec_setup setup = {.members = 2, .replicate = TSR_REPLICATE_NEVER, .keep_all = true};
  open_rig(&rig, &setup, 7, EXEC_FORWARD);
  exec_ok(tsr_session_trace(rig.session, 3, &exec_error));
  for (int turn = 0; turn < TURNS; turn++) exec_ok(exec_step(&rig));
  json_t *document = write_trace(&rig), *event;
  const json_t *clocks = json_object_get(json_object_get(document, "otherData"), "clocks");
  size_t i;
  for (int rank = 0; rank < 2; rank++) {
    const json_t *clock = json_array_get(clocks, (size_t)rank);
    assert_int_equal(number(clock, "events"), 3);
    assert_true(number(clock, "dropped") >= 3 * TURNS - 3);
  }
  int held = 0;
  json_array_foreach(json_object_get(document, "traceEvents"), i, event) {
    if (!is_complete(event)) continue;
    held++;
    assert_int_equal(number(json_object_get(event, "args"), "turn"), TURNS - 1);
  }
  assert_int_equal(held, 6);
  json_decref(document);
  exec_close(&rig);
}

/* The next allocation of the library would fail: a step makes none. */
static void step_allocates_nothing(void **state) {
  (void)state;
  exec_rig rig;
  exec_setup setup = {.members = 3, .replicate = TSR_REPLICATE_NEVER, .keep_all = true};
  open_rig(&rig, &setup, 7, EXEC_BACKWARD);
  exec_ok(tsr_session_trace(rig.session, 5, &exec_error));
  tsr_memory_fail_after(0);
  tsr_status status = exec_step(&rig);
  void *next = tsr_malloc(1);
  tsr_memory_fail_after(-1);
  exec_ok(status);
  assert_null(next);
  exec_close(&rig);
}

static int refuse_text(void *user, const char *text, size_t bytes) {
  (void)text;
  size_t *left = user;
  if (*left < bytes) return 1;
  *left -= bytes;
  return 0;
}

static void refusals(void **state) {
  (void)state;
  exec_rig rig;
  exec_setup setup = {.members = 2, .replicate = TSR_REPLICATE_NEVER, .keep_all = true};
  open_rig(&rig, &setup, 7, EXEC_FORWARD);
  size_t room = 0;
  exec_refused(tsr_session_trace_write(rig.session, refuse_text, &room, &exec_error),
               TSR_ERROR_INVALID_ARGUMENT, "call tsr_session_trace first");
  exec_refused(tsr_session_trace(rig.session, (size_t)1 << 40, &exec_error), TSR_ERROR_INVALID_ARGUMENT,
               "at most");
  exec_ok(tsr_session_trace(rig.session, EVENTS, &exec_error));
  exec_ok(tsr_session_start(rig.session, &exec_error));
  exec_refused(tsr_session_trace(rig.session, EVENTS, &exec_error), TSR_ERROR_INVALID_ARGUMENT, "in flight");
  exec_ok(tsr_session_wait(rig.session, &exec_error));
  for (room = 0; room < 1200; room += 100) {
    size_t left = room;
    exec_refused(tsr_session_trace_write(rig.session, refuse_text, &left, &exec_error), TSR_ERROR_IO,
                 "could not be written");
  }
  exec_ok(tsr_session_trace_write(rig.session, NULL, NULL, &exec_error));
  exec_ok(tsr_session_trace(rig.session, 0, &exec_error));
  exec_ok(exec_step(&rig));
  exec_refused(tsr_session_trace_write(rig.session, NULL, NULL, &exec_error), TSR_ERROR_INVALID_ARGUMENT,
               "nothing was recorded");
  exec_close(&rig);
}

/* Writing fails wherever memory may run out, and works after it. */
static void out_of_memory(void **state) {
  (void)state;
  exec_rig rig;
  exec_setup setup = {.members = 2, .replicate = TSR_REPLICATE_NEVER, .keep_all = true};
  open_rig(&rig, &setup, 7, EXEC_FORWARD);
  int failures = 0;
  for (int64_t after = 0;; after++) {
    tsr_memory_fail_after(after);
    tsr_status status = tsr_session_trace(rig.session, EVENTS, &exec_error);
    if (status == TSR_OK) status = exec_step(&rig);
    if (status == TSR_OK) status = tsr_session_trace_write(rig.session, NULL, NULL, &exec_error);
    tsr_memory_fail_after(-1);
    if (status == TSR_OK) break;
    assert_int_equal(status, TSR_ERROR_OUT_OF_MEMORY);
    failures++;
  }
  assert_true(failures > 10);
  json_t *document = write_trace(&rig);
  json_decref(document);
  exec_close(&rig);
}

/* ---- clocks ---- */

/* A host device that pretends to time its commands: at `rate` seconds a second, from `epoch` on. */
static double rate, epoch;
static int spans_taken;

static tsr_status set_timing(tsr_device *device, bool on, tsr_error *error) {
  (void)device, (void)on, (void)error;
  return TSR_OK;
}

static double pretended_now(void) {
  return epoch + rate * tsr_clock_seconds();
}

static bool probe(tsr_device *device, double *begin, double *end) {
  (void)device;
  *begin = pretended_now();
  *end = pretended_now();
  return rate > 0;
}

static void watch(tsr_device *device, tsr_device_span *span) {
  static char something;
  (void)device;
  if (span) span->first = span->last = &something;
}

static bool take(tsr_device *device, tsr_device_span *span, double *begin, double *end) {
  (void)device;
  if (!span->first) return false;
  *span = (tsr_device_span){0};
  *begin = *end = pretended_now();
  spans_taken++;
  return true;
}

static void trace_with_clock(const char *clock) {
  exec_rig rig;
  exec_setup setup = {.members = 1};
  open_rig(&rig, &setup, 7, EXEC_FORWARD);
  tsr_device_ops own = *rig.devices[0]->ops;
  const tsr_device_ops *before = rig.devices[0]->ops;
  own.timing_set = set_timing, own.timing_probe = probe, own.span_watch = watch, own.span_take = take;
  rig.devices[0]->ops = &own;
  spans_taken = 0;
  exec_ok(tsr_session_trace(rig.session, EVENTS, &exec_error));
  double begin = tsr_clock_seconds();
  exec_ok(exec_step(&rig));
  double end = tsr_clock_seconds();
  const tsr_trace *trace = rig.session->locals[0].trace;
  for (uint64_t i = 0; i < trace->recorded; i++) {
    double at = trace->events[i].begin;
    if (trace->by_device) at = tsr_trace_host_time(&trace->first, &trace->first, at);
    assert_true(at > begin - 1e-3 && at < end + 1e-3);
  }
  json_t *document = write_trace(&rig);
  const json_t *clocks = json_object_get(json_object_get(document, "otherData"), "clocks");
  assert_string_equal(text_of(json_array_get(clocks, 0), "kernels"), clock);
  assert_int_equal(spans_taken > 0, !strcmp(clock, "device"));
  json_decref(document);
  exec_ok(tsr_session_trace(rig.session, 0, &exec_error));
  rig.devices[0]->ops = before;
  exec_close(&rig);
}

/* A clock of another epoch is believed; one that stands, runs at another rate, or says nothing is not. */
static void device_clocks(void **state) {
  (void)state;
  epoch = 1e6, rate = 1;
  trace_with_clock("device");
  static const double wrong[] = {1000, 1.3, 0.5, 1e-9, 0};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    rate = wrong[i];
    trace_with_clock("host");
  }
}

static void device_time_to_host_time(void **state) {
  (void)state;
  tsr_trace_sight first = {.device = 100, .host = 5000}, soon = {.device = 100.5, .host = 5000.6};
  tsr_trace_sight later = {.device = 1100, .host = 6000.1}, broken = {.device = 1100, .host = 9000};
  assert_true(fabs(tsr_trace_host_time(&first, &first, 101) - 5001) < 1e-9);
  assert_true(fabs(tsr_trace_host_time(&first, &soon, 101) - 5001) < 1e-9);
  assert_true(fabs(tsr_trace_host_time(&first, &later, 600) - 5500.05) < 1e-6);
  assert_true(fabs(tsr_trace_host_time(&first, &broken, 600) - 5500) < 1e-9);
}

/* Members of one process have one clock: the interval that is found must hold 0. */
static void offsets_of_ranks(void **state) {
  (void)state;
  tsr_group *group;
  tsr_trace_offset offsets[5];
  exec_ok(tsr_group_create_sim(exec_context, 5, NULL, &group, &exec_error));
  exec_ok(tsr_trace_offsets(group, offsets, &exec_error));
  for (int i = 0; i < 5; i++) {
    assert_true(fabs(offsets[i].seconds) <= offsets[i].accuracy);
    assert_true(offsets[i].accuracy < 0.1 && (i > 0) == (offsets[i].accuracy > 0));
  }
  tsr_group_destroy(&group);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_event_is_there),
      cmocka_unit_test(times_add_up_on_host),
      cmocka_unit_test(times_add_up_on_pocl),
      cmocka_unit_test(oldest_events_go_first),
      cmocka_unit_test(step_allocates_nothing),
      cmocka_unit_test(refusals),
      cmocka_unit_test(out_of_memory),
      cmocka_unit_test(device_clocks),
      cmocka_unit_test(device_time_to_host_time),
      cmocka_unit_test(offsets_of_ranks),
  };
  return cmocka_run_group_tests(tests, exec_begin, exec_end);
}
