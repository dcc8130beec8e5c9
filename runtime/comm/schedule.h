/* comm/schedule.h: a collective as one member performs it: a list of actions, in rounds.
 *
 * Building one is pure arithmetic on the options. The facts of base/collective_facts.h (bytes of scratch,
 * bytes sent) are read off the very schedule that will run. */
#ifndef TSR_COMM_SCHEDULE_H
#define TSR_COMM_SCHEDULE_H

#include "base/collective_facts.h"

typedef enum tsr_action_kind {
  TSR_ACTION_RECEIVE, /* begin: `bytes` bytes from peer, to target */
  TSR_ACTION_SEND,    /* begin: `bytes` bytes of source, to peer */
  TSR_ACTION_WAIT,    /* ends a round: all messages above must have ended */
  TSR_ACTION_COPY,    /* `bytes` bytes of source to target */
  TSR_ACTION_REDUCE   /* see below */
} tsr_action_kind;

typedef enum tsr_action_place { TSR_ACTION_IN, TSR_ACTION_OUT, TSR_ACTION_SCRATCH } tsr_action_place;

/* Offsets are bytes within a place. REDUCE combines `contributions` blocks of `bytes` bytes into target:
 * number `own` is this member's, at own_offset of IN; the others follow one another at source. */
typedef struct tsr_action {
  tsr_action_kind kind;
  tsr_action_place source, target;
  int peer; /* index within the members that take part, until tsr_collective_create makes it the group's */
  int tag;
  int contributions, own;
  int64_t source_offset, target_offset, own_offset;
  int64_t bytes;
} tsr_action;

typedef struct tsr_schedule {
  tsr_action *actions; /* NULL: only count */
  size_t action_count;
  size_t message_count;     /* of the round being built */
  size_t message_count_max; /* of any round */
  int64_t scratch_bytes;
  uint64_t sent_bytes;
} tsr_schedule;

/* Options must be valid, member_count set. Fills everything but `actions`; writes the actions there if it is
 * not NULL (call twice: to count, then with memory). */
void tsr_schedule_build(tsr_schedule *schedule, const tsr_collective_options *options, int index);

/* Bytes per element, by element_bytes or the dtype. */
int64_t tsr_schedule_element_bytes(const tsr_collective_options *options);

#endif
