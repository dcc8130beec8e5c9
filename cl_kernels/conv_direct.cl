/* conv_direct: a convolution whose groups have few channels (depthwise: one), or one of its gradients, on CPUs.
 *
 *     KIND = FORWARD   target y[n,k,p,q] = f(sum over the c of k's group, r, s, of x[n,c,i,j] weight[k,c,r,s] + bias[k])
 *     KIND = INPUT     target x[n,c,i,j] = sum over the k of c's group, r, s, and the p, q that read it, of y weight
 *     KIND = WEIGHT    weight[k,c,r,s] = sum over n, p, q of x y
 *
 * The gradient of x is itself a convolution of y, with the window turned round, and y spread out by the stride, with
 * zeros in between. So both are: target[i,j] = sum over r, s of source[i STEP - shift + r DILATION, ...] window[r,s],
 * where the source is spread out by UP. A strip of the source, lines for four or more rows of the target, is copied to
 * local memory with what lies outside of the image as zeros; a line has its columns by what they leave modulo STEP, so
 * that any vector of the window is in one piece. Four rows of one vector are summed at a time.
 *
 * Memory: as in conv.cl. Constants (-D): REAL, VECTOR, KIND, HAS_BIAS, UNARY (FORWARD, see activation.h), SOURCES,
 * TARGETS (channels in a group: of the source, of the target; WEIGHT: of x, of y), R, S, and for rows and columns STEP_ROWS
 * ..., UP_ROWS ..., DILATION_ROWS ...
 * Launch: one work-item for each image and group (WEIGHT: for each group, source and target channel), work-groups of
 * one. `width` is ceil(columns of the target / VECTOR) VECTOR + (S - 1) DILATION_COLUMNS / STEP_COLUMNS, rounded down;
 * LINES(4) * STEP_COLUMNS * width * SOURCES (WEIGHT: 1) <= STRIP.
 * Limits: OpenCL 1.2; double needs the device to have it. What lies outside of an image, or between the elements of one
 * that is spread out, is multiplied as 0: an infinite factor gives NaN there. */

#define FORWARD 0
#define INPUT 1
#define WEIGHT 2
#if !defined(KIND) || !defined(HAS_BIAS) || !defined(UNARY) || !defined(SOURCES) || !defined(TARGETS) || \
    !defined(R) || !defined(S) || !defined(STEP_ROWS) || !defined(STEP_COLUMNS) || !defined(UP_ROWS) ||   \
    !defined(UP_COLUMNS) || !defined(DILATION_ROWS) || !defined(DILATION_COLUMNS)
#error "conv_direct needs -DREAL -DVECTOR -DKIND -DHAS_BIAS -DUNARY -DSOURCES -DTARGETS -DR -DS -DSTEP_ROWS ..."
#endif

#include "vector.h"
#include "activation.h"

#define STRIP (32768 / sizeof(REAL))
#define BLOCK 4
#define LINES(rows) (((rows) - 1) * STEP_ROWS + (R - 1) * DILATION_ROWS + 1)

/* Element s of the window: where its vector begins in a line, for column 0 of the target. */
#define COLUMN(s) ((s) * DILATION_COLUMNS % STEP_COLUMNS * width + (s) * DILATION_COLUMNS / STEP_COLUMNS)

static inline vector load_local(local const REAL *from)
{
    return *(local const loose_vector *)from;
}

/* One line of the strip, from row `row` of the source as it is spread out. */
static void fill_line(local REAL *line, uint width, global const REAL *image, long row, long height, long columns,
                      long shift)
{
    const bool inside = row >= 0 && row % UP_ROWS == 0 && row / UP_ROWS < height;
    image += inside ? row / UP_ROWS * columns : 0;
    for (uint phase = 0; phase < STEP_COLUMNS; phase++, line += width) {
        uint at = 0;
        if (inside) {
            long from = phase - shift; /* the column at `at`, moving by STEP_COLUMNS */
            for (; at < width && from < 0; at++, from += STEP_COLUMNS)
                line[at] = 0;
#if STEP_COLUMNS == 1 && UP_COLUMNS == 1
            for (; at + VECTOR <= width && from + VECTOR <= columns; at += VECTOR, from += VECTOR)
                *(local loose_vector *)(line + at) = load_vector(image + from);
#endif
            for (; at < width && from < columns * UP_COLUMNS; at++, from += STEP_COLUMNS)
                line[at] = from % UP_COLUMNS == 0 ? image[from / UP_COLUMNS] : 0;
        }
        for (; at < width; at++)
            line[at] = 0;
    }
}

