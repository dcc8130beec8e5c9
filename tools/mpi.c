/* mpi.c: the only file of the program that includes <mpi.h>. */
#include "mpi.h"

#include <mpi.h>
#include <tessera/mpi.h>

bool tool_mpi_built(void) {
  return true;
}

bool tool_mpi_is_mpich(void) {
#ifdef MPICH_VERSION
  return true;
#else
  return false;
#endif
}

static bool is_running(void) {
  int started = 0, stopped = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&stopped);
  return started && !stopped;
}

tsr_status tool_mpi_start(tsr_context *context, double deadline_seconds, tsr_group **out, tsr_error *error) {
  /* A failure of MPI_Init ends the process: errors return only once there is a communicator. */
  MPI_Init(NULL, NULL);
  tsr_group_options options;
  tsr_group_options_init(&options);
  options.deadline_seconds = deadline_seconds;
  return tsr_group_create_mpi(context, MPI_COMM_WORLD, &options, out, error);
}

void tool_mpi_stop(void) {
  if (is_running()) MPI_Finalize();
}

void tool_mpi_abort(void) {
  int size = 1;
  if (is_running()) MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size > 1) MPI_Abort(MPI_COMM_WORLD, 1); /* alone there is nobody to end, and it would only add a line */
}
