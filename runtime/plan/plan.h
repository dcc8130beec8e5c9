/* plan/plan.h: the inside of a plan.
 *
 * A plan is a small decision (who is active, where each dimension is cut, in which layouts each value exists)
 * and all that follows from it by tsr_plan_lower(): steps, buffers, bytes, times. A plan file stores the
 * graph, the cluster and the decision; reading it lowers again. */
#ifndef TSR_PLAN_PLAN_H
#define TSR_PLAN_PLAN_H

#include <tessera/plan.h>

#include "base/collective_facts.h"
#include "graph/conv.h"
#include "plan/cluster.h"

/* A set of placements of one value, as bits. */
typedef uint8_t tsr_place_set;
static inline tsr_place_set tsr_place_bit(tsr_place place) {
  return (tsr_place_set)(1u << (place - TSR_PLACE_MAX));
}
static inline bool tsr_place_in(tsr_place_set set, tsr_place place) {
  return (set & tsr_place_bit(place)) != 0;
}

/* In which layouts a value exists. From a replicated copy every shard is a free view, so a set that holds
 * REPLICATE serves every shard too. */
typedef struct tsr_choice {
  tsr_place produced;    /* as its node, or its loader, makes it */
  tsr_place_set present; /* produced, and what conversions add */
} tsr_choice;

typedef struct tsr_decision {
  int active_count;
  int *active; /* members that take part, ascending */
  size_t dim_count;
  int64_t *offsets; /* [dim][active_count + 1]: cuts of each dimension over the active members */
  size_t value_count;
  tsr_choice *choices; /* [value id] */
  int *rules;          /* [node]: index of the layout rule it is computed by; -1 = nobody wants it */
  uint8_t *chunks;     /* [value id]: into how many chunks its product and its reduction are cut; 0 = 1 */
  int algorithm_count;
  uint8_t *algorithms; /* [CONVERT, in the order of steps]: tsr_algorithm; NULL = not settled: the cheapest */
} tsr_decision;

/* One copy of a value on every active member. */
typedef struct tsr_plan_buffer {
  tsr_value value;
  tsr_place place;
  int storage;               /* index into storages; buffers of disjoint lifetimes share one */
  int first_step, last_step; /* lifetime, a collective in flight included; 0 .. step_count for what stays */
  bool panels;               /* stored in the device's panel form where that has one */
} tsr_plan_buffer;

/* Memory on every active member. */
typedef struct tsr_plan_storage {
  tsr_memory_line line;
  int64_t *bytes; /* [active index] */
  int last_step;  /* while storages are assigned: last use so far; -1 = cannot be shared */
} tsr_plan_storage;

/* Steps are enqueued in their order. A CONVERT begins when the device has its source ready, and goes on
 * behind the steps that follow; one member's collectives run one at a time, in the order of the steps, so
 * that "has ended" of one says the same of all before it. */
typedef enum tsr_step_kind {
  TSR_STEP_NODE,    /* compute a node */
  TSR_STEP_CONVERT, /* turn one layout into another by a collective */
  TSR_STEP_COPY     /* assign: copy a value into its target */
} tsr_step_kind;

/* What a node does that is computed in the step of another, in the order in which they may follow. */
typedef enum tsr_fused_role {
  TSR_FUSED_SCALE,   /* * a row, right behind the sums: factors of the columns of weights in i8 */
  TSR_FUSED_BIAS,    /* + a row */
  TSR_FUSED_UNARY,   /* f() */
  TSR_FUSED_GATE,    /* * a matrix */
  TSR_FUSED_RESIDUAL /* + a matrix */
} tsr_fused_role;
enum { TSR_FUSED_MAX = 5 };

typedef struct tsr_fused {
  int node;
  tsr_fused_role role;
  int operand; /* index of the input that is the row or matrix; -1 = it has none */
} tsr_fused;

typedef struct tsr_step {
  tsr_step_kind kind;
  int node;                       /* NODE */
  int fused_count;                /* NODE: nodes computed with it, each on the result of the one before */
  tsr_fused fused[TSR_FUSED_MAX]; /* see plan/fuse.h */
  tsr_value value;                /* NODE: output; CONVERT, COPY: what is converted or copied */
  tsr_place from, to;             /* CONVERT; NODE: to = the output's placement */
  tsr_collective_kind collective; /* CONVERT */
  tsr_algorithm algorithm;        /* CONVERT */
  tsr_value target;               /* COPY */
  int waits_for;        /* the last CONVERT that must have ended before this one begins; -1 = none */
  int chunk, chunks;    /* NODE, CONVERT: which of how many; NODE i is followed by its CONVERT i */
  tsr_place chunk_to;   /* chunks > 1: where the CONVERT leads, which decides who has which rows */
  double seconds;       /* predicted, the slowest member */
  uint64_t bytes;       /* CONVERT: sent by the member that sends most; NODE: read and written, the most */
  const char *bound_by; /* "compute", "memory", "launch", "network" */
} tsr_step;

