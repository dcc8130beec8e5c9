/* tests/comm/test_sim.c: the simulated transport: when messages arrive in virtual time, views, the seed, each
 * kind of fault, the deadline. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/memory.h"
#include "comm/group.h"

static tsr_context *context;
static tsr_error error;
static char logged[1000];

static void keep_log(void *user, tsr_log_level level, const char *area, const char *message) {
  (void)user, (void)level, (void)area;
  snprintf(logged, sizeof logged, "%s", message);
}

static int make_context(void **state) {
  (void)state;
  return tsr_context_create(
      TSR_CONTEXT_OPTIONS(.cache_folder = "", .log = keep_log, .log_level = TSR_LOG_WARNING), &context, NULL);
}

static int drop_context(void **state) {
  (void)state;
  tsr_context_destroy(&context);
  return 0;
}

/* ---- a world with a few messages ---- */

static const double latency = 3e-6, second_per_byte = 1e-9, deadline = 2;

/* What most tests want, to be changed. */
static tsr_sim_options plain_options(void) {
  tsr_sim_options options;
  tsr_sim_options_init(&options);
  options.host_latency = latency;
  options.host_bandwidth = 1 / second_per_byte;
  return options;
}

static tsr_group *make(int members, const tsr_sim_options *options) {
  tsr_group *group = NULL;
  if (tsr_group_create_sim_with(context, members, TSR_GROUP_OPTIONS(.deadline_seconds = deadline), options,
                                &group, &error) != TSR_OK)
    fail_msg("%s", error.message);
  return group;
}

enum { MESSAGES_MAX = 64, BYTES_MAX = 1000 };
typedef struct message {
  int from, to, tag;
  int64_t bytes;
  tsr_request send, receive;
  char sent[BYTES_MAX], received[BYTES_MAX];
  bool done_send, done_receive;
  double ended; /* of the receive */
  int place;    /* in the order in which receives were seen to end */
} message;

static message messages[MESSAGES_MAX];
static int message_count, ended_count;

static void forget_messages(void) {
  memset(messages, 0, sizeof messages);
  message_count = ended_count = 0;
}

static message *begin(tsr_group *group, int from, int to, int tag, int64_t bytes) {
  tsr_transport *transport = group->transport;
  message *m = &messages[message_count++];
  *m = (message){.from = from, .to = to, .tag = tag, .bytes = bytes};
  memset(m->sent, message_count, sizeof m->sent);
  assert_int_equal(transport->ops->isend(transport, from, to, tag, m->sent, bytes, &m->send, &error), TSR_OK);
  assert_int_equal(transport->ops->irecv(transport, to, from, tag, m->received, bytes, &m->receive, &error),
                   TSR_OK);
  return m;
}

static void look(tsr_group *group, message *m) {
  tsr_transport *transport = group->transport;
  bool before = m->done_receive;
  if (!m->done_receive)
    assert_int_equal(transport->ops->test(transport, &m->receive, &m->done_receive, &error), TSR_OK);
  if (!m->done_send)
    assert_int_equal(transport->ops->test(transport, &m->send, &m->done_send, &error), TSR_OK);
  if (before || !m->done_receive) return;
  m->ended = tsr_group_now(group);
  m->place = ended_count++;
  assert_memory_equal(m->sent, m->received, (size_t)m->bytes);
}

static bool look_at_all(tsr_group *group) {
  bool all = true;
  for (int i = 0; i < message_count; i++) {
    look(group, &messages[i]);
    all = all && messages[i].done_send && messages[i].done_receive;
  }
  return all;
}

/* Until all messages have ended, or somebody was lost. */
static tsr_status drive(tsr_group *group) {
  tsr_status status = TSR_OK;
  for (int turn = 0; !look_at_all(group) && status == TSR_OK; turn++) {
    if (turn == 1000000) fail_msg("the messages never end");
    status = tsr_group_beat(group, &error);
  }
  return status;
}

static void cancel_all(tsr_group *group) {
  for (int i = 0; i < message_count; i++) {
    group->transport->ops->cancel(group->transport, &messages[i].send);
    group->transport->ops->cancel(group->transport, &messages[i].receive);
  }
}

