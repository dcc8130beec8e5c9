/* plan_support.c: clusters, graphs and random numbers for tests of the planner. The checker of lowered plans
 * is plan_checker.c. */
#include "plan_support.h"

tsr_context *plan_context;
tsr_error plan_error;

int plan_setup(void **state) {
  (void)state;
  return tsr_context_create(NULL, &plan_context, &plan_error) != TSR_OK;
}

int plan_teardown(void **state) {
  (void)state;
  tsr_context_destroy(&plan_context);
  return 0;
}

void plan_ok(tsr_status status) {
  if (status != TSR_OK) fail_msg("%s", plan_error.message);
}

void plan_refused(tsr_status found, tsr_status status, const char *words) {
  assert_int_equal(found, status);
  assert_int_equal(plan_error.status, status);
  assert_null(strchr(plan_error.message, '\n'));
  if (!strstr(plan_error.message, words)) fail_msg("\"%s\" lacks \"%s\"", plan_error.message, words);
}

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t random_state;

void plan_seed(uint64_t seed) {
  random_state = seed;
}

uint64_t plan_random(void) {
  uint64_t z = random_state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t plan_between(int64_t low, int64_t high) {
  return low + (int64_t)(plan_random() % (uint64_t)(high - low + 1));
}

bool plan_chance(int percent) {
  return plan_between(0, 99) < percent;
}

/* --- clusters ------------------------------------------------------------------------------------------- */

static void fill_member(tsr_cluster_member *member, const plan_device *device) {
  static const int64_t rows[] = {16, 128, 512}, sides[] = {128, 512, 1024};
  *member = (tsr_cluster_member){.name = "test device",
                                 .platform = "test",
                                 .backend = "test",
                                 .driver = "1",
                                 .host = "test",
                                 .kind = TSR_DEVICE_CPU,
                                 .memory_bytes = (uint64_t)(device->memory_gb * 1e9),
                                 .launch_seconds = device->launch_seconds ? device->launch_seconds : 1e-5,
                                 .memory_bandwidth = device->memory_bandwidth ? device->memory_bandwidth
                                                                              : device->gflops * 1e8};
  member->max_allocation_bytes = member->memory_bytes / 4;
  for (int dtype = 0; dtype < TSR_CLUSTER_DTYPES; dtype++) {
    member->gemm[dtype] = (tsr_gemm_facts){.family = device->panel ? TSR_GEMM_PANEL : TSR_GEMM_REFERENCE,
                                           .tile_m = 6,
                                           .tile_n = device->panel ? device->panel : 1,
                                           .panel = device->panel,
                                           .stored_k_block = 256,
                                           .stored_panels = 1,
                                           .copied_k_block = 256,
                                           .copied_row_block = 48,
                                           .copied_panels = 1};
    for (int form = 0; form < TSR_GEMM_FORMS; form++)
      for (int i = 0; i < 9; i++) {
        int64_t m = rows[i / 3], side = sides[i % 3];
        double flops = 2.0 * (double)m * (double)side * (double)side;
        member->curves[dtype][form].points[i] = (tsr_gemm_point){
            m, side, member->launch_seconds + flops / (device->gflops * 1e9 / (dtype == TSR_F64 ? 2 : 1))};
        member->curves[dtype][form].count = i + 1;
      }
  }
}

tsr_cluster *plan_cluster(int members, const plan_device *devices) {
  tsr_cluster *cluster;
  plan_ok(tsr_cluster_create(plan_context, members, &cluster, &plan_error));
  cluster->links.host.latency = 2e-6;
  cluster->links.host.bandwidth = 2e9;
  for (int i = 0; i < members; i++) fill_member(&cluster->members[i], &devices[i]);
  return cluster;
}

tsr_cluster *plan_cluster_of(int members, plan_device device) {
  plan_device devices[64];
  assert_in_range(members, 1, 64);
  for (int i = 0; i < members; i++) devices[i] = device;
  return plan_cluster(members, devices);
}

/* --- graphs --------------------------------------------------------------------------------------------- */

tsr_graph *plan_graph(void) {
  tsr_graph *graph;
  plan_ok(tsr_graph_create(plan_context, &graph, &plan_error));
  return graph;
}

tsr_value plan_input(tsr_graph *graph, const char *name, int64_t rows, int64_t cols) {
  tsr_shape shape = tsr_shape_of(2, rows, cols);
  tsr_value value;
  plan_ok(tsr_graph_input(graph, name, TSR_F32, &shape, &value, &plan_error));
  return value;
}

tsr_value plan_parameter(tsr_graph *graph, const char *name, int64_t rows, int64_t cols) {
  tsr_shape shape = tsr_shape_of(2, rows, cols);
  tsr_value value;
  plan_ok(tsr_graph_parameter(graph, name, TSR_F32, &shape, &value, &plan_error));
  return value;
}

tsr_value plan_vector(tsr_graph *graph, const char *name, int64_t length) {
  tsr_shape shape = tsr_shape_of(1, length, 0);
  tsr_value value;
  plan_ok(tsr_graph_parameter(graph, name, TSR_F32, &shape, &value, &plan_error));
  return value;
}

void plan_pin(tsr_graph *graph, tsr_value value, int axis) {
  tsr_layout layout = axis < 0 ? tsr_layout_replicate() : tsr_layout_shard(axis, 0, NULL);
  plan_ok(tsr_graph_pin(graph, value, &layout, &plan_error));
}

/* Adds dy, and outputs "d_<name>" of x and of every parameter. */
static void add_backward(tsr_graph *graph, tsr_value x, tsr_value y, bool pinned) {
  const tsr_shape *shape = &tsr_graph_at(graph, y)->shape;
  tsr_value dy = plan_input(graph, "dy", shape->extent[0], shape->extent[1]), wrt[16] = {x}, gradients[16];
  size_t count = 1;
  if (pinned) plan_pin(graph, dy, -1);
  for (size_t id = 1; id < graph->value_count; id++)
    if (graph->values[id].kind == TSR_PARAMETER) wrt[count++] = (tsr_value){(uint32_t)id};
  plan_ok(tsr_graph_gradients(graph, y, dy, wrt, count, gradients, &plan_error));
  for (size_t i = 0; i < count; i++) {
    char name[64];
    snprintf(name, sizeof name, "d_%s", tsr_graph_at(graph, wrt[i])->name);
    plan_ok(tsr_graph_output(graph, name, gradients[i], &plan_error));
  }
  if (pinned) plan_pin(graph, gradients[0], -1);
}

tsr_graph *plan_gemm(int64_t m, int64_t n, int64_t k, bool backward) {
  tsr_graph *graph = plan_graph();
  tsr_value x = plan_input(graph, "a", m, k), w = plan_parameter(graph, "b", k, n), y;
  plan_pin(graph, x, -1);
  plan_ok(tsr_graph_matmul(graph, x, w, NULL, &y, &plan_error));
  plan_ok(tsr_graph_output(graph, "c", y, &plan_error));
  if (backward) add_backward(graph, x, y, false);
  return graph;
}

tsr_graph *plan_linear(int64_t m, int64_t d_in, int64_t d_out, bool backward) {
  tsr_graph *graph = plan_graph();
  tsr_value x = plan_input(graph, "x", m, d_in), w = plan_parameter(graph, "w", d_in, d_out), y;
  plan_pin(graph, x, -1);
  plan_ok(tsr_graph_linear(graph, x, w, plan_vector(graph, "bias", d_out), &y, &plan_error));
  plan_ok(tsr_graph_output(graph, "y", y, &plan_error));
  if (backward) add_backward(graph, x, y, false);
  return graph;
}

tsr_graph *plan_ffn(int64_t m, int64_t d, int64_t h, bool backward, bool pinned) {
  tsr_graph *graph = plan_graph();
  tsr_value x = plan_input(graph, "x", m, d), y;
  tsr_ffn_options options;
  tsr_ffn_options_init(&options);
  options.hidden = h;
  if (pinned) plan_pin(graph, x, -1);
  plan_ok(tsr_graph_ffn(graph, x, &options, &y, &plan_error));
  plan_ok(tsr_graph_output(graph, "y", y, &plan_error));
  if (pinned) plan_pin(graph, y, -1);
  if (backward) add_backward(graph, x, y, pinned);
  return graph;
}

/* --- random graphs: square matrices, so that any two values fit together ---------------------------------
 */

typedef struct pool {
  tsr_graph *graph;
  int count;
  tsr_value values[64];
  int64_t side;
} pool;

static tsr_value pick(const pool *p) {
  return p->values[plan_between(0, p->count - 1)];
}

static tsr_value random_operator(const pool *p) {
  tsr_graph *graph = p->graph;
  tsr_value a = pick(p), b = pick(p), out;
  switch (plan_between(0, 6)) {
  case 0: plan_ok(tsr_graph_add(graph, 1, a, 1, b, &out, &plan_error)); return out;
  case 1: plan_ok(tsr_graph_multiply(graph, a, b, &out, &plan_error)); return out;
  case 2:
    plan_ok(tsr_graph_unary(graph, (tsr_unary)plan_between(0, TSR_UNARY_COUNT - 1), a, &out, &plan_error));
    return out;
  case 3: { /* a residual of a bias: the reduction of one value broadcast over another */
    plan_ok(tsr_graph_reduce(graph, plan_chance(70) ? TSR_SUM : TSR_MAX, (int)plan_between(0, 1), a, &out,
                             &plan_error));
    plan_ok(tsr_graph_add(graph, 1, b, 1, out, &out, &plan_error));
    return out;
  }
  default: {
    tsr_matmul_options options;
    tsr_matmul_options_init(&options);
    options.transpose_a = plan_chance(20);
    options.transpose_b = plan_chance(20);
    options.beta = plan_chance(25) ? 1 : 0;
    options.c = pick(p);
    plan_ok(tsr_graph_matmul(graph, a, b, &options, &out, &plan_error));
    return out;
  }
  }
}

static void random_ends(const pool *p, tsr_value last) {
  plan_ok(tsr_graph_output(p->graph, "last", last, &plan_error));
  if (plan_chance(40)) plan_pin(p->graph, last, (int)plan_between(-1, 1));
  tsr_value other = pick(p);
  if (plan_chance(30) && !tsr_graph_at(p->graph, other)->output)
    plan_ok(tsr_graph_output(p->graph, "other", other, &plan_error));
  if (plan_chance(40)) {
    tsr_value state;
    tsr_shape shape = tsr_shape_of(2, p->side, p->side);
    plan_ok(tsr_graph_state(p->graph, "s", TSR_F32, &shape, &state, &plan_error));
    plan_ok(tsr_graph_assign(p->graph, state, pick(p), &plan_error));
  }
}

tsr_graph *plan_random_graph(int operators) {
  pool p = {.graph = plan_graph(), .side = plan_between(2, 600)};
  p.values[p.count++] = plan_input(p.graph, "x", p.side, p.side);
  if (plan_chance(60)) plan_pin(p.graph, p.values[0], (int)plan_between(-1, 1));
  for (int i = (int)plan_between(1, 2); i > 0; i--) {
    char name[16];
    snprintf(name, sizeof name, "w%d", i);
    p.values[p.count++] = plan_parameter(p.graph, name, p.side, p.side);
  }
  tsr_value weight = p.values[1], last = weight;
  while ((int)p.graph->node_count < operators) {
    last = random_operator(&p);
    p.values[p.count++] = last;
  }
  if (plan_chance(30)) { /* a step of descent that is no descent: what matters is the assign */
    tsr_value updated;
    plan_ok(tsr_graph_add(p.graph, 1, weight, -0.1, last, &updated, &plan_error));
    plan_ok(tsr_graph_assign(p.graph, weight, updated, &plan_error));
  }
  random_ends(&p, last);
  return p.graph;
}

/* --- plans ---------------------------------------------------------------------------------------------- */

tsr_plan *plan_make(tsr_graph *graph, const tsr_cluster *cluster, const tsr_plan_options *options) {
  tsr_plan *plan = NULL;
  tsr_status status = tsr_plan_create(graph, cluster, options, &plan, &plan_error);
  if (status != TSR_ERROR_INFEASIBLE) plan_ok(status);
  tsr_graph_destroy(&graph);
  return plan;
}

tsr_plan *plan_fit(tsr_graph *graph, const tsr_cluster *cluster, const tsr_plan_options *options) {
  tsr_plan *plan = plan_make(graph, cluster, options);
  if (!plan->feasible) fail_msg("%s", plan->reason);
  return plan;
}

static int append_text(void *user, const char *text, size_t bytes) {
  tsr_text_append(user, "%.*s", (int)bytes, text);
  return 0;
}

char *plan_text(const tsr_plan *plan, tsr_plan_format format) {
  tsr_text text = {0};
  plan_ok(tsr_plan_write(plan, format, append_text, &text, &plan_error));
  return text.data;
}

char *plan_cluster_text(const tsr_cluster *cluster) {
  tsr_text text = {0};
  plan_ok(tsr_cluster_write(cluster, append_text, &text, &plan_error));
  return text.data;
}

tsr_value plan_value(const tsr_plan *plan, const char *name) {
  tsr_value value;
  plan_ok(tsr_graph_find(plan->graph, name, &value, &plan_error));
  return value;
}
