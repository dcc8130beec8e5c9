/* exec_support.c: members, graphs, comparison. The interpreter is exec_values.c. */
#include "exec_support.h"

tsr_context *exec_context;
tsr_error exec_error;

int exec_begin(void **state) {
  (void)state;
  setenv("RUSTICL_ENABLE", "llvmpipe", 0); /* before the first OpenCL call */
  return tsr_context_create(NULL, &exec_context, &exec_error) != TSR_OK;
}

int exec_end(void **state) {
  (void)state;
  tsr_context_destroy(&exec_context);
  return 0;
}

void exec_ok(tsr_status status) {
  if (status != TSR_OK)
    fail_msg("%s: %s %s", tsr_status_name(status), exec_error.message, exec_error.build_log);
}

void exec_refused(tsr_status found, tsr_status wanted, const char *words) {
  if (found != wanted) print_message("%s\n", exec_error.message);
  assert_int_equal(found, wanted);
  assert_int_equal(exec_error.status, wanted);
  assert_null(strchr(exec_error.message, '\n'));
  if (!strstr(exec_error.message, words)) fail_msg("\"%s\" lacks \"%s\"", exec_error.message, words);
}

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t random_state;

void exec_seed(uint64_t seed) {
  random_state = seed;
}

int64_t exec_between(int64_t low, int64_t high) {
  uint64_t z = random_state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return low + (int64_t)((z ^ (z >> 31)) % (uint64_t)(high - low + 1));
}

/* ---- members ---- */

bool exec_has(const char *selector) {
  tsr_device_list *list = NULL;
  bool found = false;
  exec_ok(tsr_device_list_create(exec_context, &list, &exec_error));
  for (size_t i = 0; i < tsr_device_list_count(list); i++) {
    const tsr_device_info *info = tsr_device_list_get(list, i);
    found = found || (info->usable && tsr_device_matches(selector, info));
  }
  tsr_device_list_destroy(&list);
  if (!found) print_message("skipped: no device matches \"%s\"\n", selector);
  return found;
}

static void make_faster(tsr_cluster_member *member, double speed) {
  for (int dtype = 0; dtype < TSR_CLUSTER_DTYPES; dtype++)
    for (int form = 0; form < TSR_GEMM_FORMS; form++)
      for (int i = 0; i < member->curves[dtype][form].count; i++)
        member->curves[dtype][form].points[i].seconds /= speed;
  member->memory_bandwidth *= speed;
}

void exec_open(exec_rig *rig, const exec_setup *setup) {
  *rig = (exec_rig){.setup = *setup};
  int members = setup->members;
  exec_ok(members == 1 ? tsr_group_create_self(exec_context, &rig->group, &exec_error)
                       : tsr_group_create_sim(exec_context, members, NULL, &rig->group, &exec_error));
  for (int i = 0; i < members; i++) {
    tsr_device_options options;
    tsr_device_options_init(&options);
    options.memory_bytes = setup->memory[i];
    options.max_allocation_bytes = setup->max_allocation;
    exec_ok(tsr_device_open(exec_context, setup->selectors[i] ? setup->selectors[i] : "host", &options,
                            &rig->devices[i], &exec_error));
  }
  tsr_measure_options measure;
  tsr_measure_options_init(&measure);
  measure.estimate_only = true;
  exec_ok(
      tsr_cluster_measure(rig->group, rig->devices, (size_t)members, &measure, &rig->cluster, &exec_error));
  /* Nobody is slow to reach: so that small problems are split at all. */
  rig->cluster->links.host.latency = 1e-9;
  rig->cluster->links.host.bandwidth = 1e12;
  rig->cluster->links.reduce_bandwidth = 1e10;
  for (int i = 0; i < members; i++)
    if (setup->speeds[i] > 0) make_faster(&rig->cluster->members[i], setup->speeds[i]);
}

