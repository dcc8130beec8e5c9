/* lazy_device.h: the host device as one that takes its time: what is enqueued is computed later, one command
 * after another, when somebody asks. Contents of a mapping come as late. A kernel that touches what OpenCL
 * does not let it touch while the host has it mapped fails the test. */
#ifndef TESSERA_TEST_LAZY_DEVICE_H
#define TESSERA_TEST_LAZY_DEVICE_H

#include "exec_support.h"

/* Between open and the next close, of a host device. pace: commands that are computed each time somebody
 * asks, at most. */
void lazy_open(tsr_device *device, int pace, bool parts);
void lazy_close(tsr_device *device);
/* Kernels that were computed while a collective's buffer was mapped, since the last call. */
int lazy_overlaps(void);

#endif
