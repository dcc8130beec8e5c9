/* tests/comm/test_shared.c: messages through shared memory, without MPI: linked instances of one process,
 * stepped by hand, for what must happen; threads, for a race detector; processes, for mapping, resting and
 * dying. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "shared_pair.h"

enum { LANE_BYTES = TSR_SHARED_LANE_CHUNKS * TSR_SHARED_CHUNK_BYTES, LARGEST = 3 * LANE_BYTES + 5 };

static const int64_t sizes[] = {0,
                                1,
                                63,
                                TSR_SHARED_INLINE_BYTES - 1,
                                TSR_SHARED_INLINE_BYTES,
                                TSR_SHARED_INLINE_BYTES + 1,
                                TSR_SHARED_CHUNK_BYTES - 1,
                                TSR_SHARED_CHUNK_BYTES,
                                TSR_SHARED_CHUNK_BYTES + 1,
                                LANE_BYTES - 1,
                                LANE_BYTES,
                                LANE_BYTES + 1,
                                LARGEST};
enum { SIZES = sizeof sizes / sizeof *sizes };

static tsr_shared *all[SHARED_MEMBERS_MAX];
static tsr_error error;
static char *in, *out;

static int make_pair(void **state) {
  (void)state;
  in = malloc(LARGEST + 1);
  out = malloc(LARGEST + 1);
  return !in || !out || !shared_make_linked(all, 2, 64 << 20, &error);
}

static int drop_pair(void **state) {
  (void)state;
  assert_int_equal(all[0]->free_record_count, TSR_SHARED_RECORDS);
  assert_int_equal(all[0]->free_lane_count, TSR_SHARED_LANES);
  shared_destroy_all(all, 2);
  free(in);
  free(out);
  return 0;
}

static bool test_now(int who, tsr_request *request) {
  bool done = request->state == 0;
  if (!done) assert_int_equal(tsr_shared_test(all[who], request, &done, &error), TSR_OK);
  return done;
}

/* Both sides in turn. */
static void finish_both(tsr_request *send, tsr_request *receive) {
  for (int turn = 0; turn < 1000; turn++) {
    bool sent = test_now(0, send), received = test_now(1, receive);
    if (sent && received) return;
  }
  fail_msg("%lld bytes do not arrive", (long long)send->bytes);
}

typedef enum order { SEND_FIRST, RECEIVE_FIRST, SEND_AND_SEEN } order;

static void exchange(char *data, int64_t bytes, order order, bool view) {
  tsr_request send = shared_request(data, bytes, 7, 1), receive = shared_request(out, bytes, 7, 0);
  shared_fill(data, bytes, (unsigned)bytes);
  memset(out, 0, (size_t)bytes + 1);
  if (order == RECEIVE_FIRST) tsr_shared_receive(all[1], 0, view, &receive);
  tsr_shared_send(all[0], 1, &send);
  if (order == SEND_AND_SEEN) tsr_shared_progress(all[1]);
  if (order != RECEIVE_FIRST) tsr_shared_receive(all[1], 0, view, &receive);
  bool in_arena = data >= all[0]->arena && data < all[0]->arena + all[0]->arena_bytes;
  if (view && in_arena && bytes > TSR_SHARED_INLINE_BYTES) {
    while (!test_now(1, &receive)) test_now(0, &send);
    assert_ptr_equal(receive.view, data);
    assert_false(test_now(0, &send));
    assert_true(test_now(1, &receive));
    tsr_shared_release(all[1], &receive);
    assert_true(test_now(0, &send));
    assert_int_equal(out[0], 0);
    return;
  }
  finish_both(&send, &receive);
  assert_ptr_equal(receive.view, out);
  assert_true(shared_is(out, bytes, (unsigned)bytes));
  assert_int_equal(out[bytes], 0);
  tsr_shared_release(all[1], &receive);
}

static void every_size(void **state) {
  (void)state;
  char *arena = tsr_shared_memory_create(all[0], LARGEST);
  assert_non_null(arena);
  for (int i = 0; i < SIZES; i++)
    for (int way = 0; way < 12; way++) exchange(way & 1 ? arena : in, sizes[i], (order)(way / 4), way & 2);
  tsr_shared_memory_destroy(all[0], arena);
}

