/* launch.c: mpiexec: finding it, its options, the environment of the ranks. */
#include "launch.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "json.h"
#include "message.h"
#include "mpi.h"

enum { OWN_ARGUMENTS = 16 };

static bool is_in_path(const char *program) {
  const char *rest = getenv("PATH");
  char path[4096];
  while (rest && *rest) {
    int bytes = (int)strcspn(rest, ":");
    snprintf(path, sizeof path, "%.*s/%s", bytes, rest, program);
    if (access(path, X_OK) == 0) return true;
    rest += bytes + (rest[bytes] == ':');
  }
  return false;
}

/* MPICH's own name first: on a machine with several MPIs plain mpiexec may be another one's. */
static const char *find_mpiexec(void) {
  static const char *const names[] = {"mpiexec.mpich", "mpiexec.hydra", "mpiexec"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (is_in_path(names[i]) && (tool_mpi_is_mpich() || i == 2)) return names[i];
  return NULL;
}

static int count_cores(void) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores > 0 ? (int)cores : 1;
}

/* The arguments of mpiexec, whose texts live in `texts`; returns how many. */
typedef struct launch_line {
  char count[16], binding[32], program[4096];
  char **arguments;
} launch_line;

static bool build_line(const tool_options *options, int ranks, const char *mpiexec, launch_line *line) {
  static char name_n[] = "-n", name_bind[] = "-bind-to", name_cleanup[] = "-disable-auto-cleanup";
  static char name_mpiexec[32];
  char **out = line->arguments = calloc((size_t)options->argc + OWN_ARGUMENTS, sizeof *out);
  if (!out) return false;
  int cores = count_cores();
  snprintf(name_mpiexec, sizeof name_mpiexec, "%s", mpiexec);
  snprintf(line->count, sizeof line->count, "%d", ranks);
  snprintf(line->binding, sizeof line->binding, "hwthread:%d", cores / ranks);
  snprintf(line->program, sizeof line->program, "%s", tool_program_path(options->argv[0]));
  *out++ = name_mpiexec;
  if (tool_mpi_is_mpich()) {
    *out++ = name_cleanup; /* so that the survivors of a lost rank can say so */
    if (ranks <= cores) *out++ = name_bind, *out++ = line->binding;
  }
  *out++ = name_n, *out++ = line->count, *out++ = line->program;
  for (int i = 1; i < options->argc; i++) *out++ = options->argv[i];
  return true;
}

static int fail_alone(const tool_options *options, const tsr_error *error) {
  if (options->json) tool_json_print(options->name, tool_json_failure(options->name, error));
  return tool_complain(options->name, -1, error);
}

/* What the ranks have not said themselves. mpiexec puts a banner on stdout when a rank is killed: what is no
 * part of the document is left out. */
static bool report_end(const tool_options *options, const tool_child *child) {
  json_t *document = options->json ? tool_json_find(child->text) : NULL;
  if (document) return tool_json_print(options->name, document);
  bool killed = WIFSIGNALED(child->wait_status);
  if (!killed && !options->json) return true;
  tsr_error error;
  if (killed)
    tool_fail(&error, TSR_ERROR_RANK_LOST, "mpiexec was ended by signal %d (%s), and the ranks with it",
              WTERMSIG(child->wait_status), strsignal(WTERMSIG(child->wait_status)));
  else
    tool_fail(&error, TSR_ERROR_RANK_LOST, "rank 0 ended without a report (mpiexec ended with %d)",
              tool_child_code(child));
  error.rank = 0;
  fail_alone(options, &error);
  return false;
}

static int run_line(const tool_options *options, int ranks, launch_line *line) {
  char threads[16], deadline[32];
  int cores = count_cores();
  snprintf(threads, sizeof threads, "%d", cores > ranks ? cores / ranks : 1);
  snprintf(deadline, sizeof deadline, "%.17g", options->deadline);
  /* Each rank takes its part of the cores. POCL_AFFINITY is left alone: it would bind all ranks to the first.
   */
  const tool_setting settings[] = {{"POCL_MAX_PTHREAD_COUNT", threads, true},
                                   {TOOL_GUARD_VARIABLE, deadline, false}};
  const tool_child_options how = {.settings = settings,
                                  .setting_count = sizeof settings / sizeof settings[0],
                                  .passed_on = !options->json};
  tool_child child;
  tsr_error error;
  if (tool_child_start(line->arguments, &how, &child, &error) != TSR_OK) return fail_alone(options, &error);
  tool_children_collect(&child, 1, 0);
  int code = tool_child_code(&child);
  bool printed = report_end(options, &child);
  tool_child_free(&child);
  /* mpiexec mixes the codes of its ranks: all that can be told from them is that somebody failed. */
  return code == 0 && printed ? TOOL_EXIT_DONE : TOOL_EXIT_FAILED;
}

