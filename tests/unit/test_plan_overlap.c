/* Room runtime/plan: collectives behind kernels. What goes before what, when cutting a product pays and when
 * it does not, and that a document keeps it. */
#include "plan_support.h"

#include <ctype.h>

#include "plan/chunks.h"

static tsr_cluster *cluster_with(int members, double bandwidth, double latency) {
  tsr_cluster *cluster = plan_cluster_of(
      members, (plan_device){.gflops = 50, .memory_gb = 4, .panel = 16, .launch_seconds = 5e-6});
  cluster->links.host.bandwidth = cluster->links.network.bandwidth = bandwidth;
  cluster->links.host.latency = cluster->links.network.latency = latency;
  return cluster;
}

static tsr_plan *ffn_plan(const tsr_cluster *cluster, bool backward, int chunks) {
  return plan_fit(plan_ffn(512, 2048, 8192, backward, true), cluster,
                  TSR_PLAN_OPTIONS(.replicate = TSR_REPLICATE_NEVER, .keep_all = true, .chunks = chunks));
}

static int most_chunks(const tsr_plan *plan) {
  int most = 1;
  for (int i = 0; i < plan->step_count; i++)
    if (plan->steps[i].chunks > most) most = plan->steps[i].chunks;
  return most;
}

/* y's reduction takes about half as long as its product: cut, most of it is hidden. */
static void a_slow_network_is_hidden_by_chunks(void **state) {
  (void)state;
  tsr_cluster *cluster = cluster_with(2, 40e6, 1e-4);
  tsr_plan *whole = ffn_plan(cluster, false, 1), *cut = ffn_plan(cluster, false, 0);
  plan_check(whole);
  plan_check(cut);
  assert_int_equal(most_chunks(whole), 1);
  assert_true(most_chunks(cut) > 1);
  double saved = whole->predicted_seconds - cut->predicted_seconds, network = 0;
  for (int i = 0; i < whole->step_count; i++)
    if (whole->steps[i].kind == TSR_STEP_CONVERT) network += whole->steps[i].seconds;
  if (saved < 0.5 * network) fail_msg("%.3g of %.3g s saved", saved, network);
  assert_int_not_equal(whole->hash, cut->hash);
  tsr_plan_destroy(&whole);
  tsr_plan_destroy(&cut);
  tsr_cluster_destroy(&cluster);
}

static void a_fast_network_is_left_alone(void **state) {
  (void)state;
  tsr_cluster *cluster = cluster_with(2, 1e11, 1e-6);
  for (int backward = 0; backward < 2; backward++) {
    tsr_plan *plan = ffn_plan(cluster, backward, 0);
    assert_int_equal(most_chunks(plan), 1);
    tsr_plan_destroy(&plan);
  }
  tsr_cluster_destroy(&cluster);
}

/* What a chunk costs in latency is weighed too. */
static void a_long_latency_forbids_chunks(void **state) {
  (void)state;
  tsr_cluster *cluster = cluster_with(2, 1e11, 0.5);
  tsr_plan *plan = ffn_plan(cluster, false, 0);
  assert_int_equal(most_chunks(plan), 1);
  tsr_plan_destroy(&plan);
  tsr_cluster_destroy(&cluster);
}

static int find_step(const tsr_plan *plan, tsr_step_kind kind, const char *name) {
  for (int i = 0; i < plan->step_count; i++)
    if (plan->steps[i].kind == kind && plan->steps[i].value.id == plan_value(plan, name).id) return i;
  fail_msg("no step makes %s", name);
  return -1;
}

/* Backward: gradients of weights are computed while those of x are added up, and y's sums behind all of it.
 */
static void reductions_go_first(void **state) {
  (void)state;
  tsr_cluster *cluster = cluster_with(2, 1e9, 1e-5);
  tsr_plan *plan = ffn_plan(cluster, true, 1);
  plan_check(plan);
  int d_x = find_step(plan, TSR_STEP_CONVERT, "d_x"), y = find_step(plan, TSR_STEP_CONVERT, "y");
  assert_true(find_step(plan, TSR_STEP_NODE, "d_w1") > d_x);
  assert_true(find_step(plan, TSR_STEP_NODE, "d_w2") > y);
  for (int i = 0; i < plan->step_count; i++) assert_int_equal(plan->steps[i].waits_for, -1);
  double compute = plan->members[0].compute_seconds,
         network = plan->steps[y].seconds + plan->steps[d_x].seconds;
  assert_true(plan->predicted_seconds < compute + 0.1 * network);
  tsr_plan_destroy(&plan);
  tsr_cluster_destroy(&cluster);
}

