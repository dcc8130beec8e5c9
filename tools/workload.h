/* workload.h: what the user wants computed, as a graph.
 *
 * --weights makes b, w, w1, w2 and wg narrow; each of i8 has <name>_scale beside it.
 *
 *            input  parameters          output  gradients of --backward
 *   gemm     a      b                   c       dc (input), da, db
 *   linear   x      w bias              y       dy (input), d_x, d_w, d_bias
 *   ffn      x      w1 b1 w2 b2 | wg..  y       dy (input), d_x, d_w1, ...
 *   conv     x      w bias              y       dy (input), d_x, d_w, d_bias
 *
 * --sgd adds the input target and the output loss = mean (y - target)^2, and updates every parameter. */
#ifndef TOOL_WORKLOAD_H
#define TOOL_WORKLOAD_H

#include <tessera/tessera.h>

#include "options.h"

enum { TOOL_DIMENSIONS_MAX = 7 };

typedef struct tool_operation tool_operation;

typedef struct tool_workload {
  const tool_options *options; /* borrowed */
  const tool_operation *operation;
  int64_t stated[TOOL_DIMENSIONS_MAX]; /* as typed */
  int64_t extent[TOOL_DIMENSIONS_MAX]; /* with --scale */
  tsr_graph *graph;                    /* NULL until built */
} tool_workload;

/* Reads the words of the command line; options must outlive it. Returns 0, or says what is wrong and returns
 * TOOL_EXIT_USAGE. */
int tool_workload_parse(const tool_options *options, tool_workload *out);
/* "gemm 64 16250 6250" */
void tool_workload_text(const tool_workload *workload, char *text, size_t bytes);
/* "", or "scale 64: 1/64 of gemm 512 130000 50000, ..." */
void tool_workload_scale_text(const tool_workload *workload, char *text, size_t bytes);
/* How many of its numbers there are. */
int tool_workload_dimensions(const tool_workload *workload);
const char *tool_workload_operation(const tool_workload *workload);
/* "forward", "forward and backward", "training step" */
const char *tool_workload_mode(const tool_workload *workload);

/* Of b, w, w1, ...: --weights, else --dtype. */
tsr_dtype tool_workload_weights(const tool_workload *workload);

/* Of tsr_work: what a device has to do for it. */
unsigned tool_workload_work(const tool_workload *workload);

tsr_status tool_workload_build(tsr_context *context, tool_workload *workload, tsr_error *error);
void tool_workload_finish(tool_workload *workload);

/* OK if `graph`, of a plan, computes what workload's does; else MISMATCH. */
tsr_status tool_workload_match(const tool_workload *workload, const tsr_graph *graph, tsr_error *error);

/* The contents of every leaf: files where the options name some, else random numbers. Gives *out. */
tsr_status tool_workload_source(tsr_context *context, const tool_workload *workload, tsr_source **out,
                                tsr_error *error);

/* --device-memory of a rank with --scale; 0 = not said. */
uint64_t tool_workload_memory(const tool_workload *workload, int rank);

#endif
