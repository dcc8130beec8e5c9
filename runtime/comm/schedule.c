/* comm/schedule.c: what follows from the options, and the units of a schedule. */
#include "comm/schedule.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/schedule_choice.h"
#include "comm/schedule_round.h"

static const char *const kind_names[] = {
    [TSR_ALL_REDUCE] = "all-reduce", [TSR_ALL_GATHER] = "all-gather", [TSR_REDUCE_SCATTER] = "reduce-scatter",
    [TSR_BROADCAST] = "broadcast",   [TSR_ALL_TO_ALL] = "all-to-all",
};

const char *tsr_collective_kind_name(tsr_collective_kind kind) {
  return (size_t)kind < sizeof kind_names / sizeof *kind_names ? kind_names[kind] : "?";
}

int64_t tsr_schedule_element_bytes(const tsr_collective_options *options) {
  return (int64_t)(options->element_bytes ? options->element_bytes : tsr_dtype_bytes(options->dtype));
}

/* ---- what follows from the options ---- */

static bool has_one_count(tsr_collective_kind kind) {
  return kind == TSR_ALL_REDUCE || kind == TSR_BROADCAST;
}

size_t tsr_schedule_memory_count(const tsr_collective_options *options) {
  return 5 * (size_t)options->member_count + 3;
}

/* Where blocks begin; the counts lie `stride` apart. */
static void add_up(int64_t *starts, const int64_t *counts, int members, int64_t stride) {
  starts[0] = 0;
  for (int i = 0; i < members; i++) starts[i + 1] = starts[i] + counts[i * stride];
}

static void init_counts(tsr_schedule *s, const tsr_collective_options *options, int64_t *memory) {
  const int64_t n = s->members, *counts = options->counts;
  if (has_one_count(s->kind)) {
    s->count = counts[0];
    return;
  }
  const bool own_pairs = s->kind == TSR_ALL_TO_ALL;
  for (int64_t i = 0; i < (own_pairs ? n * n : n); i++)
    if (counts[i] > s->count) s->count = counts[i];
  int64_t *second = memory + n + 1;
  add_up(memory, own_pairs ? counts + s->me * n : counts, s->members, 1);
  if (own_pairs) add_up(second, counts + s->me, s->members, n);
  s->in_starts = memory;
  s->out_starts = own_pairs ? second : memory;
}

