/* mma_k_lines.h: tiles of A and B in which k runs along the lines, see mma_tile.h: line = row of A, column of B. */
#ifndef MMA_K_LINES_H
#define MMA_K_LINES_H

#define A_RUN 8 /* elements that follow each other in memory and in k */
#define B_RUN 8

INLINE uint k_line_at(uint line, uint k)
{
    return tile_at(line, k / 8, TILE_K / 8) + k % 8;
}

INLINE uint a_at(uint row, uint k)
{
    return k_line_at(row, k);
}

INLINE uint b_at(uint column, uint k)
{
    return k_line_at(column, k);
}

#endif
