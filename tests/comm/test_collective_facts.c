/* tests/comm/test_collective_facts.c: what is said of collectives beforehand: bytes, errors, seconds, choice.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm_fixture.h"
#include "base/clock.h"
#include "comm/collective.h"

enum { MEMBERS_MAX = 64, ELEMENTS = 1 << 16 };

/* ---- bytes, counted at the transport ---- */

static int log2_of(int n) {
  int log = 0;
  while (1 << (log + 1) <= n) log++;
  return log;
}

static int children(int me, int members) {
  int count = 0;
  for (int bit = 1; bit < members && !(me & bit); bit *= 2) count += me + bit < members;
  return count;
}

static int subtree(int me, int members) {
  int size = 1;
  while (!(me & size)) size *= 2;
  return me + size < members ? size : members - me;
}

/* What member `me` of n sends, in units of the whole, if all blocks are alike; hosts are pairs of members. */
static double bound(tsr_collective_kind kind, tsr_algorithm algorithm, int n, int me) {
  const double part = 1.0 / n, others = n - 1;
  const int power = 1 << log2_of(n), folded = me < 2 * (n - power), hosts = (n + 1) / 2;
  const bool leads = me % 2 == 0, has_peer = me + 1 < n;
  switch (kind * TSR_ALGORITHM_COUNT + algorithm) {
#define CASE(kind, algorithm) case TSR_##kind *TSR_ALGORITHM_COUNT + TSR_ALGORITHM_##algorithm
    CASE(ALL_REDUCE, DIRECT) : return others;
    CASE(ALL_REDUCE, DOUBLING) : return folded && me % 2 ? 1 : log2_of(n) + folded;
    CASE(ALL_REDUCE, SCATTERED) : return 2 * others * part;
    CASE(ALL_REDUCE, RING) : return 2 * others * part;
    CASE(ALL_REDUCE, HIERARCHICAL) : return leads ? 2.0 * (hosts - 1) / hosts + has_peer : 1;
    CASE(ALL_REDUCE, TREE) : return (me > 0) + children(me, n);
    CASE(ALL_GATHER, DIRECT) : return others * part;
    CASE(ALL_GATHER, DOUBLING) : return others * part;
    CASE(ALL_GATHER, RING) : return others * part;
    CASE(ALL_GATHER, TREE) : return (me > 0 ? subtree(me, n) * part : 0) + children(me, n);
    CASE(REDUCE_SCATTER, DIRECT) : return others * part;
    CASE(REDUCE_SCATTER, DOUBLING) : return others * part;
    CASE(REDUCE_SCATTER, RING) : return others * part;
    CASE(BROADCAST, DIRECT) : return me == 0 ? others : 0;
    CASE(BROADCAST, TREE) : return children(me, n);
    CASE(BROADCAST, SCATTERED) : return me == 0 ? 2 * others * part : (n - 2) * part;
    CASE(BROADCAST, RING) : return me == 0 ? 2 * others * part : me == n - 1 ? 0 : others * part;
    CASE(ALL_TO_ALL, DIRECT) : return others * part;
    CASE(ALL_TO_ALL, RING) : return others * part;
#undef CASE
  default: return -1;
  }
}

/* What each member sent, in bytes; counts are such that all together have ELEMENTS. */
static void run(tsr_group *group, const tsr_collective_options *options, uint64_t *sent) {
  const int n = options->member_count;
  static float in[MEMBERS_MAX][2 * ELEMENTS], out[MEMBERS_MAX][2 * ELEMENTS];
  tsr_collective *collectives[MEMBERS_MAX] = {NULL};
  void *scratch[MEMBERS_MAX];
  for (int i = 0; i < n; i++) {
    scratch[i] = malloc(tsr_collective_scratch_bytes(options, i) + 1);
    sent[i] = tsr_group_bytes_sent(group, i);
    assert_int_equal(tsr_collective_create(group, i, options, scratch[i], &collectives[i], &error), TSR_OK);
  }
  for (int i = 0; i < n; i++)
    assert_int_equal(tsr_collective_start(collectives[i], in[i], out[i], &error), TSR_OK);
  assert_int_equal(tsr_collective_wait_all(group, collectives, (size_t)n, &error), TSR_OK);
  for (int i = 0; i < n; i++) {
    sent[i] = tsr_group_bytes_sent(group, i) - sent[i];
    tsr_collective_destroy(&collectives[i]);
    free(scratch[i]);
  }
}

