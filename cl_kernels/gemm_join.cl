/* gemm_join: ends a product whose k was cut: adds the parts' sums, in order.
 *
 *     S[i,j] = sum over part < parts of partial[part,i,j]      i < m, j < n;  C from S: gemm_epilogue.h
 *
 * Memory: partial is parts x m x n elements of REAL without gaps; C, gate and residual are row-major, element (r,c) at
 * offset + r*ld + c. VECTOR need not divide n.
 * Launch: 2 dimensions, global size (ceil(n / VECTOR), m), each rounded up to any multiple.
 * beta = 0: C is not read. OpenCL 1.2; double needs the device to have it. */

#include "vector.h"
#include "activation.h"
#include "gemm_epilogue.h"

kernel void gemm_join(ulong m, ulong n, ulong parts, REAL alpha, REAL beta, global const REAL *partial,
                      global REAL *c, ulong c_offset, ulong ldc EPILOGUE_PARAMETERS)
{
    const ulong j = get_global_id(0) * VECTOR, i = get_global_id(1);
    const epilogue e = EPILOGUE;
    if (i >= m || j >= n)
        return;
    const uint count = (uint)min(n - j, (ulong)VECTOR);
    vector sum = 0;
    for (ulong part = 0; part < parts; part++)
        sum += load_some(partial + (part * m + i) * n + j, count);
    global REAL *out = c + c_offset + i * ldc + j;
    const vector value = finish(&e, i, j, combine(&e, beta, j, sum, out, count), count);
    if (count == VECTOR)
        store_vector(value, out);
    else
        store_part(value, out, count);
}
