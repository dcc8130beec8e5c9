/* choice.h: which device a rank takes. */
#ifndef TOOL_CHOICE_H
#define TOOL_CHOICE_H

#include <tessera/tessera.h>

#include "options.h"
#include "place.h"
#include "probe.h"

typedef struct tool_choice {
  tool_device device;
  char selector[160]; /* opens this device and no other, in a process that sees its driver */
} tool_choice;

/* The device of `rank`, which is the local_rank-th of this host: by --device, else the GPUs in turn, else a
 * CPU. A selector without an index deals out the devices that match to the ranks that use it. Errors:
 * NOT_FOUND, UNSUPPORTED. */
tsr_status tool_choose(const tool_device_table *table, const tool_options *options, int rank, int local_rank,
                       tool_choice *out, tsr_error *error);

/* Hides the drivers that none of the choices needs, if one driver is enough: several in one process have been
 * seen to crash each other. Before OpenCL (or MPI, whose hwloc may ask OpenCL) is used for the first time. */
void tool_choices_restrict(const tool_choice *choices, int count);

#endif
