/* tests/comm/test_collective.c: collectives and agreements among sim members. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm_fixture.h"
#include "collective_case.h"
#include "base/memory.h"

enum { MEMBERS_MAX = 320 };

/* ---- one case, all members ---- */

static void setup_all(tsr_group *group, const collective_case *test, case_member *members) {
  for (int i = 0; i < test->options.member_count; i++)
    if (!case_member_setup(group, test, i, &members[i], &error)) fail_msg("%s", error.message);
}

static void start_all(const collective_case *test, case_member *members) {
  for (int i = 0; i < test->options.member_count; i++)
    if (case_member_start(&members[i], test, &error) != TSR_OK) fail_msg("%s", error.message);
}

static void check_all(const collective_case *test, case_member *members) {
  for (int i = 0; i < test->options.member_count; i++) {
    const char *wrong = case_member_check(&members[i], test);
    if (wrong) fail_msg("%s", wrong);
  }
}

static void release_all(const collective_case *test, case_member *members) {
  for (int i = 0; i < test->options.member_count; i++) case_member_release(&members[i]);
}

static tsr_status wait_for(tsr_group *group, const collective_case *test, case_member *members) {
  tsr_collective *collectives[MEMBERS_MAX];
  for (int i = 0; i < test->options.member_count; i++) collectives[i] = members[i].collective;
  return tsr_collective_wait_all(group, collectives, (size_t)test->options.member_count, &error);
}

static uint64_t sent_so_far(tsr_group *group, const collective_case *test, int index) {
  return tsr_group_bytes_sent(group, test->options.members ? test->options.members[index] : index);
}

/* Twice, as a collective is started many times; counts what was really sent. */
static void run_case(tsr_group *group, const collective_case *test) {
  case_member members[MEMBERS_MAX];
  uint64_t before[MEMBERS_MAX];
  int count = test->options.member_count;
  setup_all(group, test, members);
  for (int i = 0; i < count; i++) before[i] = sent_so_far(group, test, i);
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < count; i++) case_member_fill(&members[i], test);
    start_all(test, members);
    if (wait_for(group, test, members) != TSR_OK) fail_msg("%s", error.message);
    check_all(test, members);
  }
  for (int i = 0; i < count; i++)
    assert_int_equal(sent_so_far(group, test, i) - before[i],
                     2 * tsr_collective_sent_bytes(&test->options, i));
  release_all(test, members);
}

/* ---- every kind, every way ---- */

static void run_kinds(tsr_group *group, const int *subset, int count, int pattern) {
  int64_t counts[MEMBERS_MAX];
  case_counts(pattern, count, counts);
  for (int way = 0; way < 64; way++) {
    collective_case test = {.options = {.kind = (tsr_collective_kind)(way % 4),
                                        .dtype = way & 4 ? TSR_F64 : TSR_F32,
                                        .reduction = way & 8 ? TSR_MAX : TSR_SUM,
                                        .root = count / 2,
                                        .counts = counts,
                                        .members = subset,
                                        .member_count = count},
                            .in_place = way & 16,
                            .ordered = way & 32};
    run_case(group, &test);
  }
}

static void every_kind(void **state) {
  (void)state;
  const int sizes[] = {1, 2, 3, 4, 7};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    tsr_group *group = make_group(sizes[i]);
    for (int pattern = 0; pattern < COUNT_PATTERNS; pattern++) run_kinds(group, NULL, sizes[i], pattern);
    tsr_group_destroy(&group);
  }
}

static void subsets(void **state) {
  (void)state;
  const int even[] = {0, 2, 4, 6}, last[] = {6}, pair[] = {1, 5};
  tsr_group *group = make_group(7);
  for (int pattern = 0; pattern < COUNT_PATTERNS; pattern++) {
    run_kinds(group, even, 4, pattern);
    run_kinds(group, last, 1, pattern);
    run_kinds(group, pair, 2, pattern);
    run_kinds(group, NULL, 7, pattern);
  }
  tsr_group_destroy(&group);
}

/* The algorithms for many members. */
static void many_members(void **state) {
  (void)state;
  const int sizes[] = {9, 21, 257, 300}, patterns[] = {1, 5, 3, 2};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    tsr_group *group = make_group(sizes[i]);
    run_kinds(group, NULL, sizes[i], patterns[i]);
    tsr_group_destroy(&group);
  }
}

static void any_element_bytes(void **state) {
  (void)state;
  int64_t counts[] = {5, 0, 9};
  tsr_group *group = make_group(3);
  for (int way = 0; way < 4; way++)
    run_case(group, &(collective_case){.options = {.kind = way & 1 ? TSR_ALL_GATHER : TSR_BROADCAST,
                                                   .element_bytes = way & 2 ? 1 : 24,
                                                   .counts = counts,
                                                   .root = 2,
                                                   .member_count = 3}});
  tsr_group_destroy(&group);
}

