/* gemm_mma: products of 16-bit matrices by a GPU's matrix units.
 *
 *     S[i,j] = sum over p < k of op(A)[i,p] * op(B)[p,j]      i < m, j < n;  C from S: gemm_epilogue.h
 *
 *     op(A)[i,p] = A_TRANSPOSED ? A[p,i] : A[i,p]          op(B)[p,j] = B_TRANSPOSED ? B[j,p] : B[p,j]
 *
 * A and B are both F16 or both BF16; sums, C and the epilogue are f32.
 *
 * Tile: a work-group computes TILE_M x TILE_N of C; each of its warps (WARP work-items that follow each other) computes
 * WARP_M x WARP_N of it, as MMA_M x MMA_N fragments in registers:
 *
 *              TILE_N                      k is passed in steps of TILE_K. Each step's tiles of A and B lie in one of
 *      +--------+--------+                 STAGES slots of local memory, which are filled STAGES - 1 steps ahead:
 *      | warp 0 | warp 1 |                 by asynchronous copies where the device has them (ASYNC), otherwise
 *      +--------+--------+ TILE_M          through registers, which are loaded before a step is computed and stored
 *      | warp 2 | warp 3 |                 behind it. One barrier a step.
 *      +--------+--------+
 *
 * The instruction, its fragments, and the order of elements in local memory are in mma_*.h, one file for each
 * -DINSTRUCTION. -DEMULATE=1 takes the body of the instruction that any device can run. Such a header gives
 *
 *     WARP, MMA_M, MMA_N (and 16 of k)         AS_STORED  local memory keeps the order of global memory (tile_at), or
 *     a_fragment, b_fragment, c_fragment                  else a_at(row, k), b_at(column, k) say where an element is;
 *     load_a, load_b, multiply                            A_RUN, B_RUN = 8, 2: elements that follow in k and memory
 *     c_sum, c_row, c_column of C_COUNT sums   ASYNC      copy_start, copy_commit, copy_wait
 *
 * Work-groups that run together share rows of A and columns of B: tiles of C are taken in bands of BAND rows of tiles.
 *
 * At the end the sums go through local memory, MMA_M rows of each warp at a time, so that rows of C are read and
 * written side by side.
 *
 * Memory: A, B and C are row-major, element (r,c) at offset + r*ld + c; offsets and leading dimensions count elements.
 * ALIGNED = 1: offsets and leading dimensions of A and B are multiples of 8. Edges: what lies outside of A and B is not
 * read, and is 0 in local memory; what lies outside of C is not written.
 * Launch: 3 dimensions; (tiles of C, 1, parts of k) groups of WARP * TILE_M/WARP_M * TILE_N/WARP_N work-items. With
 * more parts than one, part p stores its sums at element p * m * ldc of C, and gemm_join adds them.
 * Limits: m, n, k > 0; TILE_M and TILE_N powers of two, TILE_K = 16 * 2^i, at most 2^32 tiles. beta = 0: C is not read.
 * alpha = 0: A and B are not read. */

#if !defined(INSTRUCTION) || !defined(EMULATE) || !defined(ALIGNED) || !defined(STAGES)
#error "gemm_mma needs -DINSTRUCTION=NVIDIA_MMA|AMD_MFMA|... -DEMULATE=0|1 -DALIGNED=0|1 -DSTAGES"
#endif
#if !defined(TILE_M) || !defined(TILE_N) || !defined(TILE_K) || !defined(WARP_M) || !defined(WARP_N)
#error "gemm_mma needs -DTILE_M -DTILE_N -DTILE_K -DWARP_M -DWARP_N"
#endif
#if !defined(A_TRANSPOSED) || !defined(B_TRANSPOSED) || B_PANEL || C_PANEL
#error "gemm_mma needs -DA_TRANSPOSED=0|1 -DB_TRANSPOSED=0|1 and row-major matrices"
#endif

#define VECTOR 1
#include "vector.h"
#include "activation.h"
#include "gemm_types.h"
#include "gemm_epilogue.h"

