/* tests/comm/comm_fixture.h: a context and an error for all tests of a file, and groups of sim members. */
#ifndef TEST_COMM_FIXTURE_H
#define TEST_COMM_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm/group.h"

static tsr_context *context;
static tsr_error error;

static inline int make_context(void **state) {
  (void)state;
  return tsr_context_create(TSR_CONTEXT_OPTIONS(.cache_folder = ""), &context, NULL);
}

static inline int drop_context(void **state) {
  (void)state;
  tsr_context_destroy(&context);
  return 0;
}

static inline tsr_group *make_group(int members) {
  tsr_group *group = NULL;
  if (tsr_group_create_sim(context, members, NULL, &group, &error) != TSR_OK) fail_msg("%s", error.message);
  return group;
}

#endif
