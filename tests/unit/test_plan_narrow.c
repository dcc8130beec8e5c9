/* Room runtime/plan: narrow weights. Their bytes and panels, the curve that their products cost by, the
 * factors of columns that join a product or do not, members that lack the types, and all of it as JSON. */
#include "plan_support.h"

#include "plan/cost.h"
#include "plan/plan_text.h"

static const tsr_dtype narrow[] = {TSR_F16, TSR_BF16, TSR_I8};
enum { NARROW = 3 };

static tsr_graph *ffn_graph(tsr_dtype weights, int64_t m, int64_t d, int64_t h) {
  tsr_graph *graph = plan_graph();
  tsr_value x = plan_input(graph, "x", m, d), y;
  plan_pin(graph, x, -1);
  plan_ok(tsr_graph_ffn(graph, x, TSR_FFN_OPTIONS(.hidden = h, .weight_dtype = weights), &y, &plan_error));
  plan_ok(tsr_graph_output(graph, "y", y, &plan_error));
  plan_pin(graph, y, -1);
  return graph;
}

static uint64_t weight_bytes(const tsr_plan *plan) {
  uint64_t bytes = 0;
  for (int i = 0; i < plan->cluster->member_count; i++) bytes += plan->members[i].lines[TSR_MEMORY_WEIGHTS];
  return bytes;
}

/* A half, or a quarter and the factors, of what f32 takes; the last panel of a share is padded. */
static void weights_take_their_own_bytes(void **state) {
  (void)state;
  enum { D = 64, H = 260 };
  for (int members = 1; members <= 3; members += 2)
    for (int panel = 0; panel <= 16; panel += 16)
      for (int i = 0; i < NARROW; i++) {
        tsr_cluster *cluster =
            plan_cluster_of(members, (plan_device){.gflops = 10, .memory_gb = 1, .panel = panel});
        tsr_plan *plan = plan_fit(ffn_graph(narrow[i], 16, D, H), cluster,
                                  TSR_PLAN_OPTIONS(.replicate = TSR_REPLICATE_NEVER, .keep_all = true));
        plan_check(plan);
        uint64_t size = tsr_dtype_bytes(narrow[i]), expected = 0;
        for (size_t id = 1; id < plan->graph->value_count; id++) {
          const tsr_graph_value *value = &plan->graph->values[id];
          tsr_value self = {(uint32_t)id};
          for (int r = 0; value->kind == TSR_PARAMETER && r < members; r++) {
            tsr_shape own = tsr_plan_local_shape(plan, self, tsr_plan_final_place(plan, self), r);
            uint64_t cols = (uint64_t)own.extent[own.axes - 1];
            if (own.axes == 2 && panel) cols = (cols + 15) / 16 * 16;
            expected += (own.axes == 2 ? (uint64_t)own.extent[0] * size : 4) * cols;
          }
        }
        assert_int_equal(weight_bytes(plan), expected);
        if (!panel && members == 1)
          assert_int_equal(weight_bytes(plan),
                           2 * D * H * size + (narrow[i] == TSR_I8 ? 2 : 1) * 4 * (D + H));
        tsr_plan_destroy(&plan);
        tsr_cluster_destroy(&cluster);
      }
}

/* Each type has panels of the width that its kernel names. */
static void panels_are_those_of_the_type(void **state) {
  (void)state;
  for (int i = 0; i < NARROW; i++) {
    tsr_cluster *cluster = plan_cluster_of(1, (plan_device){.gflops = 10, .memory_gb = 1, .panel = 16});
    cluster->members[0].gemm[narrow[i]].panel = 32;
    tsr_plan *plan = plan_fit(ffn_graph(narrow[i], 16, 64, 256), cluster, NULL);
    tsr_value w = plan_value(plan, "w1");
    int found = 0;
    for (int b = 0; b < plan->buffer_count; b++)
      if (plan->buffers[b].value.id == w.id) found = tsr_plan_buffer_panel(plan, &plan->buffers[b], 0);
    assert_int_equal(found, 32);
    tsr_plan_destroy(&plan);
    tsr_cluster_destroy(&cluster);
  }
}

