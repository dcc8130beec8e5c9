/* tessera/session.h: runs a plan on devices, over a group.
 *
 * create allocates everything, on the devices and for the collectives; a step allocates nothing. [C] marks
 * what all processes call in the same order. `member` is an index in the group and must be local to the
 * process.
 *
 * Errors of every function, beside those it names: INVALID_ARGUMENT (a value, member, shape or option that is
 * not there, with what is; another call while a step is in flight), OUT_OF_MEMORY, DEVICE. Of what is marked
 * [C] also RANK_LOST, naming the rank, and COMM (ranks that do not call the same): the session is then
 * poisoned, every later call is POISONED, and only destroy is legal.
 *
 * Thread safety: one session, one thread at a time. */
#ifndef TESSERA_SESSION_H
#define TESSERA_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/array.h>
#include <tessera/device.h>
#include <tessera/group.h>
#include <tessera/plan.h>
#include <tessera/source.h>
#include <tessera/writer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_session tsr_session;

/* [C] devices[i] is local member i's; count = tsr_group_local_count. group, plan and devices are borrowed
 * until destroy. Errors: INFEASIBLE plan, MISMATCH (another number of members), OUT_OF_MEMORY naming rank,
 * bytes needed and there; COMPILE. */
tsr_status tsr_session_create(tsr_group *group, const tsr_plan *plan, tsr_device *const *devices,
                              size_t count, tsr_session **out, tsr_error *error);
/* Takes *session (may be NULL), leaves NULL. */
void tsr_session_destroy(tsr_session **session);

/* [C] Fills every parameter, state and input from source, each member its own slices. A parameter that the
 * source lacks is NOT_FOUND; states begin as zero and inputs stay as they are where it lacks them.
 *
 * A parameter w [m,n] of i8 beside which the graph has a parameter w_scale [n] takes whole numbers (i8,
 * random integers) as they are. From weights in floating point it gets w[i,j] / w_scale[j], to nearest; and
 * what the source lacks of w_scale becomes w_scale[j] = max over i of |w[i,j]| / 127.
 *
 * Errors: NOT_FOUND, IO and FORMAT (of a file, with its name), UNSUPPORTED (three axes). A number that a
 * value's type would turn into infinity is INVALID_ARGUMENT, with its place. */
tsr_status tsr_session_load(tsr_session *session, const tsr_source *source, tsr_error *error);

/* Copies array, the member's shard of an input (tsr_plan_layout says which), to its device. Errors:
 * UNSUPPORTED (three axes). */
tsr_status tsr_session_bind(tsr_session *session, int member, tsr_value value, const tsr_array *array,
                            tsr_error *error);
/* Copies the member's shard of an input, parameter, state or output into array. Errors: UNSUPPORTED (three
 * axes). */
tsr_status tsr_session_read(tsr_session *session, int member, tsr_value value, const tsr_array *array,
                            tsr_error *error);
/* [C] The whole value, on every process; of an output, what the last step left (undefined before the first).
 * array has the value's shape; on processes that do not want it, NULL.
 */
tsr_status tsr_session_gather(tsr_session *session, tsr_value value, const tsr_array *array,
                              tsr_error *error);

/* [C] Begins one step; one is in flight at a time. test lets it progress and returns at once; *done = this
 * process's part has ended. wait [C] returns when it has ended everywhere, with the same status on all
 * surviving processes; it is needed before any other call, also after test said done. A step that fails
 * poisons the session. */
tsr_status tsr_session_start(tsr_session *session, tsr_error *error);
tsr_status tsr_session_test(tsr_session *session, bool *done, tsr_error *error);
tsr_status tsr_session_wait(tsr_session *session, tsr_error *error);

typedef struct tsr_check_options {
  size_t struct_size;
  uint64_t seed;       /* of the probes */
  double oracle_flops; /* up to so many floating-point operations the whole graph is computed again in f64
                          on every process; 0 = 1e9, below 0 = never */
} tsr_check_options;
void tsr_check_options_init(tsr_check_options *options);
#define TSR_CHECK_OPTIONS(...) (&(tsr_check_options){.struct_size = sizeof(tsr_check_options), __VA_ARGS__})

typedef struct tsr_check {
  bool passed;
  bool oracle;        /* the whole oracle was run, not only probes */
  double max_error;   /* largest error found, in units of its bound's element */
  double bound;       /* the bound at that place */
  double detectable;  /* the smallest error of one element that would have been found */
  char where[128];    /* the value and place of the largest error / bound */
  int64_t compared;   /* comparisons: of elements, and of sums of them (probes, collectives) */
  int64_t not_finite; /* those of them without a bound, because NaN or infinity is expected, or an overflow is
                         possible: whether both sides are NaN, infinite or numbers is all that was compared */
  double wire_error;  /* with a narrow wire: what it may add to an element's error in one collective, relative
                         to  the sum of the sizes of what is combined into it; contained in the bounds */
} tsr_check;

/* [C] Runs one step and verifies it: every product and every collective on its inputs as stored, by random
 * probes and sampled elements in f64 (Freivalds 1979), and, for a small problem, every output against the
 * whole f64 oracle. Updates of parameters are undone: they hold what they held before. Returns
 * CHECK_FAILED if it did not pass; *out is filled all the same. options may be NULL. */
tsr_status tsr_session_check(tsr_session *session, const tsr_check_options *options, tsr_check *out,
                             tsr_error *error);

typedef struct tsr_member_report {
  uint64_t bytes_planned;   /* of the plan */
  uint64_t bytes_allocated; /* by this session, in the device's ledger */
  uint64_t bytes_sent;      /* to other members, in the last step */
  double compute_seconds;   /* of the last step: all but exposed_seconds */
  double comm_seconds;      /* of the last step: in collectives */
  double exposed_seconds;   /* of these: with nothing on the device, the rest being hidden behind it */
} tsr_member_report;

typedef struct tsr_report {
  uint64_t steps;
  double last_seconds; /* wall time of the last step, the slowest process */
  double first_seconds;
  double median_seconds; /* of all steps after the first (of the first, if there was one only); of more than
                            4096 steps, of every 2nd, 4th, ... */
  double predicted_seconds;
} tsr_report;

/* [C] members[0 .. member count) is filled for every member; may be NULL. */
tsr_status tsr_session_report(tsr_session *session, tsr_report *out, tsr_member_report *members,
                              tsr_error *error);

/* [C] From now on the last event_count (at most 2^28) events of each local member are kept: what its kernels,
 * its collectives and the host's work around them did, and when; 0 = no longer. What was kept before is
 * forgotten. Memory is allocated here, about 40 bytes an event; a step allocates nothing. A device that times
 * its commands does so from now on; where it does not, or its clock cannot be believed, a step waits for each
 * of its kernels. */
tsr_status tsr_session_trace(tsr_session *session, size_t event_count, tsr_error *error);

/* [C] Writes what is kept of all members, for chrome://tracing and Perfetto ("tessera.trace/1" in
 * docs/schemas.md), on every process whose writer is not NULL. Times of all members are of one clock; the
 * document says how accurately. Errors: INVALID_ARGUMENT (nothing is kept), IO. */
tsr_status tsr_session_trace_write(tsr_session *session, tsr_writer writer, void *user, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
