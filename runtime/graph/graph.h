/* graph/graph.h: the inside of a graph, and the table of rules that every operator brings.
 *
 * Adding an operator: one file of rules in this folder, one line in TSR_OPERATOR_LIST, one launcher in exec/,
 * one .cl, one test row. */
#ifndef TSR_GRAPH_GRAPH_H
#define TSR_GRAPH_GRAPH_H

#include <jansson.h>

#include <tessera/graph.h>

#include "base/context.h"
#include "base/gemm_facts.h"

enum { TSR_NODE_INPUTS_MAX = 3, TSR_RULES_MAX = 16, TSR_LINKS_MAX = 12 };

/* name, text */
#define TSR_OPERATOR_LIST(X)                                                                                 \
  X(MATMUL, "matmul")                 /* alpha op(a) op(b) + beta c */                                       \
  X(ADD, "add")                       /* alpha a + beta b, b broadcast */                                    \
  X(MULTIPLY, "multiply")             /* a b, b broadcast */                                                 \
  X(SCALE, "scale")                   /* alpha a */                                                          \
  X(UNARY, "unary")                   /* f(a) */                                                             \
  X(UNARY_GRADIENT, "unary_gradient") /* f'(a) b */                                                          \
  X(REDUCE, "reduce")                 /* sum or max over one axis */                                         \
  X(SQUARED_ERROR, "squared_error")   /* alpha * sum of (a - b)^2; alpha = 1 / count */                      \
  X(CONV, "conv")                     /* images a with weights b, + bias c: graph/conv.h */                  \
  X(CONV_INPUT, "conv_input")         /* gradient of the images, from that of the output, a, and b */        \
  X(CONV_WEIGHT, "conv_weight")       /* gradient of the weights, from images a and the output's, b */       \
  X(CHANNEL_SUM, "channel_sum")       /* sum of images over all but the channels */                          \
  X(POOL, "pool")                     /* largest or mean element of each window */                           \
  X(POOL_GRADIENT, "pool_gradient")   /* gradient of images a, from b, that of what pool gives */
typedef enum tsr_operator {
#define TSR_OPERATOR_ENUM(name, text) TSR_OPERATOR_##name,
  TSR_OPERATOR_LIST(TSR_OPERATOR_ENUM)
#undef TSR_OPERATOR_ENUM
      TSR_OPERATOR_COUNT
} tsr_operator;

/* How a window of a convolution moves over an image. */
typedef struct tsr_window {
  int64_t stride[2], padding[2], dilation[2]; /* of rows, of columns */
  int64_t groups;
  int64_t extent[2]; /* what the inputs do not tell: of conv_input H, W; of conv_weight R, S; of pool the
                      * window; else 0
                      */
} tsr_window;

typedef struct tsr_node {
  tsr_operator op;
  int input_count;
  tsr_value inputs[TSR_NODE_INPUTS_MAX];
  tsr_value output;
  double alpha, beta;
  bool transpose_a, transpose_b;
  tsr_unary unary;
  tsr_reduction reduction;
  int axis;
  bool unit_axis; /* reduce: `axis` stays, with extent 1; scale: the output has a new unit axis at `axis` */
  tsr_window window;
} tsr_node;

/* The attributes above that an operator uses; the others are zero. */
enum {
  TSR_ATTRIBUTE_ALPHA = 1,
  TSR_ATTRIBUTE_BETA = 2,
  TSR_ATTRIBUTE_TRANSPOSES = 4,
  TSR_ATTRIBUTE_UNARY = 8,
  TSR_ATTRIBUTE_REDUCTION = 16,
  TSR_ATTRIBUTE_AXIS = 32, /* axis and unit_axis */
  TSR_ATTRIBUTE_WINDOW = 64
};

typedef struct tsr_graph_value {
  tsr_value_kind kind;
  tsr_dtype dtype;
  tsr_shape shape;
  char *name;         /* of a leaf; NULL for an intermediate */
  char *output;       /* NULL = no output */
  int producer;       /* index of its node; -1 = a leaf */
  tsr_value assigned; /* of a parameter or state: what it becomes at the end of the step; id 0 = unchanged */
  tsr_value gradient_of; /* the parameter whose gradient it is: it must end in that layout; id 0 = none */
  bool pinned;
  tsr_layout pin; /* offsets point to pin_offsets or are NULL */
  int64_t *pin_offsets;
  int pin_parts;
} tsr_graph_value;

