/* comm/shared_lane.c: messages that lie where the receiver cannot read them travel through a lane of the
 * sender's segment, a ring of chunks: while the receiver copies one out, the sender fills the next.
 *
 * Lanes are few. A message whose receiver has asked for it gets any that is free; one that nobody has asked
 * for yet may begin early, but half of the lanes are kept from such, so that they cannot all be held by
 * messages for which nobody waits. */
#include "comm/shared_inside.h"

#include <string.h>

static size_t chunk_bytes(const tsr_request *request) {
  int64_t left = request->bytes - request->peer_bytes;
  return (size_t)(left < TSR_SHARED_CHUNK_BYTES ? left : TSR_SHARED_CHUNK_BYTES);
}

static uint32_t chunk_index(const tsr_request *request) {
  return (uint32_t)(request->peer_bytes / TSR_SHARED_CHUNK_BYTES);
}

static void take_lane(tsr_shared *shared, tsr_request *request, bool asked_for) {
  tsr_shared_record *record = &shared->control->records[request->record];
  if (shared->free_lane_count <= (asked_for ? 0 : TSR_SHARED_LANES / 2)) return;
  request->lane = (int)shared->free_lanes[--shared->free_lane_count];
  atomic_store_explicit(&record->lane, (uint32_t)request->lane, memory_order_relaxed);
}

/* Fills what chunks are empty; peer_bytes counts what was written. True if there were any. */
static bool fill(tsr_shared *shared, tsr_request *request) {
  tsr_shared_record *record = &shared->control->records[request->record];
  bool any = false;
  while (request->peer_bytes < request->bytes &&
         chunk_index(request) - atomic_load_explicit(&record->consumed, memory_order_acquire) <
             TSR_SHARED_LANE_CHUNKS) {
    uint32_t index = chunk_index(request);
    size_t bytes = chunk_bytes(request);
    memcpy(shared->control->lanes[request->lane][index % TSR_SHARED_LANE_CHUNKS],
           (const char *)request->data + request->peer_bytes, bytes);
    request->peer_bytes += (int64_t)bytes;
    atomic_store_explicit(&record->produced, index + 1, memory_order_release);
    any = true;
  }
  return any;
}

void tsr_shared_lane_send(tsr_shared *shared, tsr_request *request) {
  request->peer_bytes = 0;
  tsr_request_append(&shared->active, request);
  take_lane(shared, request, false);
  if (request->lane >= 0) fill(shared, request);
}

static void progress_send(tsr_shared *shared, tsr_request *request) {
  tsr_shared_record *record = &shared->control->records[request->record];
  uint64_t state = atomic_load_explicit(&record->state, memory_order_acquire);
  if (state % 4 == TSR_RECORD_DONE) {
    tsr_request_unlink(&shared->active, request);
    tsr_shared_close_record(shared, request->record, request->lane);
    request->state = 0;
    return;
  }
  if (request->lane < 0) take_lane(shared, request, state % 4 == TSR_RECORD_READING);
  if (request->lane >= 0 && fill(shared, request)) tsr_shared_ring(shared, request->to);
}

void tsr_shared_lane_receive(tsr_shared *shared, tsr_request *request) {
  const tsr_shared_record *record = request->native;
  request->state = TSR_SHARED_READING;
  tsr_request_append(&shared->active, request);
  if (!atomic_load_explicit(&record->produced, memory_order_relaxed)) tsr_shared_ring(shared, request->from);
}

/* The last chunk is acknowledged by the end of the message. */
static void progress_receive(tsr_shared *shared, tsr_request *request) {
  tsr_shared_record *record = request->native;
  tsr_shared_control *control = shared->peers[request->from].control;
  while (chunk_index(request) != atomic_load_explicit(&record->produced, memory_order_acquire)) {
    uint32_t lane = atomic_load_explicit(&record->lane, memory_order_relaxed), index = chunk_index(request);
    size_t bytes = chunk_bytes(request);
    memcpy((char *)request->data + request->peer_bytes,
           control->lanes[lane % TSR_SHARED_LANES][index % TSR_SHARED_LANE_CHUNKS], bytes);
    request->peer_bytes += (int64_t)bytes;
    if (request->peer_bytes == request->bytes) {
      tsr_request_unlink(&shared->active, request);
      tsr_shared_end_reading(shared, request);
      request->state = TSR_SHARED_ARRIVED;
      return;
    }
    atomic_store_explicit(&record->consumed, index + 1, memory_order_release);
    tsr_shared_ring(shared, request->from);
  }
}

void tsr_shared_lanes_progress(tsr_shared *shared) {
  for (tsr_request *request = shared->active.first, *next; request; request = next) {
    next = request->next;
    if (request->state == TSR_SHARED_SENT)
      progress_send(shared, request);
    else
      progress_receive(shared, request);
  }
}

void tsr_shared_lane_forget(tsr_shared *shared, tsr_request *request) {
  for (const tsr_request *other = shared->active.first; other; other = other->next)
    if (other == request) {
      tsr_request_unlink(&shared->active, request);
      return;
    }
}

/* ---- queues ---- */