int tool_launch(const tool_options *options, int ranks) {
  launch_line line = {0};
  tsr_error error;
  const char *mpiexec = find_mpiexec();
  if (!mpiexec) {
    tool_fail(
        &error, TSR_ERROR_NOT_FOUND,
        "-n %d needs mpiexec, and there is none in PATH: install it (Debian: mpich), or use --transport sim",
        ranks);
    return fail_alone(options, &error);
  }
  if (!build_line(options, ranks, mpiexec, &line)) {
    tool_fail(&error, TSR_ERROR_OUT_OF_MEMORY, "no memory to start mpiexec");
    return fail_alone(options, &error);
  }
  int code = run_line(options, ranks, &line);
  free(line.arguments);
  return code;
}

/* The part of options that says which group is meant, as a command line for `tessera profile`. */
typedef struct profile_line {
  char program[4096], count[16];
  char *devices;
  char *arguments[OWN_ARGUMENTS];
} profile_line;

static char *join(const tool_texts *texts) {
  size_t bytes = 1;
  for (size_t i = 0; i < texts->count; i++) bytes += strlen(texts->items[i]) + 1;
  char *joined = calloc(bytes, 1);
  for (size_t i = 0; joined && i < texts->count; i++) {
    if (i) strcat(joined, ",");
    strcat(joined, texts->items[i]);
  }
  return joined;
}

static bool build_profile_line(const tool_options *options, int ranks, profile_line *line) {
  static char words[][16] = {"profile", "--json", "-n", "--device", "--transport", "sim", "mpi"};
  char **out = line->arguments;
  line->devices = join(&options->devices);
  if (!line->devices) return false;
  snprintf(line->program, sizeof line->program, "%s", tool_program_path(options->argv[0]));
  snprintf(line->count, sizeof line->count, "%d", ranks);
  *out++ = line->program, *out++ = words[0], *out++ = words[1], *out++ = words[2], *out++ = line->count;
  if (options->devices.count) *out++ = words[3], *out++ = line->devices;
  if (options->transport >= 0) {
    *out++ = words[4];
    *out++ = words[options->transport == TOOL_TRANSPORT_SIM ? 5 : 6];
  }
  *out = NULL;
  return true;
}

/* The message of the child's own document; what MPI and drivers had to say was not shown. */
static tsr_status profile_failure(const tool_child *child, int ranks, tsr_error *error) {
  json_t *answer = tool_json_find(child->text);
  const char *said = tool_json_get_text(json_object_get(answer, "error"), "message");
  tsr_status status =
      said[0]
          ? tool_fail(error, TSR_ERROR_DEVICE,
                      "while measuring the devices: %s; 'tessera profile -n %d' may say more", said, ranks)
          : tool_fail(error, TSR_ERROR_DEVICE,
                      "the devices could not be measured: tessera profile ended with exit code %d",
                      tool_child_code(child));
  json_decref(answer);
  return status;
}

tsr_status tool_launch_profile(const tool_options *options, int ranks, char **text, tsr_error *error) {
  profile_line line = {0};
  tool_child child;
  if (!build_profile_line(options, ranks, &line))
    return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to start tessera profile");
  const tool_child_options how = {.quiet = getenv("TSR_LOG") == NULL, .alone = true};
  tsr_status status = tool_child_start(line.arguments, &how, &child, error);
  free(line.devices);
  if (status != TSR_OK) return status;
  tool_children_collect(&child, 1, 0);
  if (tool_child_code(&child) == 0 && child.text) {
    *text = child.text;
    child.text = NULL;
  } else {
    status = profile_failure(&child, ranks, error);
  }
  tool_child_free(&child);
  return status;
}
