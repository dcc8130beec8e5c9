/* test_minilm.c: a real feed-forward block with real weights: its output against the stored reference, and
 * ten steps of gradient descent whose losses are known. On the host device (1 and 4 members) and on pocl. */
#include "exec_support.h"

enum { M = 64, D = 384, H = 1536, STEPS = 10 };

/* tests/data/minilm_ffn/sgd.json */
static const double RATE = 1.5;
static const double losses[STEPS] = {0.009999999991720075, 0.007256048273018696,  0.0054578717439167845,
                                     0.004185006670750858, 0.0032604770442720026, 0.002580673718811135,
                                     0.002076610070888395, 0.001699763077325776,  0.001415263373274415,
                                     0.0011979054586486084};

static const struct {
  const char *name, *file, *tensor;
  bool transposed;
} contents[] = {
    {"x", "reference", "input", false},
    {"target", "reference", "target", false},
    {"w1", "weights", "encoder.layer.0.intermediate.dense.weight", true},
    {"b1", "weights", "encoder.layer.0.intermediate.dense.bias", false},
    {"w2", "weights", "encoder.layer.0.output.dense.weight", true},
    {"b2", "weights", "encoder.layer.0.output.dense.bias", false},
    {"reference", "reference", "output", false},
};

static tsr_source *open_contents(void) {
  tsr_source *source;
  exec_ok(tsr_source_create(exec_context, &source, &exec_error));
  for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
    char path[1024];
    snprintf(path, sizeof path, "%s/minilm_ffn/%s.safetensors", getenv("TSR_TEST_DATA"), contents[i].file);
    exec_ok(tsr_source_add_file(source, contents[i].name, path, contents[i].tensor, contents[i].transposed,
                                &exec_error));
  }
  return source;
}

/* The first step is within the oracle's bound, which is within it of the stored reference. */
static void compare_output(exec_rig *rig, const tsr_source *source) {
  double *y = exec_gather(rig, exec_value(rig, "y")), *reference = calloc(M * D, sizeof *reference),
         worst = 0;
  tsr_shape shape = tsr_shape_of(2, M, D);
  tsr_array array = tsr_array_dense(reference, TSR_F64, &shape);
  exec_ok(tsr_source_read(source, "reference", &shape, (int64_t[]){0, 0}, &array, &exec_error));
  for (int i = 0; i < M * D; i++) worst = fmax(worst, fabs(y[i] - reference[i]));
  print_message("  output: off by at most %.3g\n", worst);
  assert_true(worst < 1e-5);
  free(reference);
  free(y);
}

static void train(const exec_setup *setup) {
  exec_ffn ffn = {.m = M, .d = D, .h = H, .dtype = TSR_F32, .pinned = true, .mode = EXEC_LOSS, .rate = RATE};
  exec_rig rig;
  exec_open(&rig, setup);
  exec_create(&rig, exec_ffn_graph(&ffn));
  tsr_source *source = open_contents();
  exec_run_bound(&rig, source, 1);
  compare_output(&rig, source);
  exec_ok(tsr_session_load(rig.session, source, &exec_error));
  for (int i = 0; i < STEPS; i++) {
    exec_ok(exec_step(&rig));
    double *loss = exec_gather(&rig, exec_value(&rig, "loss"));
    if (!(fabs(*loss - losses[i]) <= 1e-5 * losses[i]))
      fail_msg("step %d: loss %.10g, expected %.10g", i, *loss, losses[i]);
    free(loss);
  }
  tsr_source_destroy(&source);
  exec_close(&rig);
}

static void on_host(void **state) {
  (void)state;
  train(&(exec_setup){.members = 1});
}

static void on_four_hosts(void **state) {
  (void)state;
  train(&(exec_setup){
      .members = 4, .speeds = {1, 2, 1, 3}, .replicate = TSR_REPLICATE_NEVER, .keep_all = true});
}

static void on_pocl(void **state) {
  (void)state;
  if (!exec_has("pocl")) skip();
  train(&(exec_setup){.members = 1, .selectors = {"pocl"}});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(on_host),
      cmocka_unit_test(on_four_hosts),
      cmocka_unit_test(on_pocl),
  };
  if (getenv("TSR_TEST_SMALL")) {
    puts("skipped: TSR_TEST_SMALL is set");
    return 77;
  }
  return cmocka_run_group_tests(tests, exec_begin, exec_end);
}
