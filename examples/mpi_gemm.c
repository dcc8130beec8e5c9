/* mpi_gemm: a distributed product inside an MPI program that has its own communicator.
 *
 * The program keeps a weight W [k, n] that is too large for one rank: each rank owns a block of its columns,
 * as many as its share says. It asks Tessera for y = x W in that distribution, runs it a few times, and
 * checks one column block against a plain loop. What to look at: the caller's communicator (here the even
 * ranks only) is used as it is; data goes in and out through the caller's arrays; every failure is one line.
 *
 *   cc mpi_gemm.c $(pkg-config --cflags --libs tessera mpich) -lm -o mpi_gemm && mpiexec -n 4 ./mpi_gemm */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/mpi.h>
#include <tessera/tessera.h>

enum { M = 32, K = 300, N = 1000 };

/* An error ends this rank's part with one line; Tessera's collective calls fail on every rank together. */
#define TRY(call)                                                                                            \
  do {                                                                                                       \
    if ((status = (call)) != TSR_OK) {                                                                       \
      fprintf(stderr, "rank %d: %s\n", rank, error.message);                                                 \
      goto done;                                                                                             \
    }                                                                                                        \
  } while (0)

/* Any element, without storing the matrices anywhere in whole. */
static float x_at(int64_t i, int64_t p) {
  return (float)((i * 7 + p * 3) % 11) / 8 - 0.5f;
}
static float w_at(int64_t p, int64_t j) {
  return (float)((p * 5 + j) % 13) / 8 - 0.75f;
}

/* y = x w over graph values; w is pinned to the program's own column blocks, y comes out in the same. */
static tsr_status build(tsr_context *context, int parts, const int64_t *offsets, tsr_graph **graph,
                        tsr_value *x, tsr_value *w, tsr_value *y, tsr_error *error) {
  tsr_shape x_shape = tsr_shape_of(2, M, K), w_shape = tsr_shape_of(2, K, N);
  tsr_layout whole = tsr_layout_replicate(), columns = tsr_layout_shard(1, parts, offsets);
  tsr_status status = tsr_graph_create(context, graph, error);
  if (status == TSR_OK) status = tsr_graph_input(*graph, "x", TSR_F32, &x_shape, x, error);
  if (status == TSR_OK) status = tsr_graph_parameter(*graph, "w", TSR_F32, &w_shape, w, error);
  if (status == TSR_OK) status = tsr_graph_matmul(*graph, *x, *w, NULL, y, error);
  if (status == TSR_OK) status = tsr_graph_output(*graph, "y", *y, error);
  if (status == TSR_OK) status = tsr_graph_pin(*graph, *x, &whole, error);
  if (status == TSR_OK) status = tsr_graph_pin(*graph, *w, &columns, error);
  if (status == TSR_OK) status = tsr_graph_pin(*graph, *y, &columns, error);
  return status;
}

/* Largest difference between this rank's block of y and a plain loop. */
static double worst_error(const float *y, int64_t first, int64_t columns) {
  double worst = 0;
  for (int64_t i = 0; i < M; i++)
    for (int64_t j = 0; j < columns; j++) {
      double sum = 0;
      for (int64_t p = 0; p < K; p++) sum += (double)x_at(i, p) * w_at(p, first + j);
      worst = fmax(worst, fabs(sum - y[i * columns + j]));
    }
  return worst;
}

