/* Room runtime/plan: what follows from a decision. Random graphs on equal, unequal, roomy and scarce members
 * are lowered and walked by the checker; in-place updates, simultaneous assigns, fused steps and pinned
 * layouts by name; memory: nobody over the limit, more memory never hurts, and a shortage is named to the
 * byte. */
#include "plan_support.h"
#include "plan/plan_text.h"

#include "plan/buffers.h"
#include "plan/cuts.h"

enum { CASES = 300 };

static tsr_cluster *random_cluster(int members) {
  plan_device devices[8];
  bool equal = plan_chance(40);
  int panel = plan_chance(50) ? 16 : 0;
  for (int i = 0; i < members; i++)
    devices[i] = i && equal ? devices[0]
                            : (plan_device){.gflops = (double)plan_between(1, 100),
                                            .memory_gb = 4,
                                            .panel = plan_chance(80) ? panel : 8,
                                            .launch_seconds = 1e-6 * (double)plan_between(1, 20)};
  tsr_cluster *cluster = plan_cluster(members, devices);
  cluster->links.host.bandwidth = plan_chance(50) ? 1e8 : 1e11;
  return cluster;
}

static tsr_plan_options random_options(void) {
  tsr_plan_options options;
  tsr_plan_options_init(&options);
  options.replicate = (tsr_replicate)plan_between(0, 2);
  options.keep_all = plan_chance(50);
  options.reserve_fraction = plan_chance(50) ? -1 : 0.1;
  options.chunks = plan_chance(50) ? 0 : (int)plan_between(1, 8);
  return options;
}

static void random_plans_are_sound(void **state) {
  (void)state;
  int refused = 0, fused = 0, converts = 0, in_place = 0, copies = 0, panels = 0;
  for (int i = 0; i < CASES; i++) {
    plan_seed(5000 + (uint64_t)i);
    tsr_plan_options options = random_options();
    tsr_cluster *cluster = random_cluster((int)plan_between(1, 7));
    tsr_plan *plan = plan_make(plan_random_graph((int)plan_between(1, 12)), cluster, &options);
    if (!plan) { /* a weight that is needed in two layouts, but may not be whole anywhere */
      tsr_cluster_destroy(&cluster);
      refused++;
      continue;
    }
    assert_true(plan->feasible);
    plan_check(plan);
    for (int s = 0; s < plan->step_count; s++) {
      fused += plan->steps[s].kind == TSR_STEP_NODE && plan->steps[s].fused_count > 0;
      converts += plan->steps[s].kind == TSR_STEP_CONVERT;
      copies += plan->steps[s].kind == TSR_STEP_COPY;
    }
    for (int b = 0; b < plan->buffer_count; b++) panels += plan->buffers[b].panels;
    for (size_t id = 1; id < plan->graph->value_count; id++)
      in_place +=
          plan->graph->values[id].assigned.id && tsr_plan_updates_in_place(plan, (tsr_value){(uint32_t)id});
    tsr_plan_destroy(&plan);
    tsr_cluster_destroy(&cluster);
  }
  assert_true(refused < CASES / 4);
  assert_true(fused > 2 && converts > 100 && in_place > 20 && copies > 20 &&
              panels > 20); /* all of it happened */
}

/* --- by name ----------------------------------------------------------------------------------------------
 */

static tsr_value matrix_state(tsr_graph *graph, const char *name) {
  tsr_shape shape = tsr_shape_of(2, 8, 8);
  tsr_value value;
  plan_ok(tsr_graph_state(graph, name, TSR_F32, &shape, &value, &plan_error));
  return value;
}

static int count_steps(const tsr_plan *plan, tsr_step_kind kind) {
  int count = 0;
  for (int i = 0; i < plan->step_count; i++) count += plan->steps[i].kind == kind;
  return count;
}

