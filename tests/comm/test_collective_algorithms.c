/* tests/comm/test_collective_algorithms.c: every kind of collective by every algorithm, over sim members, and
 * what their schedules promise: bytes, bits, seconds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm_fixture.h"
#include "collective_case.h"

enum { MEMBERS_MAX = 300 };

/* All must have the same bits, where all have the same result. */
static void check_alike(const collective_case *test, const case_member *members) {
  const tsr_collective_kind kind = test->options.kind;
  if (kind == TSR_REDUCE_SCATTER || kind == TSR_ALL_TO_ALL) return;
  for (int i = 1; i < test->options.member_count; i++)
    if (memcmp(members[i].out, members->out, (size_t)members->out_bytes))
      fail_msg("%s, %s: members 0 and %d differ", tsr_collective_kind_name(kind),
               tsr_algorithm_name(test->options.algorithm), i);
}

/* Twice: right both times, with the same bits, and the bytes that were promised. */
static void run_case(tsr_group *group, const collective_case *test) {
  case_member members[MEMBERS_MAX];
  tsr_collective *collectives[MEMBERS_MAX];
  uint64_t before[MEMBERS_MAX];
  const int count = test->options.member_count;
  for (int i = 0; i < count; i++) {
    if (!case_member_setup(group, test, i, &members[i], &error)) fail_msg("%s", error.message);
    collectives[i] = members[i].collective;
    before[i] = tsr_group_bytes_sent(group, i);
  }
  char *first = malloc((size_t)members->out_bytes + 1);
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < count; i++) case_member_fill(&members[i], test);
    for (int i = 0; i < count; i++)
      if (case_member_start(&members[i], test, &error) != TSR_OK) fail_msg("%s", error.message);
    if (tsr_collective_wait_all(group, collectives, (size_t)count, &error) != TSR_OK)
      fail_msg("%s", error.message);
    for (int i = 0; i < count; i++) {
      const char *wrong = case_member_check(&members[i], test);
      if (wrong) fail_msg("%s", wrong);
    }
    check_alike(test, members);
    if (turn == 0) memcpy(first, members->out, (size_t)members->out_bytes);
    assert_memory_equal(first, members->out, (size_t)members->out_bytes);
  }
  for (int i = 0; i < count; i++)
    assert_int_equal(tsr_group_bytes_sent(group, i) - before[i],
                     2 * tsr_collective_sent_bytes(&test->options, i));
  for (int i = 0; i < count; i++) case_member_release(&members[i]);
  free(first);
}

/* Hosts: blocks of two, in turn over three, one member apart, each its own. */
static void place(int pattern, int members, int *hosts) {
  for (int i = 0; i < members; i++) {
    const int of_pattern[] = {i / 2, i % 3, i == members / 2, -i};
    hosts[i] = of_pattern[pattern % 4];
  }
}

static const tsr_dtype wires[] = {TSR_F32, TSR_BF16, TSR_F16};

static void run_ways(tsr_group *group, int members, tsr_collective_kind kind, tsr_algorithm algorithm,
                     int pattern) {
  int64_t counts[kind == TSR_ALL_TO_ALL ? members * members : members];
  int hosts[MEMBERS_MAX];
  (kind == TSR_ALL_TO_ALL ? case_counts_of_pairs : case_counts)(pattern, members, counts);
  /* Of more members or elements, a part of the ways, others for each pattern: 48 has no factor 5, 7 or 11. */
  const int step = pattern == COUNT_PATTERNS - 1 ? 11 : members > 9 ? 7 : members > 3 ? 5 : 1;
  for (int way = pattern % step; way < 48; way += step) {
    place(pattern + way / 3, members, hosts);
    run_case(group, &(collective_case){.options = {.kind = kind,
                                                   .dtype = way % 12 == 9 ? TSR_F64 : TSR_F32,
                                                   .reduction = way % 8 == 7 ? TSR_MAX : TSR_SUM,
                                                   .root = (members + way) / 2 % members,
                                                   .counts = counts,
                                                   .member_count = members,
                                                   .algorithm = algorithm,
                                                   .wire = wires[way % 3],
                                                   .hosts = way & 8 ? hosts : NULL,
                                                   .message_bytes = way & 16 ? 256 : 0},
                                       .in_place = way & 2,
                                       .ordered = way & 4});
  }
}

