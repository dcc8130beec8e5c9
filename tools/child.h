/* child.h: other programs, started and waited for. */
#ifndef TOOL_CHILD_H
#define TOOL_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <tessera/tessera.h>

/* A child whose standard output is collected. It does not outlive this process (on Linux). Release with
 * tool_child_free. */
typedef struct tool_child {
  pid_t pid;
  int output; /* our end of its stdout; -1 when it is closed */
  bool passed_on;
  const volatile sig_atomic_t *stop;
  char *text; /* terminated; NULL if there was none */
  size_t bytes, capacity;
  bool late; /* it was ended because it took too long, or was to stop */
  int wait_status;
} tool_child;

/* Variables of the environment; value NULL removes one. */
typedef struct tool_setting {
  const char *name, *value;
  bool unless_set; /* what the user has set stays */
} tool_setting;

typedef struct tool_child_options {
  const tool_setting *settings;
  size_t setting_count;
  bool quiet;     /* stderr is /dev/null; stdin always is */
  bool passed_on; /* its stdout goes to ours as it comes, and is not kept */
  bool alone;     /* it is no rank: what a launcher has put into the environment is removed */
  bool apart;     /* in a process group of its own: a terminal's Ctrl-C is for us alone */
  const volatile sig_atomic_t *stop; /* borrowed until it was collected: ended as soon as this is not 0;
                                        NULL: never */
} tool_child_options;

/* Path of this program, for starting it again. Borrowed; never NULL. */
const char *tool_program_path(const char *argv0);

/* Starts arguments[0] (searched in PATH unless it has a slash). Errors: IO. */
tsr_status tool_child_start(char *const *arguments, const tool_child_options *options, tool_child *out,
                            tsr_error *error);
/* Collects the output of all of them and waits for their ends; those that are not done after `seconds` are
 * killed. seconds <= 0: no limit. */
void tool_children_collect(tool_child *children, size_t count, double seconds);
void tool_child_free(tool_child *child);

/* Exit code as the shell has it: 128 + the signal when there was one. */
int tool_child_code(const tool_child *child);

#endif
