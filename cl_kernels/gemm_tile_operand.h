/* gemm_tile_operand.h: how a work-group of gemm_tile brings a step of A, or of B, to local memory. Included once for
 * each, so without a guard.
 *
 * The step is LINES lines of memory, LENGTH elements each. Stored across p (not turned) a line is a row of local memory;
 * stored along p (turned) it is a column. Work-items take vectors in the order of memory.
 *
 * Needs OPERAND(name) = a_name | b_name, and OPERAND_RAW, _WIDENED, _ALIGNED, _TURNED, _TILE, _ROWS; forgets them. */

#define LINES (OPERAND_TURNED ? OPERAND_TILE : TILE_K)
#define LENGTH (OPERAND_TURNED ? TILE_K : OPERAND_TILE)
#define VECTORS (LINES * (LENGTH / VECTOR))

typedef VECTOR_OF(OPERAND_RAW) OPERAND(vector);
enum { OPERAND(loads) = (VECTORS + THREADS - 1) / THREADS }; /* vectors of a work-item */

/* The first count elements, then zeros. */
static inline OPERAND(vector) OPERAND(load_some)(global const OPERAND_RAW *from, uint count)
{
    if (count == VECTOR)
        return OPERAND_ALIGNED ? *(global const OPERAND(vector) *)from : RAW_LOAD(from);
    OPERAND_RAW line[VECTOR];
#pragma unroll
    for (uint i = 0; i < VECTOR; i++)
        line[i] = i < count ? from[i] : (OPERAND_RAW)0;
    return RAW_LOAD(line);
}

/* What this work-item brings. tile, depth: how much of the step is inside of the matrix, across p and along it. */
static inline void OPERAND(load)(OPERAND(vector) *staged, global const OPERAND_RAW *from, ulong ld, uint tile,
                                 uint depth, uint item)
{
    const uint lines = OPERAND_TURNED ? tile : depth, length = OPERAND_TURNED ? depth : tile;
#pragma unroll
    for (uint load = 0; load < OPERAND(loads); load++) {
        const uint at = load * THREADS + item, line = at / (LENGTH / VECTOR), e = at % (LENGTH / VECTOR) * VECTOR;
        const uint count = line < lines && e < length ? min(length - e, (uint)VECTOR) : 0;
        staged[load] = OPERAND(load_some)(from + line * ld + e, count);
    }
}

static inline void OPERAND(store)(local REAL *to, const OPERAND(vector) *staged, uint item)
{
#pragma unroll
    for (uint load = 0; load < OPERAND(loads); load++) {
        const uint at = load * THREADS + item, line = at / (LENGTH / VECTOR), e = at % (LENGTH / VECTOR) * VECTOR;
        if (VECTORS % THREADS && at >= VECTORS)
            continue;
        const vector wide = OPERAND_WIDENED(staged[load]);
        if (OPERAND_TURNED) {
            REAL column[VECTOR];
            VSTORE(wide, column);
#pragma unroll
            for (uint i = 0; i < VECTOR; i++)
                to[e / VECTOR * OPERAND_ROWS + i * OPERAND_TILE + line] = column[i];
        } else {
            *(local vector *)(to + line / VECTOR * OPERAND_ROWS + line % VECTOR * OPERAND_TILE + e) = wide;
        }
    }
}

#undef LINES
#undef LENGTH
#undef VECTORS
#undef OPERAND
#undef OPERAND_RAW
#undef OPERAND_WIDENED
#undef OPERAND_ALIGNED
#undef OPERAND_TURNED
#undef OPERAND_TILE
#undef OPERAND_ROWS
