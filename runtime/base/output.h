/* base/output.h: a file that takes the place of another one when it is complete.
 *
 * It is written under a temporary name beside it and then renamed: a reader never sees half, and a failure
 * leaves what was there before. A link stays a link: what it leads to is replaced, or made. What is no
 * regular file (a device, a pipe) is written as it is.
 *
 * Thread safety: none for one output. */
#ifndef TSR_BASE_OUTPUT_H
#define TSR_BASE_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

#include "base/error.h"

typedef struct tsr_output {
  FILE *stream; /* write here */
  char *target; /* what `name` is renamed to; NULL: nothing is renamed */
  char *name;
} tsr_output;

/* output: all zero. Errors, which begin with the path: IO (native "errno"), OUT_OF_MEMORY. */
tsr_status tsr_output_open(tsr_output *output, const char *path, tsr_error *error);
/* What was written becomes the file. `written` false: writing to the stream has failed, and errno says why.
 * path: for messages. Errors: IO. */
tsr_status tsr_output_commit(tsr_output *output, const char *path, bool written, tsr_error *error);
/* Releases all; without a commit nothing is left of it. */
void tsr_output_close(tsr_output *output);

#endif
