/* tests/mpi/test_slow.c: a rank computes for three times the deadline without calling. It lives, so the
 * others wait on, say so once per deadline, and get the right data. Run on 3 ranks: of one host, where its
 * process is seen, and with that one on another host, where its thread gives signs. */
#include <mpi.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tessera/mpi.h>

static int warnings;

static void count_warnings(void *user, tsr_log_level level, const char *area, const char *message) {
  (void)user;
  if (level == TSR_LOG_WARNING && !strcmp(area, "comm") && strstr(message, "rank 1 is slow")) warnings++;
}

int main(int argc, char **argv) {
  int rank, level, all[3];
  tsr_context *context = NULL;
  tsr_group *group = NULL;
  tsr_error error = {.message = ""};
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  tsr_context_options *quiet =
      TSR_CONTEXT_OPTIONS(.cache_folder = "", .log = count_warnings, .log_level = TSR_LOG_WARNING);
  tsr_status status = tsr_context_create(quiet, &context, &error);
  if (status == TSR_OK)
    status = tsr_group_create_mpi(context, MPI_COMM_WORLD, TSR_GROUP_OPTIONS(.deadline_seconds = 1), &group,
                                  &error);
  if (rank == 1) sleep(3);
  if (status == TSR_OK) status = tsr_group_gather(group, &rank, sizeof rank, all, &error);
  bool right = status == TSR_OK && all[0] == 0 && all[1] == 1 && all[2] == 2 &&
               (rank == 1 || (warnings >= 2 && warnings <= 4));
  if (!right)
    printf("rank %d: %s: %s; %d warnings\n", rank, tsr_status_name(status), error.message, warnings);
  tsr_group_destroy(&group);
  tsr_context_destroy(&context);
  MPI_Finalize();
  return right ? 0 : 1;
}
