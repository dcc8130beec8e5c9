/* place.h: where this process stands in a launch: what mpiexec put into the environment. */
#ifndef TOOL_PLACE_H
#define TOOL_PLACE_H

#include <stdbool.h>

typedef struct tool_place {
  bool launched;               /* an mpiexec is around this process */
  int rank, ranks;             /* 0 of 1 without one */
  int local_rank, local_ranks; /* on this host; those of the whole group if the launcher does not say */
} tool_place;

tool_place tool_place_find(void);

/* Removes the launcher's variables, for a child that is no rank. */
void tool_place_leave(void);

#endif
