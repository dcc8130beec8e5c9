/* mpi.h: all that the program asks of MPI. mpi.c is built with MPI, mpi_none.c without. */
#ifndef TOOL_MPI_H
#define TOOL_MPI_H

#include <stdbool.h>

#include <tessera/tessera.h>

bool tool_mpi_built(void);
/* Whether the MPI is MPICH or takes its mpiexec's options. */
bool tool_mpi_is_mpich(void);

/* Initialises MPI and makes a group of all its processes. Gives *out. */
tsr_status tool_mpi_start(tsr_context *context, double deadline_seconds, tsr_group **out, tsr_error *error);
/* After the group is destroyed. Does nothing if MPI was not started. */
void tool_mpi_stop(void);
/* Ends all processes, this one too. Returns if MPI was not started. */
void tool_mpi_abort(void);

#endif
