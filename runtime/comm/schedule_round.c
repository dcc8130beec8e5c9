/* comm/schedule_round.c: turns what algorithms say of a round into actions. */
#include "comm/schedule_round.h"

#include <assert.h>

enum { PART_ELEMENTS = 16, STAGE_ALIGNMENT = 64 };

/* ---- which elements ---- */

int tsr_team_peer(const team *team, int position) {
  return team->members ? (int)team->members[position] : position;
}

team tsr_everyone(const round_builder *b) {
  return (team){.size = b->schedule->members, .me = b->schedule->me};
}

run tsr_run_segment(const round_builder *b) {
  return (run){.whole = b->first, .own = b->first, .count = b->elements};
}

/* Parts begin at whole cache lines, as far as there are any. */
static int64_t part_start(int64_t elements, int64_t part, int64_t parts) {
  if (part == parts) return elements;
  int64_t even = elements / parts * part + elements % parts * part / parts;
  int64_t start = (even + PART_ELEMENTS / 2) / PART_ELEMENTS * PART_ELEMENTS;
  return start < elements ? start : elements;
}

run tsr_run_part(const round_builder *b, int part, int parts) {
  int64_t start = part_start(b->elements, part, parts);
  return (run){.whole = b->first + start,
               .own = b->first + start,
               .count = part_start(b->elements, part + 1, parts) - start};
}

int64_t tsr_run_clip(const round_builder *b, int64_t count) {
  int64_t left = count - b->segment * b->schedule->segment;
  return left < 0 ? 0 : left < b->schedule->segment ? left : b->schedule->segment;
}

run tsr_run_block(const round_builder *b, int member) {
  const tsr_schedule *s = b->schedule;
  const int64_t *starts = s->kind == TSR_REDUCE_SCATTER ? s->in_starts : s->out_starts;
  int64_t skipped = b->segment * s->segment;
  return (run){.whole = starts[member] + skipped,
               .own = skipped,
               .work = s->segments == 1 ? starts[member] : member * s->segment,
               .count = tsr_run_clip(b, starts[member + 1] - starts[member])};
}

bool tsr_runs_next(const round_builder *b, runs *runs, run *out) {
  *out = (run){0};
  while (runs->at < runs->end) {
    int64_t member = runs->list ? runs->list[runs->at] : runs->at;
    run next = tsr_run_block(b, (int)member);
    if (out->count && (b->schedule->segments > 1 || out->whole + out->count != next.whole)) break;
    if (out->count)
      out->count += next.count;
    else
      *out = next;
    runs->at++;
  }
  return out->count > 0;
}

/* ---- actions ---- */

static tsr_action *emit(round_builder *b, tsr_action_kind kind, int64_t bytes) {
  tsr_action *action = b->actions ? &b->actions[b->action_count] : &b->last;
  b->action_count++;
  *action = (tsr_action){.kind = kind, .bytes = bytes};
  return action;
}

/* Where an element lies. */
static tsr_action_place locate(const round_builder *b, place place, int64_t element, int64_t *offset) {
  *offset = element * b->schedule->element_bytes;
  if (place == WORK) *offset += b->area;
  return place == IN ? TSR_ACTION_IN : place == OUT ? TSR_ACTION_OUT : TSR_ACTION_SCRATCH;
}

static bool narrows(const round_builder *b) {
  return b->schedule->wire != TSR_F32 && !b->wide;
}

static int64_t message_bytes(const round_builder *b, int64_t count) {
  return count * (narrows(b) ? b->schedule->wire_bytes : b->schedule->element_bytes);
}

static int64_t stage(round_builder *b, int64_t bytes) {
  int64_t offset = b->area + b->schedule->work_bytes + b->staged;
  b->staged += (bytes + STAGE_ALIGNMENT - 1) / STAGE_ALIGNMENT * STAGE_ALIGNMENT;
  return offset;
}

static void count_message(round_builder *b, int peer, bool sent, int64_t bytes) {
  b->messages++;
  if (!sent) b->receives++;
  assert(sent || b->receives == b->messages); /* receives come first */
  if (b->count) b->count(b->count_to, peer, sent, bytes);
}

