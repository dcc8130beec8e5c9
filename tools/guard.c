/* guard.c: stands between mpiexec and a rank.
 *
 * When a process that it has started is killed by a signal, MPICH's mpiexec kills all others, often even with
 * -disable-auto-cleanup, before they can report whom they miss. So what it starts is a guard, which starts
 * the rank, waits, and turns a signal into an exit code. */
#include "launch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "message.h"
#include "place.h"

/* Survivors take the deadline to notice, and a second until what they say is out. */
static const double GRACE_SECONDS = 3;

static void end_with_parent(void) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
}

/* What MPI_Abort says to mpiexec, in PMI's words. */
static void abort_job(void) {
  static const char command[] = "cmd=abort exitcode=1\n";
  const char *descriptor = getenv("PMI_FD");
  if (!descriptor || write(atoi(descriptor), command, sizeof command - 1) < 0) return;
  sleep(1); /* until that has ended this process too */
}

/* A rank died. The others find out by themselves, and end everything; but not those that are still in
 * MPI_Init, or will be: that waits for ever. */
static void await_others(double deadline_seconds) {
  double end = tool_seconds_now() + deadline_seconds + GRACE_SECONDS;
  while (tool_seconds_now() < end) usleep(10000); /* signals of mpiexec cut a sleep short */
  abort_job();
}

static void wait_and_end(pid_t rank, double deadline_seconds) {
  int ended;
  while (waitpid(rank, &ended, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(ended)) _exit(WEXITSTATUS(ended));
  int number = WTERMSIG(ended);
  char line[128];
  snprintf(line, sizeof line, "tessera: rank %d was ended by signal %d (%s)%s\n", tool_place_find().rank,
           number, strsignal(number), number == SIGBUS ? "; is /dev/shm full?" : "");
  fputs(line, stderr);
  fflush(stderr);
  await_others(deadline_seconds);
  _exit(TOOL_EXIT_FAILED);
}

void tool_launch_guard(void) {
  const char *deadline = getenv(TOOL_GUARD_VARIABLE);
  if (!deadline || !tool_place_find().launched) return;
  double deadline_seconds = strtod(deadline, NULL);
  unsetenv(TOOL_GUARD_VARIABLE);
  signal(SIGUSR1, SIG_IGN); /* by which mpiexec tells of a death; MPI sets a handler of its own */
  pid_t rank = fork();
  if (rank > 0) wait_and_end(rank, deadline_seconds);
  if (rank == 0) end_with_parent(); /* without a guard, if there is no process left for it */
}
