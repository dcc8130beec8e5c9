/* message.c: one line for people, and the log. */
#include "message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "place.h"

/* Of a text that is too long the middle is left out: what was wrong comes first, what to do comes last. */
static void shorten(char *line, size_t bytes, const char *text, size_t length) {
  static const char mark[] = " ... ";
  size_t head = bytes / 2, tail = length - (bytes - head - sizeof mark);
  while (head && ((unsigned char)text[head] & 0xC0) == 0x80) head--; /* not in the middle of a character */
  while (((unsigned char)text[tail] & 0xC0) == 0x80) tail++;
  snprintf(line, bytes, "%.*s%s%s", (int)head, text, mark, text + tail);
}

/* Formats one line: what people type, and what files hold, may have newlines in it and worse. */
static void format_line(char *line, size_t bytes, const char *format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  int length = vsnprintf(line, bytes, format, arguments);
  char *whole = length >= 0 && (size_t)length >= bytes ? malloc((size_t)length + 1) : NULL;
  if (whole) {
    vsnprintf(whole, (size_t)length + 1, format, again);
    shorten(line, bytes, whole, (size_t)length);
  }
  va_end(again);
  free(whole);
  for (char *c = line; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 0x7f) *c = strchr("\t\n\r", *c) ? ' ' : '?';
}

tsr_status tool_fail(tsr_error *error, tsr_status status, const char *format, ...) {
  if (!error) return status;
  memset(error, 0, sizeof *error);
  error->status = status;
  error->rank = -1;
  va_list arguments;
  va_start(arguments, format);
  format_line(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return status;
}

static char usage_text[TSR_ERROR_MESSAGE_BYTES];

const char *tool_usage_text(void) {
  return usage_text;
}

int tool_usage(const char *command, const char *format, ...) {
  const char *space = command ? " " : "";
  const char *name = command ? command : "";
  va_list arguments;
  va_start(arguments, format);
  format_line(usage_text, sizeof usage_text, format, arguments);
  va_end(arguments);
  if (tool_place_find().rank == 0)
    fprintf(stderr, "tessera%s%s: %s; try 'tessera%s%s --help'\n", space, name, usage_text, space, name);
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

void tool_standard_files_open(void) {
  for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
    if (fcntl(file, F_GETFD) < 0 && errno == EBADF)
      while (open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0 && errno == EINTR) {
      }
}

int tool_stdout_finish(int code) {
  errno = 0;
  bool good = fflush(stdout) == 0 && !ferror(stdout);
  if (good || code != TOOL_EXIT_DONE) return code;
  fprintf(stderr, "tessera: cannot write all of the output to stdout%s%s: check where it leads to\n",
          errno ? ": " : "", errno ? strerror(errno) : "");
  return TOOL_EXIT_FAILED;
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
  tsr_error own = {.message = ""};
  tsr_status status = tsr_context_create(
      TSR_CONTEXT_OPTIONS(.log = log_line, .log_level = TSR_LOG_WARNING, .log_filter = filter), out, &own);
  if (status == TSR_ERROR_INVALID_ARGUMENT)
    return tool_fail(error, status, "the variable TSR_LOG is wrong: %s", own.message);
  if (status != TSR_OK && error) *error = own;
  return status;
}

double tool_seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int tool_write_file(void *user, const char *text, size_t bytes) {
  return fwrite(text, 1, bytes, user) == bytes ? 0 : -1;
}
