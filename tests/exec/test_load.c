/* test_load.c: what goes into a session: each member asks a source for its own slices only (the reads are
 * counted: the program is linked so that they pass through here), bind takes any strides and dtypes, states
 * begin as zero, and assigns happen all at once, in place or by a copy. */
#include "exec_support.h"

static int64_t elements_read;

tsr_status __real_tsr_source_read(const tsr_source *source, const char *name, const tsr_shape *whole,
                                  const int64_t *start, const tsr_array *out, tsr_error *error);
tsr_status __wrap_tsr_source_read(const tsr_source *source, const char *name, const tsr_shape *whole,
                                  const int64_t *start, const tsr_array *out, tsr_error *error);
tsr_status __wrap_tsr_source_read(const tsr_source *source, const char *name, const tsr_shape *whole,
                                  const int64_t *start, const tsr_array *out, tsr_error *error) {
  elements_read += tsr_shape_count(&out->shape);
  return __real_tsr_source_read(source, name, whole, start, out, error);
}

/* All that members hold of leaves, and no element more. */
static void reads_own_slices(void **state) {
  (void)state;
  for (int members = 1; members <= 4; members++) {
    exec_setup setup = {
        .members = members, .replicate = TSR_REPLICATE_NEVER, .keep_all = true, .speeds = {1, 3, 2}};
    exec_rig rig;
    exec_open(&rig, &setup);
    exec_create(&rig,
                exec_ffn_graph(&(exec_ffn){.m = 7, .d = 300, .h = 257, .pinned = true, .mode = EXEC_UPDATE}));
    tsr_source *source = exec_source(rig.plan->graph, true, 1, 7);
    int64_t held = 0, weights = 0;
    for (uint32_t id = 1; id < rig.plan->graph->value_count; id++)
      for (int r = 0; r < rig.plan->decision.active_count && rig.plan->graph->values[id].producer < 0; r++) {
        tsr_value value = {id};
        tsr_shape own = tsr_plan_local_shape(rig.plan, value, tsr_plan_final_place(rig.plan, value), r);
        held += tsr_shape_count(&own);
        if (own.axes == 2 && rig.plan->graph->values[id].kind == TSR_PARAMETER)
          weights += tsr_shape_count(&own);
      }
    elements_read = 0;
    exec_ok(tsr_session_load(rig.session, source, &exec_error));
    assert_int_equal(elements_read, held);
    assert_int_equal(weights, 2 * 300 * 257);
    tsr_source_destroy(&source);
    exec_close(&rig);
  }
}

/* f64, transposed, by member. */
static void binds_any_view(void **state) {
  (void)state;
  tsr_graph *graph = exec_graph();
  tsr_value x = exec_leaf(graph, TSR_INPUT, "x", TSR_F32, 2, 5, 13), y;
  exec_pin(graph, x, 1, 3, (const int64_t[]){0, 4, 4, 13});
  exec_ok(tsr_graph_scale(graph, 2, x, &y, &exec_error));
  exec_output(graph, "y", y);
  exec_rig rig;
  exec_open(&rig, &(exec_setup){.members = 3, .keep_all = true});
  exec_create(&rig, graph);
  double data[13][5];
  for (int i = 0; i < 65; i++) data[i / 5][i % 5] = i;
  tsr_array array = {.data = data, .dtype = TSR_F64, .shape = tsr_shape_of(2, 5, 4), .stride = {1, 5}};
  exec_ok(tsr_session_bind(rig.session, 0, x, &array, &exec_error));
  array.shape.extent[1] = 0;
  exec_ok(tsr_session_bind(rig.session, 1, x, &array, &exec_error));
  array.shape.extent[1] = 9;
  array.data = data[4];
  exec_ok(tsr_session_bind(rig.session, 2, x, &array, &exec_error));
  exec_ok(exec_step(&rig));
  double *found = exec_gather(&rig, y);
  for (int r = 0; r < 5; r++)
    for (int c = 0; c < 13; c++) assert_true(found[r * 13 + c] == 2 * data[c][r]);
  free(found);
  exec_close(&rig);
}

static int copies(const tsr_plan *plan) {
  int count = 0;
  for (int i = 0; i < plan->step_count; i++) count += plan->steps[i].kind == TSR_STEP_COPY;
  return count;
}

