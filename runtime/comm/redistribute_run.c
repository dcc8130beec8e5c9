/* comm/redistribute_run.c: moves what redistribute.c has found: packs, sends, receives, unpacks, copies. */
#include <string.h>

#include "comm/redistribute_inside.h"

/* Redistributions of one group follow one another on every member, and a pair's messages keep their order:
 * one tag is enough. */
enum { TILE = 32 };

/* ---- memory ---- */

/* Lines of elements: neighbours `inner` apart, lines `outer`; in elements. */
typedef struct lines {
  char *data;
  int64_t outer, inner;
} lines;

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static void copy_element(char *to, const char *from, int64_t bytes) {
  memcpy(to, from, bytes == 8 ? 8 : 4);
}

/* Rows of one side are columns of the other: by tiles, so that each cache line is met again soon. */
static void copy_tiles(lines to, lines from, int64_t count, int64_t length, int64_t bytes) {
  for (int64_t i0 = 0; i0 < count; i0 += TILE)
    for (int64_t j0 = 0; j0 < length; j0 += TILE)
      for (int64_t i = i0; i < smaller(i0 + TILE, count); i++)
        for (int64_t j = j0; j < smaller(j0 + TILE, length); j++)
          copy_element(to.data + (i * to.outer + j * to.inner) * bytes,
                       from.data + (i * from.outer + j * from.inner) * bytes, bytes);
}

static void copy_lines(lines to, lines from, int64_t count, int64_t length, int64_t bytes) {
  if (to.outer == 1 && from.outer == 1 && to.inner != 1) {
    copy_lines((lines){to.data, to.inner, 1}, (lines){from.data, from.inner, 1}, length, count, bytes);
    return;
  }
  if (to.inner != 1 || from.inner != 1) {
    copy_tiles(to, from, count, length, bytes);
    return;
  }
  for (int64_t i = 0; i < count; i++)
    memcpy(to.data + i * to.outer * bytes, from.data + i * from.outer * bytes, (size_t)(length * bytes));
}

/* A piece in its view, as lines in the order in which elements travel; their length in *length. */
static lines lines_of(const tsr_redistribution *self, const tsr_view *views, const tsr_piece *piece,
                      int64_t *length) {
  const tsr_view *view = &views[piece->number];
  char *data =
      view->data + (piece->row * view->row_stride + piece->col * view->col_stride) * self->element_bytes;
  *length = self->column_major ? piece->rows : piece->cols;
  return self->column_major ? (lines){data, view->col_stride, view->row_stride}
                            : (lines){data, view->row_stride, view->col_stride};
}

/* ---- streams ---- */

/* Copies elements [begin, begin + count) of a piece between its view and dense memory: the rest of a line,
 * whole lines, the beginning of a line. */
static void copy_part(const tsr_redistribution *self, const tsr_view *views, const tsr_piece *piece,
                      int64_t begin, int64_t count, char *dense, bool pack) {
  int64_t length, bytes = self->element_bytes;
  lines at = lines_of(self, views, piece, &length);
  while (count) {
    int64_t line = begin / length, within = begin % length;
    int64_t whole = within || count < length ? 1 : count / length;
    int64_t each = within || count < length ? smaller(length - within, count) : length;
    lines own = {at.data + (line * at.outer + within * at.inner) * bytes, at.outer, at.inner};
    lines other = {dense, each, 1};
    copy_lines(pack ? other : own, pack ? own : other, whole, each, bytes);
    begin += whole * each;
    count -= whole * each;
    dense += whole * each * bytes;
  }
}

/* Advances over `elements`, and copies them if dense is not NULL. */
static void walk(const tsr_redistribution *self, const tsr_flow *flow, const tsr_view *views,
                 tsr_cursor *cursor, int64_t elements, char *dense, bool pack) {
  cursor->left -= elements;
  while (elements) {
    const tsr_piece *piece = &flow->pieces[cursor->piece];
    int64_t count = smaller(elements, piece->rows * piece->cols - cursor->element);
    if (dense) {
      copy_part(self, views, piece, cursor->element, count, dense, pack);
      dense += count * self->element_bytes;
    }
    cursor->element += count;
    elements -= count;
    if (cursor->element == piece->rows * piece->cols) cursor->piece++, cursor->element = 0;
  }
  if (cursor->left || ++cursor->stream == flow->stream_count) return;
  cursor->left = flow->streams[cursor->stream].elements;
}

/* Where the next elements lie, if that is one run of memory; else NULL. */
static char *one_run(const tsr_redistribution *self, const tsr_flow *flow, const tsr_view *views,
                     const tsr_cursor *cursor, int64_t elements) {
  const tsr_piece *piece = &flow->pieces[cursor->piece];
  int64_t length, begin = cursor->element;
  if (begin + elements > piece->rows * piece->cols) return NULL;
  lines at = lines_of(self, views, piece, &length);
  bool one_line = begin % length + elements <= length;
  if ((at.inner != 1 && length > 1) || (!one_line && at.outer != length)) return NULL;
  return at.data + (begin / length * at.outer + begin % length * at.inner) * self->element_bytes;
}

static void begin_flow(tsr_flow *flow) {
  flow->cursor = (tsr_cursor){.left = flow->stream_count ? flow->streams[0].elements : 0};
  flow->oldest = flow->in_flight = 0;
}

static char *slot_memory(const tsr_redistribution *self, const tsr_flow *flow, int slot) {
  int index = slot + (flow == &self->in ? TSR_SLOTS : 0);
  return self->memory.scratch + index * self->message_elements * self->element_bytes;
}

