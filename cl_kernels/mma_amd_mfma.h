/* mma_amd_mfma.h: v_mfma_f32_16x16x16 of AMD's CDNA GPUs (gfx90a, gfx942), f16 and bf16, in waves of 64.
 *
 * Layout, from AMD's Matrix Instruction Calculator, V_MFMA_F32_16X16X16_F16 and _BF16 (CDNA3), ..F16, BF16_1K (CDNA2).
 * Lane = 16 h + x, h = 0 .. 3; a register holds two elements, low half first.
 *
 *     A 16 x 16, row x: k = 4h .. 4h+3     B 16 x 16, column x: k = 4h .. 4h+3     C 16 x 16, column x
 *     v0  4h, 4h+1                         v0  4h, 4h+1                            v0 .. v3  rows 4h .. 4h+3
 *     v1  4h+2, 4h+3                       v1  4h+2, 4h+3
 */
#ifndef MMA_AMD_MFMA_H
#define MMA_AMD_MFMA_H

#define WARP 64
#define C_COUNT 4
typedef ushort4 a_fragment;
typedef ushort4 b_fragment;
typedef float4 c_fragment;
#include "mma_amd.h"

#if EMULATE
INLINE c_fragment multiply(const warp *w, a_fragment a, b_fragment b, c_fragment c)
{
    const uint x = w->lane % 16, h = w->lane / 16;
    const ushort of_a[4] = {a.s0, a.s1, a.s2, a.s3}, of_b[4] = {b.s0, b.s1, b.s2, b.s3};
    float sum[4] = {c.s0, c.s1, c.s2, c.s3};
    for (uint i = 0; i < 4; i++) {
        *emulated_a(w, x, 4 * h + i) = of_a[i];
        *emulated_b(w, 4 * h + i, x) = of_b[i];
    }
    emulate_barrier();
    for (uint i = 0; i < 4; i++)
        sum[i] += emulated_sum(w, 4 * h + i, x);
    emulate_barrier();
    return (float4)(sum[0], sum[1], sum[2], sum[3]);
}
#else
#if !__has_builtin(__builtin_amdgcn_mfma_f32_16x16x16bf16_1k)
#error "this GPU has no MFMA with bf16_1k"
#endif

INLINE c_fragment multiply(const warp *w, a_fragment a, b_fragment b, c_fragment c)
{
#if BFLOAT
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(as_short4(a), as_short4(b), c, 0, 0, 0);
#else
    return __builtin_amdgcn_mfma_f32_16x16x16f16(as_half4(a), as_half4(b), c, 0, 0, 0);
#endif
}
#endif

INLINE a_fragment load_a(const warp *w, local const ushort *tile, uint row, uint k)
{
    return *(local const ushort4 *)(tile + k_line_at(row + w->lane % 16, k + w->lane / 16 * 4));
}

INLINE b_fragment load_b(const warp *w, local const ushort *tile, uint column, uint k)
{
    return *(local const ushort4 *)(tile + k_line_at(column + w->lane % 16, k + w->lane / 16 * 4));
}

INLINE uint c_row(uint lane, uint i)
{
    return lane / 16 * 4 + i;
}

#endif
