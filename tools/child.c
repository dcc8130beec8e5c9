/* child.c: fork, exec, collect. A child is ended only by its own process id. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

enum { PATH_BYTES = 4096, CHILDREN_MAX = 64 };

const char *tool_program_path(const char *argv0) {
  static char path[PATH_BYTES];
  ssize_t bytes = readlink("/proc/self/exe", path, sizeof path - 1);
  if (bytes <= 0) return argv0;
  path[bytes] = 0;
  return path;
}

static void apply_settings(const tool_child_options *options) {
  for (size_t i = 0; i < options->setting_count; i++) {
    const tool_setting *setting = &options->settings[i];
    if (!setting->value)
      unsetenv(setting->name);
    else
      setenv(setting->name, setting->value, !setting->unless_set);
  }
}

/* When this program is killed, mpiexec and its ranks, or a driver that hangs, must not stay behind. SIGTERM,
 * because mpiexec then ends its ranks. */
static void end_with_parent(pid_t parent) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127); /* it was killed before */
#else
  (void)parent;
#endif
}

static void become(char *const *arguments, const tool_child_options *options, int output) {
  int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(nowhere, STDIN_FILENO);
  if (options->quiet) dup2(nowhere, STDERR_FILENO);
  dup2(output, STDOUT_FILENO);
  if (options->alone) tool_place_leave();
  if (options->apart) setpgid(0, 0);
  apply_settings(options);
  execvp(arguments[0], arguments);
  _exit(127);
}

tsr_status tool_child_start(char *const *arguments, const tool_child_options *options, tool_child *out,
                            tsr_error *error) {
  *out = (tool_child){.pid = -1, .output = -1, .passed_on = options->passed_on, .stop = options->stop};
  int ends[2];
  if (pipe(ends) != 0)
    return tool_fail(error, TSR_ERROR_IO, "cannot make a pipe for %s: %s", arguments[0], strerror(errno));
  /* Children that start later must not hold this one's pipe open. */
  for (int i = 0; i < 2; i++) fcntl(ends[i], F_SETFD, FD_CLOEXEC);
  fflush(NULL);
  pid_t parent = getpid();
  out->pid = fork();
  if (out->pid == 0) {
    end_with_parent(parent);
    become(arguments, options, ends[1]);
  }
  close(ends[1]);
  out->output = ends[0];
  if (out->pid > 0) return TSR_OK;
  tool_child_free(out);
  return tool_fail(error, TSR_ERROR_IO, "cannot start %s: %s", arguments[0], strerror(errno));
}

/* False when memory ran out. */
static bool keep(tool_child *child, const char *part, size_t bytes) {
  if (child->bytes + bytes + 1 > child->capacity) {
    size_t capacity = 2 * child->capacity + bytes + 1;
    char *text = realloc(child->text, capacity);
    if (!text) return false;
    child->text = text;
    child->capacity = capacity;
  }
  memcpy(child->text + child->bytes, part, bytes);
  child->bytes += bytes;
  child->text[child->bytes] = 0;
  return true;
}

/* A stdout that takes nothing more is no reason to stop the child: tool_stdout_finish tells of it. */
static bool pass_on(const char *part, size_t bytes) {
  fwrite(part, 1, bytes, stdout);
  fflush(stdout);
  return true;
}

/* Reads what is there; closes our end at the end of the output, or when memory ran out. */
static void read_some(tool_child *child) {
  char part[16384];
  ssize_t bytes = read(child->output, part, sizeof part);
  if (bytes < 0 && errno == EINTR) return;
  if (bytes > 0 && (child->passed_on ? pass_on(part, (size_t)bytes) : keep(child, part, (size_t)bytes)))
    return;
  close(child->output);
  child->output = -1;
}

/* False when there is nothing left to read. */
static bool poll_once(tool_child *children, size_t count, int milliseconds) {
  struct pollfd waits[CHILDREN_MAX];
  tool_child *owners[CHILDREN_MAX];
  nfds_t used = 0;
  for (size_t i = 0; i < count && used < CHILDREN_MAX; i++) {
    if (children[i].output < 0) continue;
    waits[used] = (struct pollfd){.fd = children[i].output, .events = POLLIN};
    owners[used++] = &children[i];
  }
  if (!used) return false;
  if (poll(waits, used, milliseconds) > 0)
    for (nfds_t i = 0; i < used; i++)
      if (waits[i].revents) read_some(owners[i]);
  return true;
}

static void end_late(tool_child *children, size_t count, bool all) {
  for (size_t i = 0; i < count; i++) {
    const bool ends = all || (children[i].stop && *children[i].stop);
    if (!ends || children[i].output < 0 || children[i].pid <= 0) continue;
    children[i].late = true;
    kill(children[i].pid, SIGKILL);
    close(children[i].output);
    children[i].output = -1;
  }
}

void tool_children_collect(tool_child *children, size_t count, double seconds) {
  double end = tool_seconds_now() + seconds;
  while (poll_once(children, count, 100)) end_late(children, count, seconds > 0 && tool_seconds_now() > end);
  for (size_t i = 0; i < count; i++) {
    if (children[i].pid <= 0) continue;
    while (waitpid(children[i].pid, &children[i].wait_status, 0) < 0 && errno == EINTR) {
    }
    children[i].pid = -1;
  }
}

void tool_child_free(tool_child *child) {
  if (child->output >= 0) close(child->output);
  free(child->text);
  *child = (tool_child){.pid = -1, .output = -1};
}

int tool_child_code(const tool_child *child) {
  if (WIFSIGNALED(child->wait_status)) return 128 + WTERMSIG(child->wait_status);
  return WEXITSTATUS(child->wait_status);
}
