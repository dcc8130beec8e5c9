/* comm/transport_mpi_thread.c: gives this process's signs of life while its program computes. */
#include "comm/transport_mpi.h"

#include <errno.h>
#include <time.h>

static struct timespec in_seconds(double seconds) {
  const double most = 1e6; /* for the sake of time_t */
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  if (seconds > most) seconds = most;
  double nanoseconds = (double)at.tv_nsec + seconds * 1e9;
  at.tv_sec += (time_t)(nanoseconds / 1e9);
  at.tv_nsec = (long)(nanoseconds - 1e9 * (double)(time_t)(nanoseconds / 1e9));
  return at;
}

/* True once it is to end. */
static bool rest(tsr_mpi *mpi) {
  struct tsr_mpi_thread *thread = &mpi->thread;
  const struct timespec until = in_seconds(thread->interval);
  pthread_mutex_lock(&thread->lock);
  int code = 0;
  while (!thread->ends && code != ETIMEDOUT)
    code = pthread_cond_timedwait(&thread->wake, &thread->lock, &until);
  bool ends = thread->ends;
  pthread_mutex_unlock(&thread->lock);
  return ends;
}

static void *give_signs(void *argument) {
  tsr_mpi *mpi = argument;
  unsigned looks = mpi->thread.looks;
  while (!rest(mpi)) {
    const unsigned before = looks;
    looks = mpi->thread.looks;
    tsr_mpi_set_handler_aside();
    for (int rank = 0; rank < mpi->base.member_count; rank++)
      if (rank != mpi->me && !tsr_mpi_shares(mpi, rank))
        tsr_mpi_give_sign(mpi, rank, looks == before ? TSR_SIGN_WORKING : TSR_SIGN_BEAT);
    tsr_mpi_put_handler_back();
  }
  return NULL;
}

static void end_thread(struct tsr_mpi_thread *thread) {
  if (!thread->runs) return;
  pthread_mutex_lock(&thread->lock);
  thread->ends = true;
  pthread_cond_signal(&thread->wake);
  pthread_mutex_unlock(&thread->lock);
  pthread_join(thread->id, NULL);
  pthread_cond_destroy(&thread->wake);
  pthread_mutex_destroy(&thread->lock);
  thread->runs = false;
}

/* MPI_Finalize releases the attributes of MPI_COMM_SELF before anything else: a group that is destroyed after
 * it must have no thread that calls MPI. */
static int end_with_mpi(MPI_Comm self, int key, void *value, void *unused) {
  (void)self;
  (void)key;
  (void)unused;
  end_thread(value);
  return MPI_SUCCESS;
}

static bool create_wake(pthread_cond_t *out) {
  pthread_condattr_t attributes;
  if (pthread_condattr_init(&attributes)) return false;
  bool made =
      !pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) && !pthread_cond_init(out, &attributes);
  pthread_condattr_destroy(&attributes);
  return made;
}

void tsr_mpi_thread_start(tsr_mpi *mpi) {
  struct tsr_mpi_thread *thread = &mpi->thread;
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level != MPI_THREAD_MULTIPLE || !mpi->spans_hosts || !create_wake(&thread->wake)) return;
  pthread_mutex_init(&thread->lock, NULL);
  thread->interval = tsr_liveness_sign_seconds(mpi->liveness.deadline);
  if (pthread_create(&thread->id, NULL, give_signs, mpi)) {
    pthread_cond_destroy(&thread->wake);
    pthread_mutex_destroy(&thread->lock);
    return;
  }
  thread->runs = true;
  bool keyed = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, end_with_mpi, &thread->key, NULL) == MPI_SUCCESS;
  if (keyed && MPI_Comm_set_attr(MPI_COMM_SELF, thread->key, thread) == MPI_SUCCESS) return;
  if (keyed) MPI_Comm_free_keyval(&thread->key);
  end_thread(thread);
}

void tsr_mpi_thread_stop(tsr_mpi *mpi) {
  if (!mpi->thread.runs) return;
  end_thread(&mpi->thread); /* first: MPI may hold a lock while it calls end_with_mpi */
  MPI_Comm_delete_attr(MPI_COMM_SELF, mpi->thread.key);
  MPI_Comm_free_keyval(&mpi->thread.key);
}
