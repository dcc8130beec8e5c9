/* tessera/graph.h: a computation, before anybody decides how to split it.
 *
 * A value is a handle into its graph. Inputs are bound before each step; parameters and states live in the
 * devices from step to step; intermediates come out of operators. Shapes and element types are checked
 * here and nowhere later. Matrices are row-major; a weight is [in, out]. A graph is frozen once planned.
 *
 * Values are f32 or f64. A parameter may also be narrow, f16, bf16 or i8: operand b of products whose a is
 * f32, and nothing else; it has no gradient and is never assigned. Weights are trained in f32, and narrow to
 * serve.
 *
 * Names are copied, unique among inputs, parameters, states and outputs each, not empty.
 * Errors of every builder: INVALID_ARGUMENT (unknown value, shapes or types that do not fit, duplicate
 * name, frozen graph), OUT_OF_MEMORY.
 * Thread safety: one graph, one thread at a time; a frozen graph may be read by several. */
#ifndef TESSERA_GRAPH_H
#define TESSERA_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/array.h>
#include <tessera/context.h>
#include <tessera/layout.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_graph tsr_graph;

/* Handle of a value in its graph; id 0 is "no value", so that a zeroed struct is empty. */
typedef struct tsr_value {
  uint32_t id;
} tsr_value;

#define TSR_NO_VALUE ((tsr_value){0})

typedef enum tsr_value_kind { TSR_INPUT, TSR_PARAMETER, TSR_STATE, TSR_INTERMEDIATE } tsr_value_kind;

tsr_status tsr_graph_create(tsr_context *context, tsr_graph **out, tsr_error *error);
void tsr_graph_destroy(tsr_graph **graph);

/* Leaves: bound by the caller at each step (input), loaded once and trained (parameter), kept (state). */
tsr_status tsr_graph_input(tsr_graph *graph, const char *name, tsr_dtype dtype, const tsr_shape *shape,
                           tsr_value *out, tsr_error *error);
tsr_status tsr_graph_parameter(tsr_graph *graph, const char *name, tsr_dtype dtype, const tsr_shape *shape,
                               tsr_value *out, tsr_error *error);
tsr_status tsr_graph_state(tsr_graph *graph, const char *name, tsr_dtype dtype, const tsr_shape *shape,
                           tsr_value *out, tsr_error *error);

/* out[m,n] = alpha * op(a)[m,k] * op(b)[k,n] + beta * c, op(x) = x or its transpose. */
typedef struct tsr_matmul_options {
  size_t struct_size;
  bool transpose_a, transpose_b;
  double alpha; /* 0 = 1 */
  double beta;  /* c is not read when it is 0 */
  tsr_value c;  /* [m,n]; needed if beta is not 0 */
} tsr_matmul_options;
void tsr_matmul_options_init(tsr_matmul_options *options);
#define TSR_MATMUL_OPTIONS(...)                                                                              \
  (&(tsr_matmul_options){.struct_size = sizeof(tsr_matmul_options), __VA_ARGS__})

/* a and b have two axes and one dtype (f32 or f64), or a is f32 and b a narrow parameter, whose elements are
 * multiplied as they are stored: whole numbers of i8. options may be NULL. */
tsr_status tsr_graph_matmul(tsr_graph *graph, tsr_value a, tsr_value b, const tsr_matmul_options *options,
                            tsr_value *out, tsr_error *error);

/* out = alpha * a + beta * b. b has a's shape, or broadcasts as in NumPy: [n] or [1,n] over the rows of
 * [m,n], [m,1] over its columns, a scalar over everything. out has a's shape. An operand whose factor
 * is 0 is not read. */
tsr_status tsr_graph_add(tsr_graph *graph, double alpha, tsr_value a, double beta, tsr_value b,
                         tsr_value *out, tsr_error *error);
/* out = a * b elementwise; b broadcasts as in tsr_graph_add. */
tsr_status tsr_graph_multiply(tsr_graph *graph, tsr_value a, tsr_value b, tsr_value *out, tsr_error *error);
/* out = alpha * a. */
tsr_status tsr_graph_scale(tsr_graph *graph, double alpha, tsr_value a, tsr_value *out, tsr_error *error);

