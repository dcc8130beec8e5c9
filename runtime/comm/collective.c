/* comm/collective.c: makes a collective from its schedule and runs it: a small engine that begins a round's
 * messages, returns while any of them is in flight, and does the local work in between. */
#include "comm/collective.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "comm/reduce.h"
#include "comm/schedule.h"

struct tsr_collective {
  tsr_group *group;
  int member;
  tsr_collective_kind kind;
  tsr_dtype dtype;
  tsr_reduction reduction;
  tsr_schedule schedule;
  tsr_request *requests; /* of one round */
  size_t requests_used;  /* begun in this round */
  size_t requests_ended; /* of these, the first so many have ended */
  size_t position;       /* the action to do next */
  bool running;
  char *places[3]; /* by tsr_action_place; what IN points to is only read */
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
  if (!reduces && (options->element_bytes || tsr_dtype_bytes(options->dtype))) return TSR_OK;
  if (!reduces || !tsr_reduce_supports(options->dtype))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "dtype %s cannot be reduced: use f32 or f64",
                    tsr_dtype_name(options->dtype));
  if (options->element_bytes && options->element_bytes != tsr_dtype_bytes(options->dtype))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "element_bytes is %zu but %s takes %zu: set 0 for a reduction", options->element_bytes,
                    tsr_dtype_name(options->dtype), tsr_dtype_bytes(options->dtype));
  if (options->reduction != TSR_SUM && options->reduction != TSR_MAX)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "reduction %d is neither TSR_SUM nor TSR_MAX",
                    (int)options->reduction);
  return TSR_OK;
}

/* All contributions together, what the scratch may have to hold, are counted in 64 bits. */
static tsr_status check_counts(const tsr_collective_options *options, tsr_error *error) {
  bool one_count = options->kind == TSR_ALL_REDUCE || options->kind == TSR_BROADCAST;
  int64_t total = 0, bytes, all;
  if (!options->counts) return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "counts is NULL");
  for (int i = 0; i < (one_count ? 1 : options->member_count); i++)
    if (options->counts[i] < 0 || __builtin_add_overflow(total, options->counts[i], &total))
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                      "counts[%d] is %lld: counts are 0 to 2^63 - 1 together", i,
                      (long long)options->counts[i]);
  if (!tsr_multiply_fits(total, tsr_schedule_element_bytes(options), &bytes) ||
      !tsr_multiply_fits(bytes, options->member_count, &all))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%lld elements of %lld bytes from %d members do not fit 63 bits of bytes",
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

static bool is_message(const tsr_action *action) {
  return action->kind == TSR_ACTION_SEND || action->kind == TSR_ACTION_RECEIVE;
}

/* Each pair's messages get the pair's next tag: see comm/group.h. */
static void assign_tags(tsr_collective *collective) {
  tsr_group *group = collective->group;
  tsr_schedule *schedule = &collective->schedule;
  int local = tsr_transport_local_index(group->transport, collective->member);
  uint16_t *row = group->sequences + (size_t)local * (size_t)tsr_group_member_count(group);
  for (size_t i = 0; i < schedule->action_count; i++) {
    tsr_action *action = &schedule->actions[i];
    action->tag = (int)((group->sequence_base + row[action->peer]) % TSR_COLLECTIVE_TAGS);
  }
  for (size_t i = 0; i < schedule->action_count; i++) {
    const tsr_action *action = &schedule->actions[i];
    uint64_t sequence = group->sequence_base + row[action->peer];
    /* Only once for each peer: after that its tags differ. */
    if (!is_message(action) || action->tag != (int)(sequence % TSR_COLLECTIVE_TAGS)) continue;
    row[action->peer]++;
    if (sequence >= group->sequence_next) group->sequence_next = sequence + 1;
  }
}

static tsr_status compile(tsr_collective *collective, const tsr_collective_options *options, int index,
                          tsr_error *error) {
  tsr_schedule *schedule = &collective->schedule;
  tsr_schedule_build(schedule, options, index);
  schedule->actions = tsr_calloc(schedule->action_count, sizeof *schedule->actions);
  collective->requests = tsr_calloc(schedule->message_count_max, sizeof *collective->requests);
  if (!schedule->actions || !collective->requests)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the %zu actions of one %s",
                    schedule->action_count, tsr_collective_kind_name(options->kind));
  tsr_schedule_build(schedule, options, index);
  for (size_t i = 0; options->members && i < schedule->action_count; i++)
    schedule->actions[i].peer = options->members[schedule->actions[i].peer];
  assign_tags(collective);
  return TSR_OK;
}

static tsr_status check(const tsr_group *group, int member, const tsr_collective_options *options, int *index,
                        tsr_error *error) {
  if ((unsigned)options->kind > TSR_BROADCAST)
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
  collective->kind = options.kind;
  collective->dtype = options.dtype;
  collective->reduction = options.reduction;
  collective->places[TSR_ACTION_SCRATCH] = scratch;
  TSR_TRY(compile(collective, &options, index, error));
  assert(scratch || !collective->schedule.scratch_bytes);
  *out = collective;
  return TSR_OK;
done:
  tsr_collective_destroy(&collective);
  return status;
}