/* The time of a product is that of its weight's type. */
static void products_cost_by_the_curve_of_their_weight(void **state) {
  (void)state;
  tsr_cluster *cluster = plan_cluster_of(1, (plan_device){.gflops = 10, .memory_gb = 1});
  tsr_cluster_member *member = &cluster->members[0];
  for (int i = 0; i < member->curves[TSR_BF16][TSR_GEMM_NN].count; i++)
    member->curves[TSR_BF16][TSR_GEMM_NN].points[i].seconds /= 4;
  double seconds[TSR_DTYPE_COUNT];
  for (int dtype = 0; dtype < TSR_DTYPE_COUNT; dtype++) {
    if (dtype == TSR_F64) continue;
    tsr_plan *plan = plan_fit(ffn_graph((tsr_dtype)dtype, 128, 512, 512), cluster, NULL);
    seconds[dtype] = plan->predicted_seconds;
    tsr_plan_destroy(&plan);
  }
  assert_true(seconds[TSR_F16] == seconds[TSR_F32]);
  assert_true(seconds[TSR_BF16] < 0.3 * seconds[TSR_F32]);
  tsr_cluster_destroy(&cluster);
}

/* Workspace is what the kernel for the weight's type asks for. */
static void workspace_is_that_of_the_type(void **state) {
  (void)state;
  enum { M = 16, K = 8192, N = 64 };
  const tsr_gemm_facts split = {.family = TSR_GEMM_TILE, .tile_m = 64, .tile_n = 64, .split_k = 8};
  for (int dtype = 0; dtype < TSR_DTYPE_COUNT; dtype++) {
    if (dtype == TSR_F64) continue;
    tsr_cluster *cluster = plan_cluster_of(1, (plan_device){.gflops = 10, .memory_gb = 1});
    cluster->members[0].gemm[TSR_BF16] = split;
    tsr_graph *graph = plan_graph();
    tsr_value x = plan_input(graph, "x", M, K), w, y;
    tsr_shape shape = tsr_shape_of(2, K, N);
    plan_ok(tsr_graph_parameter(graph, "w", (tsr_dtype)dtype, &shape, &w, &plan_error));
    plan_ok(tsr_graph_matmul(graph, x, w, NULL, &y, &plan_error));
    plan_ok(tsr_graph_output(graph, "y", y, &plan_error));
    tsr_plan *plan = plan_fit(graph, cluster, NULL);
    assert_int_equal(plan->members[0].lines[TSR_MEMORY_WORKSPACE], dtype == TSR_BF16 ? 8 * M * N * 4 : 0);
    tsr_plan_destroy(&plan);
    tsr_cluster_destroy(&cluster);
  }
}

/* Without a profile: what is bound by memory is faster by the bytes, what is bound by arithmetic is not. */
static void estimates_count_bytes(void **state) {
  (void)state;
  tsr_cluster_member member = {.kind = TSR_DEVICE_GPU};
  for (int dtype = 0; dtype < TSR_CLUSTER_DTYPES; dtype++) member.gemm[dtype].family = TSR_GEMM_TILE;
  tsr_cluster_estimate(&member, 600);
  const tsr_gemm_point *wide = member.curves[TSR_F32][TSR_GEMM_NN].points,
                       *bf16 = member.curves[TSR_BF16][TSR_GEMM_NN].points,
                       *i8 = member.curves[TSR_I8][TSR_GEMM_NN].points;
  const double launch = member.launch_seconds;
  assert_int_equal(member.curves[TSR_I8][TSR_GEMM_NT].count, 9);
  assert_true(bf16[2].seconds - launch < 0.51 * (wide[2].seconds - launch)); /* m = 16, side = 1024 */
  assert_true(i8[2].seconds < bf16[2].seconds);
  assert_true(i8[8].seconds == wide[8].seconds); /* m = 512 */
}

/* ---- factors of columns ---- */

typedef struct column_case {
  bool transpose_b, adds, bias;
  uint64_t allocation; /* largest; 0 = no limit */
  int panel;
} column_case;