static void an_update_is_made_in_place(void **state) {
  (void)state;
  tsr_graph *graph = plan_graph();
  tsr_value x = plan_input(graph, "x", 8, 8), w = plan_parameter(graph, "w", 8, 8), y, updated;
  plan_ok(tsr_graph_matmul(graph, x, w, NULL, &y, &plan_error));
  plan_ok(tsr_graph_output(graph, "y", y, &plan_error));
  plan_ok(tsr_graph_add(graph, 1, w, -0.1, y, &updated, &plan_error));
  plan_ok(tsr_graph_assign(graph, w, updated, &plan_error));
  tsr_cluster *cluster = plan_cluster_of(1, (plan_device){.gflops = 10, .memory_gb = 1});
  tsr_plan *plan = plan_fit(graph, cluster, NULL);
  plan_check(plan);
  assert_int_equal(count_steps(plan, TSR_STEP_COPY), 0);
  assert_true(tsr_plan_updates_in_place(plan, w));
  assert_int_equal(plan->members[0].lines[TSR_MEMORY_WEIGHTS], 8 * 8 * 4);
  tsr_plan_destroy(&plan);
  tsr_cluster_destroy(&cluster);
}

/* s takes the old w at the same moment when w changes: w must not change before it was read. */
static void a_target_that_is_kept_elsewhere_is_not_overwritten(void **state) {
  (void)state;
  for (int order = 0; order < 2; order++) {
    tsr_graph *graph = plan_graph();
    tsr_value s = TSR_NO_VALUE;
    if (!order) s = matrix_state(graph, "s");
    tsr_value x = plan_input(graph, "x", 8, 8), w = plan_parameter(graph, "w", 8, 8), updated;
    if (order) s = matrix_state(graph, "s");
    plan_ok(tsr_graph_add(graph, 1, w, -0.1, x, &updated, &plan_error));
    plan_ok(tsr_graph_assign(graph, w, updated, &plan_error));
    plan_ok(tsr_graph_assign(graph, s, w, &plan_error));
    tsr_cluster *cluster = plan_cluster_of(2, (plan_device){.gflops = 10, .memory_gb = 1});
    tsr_plan *plan = plan_fit(graph, cluster, NULL);
    plan_check(plan);
    tsr_plan_destroy(&plan);
    tsr_cluster_destroy(&cluster);
  }
}

/* A chain of states, each taking the one before, in both orders of declaration. */
static void states_that_shift_are_read_before_they_change(void **state) {
  (void)state;
  for (int order = 0; order < 2; order++) {
    tsr_graph *graph = plan_graph();
    tsr_value x = plan_input(graph, "x", 8, 8), states[3];
    static const char *const names[] = {"s0", "s1", "s2"};
    for (int i = 0; i < 3; i++) states[order ? 2 - i : i] = matrix_state(graph, names[i]);
    plan_ok(tsr_graph_assign(graph, states[0], x, &plan_error));
    for (int i = 1; i < 3; i++) plan_ok(tsr_graph_assign(graph, states[i], states[i - 1], &plan_error));
    tsr_cluster *cluster = plan_cluster_of(2, (plan_device){.gflops = 10, .memory_gb = 1});
    tsr_plan *plan = plan_fit(graph, cluster, NULL);
    plan_check(plan);
    assert_int_equal(count_steps(plan, TSR_STEP_COPY), 3);
    tsr_plan_destroy(&plan);
    tsr_cluster_destroy(&cluster);
  }
}

/* Two that change places need a third place. */
static void states_that_swap_are_refused(void **state) {
  (void)state;
  tsr_graph *graph = plan_graph();
  tsr_value a = matrix_state(graph, "first"), b = matrix_state(graph, "second");
  plan_ok(tsr_graph_assign(graph, a, b, &plan_error));
  plan_ok(tsr_graph_assign(graph, b, a, &plan_error));
  tsr_cluster *cluster = plan_cluster_of(1, (plan_device){.gflops = 10, .memory_gb = 1});
  tsr_plan *plan;
  plan_refused(tsr_plan_create(graph, cluster, NULL, &plan, &plan_error), TSR_ERROR_UNSUPPORTED, "\"first\"");
  assert_null(plan);
  tsr_graph_destroy(&graph);
  tsr_cluster_destroy(&cluster);
}

/* "matmul + bias + gelu, matmul": the steps that compute nodes. */
static void expect_steps(tsr_plan *plan, const char *wanted) {
  char text[512] = "", one[96];
  for (int i = 0; i < plan->step_count; i++) {
    const tsr_step *step = &plan->steps[i];
    if (step->kind != TSR_STEP_NODE || step->chunk) continue;
    snprintf(one, sizeof one, "%s%s", *text ? ", " : "",
             tsr_operator_rules_of(plan->graph->nodes[step->node].op)->name);
    strncat(text, one, sizeof text - strlen(text) - 1);
    for (int f = 0; f < step->fused_count; f++) {
      snprintf(one, sizeof one, " + %s", tsr_plan_fused_name(plan, &step->fused[f]));
      strncat(text, one, sizeof text - strlen(text) - 1);
    }
  }
  assert_string_equal(text, wanted);
  plan_check(plan);
  tsr_plan_destroy(&plan);
}