static void every_kind_by_every_algorithm(void **state) {
  (void)state;
  const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    tsr_group *group = make_group(sizes[i]);
    for (int kind = 0; kind < TSR_COLLECTIVE_KINDS; kind++)
      for (int algorithm = 0; algorithm < TSR_ALGORITHM_COUNT; algorithm++)
        for (int pattern = 0; pattern < (sizes[i] < 10 ? COUNT_PATTERNS : 4); pattern++)
          run_ways(group, sizes[i], (tsr_collective_kind)kind, (tsr_algorithm)algorithm, pattern);
    tsr_group_destroy(&group);
  }
}

/* Messages that arrive long after they were sent, in another order than between other members: what is sent
 * must stay as it was, and what was received must not be taken for another. */
static void links_of_all_speeds(void **state) {
  (void)state;
  enum { N = 5 };
  double latencies[N * N], bandwidths[N * N];
  for (int i = 0; i < N * N; i++) {
    latencies[i] = 1e-6 * (1 + i * 7 % 5 * 20);
    bandwidths[i] = 1e9 / (1 + i * 11 % 7);
  }
  for (int seed = 0; seed < 3; seed++) {
    tsr_group *group = NULL;
    tsr_sim_options *sim =
        TSR_SIM_OPTIONS(.latencies = latencies, .bandwidths = bandwidths, .seed = (uint64_t)seed);
    assert_int_equal(tsr_group_create_sim_with(context, N, NULL, sim, &group, &error), TSR_OK);
    for (int kind = 0; kind < TSR_COLLECTIVE_KINDS; kind++)
      for (int algorithm = 1; algorithm < TSR_ALGORITHM_COUNT; algorithm++)
        for (int pattern = seed; pattern < COUNT_PATTERNS; pattern += 3)
          run_ways(group, N, (tsr_collective_kind)kind, (tsr_algorithm)algorithm, pattern);
    tsr_group_destroy(&group);
  }
}

/* Which of two equal zeros is the larger depends on who comes first: everybody must have the same order. */
static void all_keep_the_same_zero(void **state) {
  (void)state;
  enum { N = 7 };
  int64_t count = 1;
  tsr_group *group = make_group(N);
  for (int algorithm = 0; algorithm < TSR_ALGORITHM_COUNT; algorithm++) {
    float data[N];
    char scratch[N][4096];
    tsr_collective *collectives[N] = {NULL};
    const tsr_collective_options options = {.kind = TSR_ALL_REDUCE,
                                            .reduction = TSR_MAX,
                                            .counts = &count,
                                            .member_count = N,
                                            .algorithm = (tsr_algorithm)algorithm};
    for (int i = 0; i < N; i++) {
      data[i] = i * 3 % 4 < 2 ? -0.0f : 0.0f;
      assert_true(tsr_collective_scratch_bytes(&options, i) <= sizeof scratch[i]);
      assert_int_equal(tsr_collective_create(group, i, &options, scratch[i], &collectives[i], &error),
                       TSR_OK);
    }
    for (int i = 0; i < N; i++)
      assert_int_equal(tsr_collective_start(collectives[i], &data[i], &data[i], &error), TSR_OK);
    assert_int_equal(tsr_collective_wait_all(group, collectives, N, &error), TSR_OK);
    for (int i = 0; i < N; i++) {
      assert_memory_equal(&data[i], data, sizeof *data);
      tsr_collective_destroy(&collectives[i]);
    }
  }
  tsr_group_destroy(&group);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_kind_by_every_algorithm),
      cmocka_unit_test(links_of_all_speeds),
      cmocka_unit_test(all_keep_the_same_zero),
  };
  return cmocka_run_group_tests(tests, make_context, drop_context);
}
