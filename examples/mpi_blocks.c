/* mpi_blocks: C = A B^T + C / 2 for matrices that an MPI program has in two-dimensional blocks.
 *
 * The program's ranks form a grid of rows and columns, as those of many HPC codes do; each owns one block of
 * A, of B and of C, column-major, with a leading dimension. It hands Tessera its communicator and its blocks,
 * and finds the result in its block of C; how the devices share the product is not its concern. It multiplies
 * twice with one plan, and checks every element of its block against a plain loop; what to look at is
 * multiply().
 *
 *   cc mpi_blocks.c $(pkg-config --cflags --libs tessera mpich) -lm -o mpi_blocks && mpiexec -n 6
 * ./mpi_blocks */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <tessera/mpi.h>
#include <tessera/tessera.h>

enum { M = 310, N = 270, K = 190, ROOM = 3 /* unused rows below each block */ };
static const double alpha = 1, beta = 0.5;

/* An error ends this rank's part with one line; Tessera's collective calls fail on every rank together. */
#define TRY(call)                                                                                            \
  do {                                                                                                       \
    if ((status = (call)) != TSR_OK) {                                                                       \
      fprintf(stderr, "rank %d: %s\n", rank, error.message);                                                 \
      goto done;                                                                                             \
    }                                                                                                        \
  } while (0)

/* Any element, without storing the matrices anywhere in whole; B is stored as [N, K]. */
static double a_at(int64_t i, int64_t p) {
  return (double)((i * 7 + p * 3) % 11) / 8 - 0.5;
}
static double b_at(int64_t j, int64_t p) {
  return (double)((p * 5 + j) % 13) / 8 - 0.75;
}
static double c_at(int64_t i, int64_t j) {
  return (double)((i + j) % 5);
}

/* A rank's block of a matrix, in memory of its own. */
static tsr_block make_block(int64_t rows, int64_t cols, const int *grid, const int *place,
                            double (*at)(int64_t, int64_t)) {
  tsr_block block = tsr_block_of_grid(rows, cols, grid[0], grid[1], place[0], place[1]);
  block.ld = block.rows + ROOM;
  double *data = calloc((size_t)(block.ld * block.cols + 1), sizeof *data);
  for (int64_t j = 0; data && j < block.cols; j++)
    for (int64_t i = 0; i < block.rows; i++) data[j * block.ld + i] = at(block.row + i, block.col + j);
  block.data = data;
  return block;
}

/* Largest difference between this rank's block of C and a plain loop, after `runs` products. */
static double worst_error(const tsr_block *c, int runs) {
  double worst = 0;
  for (int64_t i = c->row; i < c->row + c->rows; i++)
    for (int64_t j = c->col; j < c->col + c->cols; j++) {
      double sum = 0, expected = c_at(i, j);
      for (int64_t p = 0; p < K; p++) sum += a_at(i, p) * b_at(j, p);
      for (int run = 0; run < runs; run++) expected = alpha * sum + beta * expected;
      double found = ((const double *)c->data)[(j - c->col) * c->ld + i - c->row];
      worst = fmax(worst, fabs(found - expected));
    }
  return worst;
}

/* Returns what main returns. */
static int multiply(MPI_Comm communicator) {
  tsr_status status = TSR_OK;
  tsr_error error = {.message = ""};
  tsr_context *context = NULL;
  tsr_group *group = NULL;
  tsr_device *device = NULL;
  tsr_distributed_gemm *gemm = NULL;
  int rank, size, grid[2] = {0, 0};
  MPI_Comm_rank(communicator, &rank);
  MPI_Comm_size(communicator, &size);
  MPI_Dims_create(size, 2, grid);
  const int place[2] = {rank / grid[1], rank % grid[1]};

  tsr_block a = make_block(M, K, grid, place, a_at), b = make_block(N, K, grid, place, b_at);
  tsr_block c = make_block(M, N, grid, place, c_at);
  const tsr_part a_part = {&a, 1, true}, b_part = {&b, 1, true}, c_part = {&c, 1, true};

  TRY(tsr_context_create(NULL, &context, &error));
  TRY(tsr_group_create_mpi(context, communicator, NULL, &group, &error));
  /* NULL = the best device here; TESSERA_DEVICE lets a user choose. */
  TRY(tsr_group_agree(group, tsr_device_open(context, getenv("TESSERA_DEVICE"), NULL, &device, &error),
                      &error, &error));
  TRY(tsr_distributed_gemm_create(group, &device, 1, M, N, K, alpha, beta, &a_part, &b_part, &c_part,
                                  TSR_DISTRIBUTED_GEMM_OPTIONS(.dtype = TSR_F64, .transpose_b = true), &gemm,
                                  &error));
  for (int run = 0; run < 2; run++) TRY(tsr_distributed_gemm_run(gemm, &a_part, &b_part, &c_part, &error));

  double worst = worst_error(&c, 2);
  printf(
      "rank %d at (%d, %d) of %d x %d: %lld x %lld of C, %llu bytes sent to bring blocks into place, largest "
      "error %.2g\n",
      rank, place[0], place[1], grid[0], grid[1], (long long)c.rows, (long long)c.cols,
      (unsigned long long)tsr_distributed_gemm_bytes_moved(gemm, 0), worst);
  if (!(worst < 1e-9)) status = TSR_ERROR_CHECK_FAILED;

done:
  tsr_distributed_gemm_destroy(&gemm);
  tsr_device_close(&device);
  tsr_group_destroy(&group);
  tsr_context_destroy(&context);
  free(a.data);
  free(b.data);
  free(c.data);
  return status == TSR_OK ? 0 : 1;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int status = multiply(MPI_COMM_WORLD);
  MPI_Finalize();
  return status;
}
