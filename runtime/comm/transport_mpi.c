/* comm/transport_mpi.c: messages, by shared memory or by MPI. */
#include "comm/transport_mpi.h"

#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

/* And shared memory's own. UNREACHABLE: MPI refused it, and it never ends; the peer is then silent, and after
 * the deadline it is lost: every survivor misses the same rank. */
enum state { IDLE, SENDING, RECEIVING, UNREACHABLE };

/* A message longer than message_bytes_max: all pieces are posted at once, so that messages stay in order. */
typedef struct pieces {
  int count;
  MPI_Request requests[];
} pieces;

_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "tsr_request.native holds an MPI_Request");

tsr_status tsr_mpi_fail(tsr_error *error, int code, const char *what) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length;
  MPI_Error_string(code, text, &length);
  for (char *c = text; *c; c++)
    if (*c == '\n') *c = ' ';
  tsr_fail(error, TSR_ERROR_COMM, "%s failed: %s", what, text);
  tsr_error_native(error, "mpi", code);
  return TSR_ERROR_COMM;
}

/* The process has one such handler, whatever groups and threads it has. */
static struct {
  pthread_mutex_t lock;
  int depth;
  MPI_Errhandler callers;
} aside = {.lock = PTHREAD_MUTEX_INITIALIZER};

void tsr_mpi_set_handler_aside(void) {
  pthread_mutex_lock(&aside.lock);
  if (aside.depth++ == 0) {
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &aside.callers);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  pthread_mutex_unlock(&aside.lock);
}

void tsr_mpi_put_handler_back(void) {
  pthread_mutex_lock(&aside.lock);
  if (--aside.depth == 0) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, aside.callers);
    MPI_Errhandler_free(&aside.callers);
  }
  pthread_mutex_unlock(&aside.lock);
}

static MPI_Request load(const tsr_request *request) {
  MPI_Request native;
  memcpy(&native, &request->native, sizeof native);
  return native;
}

static void store(tsr_request *request, MPI_Request native) {
  memcpy(&request->native, &native, sizeof native);
}

