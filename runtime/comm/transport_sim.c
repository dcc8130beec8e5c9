/* comm/transport_sim.c: all members in this process. A message that finds no partner waits in a queue, linked
 * through the caller's requests; when its partner is posted, the bytes are copied and both have ended, at
 * once or, in virtual time, when the wire says so (sim.h). Queues are found by a hash of (from, to, tag),
 * each holding its messages in the order in which they were posted. In real time nothing is allocated after
 * creation. */
#include "comm/sim.h"

#include <assert.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

typedef struct sim_transport {
  tsr_transport base;
  tsr_request_queue *queues;
  size_t queue_count;   /* a power of two */
  tsr_sim_world *world; /* NULL: in real time */
} sim_transport;

static tsr_request_queue *queue_of(sim_transport *sim, const tsr_request *request) {
  uint64_t key = ((uint64_t)(uint32_t)request->from << 40) ^ ((uint64_t)(uint32_t)request->to << 20) ^
                 (uint64_t)(uint32_t)request->tag;
  key *= 0x9e3779b97f4a7c15u;
  return &sim->queues[(key >> 32) & (sim->queue_count - 1)];
}

/* The oldest message in the queue that waits in `state` for just such a partner. */
static tsr_request *find_partner(const tsr_request_queue *in, const tsr_request *request,
                                 tsr_sim_state state) {
  for (tsr_request *other = in->first; other; other = other->next)
    if (other->state == (int)state && other->from == request->from && other->to == request->to &&
        other->tag == request->tag)
      return other;
  return NULL;
}

static tsr_sim_world *world_of(const tsr_transport *transport) {
  return ((const sim_transport *)transport)->world;
}

static bool sends(const tsr_request *request) {
  return request->peer == request->to;
}

static int owner_of(const tsr_request *request) {
  return sends(request) ? request->from : request->to;
}

/* ---- two sides meet ---- */

static void lend(tsr_request *send, tsr_request *receive) {
  receive->view = send->data;
  receive->native = send;
  send->native = receive;
  send->state = TSR_SIM_LENT;
  receive->state = TSR_SIM_ARRIVED_TO_VIEW;
}

void tsr_sim_deliver(tsr_request *send, tsr_request *receive) {
  if (receive->viewed) {
    lend(send, receive);
    return;
  }
  /* Local members may share one buffer: what tsr_group_broadcast is given. */
  if (send->bytes && send->data != receive->data) memcpy(receive->data, send->data, (size_t)send->bytes);
  send->state = receive->state = TSR_SIM_DONE;
}

static void meet(tsr_sim_world *world, tsr_request *send, tsr_request *receive) {
  if (send->bytes == receive->bytes) {
    if (world)
      tsr_sim_launch(world, send, receive);
    else
      tsr_sim_deliver(send, receive);
    return;
  }
  send->state = TSR_SIM_MISFIT_SENT;
  receive->state = TSR_SIM_MISFIT_RECEIVED;
  send->peer_bytes = receive->bytes;
  receive->peer_bytes = send->bytes;
  if (!world) return;
  tsr_sim_withdraw(world, send);
  tsr_sim_withdraw(world, receive);
  tsr_sim_tell(world, send->from);
  tsr_sim_tell(world, receive->to);
}

static tsr_status post(tsr_transport *transport, tsr_request *request, tsr_error *error) {
  sim_transport *sim = (sim_transport *)transport;
  bool is_send = sends(request);
  assert(request->peer >= 0 && request->peer < transport->member_count && request->bytes >= 0);
  if (sim->world && !tsr_sim_begins(sim->world, owner_of(request))) {
    request->state = TSR_SIM_SILENT;
    return TSR_OK;
  }
  if (is_send) transport->bytes_sent[request->from] += (uint64_t)request->bytes;
  if (sim->world) {
    tsr_status status = tsr_sim_post(sim->world, request, is_send, error);
    if (status != TSR_OK) request->state = TSR_SIM_IDLE;
    TSR_RETURN_IF_FAILED(status);
  }
  tsr_request_queue *waiting = queue_of(sim, request);
  tsr_request *partner = find_partner(waiting, request, is_send ? TSR_SIM_RECEIVING : TSR_SIM_SENDING);
  if (!partner) {
    tsr_request_append(waiting, request);
    return TSR_OK;
  }
  tsr_request_unlink(waiting, partner);
  meet(sim->world, is_send ? request : partner, is_send ? partner : request);
  return TSR_OK;
}