static tsr_plan *column_plan(const column_case *c, tsr_cluster **cluster) {
  enum { M = 16, K = 64, N = 96 };
  tsr_graph *graph = plan_graph();
  tsr_shape shape = c->transpose_b ? tsr_shape_of(2, N, K) : tsr_shape_of(2, K, N);
  tsr_value x = plan_input(graph, "x", M, K), w, y, summand = TSR_NO_VALUE;
  plan_ok(tsr_graph_parameter(graph, "w", TSR_I8, &shape, &w, &plan_error));
  if (c->adds) summand = plan_input(graph, "c", M, N);
  plan_ok(tsr_graph_matmul(
      graph, x, w, TSR_MATMUL_OPTIONS(.transpose_b = c->transpose_b, .beta = c->adds ? 2 : 0, .c = summand),
      &y, &plan_error));
  plan_ok(tsr_graph_multiply(graph, y, plan_vector(graph, "w_scale", N), &y, &plan_error));
  if (c->bias) {
    plan_ok(tsr_graph_add(graph, 1, y, 1, plan_vector(graph, "bias", N), &y, &plan_error));
    plan_ok(tsr_graph_unary(graph, TSR_UNARY_GELU, y, &y, &plan_error));
  }
  plan_ok(tsr_graph_output(graph, "y", y, &plan_error));
  *cluster = plan_cluster_of(1, (plan_device){.gflops = 10, .memory_gb = 1, .panel = c->panel});
  if (c->allocation) (*cluster)->members[0].max_allocation_bytes = c->allocation;
  tsr_plan *plan = plan_fit(graph, *cluster, NULL);
  plan_check(plan);
  return plan;
}

static void factors_join_their_product(void **state) {
  (void)state;
  static const struct {
    column_case c;
    const char *text; /* of the first step */
  } rows[] = {
      {{.bias = false}, "matmul nn + scale y"},
      {{.bias = true}, "matmul nn + scale + bias + gelu y"},
      {{.bias = true, .panel = 16}, "matmul nn + scale + bias + gelu y"},
      {{.transpose_b = true}, "matmul nt %3"},
      {{.adds = true}, "matmul nn %4"},
      {{.allocation = 6144}, "matmul nn + scale y"},              /* w is one piece */
      {{.allocation = 6143}, "matmul nn %3"},                     /* its rows, k, are cut */
      {{.allocation = 6143, .panel = 16}, "matmul nn + scale y"}, /* its columns are */
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[128];
    tsr_cluster *cluster;
    tsr_plan *plan = column_plan(&rows[i].c, &cluster);
    assert_string_equal(tsr_plan_step_text(plan, &plan->steps[0], text, sizeof text), rows[i].text);
    tsr_plan_destroy(&plan);
    tsr_cluster_destroy(&cluster);
  }
}

/* A row that f32 is multiplied by stays a step of its own. */
static void other_rows_do_not_join(void **state) {
  (void)state;
  char text[128];
  tsr_graph *graph = plan_graph();
  tsr_value x = plan_input(graph, "x", 16, 64), w = plan_parameter(graph, "w", 64, 96), y;
  plan_ok(tsr_graph_matmul(graph, x, w, NULL, &y, &plan_error));
  plan_ok(tsr_graph_multiply(graph, y, plan_vector(graph, "w_scale", 96), &y, &plan_error));
  plan_ok(tsr_graph_output(graph, "y", y, &plan_error));
  tsr_cluster *cluster = plan_cluster_of(1, (plan_device){.gflops = 10, .memory_gb = 1});
  tsr_plan *plan = plan_fit(graph, cluster, NULL);
  assert_string_equal(tsr_plan_step_text(plan, &plan->steps[0], text, sizeof text), "matmul nn %3");
  assert_int_equal(plan->step_count, 2);
  tsr_plan_destroy(&plan);
  tsr_cluster_destroy(&cluster);
}

/* ---- members and documents ---- */

