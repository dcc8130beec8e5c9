/* gemm_panel: a product on a CPU, where a work-item is a core's thread.
 *
 *     S[i,j] = sum over p < k of op(A)[i,p] * op(B)[p,j]      i < m, j < n;  C from S: gemm_epilogue.h
 *
 *     op(A)[i,p] = A_TRANSPOSED ? A[p,i] : A[i,p]          op(B)[p,j] = B_TRANSPOSED ? B[j,p] : B[p,j]
 *
 * Tile: TILE_M x PANEL sums stay in vector registers while p runs over a block of at most K_BLOCK; each step
 * loads PANEL elements of B, broadcasts TILE_M elements of A, multiplies and adds. What costs beside the sums is
 * to write C once for each K_BLOCK, to bring a panel of B to L1 for each ROW_BLOCK, and to copy A once for each
 * PANELS_PER_GROUP:
 *
 *                                    op(B)  PANEL
 *                                    +----+----+----+--
 *                            K_BLOCK |  p |    |    |        one panel of B: in L1, used by all tiles below it
 *             op(A)  K_BLOCK         +----+----+----+--
 *            +-------- p ---+        +----+----+----+--
 *     TILE_M |              |        |tile|    |    |        C
 *            +--------------+        +----+----+----+--
 *            |              |        |  | |    |    |        first down the ROW_BLOCK, then to the next panel
 *            +--------------+        +--v-+----+----+--
 *             ROW_BLOCK rows: in L2, used by all panels of the group
 *
 * Memory: row-major, element (r,c) at offset + r*ld + c; or panels of width W = PANEL (B_PANEL, C_PANEL = W):
 *
 *     element (r,c) at offset + ((c/W)*ld + r)*W + c%W      ld = rows that a stored panel has
 *
 *     columns  0 .. W-1     W .. 2W-1    2W ..
 *            +-----------+ +-----------+ +-----+.....+     each panel is ld rows of W elements, one after
 *            | panel 0   | | panel 1   | | 2   : pad :     another; the last one is padded to W. The pad may
 *            +-----------+ +-----------+ +-----+.....+     hold anything; that of C is overwritten
 *
 * Offsets and leading dimensions count elements. What the registers do not want as it is stored is copied to
 * local memory first: a panel of B unless B is panels, not transposed and not narrow; A unless ROW_BLOCK is 0.
 *
 * Constants (-D; all facts about the machine are here, none in the code):
 *     REAL, A_TYPE, B_TYPE, and the epilogue: see vector.h, gemm_types.h, gemm_epilogue.h. A is not narrow
 *     A_TRANSPOSED, B_TRANSPOSED   0 or 1
 *     B_PANEL, C_PANEL   0 = row-major, PANEL = panels
 *     TILE_M, PANEL      the register tile; PANEL is a multiple of VECTOR and of 4
 *     VECTOR             elements of a vector register
 *     K_BLOCK            a multiple of PANEL
 *     ROW_BLOCK          rows of A that are copied at a time, a multiple of TILE_M; 0 = A is read in place,
 *                        which goes only where B is read in place too and A is not transposed
 *     PANELS_PER_GROUP   panels that share one copy of A's rows
 *     PREFETCH           1 where the compiler has __builtin_prefetch, else 0
 * Local memory: ROW_BLOCK * (K_BLOCK + 16) elements, and K_BLOCK * PANEL + 64 bytes where B is copied.
 *
 * Launch: 2 dimensions, local size (1,1), global size (x, y). Any x, y >= 1 are right: the panels of C are cut
 * into x nearly equal ranges, its tile rows into y; a group without work returns. For speed, on `cores` cores:
 *
 *     panels = ceil(n / PANEL)       tile_rows = ceil(m / TILE_M)
 *     x = min(panels, round_up(ceil(panels / PANELS_PER_GROUP), cores))      round_up: to a multiple
 *     y = x < cores ? min(tile_rows, ceil(cores / x)) : 1                    each of them at least 1
 *
 * Limits: m, n, k >= 0. beta = 0: C is not read. alpha = 0 or k = 0: A and B are not read. C overlaps neither
 * A nor B. Sums are in REAL, and their order depends on k, K_BLOCK and PANEL alone. OpenCL 1.2. */

