/* comm/schedule_tree.c: binomial trees. Towards member 0, member v passes on what it has in the round of its
 * lowest bit, to v without that bit; from the root it is the other way round, largest subtrees first. A
 * subtree is contiguous: v .. v + lowest bit - 1. */
#include "comm/schedule_round.h"

static int lesser(int64_t a, int b) {
  return a < b ? (int)a : b;
}

static int levels(const tsr_schedule *s) {
  return tsr_ceil_log2(s->members);
}

static int twice_levels(const tsr_schedule *s) {
  return 2 * levels(s);
}

static int levels_and_one(const tsr_schedule *s) {
  return levels(s) + 1;
}

/* ---- runs that a subtree exchanges: of ALL_REDUCE the segment, of the others its members' blocks ---- */

typedef struct subtree {
  runs runs;
  bool whole, given;
} subtree;

static subtree subtree_of(const round_builder *b, int begin, int64_t end) {
  if (b->schedule->kind == TSR_ALL_REDUCE || b->schedule->kind == TSR_BROADCAST)
    return (subtree){.whole = true};
  return (subtree){.runs = {.at = begin, .end = lesser(end, b->schedule->members)}};
}

static bool next(const round_builder *b, subtree *subtree, run *run) {
  if (!subtree->whole) return tsr_runs_next(b, &subtree->runs, run);
  if (subtree->given) return false;
  *run = tsr_run_segment(b);
  return subtree->given = true;
}

static int64_t offset_in(place place, const run *run) {
  return place == WORK ? run->work : run->whole;
}

static void receive_subtree(round_builder *b, int peer, place target, int begin, int64_t end) {
  run run;
  for (subtree subtree = subtree_of(b, begin, end); next(b, &subtree, &run);)
    tsr_round_receive(b, peer, target, offset_in(target, &run), run.count);
}

static void send_subtree(round_builder *b, int peer, place source, int begin, int64_t end) {
  run run;
  for (subtree subtree = subtree_of(b, begin, end); next(b, &subtree, &run);)
    tsr_round_send(b, peer, source, offset_in(source, &run), run.count);
}

/* ---- towards the root, from it ---- */

/* Sums of everything, in OUT or WORK of member 0. */
static void collect_sums(round_builder *b, int round, place partial) {
  const int me = b->schedule->me, n = b->schedule->members, bit = 1 << round;
  if (me & (bit - 1)) return;
  const place own = round > 0 && me + 1 < n ? partial : IN; /* the first to add was me + 1 */
  run run;
  if (me & bit)
    send_subtree(b, me - bit, own, 0, n);
  else if ((int64_t)me + bit < n)
    for (subtree all = subtree_of(b, 0, n); next(b, &all, &run);) {
      tsr_round_contribution(b, me + bit, run.count);
      tsr_round_reduce(b, 2, 0, own, offset_in(own, &run), partial, offset_in(partial, &run), run.count);
    }
}

static void collect_blocks(round_builder *b, int round) {
  const int me = b->schedule->me, bit = 1 << round;
  const run mine = tsr_run_block(b, me);
  if (!(me & (bit - 1))) {
    if (!(me & bit) && (int64_t)me + bit < b->schedule->members)
      receive_subtree(b, me + bit, OUT, me + bit, (int64_t)me + 2 * (int64_t)bit);
    if (me & bit && round == 0) tsr_round_send(b, me - bit, IN, mine.own, mine.count);
    if (me & bit && round > 0) send_subtree(b, me - bit, OUT, me, (int64_t)me + bit);
  }
  if (round == 0) tsr_round_copy(b, IN, mine.own, OUT, mine.whole, mine.count, true);
}

/* Everything to everyone. */
void tsr_tree_spread(round_builder *b, const team *team, int root, int round, place source) {
  const int n = team->size, v = (team->me - root + n) % n;
  const int bit = 1 << (tsr_ceil_log2(n) - 1 - round);
  if ((v & (2 * (int64_t)bit - 1)) == bit)
    receive_subtree(b, tsr_team_peer(team, (v - bit + root) % n), OUT, 0, b->schedule->members);
  if (!(v & (2 * (int64_t)bit - 1)) && v + (int64_t)bit < n)
    send_subtree(b, tsr_team_peer(team, (int)((v + (int64_t)bit + root) % n)), v ? OUT : source, 0,
                 b->schedule->members);
}

/* Each subtree gets the sums of its blocks. */
static void scatter_sums(round_builder *b, int round) {
  const int me = b->schedule->me, bit = 1 << (levels(b->schedule) - 1 - round);
  const int64_t end = (int64_t)me + bit;
  if ((me & (2 * (int64_t)bit - 1)) == bit) receive_subtree(b, me - bit, WORK, me, end);
  if (!(me & (2 * (int64_t)bit - 1)) && end < b->schedule->members)
    send_subtree(b, (int)end, WORK, (int)end, end + bit);
  const run mine = tsr_run_block(b, me);
  if (bit == 1) tsr_round_copy(b, WORK, mine.work, OUT, mine.own, mine.count, false);
}

/* ---- the collectives ---- */

static void reduce_tree(round_builder *b, int round) {
  const team all = tsr_everyone(b);
  const int up = levels(b->schedule);
  if (round < up) {
    collect_sums(b, round, OUT);
    run segment = tsr_run_segment(b);
    if (round == up - 1 && all.me == 0)
      tsr_round_copy(b, OUT, segment.whole, OUT, segment.whole, segment.count, true);
  } else {
    tsr_tree_spread(b, &all, 0, round - up, OUT);
  }
}

static void gather_tree(round_builder *b, int round) {
  const team all = tsr_everyone(b);
  const int up = levels(b->schedule);
  if (round < up)
    collect_blocks(b, round);
  else
    tsr_tree_spread(b, &all, 0, round - up, OUT);
}

static void reduce_scatter_tree(round_builder *b, int round) {
  const int up = levels(b->schedule);
  if (round < up)
    collect_sums(b, round, WORK);
  else
    scatter_sums(b, round - up);
}

static int64_t all_blocks(const tsr_schedule *s) {
  return s->segments == 1 ? s->in_starts[s->members] : s->members * s->segment;
}

static void broadcast_tree(round_builder *b, int round) {
  const team all = tsr_everyone(b);
  const run segment = tsr_run_segment(b);
  tsr_tree_spread(b, &all, b->schedule->root, round, IN);
  if (round == 0 && all.me == b->schedule->root)
    tsr_round_copy(b, IN, segment.whole, OUT, segment.whole, segment.count, true);
}

const tsr_schedule_algorithm tsr_tree_algorithms[] = {
    {TSR_ALL_REDUCE, TSR_ALGORITHM_TREE, INT32_MAX, twice_levels, reduce_tree, NULL, NULL, levels_and_one},
    {TSR_ALL_GATHER, TSR_ALGORITHM_TREE, INT32_MAX, twice_levels, gather_tree, NULL, NULL, NULL},
    {TSR_REDUCE_SCATTER, TSR_ALGORITHM_TREE, INT32_MAX, twice_levels, reduce_scatter_tree, NULL, all_blocks,
     levels_and_one},
    {TSR_BROADCAST, TSR_ALGORITHM_TREE, INT32_MAX, levels, broadcast_tree, NULL, NULL, NULL},
    {.emit = NULL},
};