static tsr_plan *plan_of(tsr_graph *graph, const tsr_cluster *cluster) {
  return plan_fit(graph, cluster, NULL);
}

/* y = gelu(x w + b) with more readers, and what each keeps out of the step. */
static tsr_graph *product_and(int readers) {
  tsr_graph *graph = plan_graph();
  tsr_value x = plan_input(graph, "x", 64, 32), r = plan_input(graph, "r", 64, 48),
            w = plan_parameter(graph, "w", 32, 48), b = plan_parameter(graph, "b", 1, 48), xw, sum, y, z;
  plan_ok(tsr_graph_matmul(graph, x, w, NULL, &xw, &plan_error));
  plan_ok(tsr_graph_add(graph, readers == 3 ? 2 : 1, xw, 1, b, &sum, &plan_error));
  plan_ok(tsr_graph_unary(graph, TSR_UNARY_GELU, sum, &y, &plan_error));
  if (readers == 4) plan_ok(tsr_graph_add(graph, 1, r, 1, y, &z, &plan_error));
  if (readers == 5) plan_ok(tsr_graph_multiply(graph, r, y, &z, &plan_error));
  if (readers == 1) plan_ok(tsr_graph_output(graph, "sum", sum, &plan_error));
  if (readers == 2) plan_ok(tsr_graph_output(graph, "xw", xw, &plan_error));
  plan_ok(tsr_graph_output(graph, "y", readers >= 4 ? z : y, &plan_error));
  return graph;
}

static void an_epilogue_joins_its_product(void **state) {
  (void)state;
  static const char *const steps[] = {"matmul + bias + gelu",
                                      "matmul + bias, unary",
                                      "matmul, add + gelu",
                                      "matmul, add, unary",
                                      "matmul + bias + gelu + residual",
                                      "matmul + bias + gelu + gate"};
  tsr_cluster *cluster = plan_cluster_of(1, (plan_device){.gflops = 10, .memory_gb = 1});
  for (int i = 0; i < 6; i++) expect_steps(plan_of(product_and(i), cluster), steps[i]);
  tsr_cluster_destroy(&cluster);
  cluster = plan_cluster_of(2, (plan_device){.gflops = 10, .memory_gb = 1});
  /* To a partial product one member adds the bias. */
  expect_steps(plan_of(plan_ffn(512, 256, 1024, false, true), cluster),
               "matmul + bias + gelu, matmul + bias");
  tsr_cluster_destroy(&cluster);
}

static void pinned_offsets_are_kept(void **state) {
  (void)state;
  static const int64_t offsets[] = {0, 3, 3, 50}, others[] = {0, 1, 3, 50};
  tsr_cluster *cluster = plan_cluster_of(3, (plan_device){.gflops = 10, .memory_gb = 1});
  for (int contradict = 0; contradict < 2; contradict++) {
    tsr_graph *graph = plan_graph();
    tsr_value x = plan_input(graph, "x", 50, 8), w = plan_parameter(graph, "w", 8, 40), y;
    tsr_layout by_rows = tsr_layout_shard(0, 3, offsets), other = tsr_layout_shard(0, 3, others), found;
    plan_ok(tsr_graph_pin(graph, x, &by_rows, &plan_error));
    plan_ok(tsr_graph_matmul(graph, x, w, NULL, &y, &plan_error));
    plan_ok(tsr_graph_output(graph, "y", y, &plan_error));
    plan_ok(tsr_graph_pin(graph, y, contradict ? &other : &by_rows, &plan_error));
    tsr_plan *plan = NULL;
    tsr_status status = tsr_plan_create(graph, cluster, TSR_PLAN_OPTIONS(.replicate = TSR_REPLICATE_AUTO),
                                        &plan, &plan_error);
    if (contradict) {
      plan_refused(status, TSR_ERROR_INVALID_ARGUMENT, "\"y\"");
    } else {
      plan_ok(status);
      plan_check(plan);
      plan_ok(tsr_plan_layout(plan, x, &found, &plan_error));
      assert_memory_equal(found.on[0].offsets, offsets, sizeof offsets);
      char *text = plan_text(plan, TSR_PLAN_EXPLAIN); /* which plans for one member, too */
      free(text);
    }
    tsr_plan_destroy(&plan);
    tsr_graph_destroy(&graph);
  }
  tsr_cluster_destroy(&cluster);
}

