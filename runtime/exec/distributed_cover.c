/* exec/distributed_cover.c: whether blocks make up a matrix: no two overlap, nothing is missing. */
#include <string.h>

#include "base/memory.h"
#include "exec/distributed.h"

/* Blocks that hold the current row, by column; no two of them share a column. */
typedef struct front {
  const tsr_owned **blocks;
  int64_t count;
} front;

static void drop_ended(front *f, int64_t row) {
  int64_t kept = 0;
  for (int64_t i = 0; i < f->count; i++)
    if (f->blocks[i]->at.row + f->blocks[i]->at.rows > row) f->blocks[kept++] = f->blocks[i];
  f->count = kept;
}

/* Adds a block; gives one that it overlaps, if there is one. */
static const tsr_owned *add_to_front(front *f, const tsr_owned *block) {
  int64_t low = 0, high = f->count;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (f->blocks[middle]->at.col < block->at.col)
      low = middle + 1;
    else
      high = middle;
  }
  if (low && f->blocks[low - 1]->at.col + f->blocks[low - 1]->at.cols > block->at.col)
    return f->blocks[low - 1];
  if (low < f->count && block->at.col + block->at.cols > f->blocks[low]->at.col) return f->blocks[low];
  memmove(f->blocks + low + 1, f->blocks + low, (size_t)(f->count - low) * sizeof *f->blocks);
  f->blocks[low] = block;
  f->count++;
  return NULL;
}

static tsr_status overlap(const tsr_operand *operand, const tsr_owned *a, const tsr_owned *b, bool replicas,
                          tsr_error *error) {
  tsr_rectangle meet;
  tsr_rectangle_meet(&a->at, &b->at, &meet);
  tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
           "block %lld of %s and block %lld of rank %d both hold element (%lld, %lld): %s",
           (long long)b->number, operand->name, (long long)a->number, a->member, (long long)meet.row,
           (long long)meet.col,
           replicas ? "blocks of two ranks are the very same, or disjoint" : "blocks must be disjoint");
  if (error) error->rank = b->member;
  return TSR_ERROR_INVALID_ARGUMENT;
}

/* The first row, from those at which a block ends, in which something is missing, and where. */
static tsr_status report_hole(const tsr_operand *operand, front *f, tsr_error *error) {
  int64_t row = 0, next, col = 0;
  for (; row < operand->rows; row = next) {
    next = operand->rows;
    f->count = 0;
    col = 0;
    for (int64_t i = 0; i < operand->count; i++) {
      const tsr_rectangle *at = &operand->blocks[i].at;
      if (at->row > row && at->row < next) next = at->row;
      if (at->row > row || at->row + at->rows <= row) continue;
      if (at->row + at->rows < next) next = at->row + at->rows;
      add_to_front(f, &operand->blocks[i]); /* of equal ones, the first */
    }
    for (int64_t i = 0; i < f->count && f->blocks[i]->at.col == col; i++) col += f->blocks[i]->at.cols;
    if (col < operand->cols) break;
  }
  return tsr_fail(
      error, TSR_ERROR_INVALID_ARGUMENT,
      "nobody has element (%lld, %lld) of %s, which is %lld x %lld as it is stored: the blocks of all "
      "ranks must cover it",
      (long long)row, (long long)col, operand->name, (long long)operand->rows, (long long)operand->cols);
}

static bool same_block(const tsr_owned *a, const tsr_owned *b) {
  return !memcmp(&a->at, &b->at, sizeof a->at);
}

/* Along the rows, with the blocks that hold each. */
tsr_status tsr_operand_check_cover(const tsr_operand *operand, bool replicas, tsr_error *error) {
  tsr_status status = TSR_OK;
  int64_t area = 0; /* of disjoint blocks: at most the whole, which fits */
  front f = {.blocks = tsr_calloc((size_t)operand->count, sizeof *f.blocks)};
  if (!f.blocks)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to check %lld blocks of %s",
                    (long long)operand->count, operand->name);
  for (int64_t i = 0; i < operand->count; i++) {
    const tsr_owned *block = &operand->blocks[i], *before = i ? block - 1 : NULL;
    if (replicas && before && same_block(before, block) && before->member != block->member) continue;
    if (!before || before->at.row != block->at.row) drop_ended(&f, block->at.row);
    const tsr_owned *other = add_to_front(&f, block);
    if (other) {
      status = overlap(operand, other, block, replicas, error);
      break;
    }
    area += block->at.rows * block->at.cols;
  }
  if (status == TSR_OK && area != operand->rows * operand->cols) status = report_hole(operand, &f, error);
  free(f.blocks);
  return status;
}
