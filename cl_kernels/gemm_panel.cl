/* gemm_panel: C = alpha op(A) op(B) + beta C on a CPU, where a work-item is a core's thread.
 *
 *     C[i,j] = alpha * sum over p < k of op(A)[i,p] * op(B)[p,j]  +  beta * C[i,j]      i < m, j < n
 *
 *     op(A)[i,p] = A_TRANSPOSED ? A[p,i] : A[i,p]          op(B)[p,j] = B_TRANSPOSED ? B[j,p] : B[p,j]
 *
 * Tile: TILE_M x PANEL sums stay in vector registers while p runs over a block of at most K_BLOCK; each step
 * loads PANEL elements of B, broadcasts TILE_M elements of A, multiplies and adds:
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
 * local memory first: B unless it is panels and not transposed, A unless ROW_BLOCK is 0.
 *
 * Constants (-D; all facts about the machine are here, none in the code):
 *     REAL               float or double
 *     A_TRANSPOSED, B_TRANSPOSED   0 or 1
 *     B_PANEL, C_PANEL   0 = row-major, PANEL = panels
 *     TILE_M, PANEL      the register tile; PANEL is a multiple of VECTOR and of 4
 *     VECTOR             elements of a vector register
 *     K_BLOCK            a multiple of PANEL
 *     ROW_BLOCK          rows of A that are copied at a time, a multiple of TILE_M; 0 = A is read in place,
 *                        which A_TRANSPOSED does not allow
 *     PANELS_PER_GROUP   panels that share one copy of A's rows, and the most that B's copy holds
 *     PREFETCH           1 where the compiler has __builtin_prefetch, else 0
 * Local memory: ROW_BLOCK * (K_BLOCK + 16) elements, and PANELS_PER_GROUP * K_BLOCK * PANEL where B is copied.
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

#if !defined(REAL) || !defined(A_TRANSPOSED) || !defined(B_TRANSPOSED) || !defined(B_PANEL) || !defined(C_PANEL)
#error "gemm_panel needs -DREAL, -DA_TRANSPOSED, -DB_TRANSPOSED, -DB_PANEL and -DC_PANEL"
#endif
#if !defined(TILE_M) || !defined(PANEL) || !defined(VECTOR)
#error "gemm_panel needs -DTILE_M, -DPANEL and -DVECTOR"
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
#if A_TRANSPOSED && ROW_BLOCK == 0
#error "gemm_panel: A_TRANSPOSED needs a ROW_BLOCK, or A transposed first by transpose.cl"
#endif

#define JOIN_TOKENS(x, y) x##y
#define JOIN(x, y) JOIN_TOKENS(x, y)
#define VLOAD JOIN(vload, VECTOR)
#define VSTORE JOIN(vstore, VECTOR)
#define VECTORS (PANEL / VECTOR)
typedef JOIN(REAL, VECTOR) vector;
typedef JOIN(REAL, 4) quad;

#define A_COPIED (ROW_BLOCK > 0)
#define B_COPIED (B_PANEL == 0 || B_TRANSPOSED)
#if A_COPIED
typedef local REAL *a_pointer;
#else
typedef global const REAL *a_pointer;
#endif
#if B_COPIED
typedef local REAL *b_pointer;
#else
typedef global const REAL *b_pointer;
#endif

/* Where op(A)[i,p], op(B)[p,j] and C[i,j] lie. */
#define STORED(row, column, ld, panel) \
    ((panel) ? ((column) / PANEL * (ld) + (row)) * PANEL + (column) % PANEL : (row) * (ld) + (column))
#define A_AT(i, p) (A_TRANSPOSED ? (p) * lda + (i) : (i) * lda + (p))
#define B_AT(p, j) (B_TRANSPOSED ? STORED(j, p, ldb, B_PANEL) : STORED(p, j, ldb, B_PANEL))
#define C_AT(i, j) STORED(i, j, ldc, C_PANEL)

/* The copy of A: rows of K_BLOCK elements, lengthened to spread over the cache sets; or, A_TRANSPOSED, tiles
 * of K_BLOCK lines of TILE_M elements. A_TILE is the distance of two tiles, A_STEP that of p and p + 1. */
#define A_PITCH (K_BLOCK + 16)
#define A_TILE (A_TRANSPOSED ? TILE_M * K_BLOCK : TILE_M * A_PITCH)
#define A_STEP (A_TRANSPOSED ? TILE_M : 1)

/* The cache line at a pointer will be wanted soon: hint 3 in L1, 2 in L2. */
#define LINE (64 / sizeof(REAL))
#if PREFETCH
#define FETCH(pointer, hint) __builtin_prefetch((const void *)(ulong)(pointer), 0, hint)
#else
#define FETCH(pointer, hint)
#endif

static inline ulong ceil_div(ulong x, ulong y)
{
    return (x + y - 1) / y;
}

