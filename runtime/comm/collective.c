/* comm/collective.c: makes a collective from its schedule and runs it: a small engine that begins messages,
 * returns while those that it needs are in flight, and does the local work in between. */
#include "comm/collective.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "comm/reduce.h"
#include "comm/schedule.h"

/* Whom messages are exchanged with. */
typedef struct peer {
  int index, member; /* within those that take part; in the group */
  int tag;
} peer;

/* A message in flight, or one that was received and is still wanted. */
typedef struct message {
  tsr_request request;
  const void *data; /* where what was received lies, if it was not viewed */
  bool viewed, ended;
} message;

struct tsr_collective {
  tsr_group *group;
  int member;
  tsr_schedule schedule;
  int64_t *memory; /* of the schedule */
  peer *peers;     /* by ascending index */
  int peer_count;

  bool running;
  char *places[3]; /* by tsr_action_place; what IN points to is only read */
  tsr_schedule_cursor cursor;
  tsr_action *actions; /* of one unit */
  int action_count, position;
  message *messages;    /* number i of those begun is at i modulo schedule.messages_max */
  int64_t begun, ended; /* the first `ended` of them have ended */
  const void **sources; /* of a reduction */
};

/* ---- making one ---- */

static tsr_status check_members(const tsr_group *group, const tsr_collective_options *options,
                                tsr_error *error) {
  int limit = tsr_group_member_count(group);
  if (options->member_count < 1 || options->member_count > limit)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%d members take part: give 1 to %d, the group's",
                    options->member_count, limit);
  if (!options->members && options->member_count != limit)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%d of %d members take part but members is NULL: list who does", options->member_count,
                    limit);
  for (int i = 0; options->members && i < options->member_count; i++) {
    int member = options->members[i];
    if (member < 0 || member >= limit || (i && member <= options->members[i - 1]))
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                      "members[%d] is %d: give indices below %d in ascending order", i, member, limit);
  }
  return TSR_OK;
}

static tsr_status check_element(const tsr_collective_options *options, tsr_error *error) {
  bool reduces = options->kind == TSR_ALL_REDUCE || options->kind == TSR_REDUCE_SCATTER;
  if (options->wire != TSR_F32 && options->wire != TSR_F16 && options->wire != TSR_BF16)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s cannot be the wire's type: use f32, f16 or bf16",
                    tsr_dtype_name(options->wire));
  if (!reduces && (options->element_bytes || tsr_dtype_bytes(options->dtype))) return TSR_OK;
  if (!reduces || !tsr_reduce_supports(options->dtype))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "dtype %s cannot be reduced: use f32, f64, f16 or bf16", tsr_dtype_name(options->dtype));
  if (options->element_bytes && options->element_bytes != tsr_dtype_bytes(options->dtype))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "element_bytes is %zu but %s takes %zu: set 0 for a reduction", options->element_bytes,
                    tsr_dtype_name(options->dtype), tsr_dtype_bytes(options->dtype));
  if (options->reduction != TSR_SUM && options->reduction != TSR_MAX)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "reduction %d is neither TSR_SUM nor TSR_MAX",
                    (int)options->reduction);
  return TSR_OK;
}

static int64_t count_of_counts(const tsr_collective_options *options) {
  const int64_t n = options->member_count;
  if (options->kind == TSR_ALL_REDUCE || options->kind == TSR_BROADCAST) return 1;
  return options->kind == TSR_ALL_TO_ALL ? n * n : n;
}

/* All contributions together, what the scratch may have to hold, are counted in 64 bits. */
static tsr_status check_counts(const tsr_collective_options *options, tsr_error *error) {
  int64_t total = 0, bytes, all;
  if (!options->counts) return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "counts is NULL");
  for (int64_t i = 0; i < count_of_counts(options); i++)
    if (options->counts[i] < 0 || __builtin_add_overflow(total, options->counts[i], &total))
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                      "counts[%lld] is %lld: counts are 0 to 2^63 - 1 together", (long long)i,
                      (long long)options->counts[i]);
  if (!tsr_multiply_fits(total, tsr_schedule_element_bytes(options), &bytes) ||
      !tsr_multiply_fits(bytes, 2 * (int64_t)options->member_count, &all))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%lld elements of %lld bytes from %d members do not fit 62 bits of bytes",
                    (long long)total, (long long)tsr_schedule_element_bytes(options), options->member_count);
  if (options->kind == TSR_BROADCAST && (options->root < 0 || options->root >= options->member_count))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "root is %d: give an index below %d", options->root,
                    options->member_count);
  return TSR_OK;
}

