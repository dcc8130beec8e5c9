/* comm/shared_wait.c: doorbells and signs of life.
 *
 * Whoever did something for another process counts up that process's rings, and wakes it if it rests. A
 * process that rests says so first and then sleeps on the number of rings that it knows of: either the other
 * sees that it rests, or the kernel sees that the number has changed. */
#include "comm/shared_inside.h"

#include <math.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#include "base/clock.h"

/* Being woken takes some tens of microseconds, so spinning pays for about as long. */
static const double spin_seconds_max = 50e-6, spin_seconds_min = 1e-6;
/* Where cores are enough it is not worth sleeping for so short a time; and who may rest for no longer than
 * that waits for something else as well, which spinning would keep from the core. */
static const double short_seconds = 60e-6, long_seconds = 1e-3;

static void sleep_on(_Atomic uint32_t *word, uint32_t value, double seconds) {
  const struct timespec limit = {.tv_sec = (time_t)seconds,
                                 .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
#ifdef SYS_futex
  syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
#else
  if (atomic_load(word) == value) nanosleep(&limit, NULL);
#endif
}

static void wake(_Atomic uint32_t *word) {
#ifdef SYS_futex
  syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
#else
  (void)word;
#endif
}

void tsr_shared_ring(const tsr_shared *shared, int member) {
  tsr_shared_control *control = shared->peers[member].control;
  atomic_fetch_add(&control->rings, 1);
  if (atomic_load(&control->resting)) wake(&control->rings);
}

static void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* True if something happened meanwhile. */
static bool spin_for(const tsr_shared *shared, double until) {
  enum { PAUSES = 32 }; /* between two looks at the clock */
  do {
    for (int i = 0; i < PAUSES; i++) {
      if (atomic_load_explicit(&shared->control->rings, memory_order_acquire) != shared->rings_seen)
        return true;
      pause_core();
    }
  } while (tsr_clock_seconds() < until);
  return false;
}

/* Spinning for nothing takes a core from somebody: the next time it is half as long. */
static bool spin(tsr_shared *shared, double began) {
  if (spin_for(shared, began + shared->spin_seconds)) {
    shared->spin_seconds = spin_seconds_max;
    return true;
  }
  shared->spin_seconds = fmax(shared->spin_seconds / 2, spin_seconds_min);
  return false;
}

static void sleep_until_rung(tsr_shared *shared, double began, double seconds_max) {
  tsr_shared_control *control = shared->control;
  atomic_store(&control->resting, 1);
  sleep_on(&control->rings, shared->rings_seen, seconds_max);
  atomic_store(&control->resting, 0);
  /* It would have paid after all. */
  if (tsr_clock_seconds() - began < 2 * spin_seconds_max) shared->spin_seconds = spin_seconds_max;
}

void tsr_shared_rest(tsr_shared *shared, double seconds_max, bool may_spin) {
  const double began = tsr_clock_seconds();
  bool rung = atomic_load(&shared->control->rings) != shared->rings_seen;
  if (!rung && may_spin && seconds_max < short_seconds)
    sched_yield();
  else if (!rung && !(may_spin && seconds_max > long_seconds && spin(shared, began)))
    sleep_until_rung(shared, began, seconds_max);
  shared->rings_seen = atomic_load(&shared->control->rings);
  tsr_shared_progress(shared);
}

void tsr_shared_beat(tsr_shared *shared) {
  atomic_fetch_add_explicit(&shared->control->beats, 1, memory_order_relaxed);
}

void tsr_shared_give_sign(tsr_shared *shared, tsr_shared_sign sign) {
  atomic_fetch_or(&shared->control->signs, (uint32_t)sign);
  for (int member = 0; member < shared->members; member++)
    if (member != shared->me && shared->peers[member].control) tsr_shared_ring(shared, member);
}

uint32_t tsr_shared_beats(const tsr_shared *shared, int member) {
  return atomic_load_explicit(&shared->peers[member].control->beats, memory_order_relaxed);
}

unsigned tsr_shared_signs_of(const tsr_shared *shared, int member) {
  return atomic_load(&shared->peers[member].control->signs);
}
