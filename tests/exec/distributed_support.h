/* distributed_support.h: matrices spread over members in every way, in memory with gaps, and the comparison
 * of what a distributed product makes of them. */
#ifndef TESSERA_TEST_DISTRIBUTED_SUPPORT_H
#define TESSERA_TEST_DISTRIBUTED_SUPPORT_H

#include "exec/distributed.h"
#include "exec_support.h"

/* How a matrix is spread. */
typedef enum spread {
  SPREAD_ROWS,   /* even block rows */
  SPREAD_COLS,   /* even block columns */
  SPREAD_GRID,   /* p x q blocks; some members may have none */
  SPREAD_CYCLIC, /* ScaLAPACK's block-cyclic on such a grid */
  SPREAD_CUTS,   /* block rows or columns of random lengths, many of them empty, in order */
  SPREAD_ONE,    /* all on one member */
  SPREAD_PIECES, /* random rectangles, each on a random member */
  SPREADS_OF_C,  /* those above have no replicas */
  SPREAD_EVERYWHERE = SPREADS_OF_C, /* all on all */
  SPREAD_REPLICAS,                  /* random rectangles, each on a random set of members */
  SPREADS
} spread;

typedef struct spread_matrix {
  int64_t rows, cols;
  tsr_dtype dtype;
  double *whole; /* what it holds: row-major */
  int members;
  tsr_part parts[EXEC_MEMBERS_MAX];
  char *memory[EXEC_MEMBERS_MAX], *before[EXEC_MEMBERS_MAX]; /* of a member; a copy */
  size_t bytes[EXEC_MEMBERS_MAX];
} spread_matrix;

/* Random integers in [-high, high], spread, row- or column-major by member, with gaps between lines. */
void spread_init(spread_matrix *matrix, int64_t rows, int64_t cols, tsr_dtype dtype, int members, spread how,
                 int64_t high);
/* Every element of every block becomes NaN. */
void spread_poison(spread_matrix *matrix);
/* Blocks hold exactly `whole` (each within bound[], if not NULL), and what is around them is as it was. */
void spread_expect(const spread_matrix *matrix, const double *whole, const double *bound, const char *what);
void spread_finish(spread_matrix *matrix);

/* Elements that members lack of what they need: the least that can be moved. The shards are the plan's of a
 * value; output: from them to the blocks. */
int64_t spread_least_moved(const spread_matrix *matrix, const tsr_plan *plan, tsr_value value, bool output);

#endif