struct tsr_graph {
  tsr_context *context;
  bool frozen;
  size_t value_count, value_capacity; /* ids are 1 .. value_count - 1; values[0] is unused */
  tsr_graph_value *values;
  size_t node_count, node_capacity; /* in an order in which they can be computed */
  tsr_node *nodes;
};

/* A placement on one mesh axis, as the search handles it: an axis of the value that is split, or one of
 * these. */
typedef int8_t tsr_place;
enum { TSR_PLACE_REPLICATE = -1, TSR_PLACE_SUM = -2, TSR_PLACE_MAX = -3 };
const char *tsr_place_name(tsr_place place); /* "replicate", "shard(0)", "partial(sum)", ... */

/* One way to compute a node on every member from shards of its inputs. */
typedef struct tsr_rule {
  tsr_place in[TSR_NODE_INPUTS_MAX];
  tsr_place out;
  /* This input (replicated) is added by one owner only, because the output is partial. */
  bool one_owner[TSR_NODE_INPUTS_MAX];
} tsr_rule;

/* Axis axis[0] of operand 0 of the pair and axis[1] of the other are one dimension: split, they are split at
 * the same offsets. Operand -1 is the output. */
typedef struct tsr_axis_link {
  int operand[2];
  int axis[2];
} tsr_axis_link;

/* The gradient of a value during reverse accumulation: factor * value. Without a value it is the number
 * `factor`: the start at a scalar. The factor ends in the alpha of a product or sum, so that scaling costs no
 * node. */
typedef struct tsr_adjoint {
  tsr_value value;
  double factor;
} tsr_adjoint;

/* A value of the f64 oracle with a bound of its rounding error, elementwise: the computed value of each
 * element lies within `error` of `exact`. Dense, row-major. */
typedef struct tsr_oracle_value {
  double *exact;
  double *error;
} tsr_oracle_value;

typedef struct tsr_operator_rules {
  const char *name;
  int inputs_min, inputs_max;
  unsigned attributes; /* TSR_ATTRIBUTE_... */
  /* Shape of the output from the inputs (set in node; all of one dtype, but for a narrow weight), and its
   * dtype, preset to the first input's; called by tsr_graph_append. */
  tsr_status (*shape)(const tsr_graph *graph, const tsr_node *node, tsr_dtype *dtype, tsr_shape *out,
                      tsr_error *error);
  /* Every legal rule; returns their number (at most TSR_RULES_MAX). The first replicates everything. */
  int (*rules)(const tsr_graph *graph, const tsr_node *node, tsr_rule *out);
  /* Which axes are one dimension; returns their number (at most TSR_LINKS_MAX). */
  int (*links)(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out);
  /* Adds nodes that compute the gradient for input i from the output's, dy. Called for wanted inputs alone;
   * node is a copy, so that the graph may grow. */
  tsr_status (*gradient)(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i, tsr_adjoint *out,
                         tsr_error *error);
  /* Floating-point operations for these extents of the inputs (of one member, or of the whole). */
  double (*flops)(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output);
  /* The oracle: exact in f64 from in[], and the error bound of computing it in a type of unit roundoff
   * epsilon from inputs that carry errors of their own; products of depth k add c sqrt(k) epsilon |a||b|. */
  void (*evaluate)(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                   const tsr_oracle_value *in, double epsilon, tsr_oracle_value out);
} tsr_operator_rules;

/* One file each: matmul.c, add.c, ... */
extern const tsr_operator_rules tsr_matmul_rules, tsr_add_rules, tsr_multiply_rules, tsr_scale_rules,
    tsr_unary_rules, tsr_unary_gradient_rules, tsr_reduce_rules, tsr_squared_error_rules, tsr_conv_rules,
    tsr_conv_input_rules, tsr_conv_weight_rules, tsr_channel_sum_rules, tsr_pool_rules,
    tsr_pool_gradient_rules;
const tsr_operator_rules *tsr_operator_rules_of(tsr_operator op);

static inline const tsr_graph_value *tsr_graph_at(const tsr_graph *graph, tsr_value value) {
  return &graph->values[value.id];
}

/* "input", "parameter", ... */
const char *tsr_value_kind_name(tsr_value_kind kind);

