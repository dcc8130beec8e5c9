/* comm/mpi_launcher.c: see mpi_launcher.h. */
#include "comm/mpi_launcher.h"

#include <stdlib.h>
#include <string.h>

/* What launchers tell their ranks about the number of ranks. */
static const struct {
  const char *variable, *launcher;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "Open MPI's mpiexec"},
    {"PMIX_SIZE", "a PMIx launcher"},
    {"PMI_SIZE", "MPICH's or Intel MPI's mpiexec"},
    {"MV2_COMM_WORLD_SIZE", "MVAPICH's mpiexec"},
};

/* Which mpiexec belongs to a library, by the start of its version text. */
static const struct {
  const char *library, *launcher;
} right_launchers[] = {
    {"MPICH", "MPICH's mpiexec (mpiexec.mpich or mpiexec.hydra)"},
    {"Open MPI", "Open MPI's mpiexec (mpiexec.openmpi or mpirun)"},
    {"Intel", "Intel MPI's mpiexec (mpiexec.hydra)"},
};

static const char *right_launcher(const char *library) {
  for (size_t i = 0; i < sizeof right_launchers / sizeof *right_launchers; i++)
    if (strstr(library, right_launchers[i].library)) return right_launchers[i].launcher;
  return "the mpiexec of that MPI";
}

tsr_status tsr_mpi_launcher_check(int world_size, const char *library, tsr_error *error) {
  for (size_t i = 0; world_size == 1 && i < sizeof launchers / sizeof *launchers; i++) {
    const char *value = getenv(launchers[i].variable);
    if (!value || atoi(value) <= 1) continue;
    return tsr_fail(
        error, TSR_ERROR_COMM,
        "MPI sees 1 rank but %s is %s: %s started this process, while Tessera was built with %.*s; "
        "start it with %s",
        launchers[i].variable, value, launchers[i].launcher, (int)strcspn(library, ",\n"), library,
        right_launcher(library));
  }
  return TSR_OK;
}
