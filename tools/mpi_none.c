/* mpi_none.c: the same calls in a build without MPI. */
#include "mpi.h"

#include "message.h"

bool tool_mpi_built(void) {
  return false;
}

bool tool_mpi_is_mpich(void) {
  return false;
}

tsr_status tool_mpi_start(tsr_context *context, double deadline_seconds, tsr_group **out, tsr_error *error) {
  (void)context, (void)deadline_seconds, (void)out;
  return tool_fail(error, TSR_ERROR_UNSUPPORTED,
                   "this tessera was built without MPI: use --transport sim, or build it with -Dmpi=enabled");
}

void tool_mpi_stop(void) {}

void tool_mpi_abort(void) {}
