/* mma_amd.h: what AMD's matrix instructions have in common: tiles of 16 x 16, of whose result lane 16 h + x holds
 * elements of column x. The header of an instruction says first how wide a wave is (WARP), how many elements of C a lane
 * holds (C_COUNT) and what a fragment is.
 *
 * Both operands are turned so that k runs along the lines of local memory: a lane's elements are then neighbours. */
#ifndef MMA_AMD_H
#define MMA_AMD_H

#define MMA_M 16
#define MMA_N 16
#define AS_STORED 0
#define ASYNC 0
#define TURN_EIGHTS 1
#include "mma_tile.h"
#include "mma_k_lines.h"

#if EMULATE
#include "mma_emulate.h"
#else
#if !defined(__has_builtin)
#error "this is an instruction of AMD's: elsewhere it is emulated, -DEMULATE=1"
#define __has_builtin(name) 0
#endif
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif

INLINE float c_sum(c_fragment c, uint i)
{
    return c[i];
}

INLINE uint c_column(uint lane, uint i)
{
    return lane % 16;
}

#endif
