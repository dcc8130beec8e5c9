/* conv_panel: convolutions on a CPU, as products whose operand B is read out of the images, never copied to memory.
 *
 *     C[i,j] = sum over t of A[i,t] B[t,j]      in each of `groups` groups
 *
 *     KIND      C[i,j]            i   j             t             A        B
 *     FORWARD   y[image,k,p,q]    k   (image,p,q)   (c,r,s)       weight   x, or 0 outside
 *     INPUT     x[image,c,h,w]    c   (image,h,w)   (k,r,s)       weight   y, or 0 without a window
 *     WEIGHT    weight[k,c,r,s]   k   (c,r,s)       (image,p,q)   y        x, or 0 outside
 *
 * FORWARD ends with C = f(C + bias[i]). How tiles, blocks and copies work is in gemm_panel.cl: here A and B are
 * always copied to local memory. Columns j run on from image to image, so that small images fill panels; a tile that
 * lies in two images is stored element by element.
 *
 * Memory and extents: as in conv.cl.
 * Constants (-D): REAL, VECTOR, KIND, HAS_BIAS, UNARY (of FORWARD, else 0 and NONE); TILE_M, PANEL, K_BLOCK,
 * ROW_BLOCK > 0, PANELS_PER_GROUP, PREFETCH as in gemm_panel.cl.
 * Local memory: ROW_BLOCK * (K_BLOCK + 16) + K_BLOCK * PANEL elements and 128 bytes.
 * Launch: 3 dimensions, local size (1,1,1), global size (x, y, groups), x and y as in gemm_panel.cl with C's m and n.
 * Limits: all extents > 0. Sums are in REAL, and their order depends on the extents, K_BLOCK and PANEL alone.
 * OpenCL 1.2. */

#define FORWARD 0
#define INPUT 1
#define WEIGHT 2
#if !defined(KIND) || !defined(HAS_BIAS) || !defined(UNARY)
#error "conv_panel needs -DKIND=FORWARD|INPUT|WEIGHT -DHAS_BIAS=0|1 -DUNARY"
#endif
#if !defined(TILE_M) || !defined(PANEL) || !defined(K_BLOCK) || !defined(ROW_BLOCK) || !defined(PANELS_PER_GROUP)
#error "conv_panel needs -DTILE_M, -DPANEL, -DK_BLOCK, -DROW_BLOCK and -DPANELS_PER_GROUP"
#endif
#if PANEL % VECTOR != 0 || K_BLOCK % PANEL != 0 || ROW_BLOCK % TILE_M != 0 || ROW_BLOCK < 1
#error "conv_panel: PANEL must be a multiple of VECTOR, K_BLOCK of PANEL, ROW_BLOCK of TILE_M"
#endif

#define SCALED 0
#define BIAS 0
#define GATE 0
#define RESIDUAL 0
#define A_TRANSPOSED 0
#define A_COPIED 1
#define B_COPIED 1
#include "vector.h"
#include "activation.h"
#include "gemm_epilogue.h"
#include "gemm_panel_tile.h"
#include "conv_window.h"

#define FINISHED (HAS_BIAS || UNARY != NONE)

/* A row of A: element t at (t / run) * jump + t % run. */
typedef struct row_form {
    ulong stride, run, jump;
} row_form;

/* The images that B is read from, and how a window lies on them, for functions that are not expanded in line. */
typedef struct images {
    global const REAL *data;
    ulong count, channels, ld;
    long rows, columns;           /* of an image */
    long places_rows, places_columns; /* of the other image: p x q (FORWARD, WEIGHT), h x w (INPUT) */
    long window_rows, window_columns;
    long stride_rows, stride_columns, padding_rows, padding_columns, dilation_rows, dilation_columns;
} images;

/* Columns of a panel that lie on one row of one image. */
typedef struct run {
    uint first, count;
    ulong image;
    long row, column;
} run;

/* out = A[rows, depth] from t on, in tiles as multiply() reads them: rows that are not there repeat the last one. */
static void copy_a(local REAL *out, ulong rows, ulong depth, global const REAL *a, ulong t, row_form form)
{
    const ulong tiles = ceil_div(rows, TILE_M) * TILE_M;
    for (ulong i = 0; i < tiles; i++) {
        global const REAL *line = a + min(i, rows - 1) * form.stride;
        local REAL *to = out + i * A_PITCH;
        ulong inside = t % form.run, jumps = t / form.run;
        for (ulong at = 0, count; at < depth; at += count, inside = 0, jumps++) {
            global const REAL *from = line + jumps * form.jump + inside;
            count = min(form.run - inside, depth - at);
            ulong e = 0;
            for (; e + VECTOR <= count; e += VECTOR)
                *(local loose_vector *)(to + at + e) = load_vector(from + e);
            for (; e < count; e++)
                to[at + e] = from[e];
        }
    }
}

