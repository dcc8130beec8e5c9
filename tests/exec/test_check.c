/* test_check.c: the check passes on what is right, whatever the shapes, and finds a planted error that is
 * larger than what it says it can detect, wherever that is planted. */
#include "exec_support.h"

#include "base/narrow.h"

/* ---- a device that makes one mistake ---- */

/* The countdown-th call of one kind adds `amount` to one element of its output. */
static struct {
  const tsr_device_ops *real;
  tsr_device_ops ops;
  int kind, countdown; /* 0 = product, 1 = elementwise, 2 = reduction */
  double amount;
  bool overwrite;   /* rather than add */
  int64_t row, col; /* modulo what there is */
  int planted;
} saboteur;

static void plant(tsr_device *device, const tsr_matrix *out, tsr_dtype dtype) {
  void *mapped;
  if (saboteur.countdown-- != 0) return;
  exec_ok(tsr_device_host_wait(device, out->buffer, 0, out->buffer->bytes, TSR_HOST_READ_WRITE, &mapped,
                               &exec_error));
  int64_t at = tsr_matrix_index(out, saboteur.row % out->rows, saboteur.col % out->cols);
  double before = saboteur.overwrite ? 0 : tsr_number_load(mapped, dtype, at);
  tsr_number_store(mapped, dtype, at, before + saboteur.amount);
  exec_ok(tsr_device_host_end(device, out->buffer, mapped, &exec_error));
  saboteur.planted++;
}

static tsr_status bad_gemm(tsr_device *device, const tsr_gemm_call *call, tsr_error *error) {
  tsr_status status = saboteur.real->gemm(device, call, error);
  if (saboteur.kind == 0) plant(device, &call->c, tsr_gemm_dtype_c(call->types));
  return status;
}

static tsr_status bad_map(tsr_device *device, const tsr_map_call *call, tsr_error *error) {
  tsr_status status = saboteur.real->map(device, call, error);
  if (saboteur.kind == 1) plant(device, &call->out, call->dtype);
  return status;
}

static tsr_status bad_reduce(tsr_device *device, const tsr_reduce_call *call, tsr_error *error) {
  tsr_status status = saboteur.real->reduce(device, call, error);
  if (saboteur.kind == 2) plant(device, &call->out, call->dtype);
  return status;
}

static void corrupt(tsr_device *device, int kind, int countdown, double amount) {
  saboteur.real = device->ops;
  saboteur.ops = *device->ops;
  saboteur.ops.gemm = bad_gemm;
  saboteur.ops.map = bad_map;
  saboteur.ops.reduce = bad_reduce;
  saboteur.kind = kind;
  saboteur.countdown = countdown;
  saboteur.amount = amount;
  saboteur.row = exec_between(0, 1000);
  saboteur.col = exec_between(0, 1000);
  saboteur.planted = 0;
  saboteur.overwrite = false;
  device->ops = &saboteur.ops;
}

static void repair(tsr_device *device) {
  device->ops = saboteur.real;
}

/* ----------------------------------------------------------------------------------------------------------------
 */

static tsr_status run_check(exec_rig *rig, bool oracle, uint64_t seed, tsr_check *out) {
  double flops = oracle ? 1e12 : -1;
  tsr_status status = tsr_session_check(rig->session, TSR_CHECK_OPTIONS(.seed = seed, .oracle_flops = flops),
                                        out, &exec_error);
  assert_true(out->oracle == oracle);
  assert_true(out->passed == (status == TSR_OK));
  return status;
}

static tsr_source *prepare(exec_rig *rig, const exec_setup *setup, tsr_graph *graph, double low,
                           double high) {
  tsr_source *source;
  exec_open(rig, setup);
  exec_create(rig, graph);
  exec_ok(tsr_source_create(exec_context, &source, &exec_error));
  for (uint32_t id = 1; id < rig->plan->graph->value_count; id++)
    if (rig->plan->graph->values[id].producer < 0)
      exec_ok(tsr_source_add_random(source, rig->plan->graph->values[id].name, TSR_RANDOM_UNIFORM, 3, low,
                                    high, &exec_error));
  exec_ok(tsr_session_load(rig->session, source, &exec_error));
  return source;
}

static void release(exec_rig *rig, tsr_source *source) {
  tsr_source_destroy(&source);
  exec_close(rig);
}