static void maximum_keeps_nan(void **state) {
  (void)state;
  int64_t count = 2;
  tsr_group *group = make_group(3);
  tsr_collective_options options = {
      .kind = TSR_ALL_REDUCE, .reduction = TSR_MAX, .counts = &count, .member_count = 3};
  for (int who = 0; who < 3; who++) {
    float data[3][2] = {{1, 1}, {2, 2}, {3, 3}}, scratch[3][64];
    assert_true(tsr_collective_scratch_bytes(&options, who) <= sizeof scratch[0]);
    tsr_collective *collectives[3];
    data[who][1] = NAN;
    for (int i = 0; i < 3; i++) {
      assert_int_equal(tsr_collective_create(group, i, &options, scratch[i], &collectives[i], NULL), TSR_OK);
      assert_int_equal(tsr_collective_start(collectives[i], data[i], data[i], NULL), TSR_OK);
    }
    assert_int_equal(tsr_collective_wait_all(group, collectives, 3, NULL), TSR_OK);
    for (int i = 0; i < 3; i++) {
      assert_true(data[i][0] == 3 && isnan(data[i][1]));
      tsr_collective_destroy(&collectives[i]);
    }
  }
  tsr_group_destroy(&group);
}

/* Messages of collectives in flight together do not mix, whoever is tested first. */
static void two_in_flight(void **state) {
  (void)state;
  int64_t counts[] = {70000, 1000, 3, 8};
  const int some[] = {1, 2, 3};
  tsr_group *group = make_group(4);
  collective_case a = {.options = {.kind = TSR_ALL_REDUCE, .counts = counts, .member_count = 4}};
  collective_case b = {
      .options = {.kind = TSR_ALL_REDUCE, .counts = counts, .members = some, .member_count = 3},
      .ordered = true};
  case_member of_a[4], of_b[4];
  setup_all(group, &a, of_a);
  setup_all(group, &b, of_b);
  start_all(&a, of_a);
  start_all(&b, of_b);
  assert_int_equal(wait_for(group, &b, of_b), TSR_OK);
  assert_int_equal(wait_for(group, &a, of_a), TSR_OK);
  check_all(&a, of_a);
  check_all(&b, of_b);
  release_all(&a, of_a);
  release_all(&b, of_b);
  tsr_group_destroy(&group);
}

/* ---- failures ---- */

static void other_sizes_are_an_error(void **state) {
  (void)state;
  int64_t three = 3, five = 5;
  tsr_group *group = make_group(2);
  collective_case a = {.options = {.kind = TSR_ALL_REDUCE, .counts = &three, .member_count = 2}}, b = a;
  b.options.counts = &five;
  case_member first, second;
  assert_true(case_member_setup(group, &a, 0, &first, &error));
  assert_true(case_member_setup(group, &b, 1, &second, &error));
  assert_int_equal(case_member_start(&first, &a, &error), TSR_OK);
  assert_int_equal(case_member_start(&second, &b, &error), TSR_ERROR_COMM);
  assert_non_null(strstr(error.message, "12 bytes"));
  assert_non_null(strstr(error.message, "expected 20"));
  bool done;
  assert_int_equal(tsr_collective_test(first.collective, &done, &error), TSR_ERROR_COMM);
  assert_non_null(strstr(error.message, "all-reduce at rank 0: "));
  case_member_release(&first);
  case_member_release(&second);
  tsr_group_destroy(&group);
}

