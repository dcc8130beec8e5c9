/* comm/transport_sim.c: all members in this process. A message that finds no partner waits in a queue, linked
 * through the caller's requests; when its partner is posted, the bytes are copied and both have ended. Queues
 * are found by a hash of (from, to, tag), each holding its messages in the order in which they were posted.
 * Nothing is allocated after creation. */
#include "comm/transport.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

enum state { IDLE, SENDING, RECEIVING, DONE, MISFIT_SENT, MISFIT_RECEIVED };

typedef struct queue {
  tsr_request *first, *last;
} queue;

typedef struct sim_transport {
  tsr_transport base;
  queue *queues;
  size_t queue_count; /* a power of two */
} sim_transport;

static queue *queue_of(sim_transport *sim, const tsr_request *request) {
  uint64_t key = ((uint64_t)(uint32_t)request->from << 40) ^ ((uint64_t)(uint32_t)request->to << 20) ^
                 (uint64_t)(uint32_t)request->tag;
  key *= 0x9e3779b97f4a7c15u;
  return &sim->queues[(key >> 32) & (sim->queue_count - 1)];
}

static void append(queue *into, tsr_request *request) {
  request->next = NULL;
  request->previous = into->last;
  if (into->last)
    into->last->next = request;
  else
    into->first = request;
  into->last = request;
}

static void unlink_request(queue *from, tsr_request *request) {
  if (request->previous)
    request->previous->next = request->next;
  else
    from->first = request->next;
  if (request->next)
    request->next->previous = request->previous;
  else
    from->last = request->previous;
}

/* The oldest message in the queue that waits in `state` for just such a partner. */
static tsr_request *find_partner(const queue *in, const tsr_request *request, enum state state) {
  for (tsr_request *other = in->first; other; other = other->next)
    if (other->state == (int)state && other->from == request->from && other->to == request->to &&
        other->tag == request->tag)
      return other;
  return NULL;
}

static void deliver(tsr_request *send, tsr_request *receive) {
  if (send->bytes != receive->bytes) {
    send->state = MISFIT_SENT;
    receive->state = MISFIT_RECEIVED;
    send->peer_bytes = receive->bytes;
    receive->peer_bytes = send->bytes;
    return;
  }
  /* Local members may share one buffer: what tsr_group_broadcast is given. */
  if (send->bytes && send->data != receive->data) memcpy(receive->data, send->data, (size_t)send->bytes);
  send->state = receive->state = DONE;
}

static tsr_status sim_isend(tsr_transport *transport, int from, int to, int tag, const void *data,
                            int64_t bytes, tsr_request *request, tsr_error *error) {
  (void)error;
  sim_transport *sim = (sim_transport *)transport;
  assert(request->state == IDLE && to >= 0 && to < transport->member_count && bytes >= 0);
  *request = (tsr_request){
      .state = SENDING, .peer = to, .bytes = bytes, .data = (void *)data, .from = from, .to = to, .tag = tag};
  transport->bytes_sent[from] += (uint64_t)bytes;
  queue *waiting = queue_of(sim, request);
  tsr_request *receive = find_partner(waiting, request, RECEIVING);
  if (receive) {
    unlink_request(waiting, receive);
    deliver(request, receive);
  } else {
    append(waiting, request);
  }
  return TSR_OK;
}

static tsr_status sim_irecv(tsr_transport *transport, int to, int from, int tag, void *data, int64_t bytes,
                            tsr_request *request, tsr_error *error) {
  (void)error;
  sim_transport *sim = (sim_transport *)transport;
  assert(request->state == IDLE && from >= 0 && from < transport->member_count && bytes >= 0);
  *request = (tsr_request){
      .state = RECEIVING, .peer = from, .bytes = bytes, .data = data, .from = from, .to = to, .tag = tag};
  queue *waiting = queue_of(sim, request);
  tsr_request *send = find_partner(waiting, request, SENDING);
  if (send) {
    unlink_request(waiting, send);
    deliver(send, request);
  } else {
    append(waiting, request);
  }
  return TSR_OK;
}

static tsr_status sim_test(tsr_transport *transport, tsr_request *request, bool *done, tsr_error *error) {
  (void)transport;
  int state = request->state;
  *done = state != SENDING && state != RECEIVING;
  if (!*done) return TSR_OK;
  request->state = IDLE;
  if (state != MISFIT_SENT && state != MISFIT_RECEIVED) return TSR_OK;
  int64_t sent = state == MISFIT_SENT ? request->bytes : request->peer_bytes;
  int64_t expected = state == MISFIT_SENT ? request->peer_bytes : request->bytes;
  return tsr_fail(
      error, TSR_ERROR_COMM,
      "member %d sent %lld bytes to member %d, which expected %lld: the members' collectives differ",
      request->from, (long long)sent, request->to, (long long)expected);
}

static void sim_cancel(tsr_transport *transport, tsr_request *request) {
  if (request->state == SENDING || request->state == RECEIVING)
    unlink_request(queue_of((sim_transport *)transport, request), request);
  request->state = IDLE;
}

static tsr_status sim_beat(tsr_transport *transport, double deadline_seconds, int *lost, tsr_error *error) {
  (void)transport, (void)deadline_seconds, (void)error;
  *lost = -1;
  return TSR_OK;
}

static double sim_now(tsr_transport *transport) {
  (void)transport;
  return tsr_clock_seconds();
}

static void sim_destroy(tsr_transport *transport) {
  free(((sim_transport *)transport)->queues);
  tsr_transport_finish(transport);
  free(transport);
}

static const tsr_transport_ops sim_ops = {
    .name = "sim",
    .destroy = sim_destroy,
    .isend = sim_isend,
    .irecv = sim_irecv,
    .test = sim_test,
    .cancel = sim_cancel,
    .beat = sim_beat,
    .now = sim_now,
};

tsr_status tsr_transport_create_sim(tsr_context *context, int members, tsr_transport **out,
                                    tsr_error *error) {
  tsr_status status = TSR_OK;
  sim_transport *sim = tsr_calloc(1, sizeof *sim);
  if (!sim) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a sim transport");
  TSR_TRY(tsr_transport_init(&sim->base, &sim_ops, context, members, 0, members, error));
  sim->queue_count = 16;
  while (sim->queue_count < 8 * (size_t)members) sim->queue_count *= 2;
  sim->queues = tsr_calloc(sim->queue_count, sizeof *sim->queues);
  if (!sim->queues)
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for the message queues of %d sim members", members);
  *out = &sim->base;
  return TSR_OK;
done:
  sim_destroy(&sim->base);
  return status;
}
