/* comm/transport_mpi.c: one member per rank of a communicator. The only file that includes <mpi.h>.
 *
 * Two copies of the caller's communicator: one for data, one for signs of life. A receive for the next sign
 * of every peer is always posted. A sign is one byte: BEAT, FAILURE, or FAREWELL, the last one of a member
 * that destroys its group. Destroying waits for everyone's farewell, so that no message is left for a
 * communicator that is gone; the farewell also completes the peer's posted receive.
 *
 * Nothing here blocks in MPI after creation: MPI's own waiting loops neither yield the core nor notice a dead
 * rank (and may then even return success). MPI is called from one thread only, so any thread level will do.
 */
#include <mpi.h>

#include <tessera/mpi.h>

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/group.h"
#include "comm/liveness.h"
#include "comm/process.h"
#include "comm/mpi_launcher.h"

enum state { IDLE, SENDING, RECEIVING };
enum sign { BEAT = 'b', FAREWELL = 'f', FAILURE = 'x' };

typedef struct peer {
  MPI_Request receive, send; /* of signs */
  char received, sent;
  bool farewell_sent;
} peer;

typedef struct mpi_transport {
  tsr_transport base;
  MPI_Comm data, signs; /* ours once `started` */
  int me;
  bool started; /* every rank has its transport: signs are exchanged */
  bool broken;  /* a member was lost */
  tsr_liveness liveness;
  tsr_process *processes; /* [rank] */
  peer *peers;
} mpi_transport;

/* A message longer than message_bytes_max: all pieces are posted at once, so that messages stay in order. */
typedef struct pieces {
  int count;
  MPI_Request requests[];
} pieces;

_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "tsr_request.native holds an MPI_Request");

static tsr_status fail_mpi(tsr_error *error, int code, const char *what) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length;
  MPI_Error_string(code, text, &length);
  for (char *c = text; *c; c++)
    if (*c == '\n') *c = ' ';
  tsr_fail(error, TSR_ERROR_COMM, "%s failed: %s", what, text);
  tsr_error_native(error, "mpi", code);
  return TSR_ERROR_COMM;
}

/* MPICH hands the errors of MPI_Test to the handler of MPI_COMM_WORLD, whatever communicator the message was
 * on, and the usual one aborts. So that handler is set aside during the calls that complete messages. */
static MPI_Errhandler set_handler_aside(void) {
  MPI_Errhandler callers;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &callers);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return callers;
}

static void put_handler_back(MPI_Errhandler callers) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, callers);
  MPI_Errhandler_free(&callers);
}

static MPI_Request load(const tsr_request *request) {
  MPI_Request native;
  memcpy(&native, &request->native, sizeof native);
  return native;
}

static void store(tsr_request *request, MPI_Request native) {
  memcpy(&request->native, &native, sizeof native);
}

/* Ends a request whose outcome no longer matters; false if MPI would not let go of it (its memory must then
 * stay). */
