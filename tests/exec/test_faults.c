/* test_faults.c: memory that is short, on a device or in the host, any allocation that fails, devices that
 * fail in the middle of a step, and calls that make no sense: one status, one line, nothing leaks, nothing
 * hangs. */
#include "exec_support.h"

static tsr_graph *ffn(tsr_dtype dtype, exec_mode mode) {
  return exec_ffn_graph(&(exec_ffn){.m = 7,
                                    .d = 13,
                                    .h = 33,
                                    .dtype = dtype,
                                    .activation = TSR_UNARY_RELU,
                                    .pinned = true,
                                    .mode = mode,
                                    .rate = 1});
}

static const exec_setup three = {.members = 3, .replicate = TSR_REPLICATE_NEVER, .keep_all = true};

static void bytes_are_short(void **state) {
  (void)state;
  for (int member = 0; member < 3; member++)
    for (int missing = 1; missing <= 1000; missing += 333) {
      exec_rig rig;
      exec_open(&rig, &three);
      assert_true(exec_plan(&rig, ffn(TSR_F32, EXEC_UPDATE)));
      tsr_buffer *taken;
      rig.devices[member]->info.memory_bytes = rig.cluster->members[member].memory_bytes;
      uint64_t left = rig.plan->members[member].bytes - (uint64_t)missing,
               all = rig.devices[member]->info.memory_bytes;
      /* Somebody else has taken the rest in the meantime; only the ledger has to believe it. */
      exec_ok(tsr_buffer_create(rig.devices[member], 1, &taken, &exec_error));
      rig.devices[member]->bytes_used = all - left;
      char words[64], prefix[32];
      snprintf(words, sizeof words, "the plan's %llu bytes",
               (unsigned long long)rig.plan->members[member].bytes);
      snprintf(prefix, sizeof prefix, "rank %d: ", member);
      exec_refused(tsr_session_create(rig.group, rig.plan, rig.devices, 3, &rig.session, &exec_error),
                   TSR_ERROR_OUT_OF_MEMORY, words);
      assert_int_equal(exec_error.rank, member);
      assert_memory_equal(exec_error.message, prefix, strlen(prefix));
      assert_int_equal(rig.devices[member]->bytes_used, all - left);
      rig.devices[member]->bytes_used = 1;
      tsr_buffer_destroy(rig.devices[member], &taken);
      exec_close(&rig);
    }
}

/* Whether the allocation that was to fail after k others has failed: else one of the next k + 1 does. */
static bool has_failed(int64_t k) {
  for (int64_t i = 0; i <= k; i++) {
    void *memory = tsr_malloc(1);
    if (!memory) return false;
    free(memory);
  }
  return true;
}

/* The k-th allocation of a whole life fails; true if the life had so many. Where ordinary memory can stand in
 * for the group's, all goes well. */
static bool fail_once(int64_t k, const exec_setup *setup, tsr_graph *(*build)(void)) {
  exec_rig rig;
  tsr_check check;
  tsr_report report;
  exec_open(&rig, setup);
  assert_true(exec_plan(&rig, build()));
  tsr_source *source = exec_source(rig.plan->graph, true, 1, 7);
  tsr_value y = exec_value(&rig, "y");
  double *data = calloc((size_t)tsr_shape_count(&tsr_graph_at(rig.plan->graph, y)->shape), sizeof *data);
  tsr_array array = tsr_array_dense(data, TSR_F64, &tsr_graph_at(rig.plan->graph, y)->shape);
  tsr_memory_fail_after(k);
  tsr_status status =
      tsr_session_create(rig.group, rig.plan, rig.devices, (size_t)setup->members, &rig.session, &exec_error);
  if (status == TSR_OK) status = tsr_session_load(rig.session, source, &exec_error);
  if (status == TSR_OK) status = exec_step(&rig);
  if (status == TSR_OK)
    status = tsr_session_check(rig.session, TSR_CHECK_OPTIONS(.seed = 1), &check, &exec_error);
  if (status == TSR_OK) status = tsr_session_gather(rig.session, y, &array, &exec_error);
  if (status == TSR_OK) status = tsr_session_report(rig.session, &report, NULL, &exec_error);
  bool failed = has_failed(k);
  tsr_memory_fail_after(-1);
  if (status != TSR_OK) exec_refused(status, TSR_ERROR_OUT_OF_MEMORY, "memory");
  /* A session that could be made lives on. */
  if (status != TSR_OK && rig.session) {
    exec_ok(tsr_session_load(rig.session, source, &exec_error));
    exec_ok(tsr_session_check(rig.session, NULL, &check, &exec_error));
  }
  free(data);
  tsr_source_destroy(&source);
  exec_close(&rig);
  assert_true(failed || status == TSR_OK);
  return failed;
}

