/* mma_amd_wmma12.h: v_wmma_f32_16x16x16 of AMD's RDNA4 GPUs (gfx12..), f16 and bf16, in waves of 32.
 *
 * Layout, from AMD's Matrix Instruction Calculator, V_WMMA_F32_16X16X16_F16 and _BF16 (RDNA4). Lane = 16 h + x,
 * h = 0, 1; a register holds two elements, low half first.
 *
 *     A 16 x 16, row x                     B 16 x 16, column x                     C 16 x 16, column x
 *     v0  k = 4h,     4h + 1               v0  k = 4h,     4h + 1                  v0 .. v7  rows 8h .. 8h + 7
 *     v1  k = 4h + 2, 4h + 3               v1  k = 4h + 2, 4h + 3
 *     v2  k = 4h + 8, 4h + 9               v2  k = 4h + 8, 4h + 9
 *     v3  k = 4h + 10, 4h + 11             v3  k = 4h + 10, 4h + 11
 *
 * The order of k is free as long as A and B agree. The kernel gives half h the elements 8h .. 8h + 7, which are
 * neighbours in local memory: there k runs along the lines. */
#ifndef MMA_AMD_WMMA12_H
#define MMA_AMD_WMMA12_H

#define WARP 32
#define C_COUNT 8
typedef ushort8 a_fragment;
typedef ushort8 b_fragment;
typedef float8 c_fragment;
#include "mma_amd.h"

#if EMULATE
INLINE c_fragment multiply(const warp *w, a_fragment a, b_fragment b, c_fragment c)
{
    const uint x = w->lane % 16, h = w->lane / 16;
    ushort of_a[8], of_b[8];
    float sum[8];
    vstore8(a, 0, of_a);
    vstore8(b, 0, of_b);
    vstore8(c, 0, sum);
    for (uint i = 0; i < 8; i++) {
        const uint k = 4 * h + i % 4 + (i < 4 ? 0 : 8);
        *emulated_a(w, x, k) = of_a[i];
        *emulated_b(w, k, x) = of_b[i];
    }
    emulate_barrier();
    for (uint i = 0; i < 8; i++)
        sum[i] += emulated_sum(w, 8 * h + i, x);
    emulate_barrier();
    return vload8(0, sum);
}
#else
#if !__has_builtin(__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12)
#error "this GPU has no WMMA as RDNA4 has it, or its waves are not 32 wide"
#endif

INLINE c_fragment multiply(const warp *w, a_fragment a, b_fragment b, c_fragment c)
{
#if BFLOAT
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(as_short8(a), as_short8(b), c);
#else
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(as_half8(a), as_half8(b), c);
#endif
}
#endif

INLINE a_fragment load_a(const warp *w, local const ushort *tile, uint row, uint k)
{
    return *(local const ushort8 *)(tile + k_line_at(row + w->lane % 16, k + w->lane / 16 * 8));
}

INLINE b_fragment load_b(const warp *w, local const ushort *tile, uint column, uint k)
{
    return *(local const ushort8 *)(tile + k_line_at(column + w->lane % 16, k + w->lane / 16 * 8));
}

INLINE uint c_row(uint lane, uint i)
{
    return lane / 16 * 8 + i;
}

#endif
