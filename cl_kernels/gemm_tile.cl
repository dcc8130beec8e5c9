/* gemm_tile: a product on a GPU, by tiles in local memory and in registers.
 *
 *     S[i,j] = sum over p < k of op(A)[i,p] * op(B)[p,j]      i < m, j < n;  C from S: gemm_epilogue.h
 *
 *     op(A)[i,p] = A_TRANSPOSED ? A[p,i] : A[i,p]          op(B)[p,j] = B_TRANSPOSED ? B[j,p] : B[p,j]
 *
 * Tile: a work-group has TILE_M x TILE_N of C, a work-item ITEM_M x ITEM_N of that, in registers. Step by step the
 * group brings TILE_K columns of op(A) and rows of op(B) to local memory, widened to REAL and with zeros beyond the
 * edges, and every work-item multiplies its rows by its columns:
 *
 *                                op(B)  TILE_N                   columns of work-item x, VECTOR at a time:
 *                               +------+------+--
 *                        TILE_K | step |      |                  tile  0 1 2 3 ... X-1 0 1 2 3 ... X-1
 *             op(A)             +------+------+--                      ^               ^
 *            +--------+------   +------+------+--                      X = TILE_N / ITEM_N work-items side by side:
 *     TILE_M |  step  |   >     | tile |      |   C              neighbours read and write neighbouring vectors;
 *            +--------+------   +------+------+--                rows are dealt out likewise
 *              TILE_K
 *
 * While a step is multiplied, the next one is on its way from global memory to registers ("staged"). With BUFFERS = 2
 * it is stored to the other half of local memory, with one barrier a step instead of two.
 *
 * Local memory holds row p of both tiles at p * TILE + p / VECTOR * SKEW. An operand that is stored along p is turned
 * on its way there: neighbouring work-items then write VECTOR rows apart, and the skew sends them to different banks
 * (32 of 4 bytes). Each 32 work-items with consecutive ids are 8 x 4 neighbours, so that a warp or half a wave reads
 * 8 vectors of B, which are all banks once, and 4 of A, broadcast.
 *
 * Cut k: part z of the third dimension sums its share of p and has an m x ldc matrix of its own, at c + z * m * ldc;
 * gemm_join adds them. Without parts, z = 0.
 *
 * Memory: A, B, C are row-major, element (r,c) at offset + r*ld + c; offsets and leading dimensions count elements.
 *
 * Constants (-D; all facts about the machine are here, none in the code):
 *     REAL, A_TYPE, B_TYPE, and the epilogue: see vector.h, gemm_types.h, gemm_epilogue.h
 *     A_TRANSPOSED, B_TRANSPOSED           0 or 1
 *     B_PANEL, C_PANEL                     0
 *     TILE_M, TILE_N, TILE_K, ITEM_M, ITEM_N   as above; the items divide the tiles
 *     VECTOR                               elements of a load and store; divides all of the five
 *     BUFFERS                              1 or 2
 *     SUB_GROUP                            work-items of a hardware thread, where the compiler has Intel's attribute
 *                                          for it; 0 = as the compiler likes
 *     A_ALIGNED, B_ALIGNED, C_ALIGNED      1 if VECTOR divides the matrix's offset and leading dimension
 *
 * Launch: local size (TILE_M / ITEM_M * TILE_N / ITEM_N, 1, 1);
 *         groups (ceil(m / TILE_M) * ceil(n / TILE_N), 1, parts), any parts >= 1.
 * Limits: m, n, k >= 1. beta = 0: C is not read. alpha = 0: A and B are not read. C overlaps neither A nor B. Sums
 * are in REAL, in the order of p; parts of TILE_K * (some whole number). OpenCL 1.2. No fma(): software on some
 * devices; a * b + c contracts. */

#if !defined(A_TRANSPOSED) || !defined(B_TRANSPOSED) || !defined(B_PANEL) || !defined(C_PANEL)
#error "gemm_tile needs -DA_TRANSPOSED, -DB_TRANSPOSED, -DB_PANEL and -DC_PANEL"
#endif
#if !defined(TILE_M) || !defined(TILE_N) || !defined(TILE_K) || !defined(ITEM_M) || !defined(ITEM_N)
#error "gemm_tile needs -DTILE_M, -DTILE_N, -DTILE_K, -DITEM_M and -DITEM_N"
#endif
#if !defined(BUFFERS) || !defined(SUB_GROUP) || !defined(A_ALIGNED) || !defined(B_ALIGNED) || !defined(C_ALIGNED)
#error "gemm_tile needs -DBUFFERS, -DSUB_GROUP, -DA_ALIGNED, -DB_ALIGNED and -DC_ALIGNED"
#endif
#if B_PANEL != 0 || C_PANEL != 0
#error "gemm_tile: B and C are row-major"
#endif
#if TILE_M % ITEM_M || TILE_N % ITEM_N || TILE_K % VECTOR || ITEM_M % VECTOR || ITEM_N % VECTOR
#error "gemm_tile: ITEM_M must divide TILE_M, ITEM_N TILE_N, and VECTOR must divide them all and TILE_K"
#endif
#if BUFFERS != 1 && BUFFERS != 2
#error "gemm_tile: BUFFERS is 1 or 2"
#endif

