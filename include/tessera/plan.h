/* tessera/plan.h: the decision how to split a graph over a cluster, its reasons and its prediction.
 *
 * Planning is pure: no device, no MPI, no clock; the same graph, cluster and options give the same plan,
 * bit for bit, and the same hash. A plan keeps a copy of the graph's structure and of the cluster.
 *
 * Thread safety: a plan is immutable; several threads may read it. */
#ifndef TESSERA_PLAN_H
#define TESSERA_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/cluster.h>
#include <tessera/graph.h>
#include <tessera/writer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_plan tsr_plan;

/* Whether parameters of two or more axes may be replicated (data parallelism in disguise). name, text. SMALL:
 * those under 1 % of all bytes of parameters; NEVER: none; AUTO: whatever is fastest and fits. */
#define TSR_REPLICATE_LIST(X)                                                                                \
  X(SMALL, "small")                                                                                          \
  X(NEVER, "never")                                                                                          \
  X(AUTO, "auto")
typedef enum tsr_replicate {
#define TSR_REPLICATE_ENUM(name, text) TSR_REPLICATE_##name,
  TSR_REPLICATE_LIST(TSR_REPLICATE_ENUM)
#undef TSR_REPLICATE_ENUM
} tsr_replicate;

typedef struct tsr_plan_options {
  size_t struct_size;
  tsr_replicate replicate; /* 0 = SMALL */
  double reserve_fraction; /* of each device's memory, kept free, at least 256 MiB on a GPU; 0 = 0.05;
                              below 0 = none */
  bool keep_all; /* every member takes part (its share may be zero); else slow ones may be excluded */
  int chunks; /* into how many chunks a product is cut whose result is reduced, so that the reduction of one
                 runs behind the product of the next: 1 = none, up to 64; 0 = as many as are fastest */
  tsr_algorithm
      collective; /* of every collective that has it; AUTO = the fastest of each by the links' cost */
  tsr_dtype wire; /* of f32 values on their way between members: F32 (0), BF16 or F16. Sums are in f32; what
                     the wire may add to an error, tsr_session_check says */
} tsr_plan_options;
void tsr_plan_options_init(tsr_plan_options *options);
#define TSR_PLAN_OPTIONS(...) (&(tsr_plan_options){.struct_size = sizeof(tsr_plan_options), __VA_ARGS__})

/* Freezes graph, gives *out. INFEASIBLE still gives a plan, which holds the reasons; error's message says
 * what is needed, what there is, and how many such devices would do. (*out is NULL if pins and policy allow
 * no layout at all, and after any other error.) options may be NULL. */
tsr_status tsr_plan_create(tsr_graph *graph, const tsr_cluster *cluster, const tsr_plan_options *options,
                           tsr_plan **out, tsr_error *error);
void tsr_plan_destroy(tsr_plan **plan);

/* [C] Member 0's process passes its plan in *inout, the others NULL; all get member 0's. */
tsr_status tsr_plan_share(tsr_group *group, tsr_context *context, tsr_plan **inout, tsr_error *error);

/* Gives *out. Errors: IO, FORMAT (with the place), MISMATCH (unknown major version; a document whose hash
 * does not fit its contents). */
tsr_status tsr_plan_read(tsr_context *context, const char *path, tsr_plan **out, tsr_error *error);
tsr_status tsr_plan_parse(tsr_context *context, const char *json, size_t bytes, tsr_plan **out,
                          tsr_error *error);

typedef enum tsr_plan_format {
  TSR_PLAN_JSON,   /* "tessera.plan/1": everything, can be read again */
  TSR_PLAN_TEXT,   /* tables for people */
  TSR_PLAN_EXPLAIN /* TEXT, and what bounds each step, and what lost and by how much */
} tsr_plan_format;
tsr_status tsr_plan_write(const tsr_plan *plan, tsr_plan_format format, tsr_writer writer, void *user,
                          tsr_error *error);

/* The plan's own graph: values have the ids of the graph it was made from. Borrowed. */
const tsr_graph *tsr_plan_graph(const tsr_plan *plan);
/* The plan's own cluster, as it was planned for: tsr_cluster_match tells whether it is the one at hand.
 * Borrowed. */
const tsr_cluster *tsr_plan_cluster(const tsr_plan *plan);

/* Where a value lies when the step has ended (an input: where it must be bound). offsets live as long as the
 * plan. */
tsr_status tsr_plan_layout(const tsr_plan *plan, tsr_value value, tsr_layout *out, tsr_error *error);

typedef struct tsr_plan_summary {
  bool feasible;
  bool exact; /* no better plan with these members exists under the cost model, step by step; otherwise
                 gap is stated */
  double gap; /* upper bound of (predicted - optimum) / optimum; 0 if exact */
  const char *reason; /* why infeasible, or why not exact; "" otherwise. Borrowed */
  int members;
  int active; /* members that take part; the others are excluded */
  double predicted_seconds;
  double flops;
  uint64_t hash;
} tsr_plan_summary;
void tsr_plan_summarize(const tsr_plan *plan, tsr_plan_summary *out);

typedef enum tsr_memory_line {
  TSR_MEMORY_WEIGHTS,
  TSR_MEMORY_GRADIENTS,
  TSR_MEMORY_STATE,
  TSR_MEMORY_ACTIVATIONS, /* inputs, outputs and intermediates */
  TSR_MEMORY_WORKSPACE,
  TSR_MEMORY_LINES
} tsr_memory_line;
const char *tsr_memory_line_name(tsr_memory_line line);

typedef struct tsr_plan_member {
  const char *device; /* borrowed */
  bool active;
  double share;   /* its part of the step's floating-point work, 0 .. 1 */
  uint64_t bytes; /* device memory: the sum of lines[] */
  uint64_t lines[TSR_MEMORY_LINES];
  uint64_t host_bytes;    /* host memory for collectives */
  uint64_t reserve_bytes; /* kept free on the device */
  uint64_t memory_bytes;  /* what the device has */
  uint64_t sent_bytes;    /* sent to other members in one step */
  double compute_seconds; /* of one step */
} tsr_plan_member;
tsr_status tsr_plan_get_member(const tsr_plan *plan, int member, tsr_plan_member *out, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
