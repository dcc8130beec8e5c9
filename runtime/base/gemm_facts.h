/* base/gemm_facts.h: what planner, tuner and device must all know of a GEMM kernel: its family and the
 * parameters it is compiled and launched with, hence in which form it wants a weight and how much workspace a
 * call takes. Data, so that a plan can be made without the device. */
#ifndef TSR_BASE_GEMM_FACTS_H
#define TSR_BASE_GEMM_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/dtype.h>

#include "base/error.h"

/* name, text */
#define TSR_GEMM_FAMILY_LIST(X)                                                                              \
  X(NONE, "none")           /* these types are not supported */                                              \
  X(REFERENCE, "reference") /* clear, any device */                                                          \
  X(PANEL, "panel")         /* CPUs: packed panels, wide vectors */                                          \
  X(TILE, "tile")           /* GPUs: local-memory tiles, register tiles */                                   \
  X(MMA, "mma")             /* GPUs with matrix units */                                                     \
  X(CLBLAST, "clblast")     /* GPUs: the CLBlast library */                                                  \
  X(HOST, "host")           /* plain C */
typedef enum tsr_gemm_family {
#define TSR_GEMM_FAMILY_ENUM(name, text) TSR_GEMM_##name,
  TSR_GEMM_FAMILY_LIST(TSR_GEMM_FAMILY_ENUM)
#undef TSR_GEMM_FAMILY_ENUM
      TSR_GEMM_FAMILY_COUNT
} tsr_gemm_family;

/* Which element types a product has: name, text, a, b, c. Sums are in c's type. Those before F16 have the
 * value of b's tsr_dtype: tables of what a graph multiplies by are indexed by either. A narrow weight alone
 * is widened in registers; where a is narrow too, matrix units may multiply. Weights in i8 are whole numbers,
 * and may come with one factor for each of their columns. */
#define TSR_GEMM_TYPES_LIST(X)                                                                               \
  X(F32, "f32", F32, F32, F32)                                                                               \
  X(F64, "f64", F64, F64, F64)                                                                               \
  X(F32_F16, "f32xf16", F32, F16, F32)                                                                       \
  X(F32_BF16, "f32xbf16", F32, BF16, F32)                                                                    \
  X(F32_I8, "f32xi8", F32, I8, F32)                                                                          \
  X(F16, "f16", F16, F16, F32)                                                                               \
  X(BF16, "bf16", BF16, BF16, F32)
typedef enum tsr_gemm_types {
#define TSR_GEMM_TYPES_ENUM(name, text, a, b, c) TSR_GEMM_TYPES_##name,
  TSR_GEMM_TYPES_LIST(TSR_GEMM_TYPES_ENUM)
#undef TSR_GEMM_TYPES_ENUM
      TSR_GEMM_TYPES_COUNT
} tsr_gemm_types;
_Static_assert((int)TSR_GEMM_TYPES_F32 == (int)TSR_F32 && (int)TSR_GEMM_TYPES_F64 == (int)TSR_F64 &&
                   (int)TSR_GEMM_TYPES_F32_F16 == (int)TSR_F16 &&
                   (int)TSR_GEMM_TYPES_F32_BF16 == (int)TSR_BF16 && (int)TSR_GEMM_TYPES_F32_I8 == (int)TSR_I8,
               "tables indexed by the dtype of b");

/* A type of weights alone: operand b of products of f32, and nothing else. */
static inline bool tsr_dtype_is_narrow(tsr_dtype dtype) {
  return dtype != TSR_F32 && dtype != TSR_F64;
}

tsr_dtype tsr_gemm_dtype_a(tsr_gemm_types types);
tsr_dtype tsr_gemm_dtype_b(tsr_gemm_types types);
tsr_dtype tsr_gemm_dtype_c(tsr_gemm_types types);
const char *tsr_gemm_types_name(tsr_gemm_types types);
/* TSR_GEMM_TYPES_COUNT if there is none of that name, or none that multiplies a by b. */
tsr_gemm_types tsr_gemm_types_of(const char *name);
tsr_gemm_types tsr_gemm_types_find(tsr_dtype a, tsr_dtype b);

/* The parameters of all families, each with the families that use it (names that gemm_facts.c gives a
 * meaning); of the others it is 0. The kernels' comments define them: cl_kernels/gemm_<family>.cl. all
 * tile_m, tile_n: the tile of C that is held in registers (panel) or by a work-group (tile, mma); shares are
 * cut at multiples of tile_n panel   panel: width of a packed weight (0 = weights stay row-major); vector:
 * elements of a register; prefetch: the compiler has __builtin_prefetch; stored_*: blocking where both
 * operands are read as they are stored, copied_*: where op(B) is copied, or A transposed, into local memory;
 * small_m: products of at most so many rows are left to gemm_small.cl, with small_k_block as its K_BLOCK and
 * small_fetch as its FETCH, but small_fetch_row for a single row tile    tile_k, item_m, item_n (of C, per
 * work-item), vector, buffers (of local memory), split_k (most parts of k), sub_group (work-items of a
 * hardware thread, where that is to be told: Intel) mma     instruction (tsr_mma_instruction), tile_k,
 * warp_m, warp_n (of C, per warp), stages (of local memory, at least 2), split_k, emulated (by any device's
 * instructions, slowly: for tests) all     tuning: of a device's default alone, a hash of the tuning rows in
 * force for these types (device/tuning.h): a plan then knows devices apart whose products run other variants;
 * 0 = none */