struct tsr_plan {
  tsr_context *context;
  tsr_graph *graph;     /* own copy */
  tsr_cluster *cluster; /* own copy */
  tsr_plan_options options;
  tsr_decision decision;

  /* [value id * TSR_AXES_MAX + axis] -> dimension */
  uint32_t *dims;
  int64_t *dim_extents;
  size_t dim_count;

  double straggle_seconds; /* what every collective loses to members that arrive late */

  bool overlaps; /* buffers live until the collective in flight that reads them has ended */
  int step_count, step_capacity;
  tsr_step *steps;
  int buffer_count, buffer_capacity;
  tsr_plan_buffer *buffers;
  int storage_count, storage_capacity;
  tsr_plan_storage *storages;
  tsr_plan_member *members; /* [member] */

  bool feasible, exact;
  double gap;
  char reason[512];
  double predicted_seconds;
  uint64_t hash;
};

/* Derives steps, buffers, members' bytes and times from graph, cluster, options, decision. Whatever it
 * derived before is replaced. */
tsr_status tsr_plan_lower(tsr_plan *plan, tsr_error *error);
/* Keeps the algorithms of the steps in the decision: no other machine needs to find the same ones cheapest.
 */
tsr_status tsr_plan_settle_algorithms(tsr_plan *plan, tsr_error *error);
/* Times of steps, members and the whole, from steps whose waits are known. */
tsr_status tsr_plan_predict(tsr_plan *plan, tsr_error *error);
void tsr_plan_clear_lowered(tsr_plan *plan);

/* Index of the buffer that holds value at place, or at REPLICATE if place is a shard that is a view of it; -1
 * = none. *is_view tells. */
int tsr_plan_find_buffer(const tsr_plan *plan, tsr_value value, tsr_place place, bool *is_view);

/* Range of an axis that an active member holds under place: [begin, end), the whole axis unless place splits
 * it. */
void tsr_plan_range(const tsr_plan *plan, tsr_value value, tsr_place place, int axis, int active_index,
                    int64_t *begin, int64_t *end);
/* Shape of what an active member holds. */
tsr_shape tsr_plan_local_shape(const tsr_plan *plan, tsr_value value, tsr_place place, int active_index);
/* A shape as the matrix it is stored as, rows x cols: all axes but the last are rows; a scalar is 1 x 1, [n]
 * is 1 x n. Of images and their weights, which have four axes, the first alone is rows: a share of batch or
 * of channels is a block. */
void tsr_shape_matrix(const tsr_shape *shape, int64_t *rows, int64_t *cols);
/* How an element of an axis lies in that matrix: as `unit` columns (along_cols) or rows. False: as neither.
 */
bool tsr_axis_matrix(const tsr_shape *shape, int axis, bool *along_cols, int64_t *unit);
/* What a member has of a convolution (conv, conv_input, conv_weight), computed by a rule. */
tsr_conv_geometry tsr_plan_conv(const tsr_plan *plan, const tsr_node *node, const tsr_rule *rule,
                                int active_index);
/* Panel width in which an active member stores a buffer: 0 = row-major. */
int tsr_plan_buffer_panel(const tsr_plan *plan, const tsr_plan_buffer *buffer, int active_index);
/* Cuts a matrix into pieces no larger than the member's largest allocation: a piece holds `units` rows
 * (panels if panel > 0) of `unit_bytes` bytes; *pieces >= 1. False if not even one unit fits. */
bool tsr_plan_pieces(const tsr_plan *plan, int active_index, int panel, tsr_dtype dtype, int64_t rows,
                     int64_t cols, int64_t *units, int64_t *unit_bytes, int *pieces);

/* Where a value lies when a step has ended. */
tsr_place tsr_plan_final_place(const tsr_plan *plan, tsr_value value);
/* The collective of a CONVERT step: counts (active_count numbers, in elements) are filled. */
void tsr_plan_collective(const tsr_plan *plan, const tsr_step *step, int64_t *counts,
                         tsr_collective_options *out);
/* Extra host memory of a CONVERT step on a member: its scratch, and the block that is packed or unpacked when
 * the split axis is not the first. */
size_t tsr_plan_convert_host_bytes(const tsr_plan *plan, const tsr_step *step, int active_index,
                                   size_t *scratch_bytes);

/* The rule by which a live node is computed. */
tsr_rule tsr_plan_rule(const tsr_plan *plan, int node);

/* What a step is predicted to cost one active member. */
typedef struct tsr_step_cost {
  double seconds;
  double bytes; /* read and written; CONVERT: sent */
  double flops;
} tsr_step_cost;
tsr_step_cost tsr_plan_step_cost(const tsr_plan *plan, const tsr_step *step, int active_index);

/* The part of each device's memory that is kept free. */
double tsr_plan_reserve_fraction(const tsr_plan *plan);

void tsr_decision_finish(tsr_decision *decision);

/* Makes the decision and lowers it. If nothing fits: TSR_OK, feasible = false, the reason, and the decision
 * that needs least. INFEASIBLE if no layout is allowed at all. */
tsr_status tsr_plan_decide(tsr_plan *plan, tsr_error *error);

#endif
