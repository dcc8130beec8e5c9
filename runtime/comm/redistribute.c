/* comm/redistribute.c: finds what one member sends, receives and keeps. redistribute_run.c moves it. */
#include <string.h>

#include "base/memory.h"
#include "comm/redistribute_inside.h"

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

bool tsr_rectangle_meet(const tsr_rectangle *a, const tsr_rectangle *b, tsr_rectangle *out) {
  out->row = larger(a->row, b->row);
  out->col = larger(a->col, b->col);
  out->rows = smaller(a->row + a->rows, b->row + b->rows) - out->row;
  out->cols = smaller(a->col + a->cols, b->col + b->cols) - out->col;
  return out->rows > 0 && out->cols > 0;
}

static int compare(int64_t a, int64_t b) {
  return (a > b) - (a < b);
}

static int by_place(const void *left, const void *right) {
  const tsr_owned *a = left, *b = right;
  int order = compare(a->at.row, b->at.row);
  if (!order) order = compare(a->at.col, b->at.col);
  if (!order) order = compare(a->at.rows, b->at.rows);
  if (!order) order = compare(a->at.cols, b->at.cols);
  if (!order) order = compare(a->member, b->member);
  return order ? order : compare(a->number, b->number);
}

void tsr_owned_sort(tsr_owned *list, int64_t count) {
  if (count > 1) qsort(list, (size_t)count, sizeof *list, by_place);
}

int64_t tsr_owned_equal(const tsr_owned *list, int64_t count, int64_t first) {
  int64_t end = first + 1;
  while (end < count && !memcmp(&list[end].at, &list[first].at, sizeof list->at)) end++;
  return end - first;
}

/* ---- who sends what to whom ---- */

/* Equal source rectangles: `count` owners, ascending, from `first` on. */
typedef struct group {
  int64_t first, count;
} group;

/* Those of a list that is sorted, and among them those that the member owns. */
typedef struct groups {
  group *all, *own;
  size_t count, own_count, capacity, own_capacity;
} groups;

/* The owner of that number; NULL if it is none. */
static const tsr_owned *find_owner(const tsr_owned *owners, int64_t count, int member) {
  int64_t low = 0, high = count;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (owners[middle].member < member)
      low = middle + 1;
    else
      high = middle;
  }
  return low < count && owners[low].member == member ? &owners[low] : NULL;
}

static bool find_groups(const tsr_redistribution_options *options, int member, groups *out) {
  for (int64_t s = 0, count; s < options->source_count; s += count) {
    const tsr_owned *first = &options->source[s];
    count = tsr_owned_equal(options->source, options->source_count, s);
    if (!TSR_GROW(out->all, out->count, out->capacity)) return false;
    out->all[out->count++] = (group){s, count};
    if (!find_owner(first, count, member)) continue;
    if (!TSR_GROW(out->own, out->own_count, out->own_capacity)) return false;
    out->own[out->own_count++] = (group){s, count};
  }
  return true;
}

/* The owner from whom a member takes it. */
static const tsr_owned *owner_for(const tsr_owned *owners, int64_t count, int member) {
  const tsr_owned *own = find_owner(owners, count, member);
  return own ? own : &owners[member % count];
}

static tsr_piece piece_of(const tsr_rectangle *meet, const tsr_owned *within, int distance, size_t order) {
  return (tsr_piece){.number = within->number,
                     .row = meet->row - within->at.row,
                     .col = meet->col - within->at.col,
                     .rows = meet->rows,
                     .cols = meet->cols,
                     .distance = distance,
                     .order = order};
}

static bool add_piece(tsr_flow *flow, const tsr_rectangle *meet, const tsr_owned *within, int distance) {
  if (!TSR_GROW(flow->pieces, flow->piece_count, flow->piece_capacity)) return false;
  flow->pieces[flow->piece_count] = piece_of(meet, within, distance, flow->piece_count);
  flow->piece_count++;
  return true;
}

static bool add_copy(tsr_redistribution *self, const tsr_rectangle *meet, const tsr_owned *from,
                     const tsr_owned *to) {
  if (!TSR_GROW(self->copies_from, self->copy_count, self->from_capacity) ||
      !TSR_GROW(self->copies_to, self->copy_count, self->to_capacity))
    return false;
  self->copies_from[self->copy_count] = piece_of(meet, from, 0, 0);
  self->copies_to[self->copy_count++] = piece_of(meet, to, 0, 0);
  return true;
}