/* Data that ends where the arena does is the arena's. */
static void at_the_end_of_the_arena(void **state) {
  (void)state;
  char *end = all[0]->arena + all[0]->arena_bytes - 4096;
  tsr_request send = shared_request(end, 4096, 1, 1), receive = shared_request(out, 4096, 1, 0);
  tsr_shared_receive(all[1], 0, true, &receive);
  tsr_shared_send(all[0], 1, &send);
  while (!test_now(1, &receive)) {
  }
  assert_ptr_equal(receive.view, end);
  tsr_shared_release(all[1], &receive);
  assert_true(test_now(0, &send));
}

enum { MANY = 300 };

/* More messages than a mailbox has room for, long and short ones, received by tag from the last to the first;
 * two of each tag, in the order in which they were sent. */
static void many_tags_out_of_order(void **state) {
  (void)state;
  static tsr_request sends[2 * MANY], receives[2 * MANY];
  enum { BYTES = 3000 };
  char *sent = malloc(2 * MANY * BYTES), *received = calloc(2 * MANY, BYTES);
  for (int i = 0; i < 2 * MANY; i++) {
    int64_t bytes = i % 3 ? BYTES : 100;
    shared_fill(sent + i * BYTES, bytes, (unsigned)i);
    sends[i] = shared_request(sent + i * BYTES, bytes, i % MANY, 1);
    tsr_shared_send(all[0], 1, &sends[i]);
  }
  for (int tag = MANY - 1; tag >= 0; tag--)
    for (int i = tag; i < 2 * MANY; i += MANY) {
      receives[i] = shared_request(received + i * BYTES, sends[i].bytes, tag, 0);
      tsr_shared_receive(all[1], 0, i % 2, &receives[i]);
      finish_both(i % 3 ? &sends[i] : &(tsr_request){0}, &receives[i]);
      assert_true(shared_is(receives[i].view, receives[i].bytes, (unsigned)i));
    }
  for (int i = 0; i < 2 * MANY; i++) assert_true(test_now(0, &sends[i]));
  free(sent);
  free(received);
}

/* Receives that wait are found by their tags, in any order. */
static void receives_wait_by_tag(void **state) {
  (void)state;
  enum { COUNT = 10 };
  tsr_request sends[COUNT], receives[COUNT];
  char sent[COUNT], received[COUNT];
  for (int i = 0; i < COUNT; i++) {
    receives[i] = shared_request(&received[i], 1, i / 2, 0);
    tsr_shared_receive(all[1], 0, false, &receives[i]);
  }
  for (int k = 0; k < COUNT; k++) {
    int i = (COUNT - 2 - k / 2 * 2) + k % 2; /* tags from the last to the first, both of each in order */
    sent[i] = (char)(i + 1);
    sends[i] = shared_request(&sent[i], 1, i / 2, 1);
    tsr_shared_send(all[0], 1, &sends[i]);
    finish_both(&sends[i], &receives[i]);
    assert_int_equal(received[i], i + 1);
  }
}

/* More long messages than there are lanes; those that nobody asks for do not hold up the one that is. */
static void lanes_are_not_held_up(void **state) {
  (void)state;
  enum { COUNT = 3 * TSR_SHARED_LANES };
  tsr_request sends[COUNT], receives[COUNT];
  for (int i = 0; i < COUNT; i++) {
    sends[i] = shared_request(in, LARGEST, i, 1);
    tsr_shared_send(all[0], 1, &sends[i]);
  }
  for (int i = COUNT - 1; i >= 0; i--) {
    receives[i] = shared_request(out, LARGEST, i, 0);
    tsr_shared_receive(all[1], 0, false, &receives[i]);
    finish_both(&sends[i], &receives[i]);
  }
}

static void to_oneself(void **state) {
  (void)state;
  tsr_request send = shared_request(in, LARGEST, 1, 0), receive = shared_request(out, LARGEST, 1, 0);
  shared_fill(in, LARGEST, 5);
  tsr_shared_send(all[0], 0, &send);
  tsr_shared_receive(all[0], 0, false, &receive);
  for (bool sent = false, received = false; !sent || !received;) {
    sent = test_now(0, &send);
    received = test_now(0, &receive);
  }
  assert_true(shared_is(out, LARGEST, 5));
}

