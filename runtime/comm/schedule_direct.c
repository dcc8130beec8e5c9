/* comm/schedule_direct.c: everyone exchanges with everyone at once. A round begins with the next neighbour,
 * so that the members do not all turn to member 0 first. Sums are formed in the order of the members. */
#include "comm/schedule_round.h"

enum { MEMBERS_MAX = 1024 }; /* a request for each is kept */

static int one_round(const tsr_schedule *s) {
  (void)s;
  return 1;
}

static int two_rounds(const tsr_schedule *s) {
  (void)s;
  return 2;
}

static int all_members(const tsr_schedule *s) {
  return s->members;
}

/* The k-th neighbour upwards. */
static int neighbour(const round_builder *b, int k) {
  return (int)(((int64_t)b->schedule->me + k) % b->schedule->members);
}

/* A member's part of what the collective is about. */
static run part_of(const round_builder *b, int member) {
  bool parts = b->schedule->kind == TSR_ALL_REDUCE || b->schedule->kind == TSR_BROADCAST;
  return parts ? tsr_run_part(b, member, b->schedule->members) : tsr_run_block(b, member);
}

static void reduce_direct(round_builder *b, int round) {
  (void)round;
  const int n = b->schedule->members;
  const run all = tsr_run_segment(b);
  /* In place, the sum overwrites what the others may still read. */
  b->settles = b->schedule->wire == TSR_F32;
  for (int k = n - 1; k > 0; k--) tsr_round_contribution(b, neighbour(b, k), all.count);
  for (int k = 1; k < n; k++) tsr_round_send(b, neighbour(b, k), IN, all.whole, all.count);
  tsr_round_reduce_rounded(b, n, b->schedule->me, IN, all.whole, OUT, all.whole, all.count);
}

/* Every member receives all contributions to its part, and sums them. */
static void reduce_parts(round_builder *b, int round) {
  (void)round;
  const int n = b->schedule->members;
  const run mine = part_of(b, b->schedule->me);
  const int64_t target = b->schedule->kind == TSR_ALL_REDUCE ? mine.whole : mine.own;
  for (int k = n - 1; k > 0; k--) tsr_round_contribution(b, neighbour(b, k), mine.count);
  for (int k = 1; k < n; k++) {
    run theirs = part_of(b, neighbour(b, k));
    tsr_round_send(b, neighbour(b, k), IN, theirs.whole, theirs.count);
  }
  tsr_round_reduce(b, n, b->schedule->me, IN, mine.whole, OUT, target, mine.count);
}

/* Every member sends its part to all others, or to all but `spared`, which has everything. */
static void gather_parts(round_builder *b, place source, int64_t offset, int spared) {
  const int n = b->schedule->members, me = b->schedule->me;
  for (int k = 1; k < n && me != spared; k++) {
    run theirs = part_of(b, neighbour(b, k));
    tsr_round_receive(b, neighbour(b, k), OUT, theirs.whole, theirs.count);
  }
  for (int k = n - 1; k > 0; k--)
    if (neighbour(b, k) != spared) tsr_round_send(b, neighbour(b, k), source, offset, part_of(b, me).count);
}

static void reduce_scattered(round_builder *b, int round) {
  if (round == 0) {
    reduce_parts(b, 0);
    return;
  }
  run mine = part_of(b, b->schedule->me);
  gather_parts(b, OUT, mine.whole, -1);
  tsr_round_copy(b, OUT, mine.whole, OUT, mine.whole, mine.count, true);
}

static int reduce_scattered_roundings(const tsr_schedule *s) {
  (void)s;
  return 2;
}

static void gather_direct(round_builder *b, int round) {
  (void)round;
  run mine = tsr_run_block(b, b->schedule->me);
  gather_parts(b, IN, mine.own, -1);
  tsr_round_copy(b, IN, mine.own, OUT, mine.whole, mine.count, true);
}

static void broadcast_direct(round_builder *b, int round) {
  (void)round;
  const int root = b->schedule->root;
  const run all = tsr_run_segment(b);
  if (b->schedule->me != root) {
    tsr_round_receive(b, root, OUT, all.whole, all.count);
    return;
  }
  for (int k = 1; k < b->schedule->members; k++) tsr_round_send(b, neighbour(b, k), IN, all.whole, all.count);
  tsr_round_copy(b, IN, all.whole, OUT, all.whole, all.count, true);
}

static void broadcast_scattered(round_builder *b, int round) {
  if (round == 0)
    tsr_scatter_parts(b);
  else
    gather_parts(b, OUT, part_of(b, b->schedule->me).whole, b->schedule->root);
}

void tsr_scatter_parts(round_builder *b) {
  const int root = b->schedule->root;
  if (b->schedule->me != root) {
    run mine = part_of(b, b->schedule->me);
    tsr_round_receive(b, root, OUT, mine.whole, mine.count);
    return;
  }
  for (int k = 1; k < b->schedule->members; k++) {
    run theirs = part_of(b, neighbour(b, k));
    tsr_round_send(b, neighbour(b, k), IN, theirs.whole, theirs.count);
  }
  run all = tsr_run_segment(b);
  tsr_round_copy(b, IN, all.whole, OUT, all.whole, all.count, true);
}

const tsr_schedule_algorithm tsr_direct_algorithms[] = {
    {TSR_ALL_REDUCE, TSR_ALGORITHM_DIRECT, MEMBERS_MAX, one_round, reduce_direct, NULL, NULL, NULL},
    {TSR_ALL_REDUCE, TSR_ALGORITHM_SCATTERED, MEMBERS_MAX, two_rounds, reduce_scattered, all_members, NULL,
     reduce_scattered_roundings},
    {TSR_ALL_GATHER, TSR_ALGORITHM_DIRECT, MEMBERS_MAX, one_round, gather_direct, NULL, NULL, NULL},
    {TSR_REDUCE_SCATTER, TSR_ALGORITHM_DIRECT, MEMBERS_MAX, one_round, reduce_parts, NULL, NULL, NULL},
    {TSR_BROADCAST, TSR_ALGORITHM_DIRECT, MEMBERS_MAX, one_round, broadcast_direct, NULL, NULL, NULL},
    {TSR_BROADCAST, TSR_ALGORITHM_SCATTERED, MEMBERS_MAX, two_rounds, broadcast_scattered, all_members, NULL,
     NULL},
    {.emit = NULL},
};
