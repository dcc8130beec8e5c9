/* pool: the largest element or the mean of each window of an image, or the gradient of that.
 *
 *     GRADIENT = 0   out[p,q] = largest (MEAN = 0) or mean (MEAN = 1) of x[i,j] over the window at (p, q)
 *     GRADIENT = 1   out[i,j] = sum over the windows (p, q) that hold (i, j) of
 *                                 MEAN = 0   dy[p,q] where x[i,j] is the window's largest element
 *                                 MEAN = 1   dy[p,q] / elements of the window
 *
 * of each image and channel. The window at (p, q) is R x S elements from row p * STRIDE_ROWS - PADDING_ROWS and column
 * q * STRIDE_COLUMNS - PADDING_COLUMNS on, those outside of the image left out. Of equal elements the first in
 * row-major order is the largest; NaN is larger than any number.
 *
 * Memory: an image is a row of a row-major matrix, element (c, i, j) of image n at
 * offset + n * ld + (c * h + i) * w + j; dy and, without GRADIENT, out are p x q likewise. Offsets and leading dimensions count elements. x is not read where
 * GRADIENT and MEAN are 1, dy where GRADIENT is 0.
 * Constants (-D): REAL, GRADIENT, MEAN, R, S, STRIDE_ROWS, STRIDE_COLUMNS, PADDING_ROWS, PADDING_COLUMNS.
 * Launch: global size (ceil(columns of out / block), y, z), y * z >= n * c * rows of out; rows run on from y to y. A
 * work-item does `block` elements of a row.
 * Limits: R, S, strides >= 1; 0 <= padding < R (S). OpenCL 1.2; double needs the device to have it. */

#if !defined(REAL) || !defined(GRADIENT) || !defined(MEAN) || !defined(R) || !defined(S)
#error "pool needs -DREAL=float|double -DGRADIENT=0|1 -DMEAN=0|1 -DR -DS"
#endif
#if !defined(STRIDE_ROWS) || !defined(STRIDE_COLUMNS) || !defined(PADDING_ROWS) || !defined(PADDING_COLUMNS)
#error "pool needs -DSTRIDE_ROWS, -DSTRIDE_COLUMNS, -DPADDING_ROWS and -DPADDING_COLUMNS"
#endif

/* Rows [first.x, last.x) and columns [first.y, last.y) of an image. */
typedef struct window {
    long2 first, last;
} window;

static inline window window_at(long p, long q, long h, long w)
{
    const long2 from = (long2)(p * STRIDE_ROWS - PADDING_ROWS, q * STRIDE_COLUMNS - PADDING_COLUMNS);
    const window at = {max(from, (long2)(0)), min(from + (long2)(R, S), (long2)(h, w))};
    return at;
}

static inline REAL size_of(window at)
{
    return (REAL)((at.last.x - at.first.x) * (at.last.y - at.first.y));
}

/* Whether y, which comes later, is the larger one. */
static inline bool beats(REAL y, REAL x)
{
    return y > x || (isnan(y) && !isnan(x));
}

#if !GRADIENT
static REAL pooled(window at, global const REAL *x, long w)
{
    REAL result = MEAN ? 0 : x[at.first.x * w + at.first.y];
    for (long i = at.first.x; i < at.last.x; i++)
        for (long j = at.first.y; j < at.last.y; j++) {
            const REAL y = x[i * w + j];
            result = MEAN ? result + y : beats(y, result) ? y : result;
        }
    return MEAN ? result / size_of(at) : result;
}
#elif MEAN
static inline REAL part_of(window at, long row, long column, global const REAL *x, long w)
{
    return 1 / size_of(at);
}
#else
/* 1 where x[row, column] is the window's largest element. */
static REAL part_of(window at, long row, long column, global const REAL *x, long w)
{
    const REAL own = x[row * w + column];
    bool largest = true;
    for (long i = at.first.x; i < at.last.x; i++)
        for (long j = at.first.y; j < at.last.y; j++) {
            const REAL y = x[i * w + j];
            const bool before = i < row || (i == row && j < column);
            largest = largest && (before ? beats(own, y) : !beats(y, own));
        }
    return largest;
}
#endif

kernel void pool(ulong n, ulong c, ulong h, ulong w, ulong p, ulong q, ulong block,
                 global const REAL *x, ulong x_offset, ulong x_ld, global const REAL *dy, ulong dy_offset, ulong dy_ld,
                 global REAL *out, ulong out_offset, ulong out_ld)
{
    const ulong rows = GRADIENT ? h : p, columns = GRADIENT ? w : q;
    const ulong line = get_global_id(2) * get_global_size(1) + get_global_id(1);
    const ulong image = line / (c * rows), channel = line / rows % c;
    const long row = (long)(line % rows);
    const ulong first = get_global_id(0) * block, last = min(first + block, columns);
    if (image >= n)
        return;
    global const REAL *plane = x + x_offset + image * x_ld + channel * h * w;
    global REAL *to = out + out_offset + image * out_ld + (channel * rows + (ulong)row) * columns;
    for (ulong column = first; column < last; column++) {
#if GRADIENT
        global const REAL *of = dy + dy_offset + image * dy_ld + channel * p * q;
        const long i = row + PADDING_ROWS, j = (long)column + PADDING_COLUMNS;
        REAL sum = 0;
        for (long a = i < R ? 0 : (i - R) / STRIDE_ROWS + 1; a <= i / STRIDE_ROWS && a < (long)p; a++)
            for (long b = j < S ? 0 : (j - S) / STRIDE_COLUMNS + 1; b <= j / STRIDE_COLUMNS && b < (long)q; b++) {
                const REAL part = part_of(window_at(a, b, (long)h, (long)w), row, (long)column, plane, (long)w);
                if (part != 0)
                    sum += of[a * (long)q + b] * part;
            }
        to[column] = sum;
#else
        to[column] = pooled(window_at(row, (long)column, (long)h, (long)w), plane, (long)w);
#endif
    }
}