static tsr_action *receive(round_builder *b, int peer, int64_t bytes) {
  tsr_action *action = emit(b, TSR_ACTION_RECEIVE, bytes);
  action->peer = peer;
  count_message(b, peer, false, bytes);
  return action;
}

static void receive_staged(round_builder *b, int peer, int64_t count, bool viewed) {
  int64_t bytes = message_bytes(b, count), offset = stage(b, bytes);
  if (!b->posts) {
    b->receives++;
    return;
  }
  tsr_action *action = receive(b, peer, bytes);
  action->target = TSR_ACTION_SCRATCH;
  action->target_offset = offset;
  action->viewed = viewed;
}

void tsr_round_receive(round_builder *b, int peer, place target, int64_t offset, int64_t count) {
  if (!count) return;
  if (narrows(b)) {
    receive_staged(b, peer, count, true);
    if (b->posts) return;
    tsr_action *action = emit(b, TSR_ACTION_WIDEN, count * b->schedule->element_bytes);
    action->target = locate(b, target, offset, &action->target_offset);
    action->messages = b->receives - 1;
  } else if (!b->posts) {
    b->receives++;
  } else {
    tsr_action *action = receive(b, peer, message_bytes(b, count));
    action->target = locate(b, target, offset, &action->target_offset);
  }
}

void tsr_round_send(round_builder *b, int peer, place source, int64_t offset, int64_t count) {
  if (!count || !b->posts) return;
  int64_t bytes = message_bytes(b, count), at;
  tsr_action_place from = locate(b, source, offset, &at);
  if (narrows(b)) {
    tsr_action *narrow = emit(b, TSR_ACTION_NARROW, count * b->schedule->element_bytes);
    narrow->source = from;
    narrow->source_offset = at;
    narrow->target = from = TSR_ACTION_SCRATCH;
    narrow->target_offset = at = stage(b, bytes);
  }
  tsr_action *action = emit(b, TSR_ACTION_SEND, bytes);
  action->peer = peer;
  action->source = from;
  action->source_offset = at;
  count_message(b, peer, true, bytes);
}

void tsr_round_contribution(round_builder *b, int peer, int64_t count) {
  if (count) receive_staged(b, peer, count, !b->settles);
}

static void reduce(round_builder *b, int contributions, int own, place source, int64_t source_offset,
                   place target, int64_t target_offset, int64_t count, bool rounded) {
  if (!count || b->posts) return;
  int64_t bytes = count * b->schedule->element_bytes;
  tsr_action *action = emit(b, TSR_ACTION_REDUCE, bytes);
  action->contributions = contributions;
  action->own = own;
  action->rounded = rounded;
  action->source = locate(b, source, source_offset, &action->source_offset);
  action->target = locate(b, target, target_offset, &action->target_offset);
  action->messages = b->receives - (contributions - 1);
  action->narrow = narrows(b);
  b->combined_bytes += (contributions - 1) * bytes;
}

void tsr_round_reduce(round_builder *b, int contributions, int own, place source, int64_t source_offset,
                      place target, int64_t target_offset, int64_t count) {
  reduce(b, contributions, own, source, source_offset, target, target_offset, count, false);
}

void tsr_round_reduce_rounded(round_builder *b, int contributions, int own, place source,
                              int64_t source_offset, place target, int64_t target_offset, int64_t count) {
  reduce(b, contributions, own, source, source_offset, target, target_offset, count, narrows(b));
}

void tsr_round_copy(round_builder *b, place source, int64_t source_offset, place target,
                    int64_t target_offset, int64_t count, bool rounded) {
  if (!count || b->posts) return;
  rounded = rounded && b->schedule->wire != TSR_F32;
  tsr_action *action =
      emit(b, rounded ? TSR_ACTION_ROUND : TSR_ACTION_COPY, count * b->schedule->element_bytes);
  action->source = locate(b, source, source_offset, &action->source_offset);
  action->target = locate(b, target, target_offset, &action->target_offset);
}