#if KIND != WEIGHT
/* The runs of columns j .. j + columns. */
static uint find_runs(const images *b, ulong j, uint columns, run *runs)
{
    const ulong plane = (ulong)(b->places_rows * b->places_columns);
    uint count = 0;
    for (uint at = 0; at < columns; count++) {
        const ulong pixel = (j + at) % plane;
        const ulong column = pixel % (ulong)b->places_columns;
        const run now = {at, (uint)min((ulong)(columns - at), (ulong)b->places_columns - column), (j + at) / plane,
                         (long)pixel / b->places_columns, (long)column};
        runs[count] = now;
        at += now.count;
    }
    return count;
}

/* The place whose window's element lies at `from`, counted from the first one; -1 = none. Divisions are slow. */
static inline long place_of(long from, long stride)
{
    return stride == 1 ? from : from >= 0 && from % stride == 0 ? from / stride : -1;
}

/* One by one: where the stride is not 1, and at the ends of what may be read. */
static __attribute__((noinline))
void gather(local REAL *out, const images *b, const run *now, global const REAL *row, long s1)
{
    const long count = now->count, step = b->stride_columns;
    for (long e = 0; e < count; e++)
        out[e] = 0;
#if KIND == FORWARD
    const long from = now->column * step - b->padding_columns + s1 * b->dilation_columns;
    const long first = from < 0 ? (-from + step - 1) / step : 0;
    const long last = min(count, b->columns > from ? (b->columns - from + step - 1) / step : 0);
    for (long e = first; e < last; e++)
        out[e] = row[from + e * step];
#else
    const long from = now->column + b->padding_columns - s1 * b->dilation_columns;
    const long first = from < 0 ? -from : (step - from % step) % step;
    for (long e = first, place = (from + first) / step; e < count && place < b->columns; e += step, place++)
        out[e] = row[place];
#endif
}

/* out[0 .. depth)[0 .. PANEL) = B[t .. t + depth)[j .. j + columns). Whole vectors are copied, beyond the end of a run
 * into the next one, which is written later, and zeros go over what is outside of the image. */
static __attribute__((noinline))
void copy_b(local REAL *out, ulong depth, uint columns, const images *b, ulong t, ulong j)
{
    run runs[PANEL];
    const uint run_count = find_runs(b, j, columns, runs);
    const long window = b->window_rows * b->window_columns;
    const long end = (long)((b->count - 1) * b->ld + b->channels * (ulong)(b->rows * b->columns));
    long channel = (long)t / window, r1 = (long)t % window / b->window_columns, s1 = (long)t % b->window_columns;
    for (ulong e = 0; e < depth; e++, out += PANEL) {
        for (uint x = 0; x < run_count; x++) {
            const run *now = &runs[x];
            local REAL *to = out + now->first;
#if KIND == FORWARD
            const long row = now->row * b->stride_rows - b->padding_rows + r1 * b->dilation_rows;
            const long column = now->column - b->padding_columns + s1 * b->dilation_columns;
#else
            const long row = place_of(now->row + b->padding_rows - r1 * b->dilation_rows, b->stride_rows);
            const long column = now->column + b->padding_columns - s1 * b->dilation_columns;
#endif
            const long count = now->count;
            if (row < 0 || row >= b->rows) {
                for (long v = 0; v < count; v += VECTOR)
                    *(local loose_vector *)(to + v) = 0;
                continue;
            }
            const long begin = (long)(now->image * b->ld) + (channel * b->rows + row) * b->columns;
            const long first = begin + column;
            if (b->stride_columns != 1 || first < 0 || first + count + VECTOR > end) {
                gather(to, b, now, b->data + begin, s1);
                continue;
            }
            for (long v = 0; v < count; v += VECTOR)
                *(local loose_vector *)(to + v) = load_vector(b->data + first + v);
            for (long v = 0; v < min(-column, count); v++)
                to[v] = 0;
            for (long v = max(b->columns - column, 0L); v < count; v++)
                to[v] = 0;
        }
        for (uint v = columns; v < PANEL; v++)
            out[v] = 0;
        if (++s1 == b->window_columns) {
            s1 = 0;
            if (++r1 == b->window_rows) {
                r1 = 0;
                channel++;
            }
        }
    }
}
#else
/* Column x of out = the pixels that window element (channel, r1, s1) lies on, from place t on. */
static __attribute__((noinline))
void copy_column(local REAL *out, ulong depth, const images *b, ulong t, long channel, long r1, long s1)
{
    const ulong plane = (ulong)(b->places_rows * b->places_columns);
    for (ulong at = 0; at < depth;) {
        const ulong pixel = (t + at) % plane;
        const long q = (long)pixel % b->places_columns;
        const long row = (long)pixel / b->places_columns * b->stride_rows - b->padding_rows + r1 * b->dilation_rows;
        const long column = q * b->stride_columns - b->padding_columns + s1 * b->dilation_columns;
        const long count = min(b->places_columns - q, (long)(depth - at));
        global const REAL *from = b->data + (t + at) / plane * b->ld + (channel * b->rows + row) * b->columns;
        local REAL *to = out + at * PANEL;
        /* [first, last) lies inside of the image. */
        const bool inside = row >= 0 && row < b->rows && column < b->columns;
        const long step = b->stride_columns;
        const long first = !inside ? count : column >= 0 ? 0 : min(count, (-column + step - 1) / step);
        const long last = !inside ? count : min(count, (b->columns - column + step - 1) / step);
        for (long e = 0; e < first; e++)
            to[e * PANEL] = 0;
        if (step == 1)
#pragma unroll 8
            for (long e = first; e < last; e++)
                to[e * PANEL] = from[column + e];
        else
            for (long e = first; e < last; e++)
                to[e * PANEL] = from[column + e * step];
        for (long e = max(first, last); e < count; e++)
            to[e * PANEL] = 0;
        at += (ulong)count;
    }
}

