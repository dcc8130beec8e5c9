/* comm/shared.c: messages through shared memory: how they are announced, matched, and ended. How the long
 * ones that lie outside the arena travel is in shared_lane.c. */
#include "comm/shared_inside.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"

/* ---- the sender's side ---- */

static bool has_room(tsr_shared_peer *to) {
  tsr_shared_mailbox *box = to->out;
  if (to->written - atomic_load_explicit(&box->read, memory_order_acquire) < TSR_SHARED_SLOTS) return true;
  atomic_store(&box->writer_waits, 1);
  return to->written - atomic_load(&box->read) < TSR_SHARED_SLOTS;
}

static int64_t arena_offset(const tsr_shared *shared, const tsr_request *request) {
  uintptr_t data = (uintptr_t)request->data, arena = (uintptr_t)shared->arena;
  bool inside = data >= arena && data - arena < shared->arena_bytes &&
                (uint64_t)request->bytes <= shared->arena_bytes - (data - arena);
  return inside ? (int64_t)(data - arena) : -1;
}

static void open_record(tsr_shared *shared, tsr_request *request, tsr_shared_message *message) {
  request->record = shared->free_records[--shared->free_record_count];
  tsr_shared_record *record = &shared->control->records[request->record];
  uint64_t state = atomic_load_explicit(&record->state, memory_order_relaxed) + TSR_RECORD_PENDING;
  atomic_store_explicit(&record->produced, 0, memory_order_relaxed);
  atomic_store_explicit(&record->consumed, 0, memory_order_relaxed);
  atomic_store_explicit(&record->state, state, memory_order_relaxed);
  message->ticket = state;
  message->record = request->record;
  message->offset = arena_offset(shared, request);
}

static bool fits_slot(const tsr_request *request) {
  return request->bytes <= TSR_SHARED_INLINE_BYTES;
}

/* False if there is no room now. A message that fits its announcement has ended with it. */
static bool announce(tsr_shared *shared, tsr_request *request) {
  tsr_shared_peer *to = &shared->peers[request->to];
  if (!has_room(to) || (!fits_slot(request) && !shared->free_record_count)) return false;
  tsr_shared_slot *slot = &to->out->slots[to->written % TSR_SHARED_SLOTS];
  slot->message = (tsr_shared_message){.bytes = request->bytes, .tag = request->tag};
  if (fits_slot(request)) {
    if (request->bytes) memcpy(slot->data, request->data, (size_t)request->bytes);
    request->state = 0;
  } else {
    open_record(shared, request, &slot->message);
    request->state = TSR_SHARED_SENT;
    request->lane = -1;
    if (slot->message.offset < 0) tsr_shared_lane_send(shared, request);
  }
  atomic_store_explicit(&to->out->written, ++to->written, memory_order_release);
  tsr_shared_ring(shared, request->to);
  return true;
}

void tsr_shared_send(tsr_shared *shared, int to, tsr_request *request) {
  tsr_shared_peer *peer = &shared->peers[to];
  request->to = to;
  request->state = TSR_SHARED_WAITING;
  if (!peer->waiting.first && announce(shared, request)) return;
  tsr_request_append(&peer->waiting, request);
  shared->waiting_count++;
}

static void announce_waiting(tsr_shared *shared) {
  for (int member = 0; member < shared->members && shared->waiting_count; member++) {
    tsr_request_queue *waiting = &shared->peers[member].waiting;
    while (waiting->first) {
      tsr_request *request = waiting->first;
      tsr_request_unlink(waiting, request); /* a lane links it elsewhere */
      if (!announce(shared, request)) {
        tsr_request_prepend(waiting, request);
        break;
      }
      shared->waiting_count--;
    }
  }
}

void tsr_shared_close_record(tsr_shared *shared, uint32_t index, int lane) {
  tsr_shared_record *record = &shared->control->records[index];
  uint64_t turn = atomic_load_explicit(&record->state, memory_order_relaxed) / 4;
  atomic_store_explicit(&record->state, (turn + 1) * 4, memory_order_relaxed);
  shared->free_records[shared->free_record_count++] = index;
  if (lane >= 0) shared->free_lanes[shared->free_lane_count++] = (uint32_t)lane;
}

static bool is_read(const tsr_shared *shared, uint32_t record) {
  uint64_t state = atomic_load_explicit(&shared->control->records[record].state, memory_order_acquire);
  return state % 4 == TSR_RECORD_DONE;
}

static void end_send(tsr_shared *shared, tsr_request *request) {
  if (!is_read(shared, request->record)) return;
  tsr_shared_lane_forget(shared, request);
  tsr_shared_close_record(shared, request->record, request->lane);
  request->state = 0;
}

