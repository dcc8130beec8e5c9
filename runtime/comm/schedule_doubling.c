/* comm/schedule_doubling.c: log2 n rounds of exchanges in pairs. Thakur, Rabenseifner and Gropp, Optimization
 * of collective communication operations in MPICH, 2005.
 *
 * The largest power of two exchanges; of the first 2 x extra members, the odd ones are folded into their
 * lower neighbours before, and get their result from them afterwards. So those that exchange stand for
 * contiguous members, and groups of them too. */
#include "comm/schedule_round.h"

typedef struct fold {
  int power, extra;
  int place; /* of this member among those that exchange; -1 = folded */
  bool folds, first, last;
  int bit; /* between the two of a pair in this round */
} fold;

int tsr_ceil_log2(int n) {
  int log = 0;
  while (log < 31 && ((int64_t)1 << log) < n) log++;
  return log;
}

static int floor_log2(int n) {
  return tsr_ceil_log2(n / 2 + 1);
}

static int member_at(const fold *f, int place) {
  return place < f->extra ? 2 * place : place + f->extra;
}

static fold fold_of(int members, int me, int round) {
  const int log = floor_log2(members), power = 1 << log, extra = members - power;
  fold f = {.power = power, .extra = extra, .place = me < 2 * extra ? me / 2 : me - extra};
  f.folds = me < 2 * extra;
  if (f.folds && me % 2) f.place = -1;
  f.first = extra && round == 0;
  f.last = extra && round == log + 1;
  f.bit = f.first || f.last ? 0 : 1 << (round - (extra > 0));
  return f;
}

int tsr_doubling_rounds(int members) {
  return floor_log2(members) + ((members & (members - 1)) ? 2 : 0);
}

static int rounds(const tsr_schedule *s) {
  return tsr_doubling_rounds(s->members);
}

/* ---- all-reduce: everything, in every round ---- */

static void exchange_sums(round_builder *b, int peer, bool lower, place own) {
  const run all = tsr_run_segment(b);
  b->settles = b->schedule->wire == TSR_F32;
  tsr_round_contribution(b, peer, all.count);
  tsr_round_send(b, peer, own, all.whole, all.count);
  tsr_round_reduce_rounded(b, 2, lower ? 0 : 1, own, all.whole, OUT, all.whole, all.count);
}

void tsr_doubling_reduce(round_builder *b, const team *team, int round, place own) {
  const fold f = fold_of(team->size, team->me, round);
  const run all = tsr_run_segment(b);
  const int neighbour = tsr_team_peer(team, f.folds ? team->me ^ 1 : team->me);
  if (f.first && f.folds && f.place < 0) {
    tsr_round_send(b, neighbour, own, all.whole, all.count);
  } else if (f.first && f.folds) {
    tsr_round_contribution(b, neighbour, all.count);
    tsr_round_reduce(b, 2, 0, own, all.whole, OUT, all.whole, all.count);
  } else if (f.last) {
    if (f.folds && f.place < 0) tsr_round_receive(b, neighbour, OUT, all.whole, all.count);
    if (f.folds && f.place >= 0) tsr_round_send(b, neighbour, OUT, all.whole, all.count);
    /* The folded ones have rounded sums: so must the others. */
    if (f.place >= 0) tsr_round_copy(b, OUT, all.whole, OUT, all.whole, all.count, true);
  } else if (!f.first && f.place >= 0) {
    bool reduced = f.folds || f.bit > 1;
    exchange_sums(b, tsr_team_peer(team, member_at(&f, f.place ^ f.bit)), !(f.place & f.bit),
                  reduced ? OUT : own);
  }
}

static void reduce_doubling(round_builder *b, int round) {
  const team all = tsr_everyone(b);
  tsr_doubling_reduce(b, &all, round, IN);
}

/* ---- all-gather: twice as many blocks in every round ---- */

static void receive_blocks(round_builder *b, int peer, int begin, int end) {
  run run;
  for (runs runs = {.at = begin, .end = end}; tsr_runs_next(b, &runs, &run);)
    tsr_round_receive(b, peer, OUT, run.whole, run.count);
}

static void send_blocks(round_builder *b, int peer, place source, int begin, int end) {
  run run;
  for (runs runs = {.at = begin, .end = end}; tsr_runs_next(b, &runs, &run);)
    tsr_round_send(b, peer, source, source == WORK ? run.work : run.whole, run.count);
}

