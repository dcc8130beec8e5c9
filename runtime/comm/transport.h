/* comm/transport.h: what carries messages between members. Everything above is written once, on this.
 *
 * Messages between a pair of members with the same tag arrive in the order in which they were sent. Nothing
 * here blocks, but for destroy, which may wait for the others to leave as well. Only the mpi transport's
 * files see <mpi.h>. */
#ifndef TSR_COMM_TRANSPORT_H
#define TSR_COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/group.h>

#include "base/context.h"

typedef struct tsr_transport tsr_transport;

/* Tags are 0 .. TSR_TAG_LIMIT - 1 (what every MPI grants); collectives use those below TSR_COLLECTIVE_TAGS.
 */
enum {
  TSR_COLLECTIVE_TAGS = 16384,
  TSR_TAG_REDISTRIBUTION = TSR_COLLECTIVE_TAGS,
  TSR_TAG_ANNOUNCEMENT,
  TSR_TAG_LIMIT = 32768,
};

/* A message in flight; the caller's memory, zeroed before the first use, not moved while in flight. Opaque
 * but for the transport. */
typedef struct tsr_request {
  int state; /* 0 = idle: no message */
  int peer;  /* the other member, for error messages */
  int64_t bytes;
  const void *view; /* after irecv_view has ended: where the data lies */
  void *native;
  void *data;
  int from, to, tag;                   /* sim, shared memory: what it is matched by */
  int64_t peer_bytes;                  /* sim: what the other side said, if that differs */
  struct tsr_request *next, *previous; /* sim, shared memory: the queue in which it waits */
  bool viewed;                         /* likewise: begun by irecv_view */
  uint32_t record;                     /* likewise: where its fate is noted */
  int lane;                            /* shared memory: how it travels */
} tsr_request;

/* For transports: requests in the order in which they came; none is in two queues. */
typedef struct tsr_request_queue {
  tsr_request *first, *last;
} tsr_request_queue;
void tsr_request_append(tsr_request_queue *into, tsr_request *request);
void tsr_request_prepend(tsr_request_queue *into, tsr_request *request);
void tsr_request_unlink(tsr_request_queue *from, tsr_request *request);

typedef struct tsr_transport_ops {
  const char *name;
  /* Frees the transport; messages in flight must have been cancelled. Legal after RANK_LOST. */
  void (*destroy)(tsr_transport *transport);
  /* Starts sending `bytes` (may be 0) from local member `from` to member `to`; data stays untouched until
   * test says done. */
  tsr_status (*isend)(tsr_transport *transport, int from, int to, int tag, const void *data, int64_t bytes,
                      tsr_request *request, tsr_error *error);
  /* Starts receiving exactly `bytes` from member `from` at local member `to`. */
  tsr_status (*irecv)(tsr_transport *transport, int to, int from, int tag, void *data, int64_t bytes,
                      tsr_request *request, tsr_error *error);
  /* As irecv, for data that is only read: once test says done, it lies at request->view, in the sender's own
   * memory where that can be reached, else at data. It stays there until release; the sender's message ends
   * then. NULL = irecv is all there is. */
  tsr_status (*irecv_view)(tsr_transport *transport, int to, int from, int tag, void *data, int64_t bytes,
                           tsr_request *request, tsr_error *error);
  /* The view is no longer wanted. Cancel does the same. */
  void (*release)(tsr_transport *transport, tsr_request *request);
  /* *done = the message has ended (an idle request has); a message of another size is COMM. A request that
   * failed is idle. */
  tsr_status (*test)(tsr_transport *transport, tsr_request *request, bool *done, tsr_error *error);
  /* After a failure: forgets a message in flight (an idle request: nothing), so that its memory may go, or
   * else sets keeps_memory. */
  void (*cancel)(tsr_transport *transport, tsr_request *request);
  /* Signs of life: called by whoever waits, often. Lets pending work progress. *lost = a member that has
   * given no sign for deadline seconds although this process called regularly, or -1. */
  tsr_status (*beat)(tsr_transport *transport, double deadline_seconds, int *lost, tsr_error *error);
  /* Called once, when this process has failed and will send nothing more: tells the others; *lost of their
   * beat then names it, and so does failed_member. NULL = all members live in this process. */
  void (*abandon)(tsr_transport *transport);
  /* Page-aligned memory of a local member, zeroed, from which messages travel with the fewest copies: other
   * members of the same host read it where it lies. NULL from it = none left, ordinary memory will do as
   * well; both NULL = there is no such memory. */
  void *(*memory_create)(tsr_transport *transport, int member, size_t bytes);
  void (*memory_destroy)(tsr_transport *transport, void *memory);
  /* Leaves the core to others until something may have happened for this process, or for that long; NULL =
   * sched_yield is all there is. */
  void (*rest)(tsr_transport *transport, double seconds_max);
  /* Local member `member` works for so long: called where it combines contributions, so that virtual time
   * knows. NULL = time passes by itself. */
  void (*spend)(tsr_transport *transport, int member, double seconds);
  /* Seconds since some fixed moment: of this process's clock, or virtual. */
  double (*now)(tsr_transport *transport);
  /* Virtual time of one local member, later than now while it works; NULL = as now. */
  double (*now_of)(tsr_transport *transport, int member);
} tsr_transport_ops;

struct tsr_transport {
  const tsr_transport_ops *ops;
  tsr_context *context;
  int member_count;
  int local_count;
  int *local_members;             /* indices in the group, ascending */
  int failed_member;              /* one that said so (abandon); -1 = none */
  bool keeps_memory;              /* what a message was given may still be read or written: see cancel */
  bool crowded;                   /* this host has more of the group's processes than cores */
  uint64_t *bytes_sent;           /* by local member; counted by the transport */
  int64_t message_bytes_max;      /* a longer message travels in pieces; tests make it small */
  double reduce_seconds_per_byte; /* what `spend` is to be told of a byte that is combined */
};

/* options: NULL = in real time, messages arrive at once. They must be sound (comm/sim.h). */
tsr_status tsr_transport_create_sim(tsr_context *context, int members, const tsr_sim_options *options,
                                    tsr_transport **out, tsr_error *error);

/* For transports. init sets the fields above for local members first .. first + local_count - 1. */
tsr_status tsr_transport_init(tsr_transport *transport, const tsr_transport_ops *ops, tsr_context *context,
                              int member_count, int first, int local_count, tsr_error *error);
void tsr_transport_finish(tsr_transport *transport);
/* Position of a member among the local ones; -1 = it lives elsewhere. */
int tsr_transport_local_index(const tsr_transport *transport, int member);

#endif