static int compare(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void init_hosts(tsr_schedule *s, const tsr_collective_options *options, int64_t *memory) {
  const int64_t n = s->members;
  int64_t *starts = memory, *by_host = starts + n + 1, *leaders = by_host + n, last = 0;
  for (int64_t i = 0; i < n; i++)
    by_host[i] = (int64_t)((uint64_t)(int64_t)tsr_choice_host(options, (int)i) << 32) | i;
  qsort(by_host, (size_t)n, sizeof *by_host, compare);
  for (int64_t at = 0; at < n; at++) {
    const int64_t host = by_host[at] >> 32, member = by_host[at] & INT32_MAX;
    if (at == 0 || host != last) {
      starts[s->host_count] = at;
      leaders[s->host_count++] = member;
    }
    last = host;
    if (member == s->me) s->my_host = s->host_count - 1;
    by_host[at] = member;
    int64_t *first = &by_host[starts[s->host_count - 1]];
    if (s->kind != TSR_BROADCAST || member != s->root) continue;
    /* The root leads its host; whom it displaces moves to where it was. */
    by_host[at] = *first;
    *first = leaders[s->host_count - 1] = member;
  }
  starts[s->host_count] = n;
  s->host_starts = starts;
  s->by_host = by_host;
  s->leaders = leaders;
}

/* How large data is cut. A message is long enough that its latency hardly counts, and short enough that what
 * was just combined is still in the cache when the next reads it. What only moves is not cut: it needs no
 * scratch. An even number of segments, as two travel together. */
enum { MESSAGE_BYTES = 1 << 18, SEGMENT_ALIGNMENT = 64 };

static void cut(tsr_schedule *s, int64_t message_bytes) {
  const bool combines = s->kind == TSR_ALL_REDUCE || s->kind == TSR_REDUCE_SCATTER;
  const int64_t parts = s->algorithm->parts ? s->algorithm->parts(s) : 1;
  const int64_t bytes = s->count / parts * s->element_bytes;
  s->segment = s->count;
  s->segments = 1;
  if (s->members == 1 || (!combines && s->wire == TSR_F32) || bytes < message_bytes / 4) return;
  const int64_t pairs = tsr_ceil_div(bytes, 2 * message_bytes);
  const int64_t alignment = SEGMENT_ALIGNMENT * parts;
  s->segment = tsr_ceil_div(tsr_ceil_div(s->count, 2 * pairs), alignment) * alignment;
  s->segments = tsr_ceil_div(s->count, s->segment);
}

void tsr_schedule_init(tsr_schedule *s, const tsr_collective_options *options, int index, int64_t *memory) {
  assert(index >= 0 && index < options->member_count);
  *s = (tsr_schedule){.algorithm = tsr_choice_resolve(options),
                      .kind = options->kind,
                      .reduction = options->reduction,
                      .dtype = options->dtype,
                      .wire = options->dtype == TSR_F32 && !options->element_bytes ? options->wire : TSR_F32,
                      .me = index,
                      .members = options->member_count,
                      .root = options->root,
                      .element_bytes = tsr_schedule_element_bytes(options)};
  s->wire_bytes = s->wire == TSR_F32 ? s->element_bytes : (int64_t)tsr_dtype_bytes(s->wire);
  init_counts(s, options, memory);
  if (s->algorithm->name == TSR_ALGORITHM_HIERARCHICAL) init_hosts(s, options, memory + 2 * (s->members + 1));
  cut(s, options->message_bytes ? options->message_bytes : MESSAGE_BYTES);
  s->rounds = s->algorithm->rounds(s);
  s->work_bytes = s->algorithm->work ? s->algorithm->work(s) * s->element_bytes : 0;
}

/* ---- rounds ---- */

round_builder tsr_schedule_emit(const tsr_schedule *s, int64_t segment, int round, bool posts,
                                tsr_action *actions, tsr_message_function *count, void *count_to) {
  round_builder b = {.schedule = s,
                     .actions = actions,
                     .posts = posts,
                     .segment = segment,
                     .first = segment * s->segment,
                     .area = segment % 2 * s->area_bytes,
                     .count = count,
                     .count_to = count_to};
  if (has_one_count(s->kind)) b.elements = s->count - b.first < s->segment ? s->count - b.first : s->segment;
  s->algorithm->emit(&b, round);
  return b;
}

static int larger(int a, int b) {
  return a > b ? a : b;
}

/* The first segment is the largest, in every way. */
void tsr_schedule_measure(tsr_schedule *s) {
  int posts = 0, works = 0, messages = 0;
  s->stage_bytes = 0;
  for (int round = 0; round < s->rounds; round++) {
    const round_builder post = tsr_schedule_emit(s, 0, round, true, NULL, NULL, NULL);
    const round_builder work = tsr_schedule_emit(s, 0, round, false, NULL, NULL, NULL);
    posts = larger(posts, post.action_count);
    works = larger(works, work.action_count);
    messages = larger(messages, post.messages);
    if (post.staged > s->stage_bytes) s->stage_bytes = post.staged;
  }
  const int waits = 4;
  s->actions_max = 2 * posts + works + waits;
  s->messages_max = 2 * messages;
  s->area_bytes = (s->work_bytes + SEGMENT_ALIGNMENT - 1) / SEGMENT_ALIGNMENT * SEGMENT_ALIGNMENT;
  s->work_bytes = s->area_bytes;
  s->area_bytes += s->stage_bytes;
}

int64_t tsr_schedule_scratch_bytes(const tsr_schedule *s) {
  return s->segments > 1 ? 2 * s->area_bytes : s->area_bytes;
}

/* ---- units ---- */

/* Which round of which segment an item is. */
typedef struct item {
  int64_t segment;
  int round;
} item;

static item item_at(const tsr_schedule *s, int64_t at) {
  const int64_t of_pair = 2 * (int64_t)s->rounds, pair = at / of_pair, within = at % of_pair;
  if (2 * pair + 1 == s->segments) return (item){2 * pair, (int)within};
  return (item){2 * pair + within % 2, (int)(within / 2)};
}

/* How many need not have ended, of the messages begun so far. */
static int wait_for_all_but(tsr_action *actions, int messages) {
  actions[0] = (tsr_action){.kind = TSR_ACTION_WAIT, .messages = messages};
  return 1;
}

static int post(const tsr_schedule *s, tsr_schedule_cursor *cursor, item item, tsr_action *actions) {
  const round_builder b = tsr_schedule_emit(s, item.segment, item.round, true, actions, NULL, NULL);
  cursor->posted = true;
  cursor->messages = b.messages;
  cursor->trailing = b.settles ? 0 : b.messages - b.receives;
  return b.action_count;
}

/* The work speaks of an item's messages by number: now as seen from the last that was begun. */
static int work(const tsr_schedule *s, const tsr_schedule_cursor *cursor, int ahead, item item,
                tsr_action *actions) {
  const round_builder b = tsr_schedule_emit(s, item.segment, item.round, false, actions, NULL, NULL);
  for (int i = 0; i < b.action_count; i++)
    if (actions[i].kind == TSR_ACTION_REDUCE || actions[i].kind == TSR_ACTION_WIDEN)
      actions[i].messages = cursor->messages - actions[i].messages + ahead;
  return b.action_count;
}

int tsr_schedule_next(const tsr_schedule *s, tsr_schedule_cursor *cursor, tsr_action *actions) {
  const int64_t items = s->segments * s->rounds;
  if (cursor->item == items) return 0;
  const item now = item_at(s, cursor->item);
  tsr_schedule_cursor next = {.item = cursor->item + 1};
  int count = 0;
  if (!cursor->posted) { /* what the segment's last round sent must not change before it has ended */
    count += wait_for_all_but(actions, 0);
    count += post(s, cursor, now, actions + count);
  }
  const item after = next.item < items ? item_at(s, next.item) : now;
  if (after.segment != now.segment) {
    count += wait_for_all_but(actions + count, cursor->messages);
    count += post(s, &next, after, actions + count);
  }
  count += wait_for_all_but(actions + count, cursor->trailing + next.messages);
  count += work(s, cursor, next.messages, now, actions + count);
  if (next.item == items) count += wait_for_all_but(actions + count, 0);
  assert(count <= s->actions_max);
  *cursor = next;
  return count;
}

static void note_peer(void *to, int peer, bool sent, int64_t bytes) {
  (void)sent, (void)bytes;
  ((bool *)to)[peer] = true;
}

void tsr_schedule_peers(const tsr_schedule *s, bool *flags) {
  for (int round = 0; round < s->rounds; round++)
    tsr_schedule_emit(s, 0, round, true, NULL, note_peer, flags);
}
