/* test_overlap.c: collectives behind kernels: products that are cut into chunks, on 1 to 7 members with equal
 * and unequal shares, forward, backward and training, give the same integers; a device that computes late
 * finds nothing mapped that it may not touch; and what should overlap does. */
#include "lazy_device.h"

static const int member_counts[] = {1, 2, 3, 4, 7};

static exec_setup setup_of(int members, int shares, tsr_replicate replicate, int chunks) {
  exec_setup setup = {.members = members, .replicate = replicate, .keep_all = true, .chunks = chunks};
  for (int i = 0; i < members; i++)
    setup.speeds[i] = shares == 0 ? 1 : shares == 1 ? 1 + 2 * i : i == members / 2 ? 1e-6 : 1;
  return setup;
}

static tsr_graph *ffn(int64_t m, int64_t d, int64_t h, exec_mode mode, bool pinned) {
  return exec_ffn_graph(&(exec_ffn){.m = m,
                                    .d = d,
                                    .h = h,
                                    .dtype = mode == EXEC_UPDATE ? TSR_F64 : TSR_F32,
                                    .activation = TSR_UNARY_RELU,
                                    .pinned = pinned,
                                    .mode = mode,
                                    .rate = 1});
}

/* Chunks of all-reduces, and of reduce-scatters along rows and columns. */
typedef struct kinds {
  int reduced, rows, columns;
} kinds;

static void count_kinds(const tsr_plan *plan, kinds *found) {
  for (int i = 0; i < plan->step_count; i++) {
    const tsr_step *step = &plan->steps[i];
    if (step->kind != TSR_STEP_CONVERT || step->chunks < 2) continue;
    found->reduced += step->to == TSR_PLACE_REPLICATE;
    found->rows += step->to == 0;
    found->columns += step->to == 1;
  }
}

static void open_lazy(exec_rig *rig, int pace, bool parts) {
  for (int i = 0; i < rig->setup.members; i++) lazy_open(rig->devices[i], pace, parts);
}

static void close_lazy(exec_rig *rig) {
  tsr_session_destroy(&rig->session);
  for (int i = 0; i < rig->setup.members; i++) lazy_close(rig->devices[i]);
}

static void run(const exec_setup *setup, tsr_graph *graph, int pace, bool parts, kinds *found) {
  exec_rig rig;
  tsr_check check;
  exec_open(&rig, setup);
  if (pace) open_lazy(&rig, pace, parts);
  exec_create(&rig, graph);
  count_kinds(rig.plan, found);
  tsr_source *source = exec_source(rig.plan->graph, true, 1, 7);
  if (exec_run_exact(&rig, source, 2) < 1) fail_msg("the numbers grew too large to compare");
  exec_ok(tsr_session_check(rig.session, NULL, &check, &exec_error));
  tsr_source_destroy(&source);
  if (pace) close_lazy(&rig);
  exec_close(&rig);
}

/* Pace 0 = the host device as it is; parts = false: it cannot make buffers of ranges. */
static void chunks_give_the_same(void **state) {
  (void)state;
  static const int64_t extents[] = {1, 7, 13, 129};
  static const int chunks[] = {2, 3, 8, 64};
  kinds found = {0};
  int turn = 0;
  for (int n = 0; n < 5; n++)
    for (int shares = 0; shares < 3; shares++)
      for (int mode = 0; mode < 3; mode++)
        for (int pace = 0; pace < 3; pace++, turn++) {
          exec_setup setup =
              setup_of(member_counts[n], shares, (tsr_replicate)(turn % 3), chunks[turn / 2 % 4]);
          run(&setup,
              ffn(extents[turn % 4], extents[turn / 3 % 3 + 1], extents[turn / 5 % 3 + 1], (exec_mode)mode,
                  turn % 5 > 0),
              pace, turn % 2, &found);
        }
  if (found.reduced < 50) fail_msg("only %d chunks of all-reduces", found.reduced);
  assert_true(lazy_overlaps() > 100);
}

