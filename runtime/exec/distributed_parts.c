/* exec/distributed_parts.c: what each process says of its blocks, and what all of them say together. */
#include <string.h>

#include "base/memory.h"
#include "exec/distributed.h"

/* ---- what a process says of its own blocks ---- */

static tsr_status refuse(tsr_error *error, int member) {
  if (error) error->rank = member;
  return TSR_ERROR_INVALID_ARGUMENT;
}

static bool lies_within(int64_t begin, int64_t length, int64_t extent) {
  return begin >= 0 && length >= 0 && length <= extent && begin <= extent - length;
}

static tsr_status check_memory(const tsr_operand *operand, const tsr_block *block, int64_t index,
                               bool column_major, int64_t bytes, bool with_data, tsr_error *error) {
  int64_t length = column_major ? block->rows : block->cols, lines = column_major ? block->cols : block->rows;
  int64_t ld = tsr_block_ld(block, column_major), all;
  if (ld < length)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "ld of block %lld of %s is %lld, a %s has %lld elements: give at least that, or 0",
                    (long long)index, operand->name, (long long)ld, column_major ? "column" : "row",
                    (long long)length);
  if (!tsr_multiply_fits(ld, bytes, &all) || !tsr_multiply_fits(all, lines, &all))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "block %lld of %s, %lld lines with ld %lld, does not fit 63 bits of bytes",
                    (long long)index, operand->name, (long long)lines, (long long)ld);
  if (with_data && length && lines && (!block->data || (uintptr_t)block->data % (uintptr_t)bytes))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "data of block %lld of %s, %lld x %lld, is %p: give memory aligned to %lld bytes",
                    (long long)index, operand->name, (long long)block->rows, (long long)block->cols,
                    block->data, (long long)bytes);
  return TSR_OK;
}

static tsr_status check_block(const tsr_operand *operand, const tsr_block *block, int64_t index,
                              tsr_error *error) {
  bool rows_fit = lies_within(block->row, block->rows, operand->rows);
  if (rows_fit && lies_within(block->col, block->cols, operand->cols)) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                  "block %lld of %s begins at %s %lld and has %lld of them, %s as it is stored has %lld",
                  (long long)index, operand->name, rows_fit ? "column" : "row",
                  (long long)(rows_fit ? block->col : block->row),
                  (long long)(rows_fit ? block->cols : block->rows), operand->name,
                  (long long)(rows_fit ? operand->cols : operand->rows));
}

static tsr_status check_parts(const tsr_distributed_gemm *gemm, int index, const tsr_part *parts,
                              bool with_data, tsr_error *error) {
  const tsr_operand *operand = &gemm->operands[index];
  if (!parts)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "the parts of %s are NULL: give one for each local member, of no blocks if it has none",
                    operand->name);
  for (int i = 0; i < gemm->local_count; i++) {
    int member = tsr_group_local_member(gemm->group, i);
    if (parts[i].block_count < 0 || (parts[i].block_count && !parts[i].blocks)) {
      tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
               "%lld blocks of %s at %p: give 0 or more, and where they are", (long long)parts[i].block_count,
               operand->name, (const void *)parts[i].blocks);
      return refuse(error, member);
    }
    for (int64_t j = 0; j < parts[i].block_count; j++) {
      const tsr_block *block = &parts[i].blocks[j];
      if (check_block(operand, block, j, error) != TSR_OK ||
          check_memory(operand, block, j, parts[i].column_major, (int64_t)tsr_dtype_bytes(gemm->dtype),
                       with_data, error) != TSR_OK)
        return refuse(error, member);
    }
  }
  return TSR_OK;
}

tsr_status tsr_distributed_check_same(const tsr_distributed_gemm *gemm, int index, const tsr_part *parts,
                                      tsr_error *error) {
  const tsr_operand *operand = &gemm->operands[index];
  for (int i = 0; i < gemm->local_count; i++) {
    int64_t count = parts[i].block_count, j = 0;
    for (; j < count && j < operand->given_count[i]; j++) {
      const tsr_block *block = &parts[i].blocks[j];
      const tsr_rectangle now = {block->row, block->col, block->rows, block->cols};
      if (memcmp(&now, &operand->given[i][j], sizeof now)) break;
    }
    if (j == count && count == operand->given_count[i]) continue;
    tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
             "block %lld of %s is not what it was when the product was planned: only data and ld may change",
             (long long)j, operand->name);
    return refuse(error, tsr_group_local_member(gemm->group, i));
  }
  return TSR_OK;
}

