/* comm/sim.h: the inside of the sim transport: all members in this process, in real time or in virtual time.
 *
 * Without tsr_sim_options a message arrives as soon as both sides are posted (transport_sim.c), and that is
 * all. With them there is a world (transport_sim_time.c): a queue of events, a virtual clock, which stands
 * while members have something to look at and then jumps to the next event, and a wire
 * (transport_sim_wire.c), which says when a message arrives. Faults and the signs of life are in
 * transport_sim_faults.c.
 *
 * The wire. A message starts when its send and its receive are posted. It occupies its sender's port for
 * bytes / bandwidth; its first byte arrives a latency later and it occupies its receiver's port for as long,
 * in the order of arrival. Both requests end with the last byte. So one message takes latency + bytes /
 * bandwidth, and n that meet at a port take latency + n * bytes / bandwidth.
 *
 * Times are whole picoseconds: sums are exact, so what is simultaneous stays so. What happens at the same
 * time happens in an order that follows from the seed. */
#ifndef TSR_COMM_SIM_H
#define TSR_COMM_SIM_H

#include <tessera/group.h>

#include "comm/liveness.h"
#include "comm/transport.h"

typedef enum tsr_sim_state {
  TSR_SIM_IDLE,
  TSR_SIM_SENDING, /* no partner yet: in a queue */
  TSR_SIM_RECEIVING,
  TSR_SIM_FLYING, /* on the wire */
  TSR_SIM_DONE,
  TSR_SIM_ARRIVED_TO_VIEW, /* test has not said so yet */
  TSR_SIM_VIEWED,          /* native = the sender's request */
  TSR_SIM_LENT,            /* native = the receiver's request, which views the data */
  TSR_SIM_MISFIT_SENT,
  TSR_SIM_MISFIT_RECEIVED,
  TSR_SIM_SILENT /* of a member that was killed: it never ends */
} tsr_sim_state;

typedef enum tsr_sim_event_kind {
  TSR_SIM_START,  /* of a message: both sides are posted */
  TSR_SIM_ARRIVE, /* of its first byte */
  TSR_SIM_END,    /* of its last byte */
  TSR_SIM_WAKE,   /* of a member that was busy */
  TSR_SIM_FAULT,  /* number `index` of the faults is due */
  TSR_SIM_TICK    /* signs of life */
} tsr_sim_event_kind;

typedef struct tsr_sim_event {
  int64_t time;
  uint64_t tie, order; /* who is first at the same time */
  tsr_sim_event_kind kind;
  int index; /* of a flight, a member or a fault */
} tsr_sim_event;

/* A message on its way or, before its partner is known, one side of it. At most one event is queued for each,
 * so that room for events is made with flights. */
typedef struct tsr_sim_flight {
  tsr_request *send, *receive; /* NULL: unknown yet, or cancelled */
  int from, to, tag;
  int64_t ready;  /* when the side that is known was posted */
  int64_t begin;  /* when it left its sender */
  int64_t wire;   /* how long it occupies a port */
  int64_t delay;  /* by a fault */
  int64_t hold;   /* REORDER: how long it lets others pass; 0 = not, or not any more */
  int64_t number; /* among its sender's messages */
  bool lost;
  bool held;   /* somebody may overtake it now */
  bool queued; /* it has an event */
  bool waits;  /* for an earlier message of its pair and tag */
  int next_free;
} tsr_sim_flight;

typedef struct tsr_sim_member {
  int64_t send_free, receive_free; /* when its ports are */
  int64_t busy_until, stopped_until;
  int64_t died_at;
  int64_t begun, sent;  /* messages: of either kind, sent */
  int64_t outstanding;  /* requests that it has not seen end */
  uint64_t looks_after; /* the beat from which on it sees what happened */
  bool dead;
  bool has_news; /* something happened that it has not looked at: the clock waits for it */
  bool wakes;    /* its WAKE is queued */
  bool slow;     /* and was reported so */
} tsr_sim_member;