static void pinned_offsets_and_no_memory_are_refused(void **state) {
  (void)state;
  static const int64_t offsets[] = {0, 3, 3, 50};
  tsr_cluster *cluster = plan_cluster_of(3, (plan_device){.gflops = 10, .memory_gb = 1e-6});
  tsr_graph *graph = plan_graph();
  tsr_value x = plan_input(graph, "x", 50, 8), w = plan_parameter(graph, "w", 8, 40), y;
  tsr_layout by_rows = tsr_layout_shard(0, 3, offsets);
  plan_ok(tsr_graph_pin(graph, x, &by_rows, &plan_error));
  plan_ok(tsr_graph_matmul(graph, x, w, NULL, &y, &plan_error));
  plan_ok(tsr_graph_output(graph, "y", y, &plan_error));
  tsr_plan *plan;
  plan_refused(tsr_plan_create(graph, cluster, NULL, &plan, &plan_error), TSR_ERROR_INFEASIBLE,
               "pinned offsets leave no choice");
  tsr_plan_destroy(&plan);
  tsr_graph_destroy(&graph);
  tsr_cluster_destroy(&cluster);
}

/* Weights of one element, axes of one element that are pinned to be split, one member that is told to split.
 */
static void ragged_and_tiny_shapes_are_planned(void **state) {
  (void)state;
  static const int64_t extents[] = {1, 7, 13, 257, 1000};
  for (int members = 1; members <= 7; members += 2) {
    tsr_cluster *cluster = plan_cluster_of(members, (plan_device){.gflops = 10, .memory_gb = 1, .panel = 16});
    for (int i = 0; i < 75; i++)
      for (int keep = 0; keep < 2; keep++) {
        int64_t m = extents[i % 5], n = extents[i / 5 % 5], k = extents[(i / 25 + i) % 5];
        tsr_plan_options options;
        tsr_plan_options_init(&options);
        options.keep_all = keep;
        options.replicate = (tsr_replicate)(i / 25);
        tsr_plan *plan = plan_fit(plan_gemm(m, n, k, true), cluster, &options);
        plan_check(plan);
        tsr_plan_destroy(&plan);
      }
    tsr_graph *graph = plan_graph();
    tsr_value x = plan_input(graph, "x", 1, 8), w = plan_parameter(graph, "w", 8, 1), y;
    plan_pin(graph, x, 0);
    plan_pin(graph, w, 1);
    plan_ok(tsr_graph_matmul(graph, x, w, NULL, &y, &plan_error));
    plan_ok(tsr_graph_output(graph, "y", y, &plan_error));
    plan_pin(graph, y, 0);
    tsr_plan *plan =
        plan_fit(graph, cluster, TSR_PLAN_OPTIONS(.replicate = TSR_REPLICATE_AUTO, .keep_all = true));
    plan_check(plan);
    tsr_plan_destroy(&plan);
    tsr_cluster_destroy(&cluster);
  }
}

/* --- memory -----------------------------------------------------------------------------------------------
 */

/* As memory grows, what was feasible stays so. */
static void more_memory_never_hurts(void **state) {
  (void)state;
  int changes = 0;
  for (int i = 0; i < 25; i++) {
    bool fitted = false;
    for (uint64_t kilobytes = 256; kilobytes <= 16384; kilobytes += kilobytes / 3) {
      plan_seed(9000 + (uint64_t)i);
      tsr_plan_options options = random_options();
      tsr_cluster *cluster = random_cluster((int)plan_between(1, 4));
      for (int m = 0; m < cluster->member_count; m++) {
        plan_ok(tsr_cluster_set_memory(cluster, m, 1000 * kilobytes / (uint64_t)(plan_between(1, 3)),
                                       &plan_error));
        cluster->members[m].max_allocation_bytes = cluster->members[m].memory_bytes;
      }
      options.replicate = TSR_REPLICATE_AUTO;
      tsr_plan *plan = plan_make(plan_random_graph((int)plan_between(1, 8)), cluster, &options);
      plan_check(plan);
      changes += plan->feasible && !fitted;
      if (fitted && !plan->feasible)
        fail_msg("case %d: %" PRIu64 " kB do not fit, less did: %s", i, kilobytes, plan->reason);
      fitted = plan->feasible;
      tsr_plan_destroy(&plan);
      tsr_cluster_destroy(&cluster);
    }
  }
  assert_true(changes > 15);
}