static void wrong_options_are_refused(void **state) {
  (void)state;
  tsr_group *group = make_group(3);
  int64_t good[] = {1, 2, 3}, negative[] = {1, -2, 3}, huge[] = {INT64_MAX / 2, 1, 1};
  const int descending[] = {2, 1}, outside[] = {1, 3}, others[] = {1, 2};
  const struct {
    tsr_collective_options options;
    const char *text;
  } rows[] = {
      {{.kind = TSR_ALL_GATHER, .counts = negative}, "counts[1] is -2"},
      {{.kind = TSR_ALL_GATHER, .counts = huge}, "do not fit"},
      {{.kind = TSR_ALL_GATHER, .counts = NULL}, "counts is NULL"},
      {{.kind = TSR_BROADCAST, .counts = good, .root = 3}, "root is 3"},
      {{.kind = TSR_ALL_REDUCE, .counts = good, .dtype = TSR_I8}, "i8"},
      {{.kind = TSR_ALL_REDUCE, .counts = good, .wire = TSR_F64}, "f64 cannot be the wire's type"},
      {{.kind = TSR_ALL_REDUCE, .counts = good, .element_bytes = 2}, "element_bytes is 2"},
      {{.kind = TSR_ALL_REDUCE, .counts = good, .reduction = (tsr_reduction)7}, "reduction 7"},
      {{.kind = (tsr_collective_kind)9, .counts = good}, "kind 9"},
      {{.kind = TSR_ALL_GATHER, .counts = good, .members = descending, .member_count = 2}, "members[1] is 1"},
      {{.kind = TSR_ALL_GATHER, .counts = good, .members = outside, .member_count = 2}, "members[1] is 3"},
      {{.kind = TSR_ALL_GATHER, .counts = good, .members = others, .member_count = 2},
       "member 0 is not among"},
      {{.kind = TSR_ALL_GATHER, .counts = good, .member_count = 2}, "members is NULL"},
      {{.kind = TSR_ALL_GATHER, .counts = good, .members = others, .member_count = 4}, "give 1 to 3"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    tsr_collective *collective = NULL;
    assert_int_equal(tsr_collective_create(group, 0, &rows[i].options, NULL, &collective, &error),
                     TSR_ERROR_INVALID_ARGUMENT);
    if (!strstr(error.message, rows[i].text)) fail_msg("row %zu: %s", i, error.message);
  }
  tsr_group_destroy(&group);
}

static void wrong_groups_are_refused(void **state) {
  (void)state;
  tsr_group *group = NULL;
  tsr_group_options bad = {0};
  assert_int_equal(tsr_group_create_sim(context, 0, NULL, &group, &error), TSR_ERROR_INVALID_ARGUMENT);
  assert_int_equal(tsr_group_create_sim(context, 4097, NULL, &group, &error), TSR_ERROR_INVALID_ARGUMENT);
  assert_int_equal(tsr_group_create_sim(context, 2, &bad, &group, &error), TSR_ERROR_INVALID_ARGUMENT);
  tsr_group_options_init(&bad);
  bad.deadline_seconds = -1;
  assert_int_equal(tsr_group_create_sim(context, 2, &bad, &group, &error), TSR_ERROR_INVALID_ARGUMENT);
  bad.deadline_seconds = NAN;
  assert_int_equal(tsr_group_create_sim(context, 2, &bad, &group, &error), TSR_ERROR_INVALID_ARGUMENT);
  assert_null(group);
}

/* Any allocation may fail: an error, nothing leaked (the sanitizer looks), nothing left in a queue. */
static void memory_runs_out(void **state) {
  (void)state;
  int64_t counts[] = {3, 0, 5};
  char data[8] = {0};
  tsr_status status = TSR_ERROR_OUT_OF_MEMORY;
  for (int after = 0; status != TSR_OK; after++) {
    tsr_group *group = NULL;
    assert_int_equal(status, TSR_ERROR_OUT_OF_MEMORY);
    tsr_memory_fail_after(after);
    status = tsr_group_create_sim(context, 3, NULL, &group, &error);
    if (status == TSR_OK) status = tsr_group_broadcast(group, 1, data, sizeof data, &error);
    if (status == TSR_OK) status = tsr_group_gather(group, counts, 1, data, &error);
    tsr_memory_fail_after(-1);
    tsr_group_destroy(&group);
  }
}

/* ---- what members tell one another ---- */

static void self_group(void **state) {
  (void)state;
  tsr_group *group = NULL;
  assert_int_equal(tsr_group_create_self(context, &group, &error), TSR_OK);
  assert_string_equal(tsr_group_transport(group), "self");
  assert_int_equal(tsr_group_member_count(group), 1);
  assert_int_equal(tsr_group_local_count(group), 1);
  assert_int_equal(tsr_group_local_member(group, 0), 0);
  assert_int_equal(tsr_group_agree(group, TSR_OK, NULL, &error), TSR_OK);
  run_kinds(group, NULL, 1, 0);
  tsr_group_destroy(&group);
  tsr_group_destroy(&group);
}

static void agreement(void **state) {
  (void)state;
  const int sizes[] = {1, 2, 3, 7, 300};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    tsr_group *group = make_group(sizes[i]);
    assert_int_equal(tsr_group_agree(group, TSR_OK, NULL, &error), TSR_OK);

    tsr_error own;
    tsr_fail(&own, TSR_ERROR_IO, "cannot read w1");
    own.rank = sizes[i] - 1;
    tsr_error_native(&own, "errno", 5);
    char expected[64];
    if (sizes[i] > 1)
      snprintf(expected, sizeof expected, "rank %d: cannot read w1", own.rank);
    else
      snprintf(expected, sizeof expected, "cannot read w1");
    /* Twice over: the prefix is put once. */
    assert_int_equal(tsr_group_agree(group, TSR_ERROR_IO, &own, &error), TSR_ERROR_IO);
    assert_int_equal(tsr_group_agree(group, TSR_ERROR_IO, &error, &error), TSR_ERROR_IO);
    assert_string_equal(error.message, expected);
    assert_int_equal(error.status, TSR_ERROR_IO);
    assert_int_equal(error.rank, own.rank);
    assert_int_equal(error.native_code, 5);
    assert_null(error.file);

    assert_int_equal(tsr_group_agree(group, TSR_ERROR_DEVICE, NULL, &error), TSR_ERROR_DEVICE);
    assert_string_equal(error.message, sizes[i] > 1 ? "rank 0: device failed" : "device failed");
    assert_int_equal(tsr_group_agree(group, TSR_ERROR_DEVICE, NULL, NULL), TSR_ERROR_DEVICE);
    run_kinds(group, NULL, sizes[i], 0);
    tsr_group_destroy(&group);
  }
}

