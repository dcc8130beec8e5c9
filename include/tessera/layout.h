/* tessera/layout.h: how a value lies over the members of a group.
 *
 * For each axis of the device mesh a value has one placement. The terms are those of PyTorch's DTensor:
 * replicate, every member holds all of it; shard, member r holds offsets[r] .. offsets[r + 1] of one axis
 * (lengths may differ, and may be zero); partial, every member holds a summand (or a candidate for the
 * maximum). Two layouts are equal only if their offsets are.
 *
 * Thread safety: plain data. */
#ifndef TESSERA_LAYOUT_H
#define TESSERA_LAYOUT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TSR_MESH_AXES_MAX = 2 };

typedef enum tsr_placement_kind { TSR_REPLICATE, TSR_SHARD, TSR_PARTIAL } tsr_placement_kind;

typedef enum tsr_reduction { TSR_SUM, TSR_MAX } tsr_reduction;

typedef struct tsr_placement {
  tsr_placement_kind kind;
  int axis;                /* SHARD: the axis of the value that is split */
  tsr_reduction reduction; /* PARTIAL */
  int parts;               /* SHARD: number of members, if offsets is given */
  const int64_t *offsets;  /* SHARD: parts + 1 numbers, borrowed; NULL = the planner decides */
} tsr_placement;

typedef struct tsr_layout {
  int mesh_axes; /* 1 for now */
  tsr_placement on[TSR_MESH_AXES_MAX];
} tsr_layout;

/* How a collective that turns one layout into another is done. name, text. AUTO: a plan chooses by the links'
 * measured cost; one that the kind of collective does not have is replaced as AUTO would. */
#define TSR_ALGORITHM_LIST(X)                                                                                \
  X(AUTO, "auto")                                                                                            \
  X(DIRECT, "direct")             /* everyone sends to everyone: one round */                                \
  X(DOUBLING, "doubling")         /* recursive doubling: log2 n rounds of everything */                      \
  X(SCATTERED, "scattered")       /* all-reduce as reduce-scatter and all-gather, each in one round */       \
  X(RING, "ring")                 /* round the members in chunks: the fewest bytes, n - 1 rounds */          \
  X(HIERARCHICAL, "hierarchical") /* within each host, one stream per host across, within each host */       \
  X(TREE, "tree")                 /* through member 0, in log2 n rounds */
typedef enum tsr_algorithm {
#define TSR_ALGORITHM_ENUM(name, text) TSR_ALGORITHM_##name,
  TSR_ALGORITHM_LIST(TSR_ALGORITHM_ENUM)
#undef TSR_ALGORITHM_ENUM
      TSR_ALGORITHM_COUNT
} tsr_algorithm;
/* "ring"; "?" for a value outside the list. */
const char *tsr_algorithm_name(tsr_algorithm algorithm);

/* Layouts on a mesh of one axis. */
tsr_layout tsr_layout_replicate(void);
/* offsets: parts + 1 numbers, borrowed, or NULL (and parts 0): the planner decides. */
tsr_layout tsr_layout_shard(int axis, int parts, const int64_t *offsets);
tsr_layout tsr_layout_partial(tsr_reduction reduction);

#ifdef __cplusplus
}
#endif
#endif
