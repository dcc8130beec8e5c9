/* mma_amd_wmma.h: v_wmma_f32_16x16x16 of AMD's RDNA3 GPUs (gfx11..), f16 and bf16, in waves of 32.
 *
 * Layout, from AMD's Matrix Instruction Calculator, V_WMMA_F32_16X16X16_F16 and _BF16 (RDNA3). Lane = 16 h + x,
 * h = 0, 1; a register holds two elements, low half first. Both halves of the wave hold the same A and B.
 *
 *     A 16 x 16, row x: k = 0 .. 15        B 16 x 16, column x: k = 0 .. 15        C 16 x 16, column x
 *     v0  0, 1                             v0  0, 1                                v0 .. v7  rows h, 2 + h, .. 14 + h
 *     ..                                   ..
 *     v7  14, 15                           v7  14, 15
 */
#ifndef MMA_AMD_WMMA_H
#define MMA_AMD_WMMA_H

#define WARP 32
#define C_COUNT 8
typedef ushort16 a_fragment;
typedef ushort16 b_fragment;
typedef float8 c_fragment;
#include "mma_amd.h"

#if EMULATE
/* Half h of the wave computes from its own copy, so that each copy must be right. */
INLINE c_fragment multiply(const warp *w, a_fragment a, b_fragment b, c_fragment c)
{
    const uint x = w->lane % 16, h = w->lane / 16;
    ushort of_a[16], of_b[16];
    float sum[8];
    vstore16(a, 0, of_a);
    vstore16(b, 0, of_b);
    vstore8(c, 0, sum);
    for (uint copy = 0; copy < 2; copy++) {
        for (uint k = 0; k < 16 && h == copy; k++) {
            *emulated_a(w, x, k) = of_a[k];
            *emulated_b(w, k, x) = of_b[k];
        }
        emulate_barrier();
        for (uint i = 0; i < 8 && h == copy; i++)
            sum[i] += emulated_sum(w, 2 * i + h, x);
        emulate_barrier();
    }
    return vload8(0, sum);
}
#else
#if !__has_builtin(__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32)
#error "this GPU has no WMMA as RDNA3 has it, or its waves are not 32 wide"
#endif

INLINE c_fragment multiply(const warp *w, a_fragment a, b_fragment b, c_fragment c)
{
#if BFLOAT
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(as_short16(a), as_short16(b), c);
#else
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(as_half16(a), as_half16(b), c);
#endif
}
#endif

INLINE ushort16 load_line(local const ushort *tile, uint line, uint k)
{
    const ushort8 low = *(local const ushort8 *)(tile + k_line_at(line, k));
    const ushort8 high = *(local const ushort8 *)(tile + k_line_at(line, k + 8));
    return (ushort16)(low, high);
}

INLINE a_fragment load_a(const warp *w, local const ushort *tile, uint row, uint k)
{
    return load_line(tile, row + w->lane % 16, k);
}

INLINE b_fragment load_b(const warp *w, local const ushort *tile, uint column, uint k)
{
    return load_line(tile, column + w->lane % 16, k);
}

INLINE uint c_row(uint lane, uint i)
{
    return 2 * i + lane / 16;
}

#endif
