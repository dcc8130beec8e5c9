/* comm/mpi_launcher.h: notices that another MPI's mpiexec started this process: each rank then believes to be
 * alone, and would compute everything by itself. */
#ifndef TSR_COMM_MPI_LAUNCHER_H
#define TSR_COMM_MPI_LAUNCHER_H

#include "base/error.h"

/* world_size: what MPI says. library: MPI_Get_library_version's text. COMM if a launcher's environment says
 * that there are more ranks. */
tsr_status tsr_mpi_launcher_check(int world_size, const char *library, tsr_error *error);

#endif
