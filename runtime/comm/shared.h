/* comm/shared.h: messages between the processes of one host, through memory that they share.
 *
 * Each process makes one segment and maps those of the others. A segment holds a mailbox for each process
 * that may write to it, a doorbell, signs of life, and an arena: memory of which only the pages that were
 * asked for exist. A message is announced in the receiver's mailbox. One that lies in the sender's arena is
 * read where it lies; others travel in the announcement, or, if they are longer, in chunks through a lane of
 * the sender's segment. Messages of a pair with the same tag match in the order in which they were sent.
 *
 * Nothing here is locked and nothing waits for another process, but for rest, which ends by itself: a process
 * may die at any moment, and the others find out by its signs.
 *
 * Members are the processes of the host, 0 .. members - 1. Thread safety: one thread at a time. */
#ifndef TSR_COMM_SHARED_H
#define TSR_COMM_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/transport.h"

typedef struct tsr_shared tsr_shared;

/* By what the others find this process's segment; plain data, exchanged by whatever there is. */
typedef struct tsr_shared_offer {
  uint64_t mark; /* also in the segment: a descriptor that was given anew is noticed */
  uint64_t arena_bytes;
  int64_t pid;
  int32_t file;
  int32_t made; /* 1; anything else = this process could make no segment */
} tsr_shared_offer;

/* What a process says of itself beside its beats; bits, since it may say both. */
typedef enum tsr_shared_sign { TSR_SHARED_FAILED = 1, TSR_SHARED_LEFT = 2 } tsr_shared_sign;

/* States of a request that is in flight here; IDLE is 0. */
typedef enum tsr_shared_state {
  TSR_SHARED_WAITING = 16, /* send: no room to announce it yet */
  TSR_SHARED_SENT,
  TSR_SHARED_POSTED,  /* receive: not announced yet */
  TSR_SHARED_READING, /* receive: through a lane */
  TSR_SHARED_ARRIVED, /* receive: it can be had; test has not said so */
  TSR_SHARED_MISFIT,  /* receive: it has another size */
  TSR_SHARED_VIEWED
} tsr_shared_state;
static inline bool tsr_shared_holds(const tsr_request *request) {
  return request->state >= TSR_SHARED_WAITING;
}

/* arena_bytes: 0 = as much as the host has memory. Gives *out. Errors: OUT_OF_MEMORY, UNSUPPORTED. */
tsr_status tsr_shared_create(int members, int me, uint64_t arena_bytes, tsr_shared **out, tsr_error *error);
/* Requests in flight must have been cancelled. Takes *shared (may be NULL), leaves NULL. */
void tsr_shared_destroy(tsr_shared **shared);
void tsr_shared_get_offer(const tsr_shared *shared, tsr_shared_offer *out);
/* Maps the others' segments; offers[members]. Every process keeps its segment until all have joined or given
 * up. Errors: UNSUPPORTED, saying which segment could not be had and why. */
tsr_status tsr_shared_join(tsr_shared *shared, const tsr_shared_offer *offers, tsr_error *error);

/* Starts a message; request->data, bytes, tag and peer (the name in errors) are set, the state is not. */
void tsr_shared_send(tsr_shared *shared, int to, tsr_request *request);
/* view: request->view is to be where the data lies, in the sender's memory if it can be reached. */
void tsr_shared_receive(tsr_shared *shared, int from, bool view, tsr_request *request);
/* As the transport's. Errors: COMM for another size, OUT_OF_MEMORY. */
tsr_status tsr_shared_test(tsr_shared *shared, tsr_request *request, bool *done, tsr_error *error);
void tsr_shared_release(tsr_shared *shared, tsr_request *request);
void tsr_shared_cancel(tsr_shared *shared, tsr_request *request);
/* Lets all that is in flight progress. */
void tsr_shared_progress(tsr_shared *shared);

/* As the transport's memory: page-aligned, zeroed; NULL = none left. */
void *tsr_shared_memory_create(tsr_shared *shared, size_t bytes);
void tsr_shared_memory_destroy(tsr_shared *shared, void *memory);

/* Until something happened for this process since the last rest, or for that long. spin: a core may be kept
 * busy for some microseconds, since sleeping and being woken takes longer than most messages. */
void tsr_shared_rest(tsr_shared *shared, double seconds_max, bool spin);

void tsr_shared_beat(tsr_shared *shared);
/* Adds to the signs that the others see, and wakes them. */
void tsr_shared_give_sign(tsr_shared *shared, tsr_shared_sign sign);
uint32_t tsr_shared_beats(const tsr_shared *shared, int member);
unsigned tsr_shared_signs_of(const tsr_shared *shared, int member);

#endif
