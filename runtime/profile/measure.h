/* profile/measure.h: measuring one device. */
#ifndef TSR_PROFILE_MEASURE_H
#define TSR_PROFILE_MEASURE_H

#include "device/device.h"
#include "plan/cluster.h"

/* Fills the member's description from an open device; speeds are estimates. */
void tsr_member_describe(const tsr_device *device, tsr_cluster_member *member);

/* MISMATCH, naming the difference, unless the device is what a plan for `member` counts on: name, driver,
 * kernels, at least as much memory. */
tsr_status tsr_member_match(const tsr_cluster_member *planned, const tsr_device *device, int member,
                            tsr_error *error);

/* Roughly how fast the device multiplies by a b of this dtype in such work: it decides how large the measured
 * products are. */
tsr_status tsr_member_speed(tsr_device *device, unsigned work, tsr_dtype dtype, double *gflops,
                            tsr_error *error);

/* Whether products by a b of this dtype are among the work (of tsr_work), and the device has them. */
bool tsr_member_works_in(const tsr_device *device, unsigned work, tsr_dtype dtype);
/* Whether products of this dtype and form are measured for such work. Gradients of narrow weights (TN) never
 * are. */
bool tsr_member_measures(unsigned work, tsr_dtype dtype, tsr_gemm_form form);

/* Replaces the estimates of what is among the work by measured times: the product of each transpose over a
 * small grid for each dtype of b (gflops[dtype] chooses it), an elementwise kernel, an empty launch. First
 * calls are dropped. */
tsr_status tsr_member_measure(tsr_device *device, unsigned work, const double *gflops,
                              tsr_cluster_member *member, tsr_error *error);

/* [C] Of a cluster whose hosts are numbered: alpha and beta of the model in base/collective_facts.h, for each
 * kind of link; one that does not occur costs what the other does. */
tsr_status tsr_links_measure(tsr_group *group, tsr_cluster *cluster, tsr_error *error);

#endif