#define BFLOAT_F16 0
#define BFLOAT_BF16 1
#define BFLOAT JOIN(BFLOAT_, A_TYPE)

#define NVIDIA_MMA 1
#define AMD_MFMA 2
#define AMD_WMMA 3
#define AMD_WMMA12 4
#define INTEL_DPAS8 5
#define INTEL_DPAS16 6

#define WARPS_M (TILE_M / WARP_M)
#define WARPS_N (TILE_N / WARP_N)
#define GROUP (WARP * WARPS_M * WARPS_N)
#define LOOKAHEAD (STAGES - 1)
#define BAND 8

/* REPEAT(i, count, statement): for i = 0 .. count - 1, at most 16. Written out, because arrays of registers need
 * indices that are constant from the start: Intel's compiler unrolls loops too late to see it. Emulated instructions
 * have barriers, and copies of them take compilers for CPUs minutes. INLINE: the arrays are passed by address, and stay
 * registers only if the compiler sees both ends. */
#if EMULATE
#define INLINE static inline
#define REPEAT(i, count, statement) for (uint i = 0; i < (count); i++) statement
#else
#define INLINE static inline __attribute__((always_inline))
#define ONCE(i, value, count, statement) if (value < (count)) { enum { i = value }; statement; }
#define REPEAT(i, count, statement) \
    ONCE(i, 0, count, statement) ONCE(i, 1, count, statement) ONCE(i, 2, count, statement) \
    ONCE(i, 3, count, statement) ONCE(i, 4, count, statement) ONCE(i, 5, count, statement) \
    ONCE(i, 6, count, statement) ONCE(i, 7, count, statement) ONCE(i, 8, count, statement) \
    ONCE(i, 9, count, statement) ONCE(i, 10, count, statement) ONCE(i, 11, count, statement) \
    ONCE(i, 12, count, statement) ONCE(i, 13, count, statement) ONCE(i, 14, count, statement) \
    ONCE(i, 15, count, statement)
#endif
#define REPEAT_MOST 16

typedef struct warp {
    uint lane;
    local uint *scratch; /* of an emulated instruction */
} warp;

/* 8 elements, of which the first `count` are there; it may be below 0 and above 8. */
INLINE uint4 read_unit(global const ushort *from, int count)
{
    ushort8 unit = 0;
    if (count >= 8)
        return ALIGNED ? *(global const uint4 *)from : as_uint4(vload8(0, from));
    if (count > 0)
        unit.s0 = from[0];
    if (count > 1)
        unit.s1 = from[1];
    if (count > 2)
        unit.s2 = from[2];
    if (count > 3)
        unit.s3 = from[3];
    if (count > 4)
        unit.s4 = from[4];
    if (count > 5)
        unit.s5 = from[5];
    if (count > 6)
        unit.s6 = from[6];
    return as_uint4(unit);
}

#if INSTRUCTION == NVIDIA_MMA
#include "mma_nvidia.h"
#elif INSTRUCTION == AMD_MFMA
#include "mma_amd_mfma.h"
#elif INSTRUCTION == AMD_WMMA
#include "mma_amd_wmma.h"
#elif INSTRUCTION == AMD_WMMA12
#include "mma_amd_wmma12.h"
#elif INSTRUCTION == INTEL_DPAS8 || INSTRUCTION == INTEL_DPAS16
#include "mma_intel.h"
#else
#error "INSTRUCTION is none of NVIDIA_MMA, AMD_MFMA, AMD_WMMA, AMD_WMMA12, INTEL_DPAS8, INTEL_DPAS16"
#endif

#ifndef KERNEL_ATTRIBUTE
#define KERNEL_ATTRIBUTE
#define LANE (get_local_id(0) % WARP)
#define WARP_INDEX (get_local_id(0) / WARP)
#endif

