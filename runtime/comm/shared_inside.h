/* comm/shared_inside.h: what lies in a segment, and what a process keeps beside it; for shared*.c and their
 * test. */
#ifndef TSR_COMM_SHARED_INSIDE_H
#define TSR_COMM_SHARED_INSIDE_H

#include <stdalign.h>
#include <stdatomic.h>

#include "comm/shared.h"

enum {
  TSR_SHARED_LINE = 64,           /* bytes of a cache line: what two processes write lies in two of them */
  TSR_SHARED_INLINE_BYTES = 2048, /* a message of no more travels in its announcement */
  TSR_SHARED_SLOTS = 32,          /* announcements in a mailbox */
  TSR_SHARED_RECORDS = 1024,      /* longer messages in flight from one process */
  TSR_SHARED_LANES = 8,           /* of these, on their way in chunks */
  TSR_SHARED_LANE_CHUNKS = 4,
  TSR_SHARED_CHUNK_BYTES = 32768
};

/* The fate of a message that is longer than an announcement, in the sender's segment. state = 4 * turn + one
 * of these; the turn counts the record's uses, so that a reader who comes late notices. PENDING -> READING is
 * the receiver's step, PENDING -> FREE (in the next turn) the sender's who cancels: each an exchange that
 * only one of them wins. READING -> DONE is the receiver's, DONE -> FREE the sender's. */
enum { TSR_RECORD_FREE, TSR_RECORD_PENDING, TSR_RECORD_READING, TSR_RECORD_DONE };
typedef struct tsr_shared_record {
  alignas(TSR_SHARED_LINE) _Atomic uint64_t state;
  _Atomic uint32_t produced, consumed; /* chunks */
  _Atomic uint32_t lane;               /* valid once produced > 0 */
} tsr_shared_record;

typedef struct tsr_shared_message {
  uint64_t ticket; /* the record's state when it was announced */
  int64_t bytes;
  int64_t offset; /* in the sender's arena; -1 = it lies elsewhere and comes through a lane */
  int32_t tag;
  uint32_t record;
} tsr_shared_message;

typedef struct tsr_shared_slot {
  tsr_shared_message message;
  alignas(TSR_SHARED_LINE) char data[TSR_SHARED_INLINE_BYTES];
} tsr_shared_slot;

/* One writer, one reader. */
typedef struct tsr_shared_mailbox {
  alignas(TSR_SHARED_LINE) _Atomic uint32_t written; /* slots, ever */
  alignas(TSR_SHARED_LINE) _Atomic uint32_t read;
  _Atomic uint32_t writer_waits; /* it found no room: wants to be woken when there is */
  alignas(TSR_SHARED_LINE) tsr_shared_slot slots[TSR_SHARED_SLOTS];
} tsr_shared_mailbox;

/* The part of a segment in front of its arena. */
typedef struct tsr_shared_control {
  uint64_t mark;
  alignas(TSR_SHARED_LINE) _Atomic uint32_t rings; /* of the doorbell; a futex */
  _Atomic uint32_t resting;                        /* its owner sleeps, or is about to */
  alignas(TSR_SHARED_LINE) _Atomic uint32_t beats;
  _Atomic uint32_t signs;
  alignas(TSR_SHARED_LINE) tsr_shared_record records[TSR_SHARED_RECORDS];
  char lanes[TSR_SHARED_LANES][TSR_SHARED_LANE_CHUNKS][TSR_SHARED_CHUNK_BYTES];
  alignas(TSR_SHARED_LINE) tsr_shared_mailbox from[]; /* [member] */
} tsr_shared_control;

/* A message that came before its receive. */
typedef struct tsr_shared_early {
  struct tsr_shared_early *next;
  tsr_shared_slot slot;
} tsr_shared_early;

typedef struct tsr_shared_peer {
  tsr_shared_control *control; /* of its segment; NULL until joined */
  const char *arena;           /* only to read, unless it is this process's own */
  uint64_t mapped_arena_bytes; /* 0 = it is not mapped for this peer */
  tsr_shared_mailbox *out, *in;
  uint32_t written, read;            /* of out, of in */
  tsr_request_queue waiting, posted; /* sends, receives */
  tsr_shared_early *early, *early_last;
} tsr_shared_peer;

/* A stretch of the arena, in a list by offset. */
typedef struct tsr_shared_block {
  struct tsr_shared_block *next, *previous;
  uint64_t offset, bytes;
  bool used;
} tsr_shared_block;

struct tsr_shared {
  int members, me, file;
  uint64_t control_bytes, arena_bytes;
  tsr_shared_control *control;
  char *arena;
  tsr_shared_peer *peers;
  tsr_shared_block *blocks;
  tsr_request_queue active; /* sends and receives through lanes */
  size_t waiting_count;     /* of all peers */
  uint32_t free_records[TSR_SHARED_RECORDS], free_lanes[TSR_SHARED_LANES];
  int free_record_count, free_lane_count;
  /* Records of cancelled sends that somebody may still be reading, and their lanes (-1 = none). */
  struct {
    uint32_t record;
    int lane;
  } cancelled[TSR_SHARED_RECORDS];
  int cancelled_count;
  tsr_shared_early *spare; /* for early messages */
  struct tsr_shared_early_block {
    struct tsr_shared_early_block *next;
  } * early_blocks;
  uint32_t rings_seen;
  double spin_seconds; /* as long as spinning paid lately */
};

/* Makes the file of a segment: a descriptor, or -1 and errno. Tests put one here that fails. */
extern int (*tsr_shared_make_file)(void);
/* Joins instances of one process without mapping anything: for tests, so that a race detector sees that
 * two addresses are one. all[members]. */
void tsr_shared_link(tsr_shared *const *all, int members);
/* Of tsr_shared_early; false if there is no memory. */
bool tsr_shared_grow_early(tsr_shared *shared);

/* Tells a process that something happened for it. */
void tsr_shared_ring(const tsr_shared *shared, int member);

/* Ends a record's use by this process's send (lane -1 = it has none), and by its receive. */
void tsr_shared_close_record(tsr_shared *shared, uint32_t record, int lane);
void tsr_shared_end_reading(tsr_shared *shared, tsr_request *request);

/* A message through a lane begins; all of them go on; one is given up, if it goes through a lane at all. */
void tsr_shared_lane_send(tsr_shared *shared, tsr_request *request);
void tsr_shared_lane_receive(tsr_shared *shared, tsr_request *request);
void tsr_shared_lanes_progress(tsr_shared *shared);
void tsr_shared_lane_forget(tsr_shared *shared, tsr_request *request);

/* The first stretch of the arena is all of it. */
bool tsr_shared_arena_init(tsr_shared *shared);
void tsr_shared_arena_finish(tsr_shared *shared);

#endif
