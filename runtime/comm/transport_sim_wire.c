/* comm/transport_sim_wire.c: when messages arrive: links, ports, and the way of a message through both. See
 * sim.h. */
#include "comm/sim.h"

#include <assert.h>

#include "base/memory.h"

/* ---- links ---- */

static bool share_host(const tsr_sim_world *world, int a, int b) {
  const int *hosts = world->options.hosts;
  return !hosts || hosts[a] == hosts[b];
}

static size_t pair(const tsr_sim_world *world, int from, int to) {
  return (size_t)from * (size_t)world->member_count + (size_t)to;
}

static int64_t latency_ticks(const tsr_sim_world *world, int from, int to) {
  const tsr_sim_options *options = &world->options;
  if (options->latencies) return tsr_sim_ticks(options->latencies[pair(world, from, to)]);
  return tsr_sim_ticks(share_host(world, from, to) ? options->host_latency : options->network_latency);
}

static int64_t wire_ticks(const tsr_sim_world *world, int from, int to, int64_t bytes) {
  const tsr_sim_options *options = &world->options;
  double bandwidth = options->bandwidths           ? options->bandwidths[pair(world, from, to)]
                     : share_host(world, from, to) ? options->host_bandwidth
                                                   : options->network_bandwidth;
  return bandwidth > 0 ? tsr_sim_ticks((double)bytes / bandwidth) : 0;
}

/* ---- flights ---- */

static tsr_sim_flight *flight_of(tsr_sim_world *world, const tsr_request *request) {
  return &world->flights[request->record];
}

static int index_of(const tsr_sim_world *world, const tsr_sim_flight *flight) {
  return (int)(flight - world->flights);
}

static bool make_room(tsr_sim_world *world) {
  if (world->free_flight >= 0) return true;
  size_t capacity = world->flight_capacity;
  if (!TSR_GROW(world->flights, world->flight_count, world->flight_capacity)) return false;
  if (capacity == world->flight_capacity) return true;
  size_t others = (size_t)world->member_count + world->options.fault_count + 1;
  tsr_sim_event *events = tsr_realloc(world->events, world->flight_capacity + others, sizeof *world->events);
  if (events)
    world->events = events;
  else
    world->flight_capacity = capacity; /* what was got is more than what is counted */
  return events;
}

static tsr_sim_flight *take_flight(tsr_sim_world *world) {
  int index = world->free_flight >= 0 ? world->free_flight : (int)world->flight_count++;
  tsr_sim_flight *flight = &world->flights[index];
  if (index == world->free_flight) world->free_flight = flight->next_free;
  return flight;
}

static void free_flight(tsr_sim_world *world, tsr_sim_flight *flight) {
  *flight = (tsr_sim_flight){.next_free = world->free_flight};
  world->free_flight = index_of(world, flight);
}

static void schedule(tsr_sim_world *world, tsr_sim_flight *flight, tsr_sim_event_kind kind, int64_t time) {
  flight->queued = true;
  tsr_sim_schedule(world, kind, index_of(world, flight), time);
}

/* Messages that one sender can start at the same time leave in the order in which they were posted. */
static void schedule_start(tsr_sim_world *world, tsr_sim_flight *flight, int64_t time) {
  uint64_t sender = (uint64_t)flight->from, members = (uint64_t)world->member_count;
  flight->queued = true;
  tsr_sim_schedule_by(world, TSR_SIM_START, index_of(world, flight), time,
                      world->seed ? tsr_sim_hash(world, (uint64_t)time * members + sender) : sender,
                      (uint64_t)flight->number);
}

/* ---- posted, met, withdrawn ---- */

tsr_status tsr_sim_post(tsr_sim_world *world, tsr_request *request, bool sends, tsr_error *error) {
  if (!make_room(world))
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %zu messages in flight",
                    world->flight_count);
  int member = sends ? request->from : request->to;
  tsr_sim_flight *flight = take_flight(world);
  request->record = (uint32_t)index_of(world, flight);
  *flight = (tsr_sim_flight){.send = sends ? request : NULL,
                             .receive = sends ? NULL : request,
                             .from = request->from,
                             .to = request->to,
                             .tag = request->tag,
                             .ready = tsr_sim_time_of(world, member),
                             .wire = wire_ticks(world, request->from, request->to, request->bytes)};
  if (sends) {
    flight->number = ++world->members[member].sent;
    tsr_sim_plan_flight(world, flight);
  }
  world->members[member].outstanding++;
  return TSR_OK;
}

void tsr_sim_launch(tsr_sim_world *world, tsr_request *send, tsr_request *receive) {
  tsr_sim_flight *flight = flight_of(world, send), *other = flight_of(world, receive);
  int64_t start = flight->ready > other->ready ? flight->ready : other->ready;
  free_flight(world, other);
  flight->receive = receive;
  receive->record = send->record;
  send->state = receive->state = TSR_SIM_FLYING;
  schedule_start(world, flight, start > world->now ? start : world->now);
}

