/* The cluster as it is: every member describes and measures itself, all at once, and then the links between
 * them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/group.h"
#include "profile/measure.h"

void tsr_measure_options_init(tsr_measure_options *options) {
  *options = (tsr_measure_options){.struct_size = sizeof *options};
}

/* ---- smoothing ---- */

/* Members with the same device and driver that differ by less are taken to be equally fast. */
static const double NOISE = 2;

static bool same_device(const tsr_cluster_member *a, const tsr_cluster_member *b) {
  return !strcmp(a->name, b->name) && !strcmp(a->driver, b->driver) &&
         tsr_gemm_facts_equal(a->gemm, b->gemm, TSR_CLUSTER_DTYPES);
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Every figure of a member that was measured for the work, in one order, the bandwidth last; returns their
 * number. */
enum { FIGURES_MAX = TSR_CLUSTER_DTYPES * TSR_GEMM_FORMS * TSR_GEMM_POINTS_MAX + 2 };
static int figures_of(tsr_cluster_member *member, unsigned work, double **figures) {
  int count = 0;
  for (int dtype = 0; dtype < TSR_CLUSTER_DTYPES; dtype++)
    for (int form = 0; form < TSR_GEMM_FORMS; form++)
      for (int i = 0; i < member->curves[dtype][form].count; i++)
        if (tsr_member_measures(work, (tsr_dtype)dtype, (tsr_gemm_form)form))
          figures[count++] = &member->curves[dtype][form].points[i].seconds;
  figures[count++] = &member->launch_seconds;
  figures[count++] = &member->memory_bandwidth;
  return count;
}

/* Whether two members measured the same points: near the border between two grids they may not have. */
static bool same_points(const tsr_cluster_member *a, const tsr_cluster_member *b) {
  for (int dtype = 0; dtype < TSR_CLUSTER_DTYPES; dtype++)
    for (int form = 0; form < TSR_GEMM_FORMS; form++) {
      const tsr_gemm_curve *x = &a->curves[dtype][form], *y = &b->curves[dtype][form];
      if (x->count != y->count) return false;
      for (int i = 0; i < x->count; i++)
        if (x->points[i].m != y->points[i].m || x->points[i].side != y->points[i].side) return false;
    }
  return true;
}

/* The median of each figure over the members like `model`. */
static void medians_like(tsr_cluster *cluster, unsigned work, const tsr_cluster_member *model,
                         double *scratch, double *medians, int figures) {
  for (int f = 0; f < figures; f++) {
    int count = 0;
    for (int i = 0; i < cluster->member_count; i++) {
      double *own[FIGURES_MAX];
      if (!same_device(&cluster->members[i], model) || !same_points(&cluster->members[i], model)) continue;
      figures_of(&cluster->members[i], work, own);
      scratch[count++] = *own[f];
    }
    qsort(scratch, (size_t)count, sizeof *scratch, ascending);
    medians[f] = scratch[count / 2];
  }
}

/* Of the same device, one curve: its shape is the median of what was measured. A member keeps its own speed
 * only if that differs by more than noise (a core of its own, a quota). */
static tsr_status smooth(tsr_cluster *cluster, unsigned work, tsr_error *error) {
  size_t members = (size_t)cluster->member_count;
  double *scratch = tsr_calloc(members, sizeof *scratch), medians[FIGURES_MAX];
  tsr_cluster_member *smoothed = tsr_calloc(members, sizeof *smoothed);
  if (!scratch || !smoothed) {
    free(scratch);
    free(smoothed);
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the figures of %zu members", members);
  }
  for (size_t i = 0; i < members; i++) {
    double *own[FIGURES_MAX], ratio = 0;
    smoothed[i] = cluster->members[i];
    int count = figures_of(&smoothed[i], work, own);
    medians_like(cluster, work, &cluster->members[i], scratch, medians, count);
    for (int f = 0; f < count - 2; f++) ratio += log(*own[f] / medians[f]) / (count - 2);
    ratio = exp(ratio);
    bool noise = ratio < NOISE && ratio > 1 / NOISE;
    for (int f = 0; f < count; f++)
      *own[f] = noise ? medians[f] : f == count - 1 ? medians[f] / ratio : medians[f] * ratio;
  }
  memcpy(cluster->members, smoothed, members * sizeof *smoothed);
  free(scratch);
  free(smoothed);
  return TSR_OK;
}

/* CPU devices of one host share its memory: together they count on no more than there is. */
static void share_host_memory(tsr_cluster *cluster) {
  for (int i = 0; i < cluster->member_count; i++) {
    tsr_cluster_member *member = &cluster->members[i];
    uint64_t sharers = 0, sum = 0;
    for (int j = 0; j < cluster->member_count; j++) {
      const tsr_cluster_member *other = &cluster->members[j];
      if (other->kind != TSR_DEVICE_CPU || strcmp(other->host, member->host)) continue;
      sharers++;
      sum += other->capped_bytes;
    }
    if (member->kind != TSR_DEVICE_CPU || sum <= member->host_bytes) continue;
    uint64_t part = member->host_bytes / sharers;
    if (member->memory_bytes > part) member->memory_bytes = part;
    if (member->max_allocation_bytes > part) member->max_allocation_bytes = part;
  }
}

/* Everybody's figures to everybody. */
static tsr_status exchange(tsr_group *group, unsigned work, const tsr_cluster_member *own,
                           tsr_cluster *cluster, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_group_gather(group, own, sizeof *own, cluster->members, error));
  share_host_memory(cluster);
  return smooth(cluster, work, error);
}

