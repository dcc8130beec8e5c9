/* comm/group.c: making a group, and waiting in it. What its members tell one another is in group_agree.c. */
#include "comm/group.h"

#include <math.h>
#include <sched.h>

#include "base/memory.h"
#include "comm/liveness.h"
#include "comm/sim.h"

enum { SIM_MEMBERS_MAX = 4096 };
static const double default_deadline_seconds = 20;

void tsr_group_options_init(tsr_group_options *options) {
  *options = (tsr_group_options){.struct_size = sizeof *options};
}

static tsr_status check_options(const tsr_group_options *options, tsr_error *error) {
  TSR_CHECK_OPTIONS_SIZE(options, tsr_group_options);
  if (options && !(options->deadline_seconds >= 0 && isfinite(options->deadline_seconds)))
    return tsr_fail(
        error, TSR_ERROR_INVALID_ARGUMENT,
        "deadline_seconds is %g, must be above 0: give the seconds of silence after which a member "
        "counts as lost",
        options->deadline_seconds);
  return TSR_OK;
}

static tsr_status fill_group(tsr_group *group, const tsr_group_options *options, tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_options(options, error));
  tsr_transport *transport = group->transport;
  group->name = transport->ops->name;
  group->deadline_seconds =
      options && options->deadline_seconds > 0 ? options->deadline_seconds : default_deadline_seconds;
  group->sequences =
      tsr_calloc((size_t)transport->local_count * (size_t)transport->member_count, sizeof *group->sequences);
  if (!group->sequences)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a group of %d members",
                    transport->member_count);
  return tsr_group_prepare_agreement(group, error);
}

tsr_status tsr_group_create(tsr_context *context, tsr_transport *transport, const tsr_group_options *options,
                            tsr_group **out, tsr_error *error) {
  tsr_group *group = tsr_calloc(1, sizeof *group);
  if (!group) {
    transport->ops->destroy(transport);
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a group");
  }
  group->context = context;
  group->transport = transport;
  group->lost_member = -1;
  tsr_status status = fill_group(group, options, error);
  if (status != TSR_OK) {
    tsr_group_destroy(&group);
    return status;
  }
  *out = group;
  return TSR_OK;
}

void tsr_sim_options_init(tsr_sim_options *options) {
  *options = (tsr_sim_options){.struct_size = sizeof *options};
}

tsr_status tsr_group_create_sim_with(tsr_context *context, int members, const tsr_group_options *options,
                                     const tsr_sim_options *sim, tsr_group **out, tsr_error *error) {
  if (!context) return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "context is NULL: create one first");
  TSR_RETURN_IF_FAILED(check_options(options, error));
  if (members < 1 || members > SIM_MEMBERS_MAX)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "a sim group of %d members: give 1 to %d", members,
                    SIM_MEMBERS_MAX);
  TSR_RETURN_IF_FAILED(tsr_sim_check_options(sim, members, error));
  tsr_transport *transport;
  TSR_RETURN_IF_FAILED(tsr_transport_create_sim(context, members, sim, &transport, error));
  return tsr_group_create(context, transport, options, out, error);
}

tsr_status tsr_group_create_sim(tsr_context *context, int members, const tsr_group_options *options,
                                tsr_group **out, tsr_error *error) {
  return tsr_group_create_sim_with(context, members, options, NULL, out, error);
}

tsr_status tsr_group_create_self(tsr_context *context, tsr_group **out, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_group_create_sim(context, 1, NULL, out, error));
  (*out)->name = "self";
  return TSR_OK;
}

void tsr_group_destroy(tsr_group **group) {
  if (!*group) return;
  tsr_group_release_agreement(*group);
  (*group)->transport->ops->destroy((*group)->transport);
  free((*group)->sequences);
  free(*group);
  *group = NULL;
}

int tsr_group_member_count(const tsr_group *group) {
  return group->transport->member_count;
}

int tsr_group_local_count(const tsr_group *group) {
  return group->transport->local_count;
}

