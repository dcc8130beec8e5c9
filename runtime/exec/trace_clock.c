/* trace_clock.c: one clock for all devices and ranks. Everything is an interval in which an offset must lie,
 * so that the accuracy is a bound, not a guess. */
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/collective.h"
#include "exec/trace.h"

enum { PROBES = 8, ROUNDS = 16 };

static const double COARSEST = 5e-3; /* a device's clock that is known no better is of no use */

/* Apart, so that a clock that runs at another rate contradicts itself. */
static void pause_between_probes(void) {
  const struct timespec a_moment = {.tv_nsec = 2000000};
  nanosleep(&a_moment, NULL);
}

/* A command cannot begin before it is enqueued, nor end after it was waited for. */
bool tsr_trace_look(tsr_device *device, tsr_trace_sight *out) {
  double low = -HUGE_VAL, high = HUGE_VAL, begin = 0, end = 0;
  for (int i = 0; i < PROBES; i++) {
    double before = tsr_clock_seconds();
    if (!device->ops->timing_probe(device, &begin, &end)) return false;
    double after = tsr_clock_seconds();
    low = fmax(low, before - begin);
    high = fmin(high, after - end);
    if (i + 1 < PROBES) pause_between_probes();
  }
  *out = (tsr_trace_sight){.device = end, .host = end + 0.5 * (low + high), .accuracy = 0.5 * (high - low)};
  return low <= high && out->accuracy <= COARSEST;
}

double tsr_trace_host_time(const tsr_trace_sight *first, const tsr_trace_sight *last, double device) {
  double passed = last->device - first->device, rate = 1;
  if (passed > 1) rate = (last->host - first->host) / passed;
  if (fabs(rate - 1) > 1e-3) rate = 1;
  return first->host + (device - first->device) * rate;
}

/* What every member says in a round: when it entered this one, and left the last one. */
typedef struct moment {
  double entered, left;
} moment;

/* low[i] <= offset of member i <= high[i]. Nobody leaves an all-gather before everybody has entered it. */
static void narrow(const moment *round, const moment *next, int members, double *low, double *high) {
  for (int i = 0; i < members; i++) {
    low[i] = fmax(low[i], round[0].entered - next[i].left);
    high[i] = fmin(high[i], next[0].left - round[i].entered);
  }
}

/* Runs one all-gather of moments; own[] are those of the local members. */
static tsr_status run_round(tsr_group *group, tsr_collective *const *collectives, moment *all, double *left,
                            tsr_error *error) {
  int locals = tsr_group_local_count(group);
  double entered = tsr_clock_seconds();
  for (int i = 0; i < locals; i++)
    all[tsr_group_local_member(group, i)] = (moment){.entered = entered, .left = *left};
  for (int i = 0; i < locals; i++)
    TSR_RETURN_IF_FAILED(
        tsr_collective_start(collectives[i], &all[tsr_group_local_member(group, i)], all, error));
  TSR_RETURN_IF_FAILED(tsr_collective_wait_all(group, collectives, (size_t)locals, error));
  *left = tsr_clock_seconds();
  return TSR_OK;
}

static tsr_status create_rounds(tsr_group *group, tsr_collective **collectives, const int64_t *counts,
                                tsr_error *error) {
  const tsr_collective_options options = {
      .kind = TSR_ALL_GATHER, .element_bytes = sizeof(moment), .counts = counts};
  for (int i = 0; i < tsr_group_local_count(group); i++)
    TSR_RETURN_IF_FAILED(tsr_collective_create(group, tsr_group_local_member(group, i), &options, NULL,
                                               &collectives[i], error));
  return TSR_OK;
}

tsr_status tsr_trace_offsets(tsr_group *group, tsr_trace_offset *out, tsr_error *error) {
  tsr_status status = TSR_OK;
  size_t members = (size_t)tsr_group_member_count(group), locals = (size_t)tsr_group_local_count(group);
  moment *rounds = tsr_calloc(2 * members, sizeof *rounds);
  double *bounds = tsr_calloc(2 * members, sizeof *bounds), left = 0;
  int64_t *counts = tsr_calloc(members, sizeof *counts);
  tsr_collective **collectives = tsr_calloc(locals, sizeof *collectives);
  if (!rounds || !bounds || !counts || !collectives)
    status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to compare %zu clocks", members);
  for (size_t i = 0; status == TSR_OK && i < members; i++) {
    counts[i] = 1;
    bounds[i] = -HUGE_VAL;
    bounds[members + i] = HUGE_VAL;
  }
  if (status == TSR_OK) status = create_rounds(group, collectives, counts, error);
  TSR_TRY(tsr_group_agree(group, status, error, error));
  for (int round = 0; round <= ROUNDS; round++) {
    TSR_TRY(run_round(group, collectives, rounds + members, &left, error));
    if (round) narrow(rounds, rounds + members, (int)members, bounds, bounds + members);
    memcpy(rounds, rounds + members, members * sizeof *rounds);
  }
  for (size_t i = 0; i < members; i++)
    out[i] = (tsr_trace_offset){.seconds = i ? 0.5 * (bounds[i] + bounds[members + i]) : 0,
                                .accuracy = i ? 0.5 * (bounds[members + i] - bounds[i]) : 0};
done:
  for (size_t i = 0; collectives && i < locals; i++) tsr_collective_destroy(&collectives[i]);
  free(collectives);
  free(counts);
  free(bounds);
  tsr_group_free(group, rounds);
  return status;
}
