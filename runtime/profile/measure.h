/* profile/measure.h: measuring one device. */
#ifndef TSR_PROFILE_MEASURE_H
#define TSR_PROFILE_MEASURE_H

#include "device/device.h"
#include "plan/cluster.h"

/* Fills the member's description from an open device; speeds are estimates. */
void tsr_member_describe(const tsr_device *device, tsr_cluster_member *member);

/* Replaces the estimates by measured times: the product of each transpose over a small grid for each dtype, an
 * elementwise kernel, an empty launch. First calls are dropped; the least of a few repetitions counts. */
tsr_status tsr_member_measure(tsr_device *device, tsr_cluster_member *member, tsr_error *error);

#endif