typedef struct tsr_sim_world {
  int member_count;
  tsr_sim_member *members;
  int64_t now;
  uint64_t seed, draws, scheduled;
  uint64_t beats;
  uint64_t waited; /* beats for which the clock has waited for members */
  int with_news;   /* number of members */

  tsr_sim_event *events; /* a binary heap */
  size_t event_count;
  tsr_sim_flight *flights;
  size_t flight_count, flight_capacity;
  int free_flight; /* first of a list; -1 = none */

  tsr_sim_options options; /* its arrays are copies */
  tsr_liveness *lives;     /* [member], as it sees the others; NULL without faults */
  bool *cut;               /* [from][to]: nothing comes through any more */
  double deadline;
  bool ticking, ticked; /* TICKs are queued; one came at this moment */
  int lost;             /* the member that somebody misses; -1 = none */
  const tsr_context *context;
} tsr_sim_world;

/* ---- time: transport_sim_time.c ---- */

/* Gives *out. */
tsr_status tsr_sim_world_create(const tsr_context *context, int members, const tsr_sim_options *options,
                                tsr_sim_world **out, tsr_error *error);
/* May be NULL. */
void tsr_sim_world_destroy(tsr_sim_world *world);
int64_t tsr_sim_ticks(double seconds);
double tsr_sim_seconds(int64_t ticks);
int64_t tsr_sim_later(int64_t time, int64_t ticks);
/* A number that follows from the seed and `what`. */
uint64_t tsr_sim_hash(const tsr_sim_world *world, uint64_t what);
/* The next of a sequence of such numbers. */
uint64_t tsr_sim_draw(tsr_sim_world *world);
/* Never fails: room was made with the flights. Of events at the same time the seed decides, */
void tsr_sim_schedule(tsr_sim_world *world, tsr_sim_event_kind kind, int index, int64_t time);
/* or the lowest tie, then the lowest order. */
void tsr_sim_schedule_by(tsr_sim_world *world, tsr_sim_event_kind kind, int index, int64_t time, uint64_t tie,
                         uint64_t order);
/* A queued event, at this time instead. */
void tsr_sim_hasten(tsr_sim_world *world, tsr_sim_event_kind kind, int index, int64_t time);
/* The member's own time: later than the world's while it is busy. */
int64_t tsr_sim_time_of(const tsr_sim_world *world, int member);
void tsr_sim_occupy(tsr_sim_world *world, int member, int64_t ticks);
/* Something happened that the member can see. */
void tsr_sim_tell(tsr_sim_world *world, int member);
/* Nobody waits for it to look any more. */
void tsr_sim_forget(tsr_sim_world *world, int member);
/* The member looks; false = it sees nothing yet. */
bool tsr_sim_looks(tsr_sim_world *world, int member);
/* A turn of somebody's waiting loop: once all have looked, the clock goes on to the next event. */
void tsr_sim_turn(tsr_sim_world *world, double deadline);

/* ---- the wire: transport_sim_wire.c ---- */

/* One side of a message was posted by a member that lives. */
tsr_status tsr_sim_post(tsr_sim_world *world, tsr_request *request, bool sends, tsr_error *error);
/* The two sides have met. */
void tsr_sim_launch(tsr_sim_world *world, tsr_request *send, tsr_request *receive);
/* A request that was posted is no longer there. */
void tsr_sim_withdraw(tsr_sim_world *world, tsr_request *request);
void tsr_sim_on_message(tsr_sim_world *world, tsr_sim_event_kind kind, int index);
/* Both sides have ended: transport_sim.c. */
void tsr_sim_deliver(tsr_request *send, tsr_request *receive);

/* ---- faults: transport_sim_faults.c ---- */

tsr_status tsr_sim_check_options(const tsr_sim_options *options, int members, tsr_error *error);
tsr_status tsr_sim_prepare_faults(tsr_sim_world *world, tsr_error *error);
void tsr_sim_release_faults(tsr_sim_world *world);
/* The member begins a message: false if it does not live to do so. */
bool tsr_sim_begins(tsr_sim_world *world, int member);
/* What is to happen to the message that its sender just posted. */
void tsr_sim_plan_flight(const tsr_sim_world *world, tsr_sim_flight *flight);
void tsr_sim_on_fault(tsr_sim_world *world, int index);
void tsr_sim_on_tick(tsr_sim_world *world);

#endif