#define TSR_GEMM_PARAMETER_LIST(X)                                                                           \
  X(tile_m, EVERY)                                                                                           \
  X(tile_n, EVERY)                                                                                           \
  X(panel, PANEL)                                                                                            \
  X(vector, PANEL | TILE)                                                                                    \
  X(prefetch, PANEL)                                                                                         \
  X(stored_k_block, PANEL)                                                                                   \
  X(stored_row_block, PANEL)                                                                                 \
  X(stored_panels, PANEL)                                                                                    \
  X(copied_k_block, PANEL)                                                                                   \
  X(copied_row_block, PANEL)                                                                                 \
  X(copied_panels, PANEL)                                                                                    \
  X(small_m, PANEL)                                                                                          \
  X(small_k_block, PANEL)                                                                                    \
  X(small_fetch, PANEL)                                                                                      \
  X(small_fetch_row, PANEL)                                                                                  \
  X(tile_k, TILE | MMA)                                                                                      \
  X(item_m, TILE)                                                                                            \
  X(item_n, TILE)                                                                                            \
  X(buffers, TILE)                                                                                           \
  X(split_k, TILE | MMA)                                                                                     \
  X(sub_group, TILE)                                                                                         \
  X(instruction, MMA)                                                                                        \
  X(warp_m, MMA)                                                                                             \
  X(warp_n, MMA)                                                                                             \
  X(stages, MMA)                                                                                             \
  X(emulated, MMA)                                                                                           \
  X(tuning, DEFAULTS)

/* Instructions of matrix units, cl_kernels/mma_*.h: name, work-items of a warp, rows and columns of C that
 * one makes there. 0 is none of them. */
#define TSR_MMA_INSTRUCTION_LIST(X)                                                                          \
  X(NVIDIA_MMA, 32, 16, 16)  /* mma.sync of compute capability 8.0 on */                                     \
  X(AMD_MFMA, 64, 16, 16)    /* CDNA: gfx90a, gfx942 */                                                      \
  X(AMD_WMMA, 32, 16, 16)    /* RDNA3: gfx11.. */                                                            \
  X(AMD_WMMA12, 32, 16, 16)  /* RDNA4: gfx12.. */                                                            \
  X(INTEL_DPAS8, 8, 8, 8)    /* sub-groups of 8 */                                                           \
  X(INTEL_DPAS16, 16, 8, 16) /* sub-groups of 16 */
typedef enum tsr_mma_instruction {
  TSR_MMA_NONE,
#define TSR_MMA_INSTRUCTION_ENUM(name, warp, m, n) TSR_MMA_##name,
  TSR_MMA_INSTRUCTION_LIST(TSR_MMA_INSTRUCTION_ENUM)
#undef TSR_MMA_INSTRUCTION_ENUM
      TSR_MMA_COUNT
} tsr_mma_instruction;

typedef struct tsr_gemm_facts {
  tsr_gemm_family family;
#define TSR_GEMM_PARAMETER_FIELD(name, families) int32_t name;
  TSR_GEMM_PARAMETER_LIST(TSR_GEMM_PARAMETER_FIELD)
#undef TSR_GEMM_PARAMETER_FIELD
} tsr_gemm_facts;

const char *tsr_gemm_family_name(tsr_gemm_family family);
/* TSR_GEMM_FAMILY_COUNT if the name is unknown. */
tsr_gemm_family tsr_gemm_family_of(const char *name);

/* The parameters by index, for JSON, keys and tables: 0 .. tsr_gemm_parameter_count - 1. */
int tsr_gemm_parameter_count(void);
const char *tsr_gemm_parameter_name(int index);
int32_t *tsr_gemm_parameter(tsr_gemm_facts *facts, int index);
/* Whether the family uses the parameter: of the others it must be 0. */
bool tsr_gemm_family_has(tsr_gemm_family family, int index);
/* The largest value that a document or a text may give it. */
int32_t tsr_gemm_parameter_most(int index);
/* "panel tile_m=6 tile_n=16 ...": the family and all parameters that are not 0. Returns buffer. */
char *tsr_gemm_facts_format(const tsr_gemm_facts *facts, char *buffer, size_t bytes);
/* Reads what format writes. Errors: INVALID_ARGUMENT, naming the word. */
tsr_status tsr_gemm_facts_parse(const char *text, tsr_gemm_facts *out, tsr_error *error);

/* Whether two devices run the same kernels for `count` types: plans for one then run on the other. */
bool tsr_gemm_facts_equal(const tsr_gemm_facts *a, const tsr_gemm_facts *b, int count);

/* Bytes of workspace of one call: the partial sums of a product whose k is cut into parts. */
size_t tsr_gemm_workspace_bytes(const tsr_gemm_facts *facts, tsr_gemm_types types, int64_t m, int64_t n,
                                int64_t k);
/* Into how many parts k is cut at most: more than 1 only if the tiles of C alone are few. */
int tsr_gemm_split(const tsr_gemm_facts *facts, int64_t m, int64_t n, int64_t k);
/* Bytes of local memory of a work-group of the tile kernel, whatever is transposed. */
size_t tsr_gemm_tile_local_bytes(const tsr_gemm_facts *facts, tsr_gemm_types types);
/* Of an instruction of matrix units: work-items of a warp, rows and columns of C; 0 if it is none. */
typedef struct tsr_mma_size {
  int32_t warp, rows, cols;
} tsr_mma_size;
tsr_mma_size tsr_mma_size_of(int32_t instruction);
/* Bytes of local memory, and work-items, of a work-group of the kernel for matrix units. */
size_t tsr_gemm_mma_local_bytes(const tsr_gemm_facts *facts);
size_t tsr_gemm_mma_items(const tsr_gemm_facts *facts);
/* Bytes of workspace of any reduction. */
size_t tsr_reduce_workspace_bytes(void);

/* Bytes that a rows x cols matrix takes in this panel width (0 = row-major). -1 if it does not fit. */
int64_t tsr_matrix_bytes(int panel, tsr_dtype dtype, int64_t rows, int64_t cols);

#endif
