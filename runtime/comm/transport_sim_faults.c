/* comm/transport_sim_faults.c: faults as data, and the signs of life that show them. Every member that lives
 * looks for the signs of all others, as a process of its own would. See sim.h. */
#include "comm/sim.h"

#include <math.h>

#include "base/memory.h"

/* ---- are the options sound ---- */

static tsr_status check_number(const char *name, double value, tsr_error *error) {
  if (value >= 0 && isfinite(value)) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s is %g: give a finite number of at least 0", name,
                  value);
}

static tsr_status check_numbers(const char *name, const double *values, size_t count, tsr_error *error) {
  for (size_t i = 0; values && i < count; i++) TSR_RETURN_IF_FAILED(check_number(name, values[i], error));
  return TSR_OK;
}

static bool strikes_member(const tsr_sim_fault *fault) {
  return fault->kind == TSR_SIM_KILL || fault->kind == TSR_SIM_STOP;
}

static tsr_status check_fault(const tsr_sim_fault *fault, size_t i, int members, tsr_error *error) {
  if ((unsigned)fault->kind > TSR_SIM_STOP)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "faults[%zu] is of unknown kind %d", i,
                    (int)fault->kind);
  if (fault->member < 0 || fault->member >= members)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "faults[%zu] is about member %d: give 0 to %d", i,
                    fault->member, members - 1);
  if (fault->event < !strikes_member(fault))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "faults[%zu] strikes at message %lld: the first is 1",
                    i, (long long)fault->event);
  TSR_RETURN_IF_FAILED(check_number("the time of a fault", fault->at, error));
  return check_number("the seconds of a fault", fault->seconds, error);
}

tsr_status tsr_sim_check_options(const tsr_sim_options *options, int members, tsr_error *error) {
  TSR_CHECK_OPTIONS_SIZE(options, tsr_sim_options);
  size_t n = (size_t)members;
  if (!options) return TSR_OK;
  TSR_RETURN_IF_FAILED(check_number("host_latency", options->host_latency, error));
  TSR_RETURN_IF_FAILED(check_number("host_bandwidth", options->host_bandwidth, error));
  TSR_RETURN_IF_FAILED(check_number("network_latency", options->network_latency, error));
  TSR_RETURN_IF_FAILED(check_number("network_bandwidth", options->network_bandwidth, error));
  TSR_RETURN_IF_FAILED(check_number("reduce_bandwidth", options->reduce_bandwidth, error));
  TSR_RETURN_IF_FAILED(check_numbers("one of latencies", options->latencies, n * n, error));
  TSR_RETURN_IF_FAILED(check_numbers("one of bandwidths", options->bandwidths, n * n, error));
  TSR_RETURN_IF_FAILED(check_numbers("one of speeds", options->speeds, n, error));
  for (size_t i = 0; options->speeds && i < n; i++)
    if (options->speeds[i] == 0)
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "speeds[%zu] is 0: give numbers above 0", i);
  if (options->fault_count && !options->faults)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "faults is NULL but fault_count is %zu",
                    options->fault_count);
  for (size_t i = 0; i < options->fault_count; i++)
    TSR_RETURN_IF_FAILED(check_fault(&options->faults[i], i, members, error));
  return TSR_OK;
}

/* ---- before the first message ---- */

tsr_status tsr_sim_prepare_faults(tsr_sim_world *world, tsr_error *error) {
  const tsr_sim_options *options = &world->options;
  size_t n = (size_t)world->member_count;
  if (!options->fault_count) return TSR_OK;
  world->cut = tsr_calloc(n * n, sizeof *world->cut);
  world->lives = tsr_calloc(n, sizeof *world->lives);
  if (!world->cut || !world->lives)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the signs of life of %zu members", n);
  for (int i = 0; i < world->member_count; i++)
    TSR_RETURN_IF_FAILED(tsr_liveness_init(&world->lives[i], world->member_count, i, 0, error));
  for (size_t i = 0; i < options->fault_count; i++)
    if (!options->faults[i].event)
      tsr_sim_schedule(world, TSR_SIM_FAULT, (int)i, tsr_sim_ticks(options->faults[i].at));
  return TSR_OK;
}