#if A_COPIED
/* out = op(A)[rows, depth]; a is its first element. */
static void copy_a(local REAL *out, ulong rows, ulong depth, global const REAL *a, ulong lda)
{
#if A_TRANSPOSED
    for (ulong p = 0; p < depth; p++)
        for (ulong i = 0; i < rows; i += TILE_M) {
            local REAL *to = out + i * K_BLOCK + p * TILE_M;
            if (rows - i >= TILE_M)
#pragma unroll
                for (uint r = 0; r < TILE_M; r++)
                    to[r] = a[A_AT(i + r, p)];
            else
                for (uint r = 0; r < rows - i; r++)
                    to[r] = a[A_AT(i + r, p)];
        }
#else
    for (ulong i = 0; i < rows; i++)
        for (ulong p = 0; p < depth; p++)
            out[i * A_PITCH + p] = a[A_AT(i, p)];
#endif
}
#endif

#if A_COPIED && PREFETCH
/* Fetches part j .. j + PANEL, of `columns`, of op(A)[rows, depth] into L2; a is the first element. */
static void fetch_a(ulong j, ulong columns, ulong rows, ulong depth, global const REAL *a, ulong lda)
{
    const ulong lines = A_TRANSPOSED ? depth : rows, length = A_TRANSPOSED ? rows : depth;
    for (ulong line = lines * j / columns; line < lines * min(j + PANEL, columns) / columns; line++)
        for (ulong e = 0; e < length; e += LINE)
            FETCH(a + line * lda + e, 2);
}
#endif

#if !B_COPIED && PREFETCH
/* Fetches part `tile`, of `tiles`, of the next panel b[depth, PANEL] into L2. */
static inline void fetch_b(ulong tile, ulong tiles, ulong depth, global const REAL *b)
{
    const ulong share = ceil_div(depth * PANEL, tiles);
    for (ulong e = tile * share; e < (tile + 1) * share; e += LINE)
        FETCH(b + e, 2);
}
#endif

#if B_COPIED && !B_TRANSPOSED
/* out[panel][p][0 .. PANEL) = op(B)[p][columns of the panel]; b is the first element. Zeros follow the last column. */
static void copy_b(local REAL *out, ulong depth, ulong columns, global const REAL *b, ulong ldb)
{
    for (ulong p = 0; p < depth; p++)
        for (ulong j = 0; j < columns; j += PANEL) {
            global const REAL *from = b + B_AT(p, j);
            local REAL *to = out + j * K_BLOCK + p * PANEL;
            if (columns - j >= PANEL)
                for (uint v = 0; v < VECTORS; v++)
                    VSTORE(VLOAD(v, from), v, to);
            else
                for (uint x = 0; x < PANEL; x++)
                    to[x] = x < columns - j ? from[x] : 0;
        }
}
#elif B_COPIED
/* The same, 4 x 4 elements at a time. Blocks of p start at multiples of PANEL, so a quad stays in its panel. */
static void copy_b(local REAL *out, ulong depth, ulong columns, global const REAL *b, ulong ldb)
{
    for (ulong j = 0; j < ceil_div(columns, PANEL) * PANEL; j += 4) {
        local REAL *to = out + j / PANEL * PANEL * K_BLOCK + j % PANEL;
        ulong p = 0;
        for (; j + 4 <= columns && p + 4 <= depth; p += 4) {
            const quad w = vload4(0, b + B_AT(p, j)), x = vload4(0, b + B_AT(p, j + 1));
            const quad y = vload4(0, b + B_AT(p, j + 2)), z = vload4(0, b + B_AT(p, j + 3));
            vstore4((quad)(w.s0, x.s0, y.s0, z.s0), 0, to + p * PANEL);
            vstore4((quad)(w.s1, x.s1, y.s1, z.s1), 0, to + (p + 1) * PANEL);
            vstore4((quad)(w.s2, x.s2, y.s2, z.s2), 0, to + (p + 2) * PANEL);
            vstore4((quad)(w.s3, x.s3, y.s3, z.s3), 0, to + (p + 3) * PANEL);
        }
        for (; p < depth; p++)
            for (uint x = 0; x < 4; x++)
                to[p * PANEL + x] = j + x < columns ? b[B_AT(p, j + x)] : 0;
    }
}
#endif

/* C[rows, columns] = alpha * op(A)[rows, depth] * op(B)[depth, columns] + beta * C for one tile. Expanded in
 * line, so that the sizes of a whole tile are constants. Rows that are not there repeat the last one. */
