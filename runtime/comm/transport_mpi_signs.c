/* comm/transport_mpi_signs.c: signs of life, resting, and parting. */
#include "comm/transport_mpi.h"

#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"

/* What fails here is no error of its own: it is silence, and after the deadline the peer is lost. */

void tsr_mpi_expect_sign(tsr_mpi *mpi, int rank) {
  tsr_mpi_peer *from = &mpi->peers[rank];
  if (MPI_Irecv(&from->received, 1, MPI_BYTE, rank, 0, mpi->signs, &from->receive) != MPI_SUCCESS)
    from->receive = MPI_REQUEST_NULL;
}

/* What a rank of this host says of itself. */
static void look_shared(tsr_mpi *mpi, int rank) {
  tsr_mpi_peer *peer = &mpi->peers[rank];
  uint32_t beats = tsr_shared_beats(mpi->shared, peer->shared_member);
  unsigned signs = tsr_shared_signs_of(mpi->shared, peer->shared_member);
  if (beats != peer->beats_heard) tsr_liveness_heard(&mpi->liveness, rank);
  peer->beats_heard = beats;
  if (signs & TSR_SHARED_FAILED) mpi->base.failed_member = rank;
  if (signs & TSR_SHARED_LEFT && !mpi->liveness.peers[rank].left) tsr_liveness_left(&mpi->liveness, rank);
}

