/* comm/schedule_hosts.c: within each host first, then one stream per host between the hosts' leaders, then
 * within each host again. A leader is its host's first member, or a broadcast's root. Within a host data
 * travels as it is, whatever the wire's type. */
#include "comm/schedule_round.h"

/* Few bytes between hosts: fewer rounds count for more than fewer bytes. */
enum { DOUBLING_BYTES_MAX = 16384 };

typedef struct host {
  int size, me;           /* members of this host; this one's position */
  const int64_t *members; /* the leader first */
} host;

static host host_of(const tsr_schedule *s) {
  host h = {.size = (int)(s->host_starts[s->my_host + 1] - s->host_starts[s->my_host]),
            .members = s->by_host + s->host_starts[s->my_host]};
  while (h.members[h.me] != s->me) h.me++;
  return h;
}

static team leaders(const tsr_schedule *s) {
  return (team){.size = s->host_count, .me = s->my_host, .members = s->leaders};
}

static bool doubles(const tsr_schedule *s) {
  return s->segments == 1 && s->count * s->element_bytes <= DOUBLING_BYTES_MAX;
}

static int all_hosts(const tsr_schedule *s) {
  return s->host_count;
}

/* What a member of the host contributes to a run is combined by the leader. */
static void combine(round_builder *b, const host *h, const run *run, place target) {
  for (int i = h->size - 1; h->me == 0 && i > 0; i--)
    tsr_round_contribution(b, (int)h->members[i], run->count);
  if (h->me == 0 && h->size > 1)
    tsr_round_reduce(b, h->size, 0, IN, run->whole, target, target == WORK ? run->work : run->whole,
                     run->count);
  else if (h->me == 0)
    tsr_round_copy(b, IN, run->whole, target, target == WORK ? run->work : run->whole, run->count, false);
  else
    tsr_round_send(b, (int)h->members[0], IN, run->whole, run->count);
}

/* The leader has a run, all others of its host get it. */
static void spread(round_builder *b, const host *h, const run *run) {
  if (h->me > 0) tsr_round_receive(b, (int)h->members[0], OUT, run->whole, run->count);
  for (int i = 1; h->me == 0 && i < h->size; i++)
    tsr_round_send(b, (int)h->members[i], OUT, run->whole, run->count);
}

/* ---- all-reduce ---- */

static int reduce_steps(const tsr_schedule *s) {
  return doubles(s) ? tsr_doubling_rounds(s->host_count) : 2 * (s->host_count - 1);
}

static int reduce_rounds(const tsr_schedule *s) {
  return 2 + reduce_steps(s);
}

static int reduce_roundings(const tsr_schedule *s) {
  return doubles(s) ? tsr_doubling_rounds(s->host_count) : s->host_count;
}

static void reduce_hosts(round_builder *b, int round) {
  const tsr_schedule *s = b->schedule;
  const host h = host_of(s);
  const team across = leaders(s);
  const run segment = tsr_run_segment(b);
  const int step = round - 1;
  b->wide = round == 0 || step == reduce_steps(s);
  if (round == 0)
    combine(b, &h, &segment, OUT);
  else if (b->wide)
    spread(b, &h, &segment);
  else if (h.me == 0 && doubles(s))
    tsr_doubling_reduce(b, &across, step, OUT);
  else if (h.me == 0 && step < across.size - 1)
    tsr_ring_reduce(b, &across, step, OUT, OUT);
  else if (h.me == 0)
    tsr_ring_gather(b, &across, step - (across.size - 1));
}

/* ---- all-gather, reduce-scatter ---- */

static int hosts_and_one(const tsr_schedule *s) {
  return s->host_count + 1;
}

static int reduce_scatter_roundings(const tsr_schedule *s) {
  return s->host_count - 1;
}

