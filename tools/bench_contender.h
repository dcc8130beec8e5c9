/* bench_contender.h: who runs a product: ours, or a yardstick. */
#ifndef TOOL_BENCH_CONTENDER_H
#define TOOL_BENCH_CONTENDER_H

#include <tessera/tessera.h>

#include "bench_product.h"

typedef enum tool_runner { TOOL_RUNNER_OURS, TOOL_RUNNER_CLBLAST, TOOL_RUNNER_OPENBLAS } tool_runner;
enum { TOOL_RUNNERS = 3 };
/* "ours", "clblast", "openblas" */
const char *tool_runner_name(tool_runner runner);

typedef struct tool_contender {
  tool_runner runner;
  const tool_product *product; /* borrowed */
  tsr_gemm *gemm;              /* ours and CLBlast's */
  void **weights;              /* OpenBLAS's: the first is the product's own */
  int64_t weight_count, next;  /* next: the copy that the next product reads, as tsr_gemm's go on */
  void *c;                     /* [m,n], where results are looked at; OpenBLAS's own */
} tool_contender;

/* device: ours, or the one that is opened with CLBlast; NULL for OpenBLAS. weights: how many copies of b it
 * cycles through. Release with finish, also after a failure. */
tsr_status tool_contender_init(tool_contender *contender, tool_runner runner, const tool_product *product,
                               tsr_device *device, const char *variant, int64_t weights, tsr_error *error);
void tool_contender_finish(tool_contender *contender);

/* Forgets the last result, so that a check sees only what was computed after. */
tsr_status tool_contender_spoil(tool_contender *contender, tsr_error *error);
/* `count` products. device_seconds may be NULL; 0: the device does not say. */
tsr_status tool_contender_run(tool_contender *contender, int64_t count, double *device_seconds,
                              tsr_error *error);
/* Errors: CHECK_FAILED. */
tsr_status tool_contender_check(tool_contender *contender, tsr_error *error);

#endif
