/* tune_search.h: the search for a faster variant of one product. */
#ifndef TOOL_TUNE_SEARCH_H
#define TOOL_TUNE_SEARCH_H

#include <tessera/tessera.h>

#include "tune_candidate.h"

/* What came of it. */
typedef struct tool_search_result {
  char baseline[TSR_VARIANT_BYTES];        /* what is in force */
  char best[TSR_VARIANT_BYTES];            /* the same text if nothing is at least 1 % faster */
  double baseline_seconds, seconds, ratio; /* of one product; ratio: best over baseline */
  int tried, failed;                       /* tried 0: it was to stop before anything was known */
  tool_trial *failures;                    /* those that failed: free() */
  bool complete;                           /* it ended because nothing improved, not because time was up */
} tool_search_result;

/* Tries what is in force, the families' defaults, then one parameter after another from the best of them
 * (while that brings
 * 1 %), then random steps away from it; until a number of them in a row brought nothing, `seconds` have
 * passed, or the process is asked to stop. The best is measured again before it counts. Errors: DEVICE (what
 * is in force does not work), IO, OUT_OF_MEMORY. */
tsr_status tool_search(const tool_options *options, const tsr_device *device, const char *selector,
                       const tool_shape *shape, double seconds, tool_search_result *out, tsr_error *error);

#endif
