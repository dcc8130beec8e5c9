/* gemm_epilogue.h: what becomes of a product's sums before they are stored. All GEMM kernels share it.
 *
 *     C[i,j] = f(alpha * scale[j] * S[i,j] + beta * C[i,j] + bias[j]) * gate[i,j] + residual[i,j]
 *
 * S = op(A) op(B). Each part is compiled in or left out:
 *
 *     -DSCALED=0|1     scale[n], float: the factors of B's columns, where B is I8
 *     -DBIAS=0|1       bias[n]
 *     -DUNARY=NONE|... f, see activation.h
 *     -DGATE=0|1       gate[m,n], row-major
 *     -DRESIDUAL=0|1   residual[m,n], row-major
 *
 * bias, gate and residual are REAL and do not overlap C. beta = 0: C is not read. alpha = 0: nobody reads A and B.
 *
 * Needs vector.h and activation.h. A kernel ends its parameters with EPILOGUE_PARAMETERS (no comma before it), has
 * parameters called alpha and beta, and begins with `const epilogue e = EPILOGUE;`. For VECTOR sums from (i, j) on, of
 * which `count` are inside of C (VECTOR, but at the right edge), it stores
 *
 *     finish(&e, i, j, combine(&e, beta, j, sum, c, count), count)
 *
 * A kernel that cuts k stores combine(...) alone for the parts before the last, and adds later ones with beta = 1. */
#ifndef GEMM_EPILOGUE_H
#define GEMM_EPILOGUE_H

#if !defined(SCALED) || !defined(BIAS) || !defined(GATE) || !defined(RESIDUAL)
#error "gemm_epilogue.h needs -DSCALED=0|1 -DBIAS=0|1 -DUNARY=NONE|RELU|... -DGATE=0|1 -DRESIDUAL=0|1"
#endif

#if SCALED
#define SCALE_PARAMETERS , global const float *scale, ulong scale_offset
#define SCALE_FIELD global const float *scale;
#define SCALE_SET , scale + scale_offset
#else
#define SCALE_PARAMETERS
#define SCALE_FIELD
#define SCALE_SET
#endif

#if BIAS
#define BIAS_PARAMETERS , global const REAL *bias, ulong bias_offset
#define BIAS_FIELD global const REAL *bias;
#define BIAS_SET , bias + bias_offset
#else
#define BIAS_PARAMETERS
#define BIAS_FIELD
#define BIAS_SET
#endif

#if GATE
#define GATE_PARAMETERS , global const REAL *gate, ulong gate_offset, ulong gate_ld
#define GATE_FIELD global const REAL *gate; ulong gate_ld;
#define GATE_SET , gate + gate_offset, gate_ld
#else
#define GATE_PARAMETERS
#define GATE_FIELD
#define GATE_SET
#endif

#if RESIDUAL
#define RESIDUAL_PARAMETERS , global const REAL *residual, ulong residual_offset, ulong residual_ld
#define RESIDUAL_FIELD global const REAL *residual; ulong residual_ld;
#define RESIDUAL_SET , residual + residual_offset, residual_ld
#else
#define RESIDUAL_PARAMETERS
#define RESIDUAL_FIELD
#define RESIDUAL_SET
#endif

#define EPILOGUE_PARAMETERS SCALE_PARAMETERS BIAS_PARAMETERS GATE_PARAMETERS RESIDUAL_PARAMETERS
typedef struct epilogue {
    REAL alpha;
    SCALE_FIELD BIAS_FIELD GATE_FIELD RESIDUAL_FIELD
} epilogue;
#define EPILOGUE {alpha SCALE_SET BIAS_SET GATE_SET RESIDUAL_SET}

static inline vector load_some(global const REAL *from, uint count)
{
    return count == VECTOR ? load_vector(from) : load_part(from, count);
}

/* alpha * scale * sum + beta * C; c is where C[i,j] is stored. */
static inline vector combine(const epilogue *e, REAL beta, ulong j, vector sum, global const REAL *c, uint count)
{
    vector value = e->alpha * sum;
#if SCALED
    value *= load_some(e->scale + j, count);
#endif
    return beta == 0 ? value : value + beta * load_some(c, count);
}

static inline vector finish(const epilogue *e, ulong i, ulong j, vector value, uint count)
{
#if BIAS
    value += load_some(e->bias + j, count);
#endif
    value = apply(value);
#if GATE
    value *= load_some(e->gate + i * e->gate_ld + j, count);
#endif
#if RESIDUAL
    value += load_some(e->residual + i * e->residual_ld + j, count);
#endif
    return value;
}

#endif