#if !defined(A_TRANSPOSED) || !defined(B_TRANSPOSED) || !defined(B_PANEL) || !defined(C_PANEL)
#error "gemm_panel needs -DA_TRANSPOSED, -DB_TRANSPOSED, -DB_PANEL and -DC_PANEL"
#endif
#if !defined(TILE_M) || !defined(PANEL)
#error "gemm_panel needs -DTILE_M and -DPANEL"
#endif
#if !defined(K_BLOCK) || !defined(ROW_BLOCK) || !defined(PANELS_PER_GROUP) || !defined(PREFETCH)
#error "gemm_panel needs -DK_BLOCK, -DROW_BLOCK, -DPANELS_PER_GROUP and -DPREFETCH"
#endif
#if (B_PANEL != 0 && B_PANEL != PANEL) || (C_PANEL != 0 && C_PANEL != PANEL)
#error "gemm_panel: B_PANEL and C_PANEL must be 0 or PANEL"
#endif
#if PANELS_PER_GROUP < 1 || K_BLOCK < 1 || TILE_M < 1
#error "gemm_panel: PANELS_PER_GROUP, K_BLOCK and TILE_M must be at least 1"
#endif
#if PANEL % VECTOR != 0 || PANEL % 4 != 0 || K_BLOCK % PANEL != 0 || ROW_BLOCK % TILE_M != 0
#error "gemm_panel: PANEL must be a multiple of VECTOR and of 4, K_BLOCK of PANEL, ROW_BLOCK of TILE_M"
#endif

#include "vector.h"
#include "activation.h"
#include "gemm_types.h"
#include "gemm_epilogue.h"

#if A_NARROW
#error "gemm_panel: A is F32 or F64"
#endif

#define FINISHED (BIAS || UNARY != NONE || GATE || RESIDUAL)
/* At any element, as in vector.h. */
typedef JOIN(REAL, 4) quad;
typedef JOIN(REAL, 8) eight;
typedef quad loose_quad __attribute__((aligned(sizeof(REAL))));
typedef eight loose_eight __attribute__((aligned(sizeof(REAL))));

#define A_COPIED (ROW_BLOCK > 0)
#define B_COPIED (B_PANEL == 0 || B_TRANSPOSED || B_NARROW)
#if (A_TRANSPOSED || B_COPIED) && !A_COPIED
#error "gemm_panel: copies need a ROW_BLOCK"
#endif
#include "gemm_panel_tile.h"

/* Where op(A)[i,p], op(B)[p,j] and C[i,j] lie. */
#define STORED(row, column, ld, panel) \
    ((panel) ? ((column) / PANEL * (ld) + (row)) * PANEL + (column) % PANEL : (row) * (ld) + (column))
#define A_AT(i, p) (A_TRANSPOSED ? (p) * lda + (i) : (i) * lda + (p))
#define B_AT(p, j) (B_TRANSPOSED ? STORED(j, p, ldb, B_PANEL) : STORED(p, j, ldb, B_PANEL))
#define C_AT(i, j) STORED(i, j, ldc, C_PANEL)

/* How many rows the copy of A holds at most. */
#define A_ROWS(depth) \
    (A_TRANSPOSED ? ROW_BLOCK / TILE_M * (ulong)K_BLOCK / max(depth, (ulong)1) * TILE_M : (ulong)ROW_BLOCK)

#if A_COPIED
/* out = op(A)[rows, depth], whole tiles: rows that are not there repeat the last one; a is its first element. */
static void copy_a(local REAL *out, ulong rows, ulong depth, global const REAL *a, ulong lda)
{
#if A_TRANSPOSED
    for (ulong p = 0; p < depth; p++)
        for (ulong i = 0; i < rows; i += TILE_M) {
            local REAL *to = out + i * depth + p * TILE_M;
            global const REAL *from = a + A_AT(i, p);
            if (rows - i >= TILE_M) {
#pragma unroll
                for (uint r = 0; r < TILE_M / 4 * 4; r += 4)
                    *(local loose_quad *)(to + r) = *(global const loose_quad *)(from + r);
#pragma unroll
                for (uint r = TILE_M / 4 * 4; r < TILE_M; r++)
                    to[r] = from[r];
            } else
                for (uint r = 0; r < TILE_M; r++)
                    to[r] = from[min((ulong)r, rows - 1 - i)];
        }
#else
    for (ulong i = 0; i < rows; i += TILE_M, out += TILE_M * A_PITCH) {
        ulong p = 0;
        for (; p + PANEL <= depth; p += PANEL)
#pragma unroll
            for (uint r = 0; r < TILE_M; r++) {
                global const loose_vector *from = (global const loose_vector *)(a + A_AT(min(i + r, rows - 1), p));
                local loose_vector *to = (local loose_vector *)(out + r * A_PITCH + p);
#pragma unroll
                for (uint v = 0; v < VECTORS; v++)
                    to[v] = from[v];
            }
        for (; p < depth; p++)
            for (uint r = 0; r < TILE_M; r++)
                out[r * A_PITCH + p] = a[A_AT(min(i + r, rows - 1), p)];
    }
#endif
}
#endif