void tsr_sim_release_faults(tsr_sim_world *world) {
  for (int i = 0; world->lives && i < world->member_count; i++) tsr_liveness_finish(&world->lives[i]);
  free(world->lives);
  free(world->cut);
}

/* ---- faults strike ---- */

static void kill_member(tsr_sim_world *world, int member) {
  tsr_sim_forget(world, member);
  world->members[member].dead = true;
  world->members[member].died_at = tsr_sim_time_of(world, member);
}

static void strike(tsr_sim_world *world, const tsr_sim_fault *fault) {
  tsr_sim_member *member = &world->members[fault->member];
  if (member->dead) return;
  if (fault->kind == TSR_SIM_KILL) {
    kill_member(world, fault->member);
  } else {
    tsr_sim_occupy(world, fault->member, tsr_sim_ticks(fault->seconds));
    member->stopped_until = member->busy_until;
  }
}

void tsr_sim_on_fault(tsr_sim_world *world, int index) {
  strike(world, &world->options.faults[index]);
}

bool tsr_sim_begins(tsr_sim_world *world, int member) {
  int64_t begun = ++world->members[member].begun;
  for (size_t i = 0; i < world->options.fault_count; i++) {
    const tsr_sim_fault *fault = &world->options.faults[i];
    if (strikes_member(fault) && fault->member == member && fault->event == begun) strike(world, fault);
  }
  return !world->members[member].dead;
}

void tsr_sim_plan_flight(const tsr_sim_world *world, tsr_sim_flight *flight) {
  for (size_t i = 0; i < world->options.fault_count; i++) {
    const tsr_sim_fault *fault = &world->options.faults[i];
    if (fault->member != flight->from || fault->event != flight->number) continue;
    int64_t ticks = tsr_sim_ticks(fault->seconds);
    flight->lost = flight->lost || fault->kind == TSR_SIM_LOSE;
    if (fault->kind == TSR_SIM_DELAY) flight->delay = tsr_sim_later(flight->delay, ticks);
    if (fault->kind == TSR_SIM_REORDER) flight->hold = ticks;
  }
}

/* ---- signs of life ---- */

static bool lives(const tsr_sim_world *world, int member) {
  return !world->members[member].dead && world->members[member].stopped_until <= world->now;
}

static void give_signs(tsr_sim_world *world, int from) {
  world->members[from].slow = false;
  for (int to = 0; to < world->member_count; to++)
    if (!world->cut[(size_t)from * (size_t)world->member_count + (size_t)to])
      tsr_liveness_heard(&world->lives[to], from);
}

/* Once for each silence, whoever notices. */
static void report_slow(tsr_sim_world *world, int member) {
  int slow = tsr_liveness_slow(&world->lives[member]);
  if (slow < 0 || world->members[slow].slow) return;
  world->members[slow].slow = true;
  tsr_log(world->context, TSR_LOG_WARNING, "comm",
          "rank %d is slow: no sign of it for more than half of the deadline of %g s; waiting on", slow,
          world->deadline);
}

void tsr_sim_on_tick(tsr_sim_world *world) {
  double now = tsr_sim_seconds(world->now);
  int64_t period = tsr_sim_ticks(tsr_liveness_look_seconds(world->deadline));
  for (int i = 0; i < world->member_count; i++)
    if (lives(world, i) && tsr_liveness_call(&world->lives[i], now, world->deadline) == TSR_LIVENESS_SIGN)
      give_signs(world, i);
  for (int i = 0; i < world->member_count && world->lost < 0; i++) {
    if (!lives(world, i)) continue;
    report_slow(world, i);
    world->lost = tsr_liveness_lost(&world->lives[i]);
  }
  tsr_sim_schedule(world, TSR_SIM_TICK, 0, tsr_sim_later(world->now, period > 0 ? period : 1));
}
