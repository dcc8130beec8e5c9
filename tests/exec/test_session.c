/* test_session.c: what a session computes, on the host device over sim members: integers bit for bit against
 * an interpreter of graphs, everything else within the oracle's bound. */
#include "exec_support.h"

static const int member_counts[] = {1, 2, 3, 4, 7};
enum { MEMBER_COUNTS = sizeof member_counts / sizeof *member_counts };
static const int64_t extents[] = {1, 7, 13, 257};

/* Equal members, unequal ones, and one that is worth nothing. */
static exec_setup setup_of(int members, int shares, tsr_replicate replicate, bool keep_all) {
  exec_setup setup = {.members = members, .replicate = replicate, .keep_all = keep_all};
  for (int i = 0; i < members; i++)
    setup.speeds[i] = shares == 0 ? 1 : shares == 1 ? 1 + 2 * i : i == members / 2 ? 1e-6 : 1;
  return setup;
}

static void run_exact(const exec_setup *setup, tsr_graph *graph, int steps) {
  exec_rig rig;
  exec_open(&rig, setup);
  exec_create(&rig, graph);
  tsr_source *source = exec_source(rig.plan->graph, true, 1, 7);
  if (exec_run_exact(&rig, source, steps) < 1) fail_msg("the numbers grew too large to compare");
  tsr_source_destroy(&source);
  exec_close(&rig);
}

/* Every number of members, kind of shares and policy; extents, mode and the rest go round. */
static void ffn_exact(void **state) {
  (void)state;
  int turn = 0;
  for (int n = 0; n < MEMBER_COUNTS; n++)
    for (int shares = 0; shares < 3; shares++)
      for (int replicate = 0; replicate < 3; replicate++)
        for (int gated = 0; gated < 2; gated++, turn++) {
          exec_ffn ffn = {.m = extents[turn % 3 + 1 - (turn % 7 == 0)],
                          .d = extents[(turn / 2) % 4],
                          .h = extents[(turn / 3 + 1) % 4],
                          .dtype = turn % 5 ? TSR_F32 : TSR_F64,
                          .activation = TSR_UNARY_RELU,
                          .gated = gated,
                          .pinned = turn % 3,
                          .residual = turn % 4 == 1,
                          .mode = (exec_mode)(turn % 3),
                          .rate = 1};
          if (ffn.mode == EXEC_UPDATE) ffn.dtype = TSR_F64; /* these numbers grow */
          exec_setup setup = setup_of(member_counts[n], shares, (tsr_replicate)replicate, turn % 2);
          run_exact(&setup, exec_ffn_graph(&ffn), ffn.mode == EXEC_UPDATE ? 3 : 2);
        }
}

static void gemm_exact(void **state) {
  (void)state;
  for (int turn = 0; turn < 120; turn++) {
    int64_t m = extents[turn % 4], n = extents[(turn / 4) % 4], k = extents[(turn / 16 + turn) % 4];
    int ta = turn % 3 == 1, tb = turn % 3 == 2;
    tsr_dtype dtype = turn % 2 ? TSR_F32 : TSR_F64;
    tsr_graph *graph = exec_graph();
    tsr_value a = exec_leaf(graph, TSR_INPUT, "a", dtype, 2, ta ? k : m, ta ? m : k), c;
    tsr_value b = exec_leaf(graph, TSR_PARAMETER, "b", dtype, 2, tb ? n : k, tb ? k : n);
    exec_ok(tsr_graph_matmul(
        graph, a, b, TSR_MATMUL_OPTIONS(.transpose_a = ta, .transpose_b = tb, .alpha = 2), &c, &exec_error));
    exec_output(graph, "c", c);
    exec_extend(graph, (exec_mode)(turn / 3 % 3), a, c, 1);
    exec_setup setup =
        setup_of(member_counts[turn % 5], turn % 3, (tsr_replicate)(turn / 2 % 3), turn % 4 > 0);
    run_exact(&setup, graph, 2);
  }
}

