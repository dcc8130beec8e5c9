/* comm/transport_mpi_create.c: what happens once: everything is agreed by all ranks. */
#include "comm/transport_mpi.h"

#include <tessera/mpi.h>

#include <sched.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/group.h"
#include "comm/mpi_launcher.h"

static tsr_status check_mpi(MPI_Comm communicator, tsr_error *error) {
  int initialized = 0, finalized = 0, inter = 0, world_size = 0, length;
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (!initialized || finalized)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "MPI is %s: create the group between MPI_Init and MPI_Finalize",
                    finalized ? "finalised already" : "not initialised");
  if (communicator == MPI_COMM_NULL)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "communicator is MPI_COMM_NULL: this rank is not in it");
  MPI_Comm_test_inter(communicator, &inter);
  if (inter)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "communicator is an inter-communicator: merge it first (MPI_Intercomm_merge)");
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  MPI_Get_library_version(library, &length);
  return tsr_mpi_launcher_check(world_size, library, error);
}

static tsr_status create_transport(tsr_context *context, const MPI_Comm copies[2], tsr_transport **out,
                                   tsr_error *error) {
  tsr_status status = TSR_OK;
  int size, me;
  MPI_Comm_size(copies[0], &size);
  MPI_Comm_rank(copies[0], &me);
  tsr_mpi *mpi = tsr_calloc(1, sizeof *mpi);
  if (!mpi) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for an MPI transport");
  mpi->data = copies[0];
  mpi->signs = copies[1];
  mpi->me = me;
  TSR_TRY(tsr_transport_init(&mpi->base, &tsr_mpi_ops, context, size, me, 1, error));
  TSR_TRY(tsr_liveness_init(&mpi->liveness, size, me, tsr_clock_seconds(), error));
  mpi->processes = tsr_calloc((size_t)size, sizeof *mpi->processes);
  mpi->peers = tsr_calloc((size_t)size, sizeof *mpi->peers);
  mpi->offers = tsr_calloc((size_t)size, sizeof *mpi->offers);
  if (!mpi->processes || !mpi->peers || !mpi->offers)
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for the signs of life of %d ranks", size);
  for (int i = 0; i < size; i++) mpi->peers[i].receive = mpi->peers[i].send = MPI_REQUEST_NULL;
  *out = &mpi->base;
  return TSR_OK;
done:
  tsr_mpi_destroy(&mpi->base);
  return status;
}

/* Every rank learns whether all succeeded: the lowest that failed, or the number of ranks. */
static tsr_status agree(MPI_Comm communicator, tsr_status own, tsr_error *error) {
  int rank, size, failed = 0, done = 0;
  MPI_Request request;
  MPI_Comm_rank(communicator, &rank);
  MPI_Comm_size(communicator, &size);
  int mine = own == TSR_OK ? size : rank;
  int code = MPI_Iallreduce(&mine, &failed, 1, MPI_INT, MPI_MIN, communicator, &request);
  while (code == MPI_SUCCESS && !done) {
    code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    sched_yield();
  }
  if (own != TSR_OK) return own;
  if (code != MPI_SUCCESS) return tsr_mpi_fail(error, code, "MPI_Iallreduce");
  if (failed == size) return TSR_OK;
  tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "rank %d: no memory for its part of the group", failed);
  if (error) error->rank = failed;
  return TSR_ERROR_OUT_OF_MEMORY;
}

/* Every rank's `bytes`, in order; *all is not touched where that fails. */
static bool gather(MPI_Comm communicator, const void *own, size_t bytes, void *all) {
  MPI_Request request;
  int done = 0;
  int code = MPI_Iallgather(own, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, communicator, &request);
  while (code == MPI_SUCCESS && !done) {
    code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    sched_yield();
  }
  return code == MPI_SUCCESS;
}

/* ---- shared memory ---- */

/* This host's ranks, numbered; -1 = on another host. Returns how many there are. */
static int number_neighbours(tsr_mpi *mpi) {
  const tsr_process *own = &mpi->processes[mpi->me];
  int count = 0;
  for (int rank = 0; rank < mpi->base.member_count; rank++) {
    bool here = own->host && mpi->processes[rank].host == own->host;
    mpi->peers[rank].shared_member = here ? count++ : -1;
  }
  return count;
}

/* Maps what the neighbours made; their offers move to the front. */
static tsr_status join(tsr_mpi *mpi, tsr_shared *shared, tsr_error *error) {
  for (int rank = 0; rank < mpi->base.member_count; rank++)
    if (mpi->peers[rank].shared_member >= 0) mpi->offers[mpi->peers[rank].shared_member] = mpi->offers[rank];
  return tsr_shared_join(shared, mpi->offers, error);
}

