/* tessera/distributed.h: a product of matrices that lie in host memory, distributed over a program's
 * processes.
 *
 *     C[m,n] = alpha op(A)[m,k] op(B)[k,n] + beta C[m,n],      op(X) = X or its transpose
 *
 * Each member of a group says which blocks of A, B and C it has and where; the result ends in the blocks of
 * C. The product itself is planned: Tessera chooses over which dimension the devices share it, in which
 * shares, and moves to each member what it lacks. Blocks that already lie as the product needs them are not
 * moved.
 *
 *     tsr_block a = tsr_block_of_grid(m, k, 2, 3, rank / 3, rank % 3);
 *     a.data = my_a;
 *     tsr_part a_part = {.blocks = &a, .block_count = 1};
 *
 * What every member of the group says together must hold, or all get the same error, which names the rank:
 * m, n, k, alpha, beta, types and transposes are the same everywhere; the blocks of a matrix cover it; blocks
 * do not overlap. Of A and B, several members may have the very same block (a replica, of equal contents): a
 * member reads its own, or that of one who has it. C has no replicas.
 *
 * Memory on the host, beside the caller's: per member four messages, and the largest of the three blocks that
 * the plan gives it (none for those that lie as the product needs them). Each process keeps the list of all
 * blocks of all members, 48 bytes each.
 *
 * Thread safety: one tsr_distributed_gemm, one thread at a time; MPI_THREAD_SINGLE is enough (mpi.h).
 *
 * After RANK_LOST, MPI may hold on to the caller's blocks, as it does after any failure: leave them where
 * they are until MPI_Finalize. */
#ifndef TESSERA_DISTRIBUTED_H
#define TESSERA_DISTRIBUTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/cluster.h>
#include <tessera/device.h>
#include <tessera/dtype.h>
#include <tessera/group.h>
#include <tessera/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A rectangle of a matrix as it is stored (A^T's if A is transposed), in the caller's memory. Of no rows or
 * columns: nothing. */
typedef struct tsr_block {
  int64_t row, col, rows, cols;
  void *data; /* its first element, aligned as its type; borrowed for a run; of A and B it is only read */
  int64_t ld; /* elements from one row to the next, column-major: from one column to the next; 0 = dense */
} tsr_block;

/* What one member has of a matrix; none is allowed. */
typedef struct tsr_part {
  const tsr_block *blocks; /* borrowed for the call */
  int64_t block_count;
  bool column_major;
} tsr_part;

/* The usual distributions: block `index` of `parts` of the rows, of the columns; block (row_index, col_index)
 * of a grid. Lengths differ by one at most, the longer come first. data and ld are left NULL and 0. */
tsr_block tsr_block_of_rows(int64_t rows, int64_t cols, int parts, int index);
tsr_block tsr_block_of_cols(int64_t rows, int64_t cols, int parts, int index);
tsr_block tsr_block_of_grid(int64_t rows, int64_t cols, int row_parts, int col_parts, int row_index,
                            int col_index);

/* Two-dimensional block-cyclic, as ScaLAPACK's array descriptor has it (its names at the right). */
typedef struct tsr_block_cyclic {
  int64_t rows, cols;             /* M_, N_ */
  int64_t block_rows, block_cols; /* MB_, NB_ */
  int first_row, first_col;       /* RSRC_, CSRC_: where in the grid block (0, 0) is */
  int grid_rows, grid_cols;       /* nprow, npcol */
  int grid_row, grid_col;         /* myrow, mycol; below 0: this member is outside and has nothing */
  int64_t ld;                     /* LLD_; 0 = dense */
  bool row_major;                 /* of the local array; ScaLAPACK's is column-major */
} tsr_block_cyclic;
/* The blocks of one member in its local array at data (may be NULL). *count = how many there are; the first
 * `capacity` of them are written to blocks (may be NULL if that is 0). Errors: INVALID_ARGUMENT. */
tsr_status tsr_block_cyclic_blocks(const tsr_block_cyclic *layout, tsr_dtype dtype, void *data,
                                   tsr_block *blocks, int64_t capacity, int64_t *count, tsr_error *error);

typedef struct tsr_distributed_gemm_options {
  size_t struct_size;
  tsr_dtype dtype; /* f32 (0) or f64: of A, B and C */
  bool transpose_a, transpose_b;
  const tsr_cluster
      *cluster;          /* borrowed for the call, member 0's process; NULL = estimated from the devices */
  int64_t message_bytes; /* at most so many travel at once between two members; 0 = 1 MiB */
} tsr_distributed_gemm_options;
void tsr_distributed_gemm_options_init(tsr_distributed_gemm_options *options);
#define TSR_DISTRIBUTED_GEMM_OPTIONS(...)                                                                    \
  (&(tsr_distributed_gemm_options){.struct_size = sizeof(tsr_distributed_gemm_options), __VA_ARGS__})

typedef struct tsr_distributed_gemm tsr_distributed_gemm;

/* [C] Plans the product and allocates all that a run needs. devices[i], a[i], b[i], c[i] are local member i's
 * (count = tsr_group_local_count: 1 in an mpi group); blocks may still lack their data. group and devices are
 * borrowed until destroy. options may be NULL. Gives *out. Errors, the same on all: INVALID_ARGUMENT (see
 * above; naming rank, value and limit), INFEASIBLE, OUT_OF_MEMORY, DEVICE, COMPILE. */
tsr_status tsr_distributed_gemm_create(tsr_group *group, tsr_device *const *devices, size_t count, int64_t m,
                                       int64_t n, int64_t k, double alpha, double beta, const tsr_part *a,
                                       const tsr_part *b, const tsr_part *c,
                                       const tsr_distributed_gemm_options *options,
                                       tsr_distributed_gemm **out, tsr_error *error);
/* Takes *gemm (may be NULL), leaves NULL. Before the group. */
void tsr_distributed_gemm_destroy(tsr_distributed_gemm **gemm);

/* [C] Multiplies. The parts have the same blocks as at creation; data may be elsewhere, and ld another. A, B
 * and C do not overlap in memory. With beta = 0, C is never read; with alpha = 0, A and B are not. After an
 * error the blocks of C are undefined. Errors: INVALID_ARGUMENT, which changes nothing; after others (DEVICE,
 * COMM, RANK_LOST) only destroy is legal. */
tsr_status tsr_distributed_gemm_run(tsr_distributed_gemm *gemm, const tsr_part *a, const tsr_part *b,
                                    const tsr_part *c, tsr_error *error);

/* How the product is shared; NULL where nothing is multiplied (an extent or alpha is 0). Borrowed; lives as
 * long as the product. */
const tsr_plan *tsr_distributed_gemm_plan(const tsr_distributed_gemm *gemm);
/* Bytes that local member i sends in one run to bring blocks where they are needed, beside what the plan's
 * own collectives send. */
uint64_t tsr_distributed_gemm_bytes_moved(const tsr_distributed_gemm *gemm, int i);

/* [C] create, run, destroy. */
tsr_status tsr_distributed_gemm_once(tsr_group *group, tsr_device *const *devices, size_t count, int64_t m,
                                     int64_t n, int64_t k, double alpha, double beta, const tsr_part *a,
                                     const tsr_part *b, const tsr_part *c,
                                     const tsr_distributed_gemm_options *options, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