static void copy_b(local REAL *out, ulong depth, uint columns, const images *b, ulong t, ulong j)
{
    const ulong window = (ulong)(b->window_rows * b->window_columns);
    for (uint x = 0; x < PANEL; x++)
        if (x < columns)
            copy_column(out + x, depth, b, t, (long)((j + x) / window), (long)((j + x) % window) / b->window_columns,
                        (long)(j + x) % b->window_columns);
        else
            for (ulong e = 0; e < depth; e++)
                out[e * PANEL + x] = 0;
}
#endif

/* A tile that lies in several images: column j of the panel is pixel (pixel + j) % plane of the image at
 * (pixel + j) / plane * image_stride. */
static __attribute__((noinline))
void multiply_across(uint rows, uint columns, ulong depth, bool adds, a_pointer a, b_pointer b, global REAL *c,
                     ulong row_stride, ulong image_stride, ulong pixel, ulong plane)
{
    vector sum[TILE_M][VECTORS];
    REAL line[TILE_M * PANEL];
    multiply(rows, depth, a, A_PITCH, b, sum, c, 0);
#pragma unroll
    for (uint r = 0; r < TILE_M; r++)
#pragma unroll
        for (uint v = 0; v < VECTORS; v++)
            VSTORE(sum[r][v], line + r * PANEL + v * VECTOR);
    for (uint x = 0; x < columns; x++) {
        global REAL *to = c + (pixel + x) / plane * image_stride + (pixel + x) % plane;
        for (uint r = 0; r < rows; r++)
            to[r * row_stride] = line[r * PANEL + x] + (adds ? to[r * row_stride] : 0);
    }
}