/* a is reduced and read at once; b is independent, and later in the graph. */
static void what_waits_goes_behind_what_does_not(void **state) {
  (void)state;
  tsr_graph *graph = plan_graph();
  tsr_value x = plan_input(graph, "x", 512, 512), w = plan_parameter(graph, "w", 512, 512),
            v = plan_parameter(graph, "v", 512, 512), a, b, c;
  plan_pin(graph, w, 0);
  plan_pin(graph, v, 1);
  plan_ok(tsr_graph_matmul(graph, x, w, NULL, &a, &plan_error));
  plan_ok(tsr_graph_unary(graph, TSR_UNARY_GELU, a, &c, &plan_error));
  plan_ok(tsr_graph_matmul(graph, x, v, NULL, &b, &plan_error));
  plan_ok(tsr_graph_output(graph, "c", c, &plan_error));
  plan_pin(graph, c, -1);
  plan_ok(tsr_graph_output(graph, "b", b, &plan_error));
  tsr_cluster *cluster = cluster_with(2, 1e9, 1e-5);
  tsr_plan *plan = plan_fit(graph, cluster, TSR_PLAN_OPTIONS(.keep_all = true, .chunks = 1));
  plan_check(plan);
  int gelu = find_step(plan, TSR_STEP_NODE, "c");
  assert_true(find_step(plan, TSR_STEP_NODE, "b") < gelu);
  assert_true(plan->steps[gelu].waits_for >= 0);
  tsr_plan_destroy(&plan);
  tsr_cluster_destroy(&cluster);
}

static void a_document_keeps_chunks(void **state) {
  (void)state;
  tsr_cluster *cluster = cluster_with(3, 1e8, 1e-4);
  for (int chunks = 0; chunks <= 5; chunks += 5) {
    tsr_plan *plan = ffn_plan(cluster, true, chunks), *again;
    char *text = plan_text(plan, TSR_PLAN_JSON);
    plan_ok(tsr_plan_parse(plan_context, text, strlen(text), &again, &plan_error));
    plan_check(again);
    assert_int_equal(again->hash, plan->hash);
    assert_int_equal(again->step_count, plan->step_count);
    assert_int_equal(again->options.chunks, chunks);
    for (int i = 0; i < plan->step_count; i++) {
      assert_int_equal(again->steps[i].chunks, plan->steps[i].chunks);
      assert_int_equal(again->steps[i].waits_for, plan->steps[i].waits_for);
    }
    free(text);
    text = plan_text(again, TSR_PLAN_TEXT);
    if (chunks) assert_non_null(strstr(text, "[5/5]"));
    free(text);
    tsr_plan_destroy(&plan);
    tsr_plan_destroy(&again);
  }
  tsr_cluster_destroy(&cluster);
}

/* The document says how many; it does not say nonsense, and cannot be changed. */
static void a_changed_document_is_refused(void **state) {
  (void)state;
  tsr_cluster *cluster = cluster_with(2, 1e8, 1e-4);
  tsr_plan *plan = ffn_plan(cluster, false, 4), *again = NULL;
  static const struct {
    char digit;
    tsr_status status;
    const char *words;
  } rows[] = {{'2', TSR_ERROR_MISMATCH, "hash"}, {'0', TSR_ERROR_FORMAT, "chunks"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char *text = plan_text(plan, TSR_PLAN_JSON), *decision = strstr(text, "\"decision\"");
    char *chunks = strstr(decision, "\"chunks\"");
    while (*chunks != '4') chunks++;
    *chunks = rows[i].digit;
    plan_refused(tsr_plan_parse(plan_context, text, strlen(text), &again, &plan_error), rows[i].status,
                 rows[i].words);
    free(text);
  }
  plan_refused(tsr_plan_create(plan->graph, cluster, TSR_PLAN_OPTIONS(.chunks = TSR_CHUNKS_MAX + 1), &again,
                               &plan_error),
               TSR_ERROR_INVALID_ARGUMENT, "chunks 65");
  tsr_plan_destroy(&plan);
  tsr_cluster_destroy(&cluster);
}

/* What overlap keeps longer is not worth a refusal: where memory is short, nothing moves. */
static void short_memory_is_no_reason_to_refuse(void **state) {
  (void)state;
  int kept = 0;
  for (uint64_t kilobytes = 500; kilobytes < 4000; kilobytes += 50) {
    tsr_cluster *cluster = cluster_with(3, 1e8, 1e-5);
    for (int i = 0; i < 3; i++) plan_ok(tsr_cluster_set_memory(cluster, i, 1000 * kilobytes, &plan_error));
    tsr_plan *plan = plan_make(plan_ffn(256, 256, 512, true, false), cluster,
                               TSR_PLAN_OPTIONS(.reserve_fraction = -1, .keep_all = true));
    plan_check(plan);
    kept += plan->feasible && !plan->overlaps;
    tsr_plan_destroy(&plan);
    tsr_cluster_destroy(&cluster);
  }
  print_message("%d plans fit in the graph's own order alone\n", kept);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_slow_network_is_hidden_by_chunks),
      cmocka_unit_test(a_fast_network_is_left_alone),
      cmocka_unit_test(a_long_latency_forbids_chunks),
      cmocka_unit_test(reductions_go_first),
      cmocka_unit_test(what_waits_goes_behind_what_does_not),
      cmocka_unit_test(a_document_keeps_chunks),
      cmocka_unit_test(a_changed_document_is_refused),
      cmocka_unit_test(short_memory_is_no_reason_to_refuse),
  };
  return cmocka_run_group_tests_name("plan_overlap", tests, plan_setup, plan_teardown);
}
