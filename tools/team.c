/* team.c: group and devices, and how they end. */
#include "team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "message.h"
#include "mpi.h"

int tool_team_plan(const tool_options *options, int fallback, tool_team *out) {
  *out = (tool_team){.options = options, .place = tool_place_find()};
  out->transport = options->transport >= 0 ? (tool_transport)options->transport
                   : tool_mpi_built()      ? TOOL_TRANSPORT_MPI
                                           : TOOL_TRANSPORT_SIM;
  bool launched = out->place.launched && out->transport == TOOL_TRANSPORT_MPI;
  if (options->transport == TOOL_TRANSPORT_MPI && !tool_mpi_built())
    return tool_usage(options->name, "--transport is mpi, but this tessera was built without MPI: use sim");
  out->ranks = tool_options_ranks(options, launched && !options->ranks ? out->place.ranks : fallback);
  if (!out->ranks) return TOOL_EXIT_USAGE;
  if (launched && out->ranks != out->place.ranks)
    return tool_usage(options->name, "-n is %d, but mpiexec started %d processes: leave -n out", out->ranks,
                      out->place.ranks);
  if (out->place.launched && !launched && out->place.ranks > 1)
    return tool_usage(options->name,
                      "--transport sim is one process, but mpiexec started %d: start it without",
                      out->place.ranks);
  return 0;
}

bool tool_team_needs_launch(const tool_team *team) {
  return team->transport == TOOL_TRANSPORT_MPI && team->ranks > 1 && !team->place.launched;
}

bool tool_team_leads(const tool_team *team) {
  return team->place.rank == 0;
}

/* One process of several speaks for itself; a process with all members speaks for all. */
static int own_rank(const tool_team *team) {
  return team->transport == TOOL_TRANSPORT_MPI && team->ranks > 1 ? team->place.rank : -1;
}

static tsr_status choose_devices(tool_team *team, tsr_error *error) {
  tool_device_table table;
  tsr_status status = tool_devices_find(team->context, false, &table, error);
  bool apart = team->transport == TOOL_TRANSPORT_MPI;
  for (int i = 0; status == TSR_OK && i < team->local_count; i++)
    status = tool_choose(&table, team->options, apart ? team->place.rank : i,
                         apart ? team->place.local_rank : i, &team->choices[i], error);
  if (status == TSR_OK) tool_choices_restrict(team->choices, team->local_count);
  tool_devices_free(&table);
  return status;
}

static tsr_status make_group(tool_team *team, tsr_error *error) {
  double deadline = team->options->deadline;
  if (team->transport == TOOL_TRANSPORT_MPI && team->place.launched)
    return tool_mpi_start(team->context, deadline, &team->group, error);
  if (team->ranks == 1) return tsr_group_create_self(team->context, &team->group, error);
  tsr_group_options options;
  tsr_group_options_init(&options);
  options.deadline_seconds = deadline;
  return tsr_group_create_sim(team->context, team->ranks, &options, &team->group, error);
}

static bool has_line(const char *text, const char *line, size_t bytes) {
  for (; *text; text += strcspn(text, "\n") + 1)
    if (strcspn(text, "\n") == bytes && memcmp(text, line, bytes) == 0) return true;
  return false;
}

/* The first line of `text` that `other` does not have, or NULL. */
static const char *find_line(const char *text, const char *other, int *bytes) {
  for (; *text; text += *bytes + 1) {
    *bytes = (int)strcspn(text, "\n");
    if (!has_line(other, text, (size_t)*bytes)) return text;
  }
  return NULL;
}

static tsr_status compare_lines(const char *own, const char *first, tsr_error *error) {
  static const char advice[] = "give all ranks the same options, but for --device";
  int own_bytes, first_bytes;
  const char *ours = find_line(own, first, &own_bytes), *theirs = find_line(first, own, &first_bytes);
  if (ours && theirs)
    return tool_fail(error, TSR_ERROR_MISMATCH, "started with '%.*s', but rank 0 with '%.*s': %s", own_bytes,
                     ours, first_bytes, theirs, advice);
  if (ours)
    return tool_fail(error, TSR_ERROR_MISMATCH, "started with '%.*s', which rank 0 has not: %s", own_bytes,
                     ours, advice);
  if (theirs)
    return tool_fail(error, TSR_ERROR_MISMATCH, "started without '%.*s', which rank 0 has: %s", first_bytes,
                     theirs, advice);
  return TSR_OK;
}

/* Ranks that do different things would wait for each other, or compute something that nobody asked for. */
static tsr_status compare_options(tool_team *team, tsr_error *error) {
  if (own_rank(team) < 0) return TSR_OK;
  char *own = tool_options_common(team->options), *first = NULL;
  int64_t bytes = own ? (int64_t)strlen(own) + 1 : 0;
  tsr_status status = own ? TSR_OK : tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for options");
  status = tool_team_agree(team, status, error);
  if (status == TSR_OK) status = tsr_group_broadcast(team->group, 0, &bytes, sizeof bytes, error);
  if (status == TSR_OK) {
    first = tool_team_leads(team) ? own : malloc((size_t)bytes);
    status = first ? TSR_OK : tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for options");
    status = tool_team_agree(team, status, error);
  }
  if (status == TSR_OK) status = tsr_group_broadcast(team->group, 0, first, (size_t)bytes, error);
  if (status == TSR_OK) status = tool_team_agree(team, compare_lines(own, first, error), error);
  if (first != own) free(first);
  free(own);
  return status;
}

