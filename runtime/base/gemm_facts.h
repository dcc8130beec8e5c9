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

typedef struct tsr_gemm_facts {
  tsr_gemm_family family;
  int tile_m, tile_n;        /* register tile (shares are cut at multiples of tile_n) */
  int panel;                 /* panel width of a packed weight; 0 = weights stay row-major */
  int k_block;               /* panel: rows of a panel that stay in cache */
  int panels_per_group;      /* panel: panels of one work-group */
  int row_block;             /* panel: rows of A that are copied at a time; 0 = A is read where it lies */
  bool prefetch;             /* panel: the compiler has __builtin_prefetch */
} tsr_gemm_facts;

const char *tsr_gemm_family_name(tsr_gemm_family family);
/* TSR_GEMM_FAMILY_COUNT if the name is unknown. */
tsr_gemm_family tsr_gemm_family_of(const char *name);

/* Whether two devices run the same kernels for `count` dtypes: plans for one then run on the other. */
bool tsr_gemm_facts_equal(const tsr_gemm_facts *a, const tsr_gemm_facts *b, int count);

/* Bytes of workspace of one call. panel transposes op(A) = A^T first. */
size_t tsr_gemm_workspace_bytes(const tsr_gemm_facts *facts, tsr_dtype dtype, bool transpose_a,
                                bool transpose_b, int64_t m, int64_t n, int64_t k);
/* Bytes of workspace of any reduction. */
size_t tsr_reduce_workspace_bytes(void);

/* Bytes that a rows x cols matrix takes in this panel width (0 = row-major). -1 if it does not fit. */
int64_t tsr_matrix_bytes(int panel, tsr_dtype dtype, int64_t rows, int64_t cols);

#endif
