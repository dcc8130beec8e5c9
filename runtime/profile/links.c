/* The links between members, one kind at a time: within a host, and between hosts. */
#include "base/memory.h"
#include "comm/collective.h"
#include "profile/measure.h"

enum { LINK_ELEMENTS = 1 << 18, LINK_REPETITIONS = 5, LINK_MEMBERS_MAX = 8 };

/* Members between whose pairs one kind of link is measured, ascending. */
typedef struct linked {
  int count;
  int members[LINK_MEMBERS_MAX];
} linked;

/* One process's part of an all-gather of `count` floats from each linked member; for local members alone. */
typedef struct gathering {
  int local_count;
  tsr_collective *collectives[LINK_MEMBERS_MAX];
  float *own[LINK_MEMBERS_MAX], *all[LINK_MEMBERS_MAX];
} gathering;

static void finish_gathering(const tsr_group *group, gathering *g) {
  for (int i = 0; i < g->local_count; i++) {
    tsr_collective_destroy(&g->collectives[i]);
    tsr_group_free(group, g->all[i]);
  }
}

static tsr_status begin_gathering(tsr_group *group, const linked *linked, int64_t count, gathering *out,
                                  tsr_error *error) {
  int64_t counts[LINK_MEMBERS_MAX];
  for (int i = 0; i < linked->count; i++) counts[i] = count;
  tsr_collective_options options = {.kind = TSR_ALL_GATHER,
                                    .dtype = TSR_F32,
                                    .counts = counts,
                                    .members = linked->members,
                                    .member_count = linked->count,
                                    .algorithm = TSR_ALGORITHM_DIRECT};
  for (int i = 0; i < linked->count; i++) {
    if (tsr_transport_local_index(group->transport, linked->members[i]) < 0) continue;
    int local = out->local_count++;
    out->all[local] = tsr_calloc((size_t)(linked->count * count), sizeof *out->all[local]);
    if (!out->all[local]) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to measure links");
    out->own[local] = out->all[local] + i * count;
    TSR_RETURN_IF_FAILED(
        tsr_collective_create(group, linked->members[i], &options, NULL, &out->collectives[local], error));
  }
  return TSR_OK;
}

/* Least seconds of an all-gather of `count` floats from each linked member, as the first of them sees it. */
static tsr_status time_all_gather(tsr_group *group, const linked *linked, int64_t count, double *seconds,
                                  tsr_error *error) {
  gathering g = {.local_count = 0};
  tsr_status status = begin_gathering(group, linked, count, &g, error);
  TSR_TRY(tsr_group_agree(group, status, error, error));
  *seconds = 1e9;
  for (int repetition = 0; repetition <= LINK_REPETITIONS; repetition++) { /* the first is dropped */
    double begun = tsr_group_now(group);
    for (int i = 0; i < g.local_count; i++)
      TSR_TRY(tsr_collective_start(g.collectives[i], g.own[i], g.all[i], error));
    TSR_TRY(tsr_collective_wait_all(group, g.collectives, (size_t)g.local_count, error));
    double own = tsr_group_now(group) - begun;
    if (repetition && own < *seconds) *seconds = own;
  }
  TSR_TRY(tsr_group_broadcast(group, linked->members[0], seconds, sizeof *seconds, error));
done:
  finish_gathering(group, &g);
  return status;
}

/* Alpha and beta of the model in base/collective_facts.h: every member sends to all others, one after
 * another.
 */
static tsr_status measure_link(tsr_group *group, const linked *linked, tsr_link *link, tsr_error *error) {
  double empty, full, peers = linked->count - 1;
  TSR_RETURN_IF_FAILED(time_all_gather(group, linked, 1, &empty, error));
  TSR_RETURN_IF_FAILED(time_all_gather(group, linked, LINK_ELEMENTS, &full, error));
  link->latency = empty;
  link->bandwidth = peers * (double)(LINK_ELEMENTS * sizeof(float)) / (full > empty ? full - empty : full);
  return TSR_OK;
}

/* Members of the host that has most of them. */
static linked of_one_host(const tsr_cluster *cluster) {
  int most = 0, chosen = 0;
  for (int host = 0; host < cluster->member_count; host++) {
    int there = 0;
    for (int i = host; i < cluster->member_count; i++) there += cluster->hosts[i] == host;
    if (there > most) most = there, chosen = host;
  }
  linked found = {.count = 0};
  for (int i = chosen; i < cluster->member_count && found.count < LINK_MEMBERS_MAX; i++)
    if (cluster->hosts[i] == chosen) found.members[found.count++] = i;
  return found;
}

/* The first member of each host. */
static linked of_all_hosts(const tsr_cluster *cluster) {
  linked found = {.count = 0};
  for (int i = 0; i < cluster->member_count && found.count < LINK_MEMBERS_MAX; i++)
    if (cluster->hosts[i] == i) found.members[found.count++] = i;
  return found;
}

tsr_status tsr_links_measure(tsr_group *group, tsr_cluster *cluster, tsr_error *error) {
  linked host = of_one_host(cluster), network = of_all_hosts(cluster);
  if (host.count > 1) {
    TSR_RETURN_IF_FAILED(measure_link(group, &host, &cluster->links.host, error));
    cluster->links.network = cluster->links.host;
  }
  if (network.count > 1) {
    TSR_RETURN_IF_FAILED(measure_link(group, &network, &cluster->links.network, error));
    if (host.count < 2) cluster->links.host = cluster->links.network;
  }
  return TSR_OK;
}