#define K_STEP 16
#define FRAGMENTS_M (WARP_M / MMA_M)
#define FRAGMENTS_N (WARP_N / MMA_N)
#if TILE_M % WARP_M || TILE_N % WARP_N || WARP_M % MMA_M || WARP_N % MMA_N || TILE_K % K_STEP || STAGES < 2
#error "a tile must be a multiple of WARP_M x WARP_N, these of a fragment, TILE_K of 16, and STAGES at least 2"
#endif
#if TILE_M & (TILE_M - 1) || TILE_N & (TILE_N - 1) || TILE_K & (TILE_K - 1)
#error "TILE_M, TILE_N and TILE_K must be powers of two"
#endif
#if FRAGMENTS_M > REPEAT_MOST || FRAGMENTS_N > REPEAT_MOST
#error "a warp has at most 16 fragments in a row and in a column"
#endif

/* An operand's tile in global memory: so many lines of so many units of 8 elements. Where local memory has k along its
 * lines and global memory has not, two lines are taken TOGETHER, whose elements make pairs (k, k + 1). */
#define A_LINES (A_TRANSPOSED ? TILE_K : TILE_M)
#define A_UNITS ((A_TRANSPOSED ? TILE_M : TILE_K) / 8)
#define A_TOGETHER (A_TRANSPOSED && !AS_STORED ? 2 : 1)
#define B_LINES (B_TRANSPOSED ? TILE_N : TILE_K)
#define B_UNITS ((B_TRANSPOSED ? TILE_K : TILE_N) / 8)
#define B_TOGETHER (!B_TRANSPOSED && !AS_STORED ? 2 : 1)
#define PARTS(lines, units, together) (((lines) / (together) * (units) + GROUP - 1) / GROUP)
#define HELD(lines, units, together) (PARTS(lines, units, together) * (together))
/* Whether part q is one; known to the compiler where the parts are whole groups. */
#define IS_PART(q, lines, units, together) \
    ((lines) / (together) * (units) % GROUP == 0 || (q) < (lines) / (together) * (units))

#define TILE_ELEMENTS ((TILE_M + TILE_N) * TILE_K) /* of one slot: A, then B */
#define SLAB_PITCH (TILE_N + 8)
#define SLAB_ROWS (WARPS_M * MMA_M)
#define TILES_UNITS (STAGES * TILE_ELEMENTS / 8)
#define SLAB_UNITS (SLAB_ROWS * SLAB_PITCH / 4)
#define LOCAL_UNITS (TILES_UNITS > SLAB_UNITS ? TILES_UNITS : SLAB_UNITS)

/* An operand as the work-group walks along it. */
typedef struct operand {
    global const ushort *from; /* the next step's tile */
    ulong ld;
    uint rows; /* of op(A), or columns of op(B), from the tile's first on */
} operand;

/* What is under way to local memory. */
typedef struct staging {
#if ASYNC
    copies pending;
#else
    uint4 a[HELD(A_LINES, A_UNITS, A_TOGETHER)], b[HELD(B_LINES, B_UNITS, B_TOGETHER)];
#endif
} staging;

/* Of an operand's tile in global memory there are so many lines, and elements of each; perhaps more than it takes. */
typedef struct extent {
    int lines, elements;
} extent;

INLINE int count_there(extent there, uint line, uint unit)
{
    return (int)line < there.lines ? there.elements - (int)unit * 8 : 0;
}

#if ASYNC
INLINE void copy_part(copies *pending, local ushort *tile, const operand *o, extent there, uint part,
                      uint lines, uint units)
{
    const uint q = part * GROUP + get_local_id(0), line = q / units, unit = q % units;
    const int count = count_there(there, line, unit);
    /* Where nothing is read, the address still names memory of the matrix. */
    global const ushort *from = count > 0 ? o->from + line * o->ld + unit * 8 : o->from;
    if (IS_PART(q, lines, units, 1))
        copy_start(pending, tile + tile_at(line, unit, units), from, count);
}
#else
INLINE uint4 fetch_part(const operand *o, extent there, uint part, uint t, uint lines, uint units,
                        uint together)
{
    const uint q = part * GROUP + get_local_id(0), line = q / units * together + t, unit = q % units;
    const int count = IS_PART(q, lines, units, together) ? count_there(there, line, unit) : 0;
    return read_unit(o->from + line * o->ld + unit * 8, count);
}