/* ---- running it ---- */

static void stop(tsr_collective *collective) {
  tsr_transport *transport = collective->group->transport;
  for (size_t i = collective->requests_ended; i < collective->requests_used; i++)
    transport->ops->cancel(transport, &collective->requests[i]);
  collective->running = false;
}

void tsr_collective_destroy(tsr_collective **collective) {
  if (!*collective) return;
  if ((*collective)->running) stop(*collective);
  free((*collective)->schedule.actions);
  free((*collective)->requests);
  free(*collective);
  *collective = NULL;
}

static tsr_status begin_message(tsr_collective *collective, const tsr_action *action, tsr_error *error) {
  tsr_transport *transport = collective->group->transport;
  tsr_request *request = &collective->requests[collective->requests_used];
  tsr_status status = action->kind == TSR_ACTION_SEND
                          ? transport->ops->isend(transport, collective->member, action->peer, action->tag,
                                                  collective->places[action->source] + action->source_offset,
                                                  action->bytes, request, error)
                          : transport->ops->irecv(transport, collective->member, action->peer, action->tag,
                                                  collective->places[action->target] + action->target_offset,
                                                  action->bytes, request, error);
  if (status == TSR_OK) collective->requests_used++;
  return status;
}

static void work(tsr_collective *collective, const tsr_action *action) {
  const char *source = collective->places[action->source] + action->source_offset;
  char *target = collective->places[action->target] + action->target_offset;
  if (action->kind == TSR_ACTION_REDUCE)
    tsr_reduce(collective->dtype, collective->reduction, action->contributions, action->own,
               collective->places[TSR_ACTION_IN] + action->own_offset, source, target, action->bytes);
  else if (source != target)
    memcpy(target, source, (size_t)action->bytes);
}

/* Messages end in any order, but all must: asking the first that has not is enough to know, and asking the
 * others lets them progress. */
static tsr_status test_round(tsr_collective *collective, bool *ended, tsr_error *error) {
  tsr_transport *transport = collective->group->transport;
  *ended = true;
  for (size_t i = collective->requests_ended; i < collective->requests_used; i++) {
    bool done = true;
    TSR_RETURN_IF_FAILED(transport->ops->test(transport, &collective->requests[i], &done, error));
    if (done && *ended) collective->requests_ended = i + 1;
    *ended = *ended && done;
  }
  if (*ended) collective->requests_used = collective->requests_ended = 0;
  return TSR_OK;
}

static tsr_status advance(tsr_collective *collective, tsr_error *error) {
  while (collective->position < collective->schedule.action_count) {
    const tsr_action *action = &collective->schedule.actions[collective->position];
    if (action->kind == TSR_ACTION_WAIT) {
      bool ended;
      TSR_RETURN_IF_FAILED(test_round(collective, &ended, error));
      if (!ended) return TSR_OK;
    } else if (is_message(action)) {
      TSR_RETURN_IF_FAILED(begin_message(collective, action, error));
    } else {
      work(collective, action);
    }
    collective->position++;
  }
  collective->running = false;
  return TSR_OK;
}

static tsr_status progress(tsr_collective *collective, tsr_error *error) {
  tsr_status status = advance(collective, error);
  if (status == TSR_OK) return TSR_OK;
  stop(collective);
  tsr_error_wrap(error, "%s at rank %d", tsr_collective_kind_name(collective->kind), collective->member);
  return status;
}

tsr_status tsr_collective_start(tsr_collective *collective, const void *in, void *out, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_group_check(collective->group, error));
  if (collective->running)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "this %s is still running: test it until it is done",
                    tsr_collective_kind_name(collective->kind));
  collective->places[TSR_ACTION_IN] = (char *)in;
  collective->places[TSR_ACTION_OUT] = out;
  collective->position = 0;
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

static tsr_status progress_all(tsr_collective *const *collectives, size_t count, bool *done,
                               tsr_error *error) {
  *done = true;
  for (size_t i = 0; i < count; i++) {
    if (collectives[i]->running) TSR_RETURN_IF_FAILED(progress(collectives[i], error));
    *done = *done && !collectives[i]->running;
  }
  return TSR_OK;
}

tsr_status tsr_collective_wait_all(tsr_group *group, tsr_collective *const *collectives, size_t count,
                                   tsr_error *error) {
  tsr_status status = TSR_OK;
  for (;;) {
    bool all_done;
    TSR_TRY(progress_all(collectives, count, &all_done, error));
    if (all_done) return TSR_OK;
    TSR_TRY(tsr_group_wait_turn(group, error));
  }
done:
  for (size_t i = 0; i < count; i++)
    if (collectives[i]->running) stop(collectives[i]);
  return status;
}