static bool sends(const tsr_redistribution *self, const tsr_flow *flow) {
  return flow == &self->out;
}

static tsr_status begin_message(tsr_redistribution *self, tsr_flow *flow, tsr_error *error) {
  tsr_transport *transport = self->group->transport;
  int index = (flow->oldest + flow->in_flight) % TSR_SLOTS;
  tsr_slot *slot = &flow->slots[index];
  const tsr_view *views = sends(self, flow) ? self->memory.source : self->memory.target;
  int peer = flow->streams[flow->cursor.stream].peer;
  slot->begin = flow->cursor;
  slot->elements = smaller(flow->cursor.left, self->message_elements);
  int64_t bytes = slot->elements * self->element_bytes;
  char *data = one_run(self, flow, views, &flow->cursor, slot->elements);
  slot->direct = data != NULL;
  if (!data) data = slot_memory(self, flow, index);
  walk(self, flow, views, &flow->cursor, slot->elements, sends(self, flow) && !slot->direct ? data : NULL,
       true);
  TSR_RETURN_IF_FAILED(sends(self, flow)
                           ? transport->ops->isend(transport, self->member, peer, TSR_TAG_REDISTRIBUTION,
                                                   data, bytes, &slot->request, error)
                           : transport->ops->irecv(transport, self->member, peer, TSR_TAG_REDISTRIBUTION,
                                                   data, bytes, &slot->request, error));
  flow->in_flight++;
  return TSR_OK;
}

/* Ends the oldest message if it has arrived. */
static tsr_status end_message(tsr_redistribution *self, tsr_flow *flow, bool *ended, tsr_error *error) {
  tsr_transport *transport = self->group->transport;
  tsr_slot *slot = &flow->slots[flow->oldest];
  TSR_RETURN_IF_FAILED(transport->ops->test(transport, &slot->request, ended, error));
  if (!*ended) return TSR_OK;
  tsr_cursor cursor = slot->begin;
  if (!sends(self, flow) && !slot->direct)
    walk(self, flow, self->memory.target, &cursor, slot->elements, slot_memory(self, flow, flow->oldest),
         false);
  flow->oldest = (flow->oldest + 1) % TSR_SLOTS;
  flow->in_flight--;
  return TSR_OK;
}

/* Goes on as far as it can without waiting. */
static tsr_status progress_flow(tsr_redistribution *self, tsr_flow *flow, bool *moved, tsr_error *error) {
  bool ended = true;
  while (ended && (flow->in_flight || flow->cursor.stream < flow->stream_count)) {
    while (flow->in_flight < TSR_SLOTS && flow->cursor.stream < flow->stream_count)
      TSR_RETURN_IF_FAILED(begin_message(self, flow, error));
    TSR_RETURN_IF_FAILED(end_message(self, flow, &ended, error));
    *moved = *moved || ended;
  }
  return TSR_OK;
}

static bool is_done(const tsr_redistribution *self) {
  return !self->out.in_flight && !self->in.in_flight && self->out.cursor.stream == self->out.stream_count &&
         self->in.cursor.stream == self->in.stream_count;
}

static void copy_own(const tsr_redistribution *self) {
  for (size_t i = 0; i < self->copy_count; i++) {
    int64_t length;
    const tsr_piece *piece = &self->copies_from[i];
    lines from = lines_of(self, self->memory.source, piece, &length);
    lines to = lines_of(self, self->memory.target, &self->copies_to[i], &length);
    if (from.data == to.data) continue;
    copy_lines(to, from, piece->rows * piece->cols / length, length, self->element_bytes);
  }
}

static void cancel_flow(tsr_redistribution *self, tsr_flow *flow) {
  tsr_transport *transport = self->group->transport;
  for (int i = 0; i < TSR_SLOTS; i++) transport->ops->cancel(transport, &flow->slots[i].request);
}

static tsr_status progress_all(tsr_redistribution *const *all, int count, bool *moved, bool *done,
                               tsr_error *error) {
  *moved = false;
  *done = true;
  for (int i = 0; i < count; i++) {
    TSR_RETURN_IF_FAILED(progress_flow(all[i], &all[i]->in, moved, error));
    TSR_RETURN_IF_FAILED(progress_flow(all[i], &all[i]->out, moved, error));
    *done = *done && is_done(all[i]);
  }
  return TSR_OK;
}

tsr_status tsr_redistribute(tsr_group *group, tsr_redistribution *const *redistributions,
                            const tsr_redistribution_memory *memory, int count, tsr_error *error) {
  tsr_status status = TSR_OK;
  bool moved, done;
  TSR_RETURN_IF_FAILED(tsr_group_check(group, error));
  for (int i = 0; i < count; i++) {
    redistributions[i]->memory = memory[i];
    begin_flow(&redistributions[i]->out);
    begin_flow(&redistributions[i]->in);
  }
  /* What must travel first: the copies then pass the time in which it does. */
  TSR_TRY(progress_all(redistributions, count, &moved, &done, error));
  for (int i = 0; i < count; i++) copy_own(redistributions[i]);
  for (;;) {
    TSR_TRY(progress_all(redistributions, count, &moved, &done, error));
    if (done) return TSR_OK;
    TSR_TRY(moved ? tsr_group_beat(group, error) : tsr_group_wait_turn(group, error));
  }
done:
  for (int i = 0; i < count; i++) {
    cancel_flow(redistributions[i], &redistributions[i]->out);
    cancel_flow(redistributions[i], &redistributions[i]->in);
  }
  tsr_group_abandon(group);
  return status;
}
