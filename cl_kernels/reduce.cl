/* reduce: sums, maxima and squared errors over one axis, or over all, of row-major matrices.
 *
 *     OPERATION        of                        value of an element     joined by
 *     SUM              a line of a               a[e]                    +
 *     MAX              a line of a               a[e]                    max (NaN if any is NaN)
 *     SQUARED_ERROR    all of a and b            (a[e] - b[e])^2         +
 *
 *     out[i] = scale * result, or joined with out[i] if `accumulate`.
 *
 * The order depends on the shape alone. A line is dealt to LANES lanes, element e to lane e % LANES; a lane adds
 * CHAIN elements one after the other, then adds that chain to its sum with the rounding error kept apart (Knuth's
 * two-sum), so that the error does not grow with the length; the lanes are added as a tree:
 *
 *     element   0 1 2 ... 63 | 64 65 ... 127 | ...        one step = LANES elements, one unit = CHAIN steps
 *               | | |     |
 *     lane      0 1 2 ... 63      chain += element;  every CHAIN steps: (sum, rest) += chain, chain = 0
 *               +-+ +-+ ...       tree of sums + tree of rests
 *
 * Error of a sum: at most about (CHAIN + 10) eps * sum of |a|, however long the line; typically a few eps.
 * reduce_rows does the same down each column, without lanes. Few long lines are cut into parts at unit boundaries:
 * a first launch writes a result per part and output to a workspace, [part][output], and reduce_parts joins them.
 *
 * Memory: element e of line l at offset + l * line_stride + (e / width) * ld + e % width: a line may run over rows of
 * `width` elements. Offsets and strides count elements.
 *
 * Launch: reduce_lines: groups of LANES / LANES_PER_ITEM work-items, (parts, y, z) groups, y * z >=
 *                       ceil(lines / block_lines).
 *         reduce_rows: (ceil(cols / LANES_PER_ITEM), parts) work-items or more in the first dimension.
 *         reduce_parts: as many work-items as outputs.
 * CPU: LANES_PER_ITEM = LANES, wide vectors; GPU: one lane a work-item, neighbours read neighbouring memory.
 *
 * Limits: extents > 0; VECTOR divides LANES_PER_ITEM, that divides LANES. OpenCL 1.2; double needs the device to have
 * it. Not for -cl-fast-relaxed-math or -cl-finite-math-only, which lose NaN and the two-sum. */

#if !defined(REAL) || !defined(VECTOR) || !defined(LANES_PER_ITEM) || !defined(OPERATION)
#error "reduce needs -DREAL=float|double -DVECTOR=1|2|4|8|16 -DLANES_PER_ITEM=1|..|64 -DOPERATION=SUM|MAX|SQUARED_ERROR"
#endif

/* The order of summation: a change changes results. */
#define LANES 64
#define CHAIN 64

/* Numbers for the preprocessor. */
#define SUM 1
#define MAX 2
#define SQUARED_ERROR 3
#if OPERATION < SUM || OPERATION > SQUARED_ERROR
#error "OPERATION is none of SUM, MAX, SQUARED_ERROR"
#endif
#if LANES % LANES_PER_ITEM || LANES_PER_ITEM % VECTOR
#error "VECTOR must divide LANES_PER_ITEM, and that LANES"
#endif

#define PASTE(x, y) x##y
#define JOIN(x, y) PASTE(x, y)
#if VECTOR == 1
typedef REAL vector;
#define VLOAD(pointer) (*(pointer))
#define VSTORE(value, pointer) (*(pointer) = (value))
#else
typedef JOIN(REAL, VECTOR) vector;
#define VLOAD(pointer) JOIN(vload, VECTOR)(0, pointer)
#define VSTORE(value, pointer) JOIN(vstore, VECTOR)(value, 0, pointer)
#endif
#define VECTORS (LANES_PER_ITEM / VECTOR)
#define ITEMS (LANES / LANES_PER_ITEM)
#if LANES == LANES_PER_ITEM
#define LANES_BARRIER() /* a group of one; PoCL keeps values in registers where there is no barrier */
#else
#define LANES_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#endif

/* Each for a number and for a vector. */
#if OPERATION == MAX
#define IDENTITY (-(REAL)INFINITY)
#define JOINED(x, y) ((((y) > (x)) | ((y) != (y))) ? (y) : (x))
#else
#define IDENTITY ((REAL)0)
#define JOINED(x, y) ((x) + (y))
#endif
#if OPERATION == SQUARED_ERROR
#define VALUE(a, b, at, LOAD) ((LOAD((a) + (at)) - LOAD((b) + (at))) * (LOAD((a) + (at)) - LOAD((b) + (at))))
#else
#define VALUE(a, b, at, LOAD) LOAD((a) + (at))
#endif
#define LOAD_ONE(pointer) (*(pointer))

