/* transpose: out[c,r] = in[r,c] for r < rows, c < cols.
 *
 *          in                     tile (private)             out
 *     +----+----+----+         +--------------+         +----+----+
 *     |    | ## |    |  rows   |  TILE x TILE |  rows   |    |    |
 *     +----+----+----+  ---->  |  transposed  |  ---->  +----+----+
 *     |    |    |    |         +--------------+         | ## |    |
 *     +----+----+----+                                  +----+----+
 *
 * Memory: both row-major, element (r,c) at offset + r*ld + c; offsets and ld count elements. A tile's lines
 * are read once and written once, whole and in order; what is scattered stays in the small private tile, so
 * power-of-two leading dimensions (all lines of a column in one cache set) do no harm.
 * Launch: 2 dimensions, global size (ceil(cols/TILE), ceil(rows/TILE)) or more, local size (1,1).
 * Limits: rows, cols >= 0; in and out do not overlap. One work-item moves a tile: made for CPUs, right on
 * any OpenCL 1.2 device. */

#if !defined(REAL) || !defined(TILE)
#error "transpose needs -DREAL=float|double -DTILE=rows and columns of a tile, for example 64"
#endif

#if TILE % 4 != 0
#error "transpose: TILE must be a multiple of 4"
#endif

#define JOIN_TOKENS(x, y) x##y
#define JOIN(x, y) JOIN_TOKENS(x, y)
typedef JOIN(REAL, 4) quad;

/* A line of the tile is longer than TILE, so that its columns spread over the cache sets. */
#define PITCH (TILE + 4)

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void transpose(ulong rows, ulong cols,
               global const REAL *in, ulong in_offset, ulong in_ld,
               global REAL *out, ulong out_offset, ulong out_ld)
{
    const ulong column = get_global_id(0) * TILE, row = get_global_id(1) * TILE;
    if (row >= rows || column >= cols)
        return;
    const uint height = (uint)min(rows - row, (ulong)TILE), width = (uint)min(cols - column, (ulong)TILE);
    global const REAL *from = in + in_offset + row * in_ld + column;
    global REAL *to = out + out_offset + column * out_ld + row;
    REAL tile[TILE * PITCH];

    for (uint r = 0; r < height; r += 4) {
        uint c = 0;
        for (; r + 4 <= height && c + 4 <= width; c += 4) {
            const quad w = vload4(0, from + r * in_ld + c), x = vload4(0, from + (r + 1) * in_ld + c);
            const quad y = vload4(0, from + (r + 2) * in_ld + c), z = vload4(0, from + (r + 3) * in_ld + c);
            vstore4((quad)(w.s0, x.s0, y.s0, z.s0), 0, tile + c * PITCH + r);
            vstore4((quad)(w.s1, x.s1, y.s1, z.s1), 0, tile + (c + 1) * PITCH + r);
            vstore4((quad)(w.s2, x.s2, y.s2, z.s2), 0, tile + (c + 2) * PITCH + r);
            vstore4((quad)(w.s3, x.s3, y.s3, z.s3), 0, tile + (c + 3) * PITCH + r);
        }
        for (; c < width; c++)
            for (uint i = r; i < min(r + 4, height); i++)
                tile[c * PITCH + i] = from[i * in_ld + c];
    }
    for (uint c = 0; c < width; c++) {
        uint r = 0;
        for (; r + 4 <= height; r += 4)
            vstore4(vload4(0, tile + c * PITCH + r), 0, to + c * out_ld + r);
        for (; r < height; r++)
            to[c * out_ld + r] = tile[c * PITCH + r];
    }
}