static tsr_graph *build_update(void) {
  return ffn(TSR_F32, EXEC_UPDATE);
}

static void any_allocation_fails(void **state) {
  (void)state;
  exec_setup setup = {
      .members = 2, .max_allocation = 2048, .replicate = TSR_REPLICATE_NEVER, .keep_all = true};
  int64_t k = 0;
  while (fail_once(k, &setup, build_update)) k++;
  print_message("%lld allocations failed, one at a time\n", (long long)k);
  assert_true(k > 100);
}

/* Parameters are put back although a check could not be finished. */
static void failed_check_restores(void **state) {
  (void)state;
  exec_rig rig;
  tsr_check check;
  exec_open(&rig, &three);
  exec_create(&rig, ffn(TSR_F32, EXEC_UPDATE));
  tsr_source *source = exec_source(rig.plan->graph, true, 1, 7);
  exec_ok(tsr_session_load(rig.session, source, &exec_error));
  double *before = exec_gather(&rig, exec_value(&rig, "w1"));
  tsr_status status = TSR_ERROR_OUT_OF_MEMORY;
  for (int64_t k = 0; status != TSR_OK; k++) {
    tsr_memory_fail_after(k);
    status = tsr_session_check(rig.session, NULL, &check, &exec_error);
    tsr_memory_fail_after(-1);
    double *after = exec_gather(&rig, exec_value(&rig, "w1"));
    assert_memory_equal(before, after, 13 * 33 * sizeof *before);
    free(after);
  }
  free(before);
  tsr_source_destroy(&source);
  exec_close(&rig);
}

/* ---- a device that fails ---- */

static const tsr_device_ops *real;
static int calls_left;

static tsr_status failing_gemm(tsr_device *device, const tsr_gemm_call *call, tsr_error *error) {
  if (calls_left-- == 0) return tsr_fail(error, TSR_ERROR_DEVICE, "the device fell off the bus");
  return real->gemm(device, call, error);
}

static tsr_status failing_map(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                              tsr_host_mode mode, void **pointer, tsr_error *error) {
  if (calls_left-- == 0) return tsr_fail(error, TSR_ERROR_DEVICE, "the device fell off the bus");
  return real->host_begin(device, buffer, offset, bytes, mode, pointer, error);
}

static void device_fails(void **state) {
  (void)state;
  for (int way = 0; way < 6; way++) {
    exec_rig rig;
    tsr_check check;
    tsr_report report;
    exec_open(&rig, &three);
    exec_create(&rig, ffn(TSR_F32, EXEC_UPDATE));
    tsr_source *source = exec_source(rig.plan->graph, true, 1, 7);
    exec_ok(tsr_session_load(rig.session, source, &exec_error));
    real = rig.devices[1]->ops;
    tsr_device_ops ops = *real;
    if (way % 2)
      ops.gemm = failing_gemm;
    else
      ops.host_begin = failing_map;
    calls_left = way % 2 ? way / 3 : 0;
    rig.devices[1]->ops = &ops;
    if (way == 5)
      exec_refused(tsr_session_check(rig.session, NULL, &check, &exec_error), TSR_ERROR_DEVICE,
                   "fell off the bus");
    else
      exec_refused(exec_step(&rig), TSR_ERROR_DEVICE, "fell off the bus");
    assert_int_equal(exec_error.rank, 1);
    rig.devices[1]->ops = real;
    exec_refused(tsr_session_start(rig.session, &exec_error), TSR_ERROR_POISONED, "only tsr_session_destroy");
    exec_refused(tsr_session_wait(rig.session, &exec_error), TSR_ERROR_POISONED, "only tsr_session_destroy");
    exec_refused(tsr_session_load(rig.session, source, &exec_error), TSR_ERROR_POISONED,
                 "only tsr_session_destroy");
    exec_refused(tsr_session_report(rig.session, &report, NULL, &exec_error), TSR_ERROR_POISONED,
                 "failed earlier");
    tsr_source_destroy(&source);
    exec_close(&rig);
  }
}