static void another_size_is_an_error(void **state) {
  (void)state;
  char *arena = tsr_shared_memory_create(all[0], 100000);
  char *const places[] = {in, in, in, arena};
  const int64_t sent[] = {98, 100, 100000, 100000};
  for (int i = 0; i < 4; i++) {
    char text[64];
    snprintf(text, sizeof text, "sent %d bytes, 99 were expected", (int)sent[i]);
    bool done;
    tsr_request send = shared_request(places[i], sent[i], 3, 1), receive = shared_request(out, 99, 3, 0);
    tsr_shared_send(all[0], 1, &send);
    tsr_shared_receive(all[1], 0, false, &receive);
    assert_int_equal(tsr_shared_test(all[1], &receive, &done, &error), TSR_ERROR_COMM);
    assert_non_null(strstr(error.message, text));
    assert_int_equal(receive.state, 0);
    assert_true(test_now(0, &send));
  }
  tsr_shared_memory_destroy(all[0], arena);
}

/* ---- giving up ---- */

/* A send that is cancelled before anybody has begun to read it is not received; the next one is. */
static void a_cancelled_send_is_gone(void **state) {
  (void)state;
  for (int early = 0; early < 2; early++) {
    tsr_request send = shared_request(in, LARGEST, 1, 1), again = shared_request(in, LARGEST, 1, 1);
    tsr_request receive = shared_request(out, LARGEST, 1, 0);
    shared_fill(in, LARGEST, 1);
    tsr_shared_send(all[0], 1, &send);
    if (early) tsr_shared_progress(all[1]);
    tsr_shared_cancel(all[0], &send);
    assert_int_equal(send.state, 0);
    tsr_shared_receive(all[1], 0, false, &receive);
    assert_false(test_now(1, &receive));
    shared_fill(in, LARGEST, 2);
    tsr_shared_send(all[0], 1, &again);
    finish_both(&again, &receive);
    assert_true(shared_is(out, LARGEST, 2));
  }
}

/* The reader is in the midst of it: record and lane stay until it is through, then they are used again. */
static void a_send_is_cancelled_in_mid_message(void **state) {
  (void)state;
  tsr_request send = shared_request(in, LARGEST, 1, 1), receive = shared_request(out, LARGEST, 1, 0);
  tsr_shared_receive(all[1], 0, false, &receive);
  tsr_shared_send(all[0], 1, &send);
  assert_false(test_now(1, &receive));
  assert_int_equal(receive.state, TSR_SHARED_READING);
  tsr_shared_cancel(all[0], &send);
  tsr_shared_progress(all[0]);
  assert_int_equal(all[0]->free_record_count, TSR_SHARED_RECORDS - 1);
  assert_int_equal(all[0]->free_lane_count, TSR_SHARED_LANES - 1);
  assert_false(test_now(1, &receive));
  tsr_shared_cancel(all[1], &receive);
  tsr_shared_progress(all[0]);
  assert_int_equal(all[0]->free_record_count, TSR_SHARED_RECORDS);
}

static void a_receive_is_cancelled(void **state) {
  (void)state;
  char *arena = tsr_shared_memory_create(all[0], LARGEST);
  for (int way = 0; way < 6; way++) {
    char *data = way & 1 ? arena : in;
    int looks = way / 2; /* posted; in mid-message or viewed; before the message came */
    tsr_request send = shared_request(data, LARGEST, 1, 1), receive = shared_request(out, LARGEST, 1, 0);
    tsr_request next = shared_request(out, LARGEST, 1, 0);
    if (looks == 2) {
      tsr_shared_receive(all[1], 0, true, &receive);
      tsr_shared_cancel(all[1], &receive);
    }
    tsr_shared_send(all[0], 1, &send);
    if (looks == 2) {
      tsr_shared_receive(all[1], 0, false, &next);
      finish_both(&send, &next);
      continue;
    }
    tsr_shared_receive(all[1], 0, true, &receive);
    for (int i = 0; i < looks; i++) test_now(1, &receive);
    tsr_shared_cancel(all[1], &receive);
    assert_int_equal(receive.state, 0);
    if (looks == 0) {
      tsr_shared_receive(all[1], 0, false, &next);
      finish_both(&send, &next);
    }
    assert_true(test_now(0, &send));
  }
  tsr_shared_memory_destroy(all[0], arena);
}

