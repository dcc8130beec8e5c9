/* base/collective_facts.h: what planner and communication must both know of a collective: its cost in bytes.
 *
 * Declared here so that the planner need not see the comm room; defined in comm/schedule.c, where the
 * algorithms are, so that the two cannot disagree. Pure. */
#ifndef TSR_BASE_COLLECTIVE_FACTS_H
#define TSR_BASE_COLLECTIVE_FACTS_H

#include <stddef.h>
#include <stdint.h>

#include <tessera/dtype.h>
#include <tessera/layout.h>

typedef enum tsr_collective_kind {
  TSR_ALL_REDUCE,
  TSR_ALL_GATHER,
  TSR_REDUCE_SCATTER,
  TSR_BROADCAST
} tsr_collective_kind;
const char *tsr_collective_kind_name(tsr_collective_kind kind); /* "all-reduce", ... */

/* Which collective, over what.
 *
 *   ALL_REDUCE      in: counts[0] elements (all counts equal);  out: the same place, reduced
 *   ALL_GATHER      in: counts[me];   out: the sum of counts, in the order of the members
 *   REDUCE_SCATTER  in: the sum of counts;   out: counts[me], reduced
 *   BROADCAST       in: counts[0] at root;   out: counts[0] everywhere */
typedef struct tsr_collective_options {
  tsr_collective_kind kind;
  tsr_dtype dtype;      /* f32, f64 */
  size_t element_bytes; /* of collectives that only move data; 0 = the dtype's */
  tsr_reduction reduction;
  int root;              /* BROADCAST: index within members */
  const int64_t *counts; /* by index within members; borrowed for the call */
  const int *members;    /* who takes part, ascending; borrowed for the call; NULL = all */
  int member_count;      /* of members; 0 = all */
} tsr_collective_options;

/* Bytes of scratch in host memory that member `index` (within members) of such a collective needs, and bytes
 * that it sends. member_count must be set. */
size_t tsr_collective_scratch_bytes(const tsr_collective_options *options, int index);
uint64_t tsr_collective_sent_bytes(const tsr_collective_options *options, int index);

#endif