#if PREFETCH
/* Fetches elements first .. first + count, in the order of memory, of the depth x PANEL ones of a panel of op(B)
 * into L2; b is its first element. */
static inline void fetch_b(ulong first, ulong count, global const b_element *b, ulong ldb)
{
    for (ulong e = first; e < first + count; e += LINE) {
        const ulong line = e / PANEL, block = line / PANEL * PANEL;
        FETCH(b + (B_TRANSPOSED ? B_AT(block, line % PANEL) : B_AT(line, 0)) + e % PANEL, 2);
    }
}
#endif

#if B_COPIED && !B_TRANSPOSED
static inline vector load_b(global const b_element *from)
{
#if B_NARROW
    return WIDEN_VECTOR(B_TYPE, from);
#else
    return load_vector(from);
#endif
}

/* out[p][0 .. PANEL) = op(B)[p][columns of a panel]; b is its first element. Zeros follow the last column. */
static void copy_b(local REAL *out, ulong depth, ulong columns, global const b_element *b, ulong ldb)
{
    for (ulong p = 0; p < depth; p++, out += PANEL) {
        global const b_element *from = b + B_AT(p, 0);
        if (columns >= PANEL)
#pragma unroll
            for (uint v = 0; v < VECTORS; v++)
                ((local loose_vector *)out)[v] = load_b(from + v * VECTOR);
        else
            for (uint x = 0; x < PANEL; x++)
                out[x] = x < columns ? WIDEN(B_TYPE, from + x) : 0;
    }
}
#elif B_COPIED
static inline quad load_quad(global const b_element *from)
{
    return (quad)(WIDEN(B_TYPE, from), WIDEN(B_TYPE, from + 1), WIDEN(B_TYPE, from + 2), WIDEN(B_TYPE, from + 3));
}

/* Columns 0 and 4 of 8 that begin at `from`, `column` elements apart. */
static inline eight load_pair(global const b_element *from, ulong column)
{
    return (eight)(load_quad(from), load_quad(from + 4 * column));
}

/* The same, 4 x 8 elements at a time: shuffles as AVX has them. Blocks of p start at multiples of PANEL, so a quad
 * stays in its panel. */
static void copy_b(local REAL *out, ulong depth, ulong columns, global const b_element *b, ulong ldb)
{
    const ulong step = B_PANEL ? PANEL : ldb;
    ulong p = 0;
    for (; PANEL % 8 == 0 && columns >= PANEL && p + 4 <= depth; p += 4)
#pragma unroll
        for (ulong j = 0; j < PANEL; j += 8) {
            global const b_element *from = b + B_AT(p, j);
            local REAL *to = out + p * PANEL + j;
            const eight w = load_pair(from, step), x = load_pair(from + step, step);
            const eight y = load_pair(from + 2 * step, step), z = load_pair(from + 3 * step, step);
            const eight wx = (eight)(w.s0, x.s0, w.s1, x.s1, w.s4, x.s4, w.s5, x.s5);
            const eight yz = (eight)(y.s0, z.s0, y.s1, z.s1, y.s4, z.s4, y.s5, z.s5);
            const eight wx_upper = (eight)(w.s2, x.s2, w.s3, x.s3, w.s6, x.s6, w.s7, x.s7);
            const eight yz_upper = (eight)(y.s2, z.s2, y.s3, z.s3, y.s6, z.s6, y.s7, z.s7);
            *(local loose_eight *)to = (eight)(wx.s01, yz.s01, wx.s45, yz.s45);
            *(local loose_eight *)(to + PANEL) = (eight)(wx.s23, yz.s23, wx.s67, yz.s67);
            *(local loose_eight *)(to + 2 * PANEL) = (eight)(wx_upper.s01, yz_upper.s01, wx_upper.s45, yz_upper.s45);
            *(local loose_eight *)(to + 3 * PANEL) = (eight)(wx_upper.s23, yz_upper.s23, wx_upper.s67, yz_upper.s67);
        }
    for (; p < depth; p++)
        for (uint x = 0; x < PANEL; x++)
            out[p * PANEL + x] = x < columns ? WIDEN(B_TYPE, b + B_AT(p, x)) : 0;
}
#endif

#if FINISHED
/* The rest of the epilogue, on [rows, columns] of C from (i, j) on, which were just stored: by rows, as memory streams.
 * Behind each tile it would wait for a line in each row of the gate. */