static void collect_blocks(round_builder *b, const host *h) {
  const run mine = tsr_run_block(b, b->schedule->me);
  for (int i = 1; h->me == 0 && i < h->size; i++) {
    const run theirs = tsr_run_block(b, (int)h->members[i]);
    tsr_round_receive(b, (int)h->members[i], OUT, theirs.whole, theirs.count);
    /* As it will arrive elsewhere. */
    if (b->schedule->wire != TSR_F32)
      tsr_round_copy(b, OUT, theirs.whole, OUT, theirs.whole, theirs.count, true);
  }
  if (h->me > 0)
    tsr_round_send(b, (int)h->members[0], IN, mine.own, mine.count);
  else
    tsr_round_copy(b, IN, mine.own, OUT, mine.whole, mine.count, true);
}

static void gather_hosts(round_builder *b, int round) {
  const tsr_schedule *s = b->schedule;
  const host h = host_of(s);
  const team across = leaders(s);
  run run;
  b->wide = round == 0 || round == s->host_count;
  if (round == 0)
    collect_blocks(b, &h);
  else if (b->wide)
    for (runs runs = {.end = s->members}; tsr_runs_next(b, &runs, &run);) spread(b, &h, &run);
  else if (h.me == 0)
    tsr_ring_gather(b, &across, round - 1);
}

static void distribute_sums(round_builder *b, const host *h) {
  const run mine = tsr_run_block(b, b->schedule->me);
  for (int i = 1; h->me == 0 && i < h->size; i++) {
    const run theirs = tsr_run_block(b, (int)h->members[i]);
    tsr_round_send(b, (int)h->members[i], WORK, theirs.work, theirs.count);
  }
  if (h->me == 0)
    tsr_round_copy(b, WORK, mine.work, OUT, mine.own, mine.count, false);
  else
    tsr_round_receive(b, (int)h->members[0], OUT, mine.own, mine.count);
}

static void reduce_scatter_hosts(round_builder *b, int round) {
  const tsr_schedule *s = b->schedule;
  const host h = host_of(s);
  const team across = leaders(s);
  run run;
  b->wide = round == 0 || round == s->host_count;
  if (round == 0)
    for (runs runs = {.end = s->members}; tsr_runs_next(b, &runs, &run);) combine(b, &h, &run, WORK);
  else if (b->wide)
    distribute_sums(b, &h);
  else if (h.me == 0)
    tsr_ring_reduce(b, &across, round - 1, WORK, WORK);
}

static int64_t leaders_blocks(const tsr_schedule *s) {
  if (s->leaders[s->my_host] != s->me) return 0;
  return s->segments == 1 ? s->in_starts[s->members] : s->members * s->segment;
}

/* ---- broadcast ---- */

static int levels_and_one(const tsr_schedule *s) {
  return tsr_ceil_log2(s->host_count) + 1;
}

static int root_host(const tsr_schedule *s) {
  int i = 0;
  while (s->leaders[i] != s->root) i++;
  return i;
}

static void broadcast_hosts(round_builder *b, int round) {
  const tsr_schedule *s = b->schedule;
  const host h = host_of(s);
  const team across = leaders(s);
  const run segment = tsr_run_segment(b);
  b->wide = round == tsr_ceil_log2(s->host_count);
  if (b->wide)
    spread(b, &h, &segment);
  else if (h.me == 0)
    tsr_tree_spread(b, &across, root_host(s), round, IN);
  if (round == 0 && s->me == s->root)
    tsr_round_copy(b, IN, segment.whole, OUT, segment.whole, segment.count, true);
}

const tsr_schedule_algorithm tsr_host_algorithms[] = {
    {TSR_ALL_REDUCE, TSR_ALGORITHM_HIERARCHICAL, INT32_MAX, reduce_rounds, reduce_hosts, all_hosts, NULL,
     reduce_roundings},
    {TSR_ALL_GATHER, TSR_ALGORITHM_HIERARCHICAL, INT32_MAX, hosts_and_one, gather_hosts, NULL, NULL, NULL},
    {TSR_REDUCE_SCATTER, TSR_ALGORITHM_HIERARCHICAL, INT32_MAX, hosts_and_one, reduce_scatter_hosts, NULL,
     leaders_blocks, reduce_scatter_roundings},
    {TSR_BROADCAST, TSR_ALGORITHM_HIERARCHICAL, INT32_MAX, levels_and_one, broadcast_hosts, NULL, NULL, NULL},
    {.emit = NULL},
};
