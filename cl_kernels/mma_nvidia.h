/* mma_nvidia.h: mma.sync.m16n8k16, ldmatrix and cp.async of NVIDIA GPUs from compute capability 8.0 on.
 *
 * Layout, from the PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and "Warp-level matrix load
 * instruction: ldmatrix". Lane = 4 g + t; a register holds two elements, low half first.
 *
 *     A 16 x 16    k  2t,2t+1   8+2t,+1       B 16 x 8   column g          C 16 x 8    columns 2t, 2t+1
 *              +----------+----------+          k  2t,2t+1   b0             row g       c0 c1
 *     row g    |    a0    |    a2    |          8+2t,8+2t+1  b1             row g + 8   c2 c3
 *     row g+8  |    a1    |    a3    |
 *              +----------+----------+
 *
 *     ldmatrix.x4: lane 8 j + r gives the address of line r (8 elements) of the 8 x 8 matrix j; register j of each lane
 *     becomes elements 2t, 2t+1 of line g of matrix j; with .trans elements g of lines 2t, 2t+1.
 *
 * Two instructions side by side make one of 16 x 16 x 16 here, since one ldmatrix.x4 loads B for both. Operands lie in
 * local memory in the order of global memory, since ldmatrix can transpose them.
 *
 * cp.async copies 16 bytes from global to local memory past the registers, and fills up with zeros what it is told not
 * to read. A group of copies has arrived after a wait that leaves only younger groups pending. */
#ifndef MMA_NVIDIA_H
#define MMA_NVIDIA_H

#define WARP 32
#define MMA_M 16
#define MMA_N 16
#define AS_STORED 1
#define ASYNC ALIGNED
#define TURN_EIGHTS 0
#define C_COUNT 8
#define YOUNGER (LOOKAHEAD - 1) /* groups of copies that may be pending when a step begins */
#include "mma_tile.h"

typedef uint4 a_fragment;
typedef uint4 b_fragment; /* b0, b1 of columns 0-7, b0, b1 of columns 8-15 */
typedef struct c_fragment {
    float s[C_COUNT]; /* c0 .. c3 of columns 0-7, then of columns 8-15 */
} c_fragment;

#if EMULATE
#include "mma_emulate.h"

INLINE uint4 ldmatrix(const warp *w, local const ushort *tile, uint at, bool transposed)
{
    const uint g = w->lane / 4, t = w->lane % 4;
    uint loaded[4];
    w->scratch[w->lane] = at;
    emulate_barrier();
    for (uint j = 0; j < 4; j++) {
        const uint first = transposed ? w->scratch[8 * j + 2 * t] + g : w->scratch[8 * j + g] + 2 * t;
        const uint second = transposed ? w->scratch[8 * j + 2 * t + 1] + g : first + 1;
        loaded[j] = tile[first] | (uint)tile[second] << 16;
    }
    emulate_barrier();
    return (uint4)(loaded[0], loaded[1], loaded[2], loaded[3]);
}

INLINE void mma_m16n8k16(const warp *w, uint4 a, uint b0, uint b1, float *c)
{
    const uint g = w->lane / 4, t = w->lane % 4, b[2] = {b0, b1};
    const uint registers[4] = {a.x, a.y, a.z, a.w};
    for (uint i = 0; i < 8; i++) {
        const bool upper = i < 2 || (i >= 4 && i < 6);
        *emulated_a(w, upper ? g : g + 8, 2 * t + (i & 1) + (i < 4 ? 0 : 8)) = half_of(registers[i / 2], i % 2);
    }
    for (uint i = 0; i < 4; i++)
        *emulated_b(w, 2 * t + (i & 1) + (i < 2 ? 0 : 8), g) = half_of(b[i / 2], i % 2);
    emulate_barrier();
    for (uint i = 0; i < 4; i++)
        c[i] += emulated_sum(w, i < 2 ? g : g + 8, 2 * t + (i & 1));
    emulate_barrier();
}

/* A copy is only noted, and made by the wait that must see it: a wait for too little leaves old bytes behind. */
#define COPIES_MAX (STAGES * (TILE_M + TILE_N) * TILE_K / 8 / GROUP + STAGES)
typedef struct copies {
    local uint4 *to[COPIES_MAX];
    uint4 value[COPIES_MAX];
    uint group[COPIES_MAX]; /* 0: nothing is noted here */
    uint committed;
} copies;