static void a_member_without_the_types_is_left_out(void **state) {
  (void)state;
  tsr_plan *plan;
  tsr_cluster *cluster = plan_cluster_of(2, (plan_device){.gflops = 10, .memory_gb = 8});
  cluster->members[1].gemm[TSR_BF16].family = TSR_GEMM_NONE;
  plan = plan_fit(ffn_graph(TSR_BF16, 512, 1024, 2048), cluster, NULL);
  assert_true(plan->members[0].active && !plan->members[1].active);
  tsr_plan_destroy(&plan);
  plan = plan_fit(ffn_graph(TSR_I8, 512, 1024, 2048), cluster, NULL);
  assert_true(plan->members[0].active && plan->members[1].active);
  tsr_plan_destroy(&plan);
  tsr_cluster_destroy(&cluster);
}

static tsr_cluster *read_cluster(const char *text) {
  tsr_cluster *cluster = NULL;
  plan_ok(tsr_cluster_parse(plan_context, text, strlen(text), &cluster, &plan_error));
  return cluster;
}

/* A document from before there were narrow weights: the types are not there, and all else is as it was. */
static void clusters_may_lack_the_types(void **state) {
  (void)state;
  tsr_cluster *cluster = plan_cluster_of(1, (plan_device){.gflops = 10, .memory_gb = 8});
  char *text = plan_cluster_text(cluster), *again;
  tsr_cluster *read = read_cluster(text);
  again = plan_cluster_text(read);
  assert_string_equal(text, again);
  assert_true(tsr_gemm_facts_equal(read->members[0].gemm, cluster->members[0].gemm, TSR_CLUSTER_DTYPES));
  tsr_cluster_destroy(&read);
  free(again);

  json_t *document = json_loads(text, 0, NULL);
  json_t *gemm = json_object_get(json_array_get(json_object_get(document, "members"), 0), "gemm");
  assert_int_equal(json_object_size(gemm), 5);
  assert_int_equal(json_object_del(gemm, "f32xbf16"), 0);
  again = json_dumps(document, JSON_REAL_PRECISION(17));
  read = read_cluster(again);
  assert_int_equal(read->members[0].gemm[TSR_BF16].family, TSR_GEMM_NONE);
  assert_int_equal(read->members[0].gemm[TSR_I8].family, TSR_GEMM_REFERENCE);
  assert_int_equal(json_object_del(gemm, "f64"), 0);
  free(again);
  again = json_dumps(document, 0);
  plan_refused(tsr_cluster_parse(plan_context, again, strlen(again), &read, &plan_error), TSR_ERROR_FORMAT,
               "f64");
  tsr_cluster_destroy(&read);
  json_decref(document);
  free(text), free(again);
  tsr_cluster_destroy(&cluster);
}

static void plans_come_back(void **state) {
  (void)state;
  for (int i = 0; i < NARROW; i++) {
    tsr_cluster *cluster = plan_cluster_of(3, (plan_device){.gflops = 10, .memory_gb = 1, .panel = 16});
    tsr_plan *plan = plan_fit(ffn_graph(narrow[i], 64, 512, 2048), cluster, NULL), *read;
    char *text = plan_text(plan, TSR_PLAN_JSON), *again;
    plan_ok(tsr_plan_parse(plan_context, text, strlen(text), &read, &plan_error));
    plan_check(read);
    again = plan_text(read, TSR_PLAN_JSON);
    assert_string_equal(text, again);
    free(text), free(again);
    tsr_plan_destroy(&plan);
    tsr_plan_destroy(&read);
    tsr_cluster_destroy(&cluster);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_take_their_own_bytes),
      cmocka_unit_test(panels_are_those_of_the_type),
      cmocka_unit_test(products_cost_by_the_curve_of_their_weight),
      cmocka_unit_test(workspace_is_that_of_the_type),
      cmocka_unit_test(estimates_count_bytes),
      cmocka_unit_test(factors_join_their_product),
      cmocka_unit_test(other_rows_do_not_join),
      cmocka_unit_test(a_member_without_the_types_is_left_out),
      cmocka_unit_test(clusters_may_lack_the_types),
      cmocka_unit_test(plans_come_back),
  };
  return cmocka_run_group_tests_name("plan_narrow", tests, plan_setup, plan_teardown);
}