/* A record that a reader has taken stays until the reader is through. */
static void cancel_send(tsr_shared *shared, tsr_request *request) {
  tsr_shared_record *record = &shared->control->records[request->record];
  uint64_t state = atomic_load(&record->state);
  tsr_shared_lane_forget(shared, request);
  bool ours = state % 4 == TSR_RECORD_DONE ||
              (state % 4 == TSR_RECORD_PENDING &&
               atomic_compare_exchange_strong(&record->state, &state, (state / 4 + 1) * 4));
  if (ours) {
    tsr_shared_close_record(shared, request->record, request->lane);
    return;
  }
  shared->cancelled[shared->cancelled_count].record = request->record;
  shared->cancelled[shared->cancelled_count++].lane = request->lane;
}

static void collect_cancelled(tsr_shared *shared) {
  for (int i = shared->cancelled_count - 1; i >= 0; i--) {
    if (!is_read(shared, shared->cancelled[i].record)) continue;
    tsr_shared_close_record(shared, shared->cancelled[i].record, shared->cancelled[i].lane);
    shared->cancelled[i] = shared->cancelled[--shared->cancelled_count];
  }
}

/* ---- the receiver's side ---- */

static tsr_shared_record *record_of(const tsr_request *request) {
  return request->native;
}

void tsr_shared_end_reading(tsr_shared *shared, tsr_request *request) {
  tsr_shared_record *record = record_of(request);
  uint64_t turn = atomic_load_explicit(&record->state, memory_order_relaxed) / 4;
  atomic_store_explicit(&record->state, turn * 4 + TSR_RECORD_DONE, memory_order_release);
  request->native = NULL;
  tsr_shared_ring(shared, request->from);
}

/* False: its sender has cancelled it. */
static bool take_record(tsr_shared *shared, tsr_request *request, const tsr_shared_message *message) {
  tsr_shared_peer *from = &shared->peers[request->from];
  uint64_t pending = message->ticket;
  request->native = &from->control->records[message->record];
  if (!atomic_compare_exchange_strong(&record_of(request)->state, &pending,
                                      pending - TSR_RECORD_PENDING + TSR_RECORD_READING)) {
    request->native = NULL;
    return false;
  }
  request->peer_bytes = 0;
  if (message->offset >= 0) {
    request->view = from->arena + message->offset;
    request->state = TSR_SHARED_ARRIVED;
  } else {
    tsr_shared_lane_receive(shared, request);
  }
  return true;
}

/* A message has met its receive. False: it is none any more. */
static bool take(tsr_shared *shared, tsr_request *request, const tsr_shared_slot *slot) {
  const tsr_shared_message *message = &slot->message;
  bool in_slot = message->bytes <= TSR_SHARED_INLINE_BYTES;
  request->view = request->data;
  if (message->bytes != request->bytes) {
    if (!in_slot) {
      if (!take_record(shared, request, message)) return false;
      tsr_shared_lane_forget(shared, request);
      tsr_shared_end_reading(shared, request);
    }
    request->peer_bytes = message->bytes;
    request->state = TSR_SHARED_MISFIT;
    return true;
  }
  if (!in_slot) return take_record(shared, request, message);
  if (message->bytes) memcpy(request->data, slot->data, (size_t)message->bytes);
  request->state = TSR_SHARED_ARRIVED;
  return true;
}

/* False if there is no memory to keep it. */
static bool keep_early(tsr_shared *shared, tsr_shared_peer *from, const tsr_shared_slot *slot) {
  if (!shared->spare && !tsr_shared_grow_early(shared)) return false;
  tsr_shared_early *early = shared->spare;
  shared->spare = early->next;
  early->next = NULL;
  early->slot.message = slot->message;
  if (slot->message.bytes <= TSR_SHARED_INLINE_BYTES)
    memcpy(early->slot.data, slot->data, (size_t)slot->message.bytes);
  if (from->early)
    from->early_last->next = early;
  else
    from->early = early;
  from->early_last = early;
  return true;
}

/* Gives a message to the oldest receive of its tag. */
static bool deliver(tsr_shared *shared, tsr_shared_peer *from, const tsr_shared_slot *slot) {
  tsr_request *request = from->posted.first;
  while (request && request->tag != slot->message.tag) request = request->next;
  if (!request) return keep_early(shared, from, slot);
  tsr_request_unlink(&from->posted, request);
  if (!take(shared, request, slot)) tsr_request_prepend(&from->posted, request);
  return true;
}