/* What arrived from one peer since the last look. */
static void look(tsr_mpi *mpi, int rank) {
  tsr_mpi_peer *from = &mpi->peers[rank];
  if (tsr_mpi_shares(mpi, rank)) look_shared(mpi, rank);
  while (from->receive != MPI_REQUEST_NULL) {
    int done = 0;
    if (MPI_Test(&from->receive, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done) return;
    if (from->received == TSR_SIGN_WORKING)
      tsr_liveness_lives(&mpi->liveness, rank);
    else
      tsr_liveness_heard(&mpi->liveness, rank);
    if (from->received == TSR_SIGN_FAILURE) mpi->base.failed_member = rank;
    if (from->received == TSR_SIGN_FAREWELL)
      tsr_liveness_left(&mpi->liveness, rank);
    else
      tsr_mpi_expect_sign(mpi, rank);
  }
}

/* Who has left listens until it hears our farewell, so it gets beats too. */
bool tsr_mpi_give_sign(tsr_mpi *mpi, int rank, tsr_mpi_sign sign) {
  tsr_mpi_peer *to = &mpi->peers[rank];
  int done = 0;
  if (tsr_mpi_shares(mpi, rank)) return true;
  if (MPI_Test(&to->send, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done) return false;
  to->sent = (char)sign;
  return MPI_Isend(&to->sent, 1, MPI_BYTE, rank, 0, mpi->signs, &to->send) == MPI_SUCCESS;
}

static void exchange_signs(tsr_mpi *mpi, bool give) {
  if (give && mpi->shared) tsr_shared_beat(mpi->shared);
  for (int rank = 0; rank < mpi->base.member_count; rank++) {
    if (rank == mpi->me) continue;
    look(mpi, rank);
    if (give && !mpi->thread.runs) tsr_mpi_give_sign(mpi, rank, TSR_SIGN_BEAT);
  }
}

/* A rank that is silent for longer than the deadline and does not live either; -1 = none. */
static int silent_rank(tsr_mpi *mpi) {
  int rank = tsr_liveness_lost(&mpi->liveness);
  if (rank >= 0 && !tsr_process_lives(&mpi->processes[mpi->me], &mpi->processes[rank])) return rank;
  if (rank >= 0) tsr_liveness_lives(&mpi->liveness, rank);
  int slow = tsr_liveness_slow(&mpi->liveness);
  if (slow >= 0)
    tsr_log(mpi->base.context, TSR_LOG_WARNING, "comm",
            "rank %d is slow: no sign of it for more than half of the deadline of %g s; waiting on", slow,
            mpi->liveness.deadline);
  return -1;
}

tsr_status tsr_mpi_beat(tsr_transport *transport, double deadline_seconds, int *lost, tsr_error *error) {
  (void)error;
  tsr_mpi *mpi = (tsr_mpi *)transport;
  *lost = -1;
  tsr_liveness_due due = tsr_liveness_call(&mpi->liveness, tsr_clock_seconds(), deadline_seconds);
  if (due == TSR_LIVENESS_NOTHING) return TSR_OK;
  mpi->thread.looks++;
  tsr_mpi_set_handler_aside();
  exchange_signs(mpi, due == TSR_LIVENESS_SIGN);
  tsr_mpi_put_handler_back();
  *lost = mpi->base.failed_member >= 0 ? mpi->base.failed_member : silent_rank(mpi);
  mpi->broken = *lost >= 0;
  return TSR_OK;
}

/* Says to all that this process failed, so that nobody waits for it. What cannot be said is silence, and
 * found as such. */
void tsr_mpi_abandon(tsr_transport *transport) {
  tsr_mpi *mpi = (tsr_mpi *)transport;
  double until = tsr_clock_seconds() + 1;
  tsr_mpi_thread_stop(mpi);
  if (mpi->shared) tsr_shared_give_sign(mpi->shared, TSR_SHARED_FAILED);
  tsr_mpi_set_handler_aside();
  for (int rank = 0; rank < mpi->base.member_count; rank++)
    while (rank != mpi->me && !tsr_mpi_give_sign(mpi, rank, TSR_SIGN_FAILURE) && tsr_clock_seconds() < until)
      sched_yield();
  tsr_mpi_put_handler_back();
  mpi->broken = true;
}

/* MPI sends on what it has kept back only while it is called. */
static void ask_mpi(const tsr_mpi *mpi) {
  int any;
  tsr_mpi_set_handler_aside();
  (void)MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi->signs, &any, MPI_STATUS_IGNORE);
  tsr_mpi_put_handler_back();
}

/* MPI wakes nobody: where it is in use, rest is short. Where ranks outnumber cores, whoever is waited for
 * must get one, and only a sleep gives it to the processes of other sessions (mpiexec gives each rank its
 * own); elsewhere a sleep would end late. */
void tsr_mpi_rest(tsr_transport *transport, double seconds_max) {
  const double a_moment = 20e-6, a_while = 200e-6;
  const struct timespec moment = {.tv_nsec = 20000};
  tsr_mpi *mpi = (tsr_mpi *)transport;
  double limit = !mpi->spans_hosts ? seconds_max : mpi->in_flight ? a_moment : a_while;
  if (mpi->shared) {
    tsr_shared_rest(mpi->shared, seconds_max < limit ? seconds_max : limit, !mpi->base.crowded);
    if (mpi->spans_hosts && !mpi->in_flight) ask_mpi(mpi);
  } else if (mpi->base.crowded) {
    nanosleep(&moment, NULL);
  } else {
    sched_yield();
  }
}

/* ---- the end ---- */

/* One turn of parting from one peer: true once both farewells have arrived. */
static bool part(tsr_mpi *mpi, int rank) {
  tsr_mpi_peer *other = &mpi->peers[rank];
  int sent = 0;
  look(mpi, rank);
  if (tsr_mpi_shares(mpi, rank)) return mpi->liveness.peers[rank].left;
  if (!other->farewell_sent) other->farewell_sent = tsr_mpi_give_sign(mpi, rank, TSR_SIGN_FAREWELL);
  if (!other->farewell_sent || MPI_Test(&other->send, &sent, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
  return sent && mpi->liveness.peers[rank].left;
}

/* Tells all farewell and, unless a member was lost, waits for theirs; false if somebody's did not come. */
static bool part_from_all(tsr_mpi *mpi) {
  const double a_look = 1e-3;
  tsr_mpi_thread_stop(mpi);
  if (mpi->shared) tsr_shared_give_sign(mpi->shared, TSR_SHARED_LEFT);
  for (;;) {
    bool all = true;
    for (int rank = 0; rank < mpi->base.member_count; rank++)
      if (rank != mpi->me && !part(mpi, rank)) all = false;
    if (mpi->broken) return false;
    if (all) return true;
    tsr_liveness_call(&mpi->liveness, tsr_clock_seconds(), mpi->liveness.deadline);
    if (tsr_liveness_lost(&mpi->liveness) >= 0) return false;
    tsr_mpi_rest(&mpi->base, a_look);
  }
}

/* MPI_Comm_free is collective: without a farewell from all it could wait for ever, so the communicators are
 * left to MPI_Finalize, and so is the memory of a sign that MPI still holds. */
static void abandon(tsr_mpi *mpi) {
  bool all = true;
  for (int rank = 0; rank < mpi->base.member_count; rank++) {
    bool received = tsr_mpi_drop(&mpi->peers[rank].receive, true),
         sent = tsr_mpi_drop(&mpi->peers[rank].send, false);
    all = all && received && sent;
  }
  if (!all) mpi->peers = NULL;
  tsr_log(mpi->base.context, TSR_LOG_WARNING, "comm",
          "not every rank destroyed its group: two communicators are left to MPI_Finalize");
}

static void end_signs(tsr_mpi *mpi) {
  tsr_mpi_set_handler_aside();
  if (part_from_all(mpi)) {
    MPI_Comm_free(&mpi->data);
    MPI_Comm_free(&mpi->signs);
  } else {
    abandon(mpi);
  }
  tsr_mpi_put_handler_back();
}

void tsr_mpi_destroy(tsr_transport *transport) {
  tsr_mpi *mpi = (tsr_mpi *)transport;
  int finalized = 0;
  MPI_Finalized(&finalized); /* which has stopped the thread */
  if (mpi->started && !finalized) end_signs(mpi);
  if (!mpi->base.keeps_memory) tsr_shared_destroy(&mpi->shared);
  tsr_liveness_finish(&mpi->liveness);
  free(mpi->offers);
  free(mpi->processes);
  tsr_transport_finish(transport);
  free(mpi->peers);
  free(mpi);
}
