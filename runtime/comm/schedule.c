/* comm/schedule.c: the algorithms. Every one of them forms sums in the order of the members, so the choice
 * between them changes time and memory, never a bit of the result. Messages of no bytes are left out: both
 * sides know the counts.
 *
 * A round posts its receives before its sends, and begins with the next neighbour, so that the members do not
 * all turn to member 0 first. */
#include "comm/schedule.h"

#include <assert.h>

typedef struct builder {
  tsr_schedule *schedule;
  const tsr_collective_options *options;
  int me, members;
  int64_t element_bytes;
} builder;

typedef void emit_function(const builder *b);

static const char *const kind_names[] = {
    [TSR_ALL_REDUCE] = "all-reduce",
    [TSR_ALL_GATHER] = "all-gather",
    [TSR_REDUCE_SCATTER] = "reduce-scatter",
    [TSR_BROADCAST] = "broadcast",
};

const char *tsr_collective_kind_name(tsr_collective_kind kind) {
  return (size_t)kind < sizeof kind_names / sizeof *kind_names ? kind_names[kind] : "?";
}

int64_t tsr_schedule_element_bytes(const tsr_collective_options *options) {
  return (int64_t)(options->element_bytes ? options->element_bytes : tsr_dtype_bytes(options->dtype));
}

/* ---- single actions ---- */

static void emit(const builder *b, tsr_action action) {
  tsr_schedule *schedule = b->schedule;
  if (schedule->actions) schedule->actions[schedule->action_count] = action;
  schedule->action_count++;
}

static void count_message(const builder *b) {
  tsr_schedule *schedule = b->schedule;
  schedule->message_count++;
  if (schedule->message_count > schedule->message_count_max)
    schedule->message_count_max = schedule->message_count;
}

static void receive(const builder *b, int peer, tsr_action_place target, int64_t offset, int64_t bytes) {
  if (!bytes) return;
  if (target == TSR_ACTION_SCRATCH && offset + bytes > b->schedule->scratch_bytes)
    b->schedule->scratch_bytes = offset + bytes;
  count_message(b);
  emit(b, (tsr_action){.kind = TSR_ACTION_RECEIVE,
                       .peer = peer,
                       .target = target,
                       .target_offset = offset,
                       .bytes = bytes});
}

static void send(const builder *b, int peer, tsr_action_place source, int64_t offset, int64_t bytes) {
  if (!bytes) return;
  b->schedule->sent_bytes += (uint64_t)bytes;
  count_message(b);
  emit(b,
       (tsr_action){
           .kind = TSR_ACTION_SEND, .peer = peer, .source = source, .source_offset = offset, .bytes = bytes});
}

static void end_round(const builder *b) {
  if (!b->schedule->message_count) return;
  b->schedule->message_count = 0;
  emit(b, (tsr_action){.kind = TSR_ACTION_WAIT});
}

static void copy_in_to_out(const builder *b, int64_t offset, int64_t bytes) {
  if (bytes)
    emit(b, (tsr_action){.kind = TSR_ACTION_COPY,
                         .source = TSR_ACTION_IN,
                         .target = TSR_ACTION_OUT,
                         .target_offset = offset,
                         .bytes = bytes});
}

/* Contributions of the others lie at the start of the scratch. */
static void reduce(const builder *b, int contributions, int own, int64_t own_offset, tsr_action_place target,
                   int64_t target_offset, int64_t bytes) {
  if (bytes)
    emit(b, (tsr_action){.kind = TSR_ACTION_REDUCE,
                         .source = TSR_ACTION_SCRATCH,
                         .target = target,
                         .target_offset = target_offset,
                         .contributions = contributions,
                         .own = own,
                         .own_offset = own_offset,
                         .bytes = bytes});
}

/* ---- who holds which part ---- */

/* An all-reduce is cut into parts of whole cache lines; the last ones may be smaller, or empty. */
static int64_t split_bytes(int64_t total, int parts, int part) {
  const int64_t line = 64;
  int64_t lines = total / line + (total % line > 0);
  int64_t size = (lines / parts + (lines % parts > 0)) * line;
  int64_t left = size && total / size >= part ? total - size * part : 0;
  return left < size ? left : size;
}

static int64_t part_bytes(const builder *b, int member) {
  if (b->options->kind == TSR_ALL_REDUCE)
    return split_bytes(b->options->counts[0] * b->element_bytes, b->members, member);
  return b->options->counts[member] * b->element_bytes;
}

static int64_t offset_of(const builder *b, int member) {
  int64_t offset = 0;
  for (int i = 0; i < member; i++) offset += part_bytes(b, i);
  return offset;
}

static int64_t whole_bytes(const builder *b) {
  if (b->options->kind == TSR_ALL_REDUCE || b->options->kind == TSR_BROADCAST)
    return b->options->counts[0] * b->element_bytes;
  return offset_of(b, b->members);
}

