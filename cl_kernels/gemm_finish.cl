/* gemm_finish: the epilogue by itself, in place, for a product that a library has made.
 *
 *     C[i,j] = f(C[i,j] + bias[j]) * gate[i,j] + residual[i,j]      i < m, j < n; see gemm_epilogue.h
 *
 * Memory: C, gate and residual are row-major; offsets and leading dimensions count elements.
 * Launch: global size (ceil(n / VECTOR), y, z), y * z >= m; rows run on from y to y.
 * OpenCL 1.2; double needs the device to have it. */

#define SCALED 0
#include "vector.h"
#include "activation.h"
#include "gemm_epilogue.h"

kernel void gemm_finish(ulong m, ulong n, REAL alpha, global REAL *c, ulong c_offset, ulong ldc EPILOGUE_PARAMETERS)
{
    const ulong j = get_global_id(0) * VECTOR, i = get_global_id(2) * get_global_size(1) + get_global_id(1);
    const epilogue e = EPILOGUE;
    if (i >= m || j >= n)
        return;
    const uint count = (uint)min(n - j, (ulong)VECTOR);
    global REAL *out = c + c_offset + i * ldc + j;
    const vector value = finish(&e, i, j, combine(&e, 0, j, load_some(out, count), out, count), count);
    if (count == VECTOR)
        store_vector(value, out);
    else
        store_part(value, out, count);
}