static void check_bytes(tsr_group *group, int n, tsr_collective_kind kind, tsr_algorithm algorithm) {
  int64_t counts[n * n];
  int hosts[n];
  const bool whole = kind == TSR_ALL_REDUCE || kind == TSR_BROADCAST;
  uint64_t sent[MEMBERS_MAX], narrow[MEMBERS_MAX];
  for (int i = 0; i < n * n; i++) counts[i] = whole ? ELEMENTS : ELEMENTS / n;
  for (int i = 0; i < n; i++) hosts[i] = i / 2;
  tsr_collective_options options = {
      .kind = kind, .counts = counts, .member_count = n, .algorithm = algorithm, .hosts = hosts};
  run(group, &options, sent);
  for (int i = 0; i < n; i++) {
    const double expected = bound(kind, algorithm, n, i) * 4 * ELEMENTS;
    if (fabs((double)sent[i] - expected) > 0.01 * expected)
      fail_msg("%s %s, member %d of %d: sent %llu bytes, the bound is %.0f", tsr_algorithm_name(algorithm),
               tsr_collective_kind_name(kind), i, n, (unsigned long long)sent[i], expected);
  }
  if (algorithm == TSR_ALGORITHM_HIERARCHICAL) return; /* within hosts nothing is narrowed */
  options.wire = TSR_BF16;
  run(group, &options, narrow);
  for (int i = 0; i < n; i++)
    if (fabs((double)narrow[i] - (double)sent[i] / 2) > 0.01 * (double)sent[i])
      fail_msg("%s %s, member %d of %d: %llu bytes as f32, %llu as bf16", tsr_algorithm_name(algorithm),
               tsr_collective_kind_name(kind), i, n, (unsigned long long)sent[i],
               (unsigned long long)narrow[i]);
}

static void bytes_are_the_bound(void **state) {
  (void)state;
  const int sizes[] = {2, 3, 4, 5, 6, 7, 8, 9, 64};
  for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
    const int n = sizes[at];
    tsr_group *group = NULL;
    assert_int_equal(tsr_group_create_sim(context, n, NULL, &group, &error), TSR_OK);
    for (int kind = 0; kind < TSR_COLLECTIVE_KINDS; kind++)
      for (int algorithm = 1; algorithm < TSR_ALGORITHM_COUNT; algorithm++) {
        const bool folds = algorithm == TSR_ALGORITHM_DOUBLING && kind != TSR_ALL_REDUCE && n & (n - 1);
        const bool one_host = algorithm == TSR_ALGORITHM_HIERARCHICAL && n == 2;
        if (bound((tsr_collective_kind)kind, (tsr_algorithm)algorithm, n, 0) >= 0 && !folds && !one_host)
          check_bytes(group, n, (tsr_collective_kind)kind, (tsr_algorithm)algorithm);
      }
    tsr_group_destroy(&group);
  }
}

/* ---- scratch ---- */

static void large_data_needs_two_chunks(void **state) {
  (void)state;
  int64_t count = ((int64_t)1 << 31) + 7;
  const tsr_collective_options options = {
      .kind = TSR_ALL_REDUCE, .dtype = TSR_BF16, .counts = &count, .member_count = 2};
  for (int i = 0; i < 2; i++) {
    assert_true(tsr_collective_scratch_bytes(&options, i) <= 2 * (1 << 18));
    assert_true(llabs((int64_t)tsr_collective_sent_bytes(&options, i) - 2 * count) < count / 50);
  }
}

/* ---- error of a narrow wire ---- */

static void errors_count_roundings(void **state) {
  (void)state;
  const double u = 0x1p-8;
  int64_t counts[8] = {100, 100, 100, 100, 100, 100, 100, 100};
  tsr_collective_options options = {.kind = TSR_ALL_REDUCE, .counts = counts, .member_count = 8};
  assert_true(tsr_collective_wire_error(&options) == 0);
  options.wire = TSR_BF16;
  const struct {
    tsr_algorithm algorithm;
    int roundings;
  } rows[] = {{TSR_ALGORITHM_DIRECT, 1},
              {TSR_ALGORITHM_DOUBLING, 3},
              {TSR_ALGORITHM_SCATTERED, 2},
              {TSR_ALGORITHM_RING, 8},
              {TSR_ALGORITHM_TREE, 4}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    options.algorithm = rows[i].algorithm;
    assert_true(fabs(tsr_collective_wire_error(&options) / (pow(1 + u, rows[i].roundings) - 1) - 1) < 1e-9);
  }
  options.dtype = TSR_F64;
  assert_true(tsr_collective_wire_error(&options) == 0);
}

/* ---- seconds, and what is chosen by them ---- */