/* w -= g in place; a state that keeps the sum of all y by a copy; one that is never loaded. */
static void assigns(void **state) {
  (void)state;
  for (int way = 0; way < 4; way++) {
    tsr_graph *graph = exec_graph();
    tsr_value x = exec_leaf(graph, TSR_INPUT, "x", TSR_F64, 2, 7, 13), y, total, next;
    tsr_value w = exec_leaf(graph, TSR_PARAMETER, "w", TSR_F64, 2, 13, 9);
    tsr_value s = exec_leaf(graph, TSR_STATE, "s", TSR_F64, 2, 7, 9);
    exec_ok(tsr_graph_matmul(graph, x, w, NULL, &y, &exec_error));
    exec_ok(tsr_graph_add(graph, 1, s, 1, y, &total, &exec_error));
    exec_ok(tsr_graph_assign(graph, s, way & 1 ? y : total, &exec_error));
    exec_output(graph, "y", y);
    if (way & 2) {
      exec_ok(tsr_graph_scale(graph, -1, w, &next, &exec_error));
      exec_ok(tsr_graph_assign(graph, w, next, &exec_error));
    }
    exec_rig rig;
    exec_open(&rig, &(exec_setup){.members = 3, .keep_all = true, .replicate = TSR_REPLICATE_NEVER});
    exec_create(&rig, graph);
    assert_int_equal(copies(rig.plan), way & 1);
    tsr_source *source;
    exec_ok(tsr_source_create(exec_context, &source, &exec_error));
    exec_ok(tsr_source_add_random(source, "x", TSR_RANDOM_INTEGER, 1, -3, 3, &exec_error));
    exec_ok(tsr_source_add_random(source, "w", TSR_RANDOM_INTEGER, 1, -3, 3, &exec_error));
    assert_int_equal(exec_run_exact(&rig, source, 4), 4);
    tsr_source_destroy(&source);
    exec_close(&rig);
  }
}

/* s becomes what w was before the step, although w is updated in place. */
static void assigns_are_at_once(void **state) {
  (void)state;
  tsr_graph *graph = exec_graph();
  tsr_value w = exec_leaf(graph, TSR_PARAMETER, "w", TSR_F64, 2, 13, 9), next;
  tsr_value s = exec_leaf(graph, TSR_STATE, "s", TSR_F64, 2, 13, 9),
            t = exec_leaf(graph, TSR_STATE, "t", TSR_F64, 2, 13, 9);
  exec_ok(tsr_graph_scale(graph, 2, w, &next, &exec_error));
  exec_ok(tsr_graph_assign(graph, w, next, &exec_error));
  exec_ok(tsr_graph_assign(graph, s, w, &exec_error));
  exec_ok(tsr_graph_assign(graph, t, s, &exec_error));
  exec_rig rig;
  exec_open(&rig, &(exec_setup){.members = 2, .keep_all = true, .replicate = TSR_REPLICATE_NEVER});
  exec_create(&rig, graph);
  tsr_source *source = exec_source(rig.plan->graph, true, 2, 7);
  assert_int_equal(exec_run_exact(&rig, source, 3), 3);
  tsr_source_destroy(&source);
  exec_close(&rig);
}

/* One value that several consumers want in one other layout is converted once. */
static void gathers_once(void **state) {
  (void)state;
  tsr_graph *graph = exec_graph();
  tsr_value x = exec_leaf(graph, TSR_INPUT, "x", TSR_F32, 2, 7, 12), h, a, b;
  tsr_value w = exec_leaf(graph, TSR_PARAMETER, "w", TSR_F32, 2, 12, 12);
  tsr_value u = exec_leaf(graph, TSR_PARAMETER, "u", TSR_F32, 2, 12, 12),
            v = exec_leaf(graph, TSR_PARAMETER, "v", TSR_F32, 2, 12, 12);
  exec_pin(graph, w, 1, 0, NULL), exec_pin(graph, u, 1, 0, NULL), exec_pin(graph, v, 1, 0, NULL);
  exec_ok(tsr_graph_matmul(graph, x, w, NULL, &h, &exec_error));
  exec_ok(tsr_graph_matmul(graph, h, u, NULL, &a, &exec_error));
  exec_ok(tsr_graph_matmul(graph, h, v, NULL, &b, &exec_error));
  exec_output(graph, "h", h), exec_output(graph, "a", a), exec_output(graph, "b", b);
  exec_rig rig;
  exec_open(&rig, &(exec_setup){.members = 3, .keep_all = true, .replicate = TSR_REPLICATE_NEVER});
  exec_create(&rig, graph);
  int gathers = 0;
  for (int i = 0; i < rig.plan->step_count; i++)
    gathers += rig.plan->steps[i].kind == TSR_STEP_CONVERT && rig.plan->steps[i].value.id == h.id;
  assert_int_equal(gathers, 1);
  tsr_source *source = exec_source(rig.plan->graph, true, 1, 7);
  assert_int_equal(exec_run_exact(&rig, source, 2), 2);
  tsr_source_destroy(&source);
  exec_close(&rig);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_own_slices),    cmocka_unit_test(binds_any_view), cmocka_unit_test(assigns),
      cmocka_unit_test(assigns_are_at_once), cmocka_unit_test(gathers_once),
  };
  return cmocka_run_group_tests(tests, exec_begin, exec_end);
}
