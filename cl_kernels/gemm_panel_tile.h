/* gemm_panel_tile.h: the register tile that gemm_panel.cl and conv_panel.cl share: TILE_M x PANEL sums.
 *
 * Needs TILE_M, PANEL, K_BLOCK, PREFETCH (see gemm_panel.cl), A_TRANSPOSED, A_COPIED and B_COPIED (whether operands
 * are in local memory), vector.h and gemm_epilogue.h. */
#ifndef GEMM_PANEL_TILE_H
#define GEMM_PANEL_TILE_H

#define VECTORS (PANEL / VECTOR)

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

/* The copy of A: rows of K_BLOCK elements, lengthened to spread over the cache sets; or, A_TRANSPOSED, tiles
 * of `depth` lines of TILE_M elements, so that a shallow block holds more rows. A_STEP is the distance of p and
 * p + 1, A_TILE(depth) that of two tiles. */
#define A_PITCH (K_BLOCK + 16)
#define A_STEP (A_TRANSPOSED ? TILE_M : 1)
#define A_TILE(depth) (A_TRANSPOSED ? TILE_M * (depth) : TILE_M * (ulong)A_PITCH)

/* The cache line at a pointer will be wanted soon: hint 3 in L1, 2 in L2. */
#define LINE ((ulong)(64 / sizeof(REAL)))
#if PREFETCH
#define FETCH(pointer, hint) __builtin_prefetch((const void *)(ulong)(pointer), 0, hint)
#else
#define FETCH(pointer, hint)
#endif

/* A tile of fewer steps ends before its C has come from memory: the one 4 tiles below is fetched in its place. */
#define SHALLOW 64

static inline ulong ceil_div(ulong x, ulong y)
{
    return (x + y - 1) / y;
}

/* What a whole tile becomes: alpha * scale * sum + beta * C; in line, so that a beta of 0 is a constant. */
static inline __attribute__((always_inline))
void store_whole(vector sum[TILE_M][VECTORS], const epilogue *e, REAL beta, ulong j, global REAL *c, ulong c_stride)
{
#pragma unroll
    for (uint r = 0; r < TILE_M; r++)
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) {
            global REAL *out = c + r * c_stride + v * VECTOR;
            store_vector(combine(e, beta, j + v * VECTOR, sum[r][v], out, VECTOR), out);
        }
}

/* The same of [rows, columns] of a tile: small rather than fast, since compilers take their time for what is
 * written out. */
static __attribute__((noinline))
void store_edge(uint rows, uint columns, const REAL *sum, const epilogue *e, REAL beta, ulong j, global REAL *c,
                ulong c_stride)
{
#pragma unroll 1
    for (uint r = 0; r < rows; r++)
#pragma unroll 1
        for (uint v = 0; v < columns; v += VECTOR) {
            const uint count = min(columns - v, (uint)VECTOR);
            global REAL *out = c + r * c_stride + v;
            store_part(combine(e, beta, j + v, VLOAD(sum + r * PANEL + v), out, count), out, count);
        }
}

/* The sums of a tile of C at c: op(A)[rows, depth] op(B)[depth, PANEL]. Expanded in line, so that `rows` of a whole
 * tile is a constant. Rows that are not there repeat the last one. */
static inline __attribute__((always_inline))
void multiply(uint rows, ulong depth, a_pointer a, ulong a_stride, b_pointer b, vector sum[TILE_M][VECTORS],
              global REAL *c, ulong c_stride)
{
    global const REAL *soon = depth < SHALLOW ? c + 4 * TILE_M * c_stride : c;
    a_pointer row[TILE_M];
#pragma unroll
    for (uint r = 0; r < TILE_M; r++) {
        row[r] = a + min(r, rows - 1) * a_stride;
        FETCH(soon + r * c_stride, 3);
#pragma unroll
        for (uint v = 0; v < VECTORS; v++)
            sum[r][v] = 0;
    }

#pragma unroll 4
    for (ulong p = 0; p < depth; p++) {
        vector x[VECTORS];
#pragma unroll
        for (uint v = 0; v < VECTORS; v++)
            x[v] = VLOAD(b + p * PANEL + v * VECTOR);
#pragma unroll
        for (uint r = 0; r < TILE_M; r++) {
            const REAL y = row[r][p * A_STEP];
#pragma unroll
            for (uint v = 0; v < VECTORS; v++)
                sum[r][v] += y * x[v];
        }
    }
}

/* One tile of C, from column j on, as far as combine() goes. Functions of their own: in line, PoCL's compiler moves
 * address arithmetic into the loop over p. */
static __attribute__((noinline))
void multiply_whole(ulong depth, const epilogue *e, REAL beta, ulong j,
                    a_pointer a, ulong a_stride, b_pointer b, global REAL *c, ulong c_stride)
{
    vector sum[TILE_M][VECTORS];
    multiply(TILE_M, depth, a, A_COPIED ? (A_TRANSPOSED ? 1 : A_PITCH) : a_stride, b, sum, c, c_stride);
    if (beta == 0)
        store_whole(sum, e, 0, j, c, c_stride);
    else
        store_whole(sum, e, beta, j, c, c_stride);
}

static __attribute__((noinline))
void multiply_edge(uint rows, uint columns, ulong depth, const epilogue *e, REAL beta, ulong j,
                   a_pointer a, ulong a_stride, b_pointer b, global REAL *c, ulong c_stride)
{
    vector sum[TILE_M][VECTORS];
    REAL line[TILE_M * PANEL];
    multiply(rows, depth, a, a_stride, b, sum, c, c_stride);
#pragma unroll
    for (uint r = 0; r < TILE_M; r++)
#pragma unroll
        for (uint v = 0; v < VECTORS; v++)
            VSTORE(sum[r][v], line + r * PANEL + v * VECTOR);
    store_edge(rows, columns, line, e, beta, j, c, c_stride);
}

#endif