#if FINISHED
/* f(C + bias) of [rows, columns] from (i, j) on. */
static __attribute__((noinline))
void finish_block(ulong rows, ulong columns, global const REAL *bias, ulong i, ulong j, global REAL *c, ulong plane,
                  ulong image_stride)
{
    for (ulong r = i; r < i + rows; r++) {
#if HAS_BIAS
        const vector add = bias[r];
#else
        const vector add = 0;
#endif
        for (ulong x = j, count; x < j + columns; x += count) {
            global REAL *to = c + x / plane * image_stride + r * plane + x % plane;
            count = min(plane - x % plane, j + columns - x);
            ulong v = 0;
#pragma unroll 1
            for (; v + VECTOR <= count; v += VECTOR)
                store_vector(apply(load_vector(to + v) + add), to + v);
            if (v < count)
                store_part(apply(load_part(to + v, (uint)(count - v)) + add), to + v, (uint)(count - v));
        }
    }
}
#endif

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void conv_panel(CONV_EXTENTS,
                global REAL *x, ulong x_offset, ulong x_ld, global REAL *weight, ulong weight_offset, ulong weight_ld,
                global REAL *y, ulong y_offset, ulong y_ld, global REAL *bias, ulong bias_offset)
{
    const REAL alpha = 1;
    const epilogue e = EPILOGUE;
    local REAL a_copy[ROW_BLOCK * A_PITCH + K_BLOCK * PANEL + 2 * LINE];

    /* This group's operands. */
    const ulong group = get_global_id(2);
    x += x_offset + group * c * h * w;
    y += y_offset + group * k * p * q;
    weight += weight_offset + group * k * weight_ld;
#if KIND == INPUT
    const images b = {y, n, k, y_ld, (long)p, (long)q, (long)h, (long)w, (long)r, (long)s, stride_rows, stride_columns,
                      padding_rows, padding_columns, dilation_rows, dilation_columns};
#else
    const images b = {x, n, c, x_ld, (long)h, (long)w, (long)p, (long)q, (long)r, (long)s, stride_rows, stride_columns,
                      padding_rows, padding_columns, dilation_rows, dilation_columns};
#endif
#if KIND == FORWARD
    const ulong m = k, columns_all = n * p * q, depth_all = c * r * s, plane = p * q, image_stride = y_ld;
    const ulong c_stride = plane;
    const row_form form = {weight_ld, depth_all, 0};
    global const REAL *a = weight;
    global REAL *out = y;
#elif KIND == INPUT
    const ulong m = c, columns_all = n * h * w, depth_all = k * r * s, plane = h * w, image_stride = x_ld;
    const ulong c_stride = plane;
    const row_form form = {r * s, r * s, weight_ld};
    global const REAL *a = weight;
    global REAL *out = x;
#else
    const ulong m = k, columns_all = c * r * s, depth_all = n * p * q, plane = columns_all, image_stride = 0;
    const ulong c_stride = weight_ld;
    const row_form form = {p * q, p * q, y_ld};
    global const REAL *a = y;
    global REAL *out = weight;
#endif

    /* This work-item's part of C, and the blocks of t. */
    const ulong gx = get_group_id(0), x_count = get_num_groups(0), panels = ceil_div(columns_all, PANEL);
    const ulong gy = get_group_id(1), y_count = get_num_groups(1), tile_rows = ceil_div(m, TILE_M);
    const ulong last_column = min(panels * (gx + 1) / x_count * PANEL, columns_all);
    const ulong last_row = min(tile_rows * (gy + 1) / y_count * TILE_M, m);
    const ulong steps = ceil_div(depth_all, PANEL), blocks = ceil_div(depth_all, K_BLOCK);

    for (ulong column = panels * gx / x_count * PANEL; column < last_column; column += PANELS_PER_GROUP * PANEL)
        for (ulong block = 0; block < blocks; block++) {
            const ulong columns = min(last_column - column, (ulong)PANELS_PER_GROUP * PANEL);
            const ulong t = steps * block / blocks * PANEL;
            const ulong depth = min(steps * (block + 1) / blocks * PANEL, depth_all) - t;
            for (ulong row = tile_rows * gy / y_count * TILE_M; row < last_row; row += ROW_BLOCK) {
                const ulong rows = min(last_row - row, (ulong)ROW_BLOCK);
                copy_a(a_copy, rows, depth, a + row * form.stride, t, form);
                for (ulong j = 0; j < columns; j += PANEL) {
                    /* Behind A's tiles, at a place that is no constant: see gemm_panel.cl. */
                    local REAL *tile_b = a_copy + ceil_div(ceil_div(rows, TILE_M) * A_TILE(depth), LINE) * LINE;
                    const uint width = (uint)min(columns - j, (ulong)PANEL);
                    const ulong image = (column + j) / plane, pixel = (column + j) % plane;
                    const bool across = pixel + width > plane;
                    copy_b(tile_b, depth, width, &b, t, column + j);
                    for (ulong i = 0; i < rows; i += TILE_M) {
                        local REAL *tile_a = a_copy + i / TILE_M * A_TILE(depth);
                        const uint height = (uint)min(rows - i, (ulong)TILE_M);
                        global REAL *tile_c = out + image * image_stride + (row + i) * c_stride;
                        if (across)
                            multiply_across(height, width, depth, block > 0, tile_a, tile_b, tile_c, c_stride,
                                            image_stride, pixel, plane);
                        else if (height == TILE_M && width == PANEL)
                            multiply_whole(depth, &e, block ? 1 : 0, 0, tile_a, A_PITCH, tile_b, tile_c + pixel,
                                           c_stride);
                        else
                            multiply_edge(height, width, depth, &e, block ? 1 : 0, 0, tile_a, A_PITCH, tile_b,
                                          tile_c + pixel, c_stride);
                    }
                }
#if FINISHED
                if (block == blocks - 1)
                    finish_block(rows, columns, bias + bias_offset + group * k, row, column, out, plane, image_stride);
#endif
            }
        }
}
