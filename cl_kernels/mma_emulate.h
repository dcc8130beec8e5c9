/* mma_emulate.h: what the emulated bodies of the matrix instructions share.
 *
 * An emulated instruction puts the registers of its warp's work-items where its vendor's document says that they belong
 * in the matrices A and B, which are kept in local memory for that moment; each work-item then computes those elements
 * of the result that the document says it holds. This way a kernel that fills registers in another order gets a wrong
 * result on any device, as it would from the instruction.
 *
 * Every work-item of the work-group must reach every instruction, because of the barriers. They can hide a barrier that
 * the kernel lacks: look for that with another tool. */
#ifndef MMA_EMULATE_H
#define MMA_EMULATE_H

enum { EMULATE_K = 16, EMULATE_B = 256, EMULATE_WORDS = 256 }; /* A is [16][16], B [16][16] behind it */

INLINE local ushort *emulated_a(const warp *w, uint row, uint k)
{
    return (local ushort *)w->scratch + row * EMULATE_K + k;
}

INLINE local ushort *emulated_b(const warp *w, uint k, uint column)
{
    return (local ushort *)w->scratch + EMULATE_B + k * 16 + column;
}

INLINE ushort half_of(uint word, uint i)
{
    return (ushort)(word >> 16 * i);
}

/* One element of A B, between two barriers. */
INLINE float emulated_sum(const warp *w, uint row, uint column)
{
    float sum = 0;
    for (uint k = 0; k < EMULATE_K; k++)
        sum += WIDEN(A_TYPE, (local const a_element *)emulated_a(w, row, k)) *
               WIDEN(B_TYPE, (local const b_element *)emulated_b(w, k, column));
    return sum;
}

INLINE void emulate_barrier(void)
{
    barrier(CLK_LOCAL_MEM_FENCE);
}

#endif