static exec_ffn block(int64_t m, int64_t d, int64_t h, tsr_dtype dtype, exec_mode mode) {
  return (exec_ffn){.m = m,
                    .d = d,
                    .h = h,
                    .dtype = dtype,
                    .activation = TSR_UNARY_GELU,
                    .pinned = true,
                    .mode = mode,
                    .rate = 0.01};
}

/* Right results pass; what is trained is as it was. */
static void passes(void **state) {
  (void)state;
  static const int64_t sizes[][3] = {{1, 1, 1}, {7, 13, 257}, {13, 300, 7}, {64, 65, 520}, {257, 1, 13}};
  for (int i = 0; i < 5; i++)
    for (int mode = 0; mode < 4; mode++)
      for (int members = 1; members <= 3; members++) {
        exec_setup setup = {.members = members, .replicate = TSR_REPLICATE_NEVER, .keep_all = true};
        if (members == 3) setup.speeds[1] = 1e-6;
        exec_rig rig;
        exec_ffn ffn =
            block(sizes[i][0], sizes[i][1], sizes[i][2], members == 2 ? TSR_F64 : TSR_F32, (exec_mode)mode);
        ffn.gated = mode == 2;
        tsr_source *source = prepare(&rig, &setup, exec_ffn_graph(&ffn), -1, 1);
        double *before = exec_gather(&rig, exec_value(&rig, "w1"));
        for (int oracle = 0; oracle < 2; oracle++) {
          tsr_check check;
          exec_ok(run_check(&rig, oracle, (uint64_t)mode, &check));
          assert_true(check.max_error <= check.bound && check.detectable > 0 && check.detectable < 1 &&
                      check.where[0]);
        }
        double *after = exec_gather(&rig, exec_value(&rig, "w1"));
        assert_memory_equal(before, after, (size_t)(ffn.d * ffn.h) * sizeof *before);
        free(before);
        free(after);
        exec_ok(exec_step(&rig));
        release(&rig, source);
      }
}

/* A small error in any call of any kind on any member is found if it is larger than what the check said it
 * can detect. */
static void finds_planted_errors(void **state) {
  (void)state;
  exec_seed(5);
  int planted = 0;
  for (int oracle = 0; oracle < 2; oracle++)
    for (int kind = 0; kind < 3; kind++)
      for (int countdown = 0; countdown < 8; countdown++)
        for (int member = 0; member < 2; member++) {
          exec_setup setup = {.members = 2, .replicate = TSR_REPLICATE_NEVER, .keep_all = true};
          /* Forward, the first product has the activation in its step, and is checked in two parts. */
          exec_ffn ffn = block(33, 40, 130, countdown % 2 ? TSR_F64 : TSR_F32,
                               countdown / 2 % 2 ? EXEC_LOSS : EXEC_FORWARD);
          exec_rig rig;
          tsr_check right, wrong;
          tsr_source *source = prepare(&rig, &setup, exec_ffn_graph(&ffn), -1, 1);
          exec_ok(run_check(&rig, oracle, 1, &right));
          corrupt(rig.devices[member], kind, countdown, 1.1 * right.detectable);
          tsr_status status = run_check(&rig, oracle, 1, &wrong);
          repair(rig.devices[member]);
          if (saboteur.planted) {
            planted++;
            if (status != TSR_ERROR_CHECK_FAILED)
              fail_msg("kind %d, call %d, member %d, oracle %d: %g was not found (%s %g of %g)", kind,
                       countdown, member, oracle, 1.1 * right.detectable, wrong.where, wrong.max_error,
                       wrong.bound);
            exec_refused(status, TSR_ERROR_CHECK_FAILED, "verification failed");
          } else {
            exec_ok(status);
          }
          exec_ok(run_check(&rig, oracle, 2, &right)); /* nothing is left of it */
          release(&rig, source);
        }
  assert_true(planted > 30);
}