/* *index = the member's place among those that take part. */
static tsr_status find_index(const tsr_collective_options *options, int member, int *index,
                             tsr_error *error) {
  int i = options->members ? 0 : member;
  while (options->members && i < options->member_count && options->members[i] != member) i++;
  if (i >= options->member_count)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "member %d is not among the %d that take part", member,
                    options->member_count);
  *index = i;
  return TSR_OK;
}

/* Messages with a peer get the pair's next tag: see comm/group.h. */
static void assign_tags(tsr_collective *collective) {
  tsr_group *group = collective->group;
  int local = tsr_transport_local_index(group->transport, collective->member);
  uint16_t *row = group->sequences + (size_t)local * (size_t)tsr_group_member_count(group);
  for (int i = 0; i < collective->peer_count; i++) {
    peer *peer = &collective->peers[i];
    uint64_t sequence = group->sequence_base + row[peer->member]++;
    peer->tag = (int)(sequence % TSR_COLLECTIVE_TAGS);
    if (sequence >= group->sequence_next) group->sequence_next = sequence + 1;
  }
}

static bool find_peers(tsr_collective *collective, const tsr_collective_options *options) {
  int members = collective->schedule.members, count = 0;
  bool *flags = tsr_calloc((size_t)members, sizeof *flags);
  if (!flags) return false;
  tsr_schedule_peers(&collective->schedule, flags);
  for (int i = 0; i < members; i++) count += flags[i];
  collective->peers = tsr_calloc((size_t)count, sizeof *collective->peers);
  for (int i = 0; collective->peers && i < members; i++)
    if (flags[i])
      collective->peers[collective->peer_count++] =
          (peer){.index = i, .member = options->members ? options->members[i] : i};
  free(flags);
  return collective->peers;
}

static tsr_status compile(tsr_collective *collective, const tsr_collective_options *options, int index,
                          tsr_error *error) {
  tsr_schedule *schedule = &collective->schedule;
  collective->memory = tsr_calloc(tsr_schedule_memory_count(options), sizeof *collective->memory);
  if (collective->memory) {
    tsr_schedule_init(schedule, options, index, collective->memory);
    tsr_schedule_measure(schedule);
    collective->actions = tsr_calloc((size_t)schedule->actions_max, sizeof *collective->actions);
    collective->messages = tsr_calloc((size_t)schedule->messages_max, sizeof *collective->messages);
    collective->sources = tsr_calloc((size_t)schedule->members, sizeof *collective->sources);
  }
  if (!collective->actions || !collective->messages || !collective->sources ||
      !find_peers(collective, options))
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for one %s of %d members",
                    tsr_collective_kind_name(options->kind), options->member_count);
  assign_tags(collective);
  return TSR_OK;
}

static tsr_status check(const tsr_group *group, int member, const tsr_collective_options *options, int *index,
                        tsr_error *error) {
  if ((unsigned)options->kind >= TSR_COLLECTIVE_KINDS)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "collective kind %d is unknown", (int)options->kind);
  if (tsr_transport_local_index(group->transport, member) < 0)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "member %d does not live in this process", member);
  TSR_RETURN_IF_FAILED(check_members(group, options, error));
  TSR_RETURN_IF_FAILED(check_element(options, error));
  TSR_RETURN_IF_FAILED(check_counts(options, error));
  return find_index(options, member, index, error);
}

tsr_status tsr_collective_create(tsr_group *group, int member, const tsr_collective_options *given,
                                 void *scratch, tsr_collective **out, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_collective_options options = *given;
  if (!options.member_count && !options.members) options.member_count = tsr_group_member_count(group);
  int index = 0;
  TSR_RETURN_IF_FAILED(check(group, member, &options, &index, error));
  tsr_collective *collective = tsr_calloc(1, sizeof *collective);
  if (!collective) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a collective");
  collective->group = group;
  collective->member = member;
  collective->places[TSR_ACTION_SCRATCH] = scratch;
  TSR_TRY(compile(collective, &options, index, error));
  assert(scratch || !tsr_schedule_scratch_bytes(&collective->schedule));
  *out = collective;
  return TSR_OK;
done:
  tsr_collective_destroy(&collective);
  return status;
}

/* ---- running it ---- */

