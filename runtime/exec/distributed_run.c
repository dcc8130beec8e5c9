/* exec/distributed_run.c: one product: blocks to shards, one step of the session, shards to blocks. */
#include "exec/distributed.h"

/* Where a local member's blocks and its shard lie now. */
static void set_views(tsr_distributed_gemm *gemm, const tsr_passage *passage, const tsr_part *parts, int i) {
  const tsr_part *part = &parts[i];
  for (int64_t j = 0; j < part->block_count; j++) {
    int64_t ld = tsr_block_ld(&part->blocks[j], part->column_major);
    gemm->views[i][j] = (tsr_view){.data = part->blocks[j].data,
                                   .row_stride = part->column_major ? 1 : ld,
                                   .col_stride = part->column_major ? ld : 1};
  }
  const tsr_rectangle *own = &passage->own[i];
  bool column_major = gemm->operands[passage->operand].column_major;
  gemm->shard_views[i] = passage->direct[i] >= 0 && own->rows
                             ? gemm->views[i][passage->direct[i]]
                             : (tsr_view){.data = gemm->staging[i],
                                          .row_stride = column_major ? 1 : own->cols,
                                          .col_stride = column_major ? own->rows : 1};
  bool output = tsr_passage_is_output(gemm, passage);
  gemm->memory[i] = (tsr_redistribution_memory){.source = output ? &gemm->shard_views[i] : gemm->views[i],
                                                .target = output ? gemm->views[i] : &gemm->shard_views[i],
                                                .scratch = gemm->scratch[i]};
}

/* Between the members' shards on the host and their devices. */
static tsr_status transfer(tsr_distributed_gemm *gemm, const tsr_passage *passage, tsr_error *error) {
  for (int i = 0; i < gemm->local_count; i++) {
    const tsr_rectangle *own = &passage->own[i];
    if (!own->rows) continue;
    int member = tsr_group_local_member(gemm->group, i);
    tsr_shape shape = tsr_shape_of(2, own->rows, own->cols);
    tsr_array array = tsr_array_dense(gemm->shard_views[i].data, gemm->dtype, &shape);
    array.stride[0] = gemm->shard_views[i].row_stride;
    array.stride[1] = gemm->shard_views[i].col_stride;
    tsr_status status = tsr_passage_is_output(gemm, passage)
                            ? tsr_session_read(gemm->session, member, passage->value, &array, error)
                            : tsr_session_bind(gemm->session, member, passage->value, &array, error);
    if (status != TSR_OK) return tsr_local_blame(&gemm->session->locals[i], status, error);
  }
  return TSR_OK;
}

static tsr_status run_steps(tsr_distributed_gemm *gemm, const tsr_part *const *parts, tsr_error *error) {
  tsr_status status = TSR_OK;
  for (int p = 0; p < gemm->passage_count; p++) {
    const tsr_passage *passage = &gemm->passages[p];
    if (tsr_passage_is_output(gemm, passage)) {
      TSR_RETURN_IF_FAILED(tsr_group_agree(gemm->group, status, error, error));
      TSR_RETURN_IF_FAILED(tsr_session_start(gemm->session, error));
      TSR_RETURN_IF_FAILED(tsr_session_wait(gemm->session, error));
    }
    for (int i = 0; i < gemm->local_count; i++) set_views(gemm, passage, parts[passage->operand], i);
    if (tsr_passage_is_output(gemm, passage)) {
      status = transfer(gemm, passage, error);
      TSR_RETURN_IF_FAILED(tsr_group_agree(gemm->group, status, error, error));
    }
    tsr_status moved = tsr_redistribute(gemm->group, passage->moves, gemm->memory, gemm->local_count,
                                        status == TSR_OK ? error : NULL);
    if (moved != TSR_OK) return moved;
    if (!tsr_passage_is_output(gemm, passage) && status == TSR_OK) status = transfer(gemm, passage, error);
  }
  return TSR_OK;
}

/* Nothing is multiplied: C = beta C. */
static void scale(const tsr_distributed_gemm *gemm, const tsr_part *part) {
  for (int64_t b = 0; b < part->block_count; b++) {
    const tsr_block *block = &part->blocks[b];
    int64_t lines = part->column_major ? block->cols : block->rows;
    int64_t length = part->column_major ? block->rows : block->cols;
    int64_t ld = tsr_block_ld(block, part->column_major);
    for (int64_t i = 0; i < lines; i++)
      for (int64_t j = 0; j < length; j++) {
        if (gemm->dtype == TSR_F64) {
          double *at = (double *)block->data + i * ld + j;
          *at = gemm->beta == 0 ? 0 : gemm->beta * *at;
        } else {
          float *at = (float *)block->data + i * ld + j;
          *at = gemm->beta == 0 ? 0 : (float)gemm->beta * *at;
        }
      }
  }
}

static tsr_status check_run(const tsr_distributed_gemm *gemm, const tsr_part *const *parts,
                            tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_distributed_check_all(gemm, parts, true, error));
  for (int i = 0; i < TSR_OPERANDS; i++)
    TSR_RETURN_IF_FAILED(tsr_distributed_check_same(gemm, i, parts[i], error));
  return TSR_OK;
}

tsr_status tsr_distributed_gemm_run(tsr_distributed_gemm *gemm, const tsr_part *a, const tsr_part *b,
                                    const tsr_part *c, tsr_error *error) {
  const tsr_part *const parts[] = {a, b, c};
  tsr_error own = {.status = TSR_OK, .rank = -1};
  if (!error) error = &own;
  if (gemm->poisoned)
    return tsr_fail(error, TSR_ERROR_POISONED,
                    "an earlier run failed: only tsr_distributed_gemm_destroy is legal");
  tsr_status status = check_run(gemm, parts, error);
  TSR_RETURN_IF_FAILED(tsr_group_agree(gemm->group, status, error, error));
  if (gemm->plan)
    status = run_steps(gemm, parts, error);
  else
    for (int i = 0; i < gemm->local_count; i++) scale(gemm, &c[i]);
  gemm->poisoned = status != TSR_OK;
  return status;
}
