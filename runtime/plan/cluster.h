/* plan/cluster.h: the inside of a cluster description. */
#ifndef TSR_PLAN_CLUSTER_H
#define TSR_PLAN_CLUSTER_H

#include <jansson.h>

#include <tessera/cluster.h>

#include "base/collective_facts.h"
#include "base/context.h"
#include "base/gemm_facts.h"

/* Tables of members are indexed by what products multiply by: the dtype of b, the first so many of
 * tsr_gemm_types. */
enum { TSR_GEMM_POINTS_MAX = 12, TSR_CLUSTER_DTYPES = TSR_DTYPE_COUNT };

/* Which operand of a product is transposed; curves are measured for each. */
typedef enum tsr_gemm_form { TSR_GEMM_NN, TSR_GEMM_NT, TSR_GEMM_TN, TSR_GEMM_FORMS } tsr_gemm_form;

/* One measured product: m rows, a square weight of `side` x `side` (n = k = side). */
typedef struct tsr_gemm_point {
  int64_t m, side;
  double seconds;
} tsr_gemm_point;

/* Points on a grid: every m with every side, m slowest, both ascending. count = 0: the types are not
 * supported. */
typedef struct tsr_gemm_curve {
  int count;
  tsr_gemm_point points[TSR_GEMM_POINTS_MAX];
} tsr_gemm_curve;

typedef struct tsr_cluster_member {
  char name[128], platform[64], backend[16], driver[128], host[64];
  tsr_device_kind kind;
  bool unified_memory;
  bool estimated; /* speeds were not measured */
  uint64_t memory_bytes, max_allocation_bytes;
  uint64_t capped_bytes,
      host_bytes; /* while measuring: memory_bytes as the device said; what the whole host has */
  tsr_gemm_facts gemm[TSR_CLUSTER_DTYPES];
  tsr_gemm_curve curves[TSR_CLUSTER_DTYPES][TSR_GEMM_FORMS];
  double memory_bandwidth; /* bytes per second: read + written by an elementwise kernel */
  double launch_seconds;   /* enqueue to end of a kernel that does nothing much */
} tsr_cluster_member;

struct tsr_cluster {
  tsr_context *context;
  int member_count;
  tsr_cluster_member *members;
  int *hosts;      /* [member]: the first member of the same host */
  tsr_links links; /* latency: seconds of an empty message between two members, all pairs busy; bandwidth:
                      bytes per second of one member's sends, all members sending */
};

tsr_status tsr_cluster_create(tsr_context *context, int members, tsr_cluster **out, tsr_error *error);
tsr_status tsr_cluster_copy(const tsr_cluster *cluster, tsr_cluster **out, tsr_error *error);
/* What is taken for links of which nothing is known: within a host, that is. */
tsr_links tsr_links_unknown(void);
/* Numbers the hosts, once the members' names of them are known. */
void tsr_cluster_number_hosts(tsr_cluster *cluster);
json_t *tsr_cluster_to_json(const tsr_cluster *cluster);
tsr_status tsr_cluster_from_json(tsr_context *context, const json_t *json, tsr_cluster **out,
                                 tsr_error *error);
/* Fills curves, bandwidth and launch with figures from the facts alone, marked as estimates. */
void tsr_cluster_estimate(tsr_cluster_member *member, uint32_t compute_units);

#endif
