/* exec/distributed.h: the inside of a distributed product. */
#ifndef TSR_EXEC_DISTRIBUTED_H
#define TSR_EXEC_DISTRIBUTED_H

#include <tessera/distributed.h>

#include "comm/redistribute.h"
#include "exec/session.h"

enum { TSR_OPERAND_A, TSR_OPERAND_B, TSR_OPERAND_C, TSR_OPERANDS };

/* One of the three matrices, as it is stored. */
typedef struct tsr_operand {
  const char *name;
  int64_t rows, cols;
  tsr_owned *blocks; /* of all members, those that are not empty, sorted */
  int64_t count;
  bool column_major;     /* most elements are */
  tsr_rectangle **given; /* [local][given_count[local]]: the blocks as this process gave them */
  int64_t *given_count;
} tsr_operand;

/* The way of an operand's blocks into a value of the plan, or of the result back into blocks. */
typedef struct tsr_passage {
  int operand;
  tsr_value value;
  tsr_redistribution **moves; /* [local] */
  tsr_owned *shards;          /* of all members, those that are not empty, sorted */
  int64_t shard_count;
  tsr_rectangle *own; /* [local]: its shard; no rows = none */
  int64_t *direct;    /* [local]: the block that is the shard, which needs no copy; -1 = none is */
} tsr_passage;

enum { TSR_PASSAGES_MAX = 4 };

struct tsr_distributed_gemm {
  tsr_group *group;           /* borrowed */
  tsr_device *const *devices; /* borrowed for creation */
  int64_t m, n, k, message_bytes;
  double alpha, beta;
  tsr_dtype dtype;
  bool transpose_a, transpose_b;
  int local_count;
  tsr_operand operands[TSR_OPERANDS];
  tsr_plan *plan; /* NULL: nothing is multiplied */
  tsr_session *session;
  tsr_passage passages[TSR_PASSAGES_MAX]; /* in: a, b, perhaps c; the last one is out */
  int passage_count;
  char **staging, **scratch;         /* [local]: a shard as the session binds or reads it; messages */
  tsr_view **views;                  /* [local]: of the blocks of one operand, in a run */
  tsr_redistribution_memory *memory; /* [local], in a run */
  tsr_view *shard_views;             /* [local], in a run */
  bool poisoned;
};

/* Checks what this process says of the blocks of A, B and C. with_data: those that a run touches must have
 * memory. */
tsr_status tsr_distributed_check_all(const tsr_distributed_gemm *gemm, const tsr_part *const *parts,
                                     bool with_data, tsr_error *error);
/* [C] Exchanges the blocks of all members, and checks that they are one product's: the same numbers on all,
 * no overlap, no hole. */
tsr_status tsr_distributed_exchange(tsr_distributed_gemm *gemm, const tsr_part *const *parts,
                                    tsr_error *error);
/* INVALID_ARGUMENT unless the parts have the blocks that were given before. */
tsr_status tsr_distributed_check_same(const tsr_distributed_gemm *gemm, int operand, const tsr_part *parts,
                                      tsr_error *error);
/* Replicas: several members may have the same block. */
tsr_status tsr_operand_check_cover(const tsr_operand *operand, bool replicas, tsr_error *error);
void tsr_operand_finish(tsr_operand *operand, int local_count);
static inline bool tsr_passage_is_output(const tsr_distributed_gemm *gemm, const tsr_passage *passage) {
  return passage == &gemm->passages[gemm->passage_count - 1];
}
static inline int64_t tsr_block_ld(const tsr_block *block, bool column_major) {
  return block->ld ? block->ld : column_major ? block->rows : block->cols;
}

/* The plan that is fastest with all that must be moved to and from the blocks, by estimate. Gives *out. */
tsr_status tsr_distributed_plan(const tsr_distributed_gemm *gemm, const tsr_cluster *cluster, tsr_plan **out,
                                tsr_error *error);
/* The operand's value in the plan; of C, output: the result. */
tsr_status tsr_distributed_value(const tsr_plan *plan, int operand, bool output, tsr_value *out,
                                 tsr_error *error);
/* What active member r holds of a value between steps. */
tsr_rectangle tsr_distributed_shard(const tsr_plan *plan, tsr_value value, int r);

#endif