tsr_status tsr_distributed_check_all(const tsr_distributed_gemm *gemm, const tsr_part *const *parts,
                                     bool with_data, tsr_error *error) {
  for (int i = 0; i < TSR_OPERANDS; i++) {
    bool is_touched = with_data && (i == TSR_OPERAND_C || gemm->plan);
    TSR_RETURN_IF_FAILED(check_parts(gemm, i, parts[i], is_touched, error));
  }
  return TSR_OK;
}

/* ---- what all say together ---- */

/* What a member says of the product. */
typedef struct record {
  int64_t m, n, k, message_bytes;
  int64_t dtype, transpose_a, transpose_b;
  double alpha, beta;
  int64_t counts[TSR_OPERANDS], column_major[TSR_OPERANDS];
} record;

static tsr_status differ(const char *name, double own, double first, int member, tsr_error *error) {
  tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
           "%s is %.17g, on rank 0 it is %.17g: all ranks must call with the same", name, own, first);
  return refuse(error, member);
}

static tsr_status compare_records(const record *own, const record *first, int member, tsr_error *error) {
  const struct {
    const char *name;
    int64_t own, first;
  } whole[] = {{"m", own->m, first->m},
               {"n", own->n, first->n},
               {"k", own->k, first->k},
               {"dtype", own->dtype, first->dtype},
               {"transpose_a", own->transpose_a, first->transpose_a},
               {"transpose_b", own->transpose_b, first->transpose_b},
               {"message_bytes", own->message_bytes, first->message_bytes}};
  for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
    if (whole[i].own != whole[i].first)
      return differ(whole[i].name, (double)whole[i].own, (double)whole[i].first, member, error);
  if (own->alpha != first->alpha) return differ("alpha", own->alpha, first->alpha, member, error);
  if (own->beta != first->beta) return differ("beta", own->beta, first->beta, member, error);
  return TSR_OK;
}

/* [C] Every member's record in all[]. */
static tsr_status exchange_records(const tsr_distributed_gemm *gemm, const tsr_part *const *parts,
                                   record *all, tsr_error *error) {
  record *own = tsr_calloc((size_t)gemm->local_count, sizeof *own);
  tsr_status status = own && all
                          ? TSR_OK
                          : tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for what %d members say",
                                     tsr_group_member_count(gemm->group));
  TSR_TRY(tsr_group_agree(gemm->group, status, error, error));
  for (int i = 0; i < gemm->local_count; i++) {
    own[i] = (record){gemm->m,
                      gemm->n,
                      gemm->k,
                      gemm->message_bytes,
                      gemm->dtype,
                      gemm->transpose_a,
                      gemm->transpose_b,
                      gemm->alpha,
                      gemm->beta,
                      {0},
                      {0}};
    for (int j = 0; j < TSR_OPERANDS; j++) {
      own[i].counts[j] = parts[j][i].block_count;
      own[i].column_major[j] = parts[j][i].column_major;
    }
  }
  TSR_TRY(tsr_group_gather(gemm->group, own, sizeof *own, all, error));
  for (int i = 1; i < tsr_group_member_count(gemm->group) && status == TSR_OK; i++)
    status = compare_records(&all[i], &all[0], i, error);
  status = tsr_group_agree(gemm->group, status, error, error);
done:
  free(own);
  return status;
}

