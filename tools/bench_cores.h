/* bench_cores.h: which cores a benchmark runs on, what the libraries must be told of it, and OpenBLAS.
 *
 * OpenBLAS is loaded when it is asked for, not linked: its threads would start with every command, and what
 * it reads from the environment must be there before. */
#ifndef TOOL_BENCH_CORES_H
#define TOOL_BENCH_CORES_H

#include <tessera/tessera.h>

#include "options.h"

/* Binds the process to --cores of its cores, and tells PoCL and OpenBLAS how many there are. Before OpenCL is
 * used. *cores = how many. Errors: UNSUPPORTED (more than there are). */
tsr_status tool_cores_take(const tool_options *options, int *cores, tsr_error *error);

/* A matrix product of OpenBLAS, row-major, c = op(a) op(b): b [k,n] or [n,k] if transposed. m = 1 is its
 * product of a matrix and a vector. */
typedef struct tool_blas_call {
  bool wide, transpose_a, transpose_b;
  int m, n, k;
  const void *a, *b;
  void *c;
} tool_blas_call;

/* Loads it; starts the program again, with OPENBLAS_CORETYPE, where it takes the CPU for a lesser one.
 * Errors: UNSUPPORTED (not built in, or not there). */
tsr_status tool_blas_load(const tool_options *options, tsr_error *error);
void tool_blas_run(const tool_blas_call *call);
/* "Zen, 2 threads". */
const char *tool_blas_name(void);

#endif
