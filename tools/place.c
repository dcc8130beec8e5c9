/* place.c: the variables by which launchers tell a process its rank. */
#include "place.h"

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>

/* Hydra (MPICH, Intel MPI) comes first: a Slurm or PMIx around it may set its own as well. */
static const struct {
  const char *rank, *ranks, *local_rank, *local_ranks;
} launchers[] = {
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
};
enum { LAUNCHERS = sizeof launchers / sizeof launchers[0] };

/* fallback when the variable is missing or no number in [low, INT_MAX] */
static int environment_number(const char *name, int low, int fallback) {
  const char *text = getenv(name);
  if (!text || !text[0]) return fallback;
  char *end;
  long number = strtol(text, &end, 10);
  return *end || number < low || number > INT_MAX ? fallback : (int)number;
}

tool_place tool_place_find(void) {
  tool_place place = {.ranks = 1, .local_ranks = 1};
  for (int i = 0; i < LAUNCHERS && !place.launched; i++) {
    int rank = environment_number(launchers[i].rank, 0, -1),
        ranks = environment_number(launchers[i].ranks, 1, 0);
    if (rank < 0 || rank >= ranks) continue; /* left over from something else */
    place.launched = true;
    place.rank = rank;
    place.ranks = ranks;
    place.local_rank = environment_number(launchers[i].local_rank, 0, rank);
    place.local_ranks = environment_number(launchers[i].local_ranks, 1, place.ranks);
  }
  return place;
}

void tool_place_leave(void) {
  static const char *const more[] = {"PMI_FD", "PMI_PORT", "PMI_ID"};
  for (int i = 0; i < LAUNCHERS; i++) {
    unsetenv(launchers[i].rank);
    unsetenv(launchers[i].ranks);
    unsetenv(launchers[i].local_rank);
    unsetenv(launchers[i].local_ranks);
  }
  for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) unsetenv(more[i]);
}