static void finish(tsr_group *group) {
  cancel_all(group);
  forget_messages();
  tsr_group_destroy(&group);
}

static void assert_time(double time, double expected) {
  if (fabs(time - expected) > 1e-11) fail_msg("%.12g s, expected %.12g s", time, expected);
}

/* ---- time ---- */

static void a_message_takes_latency_and_bytes(void **state) {
  (void)state;
  const int hosts[] = {0, 0, 1};
  tsr_sim_options options = plain_options();
  options.hosts = hosts;
  options.network_latency = 5e-5;
  options.network_bandwidth = 1e7;
  tsr_group *group = make(3, &options);
  assert_time(tsr_group_now(group), 0);
  message *near = begin(group, 0, 1, 7, 1000), *far = begin(group, 1, 2, 7, 1000);
  assert_int_equal(drive(group), TSR_OK);
  assert_time(near->ended, latency + 1000 * second_per_byte);
  assert_time(far->ended, 5e-5 + 1000 / 1e7);
  message *empty = begin(group, 2, 0, 0, 0);
  double before = tsr_group_now(group);
  assert_int_equal(drive(group), TSR_OK);
  assert_time(empty->ended, before + 5e-5);
  finish(group);
}

static void pairs_have_links_of_their_own(void **state) {
  (void)state;
  const double latencies[] = {0, 1e-6, 2e-6, 0}, bandwidths[] = {0, 1e9, 0, 0};
  tsr_sim_options options = plain_options();
  options.latencies = latencies;
  options.bandwidths = bandwidths;
  tsr_group *group = make(2, &options);
  message *up = begin(group, 0, 1, 0, 500), *down = begin(group, 1, 0, 0, 500);
  assert_int_equal(drive(group), TSR_OK);
  assert_time(up->ended, 1e-6 + 500 / 1e9);
  assert_time(down->ended, 2e-6);
  finish(group);
}

/* Each port carries one message at a time; the two of a member carry at once. */
static void ports_are_occupied(void **state) {
  (void)state;
  enum { MEMBERS = 6, BYTES = 800 };
  tsr_sim_options options = plain_options();
  for (int way = 0; way < 3; way++) {
    tsr_group *group = make(MEMBERS, &options);
    for (int i = 1; i < MEMBERS; i++) {
      if (way != 1) begin(group, i, 0, 0, BYTES);
      if (way != 0) begin(group, 0, i, 0, BYTES);
    }
    assert_int_equal(drive(group), TSR_OK);
    assert_time(tsr_group_now(group), latency + (MEMBERS - 1) * BYTES * second_per_byte);
    finish(group);
  }
}

/* Everyone to everyone, in turns that do not collide: no port is ever idle, whoever posts first. */
static void exchanges_do_not_collide(void **state) {
  (void)state;
  enum { MEMBERS = 6, BYTES = 800 };
  tsr_sim_options options = plain_options();
  for (options.seed = 0; options.seed < 5; options.seed++) {
    tsr_group *group = make(MEMBERS, &options);
    for (int i = 0; i < MEMBERS; i++)
      for (int k = 1; k < MEMBERS; k++) begin(group, i, (i + k) % MEMBERS, 0, BYTES);
    assert_int_equal(drive(group), TSR_OK);
    assert_time(tsr_group_now(group), latency + (MEMBERS - 1) * BYTES * second_per_byte);
    finish(group);
  }
}