#include "vector.h"
#include "activation.h"
#include "gemm_types.h"
#include "gemm_epilogue.h"

#define THREADS_M (TILE_M / ITEM_M)
#define THREADS_N (TILE_N / ITEM_N)
#define THREADS (THREADS_M * THREADS_N)
#define COLUMNS (ITEM_N / VECTOR) /* vectors of a work-item's row */

/* Neighbours with consecutive ids. */
#if THREADS_M % 4 == 0 && THREADS_N % 8 == 0
#define BLOCK_M 4
#define BLOCK_N 8
#else
#define BLOCK_M 1
#define BLOCK_N THREADS_N
#endif

/* Row tiles that are worked on together, so that what they read of B is still in the cache. */
#define BAND 8

/* Work-items that write VECTOR rows apart are TILE_K / VECTOR; as many of them as there are banks hit different ones. */
#define BANKS (WIDE ? 16 : 32)
#define SPREAD (BANKS * VECTOR / TILE_K / VECTOR * VECTOR)
#define SKEW (SPREAD > VECTOR ? SPREAD : VECTOR)
#define A_SKEW (A_TRANSPOSED ? 0 : SKEW)
#define B_SKEW (B_TRANSPOSED ? SKEW : 0)
/* The elements of VECTOR rows of local memory, and of all. */
#define A_ROWS (VECTOR * TILE_M + A_SKEW)
#define B_ROWS (VECTOR * TILE_N + B_SKEW)
#define A_SIZE (TILE_K / VECTOR * A_ROWS)
#define B_SIZE (TILE_K / VECTOR * B_ROWS)

/* Elements as bits, so that they can be staged in registers before they are widened; then as REAL. */
#define RAW_F32 float
#define RAW_F64 double
#define RAW_F16 ushort
#define RAW_BF16 ushort
#define RAW_I8 char
#define WIDENED_F32(raw) (raw)
#define WIDENED_F64(raw) (raw)
#define WIDENED_BF16(raw) VECTOR_OF(as_float)(VECTOR_OF(convert_uint)(raw) << 16)
#define WIDENED_I8(raw) VECTOR_OF(convert_float)(raw)
#if VECTOR == 1
#define WIDENED_F16(raw) vload_half(0, (const private half *)&(raw))
#define RAW_LOAD(pointer) (*(pointer))
#else
#define WIDENED_F16(raw) JOIN(vload_half, VECTOR)(0, (const private half *)&(raw))
#define RAW_LOAD(pointer) JOIN(vload, VECTOR)(0, pointer)
#endif

/* a_vector, a_load() and a_store(); then those of B. */
#define OPERAND(name) JOIN(a_, name)
#define OPERAND_RAW JOIN(RAW_, A_TYPE)
#define OPERAND_WIDENED JOIN(WIDENED_, A_TYPE)
#define OPERAND_ALIGNED A_ALIGNED
#define OPERAND_TURNED (!A_TRANSPOSED)
#define OPERAND_TILE TILE_M
#define OPERAND_ROWS A_ROWS
#include "gemm_tile_operand.h"

#define OPERAND(name) JOIN(b_, name)
#define OPERAND_RAW JOIN(RAW_, B_TYPE)
#define OPERAND_WIDENED JOIN(WIDENED_, B_TYPE)
#define OPERAND_ALIGNED B_ALIGNED
#define OPERAND_TURNED B_TRANSPOSED
#define OPERAND_TILE TILE_N
#define OPERAND_ROWS B_ROWS
#include "gemm_tile_operand.h"

static inline uint ceil_div(ulong x, uint y)
{
    return (uint)((x + y - 1) / y);
}

/* How much of a tile, from `begin` on, lies before `end`. */
static inline uint part_of(uint tile, ulong begin, ulong end)
{
    return (uint)min(end - begin, (ulong)tile);
}

/* sum += one step; a and b are where this work-item's first row and column lie in the first row of local memory. */
static inline void multiply(vector sum[ITEM_M][COLUMNS], local const REAL *a, local const REAL *b)
{
#pragma unroll 2
    for (uint step = 0; step < TILE_K / VECTOR; step++, a += A_ROWS, b += B_ROWS)
#pragma unroll
        for (uint p = 0; p < VECTOR; p++) {
            REAL x[ITEM_M];
            vector y[COLUMNS];
#pragma unroll
            for (uint r = 0; r < ITEM_M; r += VECTOR)
                VSTORE(*(local const vector *)(a + p * TILE_M + r * THREADS_M), x + r);
#pragma unroll
            for (uint v = 0; v < COLUMNS; v++)
                y[v] = *(local const vector *)(b + p * TILE_N + v * VECTOR * THREADS_N);
#pragma unroll
            for (uint r = 0; r < ITEM_M; r++)
#pragma unroll
                for (uint v = 0; v < COLUMNS; v++)
                    sum[r][v] += x[r] * y[v];
        }
}

static inline void put(vector value, global REAL *out, uint count)
{
    if (count < VECTOR)
        store_part(value, out, count);
    else if (C_ALIGNED)
        *(global vector *)out = value;
    else
        VSTORE(value, out);
}