enum outcome { NOT_JOINED, JOINED, NOT_MADE };

/* The first of this host's ranks with that outcome; -1 = none. */
static int first_with(const tsr_mpi *mpi, enum outcome outcome) {
  for (int rank = 0; rank < mpi->base.member_count; rank++)
    if (mpi->peers[rank].shared_member >= 0 && mpi->offers[rank].made == (int32_t)outcome) return rank;
  return -1;
}

/* A host uses shared memory if all of its ranks can; one of those that cannot says why: best one that could
 * not make its own. */
static bool all_joined(const tsr_mpi *mpi, const tsr_error *error) {
  int rank = first_with(mpi, NOT_MADE);
  if (rank < 0) rank = first_with(mpi, NOT_JOINED);
  if (rank == mpi->me)
    tsr_log(mpi->base.context, TSR_LOG_WARNING, "comm",
            "no shared memory between the ranks of this host, messages go through MPI: rank %d: %s", rank,
            error->message);
  return rank < 0;
}

/* Every rank takes part in both exchanges, whatever has failed. */
static void share_memory(tsr_mpi *mpi) {
  tsr_error error = {.message = ""};
  tsr_shared_offer own = {.made = NOT_MADE};
  tsr_shared *shared = NULL;
  tsr_status status = TSR_OK;
  int neighbours = number_neighbours(mpi);
  if (neighbours > 1) /* that it fails is seen by its result */
    (void)tsr_shared_create(neighbours, mpi->peers[mpi->me].shared_member, 0, &shared, &error);
  if (shared) tsr_shared_get_offer(shared, &own);
  bool gathered = gather(mpi->signs, &own, sizeof own, mpi->offers);
  if (shared && gathered) status = join(mpi, shared, &error);
  if (shared) own.made = status == TSR_OK ? JOINED : NOT_JOINED;
  gathered = gather(mpi->signs, &own, sizeof own, mpi->offers) && gathered;
  if (gathered && neighbours > 1 && all_joined(mpi, &error))
    mpi->shared = shared;
  else
    tsr_shared_destroy(&shared);
  mpi->spans_hosts = neighbours < mpi->base.member_count;
}

static tsr_status duplicate(MPI_Comm communicator, MPI_Comm *copy, tsr_error *error) {
  int code = MPI_Comm_dup(communicator, copy);
  if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN);
  return code == MPI_SUCCESS ? TSR_OK : tsr_mpi_fail(error, code, "MPI_Comm_dup");
}

static void start_signs(tsr_group *group) {
  tsr_mpi *mpi = (tsr_mpi *)group->transport;
  tsr_process own;
  mpi->started = true;
  mpi->liveness.deadline = group->deadline_seconds;
  tsr_process_identify(&own);
  gather(mpi->signs, &own, sizeof own, mpi->processes); /* without it nobody is known to live */
  mpi->base.crowded = tsr_process_crowded(&own, mpi->processes, mpi->base.member_count);
  share_memory(mpi);
  for (int rank = 0; rank < mpi->base.member_count; rank++)
    if (rank != mpi->me && !tsr_mpi_shares(mpi, rank)) tsr_mpi_expect_sign(mpi, rank);
  tsr_mpi_thread_start(mpi);
}

/* The copies come first, so that a rank without memory still takes part in every collective call; they become
 * the transport's only when all ranks have one. */
tsr_status tsr_group_create_mpi(tsr_context *context, MPI_Comm communicator, const tsr_group_options *options,
                                tsr_group **out, tsr_error *error) {
  tsr_status status = TSR_OK;
  MPI_Comm copies[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
  tsr_transport *transport = NULL;
  tsr_group *group = NULL;
  if (!context) return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "context is NULL: create one first");
  TSR_RETURN_IF_FAILED(check_mpi(communicator, error));
  for (int i = 0; i < 2; i++) TSR_TRY(duplicate(communicator, &copies[i], error));
  status = create_transport(context, copies, &transport, error);
  if (status == TSR_OK) status = tsr_group_create(context, transport, options, &group, error);
  TSR_TRY(agree(copies[0], status, error));
  start_signs(group);
  *out = group;
  return TSR_OK;
done:
  if (group) tsr_group_destroy(&group);
  for (int i = 0; i < 2; i++)
    if (copies[i] != MPI_COMM_NULL) MPI_Comm_free(&copies[i]);
  return status;
}