bool exec_plan(exec_rig *rig, tsr_graph *graph) {
  tsr_plan_options *options =
      TSR_PLAN_OPTIONS(.replicate = rig->setup.replicate, .keep_all = rig->setup.keep_all,
                       .chunks = rig->setup.chunks, .reserve_fraction = -1);
  tsr_status status = tsr_plan_create(graph, rig->cluster, options, &rig->plan, &exec_error);
  tsr_graph_destroy(&graph);
  bool contradicts =
      status == TSR_ERROR_INVALID_ARGUMENT && strstr(exec_error.message, "are pinned at different");
  if (status == TSR_ERROR_INFEASIBLE || contradicts) return false;
  exec_ok(status);
  return true;
}

void exec_create(exec_rig *rig, tsr_graph *graph) {
  if (!exec_plan(rig, graph)) fail_msg("%s", exec_error.message);
  exec_ok(tsr_session_create(rig->group, rig->plan, rig->devices, (size_t)rig->setup.members, &rig->session,
                             &exec_error));
  for (int i = 0; i < rig->setup.members; i++)
    assert_int_equal(tsr_device_bytes_used(rig->devices[i]), rig->plan->members[i].bytes);
}

tsr_status exec_step(exec_rig *rig) {
  tsr_status status = tsr_session_start(rig->session, &exec_error);
  return status == TSR_OK ? tsr_session_wait(rig->session, &exec_error) : status;
}

void exec_discard(exec_rig *rig) {
  tsr_session_destroy(&rig->session);
  tsr_plan_destroy(&rig->plan);
  for (int i = 0; i < rig->setup.members; i++) assert_int_equal(tsr_device_bytes_used(rig->devices[i]), 0);
}

void exec_close(exec_rig *rig) {
  exec_discard(rig);
  tsr_cluster_destroy(&rig->cluster);
  for (int i = 0; i < rig->setup.members; i++) tsr_device_close(&rig->devices[i]);
  tsr_group_destroy(&rig->group);
}

/* ---- comparison ---- */

tsr_value exec_value(const exec_rig *rig, const char *name) {
  tsr_value value;
  exec_ok(tsr_graph_find(rig->plan->graph, name, &value, &exec_error));
  return value;
}

double *exec_gather(exec_rig *rig, tsr_value value) {
  const tsr_shape *shape = &tsr_graph_at(rig->plan->graph, value)->shape;
  double *data = calloc((size_t)tsr_shape_count(shape) + 1, sizeof *data);
  tsr_array array = tsr_array_dense(data, TSR_F64, shape);
  exec_ok(tsr_session_gather(rig->session, value, &array, &exec_error));
  return data;
}

static void compare(const exec_rig *rig, tsr_value value, const char *how, const double *found,
                    const double *expected, const double *bound, int64_t count, int64_t at) {
  for (int64_t i = 0; i < count; i++) {
    double error = fabs(found[i] - expected[i]);
    if (found[i] == expected[i] || (bound && error <= bound[i])) continue;
    fail_msg("%d members, %s, %s: element %lld is %.17g, expected %.17g, off by %.3g, bound %.3g",
             rig->setup.members, tsr_graph_describe(rig->plan->graph, value).text, how, (long long)(at + i),
             found[i], expected[i], error, bound ? bound[i] : 0);
  }
}

