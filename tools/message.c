/* message.c: one line for people, and the log. */
#include "message.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "place.h"

tsr_status tool_fail(tsr_error *error, tsr_status status, const char *format, ...) {
  if (!error) return status;
  memset(error, 0, sizeof *error);
  error->status = status;
  error->rank = -1;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return status;
}

int tool_usage(const char *command, const char *format, ...) {
  if (tool_place_find().rank != 0) return TOOL_EXIT_USAGE;
  const char *space = command ? " " : "";
  const char *name = command ? command : "";
  fprintf(stderr, "tessera%s%s: ", space, name);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fprintf(stderr, "; try 'tessera%s%s --help'\n", space, name);
  return TOOL_EXIT_USAGE;
}

int tool_complain(const char *command, int rank, const tsr_error *error) {
  const char *message = error->message[0] ? error->message : tsr_status_text(error->status);
  char from[32] = "";
  if (rank >= 0) snprintf(from, sizeof from, "rank %d: ", rank);
  /* Written at once: lines of several ranks share the terminal. */
  char line[TSR_ERROR_MESSAGE_BYTES + 96];
  snprintf(line, sizeof line, "tessera %s: %s%s\n", command, from, message);
  fputs(line, stderr);
  fflush(stderr);
  return TOOL_EXIT_FAILED;
}

void tool_progress(const char *format, ...) {
  if (!isatty(STDERR_FILENO)) return;
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
}

/* The log of one process. A line that was said before is not said again: a warning about a driver comes once
 * for each device that a process opens. */
enum { SAID_MAX = 64 };
static struct {
  int rank;
  int said_count;
  uint64_t said[SAID_MAX];
} speaker;

static uint64_t text_hash(const char *text) {
  uint64_t hash = 14695981039346656037u;
  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211u;
  return hash;
}

static bool said_before(const char *message) {
  uint64_t hash = text_hash(message);
  for (int i = 0; i < speaker.said_count; i++)
    if (speaker.said[i] == hash) return true;
  if (speaker.said_count < SAID_MAX) speaker.said[speaker.said_count++] = hash;
  return false;
}

static void log_line(void *user, tsr_log_level level, const char *area, const char *message) {
  static const char *const names[] = {"error", "warning", "info", "debug", "trace"};
  (void)user;
  if (level <= TSR_LOG_WARNING && said_before(message)) return;
  char from[32] = "";
  if (speaker.rank >= 0) snprintf(from, sizeof from, "rank %d: ", speaker.rank);
  char line[4096];
  snprintf(line, sizeof line, "%s%s: %s: %s\n", from, names[level], area, message);
  fputs(line, stderr);
}

tsr_status tool_context_create(int rank, tsr_context **out, tsr_error *error) {
  speaker.rank = rank;
  const char *filter = getenv("TSR_LOG");
  if (filter && !filter[0]) filter = NULL;
  return tsr_context_create(
      TSR_CONTEXT_OPTIONS(.log = log_line, .log_level = TSR_LOG_WARNING, .log_filter = filter), out, error);
}

double tool_seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int tool_write_file(void *user, const char *text, size_t bytes) {
  return fwrite(text, 1, bytes, user) == bytes ? 0 : -1;
}
