/* comm/schedule.h: a collective as one member performs it: actions, in rounds.
 *
 * Nothing is stored but what the options say: the actions of a unit (some messages, a wait, the work that
 * they allow) are computed when it is their turn, so that a collective of thousands of members, or of
 * thousands of segments, takes no more memory than one of its rounds. All of it is pure arithmetic on the
 * options; the facts of base/collective_facts.h (scratch, bytes sent, seconds) are read off the very schedule
 * that runs.
 *
 * Large data is cut into segments, which pass through all rounds of the algorithm two at a time, in turn: the
 * messages of one travel while the other is combined.
 *
 *   item           0        1        2        3    ...
 *   segment,round  0,0      1,0      0,1      1,1       then segments 2 and 3
 *   unit           post 0, post 1, wait for 0, work 0;  post 2, wait for 1, work 1;  ...
 *
 * Between two members, messages are sent and awaited in the order of the items, which is the same on all. */
#ifndef TSR_COMM_SCHEDULE_H
#define TSR_COMM_SCHEDULE_H

#include <stdbool.h>

#include "base/collective_facts.h"

typedef enum tsr_action_kind {
  TSR_ACTION_RECEIVE, /* begin: `bytes` bytes from peer, to target; if `viewed`, they are only read later */
  TSR_ACTION_SEND,    /* begin: `bytes` bytes of source, to peer */
  TSR_ACTION_WAIT,    /* all messages but the last `messages` that were begun must have ended */
  TSR_ACTION_COPY,    /* `bytes` bytes of source to target */
  TSR_ACTION_NARROW,  /* `bytes` bytes of f32 at source, rounded to the wire's type, to target */
  TSR_ACTION_ROUND,   /* the same, and widened again */
  TSR_ACTION_WIDEN,   /* a received block to `bytes` bytes of f32 at target */
  TSR_ACTION_REDUCE   /* see below */
} tsr_action_kind;

typedef enum tsr_action_place { TSR_ACTION_IN, TSR_ACTION_OUT, TSR_ACTION_SCRATCH } tsr_action_place;

/* Offsets are bytes within a place. REDUCE combines `contributions` blocks into `bytes` bytes at target:
 * number `own` is this member's, at source (rounded as the others were if `rounded`); the others were
 * received, number `own` - 1 first and then downwards, cyclically. WIDEN and REDUCE take the messages that
 * begin `messages` before the end of all that were begun, and release them. */
typedef struct tsr_action {
  tsr_action_kind kind;
  tsr_action_place source, target;
  bool viewed;  /* RECEIVE */
  bool narrow;  /* REDUCE: what was received is of the wire's type */
  bool rounded; /* REDUCE: see above */
  int peer;     /* index within the members that take part */
  int contributions, own;
  int messages;
  int64_t source_offset, target_offset;
  int64_t bytes;
} tsr_action;

/* What a schedule keeps of the options, and what follows from them. Members are indices within those that
 * take part. */
typedef struct tsr_schedule {
  const struct tsr_schedule_algorithm *algorithm;
  tsr_collective_kind kind;
  tsr_reduction reduction;
  tsr_dtype dtype;
  tsr_dtype wire; /* TSR_F32 = as the data */
  int me, members, root;
  int64_t element_bytes, wire_bytes;     /* per element, at rest and on the way */
  int64_t count;                         /* ALL_REDUCE, BROADCAST; of the others, the largest block */
  const int64_t *in_starts, *out_starts; /* the others: where blocks begin, members + 1 numbers */
  int host_count, my_host;               /* HIERARCHICAL: the members, host by host, the leader first */
  const int64_t *host_starts, *by_host, *leaders;
  int64_t segment; /* elements of one (of every block, where members have blocks of their own) */
  int64_t segments;
  int rounds;                    /* of each segment */
  int64_t work_bytes;            /* of the scratch of a segment: for partial results; after it, */
  int64_t stage_bytes;           /* for what is on the way */
  int64_t area_bytes;            /* both */
  int actions_max, messages_max; /* of a unit; of those in flight */
} tsr_schedule;

/* Options must be valid, member_count set. memory: tsr_schedule_memory_count numbers, which the schedule
 * keeps using; nothing else of the options is. tsr_schedule_measure completes it for running. */
size_t tsr_schedule_memory_count(const tsr_collective_options *options);
void tsr_schedule_init(tsr_schedule *schedule, const tsr_collective_options *options, int index,
                       int64_t *memory);
void tsr_schedule_measure(tsr_schedule *schedule);
int64_t tsr_schedule_scratch_bytes(const tsr_schedule *schedule); /* once measured */

/* Walks the units, in order. */
typedef struct tsr_schedule_cursor {
  int64_t item;
  bool posted;  /* the item's messages were begun ahead; then: */
  int messages; /* so many, */
  int trailing; /* of which the last need not have ended before the work */
} tsr_schedule_cursor;
/* Writes the next unit's actions (at most actions_max); how many, 0 = none is left. */
int tsr_schedule_next(const tsr_schedule *schedule, tsr_schedule_cursor *cursor, tsr_action *actions);

/* Who this member exchanges messages with: sets flags[peer], of `members` flags that were false. */
void tsr_schedule_peers(const tsr_schedule *schedule, bool *flags);

/* Bytes per element, by element_bytes or the dtype. */
int64_t tsr_schedule_element_bytes(const tsr_collective_options *options);

#endif
