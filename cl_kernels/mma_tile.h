/* mma_tile.h: how a tile of A or B lies in local memory, for NVIDIA's and AMD's instructions.
 *
 * A tile is so many lines of `units` units; a unit is 8 elements, 16 bytes. It has no gaps. So that the units which a
 * warp reads at once, one below the other, come from different banks (of 32, 4 bytes wide), units trade places:
 *
 *     units = 4:  line 0   0 1 2 3      128 bytes, all banks, hold 2 lines; lines 0, 2, 4, 6 have unit 0
 *                 line 1   0 1 2 3      in different places, so 8 lines below each other need all banks
 *                 line 2   1 0 3 2      once
 *                 line 3   1 0 3 2
 *                 line 4   2 3 0 1  ...
 *
 * With -DTURN_EIGHTS=1 each group of 8 lines is turned once more. That is for stores that turn a tile around: there the
 * work-items of a warp write lines 8 apart. */
#ifndef MMA_TILE_H
#define MMA_TILE_H

/* Where a unit begins, in elements. units is a power of two. */
INLINE uint tile_at(uint line, uint unit, uint units)
{
    const uint turn = (units < 8 ? line / (8 / units) : line) + (TURN_EIGHTS ? line / 8 : 0);
    return (line * units + (unit ^ (turn & (min(units, 8u) - 1)))) * 8;
}

#endif
