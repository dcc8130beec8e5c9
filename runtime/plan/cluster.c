#include "plan/cluster.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

tsr_links tsr_links_unknown(void) {
  return (tsr_links){.host = {1e-6, 1e10}, .network = {1e-6, 1e10}, .reduce_bandwidth = 1e10};
}

/* Many members of few hosts: the one before is the likeliest to share. */
void tsr_cluster_number_hosts(tsr_cluster *cluster) {
  for (int i = 0; i < cluster->member_count; i++) {
    const char *host = cluster->members[i].host;
    int first = i ? cluster->hosts[i - 1] : 0;
    if (strcmp(cluster->members[first].host, host))
      for (first = 0; first < i && strcmp(cluster->members[first].host, host);) first++;
    cluster->hosts[i] = first;
  }
}

tsr_status tsr_cluster_create(tsr_context *context, int members, tsr_cluster **out, tsr_error *error) {
  if (members < 1 || members > 65536)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "a cluster of %d members: expected 1 to 65536",
                    members);
  tsr_cluster *cluster = tsr_calloc(1, sizeof *cluster);
  if (cluster) cluster->members = tsr_calloc((size_t)members, sizeof *cluster->members);
  if (cluster) cluster->hosts = tsr_calloc((size_t)members, sizeof *cluster->hosts);
  if (!cluster || !cluster->members || !cluster->hosts) {
    tsr_cluster_destroy(&cluster);
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a cluster of %d members", members);
  }
  cluster->context = context;
  cluster->member_count = members;
  cluster->links = tsr_links_unknown();
  *out = cluster;
  return TSR_OK;
}

void tsr_cluster_destroy(tsr_cluster **cluster) {
  if (!*cluster) return;
  free((*cluster)->members);
  free((*cluster)->hosts);
  free(*cluster);
  *cluster = NULL;
}

tsr_status tsr_cluster_copy(const tsr_cluster *cluster, tsr_cluster **out, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_cluster_create(cluster->context, cluster->member_count, out, error));
  memcpy((*out)->members, cluster->members, (size_t)cluster->member_count * sizeof *cluster->members);
  memcpy((*out)->hosts, cluster->hosts, (size_t)cluster->member_count * sizeof *cluster->hosts);
  (*out)->links = cluster->links;
  return TSR_OK;
}

int tsr_cluster_member_count(const tsr_cluster *cluster) {
  return cluster->member_count;
}

static tsr_status check_member(const tsr_cluster *cluster, int member, tsr_error *error) {
  if (member >= 0 && member < cluster->member_count) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "member %d: the cluster has members 0 to %d", member,
                  cluster->member_count - 1);
}

tsr_status tsr_cluster_get_member(const tsr_cluster *cluster, int member, const char **name,
                                  uint64_t *memory_bytes, tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_member(cluster, member, error));
  *name = cluster->members[member].name;
  *memory_bytes = cluster->members[member].memory_bytes;
  return TSR_OK;
}

tsr_status tsr_cluster_set_memory(tsr_cluster *cluster, int member, uint64_t memory_bytes, tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_member(cluster, member, error));
  if (!memory_bytes)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "member %d: memory of 0 bytes", member);
  tsr_cluster_member *at = &cluster->members[member];
  at->memory_bytes = memory_bytes;
  if (at->max_allocation_bytes > memory_bytes) at->max_allocation_bytes = memory_bytes;
  return TSR_OK;
}

/* Rough figures of one compute unit, where nothing was measured: better than none, and marked as estimates.
 */
static const struct {
  double gflops_per_unit, memory_bandwidth, launch_seconds;
} estimates[] = {
    [TSR_DEVICE_CPU] = {30, 10e9, 20e-6},
    [TSR_DEVICE_GPU] = {100, 400e9, 20e-6},
    [TSR_DEVICE_OTHER] = {10, 10e9, 50e-6},
};

void tsr_cluster_estimate(tsr_cluster_member *member, uint32_t compute_units) {
  static const int64_t rows[] = {16, 128, 512}, sides[] = {128, 512, 1024};
  const double gflops = estimates[member->kind].gflops_per_unit * (compute_units ? compute_units : 1);
  member->estimated = true;
  member->memory_bandwidth = estimates[member->kind].memory_bandwidth;
  member->launch_seconds = estimates[member->kind].launch_seconds;
  for (int dtype = 0; dtype < TSR_CLUSTER_DTYPES; dtype++)
    for (int form = 0; form < TSR_GEMM_FORMS; form++) {
      tsr_gemm_curve *curve = &member->curves[dtype][form];
      curve->count = 0;
      if (member->gemm[dtype].family == TSR_GEMM_NONE) continue;
      for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
          double m = (double)rows[i], side = (double)sides[j];
          double weight_bytes = side * side * (double)tsr_dtype_bytes((tsr_dtype)dtype);
          double compute = 2 * m * side * side / (gflops * 1e9 / (dtype == TSR_F64 ? 2 : 1));
          double memory = weight_bytes / member->memory_bandwidth;
          curve->points[curve->count++] = (tsr_gemm_point){
              rows[i], sides[j], member->launch_seconds + (compute > memory ? compute : memory)};
        }
    }
}