static bool drop(MPI_Request *native, bool receives) {
  enum { TURNS = 1000 };
  int done = *native == MPI_REQUEST_NULL;
  if (!done && receives) MPI_Cancel(native);
  for (int turn = 0; !done && turn < (receives ? TURNS : 1); turn++) {
    if (MPI_Test(native, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return true;
    if (!done) sched_yield();
  }
  if (!done) MPI_Request_free(native);
  return done;
}

/* ---- messages ---- */

static bool in_pieces(const mpi_transport *mpi, const tsr_request *request) {
  return request->bytes > mpi->base.message_bytes_max;
}

static tsr_status post(const mpi_transport *mpi, const tsr_request *request, int64_t offset, int64_t bytes,
                       MPI_Request *native, tsr_error *error) {
  char *data = bytes ? (char *)request->data + offset : NULL;
  bool sends = request->state == SENDING;
  int code = sends ? MPI_Isend(data, (int)bytes, MPI_BYTE, request->peer, request->tag, mpi->data, native)
                   : MPI_Irecv(data, (int)bytes, MPI_BYTE, request->peer, request->tag, mpi->data, native);
  return code == MPI_SUCCESS ? TSR_OK : fail_mpi(error, code, sends ? "MPI_Isend" : "MPI_Irecv");
}

static tsr_status post_pieces(const mpi_transport *mpi, tsr_request *request, tsr_error *error) {
  int64_t piece = mpi->base.message_bytes_max, count = (request->bytes - 1) / piece + 1;
  pieces *all = count > INT32_MAX ? NULL : tsr_malloc(sizeof *all + (size_t)count * sizeof(MPI_Request));
  request->native = all;
  if (!all)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY,
                    "no memory for the %lld pieces of a message of %lld bytes", (long long)count,
                    (long long)request->bytes);
  all->count = 0;
  for (int64_t at = 0; at < request->bytes; at += piece) {
    int64_t bytes = request->bytes - at < piece ? request->bytes - at : piece;
    TSR_RETURN_IF_FAILED(post(mpi, request, at, bytes, &all->requests[all->count], error));
    all->count++;
  }
  return TSR_OK;
}

static void mpi_cancel(tsr_transport *transport, tsr_request *request) {
  const mpi_transport *mpi = (const mpi_transport *)transport;
  bool receives = request->state == RECEIVING;
  if (request->state == IDLE) return;
  MPI_Errhandler callers = set_handler_aside();
  request->state = IDLE;
  if (in_pieces(mpi, request)) {
    pieces *all = request->native;
    for (int i = 0; all && i < all->count; i++) drop(&all->requests[i], receives);
    free(all);
  } else {
    MPI_Request native = load(request);
    drop(&native, receives);
  }
  put_handler_back(callers);
}

static tsr_status begin(mpi_transport *mpi, tsr_request *request, tsr_error *error) {
  tsr_status status;
  if (in_pieces(mpi, request)) {
    status = post_pieces(mpi, request, error);
  } else {
    MPI_Request native = MPI_REQUEST_NULL;
    status = post(mpi, request, 0, request->bytes, &native, error);
    store(request, native);
  }
  if (status != TSR_OK) mpi_cancel(&mpi->base, request);
  return status;
}

static tsr_status mpi_isend(tsr_transport *transport, int from, int to, int tag, const void *data,
                            int64_t bytes, tsr_request *request, tsr_error *error) {
  (void)from;
  *request = (tsr_request){.state = SENDING, .peer = to, .tag = tag, .data = (void *)data, .bytes = bytes};
  transport->bytes_sent[0] += (uint64_t)bytes;
  return begin((mpi_transport *)transport, request, error);
}

static tsr_status mpi_irecv(tsr_transport *transport, int to, int from, int tag, void *data, int64_t bytes,
                            tsr_request *request, tsr_error *error) {
  (void)to;
  *request = (tsr_request){.state = RECEIVING, .peer = from, .tag = tag, .data = data, .bytes = bytes};
  return begin((mpi_transport *)transport, request, error);
}

/* received = -1: MPI cut it off at what was expected. */
static tsr_status fail_size(const tsr_request *request, int64_t received, tsr_error *error) {
  return tsr_fail(error, TSR_ERROR_COMM,
                  "rank %d sent %s%lld bytes, %lld were expected: the ranks' collectives differ",
                  request->peer, received < 0 ? "more than " : "",
                  (long long)(received < 0 ? request->bytes : received), (long long)request->bytes);
}

/* One MPI request; the bytes it received are added to request->peer_bytes. */
static tsr_status test_native(tsr_request *request, MPI_Request *native, bool *done, tsr_error *error) {
  MPI_Status result;
  int flag = 0, count = 0, class = MPI_SUCCESS;
  int code = MPI_Test(native, &flag, &result);
  *done = flag;
  if (code != MPI_SUCCESS) {
    MPI_Error_class(code, &class);
    return class == MPI_ERR_TRUNCATE ? fail_size(request, -1, error) : fail_mpi(error, code, "MPI_Test");
  }
  if (flag && request->state == RECEIVING) MPI_Get_count(&result, MPI_BYTE, &count);
  request->peer_bytes += count;
  return TSR_OK;
}

static tsr_status test_message(const mpi_transport *mpi, tsr_request *request, bool *done, tsr_error *error) {
  if (!in_pieces(mpi, request)) {
    MPI_Request native = load(request);
    tsr_status status = test_native(request, &native, done, error);
    store(request, native);
    return status;
  }
  pieces *all = request->native;
  *done = true;
  for (int i = 0; i < all->count; i++) {
    bool piece_done = true;
    if (all->requests[i] != MPI_REQUEST_NULL)
      TSR_RETURN_IF_FAILED(test_native(request, &all->requests[i], &piece_done, error));
    *done = *done && piece_done;
  }
  return TSR_OK;
}

/* A message that cannot come any more: the peer has long left. */
static tsr_status check_peer(const mpi_transport *mpi, const tsr_request *request, tsr_error *error) {
  if (!tsr_liveness_left_long_ago(&mpi->liveness, request->peer)) return TSR_OK;
  return tsr_fail(
      error, TSR_ERROR_COMM,
      "rank %d destroyed its group while rank %d still exchanges %lld bytes with it: every rank must "
      "run the same collectives",
      request->peer, mpi->me, (long long)request->bytes);
}

static tsr_status finish_message(mpi_transport *mpi, tsr_request *request, tsr_error *error) {
  bool receives = request->state == RECEIVING;
  if (in_pieces(mpi, request)) free(request->native);
  request->state = IDLE;
  if (!receives) return TSR_OK;
  tsr_liveness_heard(&mpi->liveness, request->peer);
  return request->peer_bytes == request->bytes ? TSR_OK : fail_size(request, request->peer_bytes, error);
}

static tsr_status mpi_test(tsr_transport *transport, tsr_request *request, bool *done, tsr_error *error) {
  mpi_transport *mpi = (mpi_transport *)transport;
  *done = true;
  if (request->state == IDLE) return TSR_OK;
  MPI_Errhandler callers = set_handler_aside();
  tsr_status status = test_message(mpi, request, done, error);
  put_handler_back(callers);
  if (status == TSR_OK && *done) return finish_message(mpi, request, error);
  if (status == TSR_OK) status = check_peer(mpi, request, error);
  if (status != TSR_OK) mpi_cancel(transport, request);
  return status;
}

/* ---- signs of life ---- */

/* What fails here is no error of its own: it is silence, and after the deadline the peer is lost. */

static void expect_sign(mpi_transport *mpi, int rank) {
  peer *from = &mpi->peers[rank];
  if (MPI_Irecv(&from->received, 1, MPI_BYTE, rank, 0, mpi->signs, &from->receive) != MPI_SUCCESS)
    from->receive = MPI_REQUEST_NULL;
}

/* What arrived from one peer since the last look. */
static void look(mpi_transport *mpi, int rank) {
  peer *from = &mpi->peers[rank];
  while (from->receive != MPI_REQUEST_NULL) {
    int done = 0;
    if (MPI_Test(&from->receive, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done) return;
    tsr_liveness_heard(&mpi->liveness, rank);
    if (from->received == FAILURE) mpi->base.failed_member = rank;
    if (from->received == FAREWELL)
      tsr_liveness_left(&mpi->liveness, rank);
    else
      expect_sign(mpi, rank);
  }
}

/* Not while the sign before is still on its way; true = this one is. Who has left listens until it hears our
 * farewell, so it gets beats too. */
static bool give_sign(mpi_transport *mpi, int rank, enum sign sign) {
  peer *to = &mpi->peers[rank];
  int done = 0;
  if (MPI_Test(&to->send, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done) return false;
  to->sent = (char)sign;
  return MPI_Isend(&to->sent, 1, MPI_BYTE, rank, 0, mpi->signs, &to->send) == MPI_SUCCESS;
}

static void exchange_signs(mpi_transport *mpi, bool give) {
  for (int rank = 0; rank < mpi->base.member_count; rank++) {
    if (rank == mpi->me) continue;
    look(mpi, rank);
    if (give) give_sign(mpi, rank, BEAT);
  }
}

/* A rank that is silent for longer than the deadline and does not live either; -1 = none. */
static int silent_rank(mpi_transport *mpi) {
  int rank = tsr_liveness_lost(&mpi->liveness);
  if (rank < 0 || !tsr_process_lives(&mpi->processes[mpi->me], &mpi->processes[rank])) return rank;
  if (!tsr_liveness_spare(&mpi->liveness, rank)) return rank;
  tsr_log(mpi->base.context, TSR_LOG_WARNING, "comm",
          "rank %d is slow: no sign of it for %g s, but its process lives; waiting on", rank,
          mpi->liveness.deadline);
  return -1;
}

static tsr_status mpi_beat(tsr_transport *transport, double deadline_seconds, int *lost, tsr_error *error) {
  (void)error;
  mpi_transport *mpi = (mpi_transport *)transport;
  *lost = -1;
  tsr_liveness_due due = tsr_liveness_call(&mpi->liveness, tsr_clock_seconds(), deadline_seconds);
  if (due == TSR_LIVENESS_NOTHING) return TSR_OK;
  MPI_Errhandler callers = set_handler_aside();
  exchange_signs(mpi, due == TSR_LIVENESS_SIGN);
  put_handler_back(callers);
  *lost = mpi->base.failed_member >= 0 ? mpi->base.failed_member : silent_rank(mpi);
  mpi->broken = *lost >= 0;
  return TSR_OK;
}

/* Says to all that this process failed, so that nobody waits for it. What cannot be said is silence, and
 * found as such. */
static void mpi_abandon(tsr_transport *transport) {
  mpi_transport *mpi = (mpi_transport *)transport;
  double until = tsr_clock_seconds() + 1;
  MPI_Errhandler callers = set_handler_aside();
  for (int rank = 0; rank < mpi->base.member_count; rank++)
    while (rank != mpi->me && !give_sign(mpi, rank, FAILURE) && tsr_clock_seconds() < until) sched_yield();
  put_handler_back(callers);
  mpi->broken = true;
}

static double mpi_now(tsr_transport *transport) {
  (void)transport;
  return tsr_clock_seconds();
}

/* ---- the end ---- */

/* One turn of parting from one peer: true once both farewells have arrived. */
static bool part(mpi_transport *mpi, int rank) {
  peer *other = &mpi->peers[rank];
  int sent = 0;
  look(mpi, rank);
  if (!other->farewell_sent) other->farewell_sent = give_sign(mpi, rank, FAREWELL);
  if (!other->farewell_sent || MPI_Test(&other->send, &sent, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
  return sent && mpi->liveness.peers[rank].left;
}

/* Tells all farewell and, unless a member was lost, waits for theirs; false if somebody's did not come. */
static bool part_from_all(mpi_transport *mpi) {
  for (;;) {
    bool all = true;
    for (int rank = 0; rank < mpi->base.member_count; rank++)
      if (rank != mpi->me && !part(mpi, rank)) all = false;
    if (mpi->broken) return false;
    if (all) return true;
    tsr_liveness_call(&mpi->liveness, tsr_clock_seconds(), mpi->liveness.deadline);
    if (tsr_liveness_lost(&mpi->liveness) >= 0) return false;
    sched_yield();
  }
}

/* MPI_Comm_free is collective: without a farewell from all it could wait for ever, so the communicators are
 * left to MPI_Finalize, and so is the memory of a sign that MPI still holds. */
static void abandon(mpi_transport *mpi) {
  bool all = true;
  for (int rank = 0; rank < mpi->base.member_count; rank++) {
    bool received = drop(&mpi->peers[rank].receive, true), sent = drop(&mpi->peers[rank].send, false);
    all = all && received && sent;
  }
  if (!all) mpi->peers = NULL;
  tsr_log(mpi->base.context, TSR_LOG_WARNING, "comm",
          "not every rank destroyed its group: two communicators are left to MPI_Finalize");
}

static void end_signs(mpi_transport *mpi) {
  MPI_Errhandler callers = set_handler_aside();
  if (part_from_all(mpi)) {
    MPI_Comm_free(&mpi->data);
    MPI_Comm_free(&mpi->signs);
  } else {
    abandon(mpi);
  }
  put_handler_back(callers);
}

static void mpi_destroy(tsr_transport *transport) {
  mpi_transport *mpi = (mpi_transport *)transport;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (mpi->started && !finalized) end_signs(mpi);
  tsr_liveness_finish(&mpi->liveness);
  free(mpi->processes);
  tsr_transport_finish(transport);
  free(mpi->peers);
  free(mpi);
}

static const tsr_transport_ops mpi_ops = {
    .name = "mpi",
    .destroy = mpi_destroy,
    .isend = mpi_isend,
    .irecv = mpi_irecv,
    .test = mpi_test,
    .cancel = mpi_cancel,
    .beat = mpi_beat,
    .abandon = mpi_abandon,
    .now = mpi_now,
};

/* ---- the beginning ---- */

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
  mpi_transport *mpi = tsr_calloc(1, sizeof *mpi);
  if (!mpi) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for an MPI transport");
  mpi->data = copies[0];
  mpi->signs = copies[1];
  mpi->me = me;
  TSR_TRY(tsr_transport_init(&mpi->base, &mpi_ops, context, size, me, 1, error));
  TSR_TRY(tsr_liveness_init(&mpi->liveness, size, me, tsr_clock_seconds(), error));
  mpi->processes = tsr_calloc((size_t)size, sizeof *mpi->processes);
  mpi->peers = tsr_calloc((size_t)size, sizeof *mpi->peers);
  if (!mpi->processes || !mpi->peers)
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for the signs of life of %d ranks", size);
  for (int i = 0; i < size; i++) mpi->peers[i].receive = mpi->peers[i].send = MPI_REQUEST_NULL;
  *out = &mpi->base;
  return TSR_OK;
done:
  mpi_destroy(&mpi->base);
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
  if (code != MPI_SUCCESS) return fail_mpi(error, code, "MPI_Iallreduce");
  if (failed == size) return TSR_OK;
  tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "rank %d: no memory for its part of the group", failed);
  if (error) error->rank = failed;
  return TSR_ERROR_OUT_OF_MEMORY;
}

/* Everybody learns who everybody is; without it nobody is known to live. */
static void exchange_processes(mpi_transport *mpi) {
  tsr_process own;
  MPI_Request request;
  int done = 0;
  tsr_process_identify(&own);
  int code =
      MPI_Iallgather(&own, sizeof own, MPI_BYTE, mpi->processes, sizeof own, MPI_BYTE, mpi->signs, &request);
  while (code == MPI_SUCCESS && !done) {
    code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    sched_yield();
  }
}

static bool is_crowded(const mpi_transport *mpi) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN), processes = 0;
  for (int rank = 0; rank < mpi->base.member_count; rank++)
    processes += mpi->processes[rank].host == mpi->processes[mpi->me].host;
  return processes > cores;
}

static tsr_status duplicate(MPI_Comm communicator, MPI_Comm *copy, tsr_error *error) {
  int code = MPI_Comm_dup(communicator, copy);
  if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN);
  return code == MPI_SUCCESS ? TSR_OK : fail_mpi(error, code, "MPI_Comm_dup");
}

static void start_signs(tsr_group *group) {
  mpi_transport *mpi = (mpi_transport *)group->transport;
  mpi->started = true;
  mpi->liveness.deadline = group->deadline_seconds;
  exchange_processes(mpi);
  mpi->base.crowded = is_crowded(mpi);
  for (int rank = 0; rank < mpi->base.member_count; rank++)
    if (rank != mpi->me) expect_sign(mpi, rank);
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
