/* mma_intel.h: DPAS of Intel GPUs, f16 and bf16: sub-groups of 8 (Arc, Data Center GPU Flex) and 16 (Data Center GPU
 * Max and later).
 *
 * Layout, from the specifications cl_intel_subgroup_matrix_multiply_accumulate and cl_intel_subgroups (block reads).
 * Lane x of W = 8 or 16; a 32-bit register holds two elements, low half first.
 *
 *     A 8 x 16, component r = row r        B 16 x W, column x                      C 8 x W, column x
 *     W = 8   a uint: k = 2x, 2x + 1       component p: k = 2p, 2p + 1             component r: row r
 *     W = 16  a ushort: k = x
 *
 *     block read: component i of lane x is element i W + x of the memory
 *
 * So in local memory A lies in blocks of 16 k, row after row, and B in blocks of 16 k and W columns, one row of pairs
 * (k, k + 1) after the other: what an instruction takes of either is one block read.
 *
 *     order in A: k/16, row, k%16              order in B: k/16, column/W, k%16/2, column%W, k%2 */
#ifndef MMA_INTEL_H
#define MMA_INTEL_H

#if INSTRUCTION == INTEL_DPAS8
#define WARP 8
#else
#define WARP 16
#endif
#define MMA_M 8
#define MMA_N WARP
#define AS_STORED 0
#define ASYNC 0
#define A_RUN 8
#define B_RUN 2
#define C_COUNT 8

INLINE uint a_at(uint row, uint k)
{
    return (k / 16 * TILE_M + row) * 16 + k % 16;
}

INLINE uint b_at(uint column, uint k)
{
    return ((k / 16 * (TILE_N / MMA_N) + column / MMA_N) * 8 + k % 16 / 2) * (MMA_N * 2) + column % MMA_N * 2 + k % 2;
}

#if INSTRUCTION == INTEL_DPAS8
typedef uint8 a_fragment;
#else
typedef ushort8 a_fragment;
#endif
typedef uint8 b_fragment;
typedef float8 c_fragment;

#if EMULATE
#include "mma_emulate.h"

INLINE float8 dpas(const warp *w, a_fragment a, b_fragment b, float8 c)
{
    const uint x = w->lane;
    uint of_b[8];
    float sum[8];
    vstore8(b, 0, of_b);
    vstore8(c, 0, sum);
#if INSTRUCTION == INTEL_DPAS8
    uint of_a[8];
    vstore8(a, 0, of_a);
    for (uint r = 0; r < 8; r++)
        for (uint i = 0; i < 2; i++)
            *emulated_a(w, r, 2 * x + i) = half_of(of_a[r], i);
#else
    ushort of_a[8];
    vstore8(a, 0, of_a);
    for (uint r = 0; r < 8; r++)
        *emulated_a(w, r, x) = of_a[r];
#endif
    for (uint p = 0; p < 8; p++)
        for (uint i = 0; i < 2; i++)
            *emulated_b(w, 2 * p + i, x) = half_of(of_b[p], i);
    emulate_barrier();
    for (uint r = 0; r < 8; r++)
        sum[r] += emulated_sum(w, r, x);
    emulate_barrier();
    return vload8(0, sum);
}
#else
#ifndef cl_intel_subgroup_matrix_multiply_accumulate
#error "this device has no cl_intel_subgroup_matrix_multiply_accumulate: elsewhere it is emulated, -DEMULATE=1"
#endif
#define KERNEL_ATTRIBUTE __attribute__((intel_reqd_sub_group_size(WARP)))
#define LANE get_sub_group_local_id()
#define WARP_INDEX get_sub_group_id()

#if INSTRUCTION == INTEL_DPAS8
#define DPAS_A as_int8(a)
#else
#define DPAS_A as_short8(a)
#endif

INLINE float8 dpas(const warp *w, a_fragment a, b_fragment b, float8 c)
{
#if BFLOAT
    return intel_sub_group_bf16_bf16_matrix_mad_k16(DPAS_A, as_int8(b), c);
#else
    return intel_sub_group_f16_f16_matrix_mad_k16(DPAS_A, as_int8(b), c);
#endif
}
#endif

/* Where there is no such instruction (or to emulate it) each lane reads what is its own. */
#if EMULATE || !defined(cl_intel_subgroup_local_block_io)
#define BLOCK_READ(lane, from) \
    (from[lane], from[WARP + lane], from[2 * WARP + lane], from[3 * WARP + lane], from[4 * WARP + lane], \
     from[5 * WARP + lane], from[6 * WARP + lane], from[7 * WARP + lane])

INLINE uint8 block_read_ui8(const warp *w, local const uint *from)
{
    return (uint8)BLOCK_READ(w->lane, from);
}

INLINE ushort8 block_read_us8(const warp *w, local const ushort *from)
{
    return (ushort8)BLOCK_READ(w->lane, from);
}
#else
#define block_read_ui8(w, from) intel_sub_group_block_read8(from)
#define block_read_us8(w, from) intel_sub_group_block_read_us8(from)
#endif

INLINE a_fragment load_a(const warp *w, local const ushort *tile, uint row, uint k)
{
#if INSTRUCTION == INTEL_DPAS8
    return block_read_ui8(w, (local const uint *)(tile + a_at(row, k)));
#else
    return block_read_us8(w, tile + a_at(row, k));
#endif
}

INLINE b_fragment load_b(const warp *w, local const ushort *tile, uint column, uint k)
{
    return block_read_ui8(w, (local const uint *)(tile + b_at(column, k)));
}

INLINE c_fragment multiply(const warp *w, a_fragment a, b_fragment b, c_fragment c)
{
    return dpas(w, a, b, c);
}

INLINE float c_sum(c_fragment c, uint i)
{
    return c[i];
}

INLINE uint c_row(uint lane, uint i)
{
    return i;
}

INLINE uint c_column(uint lane, uint i)
{
    return lane;
}

#endif