tsr_status tool_team_start(tool_team *team, tsr_error *error) {
  team->local_count = team->transport == TOOL_TRANSPORT_MPI ? 1 : team->ranks;
  team->choices = calloc((size_t)team->local_count, sizeof *team->choices);
  team->devices = calloc((size_t)team->local_count, sizeof *team->devices);
  if (!team->choices || !team->devices)
    return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %d members", team->local_count);
  tsr_status status = tool_context_create(own_rank(team), &team->context, error);
  if (status != TSR_OK) return status;
  /* Chosen before MPI starts, because its hwloc may load OpenCL drivers; agreed once there is a group. */
  tsr_error own = {.rank = -1};
  tsr_status chosen = choose_devices(team, &own);
  status = make_group(team, error);
  if (status != TSR_OK) return status;
  if (chosen != TSR_OK && error) *error = own;
  status = tool_team_agree(team, chosen, error);
  return status == TSR_OK ? compare_options(team, error) : status;
}

void tool_team_tell(const char *message) {
  tsr_context *context = NULL;
  tsr_group *group = NULL;
  tsr_error error = {.rank = -1}, own = {.rank = -1};
  const tool_place place = tool_place_find();
  const double deadline = 20;
  if (!tool_mpi_built() || place.ranks == 1) return;
  tool_fail(&own, TSR_ERROR_INVALID_ARGUMENT, "%s", message);
  if (tool_context_create(place.rank, &context, &error) == TSR_OK &&
      tool_mpi_start(context, deadline, &group, &error) == TSR_OK)
    (void)tsr_group_agree(group, own.status, &own, &error);
  tsr_group_destroy(&group);
  tsr_context_destroy(&context);
  tool_mpi_stop();
}

tsr_status tool_team_agree(tool_team *team, tsr_status own, tsr_error *error) {
  tsr_error own_error = {.status = own, .rank = -1};
  if (own != TSR_OK && error) own_error = *error;
  return tsr_group_agree(team->group, own, &own_error, error);
}

tsr_status tool_team_open(tool_team *team, const uint64_t *memory, tsr_error *error) {
  tsr_status status = TSR_OK;
  for (int i = 0; status == TSR_OK && i < team->local_count; i++) {
    int member = tsr_group_local_member(team->group, i);
    tsr_device_options options;
    tsr_device_options_init(&options);
    options.memory_bytes = memory ? memory[member] : 0;
    options.work = team->work;
    status = tsr_device_open(team->context, team->choices[i].selector, &options, &team->devices[i], error);
  }
  return tool_team_agree(team, status, error);
}

void tool_team_close(tool_team *team) {
  for (int i = 0; team->devices && i < team->local_count; i++)
    if (team->devices[i]) tsr_device_close(&team->devices[i]);
}

/* After this mpiexec passes on nothing more: what a rank has said has to be out before. */
static const double GRACE_SECONDS = 1;

/* A rank was lost: the others stand somewhere else and cannot agree on an end. Each says what it saw, then
 * everything is ended. */
static void end_alone(const tool_team *team, const tsr_error *error) {
  tool_complain(team->options->name, own_rank(team), error);
  fflush(NULL);
  double end = tool_seconds_now() + GRACE_SECONDS;
  while (tool_seconds_now() < end) usleep(10000); /* signals of mpiexec cut a sleep short */
  tool_mpi_abort();
  _exit(TOOL_EXIT_FAILED);
}

void tool_team_note_failure(tool_team *team, tsr_status status, const tsr_error *error) {
  team->apart =
      status != TSR_OK && error->file && own_rank(team) >= 0 && tsr_group_member_count(team->group) > 1;
}

bool tool_team_is_broken(const tool_team *team, tsr_status status) {
  bool apart = !team->group || team->apart || status == TSR_ERROR_RANK_LOST || status == TSR_ERROR_POISONED;
  return status != TSR_OK && own_rank(team) >= 0 && apart;
}

int tool_team_end(tool_team *team, tsr_status status, const tsr_error *error) {
  if (tool_team_is_broken(team, status)) end_alone(team, error);
  if (status != TSR_OK && tool_team_leads(team)) tool_complain(team->options->name, -1, error);
  tool_team_close(team);
  tsr_group_destroy(&team->group);
  tsr_context_destroy(&team->context);
  free(team->choices);
  free(team->devices);
  tool_mpi_stop();
  return status == TSR_OK ? TOOL_EXIT_DONE : TOOL_EXIT_FAILED;
}