/* ---- misuse ---- */

static void wrong_order(void **state) {
  (void)state;
  exec_rig rig;
  bool done = false;
  exec_open(&rig, &three);
  exec_create(&rig, ffn(TSR_F32, EXEC_UPDATE));
  tsr_source *source = exec_source(rig.plan->graph, true, 1, 7);
  exec_refused(tsr_session_wait(rig.session, &exec_error), TSR_ERROR_INVALID_ARGUMENT, "no step was started");
  exec_ok(tsr_session_test(rig.session, &done, &exec_error));
  assert_true(done);
  exec_ok(tsr_session_load(rig.session, source, &exec_error));
  exec_ok(tsr_session_start(rig.session, &exec_error));
  exec_refused(tsr_session_start(rig.session, &exec_error), TSR_ERROR_INVALID_ARGUMENT, "in flight");
  exec_refused(tsr_session_load(rig.session, source, &exec_error), TSR_ERROR_INVALID_ARGUMENT, "in flight");
  while (!done || rig.session->own_part_ended == false)
    exec_ok(tsr_session_test(rig.session, &done, &exec_error));
  exec_refused(tsr_session_report(rig.session, &(tsr_report){0}, NULL, &exec_error),
               TSR_ERROR_INVALID_ARGUMENT, "tsr_session_wait first");
  exec_ok(tsr_session_wait(rig.session, &exec_error));
  exec_ok(tsr_session_start(rig.session, &exec_error)); /* destroyed in flight */
  tsr_source_destroy(&source);
  exec_close(&rig);
}

static void wrong_arguments(void **state) {
  (void)state;
  exec_rig rig;
  float data[7 * 13] = {0};
  tsr_shape right = tsr_shape_of(2, 7, 13), wrong = tsr_shape_of(2, 13, 7);
  exec_open(&rig, &three);
  exec_create(&rig, ffn(TSR_F32, EXEC_UPDATE));
  tsr_value x = exec_value(&rig, "x"), y = exec_value(&rig, "y"), none = {0}, far = {9999};
  tsr_array array = tsr_array_dense(data, TSR_F32, &right), turned = tsr_array_dense(data, TSR_F32, &wrong);
  tsr_array missing = tsr_array_dense(NULL, TSR_F32, &right),
            strange = tsr_array_dense(data, (tsr_dtype)77, &right);
  exec_refused(tsr_session_bind(rig.session, 3, x, &array, &exec_error), TSR_ERROR_INVALID_ARGUMENT,
               "member 3");
  exec_refused(tsr_session_bind(rig.session, -1, x, &array, &exec_error), TSR_ERROR_INVALID_ARGUMENT,
               "member -1");
  exec_refused(tsr_session_bind(rig.session, 0, x, &turned, &exec_error), TSR_ERROR_INVALID_ARGUMENT,
               "[13, 7]");
  exec_refused(tsr_session_bind(rig.session, 0, x, &missing, &exec_error), TSR_ERROR_INVALID_ARGUMENT,
               "NULL");
  exec_refused(tsr_session_read(rig.session, 0, y, &strange, &exec_error), TSR_ERROR_INVALID_ARGUMENT,
               "dtype");
  exec_refused(tsr_session_bind(rig.session, 0, y, &array, &exec_error), TSR_ERROR_INVALID_ARGUMENT,
               "computed");
  exec_refused(tsr_session_bind(rig.session, 0, none, &array, &exec_error), TSR_ERROR_INVALID_ARGUMENT,
               "value 0");
  exec_refused(tsr_session_read(rig.session, 0, far, &array, &exec_error), TSR_ERROR_INVALID_ARGUMENT,
               "value 9999");
  exec_refused(tsr_session_gather(rig.session, far, &array, &exec_error), TSR_ERROR_INVALID_ARGUMENT,
               "value 9999");
  exec_refused(tsr_session_gather(rig.session, y, &turned, &exec_error), TSR_ERROR_INVALID_ARGUMENT, "shape");
  exec_refused(tsr_session_gather(rig.session, y, &missing, &exec_error), TSR_ERROR_INVALID_ARGUMENT, "NULL");
  tsr_value inner = rig.plan->graph->nodes[0].output;
  exec_refused(tsr_session_read(rig.session, 0, inner, &array, &exec_error), TSR_ERROR_INVALID_ARGUMENT,
               "no output");
  exec_ok(tsr_session_gather(rig.session, y, NULL, &exec_error));
  tsr_check check;
  exec_refused(tsr_session_check(rig.session, &(tsr_check_options){0}, &check, &exec_error),
               TSR_ERROR_INVALID_ARGUMENT, "struct_size");
  exec_close(&rig);
}