INLINE void copy_start(copies *pending, local ushort *to, global const ushort *from, int count)
{
    uint i = 0;
    while (pending->group[i])
        i++;
    pending->to[i] = (local uint4 *)to;
    pending->value[i] = read_unit(from, count);
    pending->group[i] = pending->committed + 1;
}

INLINE void copy_commit(copies *pending)
{
    pending->committed++;
}

INLINE void copy_wait(copies *pending)
{
    for (uint i = 0; i < COPIES_MAX; i++)
        if (pending->group[i] && pending->group[i] + YOUNGER <= pending->committed) {
            *pending->to[i] = pending->value[i];
            pending->group[i] = 0;
        }
}
#else
#if !defined(__NVPTX__) && !defined(__NV_CL_C_VERSION)
#error "mma.sync is an instruction of NVIDIA's: elsewhere it is emulated, -DEMULATE=1"
#endif

/* NVIDIA's compiler is known to take the short word, clang takes the long one alone. */
#ifdef __NV_CL_C_VERSION
#define ASM asm
#else
#define ASM __asm__
#endif

#define LDMATRIX(modifier) \
    ASM volatile("ldmatrix.sync.aligned.m8n8.x4" modifier ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(loaded.x), "=r"(loaded.y), "=r"(loaded.z), "=r"(loaded.w) : "r"((uint)(size_t)(tile + at)))

INLINE uint4 ldmatrix(const warp *w, local const ushort *tile, uint at, bool transposed)
{
    uint4 loaded;
    if (transposed)
        LDMATRIX(".trans");
    else
        LDMATRIX("");
    return loaded;
}

#define MMA_SYNC(type) \
    ASM volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 " \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1))

INLINE void mma_m16n8k16(const warp *w, uint4 a, uint b0, uint b1, float *c)
{
#if BFLOAT
    MMA_SYNC("bf16");
#else
    MMA_SYNC("f16");
#endif
}

typedef uint copies;

INLINE void copy_start(copies *pending, local ushort *to, global const ushort *from, int count)
{
    const uint bytes = (uint)clamp(count, 0, 8) * 2;
    ASM volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 : : "r"((uint)(size_t)to), "l"(from), "r"(bytes) : "memory");
}

INLINE void copy_commit(copies *pending)
{
    ASM volatile("cp.async.commit_group;" : : : "memory");
}

INLINE void copy_wait(copies *pending)
{
    ASM volatile("cp.async.wait_group %0;" : : "n"(YOUNGER) : "memory");
}
#endif

INLINE a_fragment load_a(const warp *w, local const ushort *tile, uint row, uint k)
{
    const uint line = w->lane % 8, low = w->lane / 8 % 2, high = w->lane / 16;
#if A_TRANSPOSED
    return ldmatrix(w, tile, tile_at(k + 8 * high + line, row / 8 + low, TILE_M / 8), true);
#else
    return ldmatrix(w, tile, tile_at(row + 8 * low + line, k / 8 + high, TILE_K / 8), false);
#endif
}

INLINE b_fragment load_b(const warp *w, local const ushort *tile, uint column, uint k)
{
    const uint line = w->lane % 8, low = w->lane / 8 % 2, high = w->lane / 16;
#if B_TRANSPOSED
    return ldmatrix(w, tile, tile_at(column + 8 * high + line, k / 8 + low, TILE_K / 8), false);
#else
    return ldmatrix(w, tile, tile_at(k + 8 * low + line, column / 8 + high, TILE_N / 8), true);
#endif
}

INLINE c_fragment multiply(const warp *w, a_fragment a, b_fragment b, c_fragment c)
{
    mma_m16n8k16(w, a, b.x, b.y, c.s);
    mma_m16n8k16(w, a, b.z, b.w, c.s + 4);
    return c;
}

INLINE float c_sum(c_fragment c, uint i)
{
    return c.s[i];
}

INLINE uint c_row(uint lane, uint i)
{
    return lane / 4 + i / 2 % 2 * 8;
}

INLINE uint c_column(uint lane, uint i)
{
    return lane % 4 * 2 + i % 2 + i / 4 * 8;
}

#endif