static void a_waiting_send_is_cancelled(void **state) {
  (void)state;
  tsr_request sends[TSR_SHARED_SLOTS + 2], receive;
  char data[TSR_SHARED_SLOTS + 2], received;
  for (int i = 0; i < TSR_SHARED_SLOTS + 2; i++) {
    data[i] = (char)i;
    sends[i] = shared_request(&data[i], 1, 1, 1);
    tsr_shared_send(all[0], 1, &sends[i]);
  }
  assert_int_equal(sends[TSR_SHARED_SLOTS].state, TSR_SHARED_WAITING);
  tsr_shared_cancel(all[0], &sends[TSR_SHARED_SLOTS]);
  for (int i = 0; i < TSR_SHARED_SLOTS + 2; i++) {
    if (i == TSR_SHARED_SLOTS) continue;
    receive = shared_request(&received, 1, 1, 0);
    tsr_shared_receive(all[1], 0, false, &receive);
    finish_both(&sends[i], &receive);
    assert_int_equal(received, i);
  }
}

/* ---- memory ---- */

static void arena_memory(void **state) {
  (void)state;
  char *a = tsr_shared_memory_create(all[0], 1), *b = tsr_shared_memory_create(all[0], 3 << 20);
  char *c = tsr_shared_memory_create(all[0], 5000);
  assert_true(a && b && c);
  assert_int_equal((uintptr_t)a % 4096 | (uintptr_t)b % 4096 | (uintptr_t)c % 4096, 0);
  memset(b, 1, 3 << 20);
  c[4999] = 7;
  tsr_shared_memory_destroy(all[0], b);
  char *again = tsr_shared_memory_create(all[0], 2 << 20);
  assert_ptr_equal(again, b); /* and it is zero again */
  for (int i = 0; i < 2 << 20; i++) assert_int_equal(again[i], 0);
  assert_int_equal(c[4999], 7);
  tsr_shared_memory_destroy(all[0], a);
  tsr_shared_memory_destroy(all[0], c);
  tsr_shared_memory_destroy(all[0], again);
  tsr_shared_memory_destroy(all[0], NULL);
  assert_null(all[0]->blocks->next);
}

static void arena_runs_out(void **state) {
  (void)state;
  assert_null(tsr_shared_memory_create(all[0], (64 << 20) + 1));
  assert_null(tsr_shared_memory_create(all[0], SIZE_MAX));
  char *whole = tsr_shared_memory_create(all[0], 64 << 20);
  assert_non_null(whole);
  assert_null(tsr_shared_memory_create(all[0], 1));
  tsr_shared_memory_destroy(all[0], whole);
  for (int after = 0; after < 2; after++) {
    tsr_memory_fail_after(after);
    char *some = tsr_shared_memory_create(all[0], 4096);
    tsr_memory_fail_after(-1);
    if (some) tsr_shared_memory_destroy(all[0], some);
    assert_int_equal(!some, after == 0);
  }
  assert_null(all[0]->blocks->next);
}

static int refuse(void) {
  errno = EPERM;
  return -1;
}

static void files_are_refused(void **state) {
  (void)state;
  tsr_shared *one = NULL;
  int (*usual)(void) = tsr_shared_make_file;
  tsr_shared_make_file = refuse;
  assert_int_equal(tsr_shared_create(2, 0, 0, &one, &error), TSR_ERROR_UNSUPPORTED);
  assert_non_null(strstr(error.message, "memfd_create failed"));
  tsr_shared_make_file = usual;
  for (int after = 0; after < 4; after++) {
    tsr_memory_fail_after(after);
    tsr_status status = tsr_shared_create(2, 0, 0, &one, &error);
    tsr_memory_fail_after(-1);
    assert_int_equal(status, TSR_ERROR_OUT_OF_MEMORY);
    assert_null(one);
  }
}

/* Descriptors that lead elsewhere, or nowhere. */
static void wrong_offers(void **state) {
  (void)state;
  static const char *const reasons[] = {"has none", "/proc/", "another size", "another build"};
  for (int wrong = 0; wrong < 4; wrong++) {
    tsr_shared *one;
    tsr_shared_offer offers[2];
    tsr_shared_get_offer(all[1], &offers[1]);
    assert_int_equal(tsr_shared_create(2, 0, 1 << 20, &one, &error), TSR_OK);
    if (wrong == 0) offers[1].made = 0;
    if (wrong == 1) offers[1].file = 1000000;
    if (wrong == 2) offers[1].file = one->file;
    if (wrong == 3) offers[1].mark++;
    assert_int_equal(tsr_shared_join(one, offers, &error), TSR_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, reasons[wrong]));
    tsr_shared_destroy(&one);
  }
}