#if AS_STORED
INLINE void place_part(local ushort *tile, const uint4 *held, uint line, uint unit, uint units, bool of_a)
{
    *(local uint4 *)(tile + tile_at(line, unit, units)) = *held;
}
#else
INLINE local uint *pair_at(local ushort *tile, uint row, uint k, bool of_a)
{
    return (local uint *)(tile + (of_a ? a_at(row, k) : b_at(row, k)));
}

/* Of 8 rows the elements k and k + 1, which come from two lines. */
INLINE void store_pairs(local ushort *tile, ushort8 even, ushort8 odd, uint row, uint k, bool of_a)
{
    *pair_at(tile, row + 0, k, of_a) = even.s0 | (uint)odd.s0 << 16;
    *pair_at(tile, row + 1, k, of_a) = even.s1 | (uint)odd.s1 << 16;
    *pair_at(tile, row + 2, k, of_a) = even.s2 | (uint)odd.s2 << 16;
    *pair_at(tile, row + 3, k, of_a) = even.s3 | (uint)odd.s3 << 16;
    *pair_at(tile, row + 4, k, of_a) = even.s4 | (uint)odd.s4 << 16;
    *pair_at(tile, row + 5, k, of_a) = even.s5 | (uint)odd.s5 << 16;
    *pair_at(tile, row + 6, k, of_a) = even.s6 | (uint)odd.s6 << 16;
    *pair_at(tile, row + 7, k, of_a) = even.s7 | (uint)odd.s7 << 16;
}

INLINE void place_part(local ushort *tile, const uint4 *held, uint line, uint unit, uint units, bool of_a)
{
    if (of_a ? A_TOGETHER == 2 : B_TOGETHER == 2) {
        store_pairs(tile, as_ushort8(held[0]), as_ushort8(held[1]), unit * 8, line, of_a);
    } else if ((of_a ? A_RUN : B_RUN) == 8) {
        *(local uint4 *)pair_at(tile, line, unit * 8, of_a) = *held;
    } else {
        *pair_at(tile, line, unit * 8, of_a) = held->s0;
        *pair_at(tile, line, unit * 8 + 2, of_a) = held->s1;
        *pair_at(tile, line, unit * 8 + 4, of_a) = held->s2;
        *pair_at(tile, line, unit * 8 + 6, of_a) = held->s3;
    }
}
#endif

INLINE void store_part_of(local ushort *tile, const uint4 *held, uint part, uint lines, uint units,
                          uint together, bool of_a)
{
    const uint q = part * GROUP + get_local_id(0);
    if (IS_PART(q, lines, units, together))
        place_part(tile, held, q / units * together, q % units, units, of_a);
}
#endif

#if ASYNC
#define STEP_COMMIT(s) copy_commit(&(s).pending)
#define STEP_WAIT(s) copy_wait(&(s).pending)
#else
#define STEP_COMMIT(s)
#define STEP_WAIT(s)
#endif

#if PARTS(A_LINES, A_UNITS, A_TOGETHER) * A_TOGETHER > REPEAT_MOST || \
    PARTS(B_LINES, B_UNITS, B_TOGETHER) * B_TOGETHER > REPEAT_MOST
#error "a work-item moves at most 16 units of 8 elements in a step: take more warps or a smaller TILE_K"
#endif
#define A_PARTS PARTS(A_LINES, A_UNITS, A_TOGETHER)
#define B_PARTS PARTS(B_LINES, B_UNITS, B_TOGETHER)

