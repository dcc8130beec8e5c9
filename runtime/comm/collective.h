/* comm/collective.h: collectives over the members of a group, written once above the transport.
 *
 * A collective is made once, for one local member, as a schedule of sends, receives, copies and reductions;
 * it is then started and tested any number of times and allocates nothing. Counts are elements per member and
 * may differ, and may be zero; what kinds there are and what they want is in base/collective_facts.h.
 *
 * Every member gets the same bits (of ALL_REDUCE, ALL_GATHER and BROADCAST), and the same bits every time, on
 * any transport: the order in which a sum is formed follows from the algorithm, the counts, the number of
 * members and which of them share a host. DIRECT, and the all-reduce SCATTERED, sum in the order of the
 * members, 0 first; the other algorithms have orders of their own, so that choosing another one may change
 * last bits. f16 and bf16 data is summed in f32 by whoever combines contributions, and is f16 or bf16 again
 * on its way to others.
 *
 * With a narrow wire, f32 data is rounded to nearest even before it is sent and widened when it has come;
 * what stays where it is takes part in the rounding wherever others see the result. See
 * tsr_collective_wire_error. Messages within a host of the algorithm HIERARCHICAL are not narrowed.
 *
 * members lists who takes part, in ascending order (NULL = the whole group). Every one of them makes the same
 * collectives, with the same options, in the same order, and starts them in the same order.
 *
 * Thread safety: as the group's. */
#ifndef TSR_COMM_COLLECTIVE_H
#define TSR_COMM_COLLECTIVE_H

#include "base/collective_facts.h"
#include "comm/group.h"

typedef struct tsr_collective tsr_collective;

/* For local member `member` (index in the group). scratch (of tsr_collective_scratch_bytes, best
 * page-aligned; may be NULL if that is 0) is borrowed until destroy. Gives *out. Errors: INVALID_ARGUMENT,
 * OUT_OF_MEMORY. */
tsr_status tsr_collective_create(tsr_group *group, int member, const tsr_collective_options *options,
                                 void *scratch, tsr_collective **out, tsr_error *error);
/* Before the group. Takes *collective (may be NULL), leaves NULL; messages in flight are cancelled. */
void tsr_collective_destroy(tsr_collective **collective);

/* Begins: in and out as in base/collective_facts.h; may be the same place where both have their data at the
 * same offset (ALL_GATHER: in = its own block within out; ALL_REDUCE, BROADCAST: in = out). */
tsr_status tsr_collective_start(tsr_collective *collective, const void *in, void *out, tsr_error *error);
/* Lets it progress; never blocks. Errors: COMM, RANK_LOST; the collective has then stopped. */
tsr_status tsr_collective_test(tsr_collective *collective, bool *done, tsr_error *error);

/* Tests collectives of this process's local members, in turn, until all have ended: for places that may wait.
 * RANK_LOST after the group's deadline. After a failure all of them have stopped. */
tsr_status tsr_collective_wait_all(tsr_group *group, tsr_collective *const *collectives, size_t count,
                                   tsr_error *error);

#endif