/* Lines for `rows` rows of the target from `first` on. */
static void fill_strip(local REAL *strip, uint width, uint rows, global const REAL *image, long first, long height,
                       long columns, long shift_rows, long shift_columns)
{
    for (uint line = 0; line < LINES(rows); line++)
        fill_line(strip + line * STEP_COLUMNS * width, width, image, first * STEP_ROWS - shift_rows + line, height, columns,
                  shift_columns);
}

#if KIND != WEIGHT
/* Row r of the window of target channel t over source channel u, of the group. */
static inline REAL window(global const REAL *weight, ulong weight_ld, uint t, uint u, uint r, uint s)
{
#if KIND == FORWARD
    return weight[t * weight_ld + (u * R + r) * S + s];
#else
    return weight[u * weight_ld + (t * R + R - 1 - r) * S + S - 1 - s];
#endif
}

/* Line `line` of the block adds to row `row` of it: element r of the window, where there is one. */
#define ADD(row)                                                                                                        \
    if (line >= row * STEP_ROWS && (line - row * STEP_ROWS) % DILATION_ROWS == 0 &&                                     \
        (line - row * STEP_ROWS) / DILATION_ROWS < R)                                                                   \
        sum##row += x * tap[(line - row * STEP_ROWS) / DILATION_ROWS][s]

