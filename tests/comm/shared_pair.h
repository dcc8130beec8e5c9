/* tests/comm/shared_pair.h: instances of comm/shared that talk to each other: linked in one process, or one
 * in each of several processes. */
#ifndef TEST_SHARED_PAIR_H
#define TEST_SHARED_PAIR_H

#include "comm/shared_inside.h"

enum { SHARED_MEMBERS_MAX = 4 };

/* Instances of this process. False and error's message if one could not be made. */
bool shared_make_linked(tsr_shared **all, int members, uint64_t arena_bytes, tsr_error *error);
void shared_destroy_all(tsr_shared **all, int members);

/* Runs body in `members` processes, each with its own instance, joined; true if it returned true in all. A
 * process that body kills counts as well if its number is `victim`. */
typedef bool shared_body(tsr_shared *shared, int me);
bool shared_run(int members, shared_body *body, int victim);

/* A message of a byte pattern that seed and position decide. */
void shared_fill(void *data, int64_t bytes, unsigned seed);
bool shared_is(const void *data, int64_t bytes, unsigned seed);

tsr_request shared_request(void *data, int64_t bytes, int tag, int peer);
/* Tests until the request has ended, resting in between or only yielding; false after 20 s or on an error. */
bool shared_wait(tsr_shared *shared, tsr_request *request, bool rests);

#endif