bool tsr_mpi_drop(MPI_Request *native, bool receives) {
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

static bool in_pieces(const tsr_mpi *mpi, const tsr_request *request) {
  return request->bytes > mpi->base.message_bytes_max;
}

static tsr_status post(const tsr_mpi *mpi, const tsr_request *request, int64_t offset, int64_t bytes,
                       MPI_Request *native, tsr_error *error) {
  char *data = bytes ? (char *)request->data + offset : NULL;
  bool sends = request->state == SENDING;
  int code = sends ? MPI_Isend(data, (int)bytes, MPI_BYTE, request->peer, request->tag, mpi->data, native)
                   : MPI_Irecv(data, (int)bytes, MPI_BYTE, request->peer, request->tag, mpi->data, native);
  if (code == MPI_SUCCESS) return TSR_OK;
  tsr_mpi_fail(error, code, sends ? "MPI_Isend" : "MPI_Irecv");
  return TSR_ERROR_RANK_LOST;
}

static tsr_status post_pieces(const tsr_mpi *mpi, tsr_request *request, tsr_error *error) {
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

/* What MPI does not let go of it may touch until MPI_Finalize. */
static void drop(tsr_mpi *mpi, MPI_Request *native, bool receives) {
  if (!tsr_mpi_drop(native, receives)) mpi->base.keeps_memory = true;
}

static void mpi_cancel(tsr_transport *transport, tsr_request *request) {
  tsr_mpi *mpi = (tsr_mpi *)transport;
  bool receives = request->state == RECEIVING;
  if (request->state == IDLE) return;
  if (tsr_shared_holds(request)) {
    tsr_shared_cancel(mpi->shared, request);
    return;
  }
  const bool known = request->state != UNREACHABLE;
  tsr_mpi_set_handler_aside();
  request->state = IDLE;
  mpi->in_flight -= known;
  if (known && in_pieces(mpi, request)) {
    pieces *all = request->native;
    for (int i = 0; all && i < all->count; i++) drop(mpi, &all->requests[i], receives);
    free(all);
  } else if (known) {
    MPI_Request native = load(request);
    drop(mpi, &native, receives);
  }
  tsr_mpi_put_handler_back();
}

/* What MPI says when the other end is gone is no error of this process. */
static void give_up(tsr_mpi *mpi, tsr_request *request, const tsr_error *reason) {
  tsr_log(mpi->base.context, TSR_LOG_WARNING, "comm", "rank %d cannot be reached: %s", request->peer,
          reason->message);
  mpi_cancel(&mpi->base, request);
  request->state = UNREACHABLE;
}

static tsr_status begin(tsr_mpi *mpi, tsr_request *request, tsr_error *error) {
  tsr_error own = {0};
  tsr_status status;
  mpi->in_flight++;
  if (in_pieces(mpi, request)) {
    status = post_pieces(mpi, request, &own);
  } else {
    MPI_Request native = MPI_REQUEST_NULL;
    status = post(mpi, request, 0, request->bytes, &native, &own);
    store(request, native);
  }
  if (status == TSR_OK) return TSR_OK;
  if (status == TSR_ERROR_RANK_LOST) {
    give_up(mpi, request, &own);
    return TSR_OK;
  }
  mpi_cancel(&mpi->base, request);
  if (error) *error = own;
  return status;
}

static tsr_status mpi_isend(tsr_transport *transport, int from, int to, int tag, const void *data,
                            int64_t bytes, tsr_request *request, tsr_error *error) {
  (void)from;
  tsr_mpi *mpi = (tsr_mpi *)transport;
  *request = (tsr_request){.state = SENDING, .peer = to, .tag = tag, .data = (void *)data, .bytes = bytes};
  transport->bytes_sent[0] += (uint64_t)bytes;
  if (!tsr_mpi_shares(mpi, to)) return begin(mpi, request, error);
  tsr_shared_send(mpi->shared, mpi->peers[to].shared_member, request);
  return TSR_OK;
}

static tsr_status receive(tsr_transport *transport, int from, int tag, void *data, int64_t bytes, bool view,
                          tsr_request *request, tsr_error *error) {
  tsr_mpi *mpi = (tsr_mpi *)transport;
  *request =
      (tsr_request){.state = RECEIVING, .peer = from, .tag = tag, .data = data, .view = data, .bytes = bytes};
  if (!tsr_mpi_shares(mpi, from)) return begin(mpi, request, error);
  tsr_shared_receive(mpi->shared, mpi->peers[from].shared_member, view, request);
  return TSR_OK;
}

static tsr_status mpi_irecv(tsr_transport *transport, int to, int from, int tag, void *data, int64_t bytes,
                            tsr_request *request, tsr_error *error) {
  (void)to;
  return receive(transport, from, tag, data, bytes, false, request, error);
}

static tsr_status mpi_irecv_view(tsr_transport *transport, int to, int from, int tag, void *data,
                                 int64_t bytes, tsr_request *request, tsr_error *error) {
  (void)to;
  return receive(transport, from, tag, data, bytes, true, request, error);
}

/* What came through MPI is a copy. */
static void mpi_release(tsr_transport *transport, tsr_request *request) {
  if (tsr_shared_holds(request)) tsr_shared_release(((tsr_mpi *)transport)->shared, request);
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
    if (class == MPI_ERR_TRUNCATE) return fail_size(request, -1, error);
    tsr_mpi_fail(error, code, "MPI_Test");
    return TSR_ERROR_RANK_LOST;
  }
  if (flag && request->state == RECEIVING) MPI_Get_count(&result, MPI_BYTE, &count);
  request->peer_bytes += count;
  return TSR_OK;
}

static tsr_status test_message(const tsr_mpi *mpi, tsr_request *request, bool *done, tsr_error *error) {
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
static tsr_status check_peer(const tsr_mpi *mpi, const tsr_request *request, tsr_error *error) {
  if (!tsr_liveness_left_long_ago(&mpi->liveness, request->peer)) return TSR_OK;
  return tsr_fail(
      error, TSR_ERROR_COMM,
      "rank %d destroyed its group while rank %d still exchanges %lld bytes with it: every rank must "
      "run the same collectives",
      request->peer, mpi->me, (long long)request->bytes);
}

static tsr_status finish_message(tsr_mpi *mpi, tsr_request *request, tsr_error *error) {
  bool receives = request->state == RECEIVING;
  if (in_pieces(mpi, request)) free(request->native);
  request->state = IDLE;
  mpi->in_flight--;
  if (!receives) return TSR_OK;
  tsr_liveness_heard(&mpi->liveness, request->peer);
  return request->peer_bytes == request->bytes ? TSR_OK : fail_size(request, request->peer_bytes, error);
}

static tsr_status test_shared(tsr_mpi *mpi, tsr_request *request, bool *done, tsr_error *error) {
  bool receives = request->state >= TSR_SHARED_POSTED;
  TSR_RETURN_IF_FAILED(tsr_shared_test(mpi->shared, request, done, error));
  if (*done && receives) tsr_liveness_heard(&mpi->liveness, request->peer);
  return TSR_OK;
}

static tsr_status test_mpi(tsr_mpi *mpi, tsr_request *request, bool *done, tsr_error *error) {
  tsr_error own = {0};
  *done = false;
  if (request->state == UNREACHABLE) return TSR_OK;
  tsr_mpi_set_handler_aside();
  tsr_status status = test_message(mpi, request, done, &own);
  tsr_mpi_put_handler_back();
  if (status == TSR_OK) return *done ? finish_message(mpi, request, error) : TSR_OK;
  *done = false;
  if (status == TSR_ERROR_RANK_LOST) {
    give_up(mpi, request, &own);
    return TSR_OK;
  }
  if (error) *error = own;
  return status;
}

static tsr_status mpi_test(tsr_transport *transport, tsr_request *request, bool *done, tsr_error *error) {
  tsr_mpi *mpi = (tsr_mpi *)transport;
  *done = true;
  if (request->state == IDLE) return TSR_OK;
  tsr_status status = tsr_shared_holds(request) ? test_shared(mpi, request, done, error)
                                                : test_mpi(mpi, request, done, error);
  if (status == TSR_OK && !*done) status = check_peer(mpi, request, error);
  if (status != TSR_OK) mpi_cancel(transport, request);
  return status;
}

static void *mpi_memory_create(tsr_transport *transport, int member, size_t bytes) {
  (void)member;
  tsr_mpi *mpi = (tsr_mpi *)transport;
  return mpi->shared ? tsr_shared_memory_create(mpi->shared, bytes) : NULL;
}

static void mpi_memory_destroy(tsr_transport *transport, void *memory) {
  if (memory) tsr_shared_memory_destroy(((tsr_mpi *)transport)->shared, memory);
}

static double mpi_now(tsr_transport *transport) {
  (void)transport;
  return tsr_clock_seconds();
}

const tsr_transport_ops tsr_mpi_ops = {
    .name = "mpi",
    .destroy = tsr_mpi_destroy,
    .isend = mpi_isend,
    .irecv = mpi_irecv,
    .irecv_view = mpi_irecv_view,
    .release = mpi_release,
    .test = mpi_test,
    .cancel = mpi_cancel,
    .beat = tsr_mpi_beat,
    .abandon = tsr_mpi_abandon,
    .memory_create = mpi_memory_create,
    .memory_destroy = mpi_memory_destroy,
    .rest = tsr_mpi_rest,
    .now = mpi_now,
};
