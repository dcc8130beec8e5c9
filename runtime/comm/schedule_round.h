/* comm/schedule_round.h: how algorithms say what happens in a round. Inside schedule*.c only.
 *
 * An algorithm describes a round of one segment once, as receives, sends and what is done with what was
 * received; it is called twice, to begin the messages and, once they have ended, to do the work. Each call
 * ignores what belongs to the other. Blocks of no elements are left out: both sides know the counts. */
#ifndef TSR_COMM_SCHEDULE_ROUND_H
#define TSR_COMM_SCHEDULE_ROUND_H

#include "comm/schedule.h"

/* Where a block lies. WORK: partial results in the scratch of the segment. */
typedef enum place { IN, OUT, WORK } place;

typedef void tsr_message_function(void *to, int peer, bool sent, int64_t bytes);

typedef struct round_builder {
  const tsr_schedule *schedule;
  tsr_action *actions; /* NULL: only count */
  int action_count;
  tsr_action last;         /* while only counting */
  bool posts;              /* begin the messages, else do the work */
  int64_t segment;         /* which */
  int64_t first, elements; /* ALL_REDUCE, BROADCAST: what the segment covers */
  int64_t area;            /* where its scratch begins */
  int64_t staged;          /* bytes of the stage given out */
  int receives, messages;
  bool wide;    /* these messages travel as f32: within a host */
  bool settles; /* all messages must have ended before the work: it overwrites what is sent */
  /* What is counted of the round, for the facts. */
  int64_t combined_bytes;
  tsr_message_function *count;
  void *count_to;
} round_builder;

/* Some elements: of the whole data, of the segment's part of a block, of WORK. */
typedef struct run {
  int64_t whole; /* where in the place that holds everything (IN of REDUCE_SCATTER, OUT of ALL_GATHER) */
  int64_t own;   /* where in the place that holds one block */
  int64_t work;
  int64_t count;
} run;

/* Members of an algorithm's exchange: positions 0 .. size - 1. */
typedef struct team {
  int size, me;
  const int64_t *members; /* NULL: they are the positions */
} team;

typedef struct tsr_schedule_algorithm {
  tsr_collective_kind kind;
  tsr_algorithm name;
  int members_max;
  int (*rounds)(const tsr_schedule *schedule);
  void (*emit)(round_builder *b, int round);
  int (*parts)(const tsr_schedule *schedule);     /* into which a segment is split; NULL = 1 */
  int64_t (*work)(const tsr_schedule *schedule);  /* elements of WORK; NULL = none */
  int (*roundings)(const tsr_schedule *schedule); /* of a value on its way, with a narrow wire; NULL = 1 */
} tsr_schedule_algorithm;
extern const tsr_schedule_algorithm tsr_direct_algorithms[], tsr_doubling_algorithms[], tsr_ring_algorithms[],
    tsr_host_algorithms[], tsr_tree_algorithms[], tsr_exchange_algorithms[]; /* the last row has no emit */

int tsr_team_peer(const team *team, int position);
team tsr_everyone(const round_builder *b);

/* Of a block of `count` elements, how many are in the segment. */
int64_t tsr_run_clip(const round_builder *b, int64_t count);
/* The whole segment of ALL_REDUCE and BROADCAST; its part `part` of `parts`. */
run tsr_run_segment(const round_builder *b);
run tsr_run_part(const round_builder *b, int part, int parts);
/* The segment's part of member i's block. */
run tsr_run_block(const round_builder *b, int member);

/* The blocks of members begin .. end - 1 (of list, if there is one), one run after the other; what lies side
 * by side is one. `while (tsr_runs_next(b, &runs, &run))`. */
typedef struct runs {
  const int64_t *list;
  int64_t at, end;
} runs;
bool tsr_runs_next(const round_builder *b, runs *runs, run *out);

/* Messages. `offset` counts elements in the place. A narrow wire: through the stage. */
void tsr_round_receive(round_builder *b, int peer, place target, int64_t offset, int64_t count);
void tsr_round_send(round_builder *b, int peer, place source, int64_t offset, int64_t count);
/* A block that tsr_round_reduce will combine: these are received first, from the contribution before the
 * own one downwards. */
void tsr_round_contribution(round_builder *b, int peer, int64_t count);
void tsr_round_reduce(round_builder *b, int contributions, int own, place source, int64_t source_offset,
                      place target, int64_t target_offset, int64_t count);
/* As above, the own contribution rounded as the others: all who combine the same get the same. */
void tsr_round_reduce_rounded(round_builder *b, int contributions, int own, place source,
                              int64_t source_offset, place target, int64_t target_offset, int64_t count);
/* Work that needs no message. `rounded`: as if it had travelled. */
void tsr_round_copy(round_builder *b, place source, int64_t source_offset, place target,
                    int64_t target_offset, int64_t count, bool rounded);

/* One half of a round. actions, count may be NULL. */
round_builder tsr_schedule_emit(const tsr_schedule *schedule, int64_t segment, int round, bool posts,
                                tsr_action *actions, tsr_message_function *count, void *count_to);

/* Pieces that several algorithms share. Of a ring, the member at each position ends with the sum of its part
 * (or with the blocks of its host) in `partial`, once it has been through size - 1 steps. `own`: where a
 * member has its own contribution. */
void tsr_ring_reduce(round_builder *b, const team *team, int step, place own, place partial);
void tsr_ring_gather(round_builder *b, const team *team, int step);
void tsr_doubling_reduce(round_builder *b, const team *team, int round, place own);
int tsr_doubling_rounds(int members);
int tsr_ceil_log2(int n);
/* A binomial tree below `root` (a position): everything, from `source` at the root to OUT. */
void tsr_tree_spread(round_builder *b, const team *team, int root, int round, place source);
/* BROADCAST: to every member its part. */
void tsr_scatter_parts(round_builder *b);

#endif
