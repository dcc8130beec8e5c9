/* Room runtime/plan: how long planning takes. Prints the milliseconds of planning gemm, linear and ffn,
 * forward and backward, for 1 to 7 members, equal and unequal, and of a refusal. The bar of 10 ms is for a
 * release build. */
#include "plan_support.h"

#include <time.h>

static const double LIMIT_SECONDS = 5; /* under sanitizers, on a busy machine */

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static tsr_cluster *cluster_of(int members, bool equal, double memory_gb) {
  plan_device devices[8];
  for (int i = 0; i < members; i++)
    devices[i] = (plan_device){.gflops = equal ? 1000 : 1000.0 / (i + 1),
                               .memory_gb = equal ? memory_gb : memory_gb / (1 + i / 3.0),
                               .panel = 16};
  return plan_cluster(members, devices);
}

typedef tsr_graph *maker(bool backward);
static tsr_graph *gemm(bool backward) {
  return plan_gemm(512, 130000, 50000, backward);
}
static tsr_graph *linear(bool backward) {
  return plan_linear(4096, 4096, 16384, backward);
}
static tsr_graph *ffn(bool backward) {
  return plan_ffn(512, 2048, 8192, backward, true);
}

/* The best of three: the machine may be busy. */
static double time_of(maker *make, bool backward, const tsr_cluster *cluster, tsr_replicate replicate) {
  double best = 1e9;
  for (int i = 0; i < 3; i++) {
    tsr_graph *graph = make(backward);
    double start = now();
    tsr_plan *plan = plan_make(graph, cluster, TSR_PLAN_OPTIONS(.replicate = replicate));
    double own = now() - start;
    if (own < best) best = own;
    tsr_plan_destroy(&plan);
  }
  return best;
}

static void planning_is_quick(void **state) {
  (void)state;
  static const struct {
    const char *name;
    maker *make;
  } jobs[] = {{"gemm", gemm}, {"linear", linear}, {"ffn", ffn}};
  static const int members[] = {1, 2, 4, 7};
  for (int small = 0; small < 2; small++)
    for (size_t j = 0; j < 3; j++)
      for (int backward = 0; backward < 2; backward++)
        for (int equal = 1; equal >= 0; equal--) {
          printf("%-6s %-8s %-7s %-9s", jobs[j].name, backward ? "backward" : "forward",
                 equal ? "equal" : "unequal", small ? "no memory" : "");
          for (size_t m = 0; m < 4; m++) {
            tsr_cluster *cluster = cluster_of(members[m], equal, small ? 0.005 : 200);
            double seconds = time_of(jobs[j].make, backward, cluster, TSR_REPLICATE_SMALL);
            printf(" %8.2f", 1e3 * seconds);
            assert_true(seconds < LIMIT_SECONDS);
            tsr_cluster_destroy(&cluster);
          }
          printf("  ms on 1, 2, 4, 7 members\n");
        }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(planning_is_quick),
  };
  return cmocka_run_group_tests_name("plan_time", tests, plan_setup, plan_teardown);
}
