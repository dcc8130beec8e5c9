/* exec/session.h: the inside of a session. */
#ifndef TSR_EXEC_SESSION_H
#define TSR_EXEC_SESSION_H

#include <tessera/session.h>

#include "comm/group.h"
#include "exec/convert.h"
#include "exec/launch.h"
#include "exec/trace.h"

typedef struct tsr_host_pages {
  void *data;
  bool of_group; /* the group's memory, which other members can read in place */
} tsr_host_pages;

/* One member that this process drives. */
typedef struct tsr_local {
  int member;       /* index in the group */
  int active_index; /* among the plan's active members; -1 = excluded: it holds and does nothing */
  tsr_device *device;
  tsr_store *stores;               /* [plan storage] */
  tsr_convert *converts;           /* [step]; used by CONVERT steps */
  tsr_host_pages scratch, packing; /* shared by all converts */
  uint64_t allocated_bytes;

  int step;             /* next step to be enqueued */
  int begun, ended;     /* collectives among the steps before these have begun (been enqueued), and ended */
  bool done;            /* all steps were enqueued and have ended */
  bool idle;            /* its device had nothing to do when it was last asked */
  double idle_since;    /* and a collective to wait for; 0 = not so */
  uint64_t sent_before; /* counter of the group when the step began */
  tsr_trace *trace;     /* NULL = nothing is recorded */
  tsr_member_report report;
} tsr_local;

struct tsr_session {
  tsr_context *context;
  tsr_group *group;     /* borrowed */
  const tsr_plan *plan; /* borrowed */
  int local_count;
  tsr_local *locals;
  bool in_flight, poisoned;
  bool tracing;
  bool own_part_ended; /* of the step in flight */
  tsr_status step_status;
  tsr_error step_error;
  double started; /* when the step in flight began */
  uint64_t step_count;
  double last_seconds;    /* of the last step: this process's */
  double *sample_seconds; /* of steps 0, stride, 2 stride, ...: this process's */
  uint64_t sample_stride;
  size_t sample_count;
};

/* Step times that are kept, an even number: when they are full, every second one is dropped, so that a step
 * needs no memory however many there are. The same on all processes. */
enum { TSR_SESSION_SAMPLES = 4096 };

/* The local of a group's member; INVALID_ARGUMENT if it is not local. */
tsr_status tsr_session_local(tsr_session *session, int member, tsr_local **out, tsr_error *error);
/* INVALID_ARGUMENT, POISONED or OK: the first check of every call. */
tsr_status tsr_session_usable(const tsr_session *session, const char *call, tsr_error *error);
/* Returns status, by which the session is poisoned if it speaks of a lost rank. */
tsr_status tsr_session_note(tsr_session *session, tsr_status status);
/* Agrees on a phase's status; a lost rank poisons the session. */
tsr_status tsr_session_agree(tsr_session *session, tsr_status own, tsr_error *error);
/* Failed where others may wait in a collective that this process will never enter: an agreement would wait
 * for them for ever, so they are told instead. Returns status. */
tsr_status tsr_session_fail(tsr_session *session, tsr_status status);
/* Returns status; a failure that names no rank yet is this member's, on its device. error may be NULL. */
tsr_status tsr_local_blame(const tsr_local *local, tsr_status status, tsr_error *error);
/* The tensor of a value in the layout in which it stands between steps. */
tsr_status tsr_session_tensor(const tsr_session *session, const tsr_local *local, tsr_value value,
                              tsr_tensor *out, tsr_error *error);

/* ---- advance.c ---- */

/* Enqueues a NODE or COPY step; alone: without the nodes that are computed with it. */
tsr_status tsr_local_launch(const tsr_session *session, const tsr_local *local, int index, bool alone,
                            tsr_error *error);
/* In front of the first step, nothing waited for. */
void tsr_local_rewind(tsr_local *local);
/* Goes on as far as it can without waiting: enqueues steps, begins and tests collectives. Sets local->done.
 */
tsr_status tsr_local_progress(const tsr_session *session, tsr_local *local, tsr_error *error);
/* One step by itself, outside a step of the session: enqueues it, or begins and tests its collective; *ended
 * = it is behind (a node is when it is enqueued), else call again. */
tsr_status tsr_local_run(const tsr_session *session, tsr_local *local, int index, bool *ended,
                         tsr_error *error);

#endif
