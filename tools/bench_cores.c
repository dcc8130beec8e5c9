/* bench_cores.c: cores, and OpenBLAS. */
#define _GNU_SOURCE
#include "bench_cores.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"
#include "core_type.h"
#include "message.h"

#ifdef TOOL_HAVE_OPENBLAS
#include <cblas.h>
#include <dlfcn.h>
#endif

tsr_status tool_cores_take(const tool_options *options, int *cores, tsr_error *error) {
  cpu_set_t allowed, own;
  CPU_ZERO(&allowed);
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof allowed, &allowed)) CPU_SET(0, &allowed);
  int there = CPU_COUNT(&allowed), wanted = options->cores ? (int)options->cores : there;
  if (wanted > there)
    return tool_fail(error, TSR_ERROR_UNSUPPORTED, "--cores is %d, but this process may use %d", wanted,
                     there);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&own) < wanted; core++)
    if (CPU_ISSET(core, &allowed)) CPU_SET(core, &own);
  if (wanted < there) sched_setaffinity(0, sizeof own, &own);
  char count[16];
  snprintf(count, sizeof count, "%d", wanted);
  if (options->cores) {
    setenv("OPENBLAS_NUM_THREADS", count, 1);
    setenv("POCL_MAX_PTHREAD_COUNT", count, 1);
  }
  /* OpenBLAS's idle threads would spin on the cores that PoCL's need: 2^4 cycles instead of 2^26. */
  setenv("OPENBLAS_THREAD_TIMEOUT", "4", 0);
  *cores = wanted;
  return TSR_OK;
}

#ifdef TOOL_HAVE_OPENBLAS

static struct {
  __typeof__(&cblas_sgemm) sgemm;
  __typeof__(&cblas_dgemm) dgemm;
  __typeof__(&cblas_sgemv) sgemv;
  __typeof__(&cblas_dgemv) dgemv;
  __typeof__(&openblas_get_corename) core_name;
  __typeof__(&openblas_get_num_threads) threads;
} blas;

static const char core_type_variable[] = "OPENBLAS_CORETYPE";
static const char *const library_names[] = {"libopenblas.so.0", "libopenblas.so", "libopenblas.dylib", NULL};

static const struct {
  const char *name;
  void *target;
} symbols[] = {
    {"cblas_sgemm", &blas.sgemm},
    {"cblas_dgemm", &blas.dgemm},
    {"cblas_sgemv", &blas.sgemv},
    {"cblas_dgemv", &blas.dgemv},
    {"openblas_get_corename", &blas.core_name},
    {"openblas_get_num_threads", &blas.threads},
};

tsr_status tool_blas_load(const tool_options *options, tsr_error *error) {
  void *library = NULL;
  for (const char *const *name = library_names; *name && !library; name++)
    library = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return tool_fail(error, TSR_ERROR_UNSUPPORTED,
                     "--against openblas: it cannot be loaded (%s); install it "
                     "(libopenblas0)",
                     dlerror());
  for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
    void *symbol = dlsym(library, symbols[i].name);
    if (!symbol)
      return tool_fail(error, TSR_ERROR_UNSUPPORTED, "--against openblas: the library has no %s",
                       symbols[i].name);
    memcpy(symbols[i].target, &symbol, sizeof symbol);
  }
  const char *better = getenv(core_type_variable) ? NULL : tool_core_type_better(blas.core_name());
  if (!better) return TSR_OK;
  setenv(core_type_variable, better, 1);
  fflush(NULL);
  execv(tool_program_path(options->argv[0]), options->argv);
  unsetenv(core_type_variable); /* as it is, then */
  return TSR_OK;
}

static void run_vector(const tool_blas_call *call) {
  CBLAS_TRANSPOSE turn = call->transpose_b ? CblasNoTrans : CblasTrans;
  int rows = call->transpose_b ? call->n : call->k, cols = call->transpose_b ? call->k : call->n;
  if (call->wide)
    blas.dgemv(CblasRowMajor, turn, rows, cols, 1, call->b, cols, call->a, 1, 0, call->c, 1);
  else
    blas.sgemv(CblasRowMajor, turn, rows, cols, 1, call->b, cols, call->a, 1, 0, call->c, 1);
}

void tool_blas_run(const tool_blas_call *call) {
  CBLAS_TRANSPOSE turn_a = call->transpose_a ? CblasTrans : CblasNoTrans,
                  turn_b = call->transpose_b ? CblasTrans : CblasNoTrans;
  int m = call->m, n = call->n, k = call->k;
  int lda = call->transpose_a ? m : k, ldb = call->transpose_b ? k : n;
  if (m == 1)
    run_vector(call);
  else if (call->wide)
    blas.dgemm(CblasRowMajor, turn_a, turn_b, m, n, k, 1, call->a, lda, call->b, ldb, 0, call->c, n);
  else
    blas.sgemm(CblasRowMajor, turn_a, turn_b, m, n, k, 1, call->a, lda, call->b, ldb, 0, call->c, n);
}

const char *tool_blas_name(void) {
  static char name[96];
  int threads = blas.threads();
  snprintf(name, sizeof name, "%s, %d thread%s", blas.core_name(), threads, threads == 1 ? "" : "s");
  return name;
}

#else

tsr_status tool_blas_load(const tool_options *options, tsr_error *error) {
  (void)options;
  return tool_fail(error, TSR_ERROR_UNSUPPORTED,
                   "--against openblas: this tessera was built without it; install libopenblas-dev and "
                   "configure with -Dopenblas=enabled");
}

void tool_blas_run(const tool_blas_call *call) {
  (void)call;
}

const char *tool_blas_name(void) {
  return "";
}

#endif
