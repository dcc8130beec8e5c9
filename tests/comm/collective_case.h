/* tests/comm/collective_case.h: one collective with its data and its expected result, over any group: used by
 * the sim tests and, rank by rank, by the MPI tests. Values are small integers, whose sums are exact in every
 * type that may travel, or such that the order of a sum shows in its bits; the expected result is computed in
 * the plainest way. Where an algorithm has an order of its own, or a narrow wire, it is right within its
 * bound. */
#ifndef TEST_COLLECTIVE_CASE_H
#define TEST_COLLECTIVE_CASE_H

#include "comm/collective.h"

typedef struct collective_case {
  tsr_collective_options options;
  bool in_place; /* where the kind allows it */
  bool ordered;  /* values where the order of the sum shows */
} collective_case;

/* What one member of a case has. */
typedef struct case_member {
  int index; /* among those that take part */
  char *in, *out, *expected;
  void *scratch;
  int64_t out_bytes;
  tsr_collective *collective;
} case_member;

/* The six patterns of counts: equal, unequal, one empty, only one not, all empty, large and unequal. Of
 * ALL_TO_ALL, every member's row is the pattern, turned by one more than the row above it. */
enum { COUNT_PATTERNS = 6 };
void case_counts(int pattern, int members, int64_t *counts);
void case_counts_of_pairs(int pattern, int members, int64_t *counts);

/* Allocates, fills, creates; false and a line in error's message if that fails. */
bool case_member_setup(tsr_group *group, const collective_case *test, int index, case_member *member,
                       tsr_error *error);
tsr_status case_member_start(case_member *member, const collective_case *test, tsr_error *error);
/* Fills input and output anew, for another start. */
void case_member_fill(case_member *member, const collective_case *test);
/* NULL = right, else what is wrong (static memory). */
const char *case_member_check(const case_member *member, const collective_case *test);
void case_member_release(case_member *member);

#endif