static void activations(void **state) {
  (void)state;
  for (int activation = 0; activation < TSR_UNARY_COUNT; activation++)
    for (int n = 0; n < MEMBER_COUNTS; n++) {
      exec_ffn ffn = {.m = 13,
                      .d = 33,
                      .h = 70,
                      .dtype = n % 2 ? TSR_F32 : TSR_F64,
                      .activation = (tsr_unary)activation,
                      .gated = n % 3 == 0,
                      .pinned = true,
                      .mode = (exec_mode)((n + activation) % 4),
                      .rate = 0.1};
      exec_setup setup = setup_of(member_counts[n], n % 3, TSR_REPLICATE_NEVER, true);
      exec_rig rig;
      exec_open(&rig, &setup);
      exec_create(&rig, exec_ffn_graph(&ffn));
      tsr_source *source = exec_source(rig.plan->graph, false, 1, 11);
      exec_run_bound(&rig, source, 2);
      tsr_source_destroy(&source);
      exec_close(&rig);
    }
}

/* Shares by pins, zero ones among them, for each axis of the weights. */
static void shares_by_pins(void **state) {
  (void)state;
  static const int64_t offsets[][5] = {
      {0, 0, 5, 13, 13}, {0, 13, 13, 13, 13}, {0, 0, 0, 0, 13}, {0, 3, 6, 9, 13}};
  for (int way = 0; way < 4; way++)
    for (int axis = 0; axis < 2; axis++)
      for (int mode = 0; mode < 3; mode++) {
        tsr_graph *graph = exec_graph();
        tsr_value x = exec_leaf(graph, TSR_INPUT, "x", TSR_F32, 2, 7, axis ? 9 : 13), y;
        tsr_value w = exec_leaf(graph, TSR_PARAMETER, "w", TSR_F32, 2, axis ? 9 : 13, axis ? 13 : 9);
        tsr_value bias = exec_leaf(graph, TSR_PARAMETER, "bias", TSR_F32, 1, axis ? 13 : 9, 0);
        exec_pin(graph, w, axis, 4, offsets[way]);
        exec_ok(tsr_graph_linear(graph, x, w, bias, &y, &exec_error));
        exec_output(graph, "y", y);
        exec_extend(graph, (exec_mode)mode, x, y, 1);
        exec_setup setup = {.members = 4, .replicate = TSR_REPLICATE_SMALL, .keep_all = true};
        run_exact(&setup, graph, 2);
      }
}

/* A member whose memory is too small for an equal share gets less. */
static void shares_by_memory(void **state) {
  (void)state;
  exec_ffn ffn = {.m = 7,
                  .d = 64,
                  .h = 257,
                  .dtype = TSR_F32,
                  .activation = TSR_UNARY_RELU,
                  .pinned = true,
                  .mode = EXEC_UPDATE,
                  .rate = 1};
  exec_setup setup = {
      .members = 3, .replicate = TSR_REPLICATE_NEVER, .keep_all = true, .memory = {0, 60000, 0}};
  exec_rig rig;
  exec_open(&rig, &setup);
  exec_create(&rig, exec_ffn_graph(&ffn));
  assert_true(rig.plan->members[1].bytes <= 60000 && rig.plan->members[0].bytes > 60000);
  tsr_source *source = exec_source(rig.plan->graph, true, 1, 7);
  assert_int_equal(exec_run_exact(&rig, source, 1), 1);
  tsr_source_destroy(&source);
  exec_close(&rig);
}

/* One owner adds beta c, or a replicated summand, to a partial product. */
static void one_owner(void **state) {
  (void)state;
  for (int way = 0; way < 8; way++) {
    tsr_graph *graph = exec_graph();
    tsr_value x = exec_leaf(graph, TSR_INPUT, "x", TSR_F32, 2, 5, 13), y;
    tsr_value w = exec_leaf(graph, TSR_PARAMETER, "w", TSR_F32, 2, 13, 9);
    tsr_value c = exec_leaf(graph, TSR_INPUT, "c", TSR_F32, 2, 5, 9);
    exec_pin(graph, w, 0, 0, NULL);
    exec_pin(graph, c, -1, 0, NULL);
    bool fused = way & 1;
    exec_ok(tsr_graph_matmul(graph, x, w,
                             fused ? TSR_MATMUL_OPTIONS(.alpha = 3, .beta = 2, .c = c)
                                   : TSR_MATMUL_OPTIONS(.alpha = 3),
                             &y, &exec_error));
    if (!fused)
      exec_ok(tsr_graph_add(graph, way & 4 ? 0 : 1, way & 2 ? c : y, 2, way & 2 ? y : c, &y, &exec_error));
    exec_output(graph, "y", y);
    exec_pin(graph, y, -1, 0, NULL);
    exec_setup setup = {.members = 3, .replicate = TSR_REPLICATE_NEVER, .keep_all = true};
    run_exact(&setup, graph, 1);
  }
}