/* It is how processes tell that they have no memory. */
static void agreement_needs_no_memory(void **state) {
  (void)state;
  tsr_group *group = make_group(3);
  for (int k = 0; k < 8; k++) {
    tsr_memory_fail_after(k);
    tsr_status status = tsr_group_agree(group, TSR_ERROR_IO, NULL, &error);
    tsr_memory_fail_after(-1);
    assert_int_equal(status, TSR_ERROR_IO);
  }
  run_kinds(group, NULL, 3, 0);
  tsr_group_destroy(&group);
}

/* One member made fewer collectives because something failed: after the agreement all work again. */
static void agreement_repairs_tags(void **state) {
  (void)state;
  int64_t counts[] = {4, 4, 4};
  tsr_group *group = make_group(3);
  collective_case test = {.options = {.kind = TSR_ALL_REDUCE, .counts = counts, .member_count = 3}};
  case_member members[3];
  for (int i = 0; i < 2; i++) assert_true(case_member_setup(group, &test, i, &members[i], &error));
  for (int i = 0; i < 2; i++) case_member_release(&members[i]);
  assert_int_equal(tsr_group_agree(group, TSR_ERROR_OUT_OF_MEMORY, NULL, &error), TSR_ERROR_OUT_OF_MEMORY);
  run_kinds(group, NULL, 3, 1);
  tsr_group_destroy(&group);
}

static void broadcast_and_gather(void **state) {
  (void)state;
  const int sizes[] = {1, 3, 12, 300};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    int members = sizes[i];
    tsr_group *group = make_group(members);
    char text[] = "to all";
    assert_int_equal(tsr_group_broadcast(group, members - 1, text, sizeof text, &error), TSR_OK);
    assert_string_equal(text, "to all");
    assert_int_equal(tsr_group_broadcast(group, 0, text, 0, &error), TSR_OK);
    assert_int_equal(tsr_group_broadcast(group, members, text, 1, &error), TSR_ERROR_INVALID_ARGUMENT);
    int64_t in[MEMBERS_MAX], out[MEMBERS_MAX] = {0};
    for (int k = 0; k < members; k++) in[k] = 1000 + k;
    assert_int_equal(tsr_group_gather(group, in, sizeof *in, out, &error), TSR_OK);
    assert_memory_equal(in, out, (size_t)members * sizeof *in);
    tsr_group_destroy(&group);
  }
}

static void thousands_of_members(void **state) {
  (void)state;
  tsr_group *group = make_group(4096);
  tsr_error own;
  tsr_fail(&own, TSR_ERROR_IO, "far away");
  own.rank = 4095;
  assert_int_equal(tsr_group_agree(group, TSR_OK, NULL, &error), TSR_OK);
  assert_int_equal(tsr_group_agree(group, TSR_ERROR_IO, &own, &error), TSR_ERROR_IO);
  assert_string_equal(error.message, "rank 4095: far away");
  char *in = calloc(4096, 1), *out = calloc(4096, 1);
  in[4095] = 'x';
  assert_int_equal(tsr_group_gather(group, in, 1, out, &error), TSR_OK);
  assert_memory_equal(in, out, 4096);
  free(in);
  free(out);
  tsr_group_destroy(&group);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_kind),
      cmocka_unit_test(subsets),
      cmocka_unit_test(many_members),
      cmocka_unit_test(any_element_bytes),
      cmocka_unit_test(maximum_keeps_nan),
      cmocka_unit_test(two_in_flight),
      cmocka_unit_test(other_sizes_are_an_error),
      cmocka_unit_test(wrong_options_are_refused),
      cmocka_unit_test(wrong_groups_are_refused),
      cmocka_unit_test(memory_runs_out),
      cmocka_unit_test(self_group),
      cmocka_unit_test(agreement),
      cmocka_unit_test(agreement_needs_no_memory),
      cmocka_unit_test(agreement_repairs_tags),
      cmocka_unit_test(broadcast_and_gather),
      cmocka_unit_test(thousands_of_members),
  };
  return cmocka_run_group_tests(tests, make_context, drop_context);
}