static __attribute__((noinline))
void finish_block(ulong rows, ulong columns, const epilogue *e, ulong i, ulong j, global REAL *c, ulong ldc)
{
    const ulong whole = j + columns / VECTOR * VECTOR;
    for (ulong r = i; r < i + rows; r++) {
#pragma unroll 1
        for (ulong v = j; v < whole; v += VECTOR) {
            global REAL *out = c + C_AT(r, v);
            store_vector(finish(e, r, v, load_vector(out), VECTOR), out);
        }
        if (whole < j + columns) {
            const uint count = (uint)(j + columns - whole);
            global REAL *out = c + C_AT(r, whole);
            store_part(finish(e, r, whole, load_part(out, count), count), out, count);
        }
    }
}
#endif

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_panel(ulong m, ulong n, ulong k, REAL alpha, REAL beta,
                global const REAL *a, ulong a_offset, ulong lda,
                global const b_element *b, ulong b_offset, ulong ldb,
                global REAL *c, ulong c_offset, ulong ldc EPILOGUE_PARAMETERS)
{
    const epilogue e = EPILOGUE;
#if A_COPIED
    local REAL a_copy[ROW_BLOCK * A_PITCH + B_COPIED * (K_BLOCK * PANEL + LINE)];
    const ulong a_stride = A_TRANSPOSED ? 1 : A_PITCH;
#else
    const ulong a_stride = lda;
#endif
    const ulong c_stride = C_PANEL ? PANEL : ldc;

    /* This group's part of C, and the blocks of p: at least one, so that C is written when k is 0. */
    const ulong x = get_group_id(0), x_count = get_num_groups(0), panels = ceil_div(n, PANEL);
    const ulong y = get_group_id(1), y_count = get_num_groups(1), tile_rows = ceil_div(m, TILE_M);
    const ulong last_column = min(panels * (x + 1) / x_count * PANEL, n);
    const ulong last_row = min(tile_rows * (y + 1) / y_count * TILE_M, m);
    const ulong full_depth = alpha == 0 ? 0 : k, steps = ceil_div(full_depth, PANEL);
    const ulong blocks = max(ceil_div(full_depth, K_BLOCK), (ulong)1);

    for (ulong column = panels * x / x_count * PANEL; column < last_column; column += PANELS_PER_GROUP * PANEL)
        for (ulong block = 0; block < blocks; block++) {
            const ulong columns = min(last_column - column, (ulong)PANELS_PER_GROUP * PANEL);
            const ulong p = steps * block / blocks * PANEL;
            const ulong depth = min(steps * (block + 1) / blocks * PANEL, full_depth) - p;
#if A_COPIED
            const ulong row_block = A_ROWS(depth);
#else
            const ulong row_block = max(m, (ulong)1);
#endif
            for (ulong row = tile_rows * y / y_count * TILE_M; row < last_row; row += row_block) {
                const ulong rows = min(last_row - row, row_block);
#if A_COPIED
                copy_a(a_copy, rows, depth, a + a_offset + A_AT(row, p), lda);
#endif
                const ulong share = ceil_div(depth * PANEL, ceil_div(rows, TILE_M) * LINE) * LINE;
                for (ulong j = 0; j < columns; j += PANEL) {
                    global const b_element *panel_b = b + b_offset + B_AT(p, column + j);
                    const uint width = (uint)min(columns - j, (ulong)PANEL);
#if B_COPIED
                    /* Behind A's tiles: of a place that is a constant, PoCL's compiler makes one that is nobody's
                     * when it puts it into multiply(). */
                    local REAL *tile_b = a_copy + ceil_div(ceil_div(rows, TILE_M) * A_TILE(depth), LINE) * LINE;
                    copy_b(tile_b, depth, width, panel_b, ldb);
#else
                    global const REAL *tile_b = panel_b;
#endif
                    for (ulong i = 0; i < rows; i += TILE_M) {
#if A_COPIED
                        local REAL *tile_a = a_copy + i / TILE_M * A_TILE(depth);
#else
                        global const REAL *tile_a = a + a_offset + A_AT(row + i, p);
#endif
#if PREFETCH
                        fetch_b(i / TILE_M * share, share, b + b_offset + B_AT(p, column + j + PANEL), ldb);
#endif
                        const uint height = (uint)min(rows - i, (ulong)TILE_M);
                        global REAL *tile_c = c + c_offset + C_AT(row + i, column + j);
                        if (height == TILE_M && ((C_PANEL && !SCALED) || width == PANEL))
                            multiply_whole(depth, &e, block ? 1 : beta, column + j, tile_a, a_stride, tile_b, tile_c,
                                           c_stride);
                        else
                            multiply_edge(height, C_PANEL && !SCALED ? PANEL : width, depth, &e, block ? 1 : beta,
                                          column + j, tile_a, a_stride, tile_b, tile_c, c_stride);
                    }
                }
#if FINISHED
                if (block == blocks - 1)
                    finish_block(rows, columns, &e, row, column, c + c_offset, ldc);
#endif
            }
        }
}
