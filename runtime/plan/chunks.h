/* plan/chunks.h: a product whose result goes into a reduction, cut along its rows, so that the reduction of
 * one chunk runs behind the product of the next. */
#ifndef TSR_PLAN_CHUNKS_H
#define TSR_PLAN_CHUNKS_H

#include "plan/plan.h"

enum { TSR_CHUNKS_MAX = 64, TSR_CHUNK_RANGES_MAX = 8 };

/* Whether the NODE step's product and the CONVERT step of its value can be cut, and then into how many chunks
 * the decision cuts them (1 = none). Every member has the partial value in one row-major allocation, in which
 * a chunk is TSR_CHUNK_RANGES_MAX ranges of rows at most, and nobody else reads it. */
int tsr_plan_chunks_of(const tsr_plan *plan, const tsr_step *node, const tsr_step *convert);

/* Rows [begin, end) of range `range` of a chunk, of which it has tsr_plan_chunk_ranges(). A reduction to all
 * has one range, the same on all members; one that scatters rows has one in the block of each member. */
int tsr_plan_chunk_ranges(const tsr_plan *plan, const tsr_step *step);
void tsr_plan_chunk_range(const tsr_plan *plan, const tsr_step *step, int range, int64_t *begin,
                          int64_t *end);
/* Rows of what member `active_index` holds after the CONVERT that the chunk fills. */
void tsr_plan_chunk_result(const tsr_plan *plan, const tsr_step *step, int active_index, int64_t *begin,
                           int64_t *end);
/* Takes a node's shapes down to those of the step's chunk. */
void tsr_plan_chunk_shapes(const tsr_plan *plan, const tsr_step *step, tsr_shape *inputs, tsr_shape *output);

/* Sets the decision's chunks for the lowered plan, in which nothing is cut, by cost, or to as many as the
 * options say; true if something is cut now. */
bool tsr_plan_choose_chunks(tsr_plan *plan);
void tsr_plan_drop_chunks(tsr_plan *plan);

#endif
