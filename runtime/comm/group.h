/* comm/group.h: the inside of a group. */
#ifndef TSR_COMM_GROUP_H
#define TSR_COMM_GROUP_H

#include <tessera/group.h>

#include "comm/transport.h"

struct tsr_collective;

struct tsr_group {
  tsr_context *context;
  tsr_transport *transport;
  const char *name; /* of the transport, as users know it */
  double deadline_seconds;
  bool broken;     /* a rank was lost: nothing may be sent any more */
  int lost_member; /* which one; -1 = none */

  /* Tags. A pair of members counts the collectives in which the two exchange messages; both create these in
   * the same order, so both count alike, and each collective has tags of its own: messages of two collectives
   * never mix. When something failed, somebody may have created fewer: an agreement on a failure starts all
   * counts anew, above the highest of them. */
  uint16_t *sequences;    /* [local][member] */
  uint64_t sequence_base; /* added to each of them */
  uint64_t sequence_next; /* above all that were used */

  /* Prepared for tsr_group_agree, which allocates nothing: it is how processes tell that they have no
   * memory. */
  struct tsr_collective **agreements; /* [local] */
  double *agreement_values;           /* [local][2] */
  char *agreement_scratch;
  tsr_request *announcements; /* [member]; messages with the record of a failure */
  tsr_error *announced;       /* that record */
};

/* Takes transport, also when it fails. Gives *out. */
tsr_status tsr_group_create(tsr_context *context, tsr_transport *transport, const tsr_group_options *options,
                            tsr_group **out, tsr_error *error);

/* One turn of the loop of somebody who waits for messages alone: beats, leaves the core to others until
 * something may have happened. RANK_LOST (naming the member) marks the group broken. */
tsr_status tsr_group_wait_turn(tsr_group *group, tsr_error *error);
/* The same for whoever waits for something else as well: for no longer than that. */
tsr_status tsr_group_wait_for(tsr_group *group, double seconds_max, tsr_error *error);
/* The same without yielding, for whoever looks in between other work. */
tsr_status tsr_group_beat(tsr_group *group, tsr_error *error);
/* RANK_LOST if the group is broken: the first check of whatever wants to send. */
tsr_status tsr_group_check(const tsr_group *group, tsr_error *error);

/* This process failed where others may wait for it: nothing is sent any more, and they are told. */
void tsr_group_abandon(tsr_group *group);

double tsr_group_now(const tsr_group *group);
/* Virtual time of a local member, later than now while it works; in real time the same as now. */
double tsr_group_now_of(const tsr_group *group, int member);
/* In virtual time local member `member` works for so long, at its speed; in real time nothing. */
void tsr_group_spend(tsr_group *group, int member, double seconds);
/* Bytes sent by local member `member` (its index in the group) since the group began. */
uint64_t tsr_group_bytes_sent(const tsr_group *group, int member);

/* The transport's memory: page-aligned, zeroed, of a local member; NULL = ordinary memory will do as well. */
void *tsr_group_memory_create(tsr_group *group, int member, size_t bytes);
void tsr_group_memory_destroy(tsr_group *group, void *memory);

/* After a failure MPI may hold on to memory that a message was given, and read or write it until
 * MPI_Finalize: such memory must not be freed, and is lost to the process. */
bool tsr_group_keeps_memory(const tsr_group *group);
/* Frees memory of malloc that messages were given, unless it must be kept. */
void tsr_group_free(const tsr_group *group, void *memory);

/* Makes and releases what tsr_group_agree needs. */
tsr_status tsr_group_prepare_agreement(tsr_group *group, tsr_error *error);
void tsr_group_release_agreement(tsr_group *group);

#endif
