/* test_backends.c: the same sessions on every device there is, and on groups that mix them: integers bit for
 * bit, the rest within the oracle's bound. A platform that is missing is skipped. */
#include "exec_support.h"

typedef struct group_row {
  const char *selectors[EXEC_MEMBERS_MAX];
  int64_t scale; /* rusticl on a CPU is slow: sizes are divided */
} group_row;

static const group_row groups[] = {
    {{"host"}, 4},
    {{"pocl"}, 1},
    {{"pocl", "pocl"}, 1},
    {{"rusticl"}, 8},
    {{"pocl", "rusticl", "host"}, 4},
    {{"host", "host", "pocl", "rusticl"}, 8},
};

static exec_setup setup_of(const group_row *row) {
  exec_setup setup = {.replicate = TSR_REPLICATE_NEVER, .keep_all = true};
  while (row->selectors[setup.members]) {
    setup.selectors[setup.members] = row->selectors[setup.members];
    setup.speeds[setup.members] = strcmp(row->selectors[setup.members], "pocl") ? 1 : 0.5;
    setup.members++;
  }
  return setup;
}

static bool is_here(const exec_setup *setup) {
  bool here = true;
  for (int i = 0; i < setup->members && here; i++) here = exec_has(setup->selectors[i]);
  return here;
}

/* Devices stay open: their kernels are compiled once. */
static void run(exec_rig *rig, tsr_graph *graph, bool integers) {
  tsr_check check;
  exec_create(rig, graph);
  tsr_source *source = exec_source(rig->plan->graph, integers, 1, 9);
  if (integers)
    assert_true(exec_run_exact(rig, source, 2) > 0);
  else
    exec_run_bound(rig, source, 2);
  exec_ok(
      tsr_session_check(rig->session, TSR_CHECK_OPTIONS(.seed = 4, .oracle_flops = -1), &check, &exec_error));
  tsr_source_destroy(&source);
  exec_discard(rig);
}

static void gemms(exec_rig *rig, int64_t scale) {
  static const int64_t sizes[][3] = {{512, 257, 300}, {7, 512, 129}, {1, 1, 1}, {129, 13, 512}};
  for (int i = 0; i < 4; i++)
    for (int form = 0; form < 3; form++) {
      int64_t m = sizes[i][0] / scale + 1, n = sizes[i][1] / scale + 1, k = sizes[i][2] / scale + 1;
      bool ta = form == 1, tb = form == 2;
      tsr_graph *graph = exec_graph();
      tsr_value a = exec_leaf(graph, TSR_INPUT, "a", TSR_F32, 2, ta ? k : m, ta ? m : k), c;
      tsr_value b = exec_leaf(graph, TSR_PARAMETER, "b", TSR_F32, 2, tb ? n : k, tb ? k : n);
      exec_ok(tsr_graph_matmul(graph, a, b, TSR_MATMUL_OPTIONS(.transpose_a = ta, .transpose_b = tb), &c,
                               &exec_error));
      exec_output(graph, "c", c);
      exec_extend(graph, (exec_mode)(i % 3), a, c, 1);
      run(rig, graph, true);
    }
}

static void ffns(exec_rig *rig, int64_t scale) {
  for (int mode = 0; mode < 4; mode++)
    for (int activation = 0; activation < TSR_UNARY_COUNT; activation++) {
      bool integers = activation == TSR_UNARY_RELU && mode != EXEC_LOSS;
      if (scale > 1 && !integers && (mode + activation) % 2) continue;
      exec_ffn ffn = {.m = 120 / scale + 1,
                      .d = 200 / scale + 1,
                      .h = 520 / scale + 1,
                      .dtype = TSR_F32,
                      .activation = (tsr_unary)activation,
                      .gated = mode == 2 && !integers,
                      .pinned = true,
                      .mode = (exec_mode)mode,
                      .rate = integers ? 1 : 0.01};
      run(rig, exec_ffn_graph(&ffn), integers);
    }
}

static void conforms(void **state) {
  const group_row *row = *state;
  exec_setup setup = setup_of(row);
  if (!is_here(&setup)) skip();
  exec_rig rig;
  exec_open(&rig, &setup);
  gemms(&rig, row->scale);
  ffns(&rig, row->scale);
  exec_close(&rig);
}

int main(void) {
  struct CMUnitTest tests[sizeof groups / sizeof *groups];
  char names[sizeof groups / sizeof *groups][64] = {{0}};
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
    for (int j = 0; groups[i].selectors[j]; j++)
      snprintf(names[i] + strlen(names[i]), sizeof names[i] - strlen(names[i]), "%s%s", j ? "+" : "",
               groups[i].selectors[j]);
    tests[i] = (struct CMUnitTest){names[i], conforms, NULL, NULL, (void *)&groups[i]};
  }
  return cmocka_run_group_tests(tests, exec_begin, exec_end);
}
