/* tests/comm/shared_pair.c: see shared_pair.h. */
#include "shared_pair.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static const double patience_seconds = 20;

bool shared_make_linked(tsr_shared **all, int members, uint64_t arena_bytes, tsr_error *error) {
  for (int i = 0; i < members; i++)
    if (tsr_shared_create(members, i, arena_bytes, &all[i], error) != TSR_OK) {
      shared_destroy_all(all, i);
      return false;
    }
  tsr_shared_link(all, members);
  return true;
}

void shared_destroy_all(tsr_shared **all, int members) {
  for (int i = 0; i < members; i++) tsr_shared_destroy(&all[i]);
}

/* What the processes of one run have in common. */
typedef struct board {
  tsr_shared_offer offers[SHARED_MEMBERS_MAX];
  _Atomic int offered, joined, ended;
} board;

static void wait_for(_Atomic int *count, int members) {
  double until = tsr_clock_seconds() + patience_seconds;
  while (atomic_load(count) < members && tsr_clock_seconds() < until) usleep(100);
}

static int run_member(board *board, int members, int me, shared_body *body, bool waits) {
  tsr_shared *shared;
  tsr_error error;
  if (tsr_shared_create(members, me, 0, &shared, &error) != TSR_OK) {
    printf("process %d: %s\n", me, error.message);
    return 1;
  }
  tsr_shared_get_offer(shared, &board->offers[me]);
  atomic_fetch_add(&board->offered, 1);
  wait_for(&board->offered, members);
  if (tsr_shared_join(shared, board->offers, &error) != TSR_OK) {
    printf("process %d: %s\n", me, error.message);
    return 1;
  }
  atomic_fetch_add(&board->joined, 1);
  wait_for(&board->joined, members);
  bool right = body(shared, me);
  atomic_fetch_add(&board->ended, 1);
  if (waits) wait_for(&board->ended, members);
  tsr_shared_destroy(&shared);
  return !right;
}

bool shared_run(int members, shared_body *body, int victim) {
  pid_t children[SHARED_MEMBERS_MAX];
  bool right = true;
  board *common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (common == MAP_FAILED) return false;
  fflush(NULL);
  for (int i = 0; i < members; i++) {
    children[i] = fork();
    if (!children[i]) _exit(run_member(common, members, i, body, victim < 0));
  }
  for (int i = 0; i < members; i++) {
    int status = 0;
    waitpid(children[i], &status, 0);
    bool expected = i == victim ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                : WIFEXITED(status) && !WEXITSTATUS(status);
    if (!expected) printf("process %d ended with status %#x\n", i, (unsigned)status);
    right &= expected;
  }
  munmap(common, sizeof *common);
  return right;
}

static unsigned char pattern(int64_t at, unsigned seed) {
  return (unsigned char)((uint64_t)(at + 1) * (2654435761u + 2 * seed) >> 13);
}

void shared_fill(void *data, int64_t bytes, unsigned seed) {
  for (int64_t i = 0; i < bytes; i++) ((unsigned char *)data)[i] = pattern(i, seed);
}

bool shared_is(const void *data, int64_t bytes, unsigned seed) {
  for (int64_t i = 0; i < bytes; i++)
    if (((const unsigned char *)data)[i] != pattern(i, seed)) return false;
  return true;
}

tsr_request shared_request(void *data, int64_t bytes, int tag, int peer) {
  return (tsr_request){.data = data, .bytes = bytes, .tag = tag, .peer = peer};
}

bool shared_wait(tsr_shared *shared, tsr_request *request, bool rests) {
  double until = tsr_clock_seconds() + patience_seconds;
  tsr_error error;
  bool done = false;
  while (tsr_clock_seconds() < until) {
    if (request->state == 0) return true;
    tsr_status status = tsr_shared_test(shared, request, &done, &error);
    if (status != TSR_OK) printf("%s\n", error.message);
    if (done || status != TSR_OK) return status == TSR_OK;
    if (rests)
      tsr_shared_rest(shared, 0.01, false);
    else
      sched_yield();
  }
  printf("a message of %lld bytes, tag %d, is still in state %d\n", (long long)request->bytes, request->tag,
         request->state);
  return false;
}