/* Whenever the receives are posted. */
static void sends_leave_in_order(void **state) {
  (void)state;
  enum { MEMBERS = 5, BYTES = 800 };
  tsr_sim_options options = plain_options();
  for (options.seed = 0; options.seed < 5; options.seed++) {
    tsr_group *group = make(MEMBERS, &options);
    tsr_transport *transport = group->transport;
    char data[BYTES] = "";
    tsr_request send[MEMBERS] = {0}, receive[MEMBERS] = {0};
    for (int i = MEMBERS - 1; i > 0; i--)
      transport->ops->isend(transport, 0, i, 0, data, BYTES, &send[i], &error);
    for (int i = 1; i < MEMBERS; i++)
      transport->ops->irecv(transport, i, 0, 0, data, BYTES, &receive[i], &error);
    for (int i = MEMBERS - 1; i > 0; i--) {
      for (bool done = false; !done;) {
        assert_int_equal(transport->ops->test(transport, &receive[i], &done, &error), TSR_OK);
        if (!done) assert_int_equal(tsr_group_beat(group, &error), TSR_OK);
      }
      assert_time(tsr_group_now(group), latency + (MEMBERS - i) * BYTES * second_per_byte);
    }
    tsr_group_destroy(&group);
  }
}

static void work_takes_time(void **state) {
  (void)state;
  const double speeds[] = {1, 4};
  tsr_sim_options options = plain_options();
  options.speeds = speeds;
  tsr_group *group = make(2, &options);
  tsr_group_spend(group, 0, 1e-3);
  tsr_group_spend(group, 1, 1e-3);
  tsr_group_spend(group, 1, 1e-3);
  assert_time(tsr_group_now(group), 0);
  assert_time(tsr_group_now_of(group, 0), 1e-3);
  assert_time(tsr_group_now_of(group, 1), 5e-4);
  message *m = begin(group, 1, 0, 0, 100), *other = begin(group, 0, 1, 0, 100);
  assert_int_equal(drive(group), TSR_OK);
  /* Both need both: the later one decides. */
  assert_time(m->ended, 1e-3 + latency + 100 * second_per_byte);
  assert_time(other->ended, m->ended);
  finish(group);
}

static void real_time_stays_real(void **state) {
  (void)state;
  tsr_group *group = make(2, NULL);
  double before = tsr_group_now(group);
  message *m = begin(group, 0, 1, 3, 1000);
  tsr_group_spend(group, 0, 1e6);
  look(group, m);
  assert_true(m->done_send && m->done_receive);
  assert_true(tsr_group_now_of(group, 1) - before < 1000);
  finish(group);
}

/* A member that has something to see, and never looks, does not stop the others. */
static void nobody_stops_the_clock(void **state) {
  (void)state;
  tsr_sim_options options = plain_options();
  tsr_group *group = make(3, &options);
  begin(group, 0, 1, 0, 10);
  message *seen = begin(group, 1, 2, 0, 1000);
  bool done = false;
  for (int turn = 0; turn < 100 && !done; turn++) {
    assert_int_equal(group->transport->ops->test(group->transport, &seen->receive, &done, &error), TSR_OK);
    assert_int_equal(tsr_group_beat(group, &error), TSR_OK);
  }
  assert_true(done);
  finish(group);
}

/* Whichever side is posted first. */
static void messages_of_a_tag_match_in_order(void **state) {
  (void)state;
  enum { COUNT = 3 };
  tsr_sim_options options = plain_options();
  for (int way = 0; way < 4; way++) {
    tsr_group *group = make(2, way & 1 ? &options : NULL);
    tsr_transport *transport = group->transport;
    int sent[COUNT] = {10, 11, 12}, received[COUNT] = {0};
    tsr_request send[COUNT] = {0}, receive[COUNT] = {0};
    for (int i = 0; i < 2 * COUNT; i++)
      if ((i < COUNT) == !(way & 2))
        transport->ops->isend(transport, 0, 1, 4, &sent[i % COUNT], 4, &send[i % COUNT], &error);
      else
        transport->ops->irecv(transport, 1, 0, 4, &received[i % COUNT], 4, &receive[i % COUNT], &error);
    for (int i = 0; i < COUNT; i++)
      for (bool done = false; !done; tsr_group_beat(group, &error))
        assert_int_equal(transport->ops->test(transport, &receive[i], &done, &error), TSR_OK);
    assert_memory_equal(sent, received, sizeof sent);
    tsr_group_destroy(&group);
  }
}

/* ---- views ---- */

