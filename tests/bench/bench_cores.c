/* bench_cores.c: which cores a benchmark runs on, and what the two libraries must be told of it. */
#define _GNU_SOURCE
#include "bench_cores.h"

#include <cblas.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../tools/core_type.h"

enum { EXIT_SKIPPED = 77 };

static const char started_again[] = "TSR_BENCH_CORES_TAKEN";

static void bind(int cores) {
  cpu_set_t allowed, own;
  CPU_ZERO(&allowed);
  CPU_ZERO(&own);
  sched_getaffinity(0, sizeof allowed, &allowed);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&own) < cores; core++)
    if (CPU_ISSET(core, &allowed)) CPU_SET(core, &own);
  if (CPU_COUNT(&own) < cores) {
    printf("skipped: %d cores wanted, %d may be used\n", cores, CPU_COUNT(&own));
    exit(EXIT_SKIPPED);
  }
  sched_setaffinity(0, sizeof own, &own);
}

void bench_cores_take(int cores, char **argv) {
  char count[16];
  if (getenv(started_again)) return;
  bind(cores);
  snprintf(count, sizeof count, "%d", cores);
  const char *core_type = tool_core_type_better(openblas_get_corename());
  /* OpenBLAS's idle threads would spin on the cores that PoCL's need: 2^4 cycles instead of 2^26. */
  setenv("OPENBLAS_THREAD_TIMEOUT", "4", 0);
  if (core_type) setenv("OPENBLAS_CORETYPE", core_type, 0);
  setenv("OPENBLAS_NUM_THREADS", count, 0);
  setenv("POCL_MAX_PTHREAD_COUNT", count, 0);
  setenv(started_again, count, 1);
  execv("/proc/self/exe", argv);
  perror("cannot start again: /proc/self/exe");
  exit(EXIT_FAILURE);
}
