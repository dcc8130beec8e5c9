/* team.h: the group that a command works with, and the devices of this process in it. */
#ifndef TOOL_TEAM_H
#define TOOL_TEAM_H

#include <tessera/tessera.h>

#include "choice.h"
#include "options.h"
#include "place.h"

typedef struct tool_team {
  const tool_options *options; /* borrowed */
  tool_place place;
  int ranks;
  tool_transport transport;
  unsigned work; /* of tsr_work: what the devices are opened and measured for; 0 = all */
  tsr_context *context;
  tsr_group *group;
  int local_count;
  tool_choice *choices; /* of the local members */
  tsr_device **devices; /* NULL while they are closed */
  bool apart;           /* a step failed on this rank alone: the others do not know why */
} tool_team;

/* How many ranks, and by which transport: from the options and the launcher. Returns 0, or says what is wrong
 * and returns TOOL_EXIT_USAGE. `fallback`: ranks when nobody says; 0 = one, or what the lists say. */
int tool_team_plan(const tool_options *options, int fallback, tool_team *out);

/* Of a step that failed: an error that did not come through an agreement is this rank's own to tell. */
void tool_team_note_failure(tool_team *team, tsr_status status, const tsr_error *error);

/* Whether the members are processes that mpiexec still has to start. */
bool tool_team_needs_launch(const tool_team *team);

/* Context, choice of devices, group; MISMATCH if ranks were given other options than rank 0. The same status
 * on all ranks. */
tsr_status tool_team_start(tool_team *team, tsr_error *error);
/* Of a process that mpiexec started, on a wrong command line: tells the ranks whose own is right, so that
 * they do not wait for this one. `message` is what is wrong. */
void tool_team_tell(const char *message);
/* Opens the devices of the local members; memory: caps by rank, NULL for none. The same status on all. */
tsr_status tool_team_open(tool_team *team, const uint64_t *memory, tsr_error *error);
void tool_team_close(tool_team *team);

/* This process's status, agreed: the same on all ranks. */
tsr_status tool_team_agree(tool_team *team, tsr_status own, tsr_error *error);
/* Whether this process speaks for the group. */
bool tool_team_leads(const tool_team *team);

/* Whether a failure has left the ranks in different places, so that each has to end alone. */
bool tool_team_is_broken(const tool_team *team, tsr_status status);

/* Says why the command failed, ends the group and MPI, and returns the exit code. */
int tool_team_end(tool_team *team, tsr_status status, const tsr_error *error);

#endif
