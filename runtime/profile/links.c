/* The links between members, one kind at a time: within a host, and between hosts; and how fast members add
 * up what came through them. */
#include <math.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/collective.h"
#include "comm/reduce.h"
#include "profile/measure.h"

enum { LINK_ELEMENTS = 1 << 18, LINK_REPETITIONS = 5, LINK_MEMBERS_MAX = 8 };
static const double SUMS_LEAST = 1e7, SUMS_MOST = 1e12; /* bytes per second, whatever noise says */

/* Members between whose pairs one kind of link is measured, ascending. */
typedef struct linked {
  int count;
  int members[LINK_MEMBERS_MAX];
} linked;

/* One process's part of a collective between the linked members, direct, in place: an all-gather of `count`
 * floats from each, or an all-reduce of `count`. For local members alone. */
typedef struct trial {
  int local_count;
  tsr_collective *collectives[LINK_MEMBERS_MAX];
  float *own[LINK_MEMBERS_MAX], *all[LINK_MEMBERS_MAX];
  bool shared[LINK_MEMBERS_MAX]; /* all is of the group's memory, as the values of plans are where it has any
                                  */
  void *scratch[LINK_MEMBERS_MAX];
} trial;

static void finish_trial(tsr_group *group, trial *g) {
  for (int i = 0; i < g->local_count; i++) {
    tsr_collective_destroy(&g->collectives[i]);
    if (g->shared[i])
      tsr_group_memory_destroy(group, g->all[i]);
    else
      tsr_group_free(group, g->all[i]);
    tsr_group_free(group, g->scratch[i]);
  }
}

static tsr_collective_options options_of(const linked *linked, tsr_collective_kind kind,
                                         const int64_t *counts) {
  return (tsr_collective_options){.kind = kind,
                                  .dtype = TSR_F32,
                                  .counts = counts,
                                  .members = linked->members,
                                  .member_count = linked->count,
                                  .algorithm = TSR_ALGORITHM_DIRECT};
}

static tsr_status begin_trial(tsr_group *group, const linked *linked, tsr_collective_kind kind, int64_t count,
                              trial *out, tsr_error *error) {
  int64_t counts[LINK_MEMBERS_MAX];
  for (int i = 0; i < linked->count; i++) counts[i] = count;
  const tsr_collective_options options = options_of(linked, kind, counts);
  for (int i = 0; i < linked->count; i++) {
    if (tsr_transport_local_index(group->transport, linked->members[i]) < 0) continue;
    int local = out->local_count++;
    const size_t elements = (size_t)(linked->count * count);
    out->all[local] = tsr_group_memory_create(group, linked->members[i], elements * sizeof *out->all[local]);
    out->shared[local] = out->all[local] != NULL;
    if (!out->shared[local]) out->all[local] = tsr_calloc(elements, sizeof *out->all[local]);
    out->scratch[local] = tsr_malloc_pages(tsr_collective_scratch_bytes(&options, i));
    if (!out->all[local] || !out->scratch[local])
      return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to measure links");
    out->own[local] = out->all[local] + (kind == TSR_ALL_GATHER ? i * count : 0);
    TSR_RETURN_IF_FAILED(tsr_collective_create(group, linked->members[i], &options, out->scratch[local],
                                               &out->collectives[local], error));
  }
  return TSR_OK;
}

/* Least seconds, as the first of the linked members sees it. */
static tsr_status time_collective(tsr_group *group, const linked *linked, tsr_collective_kind kind,
                                  int64_t count, double *seconds, tsr_error *error) {
  trial g = {.local_count = 0};
  tsr_status status = begin_trial(group, linked, kind, count, &g, error);
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
  finish_trial(group, &g);
  return status;
}

/* Alpha and beta of the model in base/collective_facts.h: every member sends to all others, one after
 * another.
 */
static tsr_status measure_link(tsr_group *group, const linked *linked, tsr_link *link, tsr_error *error) {
  double empty, full, peers = linked->count - 1;
  TSR_RETURN_IF_FAILED(time_collective(group, linked, TSR_ALL_GATHER, 1, &empty, error));
  TSR_RETURN_IF_FAILED(time_collective(group, linked, TSR_ALL_GATHER, LINK_ELEMENTS, &full, error));
  link->latency = empty;
  link->bandwidth = peers * (double)(LINK_ELEMENTS * sizeof(float)) / (full > empty ? full - empty : full);
  return TSR_OK;
}

/* The reduce_bandwidth with which the model, which knows the link already, gives what an all-reduce took. */
static tsr_status measure_sums(tsr_group *group, const linked *linked, tsr_links *links, tsr_error *error) {
  double took, low = SUMS_LEAST, high = SUMS_MOST;
  int64_t counts[LINK_MEMBERS_MAX] = {LINK_ELEMENTS};
  const tsr_collective_options options = options_of(linked, TSR_ALL_REDUCE, counts);
  TSR_RETURN_IF_FAILED(time_collective(group, linked, TSR_ALL_REDUCE, LINK_ELEMENTS, &took, error));
  while (high > 1.01 * low) {
    links->reduce_bandwidth = sqrt(low * high);
    if (tsr_collective_seconds(&options, links) > took)
      low = links->reduce_bandwidth;
    else
      high = links->reduce_bandwidth;
  }
  return TSR_OK;
}

/* What comes over a network lies in the cache when it is added up, a message at a time. */
static tsr_status measure_sums_alone(tsr_group *group, tsr_links *links, tsr_error *error) {
  enum { MESSAGE_ELEMENTS = 1 << 16 };
  double least = 1e9;
  float *memory = tsr_calloc(2 * MESSAGE_ELEMENTS, sizeof *memory);
  tsr_status status = memory ? TSR_OK : tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to measure sums");
  for (int repetition = 0; memory && repetition <= LINK_REPETITIONS; repetition++) {
    const void *sources[] = {memory, memory + MESSAGE_ELEMENTS};
    double begun = tsr_clock_seconds();
    tsr_reduce(&(tsr_reduction_job){.dtype = TSR_F32,
                                    .wire = TSR_F32,
                                    .reduction = TSR_SUM,
                                    .contributions = 2,
                                    .sources = sources,
                                    .target = memory,
                                    .count = MESSAGE_ELEMENTS});
    if (repetition) least = fmin(least, tsr_clock_seconds() - begun);
  }
  free(memory);
  TSR_RETURN_IF_FAILED(tsr_group_agree(group, status, error, error));
  links->reduce_bandwidth = fmin(fmax(MESSAGE_ELEMENTS * sizeof(float) / least, SUMS_LEAST), SUMS_MOST);
  return tsr_group_broadcast(group, 0, &links->reduce_bandwidth, sizeof links->reduce_bandwidth, error);
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
    TSR_RETURN_IF_FAILED(measure_sums(group, &host, &cluster->links, error));
    cluster->links.network = cluster->links.host;
  }
  if (network.count > 1) {
    TSR_RETURN_IF_FAILED(measure_link(group, &network, &cluster->links.network, error));
    if (host.count < 2) cluster->links.host = cluster->links.network;
  }
  return host.count < 2 ? measure_sums_alone(group, &cluster->links, error) : TSR_OK;
}
