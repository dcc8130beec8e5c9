/* comm/schedule_facts.c: what planner and users are told of a collective, read off its schedule. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "comm/schedule_choice.h"

/* The first segment after `segment` that is not like it. */
static int64_t next_unlike(const tsr_schedule *s, int64_t segment) {
  if (segment + 1 >= s->segments) return s->segments;
  if (s->kind == TSR_ALL_REDUCE || s->kind == TSR_BROADCAST)
    return s->count % s->segment ? s->segments - 1 : s->segments;
  if (s->kind == TSR_ALL_TO_ALL) return segment + 1; /* other members' counts are not kept */
  int64_t next = s->segments;
  for (int i = 0; i < s->members; i++) {
    const int64_t full = (s->out_starts[i + 1] - s->out_starts[i]) / s->segment;
    const int64_t change = full > segment ? full : full + 1; /* the last bit of a block, or after it */
    if (change > segment && change < next) next = change;
  }
  return next;
}

/* ---- bytes ---- */

static int64_t *allocate(const tsr_collective_options *options, int schedules) {
  return tsr_malloc((size_t)schedules * tsr_schedule_memory_count(options) * sizeof(int64_t));
}

size_t tsr_collective_scratch_bytes(const tsr_collective_options *options, int index) {
  int64_t *memory = allocate(options, 1);
  tsr_schedule schedule;
  if (!memory) return SIZE_MAX; /* more than anybody has: whoever asks runs out of memory as well */
  tsr_schedule_init(&schedule, options, index, memory);
  tsr_schedule_measure(&schedule);
  free(memory);
  return (size_t)tsr_schedule_scratch_bytes(&schedule);
}

static void add_sent(void *to, int peer, bool sent, int64_t bytes) {
  (void)peer;
  if (sent) *(uint64_t *)to += (uint64_t)bytes;
}

uint64_t tsr_collective_sent_bytes(const tsr_collective_options *options, int index) {
  int64_t *memory = allocate(options, 1);
  tsr_schedule s;
  uint64_t total = 0;
  if (!memory) return UINT64_MAX;
  tsr_schedule_init(&s, options, index, memory);
  for (int64_t segment = 0, next; segment < s.segments; segment = next) {
    uint64_t sent = 0;
    next = next_unlike(&s, segment);
    for (int round = 0; round < s.rounds; round++)
      tsr_schedule_emit(&s, segment, round, true, NULL, add_sent, &sent);
    total += sent * (uint64_t)(next - segment);
  }
  free(memory);
  return total;
}

/* ---- error ---- */

double tsr_collective_wire_error(const tsr_collective_options *options) {
  int64_t *memory = allocate(options, 1);
  tsr_schedule s;
  if (!memory) return INFINITY;
  tsr_schedule_init(&s, options, 0, memory);
  const int roundings = s.algorithm->roundings ? s.algorithm->roundings(&s) : 1;
  free(memory);
  if (s.wire == TSR_F32 || s.members == 1) return 0;
  const double unit = s.wire == TSR_BF16 ? 0x1p-8 : 0x1p-11;
  return expm1(roundings * log1p(unit));
}

/* ---- seconds ---- */

/* Of many members, a few are looked at: rounds are alike for all but those at the edges. */
enum { SAMPLES_MAX = 8, ROUNDS_KEPT = 64 };

/* What a round costs the member that it costs most. */
typedef struct cost {
  double port, latency, combine; /* port: bytes through the busier direction of its link */
} cost;

/* Rounds of the segments begin .. end - 1, which are alike, as far as they were looked at. */
typedef struct kept {
  int64_t begin, end;
  int rounds;
  cost costs[ROUNDS_KEPT];
} kept;

typedef struct walk {
  const tsr_collective_options *options;
  const tsr_links *links;
  const tsr_schedule *schedules; /* of the sampled members */
  int samples;
  kept kept[2];
} walk;

typedef struct load {
  const walk *walk;
  int host; /* of the member */
  double sent, received, latency;
} load;

static void add_message(void *to, int peer, bool sent, int64_t bytes) {
  load *load = to;
  const tsr_links *links = load->walk->links;
  const bool near = tsr_choice_host(load->walk->options, peer) == load->host;
  const tsr_link *link = near ? &links->host : &links->network;
  *(sent ? &load->sent : &load->received) += (double)bytes / link->bandwidth;
  if (link->latency > load->latency) load->latency = link->latency;
}

static cost cost_of_round(const walk *w, int64_t segment, int round) {
  cost most = {0};
  double ended = 0;
  for (int i = 0; i < w->samples; i++) {
    const tsr_schedule *s = &w->schedules[i];
    load load = {.walk = w, .host = tsr_choice_host(w->options, s->me)};
    tsr_schedule_emit(s, segment, round, true, NULL, add_message, &load);
    const round_builder work = tsr_schedule_emit(s, segment, round, false, NULL, NULL, NULL);
    most.port = fmax(most.port, fmax(load.sent, load.received));
    ended = fmax(ended, fmax(load.sent, load.received) + load.latency);
    if (w->links->reduce_bandwidth > 0)
      most.combine = fmax(most.combine, (double)work.combined_bytes / w->links->reduce_bandwidth);
  }
  most.latency = ended - most.port;
  return most;
}

static cost cost_of(walk *w, int64_t segment, int round) {
  if (round >= ROUNDS_KEPT) return cost_of_round(w, segment, round);
  kept *k = w->kept;
  while (k < w->kept + 2 && (segment < k->begin || segment >= k->end)) k++;
  if (k == w->kept + 2) {
    k = &w->kept[segment % 2];
    k->begin = segment;
    k->end = next_unlike(w->schedules, segment);
    k->rounds = 0;
  }
  for (; k->rounds <= round; k->rounds++) k->costs[k->rounds] = cost_of_round(w, segment, k->rounds);
  return k->costs[round];
}