/* The member's own block, through a buffer whose rows and columns have gaps. */
static void compare_member(exec_rig *rig, int member, int index, tsr_value value, const double *expected,
                           const double *bound) {
  const tsr_plan *plan = rig->plan;
  tsr_place place = tsr_plan_final_place(plan, value);
  tsr_shape whole = tsr_graph_at(plan->graph, value)->shape,
            own = tsr_plan_local_shape(plan, value, place, index);
  int64_t rows, cols, all_rows, all_cols, begin = 0, end;
  tsr_shape_matrix(&own, &rows, &cols);
  tsr_shape_matrix(&whole, &all_rows, &all_cols);
  int64_t row0 = 0, col0 = 0, unit;
  bool along_cols;
  if (place >= 0) {
    tsr_plan_range(plan, value, place, place, index, &begin, &end);
    assert_true(tsr_axis_matrix(&whole, place, &along_cols, &unit));
    *(along_cols ? &col0 : &row0) = begin * unit;
  }
  double *data = calloc((size_t)(rows * (3 * cols + 1) + 1), sizeof *data);
  tsr_array array = tsr_array_dense(data, TSR_F64, &own);
  for (int i = 0; i < own.axes; i++) array.stride[i] *= 3;
  if (own.axes > 1) array.stride[0] = 3 * cols + 1;
  exec_ok(tsr_session_read(rig->session, member, value, &array, &exec_error));
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) {
      int64_t at = (row0 + r) * all_cols + col0 + c;
      compare(rig, value, "read by a member", data + r * (3 * cols + 1) + 3 * c, expected + at,
              bound ? bound + at : NULL, 1, at);
    }
  free(data);
}

static void compare_value(exec_rig *rig, tsr_value value, const double *expected, const double *bound) {
  double *found = exec_gather(rig, value);
  compare(rig, value, "gathered", found, expected, bound,
          tsr_shape_count(&tsr_graph_at(rig->plan->graph, value)->shape), 0);
  free(found);
  for (int r = 0; r < rig->plan->decision.active_count; r++)
    compare_member(rig, rig->plan->decision.active[r], r, value, expected, bound);
}

void exec_expect_exact(exec_rig *rig, const exec_values *values) {
  const tsr_graph *graph = rig->plan->graph;
  for (uint32_t id = 1; id < graph->value_count; id++)
    if (graph->values[id].output || graph->values[id].producer < 0)
      compare_value(rig, (tsr_value){id}, values->data[id], NULL);
}

int exec_run_exact(exec_rig *rig, const tsr_source *source, int steps) {
  exec_values values;
  exec_values_init(&values, rig->plan->graph, source);
  exec_ok(tsr_session_load(rig->session, source, &exec_error));
  int exact = 0;
  double limit = tsr_graph_at(rig->plan->graph, (tsr_value){1})->dtype == TSR_F64 ? 0x1p53 : 0x1p24;
  while (exact < steps) {
    exec_values_compute(&values);
    exec_values_assign(&values);
    exec_ok(exec_step(rig));
    if (values.magnitude >= limit) break;
    exec_expect_exact(rig, &values);
    exact++;
  }
  exec_values_finish(&values);
  return exact;
}

/* A target holds the assigned value now. */
static void expect_bound(exec_rig *rig, const tsr_oracle_value *values) {
  const tsr_graph *graph = rig->plan->graph;
  for (uint32_t id = 1; id < graph->value_count; id++) {
    uint32_t source = graph->values[id].assigned.id ? graph->values[id].assigned.id : id;
    if (source != id || graph->values[id].output)
      compare_value(rig, (tsr_value){id}, values[source].exact, values[source].error);
  }
}

void exec_run_bound(exec_rig *rig, const tsr_source *source, int steps) {
  const tsr_graph *graph = rig->plan->graph;
  exec_ok(tsr_session_load(rig->session, source, &exec_error));
  for (int i = 0; i < steps; i++) {
    tsr_oracle_value *values = calloc(graph->value_count, sizeof *values);
    for (uint32_t id = 1; id < graph->value_count; id++)
      if (graph->values[id].producer < 0) values[id].exact = exec_gather(rig, (tsr_value){id});
    exec_ok(tsr_graph_evaluate(graph, 0, values, &exec_error));
    exec_ok(exec_step(rig));
    expect_bound(rig, values);
    for (uint32_t id = 1; id < graph->value_count; id++) {
      free(values[id].exact);
      free(values[id].error);
    }
    free(values);
  }
}