/* ---- threads ---- */

enum { TURNS = 1000, TALK_BYTES = LANE_BYTES + 50000 };

static void *talk(void *argument) {
  const int me = (int)(intptr_t)argument, other = 1 - me;
  tsr_shared *shared = all[me];
  char *arena = tsr_shared_memory_create(shared, TALK_BYTES), *own = malloc(TALK_BYTES),
       *received = malloc(TALK_BYTES);
  bool right = arena != NULL;
  for (int turn = 0; turn < TURNS && right; turn++) {
    int64_t bytes = turn % 4 ? turn % 4000 : TALK_BYTES - turn;
    char *data = turn & 8 ? arena : own;
    shared_fill(data, bytes, (unsigned)(turn + me));
    tsr_request send = shared_request(data, bytes, turn % 5, other);
    tsr_request receive = shared_request(received, bytes, turn % 5, other);
    tsr_shared_receive(shared, other, turn & 2, &receive);
    tsr_shared_send(shared, other, &send);
    right =
        shared_wait(shared, &receive, turn & 4) && shared_is(receive.view, bytes, (unsigned)(turn + other));
    tsr_shared_release(shared, &receive);
    right = right && shared_wait(shared, &send, turn & 4);
  }
  tsr_shared_memory_destroy(shared, arena);
  free(own);
  free(received);
  return right ? argument : &error;
}

static void two_threads(void **state) {
  (void)state;
  pthread_t threads[2];
  for (intptr_t i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, talk, (void *)i), 0);
  for (intptr_t i = 0; i < 2; i++) {
    void *result;
    pthread_join(threads[i], &result);
    assert_ptr_equal(result, (void *)i);
  }
}

/* ---- processes ---- */

/* Everybody to everybody, all at once, in a random order of sizes and places. */
static bool all_to_all(tsr_shared *shared, int me) {
  enum { ROUNDS = 100, BYTES = 200000 };
  tsr_request sends[SHARED_MEMBERS_MAX], receives[SHARED_MEMBERS_MAX];
  char *arena = tsr_shared_memory_create(shared, SHARED_MEMBERS_MAX * BYTES);
  char *own = malloc(SHARED_MEMBERS_MAX * BYTES), *received = malloc(SHARED_MEMBERS_MAX * BYTES);
  bool right = arena != NULL;
  for (int round = 0; round < ROUNDS && right; round++) {
    for (int i = 0; i < shared->members; i++) {
      unsigned to = (unsigned)(round * 16 + me * 4 + i), from = (unsigned)(round * 16 + i * 4 + me);
      char *data = (to % 3 ? arena : own) + i * BYTES;
      int64_t sent = (int64_t)to * 7919 % BYTES, expected = (int64_t)from * 7919 % BYTES;
      shared_fill(data, sent, to);
      sends[i] = shared_request(data, sent, round % 7, i);
      receives[i] = shared_request(received + i * BYTES, expected, round % 7, i);
      tsr_shared_send(shared, i, &sends[i]);
      tsr_shared_receive(shared, i, from % 2, &receives[i]);
    }
    for (int i = 0; i < shared->members; i++) {
      right = right && shared_wait(shared, &receives[i], true) &&
              shared_is(receives[i].view, receives[i].bytes, (unsigned)(round * 16 + i * 4 + me));
      tsr_shared_release(shared, &receives[i]);
    }
    for (int i = 0; i < shared->members; i++) right = right && shared_wait(shared, &sends[i], true);
  }
  tsr_shared_memory_destroy(shared, arena);
  free(own);
  free(received);
  return right;
}

static void four_processes(void **state) {
  (void)state;
  assert_true(shared_run(4, all_to_all, -1));
}