/* name, text. relu(x) = max(x, 0); gelu(x) = x * (1 + erf(x / sqrt 2)) / 2; gelu_tanh its approximation
 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2 (Hendrycks and Gimpel 2016, arXiv:1606.08415);
 * silu(x) = x / (1 + exp(-x)). */
#define TSR_UNARY_LIST(X)                                                                                    \
  X(GELU, "gelu")                                                                                            \
  X(GELU_TANH, "gelu_tanh")                                                                                  \
  X(RELU, "relu")                                                                                            \
  X(SILU, "silu")
typedef enum tsr_unary {
#define TSR_UNARY_ENUM(name, text) TSR_UNARY_##name,
  TSR_UNARY_LIST(TSR_UNARY_ENUM)
#undef TSR_UNARY_ENUM
      TSR_UNARY_COUNT
} tsr_unary;
const char *tsr_unary_name(tsr_unary unary);

tsr_status tsr_graph_unary(tsr_graph *graph, tsr_unary unary, tsr_value a, tsr_value *out, tsr_error *error);

/* Reduces one axis away: [m,n] over axis 0 gives [n], over axis 1 gives [m]; [n] gives a scalar. */
tsr_status tsr_graph_reduce(tsr_graph *graph, tsr_reduction reduction, int axis, tsr_value a, tsr_value *out,
                            tsr_error *error);

/* Scalar: mean over all elements of (y - target)^2. */
tsr_status tsr_graph_squared_error(tsr_graph *graph, tsr_value y, tsr_value target, tsr_value *out,
                                   tsr_error *error);

/* Convolution (cross-correlation) of images x [N,C,H,W] with w [K,C/groups,R,S]; out [N,K,P,Q],
 *
 *     out[n,k,p,q] = bias[k] + sum over c, r, s of w[k,c,r,s] x[n, c of k's group, i, j],
 *     i = p stride[0] - padding[0] + r dilation[0], j = q stride[1] - padding[1] + s dilation[1],
 *     P = (H + 2 padding[0] - dilation[0] (R - 1) - 1) / stride[0] + 1, rounded down, and Q likewise;
 *     x is 0 outside of its H x W.
 *
 * groups divides C and K; output channels are split over members at the groups' boundaries where x is split
 * too. */
typedef struct tsr_conv_options {
  size_t struct_size;
  int64_t stride[2], dilation[2]; /* of rows, of columns; 0 = 1 */
  int64_t padding[2];             /* zeros on both sides */
  int64_t groups;                 /* 0 = 1 */
} tsr_conv_options;
void tsr_conv_options_init(tsr_conv_options *options);
#define TSR_CONV_OPTIONS(...) (&(tsr_conv_options){.struct_size = sizeof(tsr_conv_options), __VA_ARGS__})
/* All of one type, f32 or f64. The bias [K] may be TSR_NO_VALUE, options NULL. */
tsr_status tsr_graph_conv(tsr_graph *graph, tsr_value x, tsr_value w, tsr_value bias,
                          const tsr_conv_options *options, tsr_value *out, tsr_error *error);

/* The largest element, or the mean, of each window of images x [N,C,H,W]; out [N,C,P,Q], P = (H + 2
 * padding[0] - window[0]) / stride[0] + 1, rounded down, and Q likewise. What is outside of the image counts
 * for nothing. Of equal elements the first in row-major order is the largest, and takes the gradient; NaN is
 * larger than any number. */
typedef struct tsr_pool_options {
  size_t struct_size;
  int64_t window[2];  /* rows, columns; at least 1 */
  int64_t stride[2];  /* 0 = that of the window */
  int64_t padding[2]; /* on both sides, less than the window */
  bool mean;
} tsr_pool_options;
void tsr_pool_options_init(tsr_pool_options *options);
#define TSR_POOL_OPTIONS(...) (&(tsr_pool_options){.struct_size = sizeof(tsr_pool_options), __VA_ARGS__})
tsr_status tsr_graph_pool(tsr_graph *graph, tsr_value x, const tsr_pool_options *options, tsr_value *out,
                          tsr_error *error);