static void stop(tsr_collective *collective) {
  tsr_transport *transport = collective->group->transport;
  for (int i = 0; i < collective->schedule.messages_max; i++)
    transport->ops->cancel(transport, &collective->messages[i].request);
  collective->running = false;
}

void tsr_collective_destroy(tsr_collective **collective) {
  if (!*collective) return;
  if ((*collective)->running) stop(*collective);
  free((*collective)->memory);
  free((*collective)->peers);
  free((*collective)->actions);
  free((*collective)->messages);
  free((*collective)->sources);
  free(*collective);
  *collective = NULL;
}

static const peer *find_peer(const tsr_collective *collective, int index) {
  int first = 0, end = collective->peer_count;
  while (end - first > 1) {
    int middle = first + (end - first) / 2;
    if (collective->peers[middle].index <= index)
      first = middle;
    else
      end = middle;
  }
  assert(collective->peers[first].index == index);
  return &collective->peers[first];
}

static message *message_at(const tsr_collective *collective, int64_t number) {
  return &collective->messages[number % collective->schedule.messages_max];
}

static tsr_status begin_message(tsr_collective *collective, const tsr_action *action, tsr_error *error) {
  tsr_transport *transport = collective->group->transport;
  const tsr_transport_ops *ops = transport->ops;
  const peer *peer = find_peer(collective, action->peer);
  message *message = message_at(collective, collective->begun);
  const int me = collective->member;
  message->ended = message->viewed = false;
  tsr_status status;
  if (action->kind == TSR_ACTION_SEND) {
    status = ops->isend(transport, me, peer->member, peer->tag,
                        collective->places[action->source] + action->source_offset, action->bytes,
                        &message->request, error);
  } else {
    char *target = collective->places[action->target] + action->target_offset;
    message->data = target;
    message->viewed = action->viewed && ops->irecv_view;
    status = (message->viewed ? ops->irecv_view : ops->irecv)(transport, me, peer->member, peer->tag, target,
                                                              action->bytes, &message->request, error);
  }
  if (status == TSR_OK) collective->begun++;
  return status;
}

/* Whether all messages before number `end` have ended. They do in any order: the first that has not tells,
 * and asking the others lets them progress. */
static tsr_status test_messages(tsr_collective *collective, int64_t end, bool *ended, tsr_error *error) {
  tsr_transport *transport = collective->group->transport;
  for (int64_t i = collective->ended; i < end; i++) {
    message *message = message_at(collective, i);
    if (!message->ended)
      TSR_RETURN_IF_FAILED(transport->ops->test(transport, &message->request, &message->ended, error));
    if (message->ended && i == collective->ended) collective->ended++;
  }
  *ended = collective->ended >= end;
  return TSR_OK;
}

static const void *data_of(const message *message) {
  return message->viewed ? message->request.view : message->data;
}

static void release(tsr_collective *collective, message *message) {
  tsr_transport *transport = collective->group->transport;
  if (message->viewed) transport->ops->release(transport, &message->request);
  message->viewed = false;
}

static void reduce(tsr_collective *collective, const tsr_action *action, const char *own, char *target) {
  const tsr_schedule *schedule = &collective->schedule;
  tsr_transport *transport = collective->group->transport;
  const int64_t first = collective->begun - action->messages;
  const int others = action->contributions - 1;
  for (int i = 0; i < others; i++) {
    int contribution = (action->own - 1 - i + action->contributions) % action->contributions;
    collective->sources[contribution] = data_of(message_at(collective, first + i));
  }
  collective->sources[action->own] = own;
  tsr_reduce(&(tsr_reduction_job){.dtype = schedule->dtype,
                                  .wire = action->narrow ? schedule->wire : schedule->dtype,
                                  .reduction = schedule->reduction,
                                  .contributions = action->contributions,
                                  .own = action->own,
                                  .rounded = action->rounded,
                                  .sources = collective->sources,
                                  .target = target,
                                  .count = action->bytes / schedule->element_bytes});
  for (int i = 0; i < others; i++) release(collective, message_at(collective, first + i));
  if (transport->ops->spend)
    transport->ops->spend(transport, collective->member,
                          (double)(others * action->bytes) * transport->reduce_seconds_per_byte);
}

static void widen(tsr_collective *collective, const tsr_action *action, char *target) {
  const tsr_schedule *schedule = &collective->schedule;
  message *message = message_at(collective, collective->begun - action->messages);
  tsr_reduce_widen(schedule->wire, data_of(message), target, action->bytes / schedule->element_bytes);
  release(collective, message);
}