static tsr_status keep_given(tsr_distributed_gemm *gemm, tsr_operand *operand, const tsr_part *parts,
                             tsr_error *error) {
  operand->given = tsr_calloc((size_t)gemm->local_count, sizeof *operand->given);
  operand->given_count = tsr_calloc((size_t)gemm->local_count, sizeof *operand->given_count);
  bool fits = operand->given && operand->given_count;
  for (int i = 0; i < gemm->local_count && fits; i++) {
    operand->given_count[i] = parts[i].block_count;
    operand->given[i] = tsr_calloc((size_t)parts[i].block_count, sizeof *operand->given[i]);
    fits = operand->given[i] != NULL;
    for (int64_t j = 0; j < parts[i].block_count && fits; j++) {
      const tsr_block *block = &parts[i].blocks[j];
      operand->given[i][j] = (tsr_rectangle){block->row, block->col, block->rows, block->cols};
    }
  }
  return fits ? TSR_OK
              : tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the blocks of %s", operand->name);
}

/* Those of all members that are not empty, from what was gathered: `most` for each. */
static tsr_status collect(const tsr_distributed_gemm *gemm, int index, const tsr_rectangle *gathered,
                          int64_t most, const record *all, tsr_operand *operand, tsr_error *error) {
  int members = tsr_group_member_count(gemm->group);
  int64_t total = 0;
  double column_major = 0;
  for (int i = 0; i < members; i++) total += all[i].counts[index];
  operand->blocks = tsr_calloc((size_t)total, sizeof *operand->blocks);
  if (!operand->blocks)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %lld blocks of %s", (long long)total,
                    operand->name);
  for (int i = 0; i < members; i++)
    for (int64_t j = 0; j < all[i].counts[index]; j++) {
      const tsr_rectangle *at = &gathered[i * most + j];
      if (!at->rows || !at->cols) continue;
      operand->blocks[operand->count++] = (tsr_owned){.at = *at, .number = j, .member = i};
      column_major += (all[i].column_major[index] ? 1.0 : -1.0) * (double)at->rows * (double)at->cols;
    }
  operand->column_major = column_major > 0;
  tsr_owned_sort(operand->blocks, operand->count);
  return TSR_OK;
}

/* [C] */
static tsr_status exchange_blocks(tsr_distributed_gemm *gemm, int index, const tsr_part *parts,
                                  const record *all, tsr_error *error) {
  tsr_operand *operand = &gemm->operands[index];
  size_t members = (size_t)tsr_group_member_count(gemm->group), locals = (size_t)gemm->local_count;
  int64_t most = 0;
  for (size_t i = 0; i < members; i++)
    if (all[i].counts[index] > most) most = all[i].counts[index];
  size_t each = (size_t)most * sizeof(tsr_rectangle);
  tsr_rectangle *own = tsr_calloc(locals, each), *gathered = tsr_calloc(members, each);
  tsr_status status = own && gathered ? keep_given(gemm, operand, parts, error)
                                      : tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY,
                                                 "no memory for %lld blocks of %s from each of %zu members",
                                                 (long long)most, operand->name, members);
  TSR_TRY(tsr_group_agree(gemm->group, status, error, error));
  for (size_t i = 0; i < locals; i++)
    if (parts[i].block_count)
      memcpy(own + i * (size_t)most, operand->given[i], (size_t)parts[i].block_count * sizeof *own);
  if (most) TSR_TRY(tsr_group_gather(gemm->group, own, each, gathered, error));
  status = collect(gemm, index, gathered, most, all, operand, error);
done:
  free(own);
  free(gathered);
  return status;
}

tsr_status tsr_distributed_exchange(tsr_distributed_gemm *gemm, const tsr_part *const *parts,
                                    tsr_error *error) {
  tsr_status status = TSR_OK;
  record *all = tsr_calloc((size_t)tsr_group_member_count(gemm->group), sizeof *all);
  TSR_TRY(exchange_records(gemm, parts, all, error));
  for (int i = 0; i < TSR_OPERANDS; i++) {
    status = exchange_blocks(gemm, i, parts[i], all, error);
    if (status == TSR_OK) status = tsr_operand_check_cover(&gemm->operands[i], i != TSR_OPERAND_C, error);
    TSR_TRY(tsr_group_agree(gemm->group, status, error, error));
  }
done:
  free(all);
  return status;
}

void tsr_operand_finish(tsr_operand *operand, int local_count) {
  for (int i = 0; operand->given && i < local_count; i++) free(operand->given[i]);
  free(operand->given);
  free(operand->given_count);
  free(operand->blocks);
}