/* Starts the way of a step's tiles into a slot; `depth` elements of k are there, perhaps more than a step takes. */
INLINE void step_begin(staging *s, local ushort *slot, operand *a, operand *b, int depth)
{
    const extent of_a = {A_TRANSPOSED ? depth : (int)a->rows, A_TRANSPOSED ? (int)a->rows : depth};
    const extent of_b = {B_TRANSPOSED ? (int)b->rows : depth, B_TRANSPOSED ? depth : (int)b->rows};
#if ASYNC
    REPEAT(part, A_PARTS, copy_part(&s->pending, slot, a, of_a, part, A_LINES, A_UNITS));
    REPEAT(part, B_PARTS, copy_part(&s->pending, slot + TILE_M * TILE_K, b, of_b, part, B_LINES, B_UNITS));
#else
    REPEAT(part, A_PARTS * A_TOGETHER, s->a[part] = fetch_part(a, of_a, part / A_TOGETHER, part % A_TOGETHER, A_LINES,
                                                               A_UNITS, A_TOGETHER));
    REPEAT(part, B_PARTS * B_TOGETHER, s->b[part] = fetch_part(b, of_b, part / B_TOGETHER, part % B_TOGETHER, B_LINES,
                                                               B_UNITS, B_TOGETHER));
#endif
    a->from += A_TRANSPOSED ? TILE_K * a->ld : TILE_K;
    b->from += B_TRANSPOSED ? TILE_K : TILE_K * b->ld;
}

/* Ends it, as far as this work-item's own doing goes. */
INLINE void step_end(staging *s, local ushort *slot)
{
#if !ASYNC
    REPEAT(part, A_PARTS, store_part_of(slot, s->a + part * A_TOGETHER, part, A_LINES, A_UNITS, A_TOGETHER, true));
    REPEAT(part, B_PARTS, store_part_of(slot + TILE_M * TILE_K, s->b + part * B_TOGETHER, part, B_LINES, B_UNITS,
                                        B_TOGETHER, false));
#endif
}

typedef struct sums {
    c_fragment s[FRAGMENTS_M][FRAGMENTS_N];
} sums;

INLINE void multiply_fragments(const warp *w, local const ushort *slot, uint row, uint column, uint k, sums *c)
{
    a_fragment a[FRAGMENTS_M];
    b_fragment b[FRAGMENTS_N];
    REPEAT(i, FRAGMENTS_M, a[i] = load_a(w, slot, row + i * MMA_M, k));
    REPEAT(j, FRAGMENTS_N, b[j] = load_b(w, slot + TILE_M * TILE_K, column + j * MMA_N, k));
    REPEAT(i, FRAGMENTS_M, REPEAT(j, FRAGMENTS_N, c->s[i][j] = multiply(w, a[i], b[j], c->s[i][j])));
}

INLINE void multiply_step(const warp *w, local const ushort *slot, uint row, uint column, sums *c)
{
    REPEAT(i, TILE_K / K_STEP, multiply_fragments(w, slot, row, column, i * K_STEP, c));
}

INLINE void put_fragment(local float *slab, uint lane, c_fragment c)
{
    REPEAT(r, C_COUNT, slab[c_row(lane, r) * SLAB_PITCH + c_column(lane, r)] = c_sum(c, r));
}

/* Where the sums of a work-group go. */
typedef struct output {
    ulong m, n, row, column, ld;
    float beta;
    global float *c;
} output;

/* Stores the slab: row i of fragments of every warp, SLAB_ROWS rows of the tile. */
INLINE void store_slab(const output *o, const epilogue *e, local const float *slab, uint i)
{
    for (uint q = get_local_id(0); q < SLAB_ROWS * TILE_N; q += GROUP) {
        const uint line = q / TILE_N, place = q % TILE_N;
        const ulong r = o->row + line / MMA_M * WARP_M + i * MMA_M + line % MMA_M, j = o->column + place;
        global float *out = o->c + r * o->ld + j;
        if (r < o->m && j < o->n)
            *out = finish(e, r, j, combine(e, o->beta, j, slab[line * SLAB_PITCH + place], out, 1), 1);
    }
}

INLINE void store_row(const output *o, const epilogue *e, local float *slab, uint own, uint lane,
                      const c_fragment *row, uint i)
{
    barrier(CLK_LOCAL_MEM_FENCE); /* nobody reads what the slab takes the place of */
    REPEAT(j, FRAGMENTS_N, put_fragment(slab + own + j * MMA_N, lane, row[j]));
    barrier(CLK_LOCAL_MEM_FENCE);
    store_slab(o, e, slab, i);
}