static void views_are_the_senders_data(void **state) {
  (void)state;
  tsr_sim_options options = plain_options();
  for (int way = 0; way < 4; way++) {
    tsr_group *group = make(2, way & 1 ? &options : NULL);
    tsr_transport *transport = group->transport;
    char sent[] = "in place", kept[sizeof sent] = "";
    tsr_request send = {0}, view = {0};
    transport->ops->irecv_view(transport, 1, 0, 5, kept, sizeof sent, &view, &error);
    transport->ops->isend(transport, 0, 1, 5, sent, sizeof sent, &send, &error);
    bool done = false, sender_done = true;
    for (int turn = 0; turn < 10 && !done; turn++) {
      assert_int_equal(transport->ops->test(transport, &view, &done, &error), TSR_OK);
      assert_int_equal(tsr_group_beat(group, &error), TSR_OK);
    }
    assert_true(done);
    assert_ptr_equal(view.view, sent);
    assert_string_equal(kept, "");
    for (int turn = 0; turn < 10; turn++) {
      transport->ops->test(transport, &send, &sender_done, &error);
      assert_false(sender_done);
      assert_int_equal(tsr_group_beat(group, &error), TSR_OK);
    }
    if (way & 2)
      transport->ops->cancel(transport, &view);
    else
      transport->ops->release(transport, &view);
    transport->ops->test(transport, &send, &sender_done, &error);
    assert_true(sender_done);
    transport->ops->release(transport, &view);
    tsr_group_destroy(&group);
  }
}

static void cancelled_messages_leave_nothing(void **state) {
  (void)state;
  tsr_sim_options options = plain_options();
  for (int way = 0; way < 2; way++) {
    tsr_group *group = make(2, way ? &options : NULL);
    tsr_transport *transport = group->transport;
    tsr_request send = {0}, receive = {0}, view = {0}, lent = {0};
    char data[4] = {1, 2, 3, 4}, into[4];
    bool done;
    transport->ops->isend(transport, 0, 1, 0, data, 4, &send, &error);
    transport->ops->cancel(transport, &send);
    transport->ops->irecv(transport, 1, 0, 0, into, 4, &receive, &error);
    transport->ops->test(transport, &receive, &done, &error);
    assert_false(done);
    transport->ops->cancel(transport, &receive);
    /* On the wire, and while it is viewed: the sender first, then the receiver. */
    for (int turns = 0; turns < 5; turns += 4) {
      transport->ops->isend(transport, 0, 1, 1, data, 4, &lent, &error);
      transport->ops->irecv_view(transport, 1, 0, 1, into, 4, &view, &error);
      for (int i = 0; i < turns; i++) {
        tsr_group_beat(group, &error);
        transport->ops->test(transport, &view, &done, &error);
      }
      transport->ops->cancel(transport, &lent);
      memset(&lent, 0, sizeof lent);
      transport->ops->cancel(transport, &view);
    }
    message *m = begin(group, 0, 1, 0, 10);
    assert_int_equal(drive(group), TSR_OK);
    assert_true(m->done_send);
    finish(group);
  }
}

static void memory_is_pages_of_zeros(void **state) {
  (void)state;
  tsr_group *group = make(2, NULL);
  const char zeros[10000] = {0};
  char *memory = tsr_group_memory_create(group, 1, sizeof zeros);
  assert_non_null(memory);
  assert_int_equal((uintptr_t)memory % 4096, 0);
  assert_memory_equal(memory, zeros, sizeof zeros);
  tsr_group_memory_destroy(group, memory);
  tsr_group_destroy(&group);
}

/* ---- the seed ---- */

/* Who was seen to end in which order, of messages that all end at the same time. */
static uint64_t order_with(uint64_t seed) {
  enum { MEMBERS = 8 };
  tsr_sim_options options = plain_options();
  options.seed = seed;
  tsr_group *group = make(MEMBERS, &options);
  uint64_t order = 0;
  for (int i = 0; i < MEMBERS; i++) begin(group, i, (i + 1) % MEMBERS, 0, 100);
  for (int i = 1; i < MEMBERS; i++) begin(group, i, 0, 1, 10);
  assert_int_equal(drive(group), TSR_OK);
  for (int i = 0; i < message_count; i++) order = order * 31 + (uint64_t)messages[i].place;
  finish(group);
  return order;
}

