/* tests/mpi/test_lost.c: a rank dies in the middle of a loop of collectives. Run by lost.sh: the last rank
 * kills itself; every other one must get RANK_LOST with its name, print it and end with code 3. 1 = anything
 * else. */
#include <mpi.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tessera/mpi.h>

#include "comm/collective.h"

enum { COUNT = 100000, TURNS = 100000, TURN_OF_DEATH = 50, LOST_AS_EXPECTED = 3 };

static float data[COUNT], scratch[COUNT * 8];

static tsr_status loop(tsr_group *group, int rank, int size, tsr_error *error) {
  int64_t count = COUNT;
  tsr_collective *sum = NULL;
  tsr_status status = tsr_collective_create(
      group, rank, &(tsr_collective_options){.kind = TSR_ALL_REDUCE, .counts = &count, .member_count = size},
      scratch, &sum, error);
  for (int turn = 0; status == TSR_OK && turn < TURNS; turn++) {
    if (turn == TURN_OF_DEATH && rank == size - 1) raise(SIGKILL);
    status = tsr_collective_start(sum, data, data, error);
    if (status == TSR_OK) status = tsr_collective_wait_all(group, &sum, 1, error);
  }
  tsr_collective_destroy(&sum);
  return status;
}

int main(int argc, char **argv) {
  int rank, size;
  tsr_context *context = NULL;
  tsr_group *group = NULL;
  tsr_error error, after;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  tsr_group_options *options = TSR_GROUP_OPTIONS(.deadline_seconds = 2);
  if (tsr_context_create(TSR_CONTEXT_OPTIONS(.cache_folder = ""), &context, &error) != TSR_OK ||
      tsr_group_create_mpi(context, MPI_COMM_WORLD, options, &group, &error) != TSR_OK) {
    printf("rank %d: %s\n", rank, error.message);
    return 1;
  }
  tsr_status status = loop(group, rank, size, &error);
  printf("rank %d: %s: %s\n", rank, tsr_status_name(status), error.message);
  bool as_expected = status == TSR_ERROR_RANK_LOST && error.rank == size - 1 &&
                     tsr_group_agree(group, TSR_OK, NULL, &after) == TSR_ERROR_RANK_LOST &&
                     after.rank == size - 1;
  tsr_group_destroy(&group);
  tsr_context_destroy(&context);
  printf("rank %d: destroyed\n", rank);
  fflush(stdout);
  /* No MPI_Finalize: it would wait for the dead rank. */
  _exit(as_expected ? LOST_AS_EXPECTED : 1);
}
