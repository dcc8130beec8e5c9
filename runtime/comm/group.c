/* comm/group.c: making a group, and waiting in it. What its members tell one another is in group_agree.c. */
#include "comm/group.h"

#include <math.h>
#include <sched.h>
#include <time.h>

#include "base/memory.h"

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

tsr_status tsr_group_create_sim(tsr_context *context, int members, const tsr_group_options *options,
                                tsr_group **out, tsr_error *error) {
  if (!context) return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "context is NULL: create one first");
  TSR_RETURN_IF_FAILED(check_options(options, error));
  if (members < 1 || members > SIM_MEMBERS_MAX)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "a sim group of %d members: give 1 to %d", members,
                    SIM_MEMBERS_MAX);
  tsr_transport *transport;
  TSR_RETURN_IF_FAILED(tsr_transport_create_sim(context, members, &transport, error));
  return tsr_group_create(context, transport, options, out, error);
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

tsr_status tsr_group_wait_turn(tsr_group *group, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_group_beat(group, error));
  /* Where ranks outnumber cores, whoever is waited for must get one: only a sleep gives it to the processes
   * of other sessions, and mpiexec gives each rank its own. Elsewhere a sleep would end late. */
  const struct timespec a_moment = {.tv_nsec = 20000};
  if (group->transport->crowded)
    nanosleep(&a_moment, NULL);
  else
    sched_yield();
  return TSR_OK;
}