/* The time of a member: of itself and of its link. */
typedef struct moment {
  double now, port_free, arrived[2]; /* arrived: what was begun for each of two segments */
} moment;

static void begin(moment *m, int which, const cost *c) {
  m->port_free = fmax(m->port_free, m->now) + c->port;
  m->arrived[which] = m->port_free + c->latency;
}

static void finish(moment *m, int which, const cost *c) {
  m->now = fmax(m->now, m->arrived[which]) + c->combine;
}

/* One segment alone; its first round was begun if `begun`. */
static void pass_alone(walk *w, moment *m, int64_t segment, bool begun) {
  for (int round = 0; round < w->schedules->rounds; round++) {
    const cost c = cost_of(w, segment, round);
    if (round > 0 || !begun) begin(m, 0, &c);
    finish(m, 0, &c);
  }
}

/* Two segments in turn, as the units have it. */
static void pass_pair(walk *w, moment *m, int64_t segment) {
  const int rounds = w->schedules->rounds;
  for (int round = 0; round < rounds; round++) {
    const cost first = cost_of(w, segment, round), second = cost_of(w, segment + 1, round);
    if (round == 0 && segment == 0) begin(m, 0, &first);
    begin(m, 1, &second);
    finish(m, 0, &first);
    if (round + 1 < rounds || segment + 2 < w->schedules->segments) {
      const cost next = round + 1 < rounds ? cost_of(w, segment, round + 1) : cost_of(w, segment + 2, 0);
      begin(m, 0, &next);
    }
    finish(m, 1, &second);
  }
}

static void shift(moment *m, double seconds) {
  m->now += seconds;
  m->port_free += seconds;
  m->arrived[0] += seconds;
  m->arrived[1] += seconds;
}

/* Of many pairs that are alike, the second takes as long as those after it. */
static double pass_all(walk *w) {
  const int64_t segments = w->schedules->segments;
  moment m = {0};
  int64_t at = 0;
  while (at + 1 < segments) {
    const int64_t pairs = (next_unlike(w->schedules, at) - at) / 2;
    pass_pair(w, &m, at);
    at += 2;
    if (pairs < 4) continue;
    const double before = m.now;
    pass_pair(w, &m, at);
    shift(&m, (double)(pairs - 3) * (m.now - before));
    at += 2 * (pairs - 2);
  }
  if (at < segments) pass_alone(w, &m, at, at > 0);
  return m.now;
}

/* Everyone of a few; of many the first, the largest block's, and some in between, with their neighbours. The
 * first takes part in every round, and where neither blocks nor links differ, what others do takes as long.
 */
static int sample(const tsr_collective_options *options, int *members) {
  const int n = options->member_count;
  const bool blocks = options->kind == TSR_ALL_GATHER || options->kind == TSR_REDUCE_SCATTER;
  const bool alike = options->kind == TSR_ALL_REDUCE && !options->hosts;
  int largest = 0, edge = n - 2;
  if (n <= SAMPLES_MAX && !(alike && n > 3)) {
    for (int i = 0; i < n; i++) members[i] = i;
    return n;
  }
  if (alike) {
    members[0] = 0, members[1] = n / 2, members[2] = n - 1;
    return 3;
  }
  for (int i = 1; blocks && i < n; i++)
    if (options->counts[i] > options->counts[largest]) largest = i;
  for (int i = n - 2; options->hosts && i > 0; i--)
    if (tsr_choice_host(options, i) != tsr_choice_host(options, i + 1)) edge = i;
  const int chosen[SAMPLES_MAX] = {0, 1, n / 2, largest, (largest + 1) % n, edge, edge + 1, n - 1};
  for (int i = 0; i < SAMPLES_MAX; i++) members[i] = chosen[i];
  return SAMPLES_MAX;
}

double tsr_collective_seconds(const tsr_collective_options *options, const tsr_links *links) {
  if (options->member_count < 2) return 0;
  const size_t each = tsr_schedule_memory_count(options);
  const bool few = options->member_count <= SAMPLES_MAX;
  int64_t small[few ? SAMPLES_MAX * each : 1], *memory = few ? small : allocate(options, SAMPLES_MAX);
  tsr_schedule schedules[SAMPLES_MAX];
  int members[SAMPLES_MAX];
  walk w = {.options = options, .links = links, .schedules = schedules};
  if (!memory) return INFINITY;
  w.samples = sample(options, members);
  for (int i = 0; i < w.samples; i++)
    tsr_schedule_init(&schedules[i], options, members[i], memory + (size_t)i * each);
  const double seconds = pass_all(&w);
  if (!few) free(memory);
  return seconds;
}

tsr_algorithm tsr_collective_choose(const tsr_collective_options *options, const tsr_links *links) {
  tsr_collective_options tried = *options;
  tsr_algorithm best = TSR_ALGORITHM_AUTO;
  double least = INFINITY;
  for (int name = TSR_ALGORITHM_AUTO + 1; name < TSR_ALGORITHM_COUNT; name++) {
    tried.algorithm = (tsr_algorithm)name;
    if (tsr_choice_resolve(&tried)->name != tried.algorithm) continue; /* the kind does not have it */
    const double seconds = tsr_collective_seconds(&tried, links);
    if (seconds < least) least = seconds, best = tried.algorithm;
  }
  return best;
}
