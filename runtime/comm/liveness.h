/* comm/liveness.h: who still gives signs of life. Pure bookkeeping on times that are passed in; the transport
 * sends and receives the signs.
 *
 * Silence is measured on a clock that runs only while this process calls: after a long computation of its own
 * it must not blame the others for signs that it did not look for.
 *
 * A member that computes for longer than the deadline without calling is slow, as long as it is known to
 * live: its thread says so (transport_mpi_thread.c), or its process is seen (comm/process.h). Nobody is ever
 * lost for being slow. Without either, what counts is silence. */
#ifndef TSR_COMM_LIVENESS_H
#define TSR_COMM_LIVENESS_H

#include "base/error.h"

#include <stdbool.h>

typedef struct tsr_liveness {
  int members, me;
  double deadline; /* seconds of silence that are allowed */
  double calling;  /* seconds spent calling, so far */
  double last_call;
  double next_look, next_sign;
  struct tsr_liveness_peer {
    /* All on the calling clock: its program called, it was known to live, it was said to be slow. */
    double heard_at, lived_at, told_at;
    double left_at;
    bool left; /* ended as it should: never lost */
  } * peers;
} tsr_liveness;

/* What is due now. */
typedef enum tsr_liveness_due { TSR_LIVENESS_NOTHING, TSR_LIVENESS_LOOK, TSR_LIVENESS_SIGN } tsr_liveness_due;

tsr_status tsr_liveness_init(tsr_liveness *liveness, int members, int me, double now, tsr_error *error);
void tsr_liveness_finish(tsr_liveness *liveness);

/* This process calls. LOOK: time to see what arrived; SIGN: and to send signs as well. */
tsr_liveness_due tsr_liveness_call(tsr_liveness *liveness, double now, double deadline_seconds);
/* Seconds between two signs. */
double tsr_liveness_sign_seconds(double deadline_seconds);
/* Seconds between two looks for signs: nobody should sleep for longer. */
double tsr_liveness_look_seconds(double deadline_seconds);
void tsr_liveness_heard(tsr_liveness *liveness, int peer);
void tsr_liveness_left(tsr_liveness *liveness, int peer);

/* It lives, whatever it does. */
void tsr_liveness_lives(tsr_liveness *liveness, int peer);

/* A member that was not heard for more than half the deadline, named once per deadline; -1 = none. */
int tsr_liveness_slow(tsr_liveness *liveness);
/* The member that for the longest time beyond the deadline was neither heard nor known to live; -1 = none. */
int tsr_liveness_lost(const tsr_liveness *liveness);
/* Whether peer left so long ago that nothing more can come from it. */
bool tsr_liveness_left_long_ago(const tsr_liveness *liveness, int peer);

#endif
