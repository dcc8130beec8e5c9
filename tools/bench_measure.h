/* bench_measure.h: contenders in turn, each result checked, and what their times say. */
#ifndef TOOL_BENCH_MEASURE_H
#define TOOL_BENCH_MEASURE_H

#include <tessera/tessera.h>

#include "bench_contender.h"

typedef enum tool_clock { TOOL_CLOCK_HOST, TOOL_CLOCK_DEVICE, TOOL_CLOCK_CPU } tool_clock;
/* "host", "device", "cpu": whose time it is. */
const char *tool_clock_name(tool_clock clock);

/* Quartiles and ends of a series. */
typedef struct tool_spread {
  double least, lower, median, upper, most;
} tool_spread;

typedef struct tool_result {
  tool_spread seconds; /* of one product */
  tool_spread ratio;   /* its seconds over those of contender 0 in the same turn */
} tool_result;

typedef struct tool_measurement {
  tool_clock clock;
  int turns;
  int64_t batch; /* products of one timed run */
  tool_result results[TOOL_RUNNERS];
} tool_measurement;

/* Turns of one run each, every contender first in turn, until `seconds` have passed; at least 3. With
 * TOOL_CLOCK_DEVICE it is the host's clock that counts if a device does not say, or not sanely. Errors:
 * CHECK_FAILED, DEVICE, ... */
tsr_status tool_measure(tool_contender *contenders, int count, tool_clock clock, double seconds,
                        tool_measurement *out, tsr_error *error);

#endif