int tsr_group_local_member(const tsr_group *group, int i) {
  return group->transport->local_members[i];
}

const char *tsr_group_transport(const tsr_group *group) {
  return group->name;
}

double tsr_group_now(const tsr_group *group) {
  return group->transport->ops->now(group->transport);
}

double tsr_group_now_of(const tsr_group *group, int member) {
  const tsr_transport_ops *ops = group->transport->ops;
  return ops->now_of ? ops->now_of(group->transport, member) : ops->now(group->transport);
}

void tsr_group_spend(tsr_group *group, int member, double seconds) {
  const tsr_transport_ops *ops = group->transport->ops;
  if (ops->spend) ops->spend(group->transport, member, seconds);
}

uint64_t tsr_group_bytes_sent(const tsr_group *group, int member) {
  int local = tsr_transport_local_index(group->transport, member);
  return local < 0 ? 0 : group->transport->bytes_sent[local];
}

tsr_status tsr_group_check(const tsr_group *group, tsr_error *error) {
  if (!group->broken) return TSR_OK;
  tsr_fail(error, TSR_ERROR_RANK_LOST,
           "rank %d was lost earlier: nothing can be sent in this group any more, destroy it and start again",
           group->lost_member);
  if (error) error->rank = group->lost_member;
  return TSR_ERROR_RANK_LOST;
}

static tsr_status lose(tsr_group *group, int member, tsr_error *error) {
  group->broken = true;
  group->lost_member = member;
  if (member == group->transport->failed_member) {
    tsr_fail(error, TSR_ERROR_RANK_LOST,
             "rank %d failed and takes no part any more; its own message says why", member);
    if (error) error->rank = member;
    return TSR_ERROR_RANK_LOST;
  }
  tsr_fail(
      error, TSR_ERROR_RANK_LOST,
      "rank %d gave no sign of life for %g s, the group's deadline: it ended, hangs or computed for longer; "
      "destroy the group and start again, with a larger deadline_seconds if it was only slow",
      member, group->deadline_seconds);
  if (error) error->rank = member;
  tsr_log(group->context, TSR_LOG_ERROR, "comm", "rank %d was lost: no sign of life for %g s", member,
          group->deadline_seconds);
  return TSR_ERROR_RANK_LOST;
}

void tsr_group_abandon(tsr_group *group) {
  if (group->broken) return;
  group->broken = true;
  group->lost_member = group->transport->local_members[0];
  if (group->transport->ops->abandon) group->transport->ops->abandon(group->transport);
}

tsr_status tsr_group_beat(tsr_group *group, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_group_check(group, error));
  int lost = -1;
  TSR_RETURN_IF_FAILED(group->transport->ops->beat(group->transport, group->deadline_seconds, &lost, error));
  return lost < 0 ? TSR_OK : lose(group, lost, error);
}

tsr_status tsr_group_wait_for(tsr_group *group, double seconds_max, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_group_beat(group, error));
  tsr_transport *transport = group->transport;
  double look = tsr_liveness_look_seconds(group->deadline_seconds);
  if (transport->ops->rest)
    transport->ops->rest(transport, seconds_max < look ? seconds_max : look);
  else
    sched_yield();
  return TSR_OK;
}

tsr_status tsr_group_wait_turn(tsr_group *group, tsr_error *error) {
  return tsr_group_wait_for(group, group->deadline_seconds, error);
}

void *tsr_group_memory_create(tsr_group *group, int member, size_t bytes) {
  tsr_transport *transport = group->transport;
  return transport->ops->memory_create ? transport->ops->memory_create(transport, member, bytes) : NULL;
}

bool tsr_group_keeps_memory(const tsr_group *group) {
  return group->transport->keeps_memory;
}

void tsr_group_free(const tsr_group *group, void *memory) {
  if (!tsr_group_keeps_memory(group)) free(memory);
}

void tsr_group_memory_destroy(tsr_group *group, void *memory) {
  if (memory && !tsr_group_keeps_memory(group))
    group->transport->ops->memory_destroy(group->transport, memory);
}