static const tsr_links links = {
    .host = {.latency = 1e-6, .bandwidth = 1e10},
    .network = {.latency = 50e-6, .bandwidth = 1e8},
    .reduce_bandwidth = 1e10,
};

static void seconds_follow_the_model(void **state) {
  (void)state;
  const int n = 8;
  int64_t count = 1000, counts[8];
  const double alpha = links.host.latency, bytes = 4000, beta = 1 / links.host.bandwidth,
               gamma = 1 / links.reduce_bandwidth;
  tsr_collective_options options = {.kind = TSR_ALL_REDUCE, .counts = &count, .member_count = n};
  for (int i = 0; i < n; i++) counts[i] = count;
  const struct {
    tsr_algorithm algorithm;
    double seconds;
  } rows[] = {
      {TSR_ALGORITHM_DIRECT, alpha + 7 * bytes * (beta + gamma)},
      {TSR_ALGORITHM_DOUBLING, 3 * (alpha + bytes * (beta + gamma))},
      {TSR_ALGORITHM_SCATTERED, 2 * alpha + 7. / 8 * bytes * (2 * beta + gamma)},
      {TSR_ALGORITHM_RING, 14 * alpha + 7. / 8 * bytes * (2 * beta + gamma)},
      {TSR_ALGORITHM_TREE, 6 * alpha + bytes * (6 * beta + 3 * gamma)},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    options.algorithm = rows[i].algorithm;
    const double seconds = tsr_collective_seconds(&options, &links);
    if (fabs(seconds / rows[i].seconds - 1) > 0.02)
      fail_msg("%s: %g s, the model says %g", tsr_algorithm_name(rows[i].algorithm), seconds,
               rows[i].seconds);
  }
  options = (tsr_collective_options){.kind = TSR_ALL_GATHER, .counts = counts, .member_count = n};
  options.algorithm = TSR_ALGORITHM_RING;
  assert_true(fabs(tsr_collective_seconds(&options, &links) / (7 * (alpha + bytes * beta)) - 1) < 0.02);
}

/* Large data: the sums of one segment are formed while the next travels, so the link sets the pace; and what
 * is not looked at segment by segment is not forgotten. */
static void seconds_of_many_segments(void **state) {
  (void)state;
  const int64_t sizes[] = {1 << 24, 1 << 28, (int64_t)1 << 40};
  for (int i = 0; i < 3; i++) {
    tsr_collective_options options = {
        .kind = TSR_ALL_REDUCE, .counts = &sizes[i], .member_count = 4, .algorithm = TSR_ALGORITHM_RING};
    const double ideal = 2 * 3. / 4 * 4 * (double)sizes[i] / links.host.bandwidth;
    const double seconds = tsr_collective_seconds(&options, &links);
    if (seconds < ideal || seconds > 1.1 * ideal)
      fail_msg("%lld elements: %g s, the link alone takes %g", (long long)sizes[i], seconds, ideal);
  }
}

static void the_choice_follows_the_links(void **state) {
  (void)state;
  const int hosts[] = {0, 0, 0, 0, 1, 1, 1, 1};
  int64_t small = 16, large = 1 << 24;
  tsr_collective_options options = {.kind = TSR_ALL_REDUCE, .counts = &small, .member_count = 8};
  assert_int_equal(tsr_collective_choose(&options, &links), TSR_ALGORITHM_DIRECT);
  options.counts = &large;
  const tsr_algorithm one_host = tsr_collective_choose(&options, &links);
  assert_true(one_host == TSR_ALGORITHM_SCATTERED || one_host == TSR_ALGORITHM_RING);
  options.hosts = hosts;
  const tsr_algorithm chosen = tsr_collective_choose(&options, &links);
  for (int name = 1; name < TSR_ALGORITHM_COUNT; name++) {
    options.algorithm = chosen;
    const double least = tsr_collective_seconds(&options, &links);
    options.algorithm = (tsr_algorithm)name;
    assert_true(least <= tsr_collective_seconds(&options, &links));
  }
  options = (tsr_collective_options){.kind = TSR_BROADCAST, .counts = &large, .member_count = 1};
  assert_true(tsr_collective_seconds(&options, &links) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_are_the_bound),      cmocka_unit_test(large_data_needs_two_chunks),
      cmocka_unit_test(errors_count_roundings),   cmocka_unit_test(seconds_follow_the_model),
      cmocka_unit_test(seconds_of_many_segments), cmocka_unit_test(the_choice_follows_the_links),
  };
  return cmocka_run_group_tests(tests, make_context, drop_context);
}
