/* comm/transport_mpi.h: the inside of the mpi transport, one member per rank of a communicator. The only
 * header of the library that includes <mpi.h>, and included by transport_mpi*.c alone.
 *
 * Ranks of one host talk through shared memory (comm/shared.h) if all of that host can have it, and else,
 * like ranks of two hosts, through MPI: a pair of ranks has one route, so its messages stay in order.
 *
 * Two copies of the caller's communicator: one for data, one for signs of life. A receive for the next sign
 * of every peer that is not reached through shared memory is always posted. A sign is one byte: BEAT,
 * WORKING, FAILURE, or FAREWELL, the last one of a member that destroys its group. Destroying waits for
 * everyone's farewell, so that no message is left for a communicator that is gone; the farewell also
 * completes the peer's posted receive.
 *
 * Nothing here blocks in MPI after creation: MPI's own waiting loops neither yield the core nor notice a dead
 * rank (and may then even return success).
 *
 * Any thread level will do. Where MPI_THREAD_MULTIPLE was granted and ranks are reached through MPI, a thread
 * gives the signs of life (comm/transport_mpi_thread.c), so that a rank which computes for long without
 * calling is known to live: its sign is then WORKING. */
#ifndef TSR_COMM_TRANSPORT_MPI_H
#define TSR_COMM_TRANSPORT_MPI_H

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include "comm/liveness.h"
#include "comm/process.h"
#include "comm/shared.h"
#include "comm/transport.h"

typedef enum tsr_mpi_sign {
  TSR_SIGN_BEAT = 'b',    /* its program calls the group */
  TSR_SIGN_WORKING = 'w', /* its process lives, its program has not called since the last sign */
  TSR_SIGN_FAILURE = 'x',
  TSR_SIGN_FAREWELL = 'f',
} tsr_mpi_sign;

typedef struct tsr_mpi_peer {
  MPI_Request receive, send; /* of signs */
  char received, sent;
  bool farewell_sent;
  int shared_member;    /* its number within this host; -1 = it is reached through MPI */
  uint32_t beats_heard; /* through shared memory */
} tsr_mpi_peer;

typedef struct tsr_mpi {
  tsr_transport base;
  MPI_Comm data, signs; /* ours once `started` */
  int me;
  bool started; /* every rank has its transport: signs are exchanged */
  bool broken;  /* a member was lost */
  tsr_liveness liveness;
  tsr_process *processes; /* [rank] */
  tsr_mpi_peer *peers;
  tsr_shared_offer *offers; /* [rank]; while memory is being shared */
  tsr_shared *shared;       /* NULL = MPI alone */
  bool spans_hosts;         /* some rank is reached through MPI */
  int64_t in_flight;        /* messages in MPI */
  struct tsr_mpi_thread {
    bool runs; /* the sends of signs are its own */
    pthread_t id;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    double interval;        /* seconds between two signs */
    bool ends;              /* under lock */
    _Atomic unsigned looks; /* counted by the program's thread: it calls */
    int key;                /* of the attribute by which MPI_Finalize ends it */
  } thread;
} tsr_mpi;

extern const tsr_transport_ops tsr_mpi_ops;

static inline bool tsr_mpi_shares(const tsr_mpi *mpi, int rank) {
  return mpi->shared && mpi->peers[rank].shared_member >= 0;
}

tsr_status tsr_mpi_fail(tsr_error *error, int code, const char *what);

/* MPICH hands the errors of MPI_Test to the handler of MPI_COMM_WORLD, whatever communicator the message was
 * on, and the usual one aborts. So that handler is set aside during the calls that complete messages, by any
 * number of threads. */
void tsr_mpi_set_handler_aside(void);
void tsr_mpi_put_handler_back(void);

/* Ends a request whose outcome no longer matters; false if MPI would not let go of it (its memory must then
 * stay). */
bool tsr_mpi_drop(MPI_Request *native, bool receives);

/* transport_mpi_signs.c */
void tsr_mpi_expect_sign(tsr_mpi *mpi, int rank);
/* Not while the sign before is still on its way; true = this one is, or the rank sees it in shared memory. */
bool tsr_mpi_give_sign(tsr_mpi *mpi, int rank, tsr_mpi_sign sign);
tsr_status tsr_mpi_beat(tsr_transport *transport, double deadline_seconds, int *lost, tsr_error *error);
void tsr_mpi_abandon(tsr_transport *transport);
void tsr_mpi_rest(tsr_transport *transport, double seconds_max);
void tsr_mpi_destroy(tsr_transport *transport);

/* transport_mpi_thread.c. Start: where it can be had; without it the program gives the signs as it calls. */
void tsr_mpi_thread_start(tsr_mpi *mpi);
void tsr_mpi_thread_stop(tsr_mpi *mpi);

#endif
