/* elementwise: out[r,c] = an operation on a[r,c] and b[r,c], for r < rows, c < cols.
 *
 *     OPERATION        out
 *     ADD              alpha * a + beta * b
 *     MULTIPLY         a * b
 *     SCALE            alpha * a
 *     APPLY            f(a)
 *     APPLY_GRADIENT   f'(a) * b
 *     BIAS_APPLY       f(a + b)
 *
 * f is one of activation.h.
 *
 * Memory: an operand is a view, element (r,c) of which lies at
 *
 *     PANEL = 0 (row-major)    offset + r * row_stride + c * column_stride
 *     PANEL = W (panels)       offset + (c / W) * panel_stride + r * row_stride + (c % W) * column_stride
 *
 * column_stride is 1, or 0 where the operand is broadcast over the columns; row_stride is 0 where it is broadcast
 * over the rows. Everything counts elements. out may be a or b, at the same place.
 *
 * Launch: global size (ceil(cols / block_columns), y, z) or more, y * z >= ceil(rows / block_rows): rows of blocks run
 * on from y to y. A work-item does a block, VECTOR columns at a time. CPU: VECTOR = the vector registers, blocks of
 * some thousands of elements. GPU: BLOCKS = 0, blocks of one vector, so that neighbours read neighbouring memory. Loops
 * around it would only make compilers keep the constants of f in registers that AMD's GPUs do not have.
 *
 * Limits: VECTOR divides every panel width that is not 0, and block_columns. OpenCL 1.2; double needs the device to
 * have it. */

#if !defined(REAL) || !defined(VECTOR) || !defined(OPERATION) || !defined(UNARY)
#error "map needs -DREAL=float|double -DVECTOR=1|2|4|8|16 -DOPERATION=ADD|MULTIPLY|... -DUNARY=NONE|RELU|..."
#endif
#if !defined(A_PANEL) || !defined(B_PANEL) || !defined(OUT_PANEL) || !defined(BLOCKS)
#error "map needs -DA_PANEL=0|W -DB_PANEL=0|W -DOUT_PANEL=0|W -DBLOCKS=0|1"
#endif

/* Numbers for the preprocessor. */
#define ADD 1
#define MULTIPLY 2
#define SCALE 3
#define APPLY 4
#define APPLY_GRADIENT 5
#define BIAS_APPLY 6

#if OPERATION < ADD || OPERATION > BIAS_APPLY
#error "OPERATION is none of ADD, MULTIPLY, SCALE, APPLY, APPLY_GRADIENT, BIAS_APPLY"
#endif
#if (A_PANEL % VECTOR) || (B_PANEL % VECTOR) || (OUT_PANEL % VECTOR)
#error "VECTOR does not divide a panel width"
#endif

#include "vector.h"
#include "activation.h"

static vector operate(vector a, vector b, REAL alpha, REAL beta)
{
#if OPERATION == ADD
    return alpha * a + beta * b;
#elif OPERATION == MULTIPLY
    return a * b;
#elif OPERATION == SCALE
    return alpha * a;
#elif OPERATION == APPLY
    return apply(a);
#elif OPERATION == APPLY_GRADIENT
    return gradient(a) * b;
#else
    return apply(a + b);
#endif
}

#define HAS_B (OPERATION != SCALE && OPERATION != APPLY)

/* Where (row, column) lies, column a multiple of VECTOR. */
#define ELEMENT(panel, row, column, row_stride, column_stride, panel_stride)                                    \
    ((row) * (row_stride) + ((panel) ? (column) / (panel ? panel : 1) * (panel_stride) +                        \
                                           (column) % (panel ? panel : 1) * (column_stride)                     \
                                     : (column) * (column_stride)))

static vector load(global const REAL *from, ulong column_stride)
{
    return column_stride ? load_vector(from) : (vector)*from;
}

/* The first count < VECTOR elements. */
static vector load_some(global const REAL *from, ulong column_stride, uint count)
{
    return column_stride ? load_part(from, count) : (vector)*from;
}

#if BLOCKS
#define REPEAT(condition, step) for (; condition; step)
#else
#define REPEAT(condition, step) if (condition)
#endif

kernel void map(ulong rows, ulong cols, ulong block_rows, ulong block_columns, REAL alpha, REAL beta,
                global const REAL *a, ulong a_offset, ulong a_row_stride, ulong a_column_stride, ulong a_panel_stride,
                global const REAL *b, ulong b_offset, ulong b_row_stride, ulong b_column_stride, ulong b_panel_stride,
                global REAL *out, ulong out_offset, ulong out_row_stride, ulong out_panel_stride)
{
    const ulong row_block = get_global_id(2) * get_global_size(1) + get_global_id(1);
    const ulong first_row = row_block * block_rows, last_row = min(first_row + block_rows, rows);
    const ulong first_column = get_global_id(0) * block_columns, last_column = min(first_column + block_columns, cols);
    a += a_offset;
    b += b_offset;
    out += out_offset;

    ulong r = first_row;
    REPEAT(r < last_row, r++) {
        ulong c = first_column;
        REPEAT(c + VECTOR <= last_column, c += VECTOR) {
            const vector x = load(a + ELEMENT(A_PANEL, r, c, a_row_stride, a_column_stride, a_panel_stride),
                                  a_column_stride);
            vector y = 0;
            if (HAS_B)
                y = load(b + ELEMENT(B_PANEL, r, c, b_row_stride, b_column_stride, b_panel_stride), b_column_stride);
            store_vector(operate(x, y, alpha, beta),
                         out + ELEMENT(OUT_PANEL, r, c, out_row_stride, 1, out_panel_stride));
        }
        if (c < last_column && c + VECTOR > last_column) {
            const uint count = (uint)(last_column - c);
            const vector x = load_some(a + ELEMENT(A_PANEL, r, c, a_row_stride, a_column_stride, a_panel_stride),
                                       a_column_stride, count);
            vector y = 0;
            if (HAS_B)
                y = load_some(b + ELEMENT(B_PANEL, r, c, b_row_stride, b_column_stride, b_panel_stride),
                              b_column_stride, count);
            store_part(operate(x, y, alpha, beta),
                       out + ELEMENT(OUT_PANEL, r, c, out_row_stride, 1, out_panel_stride), count);
        }
    }
}
