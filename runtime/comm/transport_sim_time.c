/* comm/transport_sim_time.c: the world's clock, its queue of events, and whose turn it is. See sim.h. */
#include "comm/sim.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

static const double ticks_per_second = 1e12;
/* 11 days: sums of several of them fit 63 bits. */
static const double seconds_max = 1e6;

int64_t tsr_sim_ticks(double seconds) {
  return llround((seconds < seconds_max ? seconds : seconds_max) * ticks_per_second);
}

double tsr_sim_seconds(int64_t ticks) {
  return (double)ticks / ticks_per_second;
}

int64_t tsr_sim_later(int64_t time, int64_t ticks) {
  int64_t later;
  return __builtin_add_overflow(time, ticks, &later) ? INT64_MAX : later;
}

/* ---- numbers that follow from the seed ---- */

/* The output function of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators;
 * OOPSLA 2014), of a counter: it has no state. */
static uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t tsr_sim_hash(const tsr_sim_world *world, uint64_t what) {
  return world->seed ? mix(world->seed + mix(what + 0x9e3779b97f4a7c15u)) : 0;
}

uint64_t tsr_sim_draw(tsr_sim_world *world) {
  return tsr_sim_hash(world, ++world->draws);
}

/* ---- events ---- */

static bool is_before(const tsr_sim_event *a, const tsr_sim_event *b) {
  if (a->time != b->time) return a->time < b->time;
  if (a->tie != b->tie) return a->tie < b->tie;
  return a->order < b->order;
}

