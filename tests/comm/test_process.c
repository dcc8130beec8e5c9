/* tests/comm/test_process.c: what ranks of one host see of each other, on made-up processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm/process.h"

/* A process of `host` that may run on the cores of the mask. */
static tsr_process on(uint64_t host, uint64_t cores) {
  return (tsr_process){.host = host, .cores = {0, cores}};
}

static void crowded(void **state) {
  (void)state;
  const struct {
    uint64_t cores[4];
    bool crowded;
  } cases[] = {
      {{0xf, 0xf, 0xf, 0xf}, false},                                /* free */
      {{0x7, 0x7, 0x7, 0x7}, true},  {{0x1, 0x2, 0x4, 0x8}, false}, /* bound to one each */
      {{0x1, 0x1, 0xf, 0xf}, true},                                 /* two share one */
      {{0x1, 0x3, 0x3, 0xf}, true},  {{0x1, 0x2, 0x4, 0x7}, true},  /* the last finds none of its own */
      {{0x3, 0x6, 0x5, 0x7}, true},  {{0, 0, 0, 0}, false},         /* unknown */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_process all[6] = {on(7, 1), on(7, 1)}; /* of another host */
    for (int j = 0; j < 4; j++) all[2 + j] = on(9, cases[i].cores[j]);
    assert_int_equal(tsr_process_crowded(&all[2], all, 6), cases[i].crowded);
    assert_true(tsr_process_crowded(&all[0], all, 6));
  }
}

static void this_one_lives(void **state) {
  (void)state;
  tsr_process own, other;
  tsr_process_identify(&own);
  other = own;
  assert_true(own.host && tsr_process_lives(&own, &other));
  other.started++; /* another process with its number */
  assert_false(tsr_process_lives(&own, &other));
  assert_false(tsr_process_crowded(&own, &own, 1));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(crowded),
      cmocka_unit_test(this_one_lives),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
