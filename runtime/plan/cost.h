/* plan/cost.h: how long things take, by the cluster's figures. Seconds; deterministic. */
#ifndef TSR_PLAN_COST_H
#define TSR_PLAN_COST_H

#include "base/collective_facts.h"
#include "graph/graph.h"
#include "plan/cluster.h"

/* c[m,n] = op(a)[m,k] op(b)[k,n] with a b of this dtype on a member: bilinear in (log m, log sqrt(n k))
 * between the logarithms of the measured times; beyond the grid it grows as the flops do, below it falls as
 * the first interval does, never below a launch. 0 if an extent is 0. */
double tsr_cost_gemm(const tsr_cluster_member *member, tsr_dtype dtype, tsr_gemm_form form, int64_t m,
                     int64_t n, int64_t k);

/* A kernel that moves so many bytes. */
double tsr_cost_elementwise(const tsr_cluster_member *member, double bytes);

/* A node on one member, given the shapes of what it holds. *bytes (may be NULL) = read and written. */
double tsr_cost_node(const tsr_cluster_member *member, const tsr_graph *graph, const tsr_node *node,
                     const tsr_shape *inputs, const tsr_shape *output, double *bytes);

/* A collective from the moment when all have arrived: from the devices to their hosts, the rounds of its
 * algorithm, and back to the devices. An algorithm of AUTO is replaced by the cheapest. */
double tsr_cost_collective(const tsr_cluster *cluster, tsr_collective_options *options);

/* Whole nanoseconds, in which costs are compared; what takes longer than any plan may is all the same. */
int64_t tsr_cost_nanoseconds(double seconds);

/* The transposed operand of a matmul node. */
tsr_gemm_form tsr_gemm_form_of(const tsr_node *node);

#endif
