/* gemm_reference: the clear product that the fast kernels are compared with.
 *
 *     S[i,j] = sum over p < k of op(A)[i,p] * op(B)[p,j]      i < m, j < n;  C from S: gemm_epilogue.h
 *
 *     op(A)[i,p] = A_TRANSPOSED ? A[p,i] : A[i,p]          op(B)[p,j] = B_TRANSPOSED ? B[j,p] : B[p,j]
 *
 * Tile: none. One work-item computes one element of C, and sums in REAL in the order p = 0, 1, ..., k-1.
 *
 * Memory: A is row-major, element (r,c) at a_offset + r*lda + c. B and C are row-major too (B_PANEL,
 * C_PANEL = 0), or panels of width W = B_PANEL, C_PANEL:
 *
 *     element (r,c) at offset + ((c/W)*ld + r)*W + c%W      ld = rows that a stored panel has
 *
 *     columns  0 .. W-1     W .. 2W-1    2W ..
 *            +-----------+ +-----------+ +-----+.....+     each panel is ld rows of W elements, one after
 *            | panel 0   | | panel 1   | | 2   : pad :     another; the pad of the last one is unspecified:
 *            +-----------+ +-----------+ +-----+.....+     here it is neither read nor written
 *
 * Offsets and leading dimensions count elements, of A_TYPE, B_TYPE (gemm_types.h) and REAL. VECTOR is 1.
 * Launch: global size (n, y, z) or more, y * z >= m: rows run on from y to y; work-items beyond are idle.
 * Limits: m, n, k >= 0. beta = 0: C is not read. alpha = 0 or k = 0: A and B are not read.
 * OpenCL 1.2; double needs the device to have it. No fma(): software on some devices. */

#if !defined(A_TRANSPOSED) || !defined(B_TRANSPOSED) || !defined(B_PANEL) || !defined(C_PANEL)
#error "gemm_reference needs -DA_TRANSPOSED=0|1 -DB_TRANSPOSED=0|1 -DB_PANEL=0|W -DC_PANEL=0|W"
#endif

#include "vector.h"
#include "activation.h"
#include "gemm_types.h"
#include "gemm_epilogue.h"

/* Where element (row, column) lies; panel 0 means row-major. */
static ulong element(ulong row, ulong column, ulong ld, uint panel)
{
    if (panel == 0)
        return row * ld + column;
    return ((column / panel) * ld + row) * panel + column % panel;
}

kernel void gemm_reference(ulong m, ulong n, ulong k, REAL alpha, REAL beta,
                           global const a_element *a, ulong a_offset, ulong lda,
                           global const b_element *b, ulong b_offset, ulong ldb,
                           global REAL *c, ulong c_offset, ulong ldc EPILOGUE_PARAMETERS)
{
    const ulong j = get_global_id(0), i = get_global_id(2) * get_global_size(1) + get_global_id(1);
    const epilogue e = EPILOGUE;
    if (i >= m || j >= n)
        return;

    REAL sum = 0;
    const ulong depth = alpha == 0 ? 0 : k;
    for (ulong p = 0; p < depth; p++) {
        const ulong a_at = A_TRANSPOSED ? p * lda + i : i * lda + p;
        const ulong b_at = B_TRANSPOSED ? element(j, p, ldb, B_PANEL) : element(p, j, ldb, B_PANEL);
        sum += WIDEN(A_TYPE, a + a_offset + a_at) * WIDEN(B_TYPE, b + b_offset + b_at);
    }

    global REAL *out = c + c_offset + element(i, j, ldc, C_PANEL);
    *out = finish(&e, i, j, combine(&e, beta, j, sum, out, 1), 1);
}