#if SUB_GROUP
__attribute__((intel_reqd_sub_group_size(SUB_GROUP)))
#endif
kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void gemm_tile(ulong m, ulong n, ulong k, REAL alpha, REAL beta,
               global const JOIN(RAW_, A_TYPE) *a, ulong a_offset, ulong lda,
               global const JOIN(RAW_, B_TYPE) *b, ulong b_offset, ulong ldb,
               global REAL *c, ulong c_offset, ulong ldc EPILOGUE_PARAMETERS)
{
    local vector a_tile[BUFFERS * A_SIZE / VECTOR], b_tile[BUFFERS * B_SIZE / VECTOR];
    const epilogue e = EPILOGUE;

    /* This group's tile, (i, j) on, band by band; and its part of p. */
    const uint group = get_group_id(0), tiles_m = ceil_div(m, TILE_M), tiles_n = ceil_div(n, TILE_N);
    const uint band = group / (BAND * tiles_n), within = group % (BAND * tiles_n);
    const uint height = min(tiles_m - band * BAND, (uint)BAND);
    const ulong i = (ulong)(band * BAND + within % height) * TILE_M, j = (ulong)(within / height) * TILE_N;
    const uint part = get_group_id(2), parts = get_num_groups(2);
    const ulong steps = alpha == 0 ? 0 : (k + TILE_K - 1) / TILE_K;
    const ulong end = min(steps * (part + 1) / parts * TILE_K, k);
    ulong p = steps * part / parts * TILE_K;

    /* This work-item's place in the tile, in vectors. */
    const uint item = get_local_id(0), block = item / (BLOCK_M * BLOCK_N), in_block = item % (BLOCK_M * BLOCK_N);
    const uint x = block % (THREADS_N / BLOCK_N) * BLOCK_N + in_block % BLOCK_N;
    const uint y = block / (THREADS_N / BLOCK_N) * BLOCK_M + in_block / BLOCK_N;

    vector sum[ITEM_M][COLUMNS];
#pragma unroll
    for (uint r = 0; r < ITEM_M; r++)
#pragma unroll
        for (uint v = 0; v < COLUMNS; v++)
            sum[r][v] = 0;

    const uint rows = part_of(TILE_M, i, m), columns = part_of(TILE_N, j, n);
    const ulong a_step = A_TRANSPOSED ? lda : 1, b_step = B_TRANSPOSED ? 1 : ldb;
    a += a_offset + (A_TRANSPOSED ? i : i * lda) + p * a_step;
    b += b_offset + (B_TRANSPOSED ? j * ldb : j) + p * b_step;
    a_vector a_staged[a_loads];
    b_vector b_staged[b_loads];
    if (p < end) {
        a_load(a_staged, a, lda, rows, part_of(TILE_K, p, end), item);
        b_load(b_staged, b, ldb, columns, part_of(TILE_K, p, end), item);
    }
    for (uint buffer = 0; p < end; buffer = BUFFERS - 1 - buffer) {
        local REAL *a_now = (local REAL *)a_tile + buffer * A_SIZE, *b_now = (local REAL *)b_tile + buffer * B_SIZE;
        a_store(a_now, a_staged, item);
        b_store(b_now, b_staged, item);
        barrier(CLK_LOCAL_MEM_FENCE);
        p += TILE_K;
        a += TILE_K * a_step;
        b += TILE_K * b_step;
        if (p < end) {
            a_load(a_staged, a, lda, rows, part_of(TILE_K, p, end), item);
            b_load(b_staged, b, ldb, columns, part_of(TILE_K, p, end), item);
        }
        multiply(sum, a_now + y * VECTOR, b_now + x * VECTOR);
        if (BUFFERS == 1)
            barrier(CLK_LOCAL_MEM_FENCE);
    }

    /* Vector by vector, the next one moving into the first one's place: registers have no index at run time, and a
     * copy of the epilogue for each of them would be long. */
    /* Not added to c itself: after a barrier, Intel's CPU runtime 2026.2 then takes c for NULL. */
    global REAL *part_c = c + c_offset + part * m * ldc;
#pragma unroll 1
    for (uint r = 0; r < ITEM_M; r++) {
        const uint row = (r / VECTOR * THREADS_M + y) * VECTOR + r % VECTOR;
#pragma unroll 1
        for (uint v = 0; v < COLUMNS; v++) {
            const uint column = (v * THREADS_N + x) * VECTOR;
            if (row < rows && column < columns) {
                const uint count = min(columns - column, (uint)VECTOR);
                global REAL *out = part_c + (i + row) * ldc + j + column;
                const vector value = combine(&e, beta, j + column, sum[0][0], out, count);
                put(finish(&e, i + row, j + column, value, count), out, count);
            }
#pragma unroll
            for (uint next = 1; next < COLUMNS; next++)
                sum[0][next - 1] = sum[0][next];
        }
#pragma unroll
        for (uint next = 1; next < ITEM_M; next++)
#pragma unroll
            for (uint v = 0; v < COLUMNS; v++)
                sum[next - 1][v] = sum[next][v];
    }
}