static tsr_status sim_isend(tsr_transport *transport, int from, int to, int tag, const void *data,
                            int64_t bytes, tsr_request *request, tsr_error *error) {
  assert(request->state == TSR_SIM_IDLE);
  *request = (tsr_request){.state = TSR_SIM_SENDING,
                           .peer = to,
                           .bytes = bytes,
                           .data = (void *)data,
                           .from = from,
                           .to = to,
                           .tag = tag};
  return post(transport, request, error);
}

static tsr_status receive(tsr_transport *transport, tsr_request given, tsr_request *request,
                          tsr_error *error) {
  assert(request->state == TSR_SIM_IDLE);
  *request = given;
  request->state = TSR_SIM_RECEIVING;
  request->peer = given.from;
  return post(transport, request, error);
}

static tsr_status sim_irecv(tsr_transport *transport, int to, int from, int tag, void *data, int64_t bytes,
                            tsr_request *request, tsr_error *error) {
  tsr_request given = {.from = from, .to = to, .tag = tag, .data = data, .bytes = bytes};
  return receive(transport, given, request, error);
}

static tsr_status sim_irecv_view(tsr_transport *transport, int to, int from, int tag, void *data,
                                 int64_t bytes, tsr_request *request, tsr_error *error) {
  tsr_request given = {.from = from, .to = to, .tag = tag, .data = data, .bytes = bytes, .viewed = true};
  return receive(transport, given, request, error);
}

/* ---- a message ends ---- */

static bool has_ended(const tsr_request *request) {
  switch (request->state) {
  case TSR_SIM_SENDING:
  case TSR_SIM_RECEIVING:
  case TSR_SIM_FLYING:
  case TSR_SIM_LENT:
  case TSR_SIM_SILENT: return false;
  default: return true;
  }
}

static tsr_status check_size(const tsr_request *request, int state, tsr_error *error) {
  if (state != TSR_SIM_MISFIT_SENT && state != TSR_SIM_MISFIT_RECEIVED) return TSR_OK;
  int64_t sent = state == TSR_SIM_MISFIT_SENT ? request->bytes : request->peer_bytes;
  int64_t expected = state == TSR_SIM_MISFIT_SENT ? request->peer_bytes : request->bytes;
  return tsr_fail(
      error, TSR_ERROR_COMM,
      "member %d sent %lld bytes to member %d, which expected %lld: the members' collectives differ",
      request->from, (long long)sent, request->to, (long long)expected);
}

static tsr_status sim_test(tsr_transport *transport, tsr_request *request, bool *done, tsr_error *error) {
  tsr_sim_world *world = world_of(transport);
  int state = request->state;
  *done = true;
  if (state == TSR_SIM_IDLE || state == TSR_SIM_VIEWED) return TSR_OK;
  bool looks = !world || tsr_sim_looks(world, owner_of(request));
  *done = looks && has_ended(request);
  if (!*done) return TSR_OK;
  if (world) world->members[owner_of(request)].outstanding--;
  request->state = state == TSR_SIM_ARRIVED_TO_VIEW ? TSR_SIM_VIEWED : TSR_SIM_IDLE;
  return check_size(request, state, error);
}

static void sim_release(tsr_transport *transport, tsr_request *request) {
  tsr_sim_world *world = world_of(transport);
  tsr_request *send = request->native;
  if (request->state != TSR_SIM_VIEWED) return;
  request->state = TSR_SIM_IDLE;
  if (!send) return;
  send->state = TSR_SIM_DONE;
  if (world) tsr_sim_tell(world, send->from);
}

static void sim_cancel(tsr_transport *transport, tsr_request *request) {
  tsr_sim_world *world = world_of(transport);
  int state = request->state;
  bool queued = state == TSR_SIM_SENDING || state == TSR_SIM_RECEIVING;
  if (state == TSR_SIM_IDLE) return;
  if (queued) tsr_request_unlink(queue_of((sim_transport *)transport, request), request);
  if (world && (queued || state == TSR_SIM_FLYING)) tsr_sim_withdraw(world, request);
  if (world && state != TSR_SIM_SILENT && state != TSR_SIM_VIEWED)
    world->members[owner_of(request)].outstanding--;
  if (state == TSR_SIM_ARRIVED_TO_VIEW) request->state = TSR_SIM_VIEWED;
  if (state == TSR_SIM_LENT) ((tsr_request *)request->native)->native = NULL;
  sim_release(transport, request);
  request->state = TSR_SIM_IDLE;
}

