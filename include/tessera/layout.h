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

/* Layouts on a mesh of one axis. */
tsr_layout tsr_layout_replicate(void);
/* offsets: parts + 1 numbers, borrowed, or NULL (and parts 0): the planner decides. */
tsr_layout tsr_layout_shard(int axis, int parts, const int64_t *offsets);
tsr_layout tsr_layout_partial(tsr_reduction reduction);

#ifdef __cplusplus
}
#endif
#endif