/* The first of this process's members that computes on the same CPU in the same way: members of a sim group
 * have it in turn, so what one measures is true of all. `index` itself, if there is none before. */
static size_t first_like(const tsr_cluster_member *own, size_t index) {
  size_t i = own[index].kind == TSR_DEVICE_CPU ? 0 : index;
  while (i < index && !same_device(&own[i], &own[index])) i++;
  return i;
}

static void take_figures(tsr_cluster_member *to, const tsr_cluster_member *from) {
  memcpy(to->curves, from->curves, sizeof to->curves);
  to->memory_bandwidth = from->memory_bandwidth;
  to->launch_seconds = from->launch_seconds;
  to->estimated = from->estimated;
}

/* Speeds first, so that equal devices measure the same products: the fastest of its kind decides for all. */
static tsr_status measure_devices(tsr_group *group, tsr_device *const *devices, size_t count, unsigned work,
                                  const tsr_cluster *cluster, tsr_cluster_member *own, tsr_error *error) {
  typedef struct speeds {
    double gflops[TSR_CLUSTER_DTYPES];
  } speeds;
  tsr_status status = TSR_OK;
  size_t members = (size_t)cluster->member_count;
  speeds *mine = tsr_calloc(count, sizeof *mine), *all = tsr_calloc(members, sizeof *all);
  if (!mine || !all)
    status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to measure %zu devices", count);
  for (size_t i = 0; i < count; i++)
    for (int dtype = 0; dtype < TSR_CLUSTER_DTYPES && status == TSR_OK; dtype++)
      if (first_like(own, i) < i)
        mine[i].gflops[dtype] = mine[first_like(own, i)].gflops[dtype];
      else if (tsr_member_works_in(devices[i], work, (tsr_dtype)dtype))
        status = tsr_member_speed(devices[i], work, (tsr_dtype)dtype, &mine[i].gflops[dtype], error);
  TSR_TRY(tsr_group_agree(group, status, error, error));
  TSR_TRY(tsr_group_gather(group, mine, sizeof *mine, all, error));
  for (size_t i = 0; i < count && status == TSR_OK; i++) {
    for (size_t j = 0; j < members; j++)
      for (int dtype = 0; dtype < TSR_CLUSTER_DTYPES; dtype++)
        if (same_device(&cluster->members[j], &own[i]) && all[j].gflops[dtype] > mine[i].gflops[dtype])
          mine[i].gflops[dtype] = all[j].gflops[dtype];
    if (first_like(own, i) < i)
      take_figures(&own[i], &own[first_like(own, i)]);
    else
      status = tsr_member_measure(devices[i], work, mine[i].gflops, &own[i], error);
  }
  status = tsr_group_agree(group, status, error, error);
done:
  free(mine);
  free(all);
  return status;
}

tsr_status tsr_cluster_measure(tsr_group *group, tsr_device *const *devices, size_t count,
                               const tsr_measure_options *options, tsr_cluster **out, tsr_error *error) {
  TSR_CHECK_OPTIONS_SIZE(options, tsr_measure_options);
  tsr_status status = TSR_OK;
  const bool measure = !options || !options->estimate_only;
  const unsigned work = options ? options->work : 0;
  tsr_cluster *cluster = NULL;
  tsr_cluster_member *own = tsr_calloc(count ? count : 1, sizeof *own);
  if (!own) status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to describe %zu devices", count);
  if (status == TSR_OK && count != (size_t)tsr_group_local_count(group))
    status = tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%zu devices given, this process drives %d members",
                      count, tsr_group_local_count(group));
  if (status == TSR_OK)
    status = tsr_cluster_create(group->context, tsr_group_member_count(group), &cluster, error);
  TSR_TRY(tsr_group_agree(group, status, error, error)); /* from here on all measure at once */
  for (size_t i = 0; i < count; i++) tsr_member_describe(devices[i], &own[i]);
  TSR_TRY(tsr_group_gather(group, own, sizeof *own, cluster->members, error));
  tsr_cluster_number_hosts(cluster);
  if (measure) TSR_TRY(measure_devices(group, devices, count, work, cluster, own, error));
  TSR_TRY(tsr_links_measure(group, cluster, error));
  TSR_TRY(exchange(group, work, own, cluster, error));
  *out = cluster;
  cluster = NULL;
done:
  free(own);
  tsr_cluster_destroy(&cluster);
  return status;
}

tsr_status tsr_cluster_match(const tsr_cluster *cluster, tsr_group *group, tsr_device *const *devices,
                             size_t count, tsr_error *error) {
  tsr_status status = TSR_OK;
  if (cluster->member_count != tsr_group_member_count(group))
    status = tsr_fail(error, TSR_ERROR_MISMATCH, "the plan is for %d devices, %d are here",
                      cluster->member_count, tsr_group_member_count(group));
  else if (count != (size_t)tsr_group_local_count(group))
    status = tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%zu devices given, this process drives %d members",
                      count, tsr_group_local_count(group));
  for (size_t i = 0; i < count && status == TSR_OK; i++) {
    int member = tsr_group_local_member(group, (int)i);
    status = tsr_member_match(&cluster->members[member], devices[i], member, error);
  }
  return tsr_group_agree(group, status, error, error);
}