/* One of 1000 terms is missing in one product. */
static void finds_a_dropped_term(void **state) {
  (void)state;
  exec_setup setup = {.members = 1};
  exec_rig rig;
  tsr_check check;
  tsr_graph *graph = exec_graph();
  tsr_value a = exec_leaf(graph, TSR_INPUT, "a", TSR_F32, 2, 70, 1000), c;
  tsr_value b = exec_leaf(graph, TSR_PARAMETER, "b", TSR_F32, 2, 1000, 300);
  exec_ok(tsr_graph_matmul(graph, a, b, NULL, &c, &exec_error));
  exec_output(graph, "c", c);
  tsr_source *source = prepare(&rig, &setup, graph, 0.5, 1);
  exec_ok(run_check(&rig, false, 3, &check));
  assert_true(check.detectable < 0.25); /* the smallest term */
  corrupt(rig.devices[0], 0, 0, -0.25);
  exec_refused(run_check(&rig, false, 3, &check), TSR_ERROR_CHECK_FAILED, "c, row");
  repair(rig.devices[0]);
  release(&rig, source);
}

/* One member's copy of a replicated bias differs. */
static void finds_replicas_that_differ(void **state) {
  (void)state;
  for (int oracle = 0; oracle < 2; oracle++) {
    exec_setup setup = {.members = 3, .replicate = TSR_REPLICATE_NEVER, .keep_all = true};
    exec_rig rig;
    exec_ffn ffn = block(33, 40, 130, TSR_F32, EXEC_FORWARD);
    tsr_check check;
    tsr_source *source = prepare(&rig, &setup, exec_ffn_graph(&ffn), -1, 1);
    tsr_value x = exec_value(&rig, "x");
    float *data = calloc(33 * 40, sizeof *data);
    tsr_array array = tsr_array_dense(data, TSR_F32, &tsr_graph_at(rig.plan->graph, x)->shape);
    exec_ok(tsr_session_read(rig.session, 2, x, &array, &exec_error));
    data[77] += 0.001f;
    exec_ok(tsr_session_bind(rig.session, 2, x, &array, &exec_error));
    exec_refused(run_check(&rig, oracle, 1, &check), TSR_ERROR_CHECK_FAILED, "x of rank");
    free(data);
    release(&rig, source);
  }
}

/* Inputs that are not finite, huge or tiny: no crash, no right result refused, and what could not be compared
 * is counted. Where a huge one overflows on the way, NaN in the place of a number is no right result. */
static void extreme_inputs(void **state) {
  (void)state;
  static const double numbers[] = {NAN, INFINITY, -INFINITY, 3e38, 1e-38, 1e-45, 0};
  for (int i = 0; i < 7; i++)
    for (int members = 1; members <= 2; members++)
      for (int oracle = 0; oracle < 2; oracle++) {
        exec_setup setup = {.members = members, .replicate = TSR_REPLICATE_NEVER, .keep_all = true};
        exec_rig rig;
        exec_ffn ffn = block(9, 20, 130, TSR_F32, EXEC_BACKWARD);
        tsr_check check;
        tsr_source *source = prepare(&rig, &setup, exec_ffn_graph(&ffn), -1, 1);
        tsr_value x = exec_value(&rig, "x");
        float *data = calloc(9 * 20, sizeof *data);
        tsr_array array = tsr_array_dense(data, TSR_F32, &tsr_graph_at(rig.plan->graph, x)->shape);
        data[27] = (float)numbers[i];
        data[66] = (float)numbers[(i + 3) % 7];
        for (int member = 0; member < members; member++)
          exec_ok(tsr_session_bind(rig.session, member, x, &array, &exec_error));
        tsr_status status = run_check(&rig, oracle, 1, &check);
        if (oracle && (data[27] == 3e38f || data[66] == 3e38f) && status != TSR_OK)
          exec_refused(status, TSR_ERROR_CHECK_FAILED, "is too large for its type");
        else
          exec_ok(status);
        assert_true(isfinite(check.detectable) && check.compared > 0);
        assert_true(isfinite(check.max_error) == (status == TSR_OK));
        bool has_extreme =
            !isfinite(data[27]) || !isfinite(data[66]) || data[27] == 3e38f || data[66] == 3e38f;
        assert_true((check.not_finite > 0) == has_extreme && check.not_finite < check.compared);
        free(data);
        release(&rig, source);
      }
}

/* A NaN that no input explains is no right result. */
static void finds_nan(void **state) {
  (void)state;
  for (int kind = 0; kind < 3; kind++) {
    exec_setup setup = {.members = 2, .replicate = TSR_REPLICATE_NEVER, .keep_all = true};
    exec_rig rig;
    exec_ffn ffn = block(33, 40, 130, TSR_F32, EXEC_LOSS);
    tsr_check check;
    tsr_source *source = prepare(&rig, &setup, exec_ffn_graph(&ffn), -1, 1);
    corrupt(rig.devices[1], kind, 0, NAN);
    exec_refused(run_check(&rig, false, 1, &check), TSR_ERROR_CHECK_FAILED, "verification failed");
    repair(rig.devices[1]);
    release(&rig, source);
  }
}

