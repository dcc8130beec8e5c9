/* tests/exec/test_links.c: what is measured of the links between members, in virtual time, where the right
 * figures are known. */
#include "exec_support.h"

#include <math.h>

#include "plan/plan.h"

enum { MEMBERS = 4 };

static tsr_cluster *measure(const tsr_sim_options *sim) {
  tsr_device *devices[MEMBERS];
  tsr_group *group;
  tsr_cluster *cluster;
  const tsr_measure_options *options = TSR_MEASURE_OPTIONS(.estimate_only = true);
  exec_ok(tsr_group_create_sim_with(exec_context, MEMBERS, NULL, sim, &group, &exec_error));
  for (int i = 0; i < MEMBERS; i++)
    exec_ok(tsr_device_open(exec_context, "host", NULL, &devices[i], &exec_error));
  exec_ok(tsr_cluster_measure(group, devices, MEMBERS, options, &cluster, &exec_error));
  for (int i = 0; i < MEMBERS; i++) tsr_device_close(&devices[i]);
  tsr_group_destroy(&group);
  return cluster;
}

static void near(double measured, double right) {
  if (fabs(measured / right - 1) < 0.05) return;
  fail_msg("measured %g, right is %g", measured, right);
}

static void links_and_sums(void **state) {
  (void)state;
  const double sums[] = {3e7, 4e8, 6e9};
  for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
    tsr_cluster *cluster =
        measure(TSR_SIM_OPTIONS(.host_latency = 3e-6, .host_bandwidth = 2e9, .reduce_bandwidth = sums[i]));
    near(cluster->links.host.latency, 3e-6);
    near(cluster->links.host.bandwidth, 2e9);
    near(cluster->links.reduce_bandwidth, sums[i]);
    tsr_cluster_destroy(&cluster);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(links_and_sums),
  };
  return cmocka_run_group_tests_name("links", tests, exec_begin, exec_end);
}
