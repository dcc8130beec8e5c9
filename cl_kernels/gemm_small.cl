/* gemm_small: a product of few rows by a weight in panels, on a CPU, where a work-item is a core's thread.
 *
 *     S[i,j] = sum over p < k of A[i,p] * B[p,j]              i < m, j < n;  C from S: gemm_epilogue.h
 *
 * With few rows what counts is reading B: once, from memory, in the order in which it lies there.
 *
 *                                    B     PANEL
 *                                    +----+----+----+--
 *                            K_BLOCK |  | |  ^ |    |        a block of a panel: in L1, used by every group of rows,
 *                                    |  | | /| |    |        while the next block is fetched
 *               A    K_BLOCK         +--|-+/-|-+----+--
 *            +--------------+        |  v |  v |    |
 *     ROWS   |              |        +----+----+----+--
 *            +--------------+        +----+----+----+--
 *     ROWS-1 |              |        |    |    |    |        C
 *            +--------------+        +----+----+----+--
 *
 * ROWS x PANEL sums stay in vector registers while p runs over a block. One group of rows alone needs no blocks: its
 * sums stay there for all of k. Sums that are too few to keep the multipliers busy are kept PHASES times, for every
 * PHASES-th p each.
 *
 * Memory: A row-major, in place, element (i,p) at offset + i*lda + p. B in panels of width PANEL, C row-major
 * (C_PANEL = 0) or in panels too:
 *
 *     element (r,c) at offset + ((c/PANEL)*ld + r)*PANEL + c%PANEL      ld = rows that a stored panel has
 *
 * The padding of the last panel may hold anything; that of C is overwritten. Offsets and leading dimensions count
 * elements. Nothing is copied; narrow elements of B are widened in registers.
 *
 * Constants (-D):
 *     REAL, A_TYPE, B_TYPE, and the epilogue: see vector.h, gemm_types.h, gemm_epilogue.h. A is not narrow
 *     C_PANEL    0 = row-major, PANEL = panels
 *     ROWS       rows of the largest group
 *     SMALL_M    the most rows that a product may have
 *     PANEL      the width of B's panels; a multiple of VECTOR
 *     VECTOR     elements of a vector register; ROWS x PANEL / VECTOR sums and PANEL / VECTOR + 1 others fit
 *     K_BLOCK    rows of a block
 *     FETCH      how many bytes ahead of its use B is fetched where it is used once; 0: the compiler has no
 *                __builtin_prefetch
 *
 * Launch: 1 dimension, local size 1, any global size x >= 1: the panels are cut into x nearly equal ranges, a group
 * without work returns. ROWS = ceil(m / groups) with the fewest groups that the registers allow: then groups have ROWS
 * or ROWS - 1 rows.
 *
 * Limits: 0 < m <= SMALL_M, ceil(m / ROWS) * (ROWS - 1) <= m; n, k >= 0. beta = 0: C is not read. alpha = 0 or k = 0:
 * A and B are not read. C overlaps neither A nor B. Sums are in REAL, their order depends on k, on the constants and on
 * the number of rows in a group. OpenCL 1.2. */

#if !defined(ROWS) || !defined(SMALL_M) || !defined(PANEL) || !defined(K_BLOCK) || !defined(FETCH) || !defined(C_PANEL)
#error "gemm_small needs -DROWS, -DSMALL_M, -DPANEL, -DK_BLOCK, -DFETCH and -DC_PANEL"
#endif
#if C_PANEL != 0 && C_PANEL != PANEL
#error "gemm_small: C_PANEL must be 0 or PANEL"
#endif
#if ROWS < 1 || SMALL_M < ROWS || K_BLOCK < 1 || PANEL % VECTOR != 0
#error "gemm_small: 1 <= ROWS <= SMALL_M, K_BLOCK >= 1, PANEL a multiple of VECTOR"
#endif

#include "vector.h"
#include "activation.h"
#include "gemm_types.h"
#include "gemm_epilogue.h"

#if A_NARROW
#error "gemm_small: A is F32 or F64"
#endif

#define VECTORS (PANEL / VECTOR)
#define STEP 4      /* p that are taken together */
#define CHAINS 8    /* sums that keep two multipliers busy whose results are there after 4 cycles */
#if ROWS * VECTORS >= CHAINS
#define PHASES 1
#elif 2 * ROWS * VECTORS >= CHAINS
#define PHASES 2
#else
#define PHASES 4
#endif

#define LINE 64
#define STEP_BYTES (STEP * PANEL * sizeof(b_element))
#if FETCH
#define FETCH_LINE(address) __builtin_prefetch((const void *)(address), 0, 3)
#else
#define FETCH_LINE(address)
#endif

/* sums[rows][PANEL] of A[rows, depth] B[depth, PANEL], added to what is there unless `first`. Beside that, of what
 * comes next `fetch_bytes` a step are fetched, from the address `fetch` on. Expanded in line, so that rows is a
 * constant. */