/* The k-th neighbour upwards. */
static int neighbour(const builder *b, int k) {
  return (int)(((int64_t)b->me + k) % b->members);
}

/* ---- algorithms ---- */

/* Everyone sends all to everyone and sums for itself: one round, the fewest messages in a row. */
static void all_reduce_direct(const builder *b) {
  int64_t bytes = whole_bytes(b);
  for (int k = b->members - 1; k > 0; k--) {
    int peer = neighbour(b, k);
    receive(b, peer, TSR_ACTION_SCRATCH, (peer < b->me ? peer : peer - 1) * bytes, bytes);
  }
  for (int k = 1; k < b->members; k++) send(b, neighbour(b, k), TSR_ACTION_IN, 0, bytes);
  end_round(b);
  reduce(b, b->members, b->me, 0, TSR_ACTION_OUT, 0, bytes);
}

/* Every member receives all contributions to its part, and sums them. */
static void scatter_sums(const builder *b, int64_t target_offset) {
  int64_t own_bytes = part_bytes(b, b->me), own_offset = offset_of(b, b->me);
  for (int k = b->members - 1; k > 0; k--) {
    int peer = neighbour(b, k);
    receive(b, peer, TSR_ACTION_SCRATCH, (peer < b->me ? peer : peer - 1) * own_bytes, own_bytes);
  }
  int64_t offset = own_offset + own_bytes;
  for (int k = 1; k < b->members; k++) {
    int peer = neighbour(b, k);
    if (peer == 0) offset = 0;
    send(b, peer, TSR_ACTION_IN, offset, part_bytes(b, peer));
    offset += part_bytes(b, peer);
  }
  end_round(b);
  reduce(b, b->members, b->me, own_offset, TSR_ACTION_OUT, target_offset, own_bytes);
}

/* Every member sends its part, at source_offset of source, to all others. */
static void gather_parts(const builder *b, tsr_action_place source, int64_t source_offset) {
  int64_t own_bytes = part_bytes(b, b->me), offset = offset_of(b, b->me) + own_bytes;
  for (int k = 1; k < b->members; k++) {
    int peer = neighbour(b, k);
    if (peer == 0) offset = 0;
    receive(b, peer, TSR_ACTION_OUT, offset, part_bytes(b, peer));
    offset += part_bytes(b, peer);
  }
  for (int k = b->members - 1; k > 0; k--) send(b, neighbour(b, k), source, source_offset, own_bytes);
  end_round(b);
}

static void all_reduce_scattered(const builder *b) {
  int64_t offset = offset_of(b, b->me);
  scatter_sums(b, offset);
  gather_parts(b, TSR_ACTION_OUT, offset);
}

static void all_gather_direct(const builder *b) {
  copy_in_to_out(b, offset_of(b, b->me), part_bytes(b, b->me));
  gather_parts(b, TSR_ACTION_IN, 0);
}

static void reduce_scatter_direct(const builder *b) {
  scatter_sums(b, 0);
}

/* Binomial tree over (member - root) mod members: v receives from v without its lowest bit, and sends to v
 * plus each smaller bit. The root has the data in OUT already, or sends from `source`. */
static void broadcast_tree_from(const builder *b, int root, tsr_action_place source) {
  int v = (b->me - root + b->members) % b->members, bit = 1;
  while (bit < b->members && !(v & bit)) bit *= 2;
  if (v) {
    receive(b, (v - bit + root) % b->members, TSR_ACTION_OUT, 0, whole_bytes(b));
    end_round(b);
  }
  for (bit /= 2; bit > 0; bit /= 2)
    if (v + bit < b->members)
      send(b, (v + bit + root) % b->members, v ? TSR_ACTION_OUT : source, 0, whole_bytes(b));
  end_round(b);
}

static void broadcast_tree(const builder *b) {
  if (b->me == b->options->root) copy_in_to_out(b, 0, whole_bytes(b));
  broadcast_tree_from(b, b->options->root, TSR_ACTION_IN);
}

static void broadcast_direct(const builder *b) {
  if (b->me == b->options->root) {
    copy_in_to_out(b, 0, whole_bytes(b));
    for (int k = 1; k < b->members; k++) send(b, neighbour(b, k), TSR_ACTION_IN, 0, whole_bytes(b));
  } else {
    receive(b, b->options->root, TSR_ACTION_OUT, 0, whole_bytes(b));
  }
  end_round(b);
}

/* Many members: everything passes along a chain, each adding its own, so that schedules stay short. The last
 * member then holds the sum, in target. */
static void chain_sums(const builder *b, tsr_action_place target) {
  int64_t bytes = whole_bytes(b);
  if (b->me > 0) {
    receive(b, b->me - 1, TSR_ACTION_SCRATCH, 0, bytes);
    end_round(b);
    reduce(b, 2, 1, 0, target, 0, bytes);
  }
  if (b->me < b->members - 1) send(b, b->me + 1, b->me ? target : TSR_ACTION_IN, 0, bytes);
  end_round(b);
}