/* The tile of C that this work-group has: band after band, column after column of a band. */
INLINE void choose_tile(ulong m, ulong n, uint *tile_row, uint *tile_column)
{
    const uint rows = (uint)((m + TILE_M - 1) / TILE_M), columns = (uint)((n + TILE_N - 1) / TILE_N);
    const uint group = (uint)get_group_id(0), band = group / (BAND * columns);
    const uint height = min(rows - band * BAND, (uint)BAND), place = group - band * BAND * columns;
    *tile_row = band * BAND + place % height;
    *tile_column = place / height;
}

kernel KERNEL_ATTRIBUTE __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void gemm_mma(ulong m, ulong n, ulong k, float alpha, float beta,
              global const a_element *a, ulong a_offset, ulong lda,
              global const b_element *b, ulong b_offset, ulong ldb,
              global float *c, ulong c_offset, ulong ldc EPILOGUE_PARAMETERS)
{
    local uint4 memory[LOCAL_UNITS];
#if EMULATE
    local uint scratch[WARPS_M * WARPS_N * EMULATE_WORDS];
    const warp w = {LANE, scratch + WARP_INDEX * EMULATE_WORDS};
#else
    const warp w = {LANE, 0};
#endif
    const epilogue e = EPILOGUE;
    const uint warp_row = WARP_INDEX / WARPS_N, warp_column = WARP_INDEX % WARPS_N;
    uint tile_row, tile_column;
    choose_tile(m, n, &tile_row, &tile_column);
    const ulong row = (ulong)tile_row * TILE_M, column = (ulong)tile_column * TILE_N;

    operand of_a = {(global const ushort *)a + a_offset + (A_TRANSPOSED ? row : row * lda), lda,
                    (uint)min(m - row, (ulong)TILE_M)};
    operand of_b = {(global const ushort *)b + b_offset + (B_TRANSPOSED ? column * ldb : column), ldb,
                    (uint)min(n - column, (ulong)TILE_N)};
    const ulong all_steps = alpha == 0 ? 0 : (k + TILE_K - 1) / TILE_K, parts = get_num_groups(2);
    const ulong first = all_steps * get_group_id(2) / parts, steps = all_steps * (get_group_id(2) + 1) / parts - first;
    const ulong depth = k - min(k, first * TILE_K); /* what is left of k, from this part's first step on */
    of_a.from += first * (A_TRANSPOSED ? TILE_K * lda : TILE_K);
    of_b.from += first * (B_TRANSPOSED ? TILE_K : TILE_K * ldb);
    c += c_offset + get_group_id(2) * m * ldc;
    local ushort *const slots = (local ushort *)memory;
    staging s = {0};
    sums sum = {0};

    for (uint step = 0; step < LOOKAHEAD; step++) {
        local ushort *const slot = slots + step * TILE_ELEMENTS;
        if (step < steps) {
            step_begin(&s, slot, &of_a, &of_b, (int)min(depth - step * TILE_K, (ulong)TILE_K));
            step_end(&s, slot);
        }
        STEP_COMMIT(s);
    }

    uint now = 0, next = LOOKAHEAD;
    for (ulong step = 0; step < steps; step++) {
        const bool more = step + LOOKAHEAD < steps;
        local ushort *const slot = slots + next * TILE_ELEMENTS;
        STEP_WAIT(s);
        barrier(CLK_LOCAL_MEM_FENCE); /* this step's tiles are there; nobody reads the slot of the last any more */
        if (more)
            step_begin(&s, slot, &of_a, &of_b, (int)min(depth - (step + LOOKAHEAD) * TILE_K, (ulong)TILE_K));
        STEP_COMMIT(s);
        multiply_step(&w, slots + now * TILE_ELEMENTS, warp_row * WARP_M, warp_column * WARP_N, &sum);
        if (more)
            step_end(&s, slot);
        now = now + 1 == STAGES ? 0 : now + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }

    local float *const slab = (local float *)memory;
    const uint own = warp_row * MMA_M * SLAB_PITCH + warp_column * WARP_N;
    const output to = {m, n, row, column, ldc, beta, c};
    REPEAT(i, FRAGMENTS_M, store_row(&to, &e, slab, own, w.lane, sum.s[i], i));
}