static void gather_fold(round_builder *b, const fold *f) {
  const int me = b->schedule->me;
  const run mine = tsr_run_block(b, me);
  if (f->folds && f->place < 0) tsr_round_send(b, me - 1, IN, mine.own, mine.count);
  if (f->folds && f->place >= 0) receive_blocks(b, me + 1, me + 1, me + 2);
  tsr_round_copy(b, IN, mine.own, OUT, mine.whole, mine.count, true);
}

static void gather_doubling(round_builder *b, int round) {
  const int me = b->schedule->me, n = b->schedule->members;
  const fold f = fold_of(n, me, round);
  if (f.first) {
    gather_fold(b, &f);
  } else if (f.last) {
    if (f.folds && f.place < 0) receive_blocks(b, me - 1, 0, n);
    if (f.folds && f.place >= 0) send_blocks(b, me + 1, OUT, 0, n);
  } else if (f.place >= 0) {
    const int mine = f.place & ~(f.bit - 1), theirs = mine ^ f.bit, peer = member_at(&f, f.place ^ f.bit);
    const run own = tsr_run_block(b, me);
    receive_blocks(b, peer, member_at(&f, theirs), member_at(&f, theirs + f.bit));
    if (round == 0)
      tsr_round_send(b, peer, IN, own.own, own.count);
    else
      send_blocks(b, peer, OUT, member_at(&f, mine), member_at(&f, mine + f.bit));
    if (round == 0) tsr_round_copy(b, IN, own.own, OUT, own.whole, own.count, true);
  }
}

/* ---- reduce-scatter: recursive halving ---- */

static void combine_blocks(round_builder *b, int peer, bool lower, place own, int begin, int end) {
  run run;
  for (runs runs = {.at = begin, .end = end}; tsr_runs_next(b, &runs, &run);) {
    tsr_round_contribution(b, peer, run.count);
    tsr_round_reduce(b, 2, lower ? 0 : 1, own, own == WORK ? run.work : run.whole, WORK, run.work, run.count);
  }
}

static void scatter_fold(round_builder *b, const fold *f) {
  const int me = b->schedule->me, n = b->schedule->members;
  if (!f->folds) return;
  if (f->place < 0)
    send_blocks(b, me - 1, IN, 0, n);
  else
    combine_blocks(b, me + 1, true, IN, 0, n);
}

static void scatter_unfold(round_builder *b, const fold *f) {
  const int me = b->schedule->me;
  const run mine = tsr_run_block(b, me);
  if (f->folds && f->place < 0)
    tsr_round_receive(b, me - 1, OUT, mine.own, mine.count);
  else if (f->folds)
    send_blocks(b, me + 1, WORK, me + 1, me + 2);
}

static void reduce_scatter_halving(round_builder *b, int round) {
  const int me = b->schedule->me, n = b->schedule->members;
  fold f = fold_of(n, me, round);
  if (f.first) {
    scatter_fold(b, &f);
  } else if (f.last) {
    scatter_unfold(b, &f);
  } else if (f.place >= 0) {
    const int bit = f.power / 2 / f.bit, base = f.place & ~(bit - 1), other = base ^ bit;
    const place own = f.folds || bit < f.power / 2 ? WORK : IN;
    const int peer = member_at(&f, f.place ^ bit);
    combine_blocks(b, peer, !(f.place & bit), own, member_at(&f, base), member_at(&f, base + bit));
    send_blocks(b, peer, own, member_at(&f, other), member_at(&f, other + bit));
    const run mine = tsr_run_block(b, me);
    if (bit == 1) tsr_round_copy(b, WORK, mine.work, OUT, mine.own, mine.count, false);
  }
}

static int64_t all_blocks(const tsr_schedule *s) {
  return s->segments == 1 ? s->in_starts[s->members] : s->members * s->segment;
}

const tsr_schedule_algorithm tsr_doubling_algorithms[] = {
    {TSR_ALL_REDUCE, TSR_ALGORITHM_DOUBLING, INT32_MAX, rounds, reduce_doubling, NULL, NULL, rounds},
    {TSR_ALL_GATHER, TSR_ALGORITHM_DOUBLING, INT32_MAX, rounds, gather_doubling, NULL, NULL, NULL},
    {TSR_REDUCE_SCATTER, TSR_ALGORITHM_DOUBLING, INT32_MAX, rounds, reduce_scatter_halving, NULL, all_blocks,
     rounds},
    {.emit = NULL},
};