/* ---- memory, time ---- */

static void *sim_memory_create(tsr_transport *transport, int member, size_t bytes) {
  (void)transport, (void)member;
  void *memory = tsr_malloc_pages(bytes);
  return memory ? memset(memory, 0, bytes) : NULL;
}

static void sim_memory_destroy(tsr_transport *transport, void *memory) {
  (void)transport;
  free(memory);
}

static tsr_status sim_beat(tsr_transport *transport, double deadline_seconds, int *lost, tsr_error *error) {
  (void)error;
  tsr_sim_world *world = world_of(transport);
  if (world) tsr_sim_turn(world, deadline_seconds);
  *lost = world ? world->lost : -1;
  return TSR_OK;
}

/* Whoever is waited for is driven by this very thread; only devices may want the core. */
static void sim_rest(tsr_transport *transport, double seconds_max) {
  (void)seconds_max;
  if (!world_of(transport)) sched_yield();
}

static void sim_spend(tsr_transport *transport, int member, double seconds) {
  tsr_sim_world *world = world_of(transport);
  const double *speeds = world->options.speeds;
  if (seconds > 0) tsr_sim_occupy(world, member, tsr_sim_ticks(seconds / (speeds ? speeds[member] : 1)));
}

static double sim_now(tsr_transport *transport) {
  (void)transport;
  return tsr_clock_seconds();
}

static double sim_virtual_now(tsr_transport *transport) {
  return tsr_sim_seconds(world_of(transport)->now);
}

static double sim_now_of(tsr_transport *transport, int member) {
  return tsr_sim_seconds(tsr_sim_time_of(world_of(transport), member));
}

static void sim_destroy(tsr_transport *transport) {
  tsr_sim_world_destroy(world_of(transport));
  free(((sim_transport *)transport)->queues);
  tsr_transport_finish(transport);
  free(transport);
}

/* What is the same in real and in virtual time. */
#define SIM_OPS                                                                                              \
  .name = "sim", .destroy = sim_destroy, .isend = sim_isend, .irecv = sim_irecv,                             \
  .irecv_view = sim_irecv_view, .release = sim_release, .test = sim_test, .cancel = sim_cancel,              \
  .beat = sim_beat, .memory_create = sim_memory_create, .memory_destroy = sim_memory_destroy,                \
  .rest = sim_rest
static const tsr_transport_ops sim_ops = {SIM_OPS, .now = sim_now};
static const tsr_transport_ops virtual_ops = {SIM_OPS, .spend = sim_spend, .now = sim_virtual_now,
                                              .now_of = sim_now_of};

static tsr_status prepare(sim_transport *sim, tsr_context *context, int members,
                          const tsr_sim_options *options, tsr_error *error) {
  const tsr_transport_ops *ops = options ? &virtual_ops : &sim_ops;
  TSR_RETURN_IF_FAILED(tsr_transport_init(&sim->base, ops, context, members, 0, members, error));
  sim->queue_count = 16;
  while (sim->queue_count < 8 * (size_t)members) sim->queue_count *= 2;
  sim->queues = tsr_calloc(sim->queue_count, sizeof *sim->queues);
  if (!sim->queues)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the message queues of %d sim members",
                    members);
  if (!options) return TSR_OK;
  if (options->reduce_bandwidth > 0) sim->base.reduce_seconds_per_byte = 1 / options->reduce_bandwidth;
  return tsr_sim_world_create(context, members, options, &sim->world, error);
}

tsr_status tsr_transport_create_sim(tsr_context *context, int members, const tsr_sim_options *options,
                                    tsr_transport **out, tsr_error *error) {
  sim_transport *sim = tsr_calloc(1, sizeof *sim);
  if (!sim) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a sim transport");
  tsr_status status = prepare(sim, context, members, options, error);
  if (status == TSR_OK)
    *out = &sim->base;
  else
    sim_destroy(&sim->base);
  return status;
}