static void work(tsr_collective *collective, const tsr_action *action) {
  const tsr_schedule *schedule = &collective->schedule;
  const char *source = collective->places[action->source] + action->source_offset;
  char *target = collective->places[action->target] + action->target_offset;
  const int64_t count = action->bytes / schedule->element_bytes;
  switch (action->kind) {
  case TSR_ACTION_REDUCE: reduce(collective, action, source, target); break;
  case TSR_ACTION_WIDEN: widen(collective, action, target); break;
  case TSR_ACTION_NARROW: tsr_reduce_narrow(schedule->wire, source, target, count); break;
  case TSR_ACTION_ROUND: tsr_reduce_round(schedule->wire, source, target, count); break;
  default:
    if (source != target) memcpy(target, source, (size_t)action->bytes);
  }
}

/* One action; *done = false: its messages are still in flight. */
static tsr_status act(tsr_collective *collective, const tsr_action *action, bool *done, tsr_error *error) {
  *done = true;
  switch (action->kind) {
  case TSR_ACTION_WAIT: return test_messages(collective, collective->begun - action->messages, done, error);
  case TSR_ACTION_SEND:
  case TSR_ACTION_RECEIVE: return begin_message(collective, action, error);
  default: work(collective, action); return TSR_OK;
  }
}

static tsr_status advance(tsr_collective *collective, tsr_error *error) {
  for (;;) {
    while (collective->position < collective->action_count) {
      bool done;
      TSR_RETURN_IF_FAILED(act(collective, &collective->actions[collective->position], &done, error));
      if (!done) return TSR_OK;
      collective->position++;
    }
    collective->position = 0;
    collective->action_count =
        tsr_schedule_next(&collective->schedule, &collective->cursor, collective->actions);
    if (!collective->action_count) break;
  }
  collective->running = false;
  return TSR_OK;
}

static tsr_status progress(tsr_collective *collective, tsr_error *error) {
  tsr_status status = advance(collective, error);
  if (status == TSR_OK) return TSR_OK;
  stop(collective);
  tsr_error_wrap(error, "%s at rank %d", tsr_collective_kind_name(collective->schedule.kind),
                 collective->member);
  return status;
}

tsr_status tsr_collective_start(tsr_collective *collective, const void *in, void *out, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_group_check(collective->group, error));
  if (collective->running)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "this %s is still running: test it until it is done",
                    tsr_collective_kind_name(collective->schedule.kind));
  collective->places[TSR_ACTION_IN] = (char *)in;
  collective->places[TSR_ACTION_OUT] = out;
  collective->cursor = (tsr_schedule_cursor){0};
  collective->position = collective->action_count = 0;
  collective->begun = collective->ended = 0;
  collective->running = true;
  return progress(collective, error);
}

tsr_status tsr_collective_test(tsr_collective *collective, bool *done, tsr_error *error) {
  tsr_status status = TSR_OK;
  *done = !collective->running;
  if (*done) return TSR_OK;
  TSR_RETURN_IF_FAILED(progress(collective, error));
  *done = !collective->running;
  if (*done) return TSR_OK;
  TSR_TRY(tsr_group_beat(collective->group, error));
done:
  if (status != TSR_OK) stop(collective);
  return status;
}

/* *moved = one of them came further, so that others of this process may as well. */
static tsr_status progress_all(tsr_collective *const *collectives, size_t count, bool *done, bool *moved,
                               tsr_error *error) {
  *done = true;
  *moved = false;
  for (size_t i = 0; i < count; i++) {
    const int64_t item = collectives[i]->cursor.item, position = collectives[i]->position;
    if (collectives[i]->running) TSR_RETURN_IF_FAILED(progress(collectives[i], error));
    *done = *done && !collectives[i]->running;
    *moved = *moved || collectives[i]->cursor.item != item || collectives[i]->position != position;
  }
  return TSR_OK;
}

tsr_status tsr_collective_wait_all(tsr_group *group, tsr_collective *const *collectives, size_t count,
                                   tsr_error *error) {
  tsr_status status = TSR_OK;
  for (;;) {
    bool all_done, moved;
    TSR_TRY(progress_all(collectives, count, &all_done, &moved, error));
    if (all_done) return TSR_OK;
    if (!moved || count == 1) TSR_TRY(tsr_group_wait_turn(group, error));
  }
done:
  for (size_t i = 0; i < count; i++)
    if (collectives[i]->running) stop(collectives[i]);
  return status;
}