static void rise(tsr_sim_world *world, size_t at, tsr_sim_event event) {
  tsr_sim_event *events = world->events;
  while (at && is_before(&event, &events[(at - 1) / 2])) {
    events[at] = events[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  events[at] = event;
}

void tsr_sim_schedule_by(tsr_sim_world *world, tsr_sim_event_kind kind, int index, int64_t time, uint64_t tie,
                         uint64_t order) {
  rise(world, world->event_count++,
       (tsr_sim_event){.time = time, .tie = tie, .order = order, .kind = kind, .index = index});
}

void tsr_sim_schedule(tsr_sim_world *world, tsr_sim_event_kind kind, int index, int64_t time) {
  tsr_sim_schedule_by(world, kind, index, time, tsr_sim_draw(world), world->scheduled++);
}

void tsr_sim_hasten(tsr_sim_world *world, tsr_sim_event_kind kind, int index, int64_t time) {
  for (size_t i = 0; i < world->event_count; i++) {
    tsr_sim_event event = world->events[i];
    if (event.kind != kind || event.index != index) continue;
    event.time = time;
    rise(world, i, event);
    return;
  }
}

static tsr_sim_event take_first(tsr_sim_world *world) {
  tsr_sim_event *events = world->events, first = events[0], last = events[--world->event_count];
  size_t at = 0, count = world->event_count;
  for (size_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && is_before(&events[child + 1], &events[child])) child++;
    if (!is_before(&events[child], &last)) break;
    events[at] = events[child];
  }
  events[at] = last;
  return first;
}

/* ---- whose turn it is ---- */

int64_t tsr_sim_time_of(const tsr_sim_world *world, int member) {
  int64_t busy_until = world->members[member].busy_until;
  return busy_until > world->now ? busy_until : world->now;
}

void tsr_sim_forget(tsr_sim_world *world, int member) {
  if (world->members[member].has_news) world->with_news--;
  world->members[member].has_news = false;
}

void tsr_sim_occupy(tsr_sim_world *world, int member, int64_t ticks) {
  tsr_sim_member *m = &world->members[member];
  m->busy_until = tsr_sim_later(tsr_sim_time_of(world, member), ticks);
  if (m->busy_until > world->now) tsr_sim_forget(world, member);
  if (!m->wakes) tsr_sim_schedule(world, TSR_SIM_WAKE, member, m->busy_until);
  m->wakes = true;
}

/* Whoever is busy looks when it wakes. With a seed, some look one beat later than others. */
void tsr_sim_tell(tsr_sim_world *world, int member) {
  tsr_sim_member *m = &world->members[member];
  if (m->dead || m->has_news || m->busy_until > world->now || !m->outstanding) return;
  m->has_news = true;
  m->looks_after = world->beats + (tsr_sim_draw(world) & 1);
  world->with_news++;
}

bool tsr_sim_looks(tsr_sim_world *world, int member) {
  tsr_sim_member *m = &world->members[member];
  if (m->dead || m->busy_until > world->now || (m->has_news && world->beats < m->looks_after)) return false;
  tsr_sim_forget(world, member);
  return true;
}

static void on_wake(tsr_sim_world *world, int member) {
  tsr_sim_member *m = &world->members[member];
  m->wakes = m->busy_until > world->now;
  if (m->wakes)
    tsr_sim_schedule(world, TSR_SIM_WAKE, member, m->busy_until);
  else
    tsr_sim_tell(world, member);
}

static void happen(tsr_sim_world *world, const tsr_sim_event *event) {
  switch (event->kind) {
  case TSR_SIM_WAKE: on_wake(world, event->index); break;
  case TSR_SIM_FAULT: tsr_sim_on_fault(world, event->index); break;
  case TSR_SIM_TICK:
    world->ticked = true;
    tsr_sim_on_tick(world);
    break;
  default: tsr_sim_on_message(world, event->kind, event->index);
  }
}

/* A member that is told but never asked (its collective is not waited for now) must not stop the clock: each
 * was asked once if every beat asked one. */
static bool all_have_looked(tsr_sim_world *world) {
  if (world->with_news && ++world->waited <= 2 * (uint64_t)world->member_count) return false;
  for (int i = 0; world->with_news && i < world->member_count; i++) tsr_sim_forget(world, i);
  world->waited = 0;
  return true;
}

/* All that happens at the next moment at which something does; false if that is not in sight. */
static bool go_on(tsr_sim_world *world) {
  if (!world->event_count) return false;
  world->now = world->events[0].time;
  world->ticked = false;
  while (world->event_count && world->events[0].time == world->now) {
    tsr_sim_event event = take_first(world);
    happen(world, &event);
  }
  return !world->ticked;
}

void tsr_sim_turn(tsr_sim_world *world, double deadline) {
  world->beats++;
  world->deadline = deadline;
  if (!all_have_looked(world)) return;
  if (world->lives && !world->ticking) {
    world->ticking = true;
    tsr_sim_schedule(world, TSR_SIM_TICK, 0, world->now);
  }
  /* Signs of life go on for ever. */
  while (!world->with_news && go_on(world)) {
  }
}

/* ---- the world ---- */

static void *copy(const void *from, size_t count, size_t size, bool *failed) {
  if (!from) return NULL;
  void *to = tsr_calloc(count, size);
  if (to) memcpy(to, from, count * size);
  *failed = *failed || !to;
  return to;
}

static bool copy_options(tsr_sim_world *world, const tsr_sim_options *options) {
  size_t n = (size_t)world->member_count;
  bool failed = false;
  tsr_sim_options *own = &world->options;
  *own = *options;
  own->hosts = copy(options->hosts, n, sizeof *own->hosts, &failed);
  own->latencies = copy(options->latencies, n * n, sizeof *own->latencies, &failed);
  own->bandwidths = copy(options->bandwidths, n * n, sizeof *own->bandwidths, &failed);
  own->speeds = copy(options->speeds, n, sizeof *own->speeds, &failed);
  own->faults =
      copy(options->fault_count ? options->faults : NULL, own->fault_count, sizeof *own->faults, &failed);
  return !failed;
}

tsr_status tsr_sim_world_create(const tsr_context *context, int members, const tsr_sim_options *options,
                                tsr_sim_world **out, tsr_error *error) {
  tsr_sim_world *world = tsr_calloc(1, sizeof *world);
  if (!world) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a simulated world");
  world->context = context;
  world->member_count = members;
  world->seed = options->seed;
  world->lost = world->free_flight = -1;
  bool copied = copy_options(world, options);
  world->members = tsr_calloc((size_t)members, sizeof *world->members);
  /* Beside those of flights: a WAKE for each member, each fault, a TICK. */
  world->events = tsr_calloc((size_t)members + options->fault_count + 1, sizeof *world->events);
  tsr_status status = TSR_OK;
  if (!copied || !world->members || !world->events)
    status =
        tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a simulated world of %d members", members);
  if (status == TSR_OK) status = tsr_sim_prepare_faults(world, error);
  if (status == TSR_OK)
    *out = world;
  else
    tsr_sim_world_destroy(world);
  return status;
}

void tsr_sim_world_destroy(tsr_sim_world *world) {
  if (!world) return;
  tsr_sim_release_faults(world);
  free((void *)world->options.hosts);
  free((void *)world->options.latencies);
  free((void *)world->options.bandwidths);
  free((void *)world->options.speeds);
  free((void *)world->options.faults);
  free(world->members);
  free(world->events);
  free(world->flights);
  free(world);
}
