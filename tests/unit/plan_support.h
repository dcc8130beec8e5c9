/* plan_support.h: what tests of the planner share: made-up clusters, small graphs, a random generator, the
 * text of a plan, and a checker that walks a lowered plan and believes nothing. */
#ifndef TESSERA_TEST_PLAN_SUPPORT_H
#define TESSERA_TEST_PLAN_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "plan/decide.h"
#include "plan/plan.h"

/* One of each per program. */
extern tsr_context *plan_context;
extern tsr_error plan_error;
int plan_setup(void **state);
int plan_teardown(void **state);

/* Fails the test with the message of plan_error. */
void plan_ok(tsr_status status);
/* The call failed with this status and these words, in one line. */
void plan_refused(tsr_status found, tsr_status status, const char *words);

/* The same numbers from the same seed, everywhere. */
void plan_seed(uint64_t seed);
uint64_t plan_random(void);
/* Uniform in [low, high]. */
int64_t plan_between(int64_t low, int64_t high);
bool plan_chance(int percent);

/* A device: panels as a CPU has them, or row-major as a GPU; `gflops` in f32, half of it in f64. Its curve is
 * launch + flops / speed at nine points. */
typedef struct plan_device {
  double gflops;
  double memory_gb;
  double launch_seconds;   /* 0 = 1e-5 */
  double memory_bandwidth; /* 0 = 10 bytes per flop of 1 / 10 */
  int panel;
} plan_device;
tsr_cluster *plan_cluster(int members, const plan_device *devices);
/* `members` times the same. */
tsr_cluster *plan_cluster_of(int members, plan_device device);
/* Adds a value, named by its role. */
tsr_value plan_input(tsr_graph *graph, const char *name, int64_t rows, int64_t cols);
tsr_value plan_parameter(tsr_graph *graph, const char *name, int64_t rows, int64_t cols);
tsr_value plan_vector(tsr_graph *graph, const char *name, int64_t length);
tsr_graph *plan_graph(void);
void plan_pin(tsr_graph *graph, tsr_value value, int axis); /* axis -1 = replicate */

/* gemm m n k, linear m d_in d_out, ffn m d h as the tool builds them: x pinned replicate, y of ffn too.
 * backward adds dy and the gradients of all but x, and of x. */
tsr_graph *plan_gemm(int64_t m, int64_t n, int64_t k, bool backward);
tsr_graph *plan_linear(int64_t m, int64_t d_in, int64_t d_out, bool backward);
tsr_graph *plan_ffn(int64_t m, int64_t d, int64_t h, bool backward, bool pinned);

/* A random graph of up to `operators` operators with residuals, shared inputs, beta c, activations,
 * reductions, pins, gradients and assigns. */
tsr_graph *plan_random_graph(int operators);

/* The plan, which is feasible or not; NULL = no layout is allowed; the graph is destroyed. */
tsr_plan *plan_make(tsr_graph *graph, const tsr_cluster *cluster, const tsr_plan_options *options);
/* The same, and it must be feasible. */
tsr_plan *plan_fit(tsr_graph *graph, const tsr_cluster *cluster, const tsr_plan_options *options);
/* Its document or text; free(). */
char *plan_text(const tsr_plan *plan, tsr_plan_format format);
char *plan_cluster_text(const tsr_cluster *cluster);
/* A value's id by name, leaf or output. */
tsr_value plan_value(const tsr_plan *plan, const char *name);

/* Steps have their inputs when they run, what must stand at the end does, buffers that share memory never
 * need it at once, no storage is too small, and bytes are what they are said to be. */
void plan_check(const tsr_plan *plan);

#endif