static void all_reduce_chain(const builder *b) {
  chain_sums(b, TSR_ACTION_OUT);
  broadcast_tree_from(b, b->members - 1, TSR_ACTION_OUT);
}

static void reduce_scatter_chain(const builder *b) {
  int last = b->members - 1;
  chain_sums(b, TSR_ACTION_SCRATCH);
  int64_t offset = 0;
  for (int i = 0; b->me == last && i < last; offset += part_bytes(b, i++))
    send(b, i, TSR_ACTION_SCRATCH, offset, part_bytes(b, i));
  if (b->me != last) receive(b, last, TSR_ACTION_OUT, 0, part_bytes(b, b->me));
  end_round(b);
  if (b->me == last && part_bytes(b, last))
    emit(b, (tsr_action){.kind = TSR_ACTION_COPY,
                         .source = TSR_ACTION_SCRATCH,
                         .source_offset = offset,
                         .target = TSR_ACTION_OUT,
                         .bytes = part_bytes(b, last)});
}

/* Member 0 collects, then a tree spreads the whole. */
static void all_gather_tree(const builder *b) {
  if (b->me == 0) {
    copy_in_to_out(b, 0, part_bytes(b, 0));
    int64_t offset = part_bytes(b, 0);
    for (int i = 1; i < b->members; offset += part_bytes(b, i++))
      receive(b, i, TSR_ACTION_OUT, offset, part_bytes(b, i));
  } else {
    send(b, 0, TSR_ACTION_IN, 0, part_bytes(b, b->me));
  }
  end_round(b);
  broadcast_tree_from(b, 0, TSR_ACTION_OUT);
}

/* ---- which one ---- */

/* The first row that fits. Two members always exchange directly: the scattered form would send as many bytes
 * in twice the rounds. For more it sends 2 / n of the bytes, which pays where bandwidth outweighs latency.
 * The direct forms keep a request per member, which bounds how many may use them. */
enum { DIRECT_MEMBERS_MAX = 256, DIRECT_BYTES_MAX = 16384, FLAT_BROADCAST_MEMBERS_MAX = 8 };
static const struct {
  tsr_collective_kind kind;
  int members_max;
  int64_t bytes_max;
  emit_function *emit;
} algorithms[] = {
    {TSR_ALL_REDUCE, 2, INT64_MAX, all_reduce_direct},
    {TSR_ALL_REDUCE, DIRECT_MEMBERS_MAX, DIRECT_BYTES_MAX, all_reduce_direct},
    {TSR_ALL_REDUCE, DIRECT_MEMBERS_MAX, INT64_MAX, all_reduce_scattered},
    {TSR_ALL_REDUCE, INT32_MAX, INT64_MAX, all_reduce_chain},
    {TSR_ALL_GATHER, DIRECT_MEMBERS_MAX, INT64_MAX, all_gather_direct},
    {TSR_ALL_GATHER, INT32_MAX, INT64_MAX, all_gather_tree},
    {TSR_REDUCE_SCATTER, DIRECT_MEMBERS_MAX, INT64_MAX, reduce_scatter_direct},
    {TSR_REDUCE_SCATTER, INT32_MAX, INT64_MAX, reduce_scatter_chain},
    {TSR_BROADCAST, FLAT_BROADCAST_MEMBERS_MAX, INT64_MAX, broadcast_direct},
    {TSR_BROADCAST, INT32_MAX, INT64_MAX, broadcast_tree},
};

static emit_function *choose(const builder *b) {
  size_t i = 0;
  int64_t bytes = whole_bytes(b);
  while (algorithms[i].kind != b->options->kind || b->members > algorithms[i].members_max ||
         bytes > algorithms[i].bytes_max)
    i++;
  return algorithms[i].emit;
}

void tsr_schedule_build(tsr_schedule *schedule, const tsr_collective_options *options, int index) {
  assert(index >= 0 && index < options->member_count);
  *schedule = (tsr_schedule){.actions = schedule->actions};
  builder b = {.schedule = schedule,
               .options = options,
               .me = index,
               .members = options->member_count,
               .element_bytes = tsr_schedule_element_bytes(options)};
  if (b.members == 1)
    copy_in_to_out(&b, 0, whole_bytes(&b));
  else
    choose (&b)(&b);
}

size_t tsr_collective_scratch_bytes(const tsr_collective_options *options, int index) {
  tsr_schedule schedule = {0};
  tsr_schedule_build(&schedule, options, index);
  return (size_t)schedule.scratch_bytes;
}

uint64_t tsr_collective_sent_bytes(const tsr_collective_options *options, int index) {
  tsr_schedule schedule = {0};
  tsr_schedule_build(&schedule, options, index);
  return schedule.sent_bytes;
}
