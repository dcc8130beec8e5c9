/* tests/comm/test_collective_large.c: more elements than 31 bits count: 2^31 + 7 of bf16, reduced by 2
 * members in place, with scratch of less than two chunks. Takes 9 GB; skipped where there is less. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/narrow.h"
#include "comm/collective.h"

static const int64_t count = ((int64_t)1 << 31) + 7;
enum { MEMBERS = 2, PERIOD = 251 /* a prime: every power of two meets another value */ };
static const int64_t chunk_bytes = 1 << 18, spare_bytes = (int64_t)1 << 29;

static int64_t available_bytes(void) {
  FILE *file = fopen("/proc/meminfo", "r");
  long long kib = 0;
  char line[200];
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "MemAvailable: %lld kB", &kib) == 1) break;
  if (file) fclose(file);
  return kib * 1024;
}

/* Exact in bf16, as are their sums. */
static double value_of(int member, int64_t at) {
  return (double)((at % PERIOD * 3 + member * 40) % PERIOD - 125);
}

/* PERIOD elements of a member, or the sums of both. */
static void make_pattern(int member, uint16_t *pattern) {
  for (int i = 0; i < PERIOD; i++)
    pattern[i] = tsr_narrow_bf16(member < MEMBERS ? value_of(member, i) : value_of(0, i) + value_of(1, i));
}

static void fill(uint16_t *data, int member) {
  make_pattern(member, data);
  for (int64_t done = PERIOD; done < count;) { /* whole periods, but for the last time */
    const int64_t left = count - done, more = left < done ? left : done;
    memcpy(data + done, data, (size_t)more * sizeof *data);
    done += more;
  }
}

static void check(const uint16_t *data, int member) {
  uint16_t pattern[PERIOD];
  make_pattern(MEMBERS, pattern);
  for (int64_t at = 0; at < count; at += PERIOD) {
    const int64_t length = count - at < PERIOD ? count - at : PERIOD;
    if (memcmp(data + at, pattern, (size_t)length * sizeof *data))
      fail_msg("member %d: elements %lld and following are wrong", member, (long long)at);
  }
}

static void bf16_of_more_than_31_bits(void **state) {
  (void)state;
  const int64_t bytes = count * (int64_t)sizeof(uint16_t);
  if (available_bytes() < MEMBERS * bytes + spare_bytes) {
    print_message("%lld GB of memory are available, %lld are needed\n",
                  (long long)available_bytes() / 1000000000,
                  (long long)(MEMBERS * bytes + spare_bytes) / 1000000000);
    skip();
  }
  tsr_context *context = NULL;
  tsr_group *group = NULL;
  tsr_error error;
  assert_int_equal(tsr_context_create(TSR_CONTEXT_OPTIONS(.cache_folder = ""), &context, NULL), TSR_OK);
  assert_int_equal(tsr_group_create_sim(context, MEMBERS, NULL, &group, &error), TSR_OK);
  const tsr_collective_options options = {
      .kind = TSR_ALL_REDUCE, .dtype = TSR_BF16, .counts = &count, .member_count = MEMBERS};
  tsr_collective *collectives[MEMBERS];
  uint16_t *data[MEMBERS];
  void *scratch[MEMBERS];
  for (int i = 0; i < MEMBERS; i++) {
    const size_t extra = tsr_collective_scratch_bytes(&options, i);
    assert_true(extra <= 2 * (size_t)chunk_bytes);
    data[i] = malloc((size_t)bytes);
    scratch[i] = malloc(extra + 1);
    assert_true(data[i] && scratch[i]);
    fill(data[i], i);
    assert_int_equal(tsr_collective_create(group, i, &options, scratch[i], &collectives[i], &error), TSR_OK);
  }
  for (int i = 0; i < MEMBERS; i++)
    assert_int_equal(tsr_collective_start(collectives[i], data[i], data[i], &error), TSR_OK);
  assert_int_equal(tsr_collective_wait_all(group, collectives, MEMBERS, &error), TSR_OK);
  for (int i = 0; i < MEMBERS; i++) {
    check(data[i], i);
    tsr_collective_destroy(&collectives[i]);
    free(data[i]);
    free(scratch[i]);
  }
  tsr_group_destroy(&group);
  tsr_context_destroy(&context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bf16_of_more_than_31_bits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