/* One source rectangle's part of one target. False: no memory. */
static bool add_meeting(tsr_redistribution *self, const tsr_owned *owners, int64_t count,
                        const tsr_owned *target, int members) {
  tsr_rectangle meet;
  if (!tsr_rectangle_meet(&owners->at, &target->at, &meet)) return true;
  const tsr_owned *owner = owner_for(owners, count, target->member);
  int distance = (target->member - owner->member + members) % members;
  if (owner->member == self->member && target->member == self->member)
    return add_copy(self, &meet, owner, target);
  if (owner->member == self->member) return add_piece(&self->out, &meet, owner, distance);
  if (target->member == self->member) return add_piece(&self->in, &meet, target, distance);
  return true;
}

static bool find_in(tsr_redistribution *self, const tsr_redistribution_options *options, const group *list,
                    size_t count, const tsr_owned *target) {
  int members = tsr_group_member_count(self->group);
  for (size_t i = 0; i < count; i++) {
    const tsr_owned *owners = &options->source[list[i].first];
    if (owners->at.row >= target->at.row + target->at.rows) break; /* so are all that follow */
    if (!add_meeting(self, owners, list[i].count, target, members)) return false;
  }
  return true;
}

/* Both partners find their pieces in the same order: target after target, source after source. */
static bool find_pieces(tsr_redistribution *self, const tsr_redistribution_options *options) {
  groups of = {0};
  bool found = find_groups(options, self->member, &of);
  for (int64_t t = 0; t < options->target_count && found; t++) {
    const tsr_owned *target = &options->target[t];
    bool receives = target->member == self->member;
    found = find_in(self, options, receives ? of.all : of.own, receives ? of.count : of.own_count, target);
  }
  free(of.all);
  free(of.own);
  return found;
}

static int by_distance(const void *left, const void *right) {
  const tsr_piece *a = left, *b = right;
  int order = compare(a->distance, b->distance);
  return order ? order : compare((int64_t)a->order, (int64_t)b->order);
}

/* Makes streams of pieces, nearest partner first. `sense`: 1 = partners lie ahead, -1 = behind. */
static bool make_streams(const tsr_redistribution *self, tsr_flow *flow, int sense) {
  int members = tsr_group_member_count(self->group);
  size_t capacity = 0;
  if (flow->piece_count > 1) qsort(flow->pieces, flow->piece_count, sizeof *flow->pieces, by_distance);
  for (size_t i = 0; i < flow->piece_count; i++) {
    const tsr_piece *piece = &flow->pieces[i];
    if (!i || piece->distance != piece[-1].distance) {
      if (!TSR_GROW(flow->streams, flow->stream_count, capacity)) return false;
      int peer = (self->member + sense * piece->distance + members) % members;
      flow->streams[flow->stream_count++] = (tsr_stream){.peer = peer, .first = i};
    }
    tsr_stream *stream = &flow->streams[flow->stream_count - 1];
    stream->count++;
    stream->elements += piece->rows * piece->cols;
  }
  return true;
}

tsr_status tsr_redistribution_create(tsr_group *group, int member, const tsr_redistribution_options *options,
                                     tsr_redistribution **out, tsr_error *error) {
  tsr_redistribution *self = tsr_calloc(1, sizeof *self);
  *out = self;
  if (self) {
    self->group = group;
    self->member = member;
    self->column_major = options->column_major;
    self->element_bytes = (int64_t)options->element_bytes;
    self->message_elements = larger(1, options->message_bytes / self->element_bytes);
  }
  if (!self || !find_pieces(self, options) || !make_streams(self, &self->out, 1) ||
      !make_streams(self, &self->in, -1)) {
    tsr_redistribution_destroy(out);
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to redistribute %lld rectangles to %lld",
                    (long long)options->source_count, (long long)options->target_count);
  }
  for (size_t i = 0; i < self->out.stream_count; i++)
    self->sent_bytes += (uint64_t)(self->out.streams[i].elements * self->element_bytes);
  return TSR_OK;
}

static void finish_flow(tsr_flow *flow) {
  free(flow->streams);
  free(flow->pieces);
}

void tsr_redistribution_destroy(tsr_redistribution **redistribution) {
  if (!*redistribution) return;
  finish_flow(&(*redistribution)->out);
  finish_flow(&(*redistribution)->in);
  free((*redistribution)->copies_from);
  free((*redistribution)->copies_to);
  free(*redistribution);
  *redistribution = NULL;
}

uint64_t tsr_redistribution_sent_bytes(const tsr_redistribution *redistribution) {
  return redistribution->sent_bytes;
}

size_t tsr_redistribution_scratch_bytes(const tsr_redistribution *self) {
  return 2 * TSR_SLOTS * (size_t)(self->message_elements * self->element_bytes);
}
