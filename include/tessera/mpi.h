/* tessera/mpi.h: a group over the caller's communicator. The only header that needs <mpi.h>.
 *
 * Built without MPI (-Dmpi=disabled) the library does not have this function and the header is not
 * installed. */
#ifndef TESSERA_MPI_H
#define TESSERA_MPI_H

#include <mpi.h>

#include <tessera/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/* [C] One member per process of `communicator`, which is duplicated (the copy returns errors instead of
 * aborting; the caller's is left as it is). MPI must be initialised and stays the caller's to finalise, after
 * tsr_group_destroy. With MPI_THREAD_MULTIPLE and ranks on several hosts a thread gives this process's signs
 * of life, so that no rank is taken for lost while it computes; with less, MPI is called from the calling
 * thread only, and a rank that does not call for deadline_seconds is lost to ranks of other hosts. options
 * may be NULL. Gives *out. Errors:
 * INVALID_ARGUMENT (MPI not initialised), COMM (launched by another MPI's mpiexec), OUT_OF_MEMORY. */
tsr_status tsr_group_create_mpi(tsr_context *context, MPI_Comm communicator, const tsr_group_options *options,
                                tsr_group **out, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