/* A parameter that the source lacks, and one of another shape. */
static void wrong_sources(void **state) {
  (void)state;
  exec_rig rig;
  tsr_source *source;
  static float data[13 * 34];
  tsr_shape other = tsr_shape_of(2, 13, 34);
  tsr_array array = tsr_array_dense(data, TSR_F32, &other);
  exec_open(&rig, &three);
  exec_create(&rig, ffn(TSR_F32, EXEC_UPDATE));
  exec_ok(tsr_source_create(exec_context, &source, &exec_error));
  exec_ok(tsr_source_add_constant(source, "b1", 1, &exec_error));
  exec_refused(tsr_session_load(rig.session, source, &exec_error), TSR_ERROR_NOT_FOUND, "while loading");
  exec_ok(tsr_source_add_array(source, "w1", &array, &exec_error));
  exec_refused(tsr_session_load(rig.session, source, &exec_error), TSR_ERROR_INVALID_ARGUMENT,
               "while loading w1");
  tsr_source_destroy(&source);
  source = exec_source(rig.plan->graph, true, 1, 7);
  exec_ok(tsr_session_load(rig.session, source, &exec_error));
  tsr_source_destroy(&source);
  exec_close(&rig);
}

static void plans_that_do_not_match(void **state) {
  (void)state;
  exec_rig rig, other;
  exec_open(&rig, &three);
  exec_open(&other, &(exec_setup){.members = 2});
  assert_true(exec_plan(&rig, ffn(TSR_F32, EXEC_FORWARD)));
  exec_refused(tsr_session_create(other.group, rig.plan, other.devices, 2, &other.session, &exec_error),
               TSR_ERROR_MISMATCH, "3 members, the group has 2");
  exec_refused(tsr_session_create(rig.group, rig.plan, rig.devices, 2, &rig.session, &exec_error),
               TSR_ERROR_INVALID_ARGUMENT, "2 devices");
  rig.devices[2]->gemm[TSR_F32].panel = 16;
  exec_refused(tsr_session_create(rig.group, rig.plan, rig.devices, 3, &rig.session, &exec_error),
               TSR_ERROR_MISMATCH, "rank 2");
  rig.devices[2]->gemm[TSR_F32].panel = 0;
  exec_discard(&rig);
  for (int i = 0; i < 3; i++) exec_ok(tsr_cluster_set_memory(rig.cluster, i, 100, &exec_error));
  assert_false(exec_plan(&rig, ffn(TSR_F32, EXEC_FORWARD)));
  assert_non_null(rig.plan);
  exec_refused(tsr_session_create(rig.group, rig.plan, rig.devices, 3, &rig.session, &exec_error),
               TSR_ERROR_INFEASIBLE, "needed");
  exec_close(&other);
  exec_close(&rig);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_are_short),       cmocka_unit_test(any_allocation_fails),
      cmocka_unit_test(failed_check_restores), cmocka_unit_test(device_fails),
      cmocka_unit_test(wrong_order),           cmocka_unit_test(wrong_arguments),
      cmocka_unit_test(wrong_sources),         cmocka_unit_test(plans_that_do_not_match),
  };
  return cmocka_run_group_tests(tests, exec_begin, exec_end);
}
