/* exec_support.h: what tests of sessions share: a group of members with devices and speeds as a test wants
 * them, small graphs, a plain interpreter of graphs that knows nothing of members, and the comparison of all
 * that a session holds with it. */
#ifndef TESSERA_TEST_EXEC_SUPPORT_H
#define TESSERA_TEST_EXEC_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/session.h"

enum { EXEC_MEMBERS_MAX = 8 };

extern tsr_context *exec_context;
extern tsr_error exec_error;
int exec_begin(void **state);
int exec_end(void **state);

/* Fails the test with the message of exec_error. */
void exec_ok(tsr_status status);
/* The call failed with this status and these words, in one line. */
void exec_refused(tsr_status found, tsr_status wanted, const char *words);

void exec_seed(uint64_t seed);
/* Uniform in [low, high]. */
int64_t exec_between(int64_t low, int64_t high);

/* ---- members ---- */

typedef struct exec_setup {
  int members;
  const char *selectors[EXEC_MEMBERS_MAX]; /* NULL = host */
  double speeds[EXEC_MEMBERS_MAX];         /* relative to what is estimated; 0 = 1 */
  uint64_t memory[EXEC_MEMBERS_MAX];       /* 0 = what there is */
  uint64_t max_allocation;                 /* of one buffer; 0 = what there is */
  tsr_replicate replicate;
  bool keep_all;
  int chunks; /* of products whose result is reduced; 0 = as the planner likes */
} exec_setup;

typedef struct exec_rig {
  exec_setup setup;
  tsr_group *group;
  tsr_device *devices[EXEC_MEMBERS_MAX];
  tsr_cluster *cluster;
  tsr_plan *plan;
  tsr_session *session;
} exec_rig;

void exec_open(exec_rig *rig, const exec_setup *setup);
/* Plans, takes the graph; whether the plan is feasible, and its pins do not contradict. */
bool exec_plan(exec_rig *rig, tsr_graph *graph);
/* Plans (must be feasible) and creates the session. */
void exec_create(exec_rig *rig, tsr_graph *graph);
/* Start and wait. */
tsr_status exec_step(exec_rig *rig);
/* Destroys the session and the plan; every ledger must be empty. */
void exec_discard(exec_rig *rig);
void exec_close(exec_rig *rig);

/* Whether a device that matches is there; says so if not. */
bool exec_has(const char *selector);

/* ---- graphs ---- */

tsr_graph *exec_graph(void);
tsr_value exec_leaf(tsr_graph *graph, tsr_value_kind kind, const char *name, tsr_dtype dtype, int axes,
                    int64_t e0, int64_t e1);
void exec_output(tsr_graph *graph, const char *name, tsr_value value);
/* axis -1 = replicate; offsets may be NULL. */
void exec_pin(tsr_graph *graph, tsr_value value, int axis, int parts, const int64_t *offsets);

/* What is computed beside y: nothing; gradients from an input dy; the same and w -= rate * gradient; a loss
 * against an input target, and w -= rate * gradient. */
typedef enum exec_mode { EXEC_FORWARD, EXEC_BACKWARD, EXEC_UPDATE, EXEC_LOSS } exec_mode;
/* Adds that for every parameter of the graph, and for x if it is a value. */
void exec_extend(tsr_graph *graph, exec_mode mode, tsr_value x, tsr_value y, double rate);

typedef struct exec_ffn {
  int64_t m, d, h;
  tsr_dtype dtype;
  tsr_unary activation;
  bool gated, residual;
  bool pinned; /* x and y replicated, as the tool does */
  exec_mode mode;
  double rate;
} exec_ffn;
tsr_graph *exec_ffn_graph(const exec_ffn *ffn);

/* Small graphs of all operators over matrices of few extents, integers in, integers out (relu is the only
 * activation); residuals, beta c, broadcasts, reductions, pins with and without offsets, gradients, states,
 * assigns. */
tsr_graph *exec_random_graph(tsr_dtype dtype, int members);

/* ---- data ---- */

/* Random leaves: integers in [-high, high] or reals in [-high, high). */
tsr_source *exec_source(const tsr_graph *graph, bool integers, double high, uint64_t seed);

/* Every value of a graph, dense, in f64. */
typedef struct exec_values {
  const tsr_graph *graph;
  double **data; /* [value id] */
  double
      magnitude; /* the largest sum of absolute summands: integers below 2^24 (2^53) are exact in any order */
} exec_values;
void exec_values_init(exec_values *values, const tsr_graph *graph, const tsr_source *source);
/* One step, in plain loops. The assigns follow with exec_values_assign. */
void exec_values_compute(exec_values *values);
void exec_values_assign(exec_values *values);
void exec_values_finish(exec_values *values);

/* Outputs and assigned leaves as every member reads them, and gathered, are bit for bit what values hold
 * (after compute and assign). */
void exec_expect_exact(exec_rig *rig, const exec_values *values);
/* Loads, and runs steps that are compared exactly; how many, until the numbers grow too large for that. */
int exec_run_exact(exec_rig *rig, const tsr_source *source, int steps);
/* The same within the bounds of tsr_graph_evaluate, each step from what is stored. */
void exec_run_bound(exec_rig *rig, const tsr_source *source, int steps);

/* The whole value as f64; free(). */
double *exec_gather(exec_rig *rig, tsr_value value);
tsr_value exec_value(const exec_rig *rig, const char *name);

#endif
