/* launch.h: starting this program's command line again as the ranks of an mpiexec. */
#ifndef TOOL_LAUNCH_H
#define TOOL_LAUNCH_H

#include <tessera/tessera.h>

#include "options.h"

/* Starts `ranks` processes with the command line of `options`, waits, and returns the exit code: 0, or 1 when
 * any of them failed. With --json there is one document on stdout whatever becomes of the ranks. */
int tool_launch(const tool_options *options, int ranks);

/* In a rank that tool_launch has started: goes on in a child, which becomes the rank, and stays behind to
 * tell mpiexec how it ended; see guard.c. Elsewhere it does nothing. */
void tool_launch_guard(void);
#define TOOL_GUARD_VARIABLE "TESSERA_GUARD_RANK"

/* Runs `tessera profile` for the same group as options asks for, with its document in *text, which the caller
 * frees. */
tsr_status tool_launch_profile(const tool_options *options, int ranks, char **text, tsr_error *error);

#endif