/* One matrix product of 64 x 64 x 64 in f32 on one device needs 3 x 16 KiB: short by exactly n bytes. */
static void a_shortage_is_named_to_the_byte(void **state) {
  (void)state;
  const uint64_t need = 3 * 64 * 64 * 4;
  tsr_plan_options options;
  tsr_plan_options_init(&options);
  options.reserve_fraction = -1;
  for (uint64_t missing = 0; missing < 3; missing++) {
    tsr_cluster *cluster = plan_cluster_of(1, (plan_device){.gflops = 10, .memory_gb = 1});
    plan_ok(tsr_cluster_set_memory(cluster, 0, need - missing, &plan_error));
    tsr_plan *plan = plan_make(plan_gemm(64, 64, 64, false), cluster, &options);
    assert_int_equal(plan->feasible, !missing);
    char words[64];
    snprintf(words, sizeof words, "rank 0 is short by %" PRIu64 " byte%s;", missing, missing == 1 ? "" : "s");
    if (missing && !strstr(plan->reason, words)) fail_msg("\"%s\" lacks \"%s\"", plan->reason, words);
    tsr_plan_destroy(&plan);
    tsr_cluster_destroy(&cluster);
  }
}

/* x is whole on every member and alone as large as member 1's memory; the weight splits as it must. */
static void the_rank_that_is_short_is_named(void **state) {
  (void)state;
  tsr_plan_options options;
  tsr_plan_options_init(&options);
  options.reserve_fraction = -1;
  options.keep_all = true;
  tsr_cluster *cluster = plan_cluster_of(3, (plan_device){.gflops = 10, .memory_gb = 1});
  plan_ok(tsr_cluster_set_memory(cluster, 1, 64 * 64 * 4 - 77, &plan_error));
  tsr_graph *graph = plan_gemm(64, 64, 64, false);
  tsr_plan *plan;
  plan_refused(tsr_plan_create(graph, cluster, &options, &plan, &plan_error), TSR_ERROR_INFEASIBLE,
               "rank 1 is short by 77 bytes;");
  assert_string_equal(plan->reason, plan_error.message);
  tsr_plan_destroy(&plan);
  tsr_graph_destroy(&graph);
  tsr_cluster_destroy(&cluster);
}

/* A row that is larger than one allocation cannot be cut any further. */
static void a_row_too_long_for_an_allocation_is_named(void **state) {
  (void)state;
  tsr_cluster *cluster = plan_cluster_of(1, (plan_device){.gflops = 10, .memory_gb = 1});
  cluster->members[0].max_allocation_bytes = 1000;
  tsr_graph *graph = plan_gemm(4, 4, 251, false);
  tsr_plan *plan;
  plan_refused(tsr_plan_create(graph, cluster, NULL, &plan, &plan_error), TSR_ERROR_INFEASIBLE,
               "; rank 0 allocates at most 1000 bytes at once, a row or panel of a takes 1004;");
  tsr_plan_destroy(&plan);
  tsr_graph_destroy(&graph);
  tsr_cluster_destroy(&cluster);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_plans_are_sound),
      cmocka_unit_test(an_update_is_made_in_place),
      cmocka_unit_test(a_target_that_is_kept_elsewhere_is_not_overwritten),
      cmocka_unit_test(states_that_shift_are_read_before_they_change),
      cmocka_unit_test(states_that_swap_are_refused),
      cmocka_unit_test(an_epilogue_joins_its_product),
      cmocka_unit_test(pinned_offsets_are_kept),
      cmocka_unit_test(pinned_offsets_and_no_memory_are_refused),
      cmocka_unit_test(ragged_and_tiny_shapes_are_planned),
      cmocka_unit_test(more_memory_never_hurts),
      cmocka_unit_test(a_shortage_is_named_to_the_byte),
      cmocka_unit_test(the_rank_that_is_short_is_named),
      cmocka_unit_test(a_row_too_long_for_an_allocation_is_named),
  };
  return cmocka_run_group_tests_name("plan_lower", tests, plan_setup, plan_teardown);
}
