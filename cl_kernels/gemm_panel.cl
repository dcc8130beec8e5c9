/* gemm_panel: C = alpha op(A) op(B) + beta C on a CPU: one work-item is one core's thread.
 *
 *     C[i,j] = alpha * sum over p < k of op(A)[i,p] * op(B)[p,j]  +  beta * C[i,j]      i < m, j < n
 *
 *     op(A)[i,p] = A_TRANSPOSED ? A[p,i] : A[i,p]          op(B)[p,j] = B_TRANSPOSED ? B[j,p] : B[p,j]
 *
 * TODO header */

#if !defined(REAL) || !defined(A_TRANSPOSED) || !defined(B_TRANSPOSED) || !defined(B_PANEL) || !defined(C_PANEL)
#error "gemm_panel needs -DREAL=float|double -DA_TRANSPOSED=0|1 -DB_TRANSPOSED=0|1 -DB_PANEL=0|PANEL -DC_PANEL=0|PANEL"
#endif
#if !defined(TILE_M) || !defined(PANEL) || !defined(VECTOR)
#error "gemm_panel needs -DTILE_M=rows of the register tile -DPANEL=its columns -DVECTOR=elements of a vector register"
#endif
#if !defined(K_BLOCK) || !defined(ROW_BLOCK) || !defined(PANELS_PER_GROUP)
#error "gemm_panel needs -DK_BLOCK=depth of a block -DROW_BLOCK=rows of A copied at a time or 0 -DPANELS_PER_GROUP=panels"
#endif
#if (B_PANEL != 0 && B_PANEL != PANEL) || (C_PANEL != 0 && C_PANEL != PANEL)
#error "gemm_panel: B_PANEL and C_PANEL must be 0 or PANEL"
#endif
#if PANEL % VECTOR != 0 || PANEL % 4 != 0 || K_BLOCK % PANEL != 0 || ROW_BLOCK % TILE_M != 0
#error "gemm_panel: PANEL must be a multiple of VECTOR and of 4, K_BLOCK of PANEL, ROW_BLOCK of TILE_M"
#endif
#if A_TRANSPOSED && ROW_BLOCK == 0
#error "gemm_panel: A_TRANSPOSED needs a ROW_BLOCK (or transpose A first, see transpose.cl)"
#endif

#define JOIN_TOKENS(x, y) x##y
#define JOIN(x, y) JOIN_TOKENS(x, y)
typedef JOIN(REAL, VECTOR) vector;
typedef JOIN(REAL, 4) quad;
#define VLOAD JOIN(vload, VECTOR)
#define VSTORE JOIN(vstore, VECTOR)
#define VECTORS (PANEL / VECTOR)

/* B is copied unless it is stored as the micro-kernel reads it, A unless ROW_BLOCK is 0. */
#define B_COPIED (B_PANEL == 0 || B_TRANSPOSED)
#if B_COPIED
#define B_SPACE local
#else
#define B_SPACE global
#endif
#if ROW_BLOCK
#define A_SPACE local
#else
#define A_SPACE global
#endif

/* The copy of A: rows of K_BLOCK elements, or (A_TRANSPOSED) tiles of K_BLOCK columns of TILE_M elements. */
#define A_PITCH (K_BLOCK + 16)
#define A_STEP (A_TRANSPOSED ? TILE_M : 1)

static inline ulong ceil_div(ulong x, ulong y)
{
    return (x + y - 1) / y;
}

#if B_COPIED && !B_TRANSPOSED
/* out[panel][p][0 .. PANEL) = B[p][columns of the panel], zeros beyond `columns`. */
static void copy_b(local REAL *out, global const REAL *b, ulong ldb, ulong depth, ulong columns)
{
    for (ulong p = 0; p < depth; p++)
        for (ulong j = 0; j < columns; j += PANEL) {
            global const REAL *from = b + p * ldb + j;
            local REAL *to = out + j * K_BLOCK + p * PANEL;
            if (columns - j >= PANEL)
                for (uint v = 0; v < VECTORS; v++)
                    VSTORE(VLOAD(v, from), v, to);
            else
                for (uint x = 0; x < PANEL; x++)
                    to[x] = x < columns - j ? from[x] : 0;
        }
}
#endif

#if B_TRANSPOSED
/* Where B[j,p] lies. */
static inline ulong b_element(ulong j, ulong p, ulong ldb)
{
#if B_PANEL
    return ((p / PANEL) * ldb + j) * PANEL + p % PANEL;
#else
    return j * ldb + p;
#endif
}

/* out[panel][p][0 .. PANEL) = B[columns of the panel][p], zeros beyond `columns`. Moves 4 x 4 elements at a
 * time; p is a multiple of 4 wherever that happens, so a quad never leaves its panel. */