static void the_seed_decides_the_order(void **state) {
  (void)state;
  enum { SEEDS = 50 };
  uint64_t orders[SEEDS];
  int distinct = 0;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    orders[seed] = order_with(seed);
    assert_int_equal(order_with(seed), orders[seed]);
    bool is_new = true;
    for (uint64_t i = 0; i < seed; i++) is_new = is_new && orders[i] != orders[seed];
    distinct += is_new;
  }
  assert_true(distinct > SEEDS / 2);
}

/* ---- faults ---- */

static tsr_group *make_faulty(int members, const tsr_sim_fault *faults, size_t count, uint64_t seed) {
  tsr_sim_options options = plain_options();
  options.faults = faults;
  options.fault_count = count;
  options.seed = seed;
  logged[0] = 0;
  return make(members, &options);
}

static void delayed_messages_are_late(void **state) {
  (void)state;
  const tsr_sim_fault fault = {.kind = TSR_SIM_DELAY, .member = 0, .event = 2, .seconds = 0.5};
  tsr_group *group = make_faulty(2, &fault, 1, 0);
  message *first = begin(group, 0, 1, 0, 100), *late = begin(group, 0, 1, 1, 100),
          *third = begin(group, 0, 1, 2, 100), *same_tag = begin(group, 0, 1, 1, 100);
  assert_int_equal(drive(group), TSR_OK);
  assert_time(first->ended, latency + 100 * second_per_byte);
  assert_time(third->ended, latency + 300 * second_per_byte);
  assert_time(late->ended, 0.5 + latency + 200 * second_per_byte);
  assert_time(same_tag->ended, late->ended + 100 * second_per_byte);
  finish(group);
}

static void messages_overtake(void **state) {
  (void)state;
  const tsr_sim_fault fault = {.kind = TSR_SIM_REORDER, .member = 0, .event = 1, .seconds = 0.25};
  tsr_group *group = make_faulty(3, &fault, 1, 0);
  message *overtaken = begin(group, 0, 1, 0, 100), *same_tag = begin(group, 0, 1, 0, 100),
          *elsewhere = begin(group, 0, 2, 1, 100), *other = begin(group, 0, 1, 1, 100);
  assert_int_equal(drive(group), TSR_OK);
  assert_true(elsewhere->ended < other->ended && other->ended < overtaken->ended);
  assert_true(overtaken->ended < same_tag->ended && same_tag->ended < 1e-3);
  finish(group);
  /* Nobody comes: it arrives all the same. */
  group = make_faulty(2, &fault, 1, 0);
  overtaken = begin(group, 0, 1, 0, 100);
  assert_int_equal(drive(group), TSR_OK);
  assert_time(overtaken->ended, 0.25 + latency + 100 * second_per_byte);
  finish(group);
}

/* Not before the deadline, and soon after it. */
static void assert_lost(tsr_group *group, int member, double since) {
  assert_int_equal(drive(group), TSR_ERROR_RANK_LOST);
  assert_int_equal(error.rank, member);
  double waited = tsr_group_now(group) - since;
  if (waited < 0.8 * deadline || waited > 1.3 * deadline) fail_msg("lost after %g s", waited);
}

static void a_cut_link_is_noticed(void **state) {
  (void)state;
  const tsr_sim_fault fault = {.kind = TSR_SIM_LOSE, .member = 1, .event = 2};
  tsr_group *group = make_faulty(3, &fault, 1, 0);
  message *arrives = begin(group, 1, 2, 0, 100), *lost = begin(group, 1, 2, 1, 100),
          *back = begin(group, 2, 1, 0, 100), *after = begin(group, 1, 2, 2, 100),
          *elsewhere = begin(group, 1, 0, 0, 100);
  assert_lost(group, 1, 0);
  assert_true(back->done_receive && elsewhere->done_receive);
  assert_false(lost->done_receive || after->done_receive);
  (void)arrives; /* it was on its way: either is right */
  finish(group);
}