/* One that has an event is freed when that comes. */
void tsr_sim_withdraw(tsr_sim_world *world, tsr_request *request) {
  tsr_sim_flight *flight = flight_of(world, request);
  if (flight->send == request) flight->send = NULL;
  if (flight->receive == request) flight->receive = NULL;
  if (!flight->send && !flight->receive && !flight->queued) free_flight(world, flight);
}

/* ---- the way of a message ---- */

static bool is_dead(const tsr_sim_world *world, int member, int64_t at) {
  return world->members[member].dead && world->members[member].died_at < at;
}

static void start(tsr_sim_world *world, tsr_sim_flight *flight) {
  int64_t *port = &world->members[flight->from].send_free;
  flight->begin = *port > world->now ? *port : world->now;
  *port = tsr_sim_later(flight->begin, flight->wire);
  int64_t latency = latency_ticks(world, flight->from, flight->to);
  schedule(world, flight, TSR_SIM_ARRIVE,
           tsr_sim_later(flight->begin, tsr_sim_later(latency, flight->delay)));
}

static bool are_alike(const tsr_sim_flight *a, const tsr_sim_flight *b) {
  return a->from == b->from && a->to == b->to && a->tag == b->tag;
}

/* Only faults let messages of one pair and tag arrive in another order: then the later one waits. */
static bool must_wait(const tsr_sim_world *world, const tsr_sim_flight *flight) {
  for (size_t i = 0; world->lives && i < world->flight_count; i++) {
    const tsr_sim_flight *other = &world->flights[i];
    if (other->send && other->receive && are_alike(other, flight) && other->number < flight->number)
      return true;
  }
  return false;
}

static void arrive(tsr_sim_world *world, tsr_sim_flight *flight) {
  if (flight->hold) {
    flight->held = true;
    schedule(world, flight, TSR_SIM_ARRIVE, tsr_sim_later(world->now, flight->hold));
    flight->hold = 0;
    return;
  }
  flight->held = false;
  flight->waits = must_wait(world, flight);
  if (flight->waits) return;
  int64_t *port = &world->members[flight->to].receive_free;
  int64_t begin = *port > world->now ? *port : world->now;
  *port = tsr_sim_later(begin, flight->wire);
  schedule(world, flight, TSR_SIM_END, *port);
}

/* A message has ended: those go on that waited for it, or that it was to overtake. */
static void let_others_go(tsr_sim_world *world, const tsr_sim_flight *ended) {
  for (size_t i = 0; world->lives && i < world->flight_count; i++) {
    tsr_sim_flight *other = &world->flights[i];
    if (!other->send || !other->receive || other->from != ended->from || other->to != ended->to) continue;
    if (other->held && other->tag != ended->tag)
      tsr_sim_hasten(world, TSR_SIM_ARRIVE, (int)i, world->now);
    else if (other->waits && other->tag == ended->tag)
      schedule(world, other, TSR_SIM_ARRIVE, world->now);
    else
      continue;
    other->held = other->waits = false;
  }
}

static void end(tsr_sim_world *world, tsr_sim_flight *flight) {
  tsr_sim_flight ended = *flight;
  free_flight(world, flight);
  tsr_sim_deliver(ended.send, ended.receive);
  if (world->lives) tsr_liveness_heard(&world->lives[ended.to], ended.from);
  tsr_sim_tell(world, ended.to);
  tsr_sim_tell(world, ended.from);
  let_others_go(world, &ended);
}

/* What was on the wire when its sender died arrives, if it had left altogether. */
static bool gets_through(const tsr_sim_world *world, const tsr_sim_flight *flight, tsr_sim_event_kind kind) {
  int64_t left = kind == TSR_SIM_START ? world->now : tsr_sim_later(flight->begin, flight->wire);
  bool cut = world->cut && world->cut[pair(world, flight->from, flight->to)];
  return flight->send && flight->receive && !flight->lost && !cut && !is_dead(world, flight->from, left);
}

void tsr_sim_on_message(tsr_sim_world *world, tsr_sim_event_kind kind, int index) {
  tsr_sim_flight *flight = &world->flights[index];
  flight->queued = false;
  if (kind == TSR_SIM_START && flight->lost) world->cut[pair(world, flight->from, flight->to)] = true;
  if (!gets_through(world, flight, kind)) {
    if (!flight->send && !flight->receive) free_flight(world, flight);
    return;
  }
  if (kind == TSR_SIM_START)
    start(world, flight);
  else if (kind == TSR_SIM_ARRIVE)
    arrive(world, flight);
  else
    end(world, flight);
}
