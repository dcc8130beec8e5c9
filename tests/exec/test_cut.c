/* test_cut.c: values that are cut into many buffers because one allocation may not be large: the same
 * results, forward, backward, training and through collectives; the ledger holds what was planned, and a step
 * adds nothing to it. */
#include "exec_support.h"

static void check_ledger(const exec_rig *rig) {
  for (int i = 0; i < rig->setup.members; i++) {
    assert_int_equal(tsr_device_bytes_used(rig->devices[i]), rig->plan->members[i].bytes);
    assert_int_equal(tsr_device_bytes_peak(rig->devices[i]), rig->plan->members[i].bytes);
  }
}

/* Whether a value of this kind lies in several pieces somewhere. */
static bool has_pieces(const exec_rig *rig, tsr_value_kind kind, bool panels) {
  for (int i = 0; i < rig->setup.members; i++)
    for (int j = 0; j < rig->plan->buffer_count && rig->session->locals[i].active_index >= 0; j++) {
      const tsr_plan_buffer *buffer = &rig->plan->buffers[j];
      if (tsr_graph_at(rig->plan->graph, buffer->value)->kind == kind &&
          (tsr_plan_buffer_panel(rig->plan, buffer, rig->session->locals[i].active_index) > 0) == panels &&
          rig->session->locals[i].stores[buffer->storage].piece_count > 1)
        return true;
    }
  return false;
}

static tsr_graph *ffn(int64_t m, int64_t d, int64_t h, exec_mode mode, bool gated) {
  return exec_ffn_graph(&(exec_ffn){.m = m,
                                    .d = d,
                                    .h = h,
                                    .dtype = TSR_F32,
                                    .activation = TSR_UNARY_RELU,
                                    .gated = gated,
                                    .pinned = true,
                                    .mode = mode,
                                    .rate = 1});
}

static void run(const exec_setup *setup, tsr_graph *graph, bool panels) {
  exec_rig rig;
  exec_open(&rig, setup);
  exec_create(&rig, graph);
  assert_true(has_pieces(&rig, TSR_PARAMETER, panels));
  tsr_source *source = exec_source(rig.plan->graph, true, 1, 5);
  assert_true(exec_run_exact(&rig, source, 2) > 0);
  if (!setup->selectors[0]) check_ledger(&rig);
  tsr_source_destroy(&source);
  exec_close(&rig);
}

static void cut_on_host(void **state) {
  (void)state;
  static const int member_counts[] = {1, 2, 3, 4};
  for (int n = 0; n < 4; n++)
    for (int mode = 0; mode < 3; mode++)
      for (int replicate = 0; replicate < 3; replicate++) {
        exec_setup setup = {.members = member_counts[n],
                            .max_allocation = 4096,
                            .replicate = (tsr_replicate)replicate,
                            .keep_all = true};
        if (n == 2) setup.speeds[1] = 3;
        run(&setup, ffn(77, 61, 257, (exec_mode)mode, n % 2), false);
      }
}

/* Panels are what one device packs its weights into: pocl's. */
static void cut_panels(void **state) {
  (void)state;
  if (!exec_has("pocl")) skip();
  for (int members = 1; members <= 2; members++)
    for (int mode = 0; mode < 3; mode++) {
      exec_setup setup = {.members = members,
                          .selectors = {"pocl", "pocl"},
                          .max_allocation = 65536,
                          .replicate = TSR_REPLICATE_NEVER,
                          .keep_all = true};
      exec_ffn options = {.m = 13,
                          .d = 200,
                          .h = 250,
                          .dtype = TSR_F32,
                          .activation = TSR_UNARY_RELU,
                          .pinned = true,
                          .mode = (exec_mode)mode,
                          .rate = 1};
      exec_rig rig;
      exec_open(&rig, &setup);
      exec_create(&rig, exec_ffn_graph(&options));
      assert_true(has_pieces(&rig, TSR_PARAMETER, rig.devices[0]->gemm[TSR_F32].panel > 0));
      tsr_source *source = exec_source(rig.plan->graph, true, 1, 5);
      assert_true(exec_run_exact(&rig, source, 2) > 0);
      tsr_source_destroy(&source);
      exec_close(&rig);
    }
}

/* Collectives of cut values: every one of gather, scatter and reduce meets pieces at both ends. */
static void cut_collectives(void **state) {
  (void)state;
  for (int members = 2; members <= 4; members++)
    for (int axis = 0; axis < 2; axis++)
      for (int to = -1; to < 2; to++) {
        tsr_graph *graph = exec_graph();
        tsr_value x = exec_leaf(graph, TSR_INPUT, "x", TSR_F32, 2, 90, 50), y;
        tsr_value w = exec_leaf(graph, TSR_PARAMETER, "w", TSR_F32, 2, 50, 70);
        exec_pin(graph, w, axis, 0, NULL);
        exec_ok(tsr_graph_matmul(graph, x, w, NULL, &y, &exec_error));
        exec_output(graph, "y", y);
        exec_pin(graph, y, to, 0, NULL);
        exec_setup setup = {
            .members = members, .max_allocation = 2048, .replicate = TSR_REPLICATE_NEVER, .keep_all = true};
        run(&setup, graph, false);
      }
}

/* A step asks neither the host nor the device for memory. */
static void steps_allocate_nothing(void **state) {
  (void)state;
  exec_setup setup = {.members = 3, .max_allocation = 4096, .keep_all = true};
  exec_rig rig;
  exec_open(&rig, &setup);
  exec_create(&rig, ffn(33, 61, 257, EXEC_UPDATE, false));
  tsr_source *source = exec_source(rig.plan->graph, true, 1, 5);
  exec_ok(tsr_session_load(rig.session, source, &exec_error));
  for (int i = 0; i < 20; i++) {
    tsr_memory_fail_after(0);
    tsr_status status = exec_step(&rig);
    tsr_memory_fail_after(-1);
    exec_ok(status);
  }
  check_ledger(&rig);
  tsr_source_destroy(&source);
  exec_close(&rig);
}

/* More steps than times are kept: every second one goes. */
static void many_steps(void **state) {
  (void)state;
  exec_setup setup = {.members = 1};
  exec_rig rig;
  tsr_report report;
  exec_open(&rig, &setup);
  exec_create(&rig, ffn(1, 1, 1, EXEC_FORWARD, false));
  tsr_source *source = exec_source(rig.plan->graph, true, 1, 5);
  exec_ok(tsr_session_load(rig.session, source, &exec_error));
  int steps = 2 * TSR_SESSION_SAMPLES + 3;
  for (int i = 0; i < steps; i++) exec_ok(exec_step(&rig));
  assert_true(rig.session->sample_stride == 4 && rig.session->sample_count == TSR_SESSION_SAMPLES / 2 + 1);
  exec_ok(tsr_session_report(rig.session, &report, NULL, &exec_error));
  assert_int_equal(report.steps, steps);
  assert_true(report.median_seconds > 0 && report.last_seconds == rig.session->last_seconds);
  tsr_source_destroy(&source);
  exec_close(&rig);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cut_on_host),     cmocka_unit_test(cut_panels),
      cmocka_unit_test(cut_collectives), cmocka_unit_test(steps_allocate_nothing),
      cmocka_unit_test(many_steps),
  };
  return cmocka_run_group_tests(tests, exec_begin, exec_end);
}