static void a_killed_member_is_lost(void **state) {
  (void)state;
  const tsr_sim_fault at_event = {.kind = TSR_SIM_KILL, .member = 1, .event = 2};
  tsr_group *group = make_faulty(3, &at_event, 1, 0);
  message *before = begin(group, 0, 1, 0, 100), *never = begin(group, 1, 2, 0, 100),
          *others = begin(group, 0, 2, 0, 100), *to_it = begin(group, 2, 1, 0, 100);
  assert_lost(group, 1, 0);
  assert_false(before->done_receive || never->done_send || never->done_receive || to_it->done_send);
  assert_true(others->done_send && others->done_receive);
  finish(group);

  const tsr_sim_fault at_time = {.kind = TSR_SIM_KILL, .member = 0, .at = 1.5};
  group = make_faulty(2, &at_time, 1, 0);
  begin(group, 0, 1, 0, 100);
  assert_int_equal(drive(group), TSR_OK);
  tsr_group_spend(group, 1, 1.6);
  begin(group, 0, 1, 0, 100);
  assert_lost(group, 0, 1.5);
  finish(group);
}

/* What was on the wire arrives; what had not left does not. */
static void death_cuts_messages_off(void **state) {
  (void)state;
  const tsr_sim_fault fault = {.kind = TSR_SIM_KILL, .member = 0, .at = 1.5e-6};
  tsr_group *group = make_faulty(2, &fault, 1, 0);
  message *left = begin(group, 0, 1, 0, 1000), *had_not = begin(group, 0, 1, 1, 1000);
  assert_lost(group, 0, 0);
  assert_true(left->done_receive);
  assert_false(had_not->done_receive);
  finish(group);
}

static void a_stopped_member_is_only_slow(void **state) {
  (void)state;
  tsr_sim_fault fault = {.kind = TSR_SIM_STOP, .member = 0, .event = 1, .seconds = 0.8 * deadline};
  tsr_group *group = make_faulty(3, &fault, 1, 9);
  message *m = begin(group, 0, 1, 0, 100), *others = begin(group, 1, 2, 0, 100);
  assert_int_equal(drive(group), TSR_OK);
  assert_time(m->ended, 0.8 * deadline + latency + 100 * second_per_byte);
  assert_time(others->ended, latency + 100 * second_per_byte);
  assert_non_null(strstr(logged, "rank 0 is slow"));
  finish(group);

  fault.seconds = 3 * deadline;
  group = make_faulty(3, &fault, 1, 9);
  begin(group, 0, 1, 0, 100);
  assert_lost(group, 0, 0);
  finish(group);
}

/* Signs of life go on while members only compute, and nothing else is wrong. */
static void computing_is_no_silence(void **state) {
  (void)state;
  const tsr_sim_fault never = {.kind = TSR_SIM_KILL, .member = 2, .event = 1000};
  tsr_group *group = make_faulty(3, &never, 1, 0);
  tsr_group_spend(group, 0, 10 * deadline);
  message *m = begin(group, 0, 1, 0, 100);
  assert_int_equal(drive(group), TSR_OK);
  assert_time(m->ended, 10 * deadline + latency + 100 * second_per_byte);
  finish(group);
}

/* ---- what is refused ---- */

static void refuse(int members, const tsr_sim_options *options, const char *text) {
  tsr_group *group = NULL;
  assert_int_equal(tsr_group_create_sim_with(context, members, NULL, options, &group, &error),
                   TSR_ERROR_INVALID_ARGUMENT);
  assert_null(group);
  if (!strstr(error.message, text)) fail_msg("\"%s\" is not in \"%s\"", text, error.message);
}