/* Members that the plan leaves out hold nothing and still take part in what is collective. */
static void excluded_members(void **state) {
  (void)state;
  exec_ffn ffn = {
      .m = 7, .d = 13, .h = 13, .dtype = TSR_F32, .activation = TSR_UNARY_RELU, .mode = EXEC_BACKWARD};
  exec_setup setup = {.members = 4, .speeds = {1e-6, 1, 1e-6, 1}, .replicate = TSR_REPLICATE_AUTO};
  exec_rig rig;
  tsr_member_report members[4];
  tsr_report report;
  exec_open(&rig, &setup);
  exec_create(&rig, exec_ffn_graph(&ffn));
  assert_true(rig.plan->decision.active_count < 4);
  tsr_source *source = exec_source(rig.plan->graph, true, 1, 3);
  assert_int_equal(exec_run_exact(&rig, source, 2), 2);
  assert_false(rig.plan->members[0].active);
  float number;
  tsr_array array = {.data = &number, .dtype = TSR_F32};
  exec_refused(tsr_session_read(rig.session, 0, exec_value(&rig, "y"), &array, &exec_error),
               TSR_ERROR_INVALID_ARGUMENT, "excluded");
  exec_ok(tsr_session_report(rig.session, &report, members, &exec_error));
  assert_int_equal(report.steps, 2);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(members[i].bytes_planned, members[i].bytes_allocated);
    assert_int_equal(members[i].bytes_sent, rig.plan->members[i].sent_bytes);
  }
  tsr_check check;
  exec_ok(tsr_session_check(rig.session, NULL, &check, &exec_error));
  tsr_source_destroy(&source);
  exec_close(&rig);
}

/* Random graphs; the seed is in the message. A few cannot be planned (pins that contradict), or grow too
 * large. */
static void random_graphs(void **state) {
  (void)state;
  int ran = 0, large = 0, infeasible = 0;
  for (uint64_t seed = 1; seed <= 400; seed++) {
    exec_seed(seed);
    if (getenv("TSR_TEST_VERBOSE")) print_message("seed %llu\n", (unsigned long long)seed);
    exec_setup setup = setup_of(member_counts[exec_between(0, 4)], (int)exec_between(0, 2),
                                (tsr_replicate)exec_between(0, 2), exec_between(0, 3) > 0);
    if (exec_between(0, 3) == 0) setup.max_allocation = 2048;
    exec_rig rig;
    exec_open(&rig, &setup);
    bool planned = exec_plan(&rig, exec_random_graph(TSR_F64, setup.members));
    tsr_status status = planned ? tsr_session_create(rig.group, rig.plan, rig.devices, (size_t)setup.members,
                                                     &rig.session, &exec_error)
                                : TSR_ERROR_INFEASIBLE;
    if (status == TSR_ERROR_INFEASIBLE) {
      infeasible++;
    } else {
      if (status != TSR_OK) print_message("seed %llu\n", (unsigned long long)seed);
      exec_ok(status);
      tsr_source *source = exec_source(rig.plan->graph, true, 1, seed);
      int exact = exec_run_exact(&rig, source, 2);
      large += exact < 2;
      ran += exact == 2;
      tsr_check check;
      if (exact == 2 && seed % 2)
        exec_ok(tsr_session_check(rig.session,
                                  TSR_CHECK_OPTIONS(.seed = seed, .oracle_flops = seed % 4 == 1 ? -1 : 0),
                                  &check, &exec_error));
      tsr_source_destroy(&source);
    }
    exec_close(&rig);
  }
  print_message("%d random graphs ran, %d were infeasible, %d grew too large\n", ran, infeasible, large);
  assert_true(ran > 250);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ffn_exact),        cmocka_unit_test(gemm_exact),       cmocka_unit_test(activations),
      cmocka_unit_test(shares_by_pins),   cmocka_unit_test(shares_by_memory), cmocka_unit_test(one_owner),
      cmocka_unit_test(excluded_members), cmocka_unit_test(random_graphs),
  };
  return cmocka_run_group_tests(tests, exec_begin, exec_end);
}
