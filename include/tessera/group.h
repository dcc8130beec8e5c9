/* tessera/group.h: the members over which values are split.
 *
 * A member is a (process, device) pair; a process drives its local members: all of them in a self or sim
 * group, one in an mpi group (tessera/mpi.h). Functions marked [C] elsewhere are collective: every process
 * of the group calls them, in the same order, and all get the same status.
 *
 * Thread safety: one group, one thread at a time. */
#ifndef TESSERA_GROUP_H
#define TESSERA_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include <tessera/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_group tsr_group;

typedef struct tsr_group_options {
  size_t struct_size;
  /* No sign of life from a member for so long: RANK_LOST; 0 = 20. One that is known to live, because its
   * process is seen on this host or because its thread says so (mpi.h), is reported as slow and waited for.
   */
  double deadline_seconds;
} tsr_group_options;
void tsr_group_options_init(tsr_group_options *options);
#define TSR_GROUP_OPTIONS(...) (&(tsr_group_options){.struct_size = sizeof(tsr_group_options), __VA_ARGS__})

/* One member, this process. Gives *out. Errors: OUT_OF_MEMORY. */
tsr_status tsr_group_create_self(tsr_context *context, tsr_group **out, tsr_error *error);
/* `members` (1 .. 4096) members that all live in this process: for tests, and for builds without MPI.
 * options may be NULL. Gives *out. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
tsr_status tsr_group_create_sim(tsr_context *context, int members, const tsr_group_options *options,
                                tsr_group **out, tsr_error *error);
/* Legal after RANK_LOST. Takes *group (may be NULL), leaves NULL. */
void tsr_group_destroy(tsr_group **group);

int tsr_group_member_count(const tsr_group *group);
/* Members of this process: their number, and the index of the i-th in the group. */
int tsr_group_local_count(const tsr_group *group);
int tsr_group_local_member(const tsr_group *group, int i);
/* "self", "sim" or "mpi". */
const char *tsr_group_transport(const tsr_group *group);

/* [C] Agrees on a status: passes this process's own (with its error), returns the one that all share: OK if
 * all are, else that of the lowest failing member, whose error is copied to *error with its rank. Allocates
 * nothing. Errors of its own: RANK_LOST, naming the rank; COMM (ranks that do not call the same). */
tsr_status tsr_group_agree(tsr_group *group, tsr_status own, const tsr_error *own_error, tsr_error *error);
/* [C] Copies `bytes` bytes at data from member root's process to all. Errors: INVALID_ARGUMENT (no such
 * root), OUT_OF_MEMORY, RANK_LOST, COMM; *data is as before then. */
tsr_status tsr_group_broadcast(tsr_group *group, int root, void *data, size_t bytes, tsr_error *error);
/* [C] Gathers `bytes` bytes from every member: local_data holds local_count blocks, out member_count. Errors:
 * OUT_OF_MEMORY, RANK_LOST, COMM; out is as before then. */
tsr_status tsr_group_gather(tsr_group *group, const void *local_data, size_t bytes, void *out,
                            tsr_error *error);

/* ---- a sim group in virtual time ---- */

/* What goes wrong, once. */
typedef enum tsr_sim_fault_kind {
  TSR_SIM_DELAY, /* the message arrives `seconds` later */
  TSR_SIM_LOSE,  /* the message never arrives, and its connection is cut: what is on its way from that sender
                    to that receiver is lost too, and nothing comes after it */
  TSR_SIM_REORDER, /* the next message of its sender to its receiver that has another tag overtakes it, if one
                      arrives within `seconds` */
  TSR_SIM_KILL,    /* the member does nothing any more */
  TSR_SIM_STOP     /* the member does nothing for `seconds`, then goes on */
} tsr_sim_fault_kind;

typedef struct tsr_sim_fault {
  tsr_sim_fault_kind kind;
  int member;
  /* DELAY, LOSE, REORDER: which of the messages that the member sends, from 1. KILL, STOP: at which of those
   * that it begins to send or to receive, from 1; 0 = at the time `at`. */
  int64_t event;
  double at;
  double seconds;
} tsr_sim_fault;

/* A message takes latency + bytes / bandwidth. A member sends one message at a time, and receives one at a
 * time. Seconds, bytes per second; a bandwidth of 0 = no limit. Arrays are borrowed for the call. */
typedef struct tsr_sim_options {
  size_t struct_size;
  double host_latency, host_bandwidth;       /* between members of one host */
  double network_latency, network_bandwidth; /* of two */
  const int *hosts;                     /* [members]: who shares a host has the same number; NULL = all */
  const double *latencies, *bandwidths; /* [members][members], by sender and receiver: in their place */
  double reduce_bandwidth;              /* bytes that a member combines per second */
  const double *speeds; /* [members]: one of speed 2 computes in half the time; NULL = all 1 */
  uint64_t seed; /* decides what is first of things that happen at the same time; 0 = nothing is permuted */
  const tsr_sim_fault *faults;
  size_t fault_count;
} tsr_sim_options;
void tsr_sim_options_init(tsr_sim_options *options);
#define TSR_SIM_OPTIONS(...) (&(tsr_sim_options){.struct_size = sizeof(tsr_sim_options), __VA_ARGS__})

/* As tsr_group_create_sim, in virtual time: a clock of its own that stands while members have something to do
 * and goes on to the next thing that happens. The same options and calls give the same run, bit for bit. A
 * member whose signs of life stop is lost after deadline_seconds of virtual time; computing is no silence.
 * sim NULL = as tsr_group_create_sim. Gives *out. */
tsr_status tsr_group_create_sim_with(tsr_context *context, int members, const tsr_group_options *options,
                                     const tsr_sim_options *sim, tsr_group **out, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
