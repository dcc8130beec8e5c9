/* comm/transport_mpi_thread.c: gives this process's signs of life while its program computes. */
#include "comm/transport_mpi.h"

#include <errno.h>
#include <time.h>

static struct timespec in_seconds(double seconds) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  double nanoseconds = (double)at.tv_nsec + seconds * 1e9;
  at.tv_sec += (time_t)(nanoseconds / 1e9);
  at.tv_nsec = (long)(nanoseconds - 1e9 * (double)(time_t)(nanoseconds / 1e9));
  return at;
}

/* True once it is to end. */
static bool rest(tsr_mpi *mpi) {
  struct tsr_mpi_thread *thread = &mpi->thread;
  const struct timespec until = in_seconds(tsr_liveness_sign_seconds(mpi->liveness.deadline));
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

/* MPI_Finalize releases the attributes of MPI_COMM_SELF before anything else. */
static int end_with_mpi(MPI_Comm self, int key, void *value, void *unused) {
  (void)self;
  (void)key;
  (void)unused;
  tsr_mpi *mpi = value;
  struct tsr_mpi_thread *thread = &mpi->thread;
  if (!thread->runs) return MPI_SUCCESS;
  pthread_mutex_lock(&thread->lock);
  thread->ends = true;
  pthread_cond_signal(&thread->wake);
  pthread_mutex_unlock(&thread->lock);
  pthread_join(thread->id, NULL);
  pthread_cond_destroy(&thread->wake);
  pthread_mutex_destroy(&thread->lock);
  thread->runs = false;
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
  if (level != MPI_THREAD_MULTIPLE || !mpi->spans_hosts) return;
  if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, end_with_mpi, &thread->key, NULL) != MPI_SUCCESS) return;
  if (MPI_Comm_set_attr(MPI_COMM_SELF, thread->key, mpi) != MPI_SUCCESS || !create_wake(&thread->wake))
    return;
  pthread_mutex_init(&thread->lock, NULL);
  thread->runs = true; /* before it does: it must not wonder */
  if (!pthread_create(&thread->id, NULL, give_signs, mpi)) return;
  thread->runs = false;
  pthread_cond_destroy(&thread->wake);
  pthread_mutex_destroy(&thread->lock);
}

void tsr_mpi_thread_stop(tsr_mpi *mpi) {
  if (!mpi->thread.runs) return;
  MPI_Comm_delete_attr(MPI_COMM_SELF, mpi->thread.key);
  MPI_Comm_free_keyval(&mpi->thread.key);
}
