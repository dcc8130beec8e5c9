/* tests/mpi/test_launcher.c: another MPI's mpiexec is noticed. Runs alone, without mpiexec. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "comm/mpi_launcher.h"

static void launchers(void **state) {
  (void)state;
  const char *variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "MV2_COMM_WORLD_SIZE"};
  tsr_error error;
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
  assert_int_equal(tsr_mpi_launcher_check(1, "MPICH Version: 4.0.2", &error), TSR_OK);
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    setenv(variables[i], "1", 1);
    assert_int_equal(tsr_mpi_launcher_check(1, "MPICH Version: 4.0.2", &error), TSR_OK);
    setenv(variables[i], "4", 1);
    assert_int_equal(tsr_mpi_launcher_check(4, "MPICH Version: 4.0.2", &error), TSR_OK);
    assert_int_equal(tsr_mpi_launcher_check(1, "MPICH Version: 4.0.2\nmore", &error), TSR_ERROR_COMM);
    assert_non_null(strstr(error.message, variables[i]));
    assert_non_null(strstr(error.message, "mpiexec.mpich"));
    assert_null(strchr(error.message, '\n'));
    assert_int_equal(tsr_mpi_launcher_check(1, "Open MPI v4.1.4, package", &error), TSR_ERROR_COMM);
    assert_non_null(strstr(error.message, "start it with Open MPI's mpiexec"));
    unsetenv(variables[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(launchers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
