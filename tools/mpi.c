/* mpi.c: the only file of the program that includes <mpi.h>. */
#include "mpi.h"

#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/mpi.h>
#include <unistd.h>

#include "message.h"
#include "place.h"
#include "stop.h"

enum { STARTS_MAX = 10 }; /* deadlines that a start may take */

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

/* When a rank dies in the middle of a long message, UCX (under MPICH) aborts the process of its peer too,
 * which could then name nobody: by a fatal error where it copies from process to process, by an assertion
 * where it puts over TCP. Its other ways do not. */
static void keep_ucx_from_aborting(void) {
  setenv("UCX_TLS", "^cma", 0);
  setenv("UCX_TCP_PUT_ENABLE", "n", 0);
}

/* MPI_Init waits for all ranks, without limit and without a word; who is missing, it does not know. */
static struct {
  unsigned deadline, waited;
  bool speaks; /* two ranks do: the one that is missing cannot */
} start;

static void say(const char *text) {
  if (!start.speaks) return;
  ssize_t written = write(STDERR_FILENO, text, strlen(text));
  (void)written; /* there is nobody to tell */
}

static void on_late_start(int number) {
  (void)number;
  char line[160] = "tessera: in MPI_Init still after ", digits[16];
  size_t count = sizeof digits;
  start.waited += start.deadline;
  digits[--count] = 0;
  for (unsigned rest = start.waited; rest || !digits[count]; rest /= 10)
    digits[--count] = (char)('0' + rest % 10);
  strcat(line, digits + count);
  bool last = start.waited >= STARTS_MAX * start.deadline;
  say(strcat(line, last ? " s: ended, because not every rank has started\n"
                        : " s: not every rank has started; waiting on\n"));
  if (last) _exit(TOOL_EXIT_FAILED);
  alarm(start.deadline);
}

static void watch_start(double deadline_seconds) {
  const struct sigaction late = {.sa_handler = on_late_start, .sa_flags = SA_RESTART};
  start.deadline = deadline_seconds < 1 ? 1 : deadline_seconds > 1e6 ? 1000000 : (unsigned)deadline_seconds;
  start.waited = 0;
  start.speaks = tool_place_find().rank < 2;
  sigaction(SIGALRM, &late, NULL);
  alarm(start.deadline);
}

static void end_watch(void) {
  alarm(0);
  signal(SIGALRM, SIG_DFL);
}

static tsr_status start_group(tsr_context *context, double deadline_seconds, tsr_group **out,
                              tsr_error *error) {
  /* A failure of MPI_Init ends the process: errors return only once there is a communicator. */
  keep_ucx_from_aborting();
  int level;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level); /* for signs of life; with less it works too */
  tool_stop_on_hangup();
  tsr_group_options options;
  tsr_group_options_init(&options);
  options.deadline_seconds = deadline_seconds;
  return tsr_group_create_mpi(context, MPI_COMM_WORLD, &options, out, error);
}

tsr_status tool_mpi_start(tsr_context *context, double deadline_seconds, tsr_group **out, tsr_error *error) {
  watch_start(deadline_seconds);
  tsr_status status = start_group(context, deadline_seconds, out, error);
  end_watch();
  return status;
}

/* Over UCX's TCP, MPI_Finalize closes a rank's connections, and a peer that sees that before it is in
 * MPI_Finalize itself waits there for ever. So all come together, and then none looks at the network until
 * all have left. */
static void leave_together(void) {
  const char *here = getenv("MPI_LOCALNRANKS"); /* as hydra has it */
  MPI_Request request;
  int size, done = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size == 1 || (here && atoi(here) == size)) return; /* no TCP within a host */
  if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) return;
  while (!done && MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS) sched_yield();
  usleep(200000);
}

void tool_mpi_stop(void) {
  if (!is_running()) return;
  leave_together();
  MPI_Finalize();
}

static void leave(int number) {
  (void)number;
  _exit(TOOL_EXIT_FAILED);
}

void tool_mpi_abort(void) {
  int size = 1;
  if (is_running()) MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size == 1) return; /* alone there is nobody to end, and it would only add a line */
  signal(SIGALRM, leave);
  alarm(1); /* MPI_Abort waits for mpiexec, and for ever if the way there is cut */
  MPI_Abort(MPI_COMM_WORLD, 1);
}