/* c = a b of whole numbers, with NaN in a row of a and infinity in a column of b: what is counted, to the
 * number; and a number in the place of one of the results that are not finite. */
static void counts_what_is_not_finite(void **state) {
  (void)state;
  enum { M = 5, K = 7, N = 300 };
  for (int turn = 0; turn < 4; turn++) {
    const bool oracle = turn % 2, planted = turn / 2;
    exec_setup setup = {.members = 1};
    exec_rig rig;
    tsr_check check;
    tsr_graph *graph = exec_graph();
    tsr_value a = exec_leaf(graph, TSR_INPUT, "a", TSR_F32, 2, M, K), c;
    tsr_value b = exec_leaf(graph, TSR_PARAMETER, "b", TSR_F32, 2, K, N);
    exec_ok(tsr_graph_matmul(graph, a, b, NULL, &c, &exec_error));
    exec_output(graph, "c", c);
    tsr_source *source = prepare(&rig, &setup, graph, 0.5, 1);
    static float data[M * K];
    for (int i = 0; i < M * K; i++) data[i] = i == 2 * K + 3 ? NAN : (float)i;
    tsr_array array = tsr_array_dense(data, TSR_F32, &tsr_graph_at(rig.plan->graph, a)->shape);
    exec_ok(tsr_session_bind(rig.session, 0, exec_value(&rig, "a"), &array, &exec_error));
    if (planted) {
      corrupt(rig.devices[0], 0, 0, -NAN); /* NaN in the place of a number */
      saboteur.row = 1;
      exec_refused(run_check(&rig, oracle, 1, &check), TSR_ERROR_CHECK_FAILED, "is nan, expected");
      assert_false(isfinite(check.max_error));
      repair(rig.devices[0]);
    } else {
      exec_ok(run_check(&rig, oracle, 1, &check));
    }
    /* Two blocks of columns are probed in every row; the oracle compares every element. */
    assert_int_equal(check.compared, 2 * M + (oracle ? M * N : 0));
    assert_int_equal(check.not_finite, 2 + (oracle ? N : 0));
    release(&rig, source);
  }
}

/* A number where NaN is right: a product that drops the only term which is NaN. */
static void finds_a_number_in_the_place_of_nan(void **state) {
  (void)state;
  for (int oracle = 0; oracle < 2; oracle++) {
    exec_setup setup = {.members = 1};
    exec_rig rig;
    tsr_check check;
    tsr_graph *graph = exec_graph();
    tsr_value a = exec_leaf(graph, TSR_INPUT, "a", TSR_F32, 2, 3, 4), c;
    tsr_value b = exec_leaf(graph, TSR_PARAMETER, "b", TSR_F32, 2, 4, 1);
    exec_ok(tsr_graph_matmul(graph, a, b, NULL, &c, &exec_error));
    exec_output(graph, "c", c);
    tsr_source *source = prepare(&rig, &setup, graph, 0.5, 1);
    float data[12] = {1, 2, NAN, 4};
    tsr_array array = tsr_array_dense(data, TSR_F32, &tsr_graph_at(rig.plan->graph, a)->shape);
    exec_ok(tsr_session_bind(rig.session, 0, exec_value(&rig, "a"), &array, &exec_error));
    corrupt(rig.devices[0], 0, 0, 0);
    saboteur.row = saboteur.col = 0;
    saboteur.overwrite = true;
    exec_refused(run_check(&rig, oracle, 1, &check), TSR_ERROR_CHECK_FAILED, "is 0, expected");
    repair(rig.devices[0]);
    release(&rig, source);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(passes),
      cmocka_unit_test(finds_planted_errors),
      cmocka_unit_test(finds_a_dropped_term),
      cmocka_unit_test(finds_replicas_that_differ),
      cmocka_unit_test(extreme_inputs),
      cmocka_unit_test(finds_nan),
      cmocka_unit_test(counts_what_is_not_finite),
      cmocka_unit_test(finds_a_number_in_the_place_of_nan),
  };
  return cmocka_run_group_tests(tests, exec_begin, exec_end);
}