/* y = x w, w by rows, y by rows or columns with shares that are given: zero ones, too. */
static void scattered_chunks_give_the_same(void **state) {
  (void)state;
  static const int64_t offsets[][5] = {{0, 3, 7, 10, 13}, {0, 0, 5, 13, 13}, {0, 13, 13, 13, 13}};
  kinds found = {0};
  for (int way = 0; way < 3; way++)
    for (int axis = 0; axis < 2; axis++)
      for (int chunks = 2; chunks <= 5; chunks++)
        for (int pace = 0; pace < 3; pace++) {
          tsr_graph *graph = exec_graph();
          tsr_value x = exec_leaf(graph, TSR_INPUT, "x", TSR_F32, 2, axis ? 9 : 13, 11), y;
          tsr_value w = exec_leaf(graph, TSR_PARAMETER, "w", TSR_F32, 2, 11, axis ? 13 : 9);
          exec_pin(graph, w, 0, 0, NULL);
          exec_ok(tsr_graph_matmul(graph, x, w, NULL, &y, &exec_error));
          exec_output(graph, "y", y);
          exec_pin(graph, y, axis, 4, offsets[way]);
          exec_setup setup = setup_of(4, 0, TSR_REPLICATE_NEVER, chunks);
          run(&setup, graph, pace, pace == 1, &found);
        }
  assert_true(found.rows > 20 && found.columns > 20);
}

static void random_graphs(void **state) {
  (void)state;
  int ran = 0;
  lazy_overlaps();
  for (uint64_t seed = 1; seed <= 200; seed++) {
    exec_seed(seed);
    exec_setup setup = setup_of(member_counts[exec_between(0, 4)], (int)exec_between(0, 2),
                                (tsr_replicate)exec_between(0, 2), (int)exec_between(0, 5));
    if (exec_between(0, 3) == 0) setup.max_allocation = 2048;
    exec_rig rig;
    exec_open(&rig, &setup);
    if (exec_plan(&rig, exec_random_graph(TSR_F64, setup.members))) {
      open_lazy(&rig, (int)exec_between(1, 3), seed % 2);
      exec_ok(tsr_session_create(rig.group, rig.plan, rig.devices, (size_t)setup.members, &rig.session,
                                 &exec_error));
      tsr_source *source = exec_source(rig.plan->graph, true, 1, seed);
      ran += exec_run_exact(&rig, source, 2) == 2;
      tsr_source_destroy(&source);
      close_lazy(&rig);
    }
    exec_close(&rig);
  }
  print_message("%d random graphs ran, %d kernels beside a collective\n", ran, lazy_overlaps());
  assert_true(ran > 120);
}

/* Reals: a row's sums do not depend on how many rows are computed at once. */
static void reals_have_the_same_bits(void **state) {
  (void)state;
  double *y[2], *dx[2];
  for (int i = 0; i < 2; i++) {
    exec_setup setup = setup_of(3, 1, TSR_REPLICATE_NEVER, i ? 4 : 1);
    exec_rig rig;
    exec_open(&rig, &setup);
    exec_create(&rig, ffn(129, 65, 130, EXEC_BACKWARD, true));
    tsr_source *source = exec_source(rig.plan->graph, false, 1, 3);
    exec_ok(tsr_session_load(rig.session, source, &exec_error));
    exec_ok(exec_step(&rig));
    y[i] = exec_gather(&rig, exec_value(&rig, "y"));
    dx[i] = exec_gather(&rig, exec_value(&rig, "d_x"));
    tsr_source_destroy(&source);
    exec_close(&rig);
  }
  assert_memory_equal(y[0], y[1], 129 * 65 * sizeof *y[0]);
  assert_memory_equal(dx[0], dx[1], 129 * 65 * sizeof *dx[0]);
  for (int i = 0; i < 2; i++) {
    free(y[i]);
    free(dx[i]);
  }
}

/* ---- what overlaps ---- */

static tsr_group *watched;
static const tsr_device_ops *plain;
static int products;
static uint64_t sent_at[64];

static tsr_status watch_gemm(tsr_device *device, const tsr_gemm_call *call, tsr_error *error) {
  if (products < 64) sent_at[products++] = tsr_group_bytes_sent(watched, 0);
  return plain->gemm(device, call, error);
}

/* Bytes that member 0 had sent when it came to each of its products. */
static void watch(tsr_graph *graph, int chunks, exec_rig *rig) {
  exec_setup setup = setup_of(2, 0, TSR_REPLICATE_NEVER, chunks);
  exec_open(rig, &setup);
  exec_create(rig, graph);
  tsr_source *source = exec_source(rig->plan->graph, true, 1, 7);
  exec_ok(tsr_session_load(rig->session, source, &exec_error));
  tsr_source_destroy(&source);
  plain = rig->devices[0]->ops;
  tsr_device_ops ops = *plain;
  ops.gemm = watch_gemm;
  rig->devices[0]->ops = &ops;
  watched = rig->group;
  products = 0;
  uint64_t before = tsr_group_bytes_sent(rig->group, 0);
  exec_ok(exec_step(rig));
  for (int i = 0; i < products; i++) sent_at[i] -= before;
  rig->devices[0]->ops = plain;
}

