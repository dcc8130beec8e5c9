/* backends/backend_list.h: the OpenCL backends, in the order in which they are asked; one line each. The
 * first that claims a device gets it; generic claims every device, so it stays last. */
#ifndef TSR_BACKENDS_BACKEND_LIST_H
#define TSR_BACKENDS_BACKEND_LIST_H

#include "device/backend.h"

#define TSR_BACKEND_LIST(X)                                                                                  \
  X(nvidia)                                                                                                  \
  X(amd)                                                                                                     \
  X(intel)                                                                                                   \
  X(cpu)                                                                                                     \
  X(generic)

#define TSR_BACKEND_DECLARE(name) extern const tsr_backend tsr_backend_##name;
TSR_BACKEND_LIST(TSR_BACKEND_DECLARE)
#undef TSR_BACKEND_DECLARE

#endif
