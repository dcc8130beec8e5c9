/* bench_measure.c: what counts is the median of ratios within a turn: a host that is slower for a while slows
 * all contenders. */
#include "bench_measure.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "message.h"

enum { TURNS_MIN = 3, TURNS_MAX = 101, BATCH_MAX = 20000 };

static const double BATCH_SECONDS = 0.05; /* shorter runs are batched: a core that sleeps wakes late */

const char *tool_clock_name(tool_clock clock) {
  static const char *const names[] = {"host", "device", "cpu"};
  return names[clock];
}

static double now(tool_clock clock) {
  struct timespec time;
  clock_gettime(clock == TOOL_CLOCK_CPU ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Between two values, linearly. */
static double quantile(const double *sorted, int count, double part) {
  double place = part * (count - 1);
  int below = (int)place, above = below + 1 < count ? below + 1 : below;
  return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
}

static tool_spread spread_of(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, by_size);
  return (tool_spread){values[0], quantile(values, count, 0.25), quantile(values, count, 0.5),
                       quantile(values, count, 0.75), values[count - 1]};
}

/* Seconds of one product, by the clock; *told is false where the device's does not say. */
static tsr_status time_one(tool_contender *contender, tool_clock clock, int64_t batch, double *seconds,
                           bool *told, tsr_error *error) {
  double device = 0, begin = now(clock);
  tsr_status status =
      tool_contender_run(contender, batch, clock == TOOL_CLOCK_DEVICE ? &device : NULL, error);
  *seconds = (clock == TOOL_CLOCK_DEVICE ? device : now(clock) - begin) / (double)batch;
  *told = clock != TOOL_CLOCK_DEVICE || *seconds > 0;
  *seconds = fmax(*seconds, 1e-12);
  return status;
}

/* Each contender once; results are looked at afterwards, outside the clock. */
static tsr_status take_turn(tool_contender *contenders, int count, tool_clock clock, int first, int64_t batch,
                            double *seconds, bool *told, tsr_error *error) {
  tsr_status status = TSR_OK;
  *told = true;
  for (int i = 0; status == TSR_OK && i < count; i++) status = tool_contender_spoil(&contenders[i], error);
  for (int i = 0; status == TSR_OK && i < count; i++) {
    bool own;
    int place = (first + i) % count;
    status = time_one(&contenders[place], clock, batch, &seconds[place], &own, error);
    *told = *told && own;
  }
  for (int i = 0; status == TSR_OK && i < count; i++) status = tool_contender_check(&contenders[i], error);
  return status;
}

static int64_t batch_of(const double *seconds, int count) {
  double least = seconds[0];
  for (int i = 1; i < count; i++) least = fmin(least, seconds[i]);
  double batch = ceil(BATCH_SECONDS / fmax(least, 1e-7));
  return batch < 1 ? 1 : batch > BATCH_MAX ? BATCH_MAX : (int64_t)batch;
}

static void summarise(double (*times)[TURNS_MAX], int count, tool_measurement *out) {
  double ratios[TOOL_RUNNERS][TURNS_MAX];
  for (int i = 0; i < count; i++)
    for (int turn = 0; turn < out->turns; turn++) ratios[i][turn] = times[i][turn] / times[0][turn];
  for (int i = 0; i < count; i++) {
    out->results[i].ratio = spread_of(ratios[i], out->turns);
    out->results[i].seconds = spread_of(times[i], out->turns);
  }
}

/* The first turn compiles and touches every page, the second says how many products fit a run. */
static tsr_status warm_up(tool_contender *contenders, int count, tool_measurement *out, tsr_error *error) {
  double seconds[TOOL_RUNNERS];
  bool told;
  tsr_status status = take_turn(contenders, count, out->clock, 0, 1, seconds, &told, error);
  if (status == TSR_OK) status = take_turn(contenders, count, out->clock, 0, 1, seconds, &told, error);
  if (status != TSR_OK) return status;
  if (out->clock == TOOL_CLOCK_DEVICE && !told) {
    out->clock = TOOL_CLOCK_HOST;
    status = take_turn(contenders, count, out->clock, 0, 1, seconds, &told, error);
  }
  out->batch = batch_of(seconds, count);
  return status;
}

tsr_status tool_measure(tool_contender *contenders, int count, tool_clock clock, double seconds,
                        tool_measurement *out, tsr_error *error) {
  double times[TOOL_RUNNERS][TURNS_MAX], turn[TOOL_RUNNERS];
  *out = (tool_measurement){.clock = clock};
  tsr_status status = warm_up(contenders, count, out, error);
  double end = tool_seconds_now() + seconds;
  while (status == TSR_OK && out->turns < TURNS_MAX && (out->turns < TURNS_MIN || tool_seconds_now() < end)) {
    bool told;
    status = take_turn(contenders, count, out->clock, out->turns, out->batch, turn, &told, error);
    if (status == TSR_OK && !told) { /* all over again, by the other clock */
      out->clock = TOOL_CLOCK_HOST;
      out->turns = 0;
      continue;
    }
    for (int i = 0; status == TSR_OK && i < count; i++) times[i][out->turns] = turn[i];
    if (status == TSR_OK) out->turns++;
  }
  if (status == TSR_OK) summarise(times, count, out);
  return status;
}