/* Process 0 sleeps until process 1 does something for it, not until its time is over. */
static bool rest_ends(tsr_shared *shared, int me) {
  char byte = 0;
  if (me == 1) {
    usleep(200000);
    tsr_request send = shared_request(&byte, 1, 0, 0);
    tsr_shared_send(shared, 0, &send);
    return shared_wait(shared, &send, true);
  }
  double began = tsr_clock_seconds();
  bool done = false;
  tsr_request receive = shared_request(&byte, 1, 0, 1);
  tsr_shared_receive(shared, 1, false, &receive);
  for (int turns = 0; !done; turns++) {
    if (turns > 4 || tsr_shared_test(shared, &receive, &done, &error) != TSR_OK) return false;
    if (!done) tsr_shared_rest(shared, 10, turns % 2);
  }
  double slept = tsr_clock_seconds() - began;
  began = tsr_clock_seconds();
  tsr_shared_rest(shared, 0.05, false); /* or until what rang meanwhile */
  tsr_shared_rest(shared, 0.05, false);
  double rested = tsr_clock_seconds() - began;
  return slept > 0.15 && slept < 5 && rested > 0.04 && rested < 2;
}

static void resting(void **state) {
  (void)state;
  assert_true(shared_run(2, rest_ends, -1));
}

static bool signs_arrive(tsr_shared *shared, int me) {
  double until = tsr_clock_seconds() + 10;
  if (me == 0) {
    for (int i = 0; i < 3; i++) tsr_shared_beat(shared);
    tsr_shared_give_sign(shared, TSR_SHARED_FAILED);
    tsr_shared_give_sign(shared, TSR_SHARED_LEFT);
    return true;
  }
  while (!(tsr_shared_signs_of(shared, 0) & TSR_SHARED_LEFT) && tsr_clock_seconds() < until)
    tsr_shared_rest(shared, 10, false);
  return tsr_shared_signs_of(shared, 0) == (TSR_SHARED_FAILED | TSR_SHARED_LEFT) &&
         tsr_shared_beats(shared, 0) == 3 && !tsr_shared_signs_of(shared, 1);
}

static void signs(void **state) {
  (void)state;
  assert_true(shared_run(2, signs_arrive, -1));
}

/* Process 1 dies while a message of its is half read, and one to it is half written: process 0 can give both
 * up, and end. */
static bool dies_in_mid_message(tsr_shared *shared, int me) {
  enum { BYTES = 1 << 20 };
  char *own = calloc(2, BYTES);
  bool done = false;
  tsr_request send = shared_request(own, BYTES, 0, 1 - me),
              receive = shared_request(own + BYTES, BYTES, 0, 1 - me);
  tsr_shared_send(shared, 1 - me, &send);
  tsr_shared_receive(shared, 1 - me, false, &receive);
  double until = tsr_clock_seconds() + 10;
  while (receive.peer_bytes < BYTES / 2 && tsr_clock_seconds() < until) {
    if (tsr_shared_test(shared, &receive, &done, &error) != TSR_OK || done) return false;
    if (me == 1 && receive.peer_bytes > 2 * TSR_SHARED_CHUNK_BYTES) raise(SIGKILL);
    if (me == 0 && receive.peer_bytes > 2 * TSR_SHARED_CHUNK_BYTES) break;
  }
  if (me == 1) return false;
  usleep(300000);
  tsr_shared_test(shared, &receive, &done, &error);
  if (done) return false;
  tsr_shared_cancel(shared, &receive);
  tsr_shared_cancel(shared, &send);
  tsr_shared_progress(shared);
  free(own);
  return true;
}

static void a_process_dies(void **state) {
  (void)state;
  assert_true(shared_run(2, dies_in_mid_message, 1));
}

#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, make_pair, drop_pair)

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {WITH_PAIR(every_size),
                                     WITH_PAIR(at_the_end_of_the_arena),
                                     WITH_PAIR(many_tags_out_of_order),
                                     WITH_PAIR(receives_wait_by_tag),
                                     WITH_PAIR(lanes_are_not_held_up),
                                     WITH_PAIR(to_oneself),
                                     WITH_PAIR(another_size_is_an_error),
                                     WITH_PAIR(a_cancelled_send_is_gone),
                                     WITH_PAIR(a_send_is_cancelled_in_mid_message),
                                     WITH_PAIR(a_receive_is_cancelled),
                                     WITH_PAIR(a_waiting_send_is_cancelled),
                                     WITH_PAIR(arena_memory),
                                     WITH_PAIR(arena_runs_out),
                                     WITH_PAIR(files_are_refused),
                                     WITH_PAIR(wrong_offers),
                                     WITH_PAIR(two_threads),
                                     cmocka_unit_test(four_processes),
                                     cmocka_unit_test(resting),
                                     cmocka_unit_test(signs),
                                     cmocka_unit_test(a_process_dies)};
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
