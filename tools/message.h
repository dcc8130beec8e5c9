/* message.h: what the program says to people, and how its own parts fail.
 *
 * Documents and tables go to stdout, everything else to stderr. A rank of a group puts "rank R: " before
 * what it says for itself. */
#ifndef TOOL_MESSAGE_H
#define TOOL_MESSAGE_H

#include <tessera/tessera.h>

#if defined(__GNUC__)
#define TOOL_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#else
#define TOOL_PRINTF(format_index, first)
#endif

enum { TOOL_EXIT_DONE = 0, TOOL_EXIT_FAILED = 1, TOOL_EXIT_USAGE = 2 };

/* Fills error (may be NULL) and returns status. */
tsr_status tool_fail(tsr_error *error, tsr_status status, const char *format, ...) TOOL_PRINTF(3, 4);

/* One line about wrong usage, said by rank 0 alone; returns TOOL_EXIT_USAGE. command may be NULL. */
int tool_usage(const char *command, const char *format, ...) TOOL_PRINTF(2, 3);
/* What the last of them was about, on every rank. */
const char *tool_usage_text(void);

/* One line about a failure; returns TOOL_EXIT_FAILED. rank < 0: the group as a whole speaks. */
int tool_complain(const char *command, int rank, const tsr_error *error);

/* One line on stderr, if that is a terminal. */
void tool_progress(const char *format, ...) TOOL_PRINTF(1, 2);

/* A standard file that the caller has closed is opened such that its use fails: its number must not go to
 * another file, which would then receive what is meant for stdout or stderr. */
void tool_standard_files_open(void);
/* The last thing of all: returns code, or, with a line, TOOL_EXIT_FAILED if what went to stdout could not be
 * written. */
int tool_stdout_finish(int code);

/* A context whose log goes to stderr, filtered by $TSR_LOG; `rank` < 0: no "rank R: " before its lines. */
tsr_status tool_context_create(int rank, tsr_context **out, tsr_error *error);

/* Of a clock that never goes back. */
double tool_seconds_now(void);

/* A tsr_writer; user is a FILE *. */
int tool_write_file(void *user, const char *text, size_t bytes);

#endif