static void copy_b(local REAL *out, global const REAL *b, ulong ldb, ulong depth, ulong columns)
{
    for (ulong j = 0; j < ceil_div(columns, PANEL) * PANEL; j += 4) {
        local REAL *to = out + (j / PANEL) * PANEL * K_BLOCK + j % PANEL;
        ulong p = 0;
        if (j + 4 <= columns)
            for (; p + 4 <= depth; p += 4) {
                const quad w = vload4(0, b + b_element(j, p, ldb)), x = vload4(0, b + b_element(j + 1, p, ldb));
                const quad y = vload4(0, b + b_element(j + 2, p, ldb)), z = vload4(0, b + b_element(j + 3, p, ldb));
                vstore4((quad)(w.s0, x.s0, y.s0, z.s0), 0, to + p * PANEL);
                vstore4((quad)(w.s1, x.s1, y.s1, z.s1), 0, to + (p + 1) * PANEL);
                vstore4((quad)(w.s2, x.s2, y.s2, z.s2), 0, to + (p + 2) * PANEL);
                vstore4((quad)(w.s3, x.s3, y.s3, z.s3), 0, to + (p + 3) * PANEL);
            }
        for (; p < depth; p++)
            for (uint x = 0; x < 4; x++)
                to[p * PANEL + x] = j + x < columns ? b[b_element(j + x, p, ldb)] : 0;
    }
}
#endif

#if ROW_BLOCK && !A_TRANSPOSED
static void copy_a(local REAL *out, global const REAL *a, ulong lda, ulong depth, ulong rows)
{
    for (ulong i = 0; i < rows; i++)
        for (ulong p = 0; p < depth; p++)
            out[i * A_PITCH + p] = a[i * lda + p];
}
#elif ROW_BLOCK
static void copy_a(local REAL *out, global const REAL *a, ulong lda, ulong depth, ulong rows)
{
    for (ulong p = 0; p < depth; p++) {
        ulong i = 0;
        for (; i + TILE_M <= rows; i += TILE_M)
            for (uint r = 0; r < TILE_M; r++)
                out[i * K_BLOCK + p * TILE_M + r] = a[p * lda + i + r];
        for (uint r = 0; i + r < rows; r++)
            out[i * K_BLOCK + p * TILE_M + r] = a[p * lda + i + r];
    }
}
#endif

/* One tile: C = alpha * a * b + beta * C, a[rows, depth], b[depth, PANEL], c[rows, columns]; rows and columns
 * of a whole tile are constants here, since this is expanded in line. Rows beyond `rows` repeat the last one. */
static inline __attribute__((always_inline))
void multiply(uint rows, uint columns, ulong depth, REAL alpha, REAL beta,
              A_SPACE const REAL *a, ulong a_stride, B_SPACE const REAL *b, global REAL *c, ulong c_stride)
{
    A_SPACE const REAL *row[TILE_M];
    vector sum[TILE_M][VECTORS];
#pragma unroll
    for (uint r = 0; r < TILE_M; r++) {
        row[r] = a + min(r, rows - 1) * a_stride;
#pragma unroll
        for (uint v = 0; v < VECTORS; v++)
            sum[r][v] = 0;
#ifdef XPC
        if (r < rows)
            __builtin_prefetch((const void *)(ulong)(c + r * c_stride), 1, 3);
#endif
    }

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
    for (uint r = 0; r < TILE_M; r++) {
        if (r >= rows)
            continue;
        if (columns == PANEL) {
#pragma unroll
            for (uint v = 0; v < VECTORS; v++) {
                vector value = alpha * sum[r][v];
                if (beta != 0)
                    value += beta * VLOAD(v, c + r * c_stride);
                VSTORE(value, v, c + r * c_stride);
            }
        } else {
            REAL line[PANEL];
#pragma unroll
            for (uint v = 0; v < VECTORS; v++)
                VSTORE(alpha * sum[r][v], v, line);
            for (uint j = 0; j < columns; j++)
                c[r * c_stride + j] = beta == 0 ? line[j] : line[j] + beta * c[r * c_stride + j];
        }
    }
}

static __attribute__((noinline))
void multiply_whole(ulong depth, REAL alpha, REAL beta, A_SPACE const REAL *a, ulong a_stride,
                    B_SPACE const REAL *b, global REAL *c, ulong c_stride)
{
    multiply(TILE_M, PANEL, depth, alpha, beta, a, a_stride, b, c, c_stride);
}