/* y = x w + b; w [d_in, d_out]; the bias [d_out] may be TSR_NO_VALUE. A w of i8 stands for w[i,j] * scale[j]:
 * y = (x w) * scale + b, with the parameter <name of w>_scale [d_out], f32, which is added unless the graph
 * has it; tsr_session_load fills both from weights in floating point. */
tsr_status tsr_graph_linear(tsr_graph *graph, tsr_value x, tsr_value w, tsr_value bias, tsr_value *out,
                            tsr_error *error);

/* y = act(x w1 + b1) w2 + b2, or gated: y = (act(x wg) * (x w1)) w2 (Shazeer 2020, arXiv:2002.05202).
 * Adds parameters <prefix>w1 [d,h], <prefix>w2 [h,d], and <prefix>b1 [h], <prefix>b2 [d] unless no_bias, and
 * <prefix>wg [d,h] if gated; of weights in i8 also the factors of their columns, as tsr_graph_linear. */
typedef struct tsr_ffn_options {
  size_t struct_size;
  int64_t hidden;       /* h */
  tsr_unary activation; /* 0 = gelu */
  bool gated;
  bool no_bias;           /* leaves b1 and b2 out; a gated block never has them */
  const char *prefix;     /* borrowed for the call; NULL = "" */
  tsr_dtype weight_dtype; /* of wg, w1 and w2; 0 = that of x */
} tsr_ffn_options;
void tsr_ffn_options_init(tsr_ffn_options *options);
#define TSR_FFN_OPTIONS(...) (&(tsr_ffn_options){.struct_size = sizeof(tsr_ffn_options), __VA_ARGS__})
tsr_status tsr_graph_ffn(tsr_graph *graph, tsr_value x, const tsr_ffn_options *options, tsr_value *out,
                         tsr_error *error);

/* Extends the graph by the gradients of <y, dy> (dy has y's shape; for a scalar y, TSR_NO_VALUE means 1)
 * with respect to wrt[0..count): out[i] has the shape of wrt[i]. A value that y does not depend on is
 * INVALID_ARGUMENT. */
tsr_status tsr_graph_gradients(tsr_graph *graph, tsr_value y, tsr_value dy, const tsr_value *wrt,
                               size_t count, tsr_value *out, tsr_error *error);

/* At the end of the step, target (a parameter or state) becomes value. */
tsr_status tsr_graph_assign(tsr_graph *graph, tsr_value target, tsr_value value, tsr_error *error);

/* Marks a value as a result that can be read after a step, under a name. */
tsr_status tsr_graph_output(tsr_graph *graph, const char *name, tsr_value value, tsr_error *error);

/* Fixes the layout (replicate or shard) in which a leaf or an output lies; a later pin replaces an earlier
 * one. Offsets are copied up to the one that reaches the extent: members beyond have empty shares. Without a
 * pin the planner chooses. */
tsr_status tsr_graph_pin(tsr_graph *graph, tsr_value value, const tsr_layout *layout, tsr_error *error);

/* What is in a graph. Borrowed strings live as long as the graph. */
typedef struct tsr_value_info {
  tsr_value_kind kind;
  tsr_dtype dtype;
  tsr_shape shape;
  const char *name;   /* of a leaf; "" for an intermediate */
  const char *output; /* its name as an output; "" if it is none */
  bool assigned;      /* the target of an assign: it changes at the end of a step */
} tsr_value_info;
/* Values have ids 1 .. count. */
size_t tsr_graph_value_count(const tsr_graph *graph);
tsr_status tsr_graph_value_info(const tsr_graph *graph, tsr_value value, tsr_value_info *out,
                                tsr_error *error);
/* A leaf or an output by name, leaves first; an unknown name is NOT_FOUND with the nearest names. */
tsr_status tsr_graph_find(const tsr_graph *graph, const char *name, tsr_value *out, tsr_error *error);

/* *equal = both have the same values in the same order, with names, types, shapes, outputs, pins and
 * assignments, and compute them by the same operators with the same attributes. Errors: OUT_OF_MEMORY. */
tsr_status tsr_graph_equal(const tsr_graph *a, const tsr_graph *b, bool *equal, tsr_error *error);

/* Floating-point operations of one step on one device, counting a multiply-add as two. */
double tsr_graph_flops(const tsr_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
