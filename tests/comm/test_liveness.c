/* tests/comm/test_liveness.c: who counts as lost, on made-up times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm/liveness.h"

static const double deadline = 8; /* a sign each second, a look each 1/8 s */

static tsr_liveness make(void) {
  tsr_liveness liveness;
  assert_int_equal(tsr_liveness_init(&liveness, 4, 1, 100, NULL), TSR_OK);
  return liveness;
}

/* Calls every 0.25 s. */
static void call_from_to(tsr_liveness *liveness, double from, double to) {
  for (double now = from; now <= to; now += 0.25) tsr_liveness_call(liveness, now, deadline);
}

static void the_silent_one_is_lost(void **state) {
  (void)state;
  tsr_liveness liveness = make();
  call_from_to(&liveness, 100, 104);
  assert_int_equal(tsr_liveness_slow(&liveness), -1);
  call_from_to(&liveness, 104, 106);
  tsr_liveness_heard(&liveness, 0);
  tsr_liveness_left(&liveness, 3);
  call_from_to(&liveness, 106, 108);
  assert_int_equal(tsr_liveness_lost(&liveness), -1);
  assert_int_equal(tsr_liveness_slow(&liveness), 2);
  assert_int_equal(tsr_liveness_slow(&liveness), -1); /* named once */
  call_from_to(&liveness, 108, 108.5);
  assert_int_equal(tsr_liveness_lost(&liveness), 2);
  assert_false(tsr_liveness_left_long_ago(&liveness, 3));
  call_from_to(&liveness, 108.5, 115);
  assert_int_equal(tsr_liveness_lost(&liveness), 2);
  assert_true(tsr_liveness_left_long_ago(&liveness, 3));
  tsr_liveness_heard(&liveness, 2);
  assert_int_equal(tsr_liveness_lost(&liveness), 0);
  tsr_liveness_finish(&liveness);
}

static void who_lives_is_never_lost(void **state) {
  (void)state;
  tsr_liveness liveness = make();
  int named = 0;
  for (double now = 100; now < 1000; now += 1) {
    call_from_to(&liveness, now, now + 0.75);
    tsr_liveness_heard(&liveness, 0);
    tsr_liveness_lives(&liveness, 2);
    tsr_liveness_heard(&liveness, 3);
    assert_int_equal(tsr_liveness_lost(&liveness), -1);
    int slow = tsr_liveness_slow(&liveness);
    assert_true(slow == -1 || slow == 2);
    named += slow == 2;
  }
  assert_in_range(named, 95, 115); /* once per deadline */
  call_from_to(&liveness, 1000, 1008.5);
  assert_int_not_equal(tsr_liveness_lost(&liveness), -1); /* no later than the deadline after the last sign */
  tsr_liveness_finish(&liveness);
}

static void own_computing_blames_nobody(void **state) {
  (void)state;
  tsr_liveness liveness = make();
  call_from_to(&liveness, 100, 104);
  for (double now = 110; now < 1000; now += 10) tsr_liveness_call(&liveness, now, deadline);
  assert_int_equal(tsr_liveness_lost(&liveness), -1);
  call_from_to(&liveness, 1000, 1003.5);
  assert_int_equal(tsr_liveness_lost(&liveness), -1);
  call_from_to(&liveness, 1003.5, 1005);
  assert_int_not_equal(tsr_liveness_lost(&liveness), -1);
  tsr_liveness_finish(&liveness);
}

static void signs_and_looks_are_due(void **state) {
  (void)state;
  tsr_liveness liveness = make();
  assert_int_equal(tsr_liveness_call(&liveness, 100, deadline), TSR_LIVENESS_SIGN);
  assert_int_equal(tsr_liveness_call(&liveness, 100.0625, deadline), TSR_LIVENESS_NOTHING);
  assert_int_equal(tsr_liveness_call(&liveness, 100.25, deadline), TSR_LIVENESS_LOOK);
  assert_int_equal(tsr_liveness_call(&liveness, 101, deadline), TSR_LIVENESS_SIGN);
  assert_int_equal(tsr_liveness_call(&liveness, 109, deadline), TSR_LIVENESS_SIGN);
  tsr_liveness_finish(&liveness);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_silent_one_is_lost),
      cmocka_unit_test(who_lives_is_never_lost),
      cmocka_unit_test(own_computing_blames_nobody),
      cmocka_unit_test(signs_and_looks_are_due),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