static __attribute__((noinline))
void multiply_edge(uint rows, uint columns, ulong depth, REAL alpha, REAL beta, A_SPACE const REAL *a, ulong a_stride,
                   B_SPACE const REAL *b, global REAL *c, ulong c_stride)
{
    multiply(rows, columns, depth, alpha, beta, a, a_stride, b, c, c_stride);
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_panel(ulong m, ulong n, ulong k, REAL alpha, REAL beta,
                global const REAL *a, ulong a_offset, ulong lda,
                global const REAL *b, ulong b_offset, ulong ldb,
                global REAL *c, ulong c_offset, ulong ldc)
{
#if ROW_BLOCK
    local REAL a_copy[ROW_BLOCK * (A_TRANSPOSED ? K_BLOCK : A_PITCH)];
#endif
#if B_COPIED
    local REAL b_copy[PANELS_PER_GROUP * K_BLOCK * PANEL];
#endif
    const ulong panels = ceil_div(n, PANEL), tiles = ceil_div(m, TILE_M), chunks = ceil_div(alpha == 0 ? 0 : k, PANEL);
    const ulong depth_blocks = max(ceil_div(chunks * PANEL, K_BLOCK), (ulong)1);
    const ulong last_panel = panels * (get_group_id(0) + 1) / get_num_groups(0);
    const ulong first_row = tiles * get_group_id(1) / get_num_groups(1) * TILE_M;
    const ulong last_row = min(tiles * (get_group_id(1) + 1) / get_num_groups(1) * TILE_M, m);
    if (first_row >= last_row)
        return;

    for (ulong panel = panels * get_group_id(0) / get_num_groups(0); panel < last_panel; panel += PANELS_PER_GROUP)
        for (ulong block = 0; block < depth_blocks; block++) {
            const ulong count = min(last_panel - panel, (ulong)PANELS_PER_GROUP);
            const ulong columns = min(count * PANEL, n - panel * PANEL);
            const ulong p = chunks * block / depth_blocks * PANEL;
            const ulong depth = min(chunks * (block + 1) / depth_blocks * PANEL, alpha == 0 ? 0 : k) - p;
            const REAL block_beta = block == 0 ? beta : 1;
#if B_TRANSPOSED && B_PANEL
            copy_b(b_copy, b + b_offset + p * ldb + panel * PANEL * PANEL, ldb, depth, columns);
#elif B_TRANSPOSED
            copy_b(b_copy, b + b_offset + panel * PANEL * ldb + p, ldb, depth, columns);
#elif B_COPIED
            copy_b(b_copy, b + b_offset + p * ldb + panel * PANEL, ldb, depth, columns);
#endif
#if ROW_BLOCK
            const ulong rows_at_once = ROW_BLOCK;
#else
            const ulong rows_at_once = last_row - first_row;
#endif
            for (ulong row = first_row; row < last_row; row += rows_at_once) {
                const ulong rows = min(last_row - row, rows_at_once);
#if ROW_BLOCK && A_TRANSPOSED
                copy_a(a_copy, a + a_offset + p * lda + row, lda, depth, rows);
#elif ROW_BLOCK
                copy_a(a_copy, a + a_offset + row * lda + p, lda, depth, rows);
#endif
                for (ulong q = 0; q < count; q++) {
#if PREFETCH && ROW_BLOCK
                    const ulong next_rows = min(last_row - row - rows, (ulong)ROW_BLOCK);
#if A_TRANSPOSED
                    for (ulong i = depth * q / count; i < depth * (q + 1) / count; i++)
                        for (ulong j = 0; j < next_rows; j += 64 / sizeof(REAL))
                            __builtin_prefetch((const void *)(ulong)(a + a_offset + (p + i) * lda + row + rows + j), 0, 2);
#else
                    for (ulong i = next_rows * q / count; i < next_rows * (q + 1) / count; i++)
                        for (ulong j = 0; j < depth; j += 64 / sizeof(REAL))
                            __builtin_prefetch((const void *)(ulong)(a + a_offset + (row + rows + i) * lda + p + j), 0, 2);
#endif
#endif
#if B_COPIED
                    local const REAL *b_slice = b_copy + q * K_BLOCK * PANEL;
#else
                    global const REAL *b_slice = b + b_offset + ((panel + q) * ldb + p) * PANEL;
#endif
                    for (ulong i = 0; i < rows; i += TILE_M) {
                        const uint tile_rows = (uint)min(rows - i, (ulong)TILE_M);
#if ROW_BLOCK && A_TRANSPOSED
                        local const REAL *tile_a = a_copy + i * K_BLOCK;
                        const ulong a_stride = 1;
#elif ROW_BLOCK
                        local const REAL *tile_a = a_copy + i * A_PITCH;
                        const ulong a_stride = A_PITCH;
#else
                        global const REAL *tile_a = a + a_offset + (row + i) * lda + p;
                        const ulong a_stride = lda;
#endif
#if C_PANEL
                        const uint tile_columns = PANEL;
                        const ulong c_stride = PANEL;
                        global REAL *tile_c = c + c_offset + ((panel + q) * ldc + row + i) * PANEL;
#else
                        const uint tile_columns = (uint)min(columns - q * PANEL, (ulong)PANEL);
                        const ulong c_stride = ldc;
                        global REAL *tile_c = c + c_offset + (row + i) * ldc + (panel + q) * PANEL;
#endif
                        if (tile_rows == TILE_M && tile_columns == PANEL)
                            multiply_whole(depth, alpha, block_beta, tile_a, a_stride, b_slice, tile_c, c_stride);
                        else
                            multiply_edge(tile_rows, tile_columns, depth, alpha, block_beta, tile_a, a_stride, b_slice,
                                          tile_c, c_stride);
                    }
                }
            }
        }
}
