/* Room runtime/plan: what is expected of the clusters in tests/machines. TSR_SOURCE_ROOT is the project's
 * folder. */
#include "plan_support.h"

static tsr_cluster *read_machine(const char *name) {
  char path[512];
  tsr_cluster *cluster;
  snprintf(path, sizeof path, "%s/tests/machines/%s.json", TSR_SOURCE_ROOT, name);
  plan_ok(tsr_cluster_read(plan_context, path, &cluster, &plan_error));
  return cluster;
}

static void every_machine_is_planned_for(void **state) {
  (void)state;
  static const char *const machines[] = {"four_24gb", "mixed_24_24_16_8gb", "seven_cpus"};
  for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
    for (int replicate = 0; replicate < 3; replicate++) {
      tsr_cluster *cluster = read_machine(machines[i]);
      tsr_plan *plan = plan_fit(plan_ffn(512, 2048, 8192, true, true), cluster,
                                TSR_PLAN_OPTIONS(.replicate = (tsr_replicate)replicate));
      plan_check(plan);
      tsr_plan_destroy(&plan);
      tsr_cluster_destroy(&cluster);
    }
}

/* 26 GB of weight, and as much of gradient. */
static void the_main_job_fits(void **state) {
  (void)state;
  static const char *const names[] = {"four_24gb", "mixed_24_24_16_8gb"};
  for (int i = 0; i < 2; i++) {
    tsr_cluster *cluster = read_machine(names[i]);
    tsr_plan *plan = plan_fit(plan_gemm(512, 130000, 50000, true), cluster, NULL);
    plan_check(plan);
    assert_int_equal(plan->decision.active_count, 4);
    if (i == 0) assert_true(plan->members[3].share > 0.24);
    if (i == 1) assert_true(plan->members[3].share < plan->members[0].share / 2);
    tsr_plan_destroy(&plan);
    tsr_cluster_destroy(&cluster);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_machine_is_planned_for),
      cmocka_unit_test(the_main_job_fits),
  };
  return cmocka_run_group_tests_name("plan_machines", tests, plan_setup, plan_teardown);
}