/* The work of the ranks that take part. Returns what main returns. */
static int multiply(MPI_Comm communicator) {
  tsr_status status = TSR_OK;
  tsr_error error = {.message = ""};
  tsr_context *context = NULL;
  tsr_group *group = NULL;
  tsr_device *device = NULL;
  tsr_cluster *cluster = NULL;
  tsr_graph *graph = NULL;
  tsr_plan *plan = NULL;
  tsr_session *session = NULL;
  tsr_value x, w, y;
  int rank, size;
  MPI_Comm_rank(communicator, &rank);
  MPI_Comm_size(communicator, &size);

  /* The program's own distribution: later ranks get more. Every rank can compute all offsets. */
  int64_t *offsets = malloc((size_t)(size + 1) * sizeof *offsets);
  for (int r = 0; r <= size; r++) offsets[r] = (int64_t)N * r * (r + 1) / ((int64_t)size * (size + 1));
  int64_t first = offsets[rank], columns = offsets[rank + 1] - first;
  float *own_x = malloc(sizeof *own_x * M * K), *own_w = malloc(sizeof *own_w * (size_t)(K * columns + 1));
  float *own_y = malloc(sizeof *own_y * (size_t)(M * columns + 1));
  for (int64_t i = 0; i < M; i++)
    for (int64_t p = 0; p < K; p++) own_x[i * K + p] = x_at(i, p);
  for (int64_t p = 0; p < K; p++)
    for (int64_t j = 0; j < columns; j++) own_w[p * columns + j] = w_at(p, first + j);

  TRY(tsr_context_create(NULL, &context, &error));
  TRY(tsr_group_create_mpi(context, communicator, NULL, &group, &error));
  /* NULL = the best device here; TESSERA_DEVICE lets a user choose. */
  TRY(tsr_group_agree(group, tsr_device_open(context, getenv("TESSERA_DEVICE"), NULL, &device, &error),
                      &error, &error));
  TRY(tsr_cluster_measure(group, &device, 1, TSR_MEASURE_OPTIONS(.estimate_only = true), &cluster, &error));
  TRY(build(context, size, offsets, &graph, &x, &w, &y, &error));

  /* Rank 0 plans, all run the same plan. */
  if (rank == 0) status = tsr_plan_create(graph, cluster, NULL, &plan, &error);
  TRY(tsr_group_agree(group, status, &error, &error));
  TRY(tsr_plan_share(group, context, &plan, &error));
  TRY(tsr_session_create(group, plan, &device, 1, &session, &error));

  tsr_shape x_shape = tsr_shape_of(2, M, K), w_shape = tsr_shape_of(2, K, columns);
  tsr_shape y_shape = tsr_shape_of(2, M, columns);
  tsr_array x_array = tsr_array_dense(own_x, TSR_F32, &x_shape),
            w_array = tsr_array_dense(own_w, TSR_F32, &w_shape);
  tsr_array y_array = tsr_array_dense(own_y, TSR_F32, &y_shape);
  TRY(tsr_session_bind(session, rank, w, &w_array, &error));
  for (int step = 0; step < 3; step++) {
    TRY(tsr_session_bind(session, rank, x, &x_array, &error));
    TRY(tsr_session_start(session, &error));
    TRY(tsr_session_wait(session, &error));
    TRY(tsr_session_read(session, rank, y, &y_array, &error));
  }
  double worst = worst_error(own_y, first, columns);
  printf("rank %d of %d: columns %lld to %lld on %s, largest error %.2g\n", rank, size, (long long)first,
         (long long)(first + columns), tsr_device_get_info(device)->name, worst);
  if (!(worst < 1e-3)) status = TSR_ERROR_CHECK_FAILED;

done:
  tsr_session_destroy(&session);
  tsr_plan_destroy(&plan);
  tsr_graph_destroy(&graph);
  tsr_cluster_destroy(&cluster);
  tsr_device_close(&device);
  tsr_group_destroy(&group);
  tsr_context_destroy(&context);
  free(offsets);
  free(own_x);
  free(own_w);
  free(own_y);
  return status == TSR_OK ? 0 : 1;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, status = 0;
  MPI_Comm even = MPI_COMM_NULL;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2 ? MPI_UNDEFINED : 0, rank, &even);
  if (even != MPI_COMM_NULL) {
    status = multiply(even);
    MPI_Comm_free(&even);
  }
  MPI_Finalize();
  return status;
}