static inline __attribute__((always_inline))
void multiply(uint rows, ulong depth, global const REAL *a, ulong lda, global const b_element *b, ulong fetch,
              ulong fetch_bytes, REAL *sums, bool first)
{
    vector sum[PHASES][ROWS][VECTORS];
#pragma unroll
    for (uint u = 0; u < PHASES; u++)
#pragma unroll
        for (uint r = 0; r < ROWS; r++)
#pragma unroll
            for (uint v = 0; v < VECTORS; v++)
                sum[u][r][v] = 0;

    ulong p = 0;
    for (; p + STEP <= depth; p += STEP) {
#if FETCH
#pragma unroll
        for (uint line = 0; line < (STEP_BYTES + LINE - 1) / LINE; line++)
            FETCH_LINE(fetch + line * LINE);
        fetch += fetch_bytes;
#endif
#pragma unroll
        for (uint u = 0; u < STEP; u++) {
            vector x[VECTORS];
#pragma unroll
            for (uint v = 0; v < VECTORS; v++)
                x[v] = WIDEN_VECTOR(B_TYPE, b + (p + u) * PANEL + v * VECTOR);
#pragma unroll
            for (uint r = 0; r < ROWS; r++) {
                if (r >= rows)
                    continue;
                const REAL y = a[r * lda + p + u];
#pragma unroll
                for (uint v = 0; v < VECTORS; v++)
                    sum[u % PHASES][r][v] += y * x[v];
            }
        }
    }
    for (; p < depth; p++)
#pragma unroll
        for (uint r = 0; r < ROWS; r++)
#pragma unroll
            for (uint v = 0; v < VECTORS && r < rows; v++)
                sum[0][r][v] += a[r * lda + p] * WIDEN_VECTOR(B_TYPE, b + p * PANEL + v * VECTOR);

#pragma unroll
    for (uint r = 0; r < ROWS; r++)
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) {
            if (r >= rows)
                continue;
            REAL *const out = sums + r * PANEL + v * VECTOR;
            vector value = sum[0][r][v];
#pragma unroll
            for (uint u = 1; u < PHASES; u++)
                value += sum[u][r][v];
            VSTORE(first ? value : value + VLOAD(out), out);
        }
}

/* Functions of their own: in line, PoCL's compiler moves address arithmetic into the loop over p. */
static __attribute__((noinline))
void multiply_more(ulong depth, global const REAL *a, ulong lda, global const b_element *b, ulong fetch,
                   ulong fetch_bytes, REAL *sums, bool first)
{
    multiply(ROWS, depth, a, lda, b, fetch, fetch_bytes, sums, first);
}

#if ROWS > 1
static __attribute__((noinline))
void multiply_less(ulong depth, global const REAL *a, ulong lda, global const b_element *b, ulong fetch,
                   ulong fetch_bytes, REAL *sums, bool first)
{
    multiply(ROWS - 1, depth, a, lda, b, fetch, fetch_bytes, sums, first);
}
#else
#define multiply_less multiply_more
#endif

/* C[m, columns] from column j on, from the sums. */
static __attribute__((noinline))
void store(const epilogue *e, REAL beta, ulong m, ulong j, uint columns, const REAL *sums, global REAL *c,
           ulong c_stride)
{
    for (ulong i = 0; i < m; i++)
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) {
            if (v * VECTOR >= columns)
                continue;
            const uint count = min(columns - v * VECTOR, (uint)VECTOR);
            global REAL *out = c + i * c_stride + v * VECTOR;
            const vector sum = VLOAD(sums + i * PANEL + v * VECTOR);
            const vector value =
                finish(e, i, j + v * VECTOR, combine(e, beta, j + v * VECTOR, sum, out, count), count);
            if (count == VECTOR)
                store_vector(value, out);
            else
                store_part(value, out, count);
        }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_small(ulong m, ulong n, ulong k, REAL alpha, REAL beta,
                global const REAL *a, ulong a_offset, ulong lda,
                global const b_element *b, ulong b_offset, ulong ldb,
                global REAL *c, ulong c_offset, ulong ldc EPILOGUE_PARAMETERS)
{
    const epilogue e = EPILOGUE;
    REAL sums[SMALL_M * PANEL];
    const ulong x = get_group_id(0), x_count = get_num_groups(0), panels = (n + PANEL - 1) / PANEL;
    const ulong groups = (m + ROWS - 1) / ROWS, depth = alpha == 0 ? 0 : k;
    const ulong k_block = groups == 1 ? max(depth, (ulong)1) : K_BLOCK;
    const ulong blocks = max((depth + k_block - 1) / k_block, (ulong)1);

    for (ulong panel = panels * x / x_count; panel < panels * (x + 1) / x_count; panel++) {
        for (ulong block = 0; block < blocks; block++) {
            const ulong p = depth * block / blocks, next_p = depth * (block + 1) / blocks;
            global const b_element *here = b + b_offset + (panel * ldb + p) * PANEL;
            global const b_element *next =
                b + b_offset + (block + 1 < blocks ? panel * ldb + next_p : (panel + 1) * ldb) * PANEL;
            for (ulong g = 0; g < groups; g++) {
                const ulong row = m * g / groups, rows = m * (g + 1) / groups - row;
                const ulong fetch_bytes = STEP_BYTES / groups;
                const ulong fetch = groups == 1 ? (ulong)here + FETCH
                                                : (ulong)next + fetch_bytes * ((next_p - p) / STEP) * g;
                if (rows == ROWS)
                    multiply_more(next_p - p, a + a_offset + row * lda + p, lda, here, fetch, fetch_bytes,
                                  sums + row * PANEL, block == 0);
                else
                    multiply_less(next_p - p, a + a_offset + row * lda + p, lda, here, fetch, fetch_bytes,
                                  sums + row * PANEL, block == 0);
            }
        }
        const ulong j = panel * PANEL;
        const uint columns = C_PANEL && !SCALED ? PANEL : (uint)min(n - j, (ulong)PANEL);
        store(&e, beta, m, j, columns, sums, c + c_offset + (C_PANEL ? panel * ldc * PANEL : j),
              C_PANEL ? PANEL : ldc);
    }
}