static void a_chunk_is_sent_before_the_next_is_computed(void **state) {
  (void)state;
  exec_rig rig;
  watch(ffn(64, 32, 64, EXEC_FORWARD, true), 4, &rig);
  assert_int_equal(products, 5); /* the first product, and four chunks of the second */
  assert_true(sent_at[1] == 0 && sent_at[2] > 0);
  exec_close(&rig);
}

/* y's reduction behind the backward, and dx's behind the products that make gradients of weights. */
static void reductions_run_behind_other_products(void **state) {
  (void)state;
  exec_rig rig;
  tsr_report report;
  tsr_member_report members[2];
  watch(ffn(64, 32, 64, EXEC_BACKWARD, true), 1, &rig);
  assert_int_equal(products, 6);
  int reductions = 0;
  for (int i = 1; i < products; i++) reductions += sent_at[i] > sent_at[i - 1];
  assert_true(reductions > 0);
  assert_true(sent_at[products - 1] > 0);
  exec_ok(tsr_session_report(rig.session, &report, members, &exec_error));
  for (int i = 0; i < 2; i++) {
    assert_true(members[i].comm_seconds > 0 && members[i].exposed_seconds >= 0);
    assert_true(members[i].exposed_seconds <= members[i].comm_seconds * 1.001 + 1e-5);
  }
  exec_close(&rig);
}

/* A device that ends its work between two questions leaves this process something to send, which nobody else
 * would wake it for: it must not be counted as waiting for messages. */
static void who_has_to_send_does_not_wait(void **state) {
  (void)state;
  int waited = 0;
  for (int pace = 1; pace <= 3; pace++) {
    exec_rig rig;
    const exec_setup setup = setup_of(2, 0, TSR_REPLICATE_NEVER, pace);
    exec_open(&rig, &setup);
    for (int i = 0; i < 2; i++)
      lazy_open(rig.devices[i], i ? 4 - pace : pace, true); /* they wait for each other */
    exec_create(&rig, ffn(64, 32, 64, EXEC_BACKWARD, true));
    assert_int_equal(rig.plan->decision.active_count, 2);
    tsr_source *source = exec_source(rig.plan->graph, true, 1, 7);
    exec_ok(tsr_session_load(rig.session, source, &exec_error));
    exec_ok(tsr_session_start(rig.session, &exec_error));
    for (bool done = false; !done;) {
      exec_ok(tsr_session_test(rig.session, &done, &exec_error));
      for (int i = 0; i < 2; i++) {
        const tsr_local *local = &rig.session->locals[i];
        int oldest = local->ended;
        while (oldest < local->begun && rig.plan->steps[oldest].kind != TSR_STEP_CONVERT) oldest++;
        if (local->done || !(local->idle_since > 0)) continue;
        assert_true(oldest < local->begun);
        assert_int_equal(local->converts[oldest].phase, TSR_CONVERT_COLLECTIVE);
        waited++;
      }
    }
    exec_ok(tsr_session_wait(rig.session, &exec_error));
    tsr_source_destroy(&source);
    close_lazy(&rig);
    exec_close(&rig);
  }
  assert_true(waited > 0);
}

/* Ranges that are aligned and ranges that are not. */
static void on_pocl(void **state) {
  (void)state;
  if (!exec_has("pocl")) skip();
  kinds found = {0};
  for (int members = 1; members <= 3; members++)
    for (int mode = 0; mode < 2; mode++)
      for (int odd = 0; odd < 2; odd++) {
        exec_setup setup = setup_of(members, 1, TSR_REPLICATE_NEVER, 2 + odd);
        for (int i = 0; i < members; i++) setup.selectors[i] = "pocl";
        run(&setup, ffn(odd ? 61 : 256, odd ? 33 : 64, 128, (exec_mode)mode, true), 0, false, &found);
      }
  assert_true(found.reduced > 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chunks_give_the_same),
      cmocka_unit_test(scattered_chunks_give_the_same),
      cmocka_unit_test(random_graphs),
      cmocka_unit_test(reals_have_the_same_bits),
      cmocka_unit_test(a_chunk_is_sent_before_the_next_is_computed),
      cmocka_unit_test(reductions_run_behind_other_products),
      cmocka_unit_test(who_has_to_send_does_not_wait),
      cmocka_unit_test(on_pocl),
  };
  return cmocka_run_group_tests(tests, exec_begin, exec_end);
}
