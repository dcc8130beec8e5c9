/* tune_candidate.h: one variant, measured: by a child of this program, which may hang or crash in its stead.
 */
#ifndef TOOL_TUNE_CANDIDATE_H
#define TOOL_TUNE_CANDIDATE_H

#include <tessera/tessera.h>

#include "bench_shapes.h"
#include "options.h"

/* What the child does for --candidate: verifies the variant, times it in turn with --baseline, and prints
 * {seconds, baseline_seconds, ratio}, or a failure. Returns the exit code. */
int tool_candidate_measure(const tool_options *options);

typedef struct tool_trial {
  char variant[TSR_VARIANT_BYTES];
  bool good;
  double seconds, ratio;             /* of one product; the baseline's seconds over its own */
  char why[TSR_ERROR_MESSAGE_BYTES]; /* not good: what became of it */
} tool_trial;

typedef struct tool_trial_request {
  const tool_options *options; /* of the parent */
  const char *selector, *baseline;
  tool_shape shape;
  double seconds;  /* to time for */
  bool to_the_end; /* also when this process is asked to stop: then other children are ended */
} tool_trial_request;

/* Starts the child and waits, at most for --deadline. trial->variant is given. Errors: IO (no child could be
 * started). */
tsr_status tool_trial_run(const tool_trial_request *request, tool_trial *trial, tsr_error *error);

#endif