/* sum, rest += chain. The rest becomes NaN where the sum overflows: finished() drops it there. */
#if OPERATION == MAX
#define ADD_CHAIN(type, sum, rest, chain) (sum) = JOINED(sum, chain)
#else
#define ADD_CHAIN(type, sum, rest, chain)                                                                       \
    do {                                                                                                        \
        const type total_ = (sum) + (chain), added_ = total_ - (sum);                                           \
        (rest) += ((sum) - (total_ - added_)) + ((chain) - added_);                                             \
        (sum) = total_;                                                                                         \
    } while (0)
#endif

static REAL finished(REAL sum, REAL rest)
{
    return rest - rest == 0 ? sum + rest : sum;
}

static void put(global REAL *out, REAL value, REAL scale, uint accumulate)
{
    value *= scale;
    *out = accumulate ? JOINED(*out, value) : value;
}

static ulong ceil_div(ulong a, ulong b)
{
    return (a + b - 1) / b;
}

/* The same as reduce_lanes for a line of fewer elements than lanes: each lane has one, or none. */
static void reduce_short(global const REAL *a, global const REAL *b, ulong begin, ulong end, uint lanes,
                         local REAL *lane_sum, local REAL *lane_rest)
{
    for (uint i = 0; i < LANES_PER_ITEM && begin + i < lanes; i++) {
        lane_sum[i] = begin + i < end ? VALUE(a, b, begin + i, LOAD_ONE) : IDENTITY;
        lane_rest[i] = 0;
    }
}

/* One work-item's lanes of elements begin .. end of a line. b is where the second operand lies, or a. */
static void reduce_lanes(global const REAL *a, ulong lda, global const REAL *b, ulong ldb, ulong width,
                         ulong begin, ulong end, local REAL *lane_sum, local REAL *lane_rest)
{
    vector sum[VECTORS], rest[VECTORS], chain[VECTORS];
#pragma unroll
    for (uint v = 0; v < VECTORS; v++) {
        sum[v] = IDENTITY;
        rest[v] = 0;
    }

    ulong row = begin / width, column = begin % width;
    for (ulong e = begin; e < end;) {
#pragma unroll
        for (uint v = 0; v < VECTORS; v++)
            chain[v] = IDENTITY;
        for (uint step = 0; step < CHAIN && e < end; step++) {
            if (e + LANES_PER_ITEM <= end && column + LANES_PER_ITEM <= width) {
                global const REAL *from = a + row * lda + column, *other = b + row * ldb + column;
#pragma unroll
                for (uint v = 0; v < VECTORS; v++)
                    chain[v] = JOINED(chain[v], VALUE(from, other, v * VECTOR, VLOAD));
            } else {
                REAL line[LANES_PER_ITEM];
#pragma unroll
                for (uint v = 0; v < VECTORS; v++)
                    VSTORE(chain[v], line + v * VECTOR);
                for (uint i = 0; i < LANES_PER_ITEM && e + i < end; i++) {
                    const ulong wrapped = (column + i) / width, c = (column + i) % width;
                    global const REAL *from = a + (row + wrapped) * lda, *other = b + (row + wrapped) * ldb;
                    line[i] = JOINED(line[i], VALUE(from, other, c, LOAD_ONE));
                }
#pragma unroll
                for (uint v = 0; v < VECTORS; v++)
                    chain[v] = VLOAD(line + v * VECTOR);
            }
            e += LANES;
            column += LANES;
            if (column >= width) {
                row += column / width;
                column %= width;
            }
        }
#pragma unroll
        for (uint v = 0; v < VECTORS; v++)
            ADD_CHAIN(vector, sum[v], rest[v], chain[v]);
    }

#pragma unroll
    for (uint v = 0; v < VECTORS; v++) {
        VSTORE(sum[v], lane_sum + v * VECTOR);
        VSTORE(rest[v], lane_rest + v * VECTOR);
    }
}

kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void reduce_lines(ulong lines, ulong length, ulong width, ulong block_lines, REAL scale, uint accumulate,
                  global const REAL *a, ulong a_offset, ulong lda, ulong line_stride,
                  global const REAL *b, ulong b_offset, ulong ldb, global REAL *out, ulong out_offset)
{
    local REAL lane_sum[LANES], lane_rest[LANES];
    const uint item = get_local_id(0), first_lane = item * LANES_PER_ITEM;
    const ulong part = get_group_id(0), parts = get_num_groups(0), units = ceil_div(length, LANES * CHAIN);
    const ulong begin = units * part / parts * (LANES * CHAIN);
    const ulong end = min(units * (part + 1) / parts * (LANES * CHAIN), length);
    const ulong line_block = get_group_id(2) * get_num_groups(1) + get_group_id(1);
    const ulong first_line = line_block * block_lines, last_line = min(first_line + block_lines, lines);

    uint lanes = LANES; /* those that have elements, as a power of two */
    while (lanes > 1 && lanes / 2 >= length)
        lanes /= 2;
    for (ulong line = first_line; line < last_line; line++) {
        global const REAL *from = a + a_offset + line * line_stride, *other = b + b_offset;
        if (lanes < LANES && width == length)
            reduce_short(from, other, first_lane, length, lanes, lane_sum + first_lane, lane_rest + first_lane);
        else
            reduce_lanes(from, lda, other, ldb, width, begin + first_lane, end, lane_sum + first_lane,
                         lane_rest + first_lane);
        for (uint half_lanes = lanes / 2; half_lanes > 0; half_lanes /= 2) {
            LANES_BARRIER();
            for (uint i = item; i < half_lanes; i += ITEMS) {
                lane_sum[i] = JOINED(lane_sum[i], lane_sum[i + half_lanes]);
                lane_rest[i] += lane_rest[i + half_lanes];
            }
        }
        if (item == 0)
            put(out + out_offset + part * lines + line, finished(lane_sum[0], lane_rest[0]), scale, accumulate);
        LANES_BARRIER();
    }
}

/* LANES_PER_ITEM whole columns of rows begin .. end. */
static void reduce_columns(global const REAL *a, ulong lda, ulong begin, ulong end, REAL *results)
{
    vector sum[VECTORS], rest[VECTORS], chain[VECTORS];
#pragma unroll
    for (uint v = 0; v < VECTORS; v++) {
        sum[v] = IDENTITY;
        rest[v] = 0;
    }
    for (ulong unit = begin; unit < end; unit += CHAIN) {
#pragma unroll
        for (uint v = 0; v < VECTORS; v++)
            chain[v] = IDENTITY;
        for (ulong r = unit; r < min(unit + CHAIN, end); r++)
#pragma unroll
            for (uint v = 0; v < VECTORS; v++) {
                const vector x = VLOAD(a + r * lda + v * VECTOR);
                chain[v] = JOINED(chain[v], x);
            }
#pragma unroll
        for (uint v = 0; v < VECTORS; v++)
            ADD_CHAIN(vector, sum[v], rest[v], chain[v]);
    }
#pragma unroll
    for (uint v = 0; v < VECTORS; v++)
        VSTORE(rest[v] - rest[v] == (vector)0 ? sum[v] + rest[v] : sum[v], results + v * VECTOR);
}

/* The same for count < LANES_PER_ITEM columns. */
static void reduce_few_columns(global const REAL *a, ulong lda, ulong begin, ulong end, uint count, REAL *results)
{
    REAL sum[LANES_PER_ITEM], rest[LANES_PER_ITEM], chain[LANES_PER_ITEM];
    for (uint i = 0; i < count; i++) {
        sum[i] = IDENTITY;
        rest[i] = 0;
    }
    for (ulong unit = begin; unit < end; unit += CHAIN) {
        for (uint i = 0; i < count; i++)
            chain[i] = IDENTITY;
        for (ulong r = unit; r < min(unit + CHAIN, end); r++)
            for (uint i = 0; i < count; i++)
                chain[i] = JOINED(chain[i], a[r * lda + i]);
        for (uint i = 0; i < count; i++)
            ADD_CHAIN(REAL, sum[i], rest[i], chain[i]);
    }
    for (uint i = 0; i < count; i++)
        results[i] = finished(sum[i], rest[i]);
}

kernel void reduce_rows(ulong rows, ulong cols, REAL scale, uint accumulate,
                        global const REAL *a, ulong a_offset, ulong lda, global REAL *out, ulong out_offset)
{
    const ulong part = get_global_id(1), parts = get_global_size(1), units = ceil_div(rows, CHAIN);
    const ulong begin = units * part / parts * CHAIN, end = min(units * (part + 1) / parts * CHAIN, rows);
    const ulong column = get_global_id(0) * LANES_PER_ITEM;
    if (column >= cols)
        return;
    const uint count = (uint)min(cols - column, (ulong)LANES_PER_ITEM);
    global const REAL *from = a + a_offset + column;
    global REAL *to = out + out_offset + part * cols + column;

    REAL results[LANES_PER_ITEM];
    if (count == LANES_PER_ITEM)
        reduce_columns(from, lda, begin, end, results);
    else
        reduce_few_columns(from, lda, begin, end, count, results);
    for (uint i = 0; i < count; i++)
        put(to + i, results[i], scale, accumulate);
}

kernel void reduce_parts(ulong outputs, ulong parts, REAL scale, uint accumulate,
                         global const REAL *partial, global REAL *out, ulong out_offset)
{
    const ulong i = get_global_id(0);
    if (i >= outputs)
        return;
    REAL sum = IDENTITY, rest = 0;
    for (ulong part = 0; part < parts; part++)
        ADD_CHAIN(REAL, sum, rest, partial[part * outputs + i]);
    put(out + out_offset + i, finished(sum, rest), scale, accumulate);
}
