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

static void end_with_parent(void) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
}

static void wait_and_end(pid_t rank) {
  int ended;
  while (waitpid(rank, &ended, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(ended)) _exit(WEXITSTATUS(ended));
  int number = WTERMSIG(ended);
  char line[128];
  snprintf(line, sizeof line, "tessera: rank %d was ended by signal %d (%s)\n", tool_place_find().rank,
           number, strsignal(number));
  fputs(line, stderr);
  fflush(stderr);
  _exit(TOOL_EXIT_FAILED);
}

void tool_launch_guard(void) {
  if (!getenv(TOOL_GUARD_VARIABLE) || !tool_place_find().launched) return;
  unsetenv(TOOL_GUARD_VARIABLE);
  signal(SIGUSR1, SIG_IGN); /* by which mpiexec tells of a death; MPI sets a handler of its own */
  pid_t rank = fork();
  if (rank > 0) wait_and_end(rank);
  if (rank == 0) end_with_parent(); /* without a guard, if there is no process left for it */
}