static void wrong_options_are_refused(void **state) {
  (void)state;
  const double numbers[] = {1, -1}, speeds[] = {1, 0};
  refuse(2, &(tsr_sim_options){0}, "struct_size");
  refuse(2, TSR_SIM_OPTIONS(.host_latency = -1), "host_latency is -1");
  refuse(2, TSR_SIM_OPTIONS(.host_bandwidth = NAN), "host_bandwidth");
  refuse(2, TSR_SIM_OPTIONS(.network_latency = INFINITY), "network_latency");
  refuse(2, TSR_SIM_OPTIONS(.network_bandwidth = -2), "network_bandwidth");
  refuse(2, TSR_SIM_OPTIONS(.reduce_bandwidth = -2), "reduce_bandwidth");
  refuse(1, TSR_SIM_OPTIONS(.latencies = &numbers[1]), "latencies");
  refuse(1, TSR_SIM_OPTIONS(.bandwidths = &numbers[1]), "bandwidths");
  refuse(2, TSR_SIM_OPTIONS(.speeds = numbers), "speeds");
  refuse(2, TSR_SIM_OPTIONS(.speeds = speeds), "speeds[1] is 0");
  refuse(2, TSR_SIM_OPTIONS(.fault_count = 1), "faults is NULL");
  const struct {
    tsr_sim_fault fault;
    const char *text;
  } faults[] = {
      {{.kind = (tsr_sim_fault_kind)9}, "unknown kind 9"}, {{.kind = TSR_SIM_KILL, .member = 2}, "member 2"},
      {{.kind = TSR_SIM_KILL, .member = -1}, "member -1"}, {{.kind = TSR_SIM_DELAY}, "message 0"},
      {{.kind = TSR_SIM_STOP, .event = -1}, "message -1"}, {{.kind = TSR_SIM_STOP, .at = -1}, "time"},
      {{.kind = TSR_SIM_STOP, .seconds = NAN}, "seconds"},
  };
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
    refuse(2, TSR_SIM_OPTIONS(.faults = &faults[i].fault, .fault_count = 1), faults[i].text);
}

/* Any allocation may fail. */
static void memory_runs_out(void **state) {
  (void)state;
  const double table[9] = {0}, speeds[] = {1, 1, 1};
  const int hosts[] = {0, 1, 2};
  const tsr_sim_fault fault = {.kind = TSR_SIM_KILL, .member = 2, .event = 1000};
  tsr_sim_options options = plain_options();
  options.hosts = hosts;
  options.latencies = options.bandwidths = table;
  options.speeds = speeds;
  options.faults = &fault;
  options.fault_count = 1;
  tsr_status status = TSR_ERROR_OUT_OF_MEMORY;
  for (int after = 0; status != TSR_OK; after++) {
    tsr_group *group = NULL;
    char data[8] = {0};
    assert_int_equal(status, TSR_ERROR_OUT_OF_MEMORY);
    tsr_memory_fail_after(after);
    status = tsr_group_create_sim_with(context, 3, NULL, &options, &group, &error);
    if (status == TSR_OK) status = tsr_group_broadcast(group, 1, data, sizeof data, &error);
    tsr_memory_fail_after(-1);
    tsr_group_destroy(&group);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_message_takes_latency_and_bytes),
      cmocka_unit_test(pairs_have_links_of_their_own),
      cmocka_unit_test(ports_are_occupied),
      cmocka_unit_test(exchanges_do_not_collide),
      cmocka_unit_test(sends_leave_in_order),
      cmocka_unit_test(work_takes_time),
      cmocka_unit_test(real_time_stays_real),
      cmocka_unit_test(nobody_stops_the_clock),
      cmocka_unit_test(messages_of_a_tag_match_in_order),
      cmocka_unit_test(views_are_the_senders_data),
      cmocka_unit_test(cancelled_messages_leave_nothing),
      cmocka_unit_test(memory_is_pages_of_zeros),
      cmocka_unit_test(the_seed_decides_the_order),
      cmocka_unit_test(delayed_messages_are_late),
      cmocka_unit_test(messages_overtake),
      cmocka_unit_test(a_cut_link_is_noticed),
      cmocka_unit_test(a_killed_member_is_lost),
      cmocka_unit_test(death_cuts_messages_off),
      cmocka_unit_test(a_stopped_member_is_only_slow),
      cmocka_unit_test(computing_is_no_silence),
      cmocka_unit_test(wrong_options_are_refused),
      cmocka_unit_test(memory_runs_out),
  };
  return cmocka_run_group_tests(tests, make_context, drop_context);
}