static inline __attribute__((always_inline))
void multiply(uint rows, uint columns, ulong depth, REAL alpha, REAL beta,
              a_pointer a, ulong a_stride, b_pointer b, global REAL *c, ulong c_stride)
{
    a_pointer row[TILE_M];
    vector sum[TILE_M][VECTORS];
#pragma unroll
    for (uint r = 0; r < TILE_M; r++) {
        row[r] = a + min(r, rows - 1) * a_stride;
        FETCH(c + min(r, rows - 1) * c_stride, 3);
#pragma unroll
        for (uint v = 0; v < VECTORS; v++)
            sum[r][v] = 0;
    }

#pragma unroll 4
    for (ulong p = 0; p < depth; p++) {
        vector x[VECTORS];
#pragma unroll
        for (uint v = 0; v < VECTORS; v++)
            x[v] = VLOAD(v, b + p * PANEL);
#pragma unroll
        for (uint r = 0; r < TILE_M; r++) {
            const REAL y = row[r][p * A_STEP];
#pragma unroll
            for (uint v = 0; v < VECTORS; v++)
                sum[r][v] += y * x[v];
        }
    }

#pragma unroll
    for (uint r = 0; r < TILE_M; r++, c += c_stride) {
        if (r >= rows)
            continue;
        if (columns == PANEL) {
#pragma unroll
            for (uint v = 0; v < VECTORS; v++)
                VSTORE(beta == 0 ? alpha * sum[r][v] : alpha * sum[r][v] + beta * VLOAD(v, c), v, c);
        } else {
            REAL line[PANEL];
#pragma unroll
            for (uint v = 0; v < VECTORS; v++)
                VSTORE(alpha * sum[r][v], v, line);
            for (uint j = 0; j < columns; j++)
                c[j] = beta == 0 ? line[j] : line[j] + beta * c[j];
        }
    }
}

/* Functions of their own: in line, PoCL's compiler moves address arithmetic into the loop over p. */
static __attribute__((noinline))
void multiply_whole(ulong depth, REAL alpha, REAL beta,
                    a_pointer a, ulong a_stride, b_pointer b, global REAL *c, ulong c_stride)
{
    multiply(TILE_M, PANEL, depth, alpha, beta, a, A_COPIED ? (A_TRANSPOSED ? 1 : A_PITCH) : a_stride, b, c, c_stride);
}

static __attribute__((noinline))
void multiply_edge(uint rows, uint columns, ulong depth, REAL alpha, REAL beta,
                   a_pointer a, ulong a_stride, b_pointer b, global REAL *c, ulong c_stride)
{
    multiply(rows, columns, depth, alpha, beta, a, a_stride, b, c, c_stride);
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_panel(ulong m, ulong n, ulong k, REAL alpha, REAL beta,
                global const REAL *a, ulong a_offset, ulong lda,
                global const REAL *b, ulong b_offset, ulong ldb,
                global REAL *c, ulong c_offset, ulong ldc)
{
#if A_COPIED
    local REAL a_copy[ROW_BLOCK * (K_BLOCK + 16)];
    const ulong row_block = ROW_BLOCK, a_stride = A_TRANSPOSED ? 1 : A_PITCH;
#else
    const ulong row_block = max(m, (ulong)1), a_stride = lda;
#endif
#if B_COPIED
    local REAL b_copy[PANELS_PER_GROUP * K_BLOCK * PANEL];
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
#if B_COPIED
            copy_b(b_copy, depth, columns, b + b_offset + B_AT(p, column), ldb);
#endif
            for (ulong row = tile_rows * y / y_count * TILE_M; row < last_row; row += row_block) {
                const ulong rows = min(last_row - row, row_block);
#if A_COPIED
                copy_a(a_copy, rows, depth, a + a_offset + A_AT(row, p), lda);
#endif
                for (ulong j = 0; j < columns; j += PANEL) {
#if A_COPIED && PREFETCH
                    fetch_a(j, columns, min(last_row - row - rows, row_block), depth,
                            a + a_offset + A_AT(row + rows, p), lda);
#endif
#if B_COPIED
                    local REAL *tile_b = b_copy + j * K_BLOCK;
#else
                    global const REAL *tile_b = b + b_offset + B_AT(p, column + j);
#endif
                    for (ulong i = 0; i < rows; i += TILE_M) {
#if A_COPIED
                        local REAL *tile_a = a_copy + i / TILE_M * A_TILE;
#else
                        global const REAL *tile_a = a + a_offset + A_AT(row + i, p);
#endif
#if !B_COPIED && PREFETCH
                        fetch_b(i / TILE_M, ceil_div(rows, TILE_M), depth, tile_b + ldb * PANEL);
#endif
                        const uint height = (uint)min(rows - i, (ulong)TILE_M);
                        const uint width = C_PANEL ? PANEL : (uint)min(columns - j, (ulong)PANEL);
                        global REAL *tile_c = c + c_offset + C_AT(row + i, column + j);
                        if (height == TILE_M && width == PANEL)
                            multiply_whole(depth, alpha, block ? 1 : beta, tile_a, a_stride, tile_b, tile_c, c_stride);
                        else
                            multiply_edge(height, width, depth, alpha, block ? 1 : beta, tile_a, a_stride, tile_b,
                                          tile_c, c_stride);
                    }
                }
            }
        }
}