static bool empty_mailbox(tsr_shared *shared, int member) {
  tsr_shared_peer *from = &shared->peers[member];
  tsr_shared_mailbox *box = from->in;
  uint32_t written = atomic_load_explicit(&box->written, memory_order_acquire);
  bool kept = true;
  if (written == from->read) return true;
  while (kept && from->read != written) {
    kept = deliver(shared, from, &box->slots[from->read % TSR_SHARED_SLOTS]);
    from->read += kept;
  }
  atomic_store(&box->read, from->read);
  if (atomic_load(&box->writer_waits)) {
    atomic_store(&box->writer_waits, 0);
    tsr_shared_ring(shared, member);
  }
  return kept;
}

/* The oldest early message of the tag; true if it was taken. */
static bool take_early(tsr_shared *shared, tsr_shared_peer *from, tsr_request *request) {
  tsr_shared_early *before = NULL, *early = from->early;
  while (early) {
    tsr_shared_early *next = early->next;
    if (early->slot.message.tag != request->tag) {
      before = early;
      early = next;
      continue;
    }
    if (before)
      before->next = next;
    else
      from->early = next;
    if (from->early_last == early) from->early_last = before;
    bool taken = take(shared, request, &early->slot);
    early->next = shared->spare;
    shared->spare = early;
    if (taken) return true;
    early = next;
  }
  return false;
}

void tsr_shared_receive(tsr_shared *shared, int from, bool view, tsr_request *request) {
  tsr_shared_peer *peer = &shared->peers[from];
  request->from = from;
  request->viewed = view;
  request->native = NULL;
  request->state = TSR_SHARED_POSTED;
  if (!take_early(shared, peer, request)) tsr_request_append(&peer->posted, request);
}

/* It has arrived: now it is where it was asked for. */
static void end_receive(tsr_shared *shared, tsr_request *request) {
  bool elsewhere = request->native != NULL;
  if (elsewhere && request->viewed) {
    request->state = TSR_SHARED_VIEWED;
    return;
  }
  if (elsewhere) {
    if (request->view != request->data) memcpy(request->data, request->view, (size_t)request->bytes);
    request->view = request->data;
    tsr_shared_end_reading(shared, request);
  }
  request->state = 0;
}

static tsr_status fail_size(tsr_request *request, tsr_error *error) {
  request->state = 0;
  return tsr_fail(error, TSR_ERROR_COMM,
                  "rank %d sent %lld bytes, %lld were expected: the ranks' collectives differ", request->peer,
                  (long long)request->peer_bytes, (long long)request->bytes);
}

/* ---- all ---- */

void tsr_shared_progress(tsr_shared *shared) {
  for (int member = 0; member < shared->members; member++) empty_mailbox(shared, member);
  if (shared->cancelled_count) collect_cancelled(shared);
  if (shared->waiting_count) announce_waiting(shared);
  tsr_shared_lanes_progress(shared);
}

/* As progress, but looks into the one mailbox that matters. */
static tsr_status progress_for(tsr_shared *shared, const tsr_request *request, tsr_error *error) {
  if (shared->cancelled_count) collect_cancelled(shared);
  if (shared->waiting_count) announce_waiting(shared);
  if (request->state == TSR_SHARED_POSTED && !empty_mailbox(shared, request->from))
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY,
                    "no memory to keep messages of rank %d that came before they were asked for",
                    request->peer);
  tsr_shared_lanes_progress(shared);
  return TSR_OK;
}

tsr_status tsr_shared_test(tsr_shared *shared, tsr_request *request, bool *done, tsr_error *error) {
  tsr_status status = progress_for(shared, request, error);
  if (status != TSR_OK) {
    tsr_shared_cancel(shared, request);
    return status;
  }
  if (request->state == TSR_SHARED_SENT) end_send(shared, request);
  if (request->state == TSR_SHARED_ARRIVED) end_receive(shared, request);
  *done = request->state == 0 || request->state == TSR_SHARED_VIEWED;
  return request->state == TSR_SHARED_MISFIT ? fail_size(request, error) : TSR_OK;
}

void tsr_shared_release(tsr_shared *shared, tsr_request *request) {
  if (request->state != TSR_SHARED_VIEWED) return;
  tsr_shared_end_reading(shared, request);
  request->state = 0;
}

void tsr_shared_cancel(tsr_shared *shared, tsr_request *request) {
  switch (request->state) {
  case TSR_SHARED_WAITING:
    tsr_request_unlink(&shared->peers[request->to].waiting, request);
    shared->waiting_count--;
    break;
  case TSR_SHARED_SENT: cancel_send(shared, request); break;
  case TSR_SHARED_POSTED: tsr_request_unlink(&shared->peers[request->from].posted, request); break;
  default:
    tsr_shared_lane_forget(shared, request);
    if (request->native) tsr_shared_end_reading(shared, request);
  }
  request->state = 0;
}