#define STORE(row)                                                                                                      \
    if (first + row < rows) {                                                                                           \
        if (count == VECTOR)                                                                                            \
            store_vector(apply(sum##row + bias), target + row * columns);                                               \
        else                                                                                                            \
            store_part(apply(sum##row + bias), target + row * columns, count);                                          \
    }

/* Four rows from `first` on of target channel t; strip begins at the first of them. */
static void sum_block(local const REAL *strip, ulong strip_channel, uint width, global const REAL *weight,
                      ulong weight_ld, uint t, REAL bias, global REAL *target, uint first, uint rows, uint columns)
{
    for (uint column = 0; column < columns; column += VECTOR, target += VECTOR) {
        const uint count = min(columns - column, (uint)VECTOR);
        vector sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
        for (uint u = 0; u < SOURCES; u++) {
            REAL tap[R][S];
#pragma unroll
            for (uint r = 0; r < R; r++)
#pragma unroll
                for (uint s = 0; s < S; s++)
                    tap[r][s] = window(weight, weight_ld, t, u, r, s);
#pragma unroll
            for (int line = 0; line < LINES(BLOCK); line++)
#pragma unroll
                for (int s = 0; s < S; s++) {
                    const vector x =
                        load_local(strip + u * strip_channel + line * STEP_COLUMNS * width + COLUMN(s) + column);
                    ADD(0);
                    ADD(1);
                    ADD(2);
                    ADD(3);
                }
        }
        STORE(0)
        STORE(1)
        STORE(2)
        STORE(3)
    }
}
#else
static inline REAL total(vector value)
{
    REAL line[VECTOR], sum = 0;
    VSTORE(value, line);
    for (uint i = 0; i < VECTOR; i++)
        sum += line[i];
    return sum;
}

/* Adds one row of the target, y, times the lines of the strip that its windows cover. */
static inline void add_row(local const REAL *strip, uint width, global const REAL *y, uint columns, vector sum[R][S])
{
    uint column = 0;
    for (; column + VECTOR <= columns; column += VECTOR) {
        const vector factor = load_vector(y + column);
#pragma unroll
        for (uint r = 0; r < R; r++)
#pragma unroll
            for (uint s = 0; s < S; s++)
                sum[r][s] += factor * load_local(strip + r * DILATION_ROWS * STEP_COLUMNS * width + COLUMN(s) + column);
    }
    for (; column < columns; column++) /* by itself: what lies beside it may be infinite */
#pragma unroll
        for (uint r = 0; r < R; r++)
#pragma unroll
            for (uint s = 0; s < S; s++) {
                const REAL product = y[column] * strip[r * DILATION_ROWS * STEP_COLUMNS * width + COLUMN(s) + column];
#if VECTOR == 1
                sum[r][s] += product;
#else
                sum[r][s].s0 += product;
#endif
            }
}
#endif

kernel void conv_direct(ulong groups, ulong n, uint width, long source_rows, long source_columns, uint rows, uint columns,
                        long shift_rows, long shift_columns,
                        global REAL *source, ulong source_offset, ulong source_ld,
                        global REAL *weight, ulong weight_offset, ulong weight_ld,
                        global REAL *target, ulong target_offset, ulong target_ld,
                        global const REAL *bias, ulong bias_offset)
{
    local REAL strip[STRIP];
    const ulong line_elements = (ulong)STEP_COLUMNS * width, plane = (ulong)rows * columns,
                source_plane = (ulong)(source_rows * source_columns);
    const ulong group = get_global_id(0) % groups, image = get_global_id(0) / groups; /* WEIGHT: a pair of channels */
    source += source_offset + group * SOURCES * source_plane;
    target += target_offset + group * TARGETS * plane;
    bias += bias_offset + group * TARGETS;
#if KIND == WEIGHT
    const ulong channels = 1;
#else
    const ulong channels = SOURCES;
#endif
    /* As many rows, a multiple of four, as there are lines for. */
    const ulong lines = STRIP / (line_elements * channels);
    const uint at_once = (uint)((lines - LINES(1)) / STEP_ROWS + 1) / BLOCK * BLOCK;
#if KIND != WEIGHT
#if KIND == FORWARD
    weight += weight_offset + group * TARGETS * weight_ld;
#else
    weight += weight_offset + group * SOURCES * weight_ld;
#endif
    source += image * source_ld;
    target += image * target_ld;
    for (uint first = 0; first < rows; first += at_once) {
        const uint blocks = (min(at_once, rows - first) + BLOCK - 1) / BLOCK;
        const ulong channel = LINES(blocks * BLOCK) * line_elements;
        for (uint u = 0; u < SOURCES; u++)
            fill_strip(strip + u * channel, width, blocks * BLOCK, source + u * source_plane, first, source_rows,
                       source_columns, shift_rows, shift_columns);
        for (uint t = 0; t < TARGETS; t++)
            for (uint block = 0; block < blocks; block++)
                sum_block(strip + block * BLOCK * STEP_ROWS * line_elements, channel, width, weight, weight_ld, t,
                          HAS_BIAS ? bias[t] : 0, target + t * plane + (first + block * BLOCK) * (ulong)columns,
                          first + block * BLOCK, rows, columns);
    }
#else
    const uint t = image / SOURCES, u = image % SOURCES;
    vector sum[R][S];
    for (uint i = 0; i < R * S; i++)
        sum[i / S][i % S] = 0;
    for (ulong i = 0; i < n; i++)
        for (uint first = 0; first < rows; first += at_once) {
            const uint now = min(at_once, rows - first);
            fill_strip(strip, width, now, source + i * source_ld + u * source_plane, first, source_rows, source_columns,
                       shift_rows, shift_columns);
            for (uint row = 0; row < now; row++)
                add_row(strip + row * STEP_ROWS * line_elements, width,
                        target + i * target_ld + t * plane + (first + row) * (ulong)columns, columns, sum);
        }
    weight += weight_offset + (group * TARGETS + t) * weight_ld + u * R * S;
    for (uint i = 0; i < R * S; i++)
        weight[i] = total(sum[i / S][i % S]);
#endif
}
