/* base/gemm_facts.h: what planner and device must both know of a GEMM family: in which form it wants a weight
 * and how much workspace a call takes. Data, so that a plan can be made without the device. */
#ifndef TSR_BASE_GEMM_FACTS_H
#define TSR_BASE_GEMM_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/dtype.h>

#define TSR_GEMM_FAMILY_LIST(X)                                                                              \
  X(NONE, "none")           /* this dtype is not supported */                                                \
  X(REFERENCE, "reference") /* clear, any device */                                                          \
  X(PANEL, "panel")         /* CPUs: packed panels, wide vectors */                                          \
  X(CLBLAST, "clblast")     /* GPUs: the CLBlast library */                                                  \
  X(HOST, "host")           /* plain C */
typedef enum tsr_gemm_family {
#define TSR_GEMM_FAMILY_ENUM(name, text) TSR_GEMM_##name,
  TSR_GEMM_FAMILY_LIST(TSR_GEMM_FAMILY_ENUM)
#undef TSR_GEMM_FAMILY_ENUM
      TSR_GEMM_FAMILY_COUNT
} tsr_gemm_family;

/* How the panel kernel cuts a product so that its parts stay in cache. */
typedef struct tsr_gemm_blocking {
  int k_block;          /* rows of a panel that are gone through at a time */
  int row_block;        /* rows of A that are copied at a time; 0 = A is read where it lies */
  int panels_per_group; /* panels that share one copy of A's rows */
} tsr_gemm_blocking;

typedef struct tsr_gemm_facts {
  tsr_gemm_family family;
  int tile_m, tile_n;       /* register tile (shares are cut at multiples of tile_n) */
  int panel;                /* panel width of a packed weight; 0 = weights stay row-major */
  bool prefetch;            /* panel: the compiler has __builtin_prefetch */
  tsr_gemm_blocking stored; /* panel: where the kernel reads both operands as they are stored */
  tsr_gemm_blocking copied; /* panel: where it copies op(B), or transposes A, into local memory */
} tsr_gemm_facts;

const char *tsr_gemm_family_name(tsr_gemm_family family);
/* TSR_GEMM_FAMILY_COUNT if the name is unknown. */
tsr_gemm_family tsr_gemm_family_of(const char *name);

/* Whether two devices run the same kernels for `count` dtypes: plans for one then run on the other. */
bool tsr_gemm_facts_equal(const tsr_gemm_facts *a, const tsr_gemm_facts *b, int count);

/* The blocking for a product with op(A) = A^T or not, and B in panels and not transposed, or not. */
const tsr_gemm_blocking *tsr_gemm_blocking_of(const tsr_gemm_facts *facts, bool transpose_a,
                                              bool b_as_stored);

/* Bytes of workspace of one call: panel transposes op(A) = A^T first, unless its copies of A do that. */
size_t tsr_gemm_workspace_bytes(const tsr_gemm_facts *facts, tsr_dtype dtype, bool transpose_a,
                                bool transpose_b, int64_t m, int64_t n, int64_t k);
/* Bytes of workspace of any reduction. */
size_t tsr_reduce_workspace_bytes(void);

/* Bytes that a rows x cols matrix takes in this panel width (0 = row-major). -1 if it does not fit. */
int64_t tsr_matrix_bytes(int panel, tsr_dtype dtype, int64_t rows, int64_t cols);

#endif