/* What messages call a value: value 3 "w1" [384, 1536]. */
typedef struct tsr_description {
  char text[160];
} tsr_description;
tsr_description tsr_graph_describe(const tsr_graph *graph, tsr_value value);

/* The first checks of every builder: not frozen; `value` is one of the graph's (role: what the caller calls
 * it). */
tsr_status tsr_graph_check_open(const tsr_graph *graph, tsr_error *error);
tsr_status tsr_graph_check_value(const tsr_graph *graph, tsr_value value, const char *role, tsr_error *error);

/* A value's bytes must fit 64 bits. */
tsr_status tsr_graph_check_size(tsr_dtype dtype, const tsr_shape *shape, tsr_error *error);

/* The common end of the leaves. */
tsr_status tsr_graph_leaf(tsr_graph *graph, tsr_value_kind kind, const char *name, tsr_dtype dtype,
                          const tsr_shape *shape, tsr_value *out, tsr_error *error);
/* The parameter of this name; no value if there is none. */
tsr_value tsr_graph_parameter_named(const tsr_graph *graph, const char *name);
/* What is behind a parameter's name in that of the factors of its columns. */
#define TSR_SCALE_SUFFIX "_scale"
/* value, an intermediate that is nobody's gradient yet, is the gradient of a parameter of the same shape. */
tsr_status tsr_graph_mark_gradient(tsr_graph *graph, tsr_value value, tsr_value parameter, tsr_error *error);

/* Adds a value as it is, without checks; takes what `value` points to, unless it fails. */
tsr_status tsr_graph_add_value(tsr_graph *graph, const tsr_graph_value *value, tsr_value *out,
                               tsr_error *error);
/* Takes back what was added since the graph had these counts: a builder that fails leaves the graph as it
 * was. */
void tsr_graph_truncate(tsr_graph *graph, size_t value_count, size_t node_count);

/* Axes of a value that an elementwise operator may split: of images and their weights batch and channels
 * alone. */
static inline int tsr_shape_split_axes(const tsr_shape *shape) {
  return shape->axes > 3 ? 2 : shape->axes;
}

/* Same axes, same extents. */
bool tsr_shape_equal(const tsr_shape *a, const tsr_shape *b);

/* The types that a matmul multiplies, as the dtype of its b: see base/gemm_facts.h. */
static inline tsr_dtype tsr_matmul_dtype(const tsr_graph *graph, const tsr_node *node) {
  return tsr_graph_at(graph, node->inputs[1])->dtype;
}

/* m, n, k of a matmul from the extents of its inputs. */
void tsr_matmul_extents(const tsr_node *node, const tsr_shape *inputs, int64_t *m, int64_t *n, int64_t *k);

/* Appends a node whose inputs and attributes are set: checks, makes the output. The builders' common end. */
tsr_status tsr_graph_append(tsr_graph *graph, tsr_node *node, tsr_value *out, tsr_error *error);

/* dims[value id * TSR_AXES_MAX + axis]: the dimension (0 .. *count - 1) that each axis of each value belongs
 * to, by the links of all nodes, of assigns and of gradients (UINT32_MAX where a value has no such axis);
 * (*extents)[dim] its extent. Both given: release with free. */
tsr_status tsr_graph_dimensions(const tsr_graph *graph, uint32_t **dims, int64_t **extents, size_t *count,
                                tsr_error *error);

/* A copy of everything but the context's; frozen. */
tsr_status tsr_graph_copy(const tsr_graph *graph, tsr_graph **out, tsr_error *error);

/* As JSON within a plan: {"values": [...], "nodes": [...]}; to_json gives a new reference, NULL = no memory.
 * from_json checks everything as the builders do and gives a frozen graph. FORMAT with the place. */
json_t *tsr_graph_to_json(const tsr_graph *graph);
tsr_status tsr_graph_from_json(tsr_context *context, const json_t *json, tsr_graph **out, tsr_error *error);

/* The f64 oracle of the whole graph. values[0 .. value_count - 1], zeroed but for leaves, whose exact must be
 * filled; an error of NULL means exact, and becomes zeros. What was NULL is allocated here: release with
 * free, also after a failure. */
tsr_status tsr_graph_evaluate(const tsr_graph *graph, double wire_error, tsr_oracle_value *values,
                              tsr_error *error);

#endif
