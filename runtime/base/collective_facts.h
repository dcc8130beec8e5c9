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
  TSR_BROADCAST,
  TSR_ALL_TO_ALL
} tsr_collective_kind;
enum { TSR_COLLECTIVE_KINDS = 5 };
const char *tsr_collective_kind_name(tsr_collective_kind kind); /* "all-reduce", ... */

/* Which collective, over what.
 *
 *   ALL_REDUCE      in: counts[0] elements (all counts equal);  out: the same place, reduced
 *   ALL_GATHER      in: counts[me];   out: the sum of counts, in the order of the members
 *   REDUCE_SCATTER  in: the sum of counts;   out: counts[me], reduced
 *   BROADCAST       in: counts[0] at root;   out: counts[0] everywhere
 *   ALL_TO_ALL      in: counts[me * n + j] for j in order;   out: counts[i * n + me] for i in order */
typedef struct tsr_collective_options {
  tsr_collective_kind kind;
  tsr_dtype dtype;      /* f32, f64 */
  size_t element_bytes; /* of collectives that only move data; 0 = the dtype's */
  tsr_reduction reduction;
  int root;                /* BROADCAST: index within members */
  const int64_t *counts;   /* by index within members (ALL_TO_ALL: n x n); borrowed for the call */
  const int *members;      /* who takes part, ascending; borrowed for the call; NULL = all */
  int member_count;        /* of members; 0 = all */
  tsr_algorithm algorithm; /* one that the kind does not have is replaced as AUTO would */
  tsr_dtype wire;          /* of f32 data: f32, bf16 or f16 on the way, sums in f32; 0 = f32 */
  const int *hosts; /* by member of the group: who shares a host has the same number; borrowed for the call;
                       NULL = all on one */
  int64_t message_bytes; /* large data that is combined or narrowed travels in messages of about so many; 0 =
                            256 KiB */
} tsr_collective_options;

/* What one message costs between two members: seconds = latency + bytes / bandwidth. */
typedef struct tsr_link {
  double latency, bandwidth;
} tsr_link;
typedef struct tsr_links {
  tsr_link host, network;  /* between members of one host, of two */
  double reduce_bandwidth; /* bytes per second that a member combines */
} tsr_links;

/* What a narrow wire adds to the error of any element, at most, in units of the sum of the magnitudes of all
 * contributions to it (of which there is one where nothing is combined): (1 + u)^r - 1, where u is 2^-8 for
 * bf16 and 2^-11 for f16, and r the roundings that a value meets on its longest way. 0 without a narrow wire.
 * Holds where no sum on the way leaves the type's range; of f16, what is below 2^-14 has 2^-25 per rounding
 * on top. */
double tsr_collective_wire_error(const tsr_collective_options *options);

/* Bytes of scratch in host memory that member `index` (within members) of such a collective needs, and bytes
 * that it sends. member_count must be set. */
size_t tsr_collective_scratch_bytes(const tsr_collective_options *options, int index);
uint64_t tsr_collective_sent_bytes(const tsr_collective_options *options, int index);
/* Seconds from the moment when all have begun until the last has ended, by the rounds of the very schedule
 * that will run. */
double tsr_collective_seconds(const tsr_collective_options *options, const tsr_links *links);
/* The algorithm with the lowest tsr_collective_seconds; the first of the list at a tie. */
tsr_algorithm tsr_collective_choose(const tsr_collective_options *options, const tsr_links *links);

#endif
