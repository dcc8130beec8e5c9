/* comm/schedule_ring.c: round the members. Every part passes from neighbour to neighbour, each of which adds
 * its own; then the sums go round. Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters
 * of workstations, 2009. The sum of part i is formed from member i + 1 upwards, cyclically, and ends with i.
 */
#include "comm/schedule_round.h"

static int position(const team *team, int back) {
  return ((team->me - back) % team->size + team->size) % team->size;
}

/* What passes by as position i's: a part of the segment, or the blocks of a host, or a block. */
typedef struct parcel {
  runs runs;
  run part;
  bool is_part, given;
} parcel;

static parcel parcel_of(const round_builder *b, const team *team, int i) {
  const tsr_schedule *s = b->schedule;
  if (s->kind == TSR_ALL_REDUCE || s->kind == TSR_BROADCAST)
    return (parcel){.part = tsr_run_part(b, i, team->size), .is_part = true};
  if (team->members)
    return (parcel){.runs = {.list = s->by_host, .at = s->host_starts[i], .end = s->host_starts[i + 1]}};
  return (parcel){.runs = {.at = i, .end = i + 1}};
}

static bool next(const round_builder *b, parcel *parcel, run *run) {
  if (!parcel->is_part) return tsr_runs_next(b, &parcel->runs, run);
  if (parcel->given) return false;
  *run = parcel->part;
  return parcel->given = true;
}

static int64_t offset_in(place place, const run *run) {
  return place == WORK ? run->work : run->whole;
}

void tsr_ring_reduce(round_builder *b, const team *team, int step, place own, place partial) {
  run run;
  const int left = tsr_team_peer(team, position(team, 1)), right = tsr_team_peer(team, position(team, -1));
  for (parcel in = parcel_of(b, team, position(team, step + 2)); next(b, &in, &run);) {
    tsr_round_contribution(b, left, run.count);
    tsr_round_reduce(b, 2, 1, own, offset_in(own, &run), partial, offset_in(partial, &run), run.count);
  }
  const place source = step ? partial : own;
  for (parcel out = parcel_of(b, team, position(team, step + 1)); next(b, &out, &run);)
    tsr_round_send(b, right, source, offset_in(source, &run), run.count);
  if (step < team->size - 2 || b->schedule->kind != TSR_ALL_REDUCE) return;
  run = tsr_run_part(b, team->me, team->size);
  tsr_round_copy(b, OUT, run.whole, OUT, run.whole, run.count, true);
}

/* A broadcast's root has everything: nobody sends to it. */
void tsr_ring_gather(round_builder *b, const team *team, int step) {
  const tsr_schedule *s = b->schedule;
  const int left = tsr_team_peer(team, position(team, 1)), right = tsr_team_peer(team, position(team, -1));
  const int spared = s->kind == TSR_BROADCAST ? s->root : -1;
  run run;
  if (s->me != spared)
    for (parcel in = parcel_of(b, team, position(team, step + 1)); next(b, &in, &run);)
      tsr_round_receive(b, left, OUT, run.whole, run.count);
  if (right != spared)
    for (parcel out = parcel_of(b, team, position(team, step)); next(b, &out, &run);)
      tsr_round_send(b, right, OUT, run.whole, run.count);
}

static int once_round(const tsr_schedule *s) {
  return s->members - 1;
}

static int twice_round(const tsr_schedule *s) {
  return 2 * (s->members - 1);
}

static int parts(const tsr_schedule *s) {
  return s->members;
}

static void reduce_ring(round_builder *b, int round) {
  const team all = tsr_everyone(b);
  if (round < all.size - 1)
    tsr_ring_reduce(b, &all, round, IN, OUT);
  else
    tsr_ring_gather(b, &all, round - (all.size - 1));
}

static void gather_ring(round_builder *b, int round) {
  const team all = tsr_everyone(b);
  if (round > 0) {
    tsr_ring_gather(b, &all, round);
    return;
  }
  const run mine = tsr_run_block(b, all.me), theirs = tsr_run_block(b, position(&all, 1));
  tsr_round_receive(b, position(&all, 1), OUT, theirs.whole, theirs.count);
  tsr_round_send(b, position(&all, -1), IN, mine.own, mine.count);
  tsr_round_copy(b, IN, mine.own, OUT, mine.whole, mine.count, true);
}

/* Members hold no sums but of their own block: partial results alternate between two blocks of WORK. */
static void reduce_scatter_ring(round_builder *b, int step) {
  const team all = tsr_everyone(b);
  const int64_t block = b->schedule->segment, now = step % 2 * block, before = block - now;
  const run in = tsr_run_block(b, position(&all, step + 2)), out = tsr_run_block(b, position(&all, step + 1));
  const bool last = step == all.size - 2;
  tsr_round_contribution(b, position(&all, 1), in.count);
  tsr_round_send(b, position(&all, -1), step ? WORK : IN, step ? before : out.whole, out.count);
  tsr_round_reduce(b, 2, 1, IN, in.whole, last ? OUT : WORK, last ? in.own : now, in.count);
}

static int64_t two_blocks(const tsr_schedule *s) {
  return s->members > 2 ? 2 * s->segment : 0;
}

static void broadcast_ring(round_builder *b, int round) {
  const team all = tsr_everyone(b);
  if (round == 0)
    tsr_scatter_parts(b);
  else
    tsr_ring_gather(b, &all, round - 1);
}

const tsr_schedule_algorithm tsr_ring_algorithms[] = {
    {TSR_ALL_REDUCE, TSR_ALGORITHM_RING, INT32_MAX, twice_round, reduce_ring, parts, NULL, parts},
    {TSR_ALL_GATHER, TSR_ALGORITHM_RING, INT32_MAX, once_round, gather_ring, NULL, NULL, NULL},
    {TSR_REDUCE_SCATTER, TSR_ALGORITHM_RING, INT32_MAX, once_round, reduce_scatter_ring, NULL, two_blocks,
     once_round},
    {TSR_BROADCAST, TSR_ALGORITHM_RING, INT32_MAX, parts, broadcast_ring, parts, NULL, NULL},
    {.emit = NULL},
};
