/* device/device.h: what the rest of the runtime asks of an open device, and what a device implements.
 *
 * A device has one queue: what is enqueued runs in order. Nothing here waits for the device unless it says
 * so; tsr_device_poll tells when all that was enqueued has ended, a mark when all before it has. Every buffer
 * goes through the ledger.
 *
 * Matrices are views of one buffer. Row-major: element (r, c) at offset + r * ld + c. Panel form of width w,
 * in which CPU kernels want a weight: element (r, c) at offset + ((c / w) * ld + r) * w + c % w, where ld is
 * the number of rows that a stored panel has; the last panel is padded to w, contents of padding unspecified.
 */
#ifndef TSR_DEVICE_DEVICE_H
#define TSR_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/device.h>
#include <tessera/graph.h>

#include "base/context.h"
#include "base/gemm_facts.h"

typedef struct tsr_buffer tsr_buffer;

/* A matrix on a device. All counts in elements. */
typedef struct tsr_matrix {
  tsr_buffer *buffer;
  int64_t offset;
  int64_t rows, cols;
  int64_t ld;
  int panel; /* panel width; 0 = row-major */
} tsr_matrix;

/* What becomes of a product before it is stored; each matrix is row-major, in c's type, apart from c, and
 * left out if it has no buffer. */
typedef struct tsr_epilogue {
  tsr_matrix bias; /* [1,n] */
  bool activate;   /* whether unary is applied */
  tsr_unary unary;
  tsr_matrix gate, residual; /* [m,n] */
} tsr_epilogue;

/* c[m,n] = f(alpha * op(a)[m,k] * op(b)[k,n] * scale + beta * c + bias) * gate + residual; m, n, k > 0; c is
 * not read when beta = 0. a is row-major; b and c row-major or panels of the width that the device's facts
 * for these types name; with an epilogue c is row-major. scale[1,n], in f32, may be there if b is in i8 and
 * not transposed; else it is 1. workspace may be NULL: k is cut into as
 * many parts as it holds, tsr_gemm_workspace_bytes() being what the facts want. */
typedef struct tsr_gemm_call {
  tsr_gemm_types types;
  int64_t m, n, k;
  double alpha, beta;
  bool transpose_a, transpose_b;
  tsr_matrix a, b, c, scale;
  tsr_epilogue epilogue;
  tsr_buffer *workspace;
  const tsr_gemm_facts *facts; /* borrowed: the variant to run; NULL = the device's choice */
} tsr_gemm_call;
static inline bool tsr_epilogue_is_empty(const tsr_epilogue *epilogue) {
  return !epilogue->bias.buffer && !epilogue->activate && !epilogue->gate.buffer &&
         !epilogue->residual.buffer;
}

/* A convolution of `groups` equal groups, each of c input and k output channels (cross-correlation, as the
 * field means it). An image is a row of a row-major matrix, NCHW:
 *
 *     x [n, groups * c * h * w]      y [n, groups * k * p * q]      weight [groups * k, c * r * s]
 *
 *   FORWARD          y[n,k,p,q] = f(sum over c, r, s of x[n,c,i,j] weight[k,c,r,s] + bias[k])
 *
 *   INPUT_GRADIENT   x[n,c,i,j] = sum over k, r, s and the p, q that read it of y[n,k,p,q] weight[k,c,r,s]
 *
 *   WEIGHT_GRADIENT  weight[k,c,r,s] = sum over n, p, q of x[n,c,i,j] y[n,k,p,q]
 *
 *   BIAS_GRADIENT    bias[k] = sum over n, p, q of y[n,k,p,q]; x and weight have no buffer
 *
 *     i = p * stride[0] - padding[0] + r * dilation[0],  j = q * stride[1] - padding[1] + s * dilation[1];
 *     x is 0 outside of 0 <= i < h, 0 <= j < w
 *
 * All extents, strides and dilations > 0, padding >= 0, p = (h + 2 padding - dilation (r - 1) - 1) / stride +
 * 1, rounded down, and q likewise. Each row may have a leading dimension of its own; the operands do not
 * overlap. bias [1, groups * k], in FORWARD left out if it has no buffer. dtype f32 or f64; sums are in it.
 */
typedef enum tsr_conv_kind {
  TSR_CONV_FORWARD,
  TSR_CONV_INPUT_GRADIENT,
  TSR_CONV_WEIGHT_GRADIENT,
  TSR_CONV_BIAS_GRADIENT
} tsr_conv_kind;
typedef struct tsr_conv_call {
  tsr_conv_kind kind;
  tsr_dtype dtype;
  int64_t groups, n, c, h, w, k, r, s, p, q;
  int64_t stride[2], padding[2], dilation[2]; /* of rows, of columns */
  tsr_matrix x, weight, y, bias;
  bool activate; /* FORWARD: whether unary is applied */
  tsr_unary unary;
} tsr_conv_call;

/* The largest element (MAX) or the mean (SUM) of each window of r x s elements, or the gradient of that;
 * images as above. What of a window is outside of its image counts for nothing.
 *
 *     gradient = false   out [n, c * p * q] from x [n, c * h * w]
 *
 *     gradient = true    out [n, c * h * w] from x, and y [n, c * p * q], the gradient of what was pooled
 *
 * All extents and strides > 0, 0 <= padding < r (s), p = (h + 2 padding - r) / stride + 1, rounded down, q
 * likewise. Of equal elements the first in row-major order is the largest; NaN is larger than any number.
 * Row-major operands apart. */
typedef struct tsr_pool_call {
  bool gradient;
  tsr_reduction reduction;
  tsr_dtype dtype;
  int64_t n, c, h, w, r, s, p, q;
  int64_t stride[2], padding[2]; /* of rows, of columns */
  tsr_matrix x, y, out;
} tsr_pool_call;

/* out[r,c] over out.rows x out.cols; every operand row-major or panels. An operand with rows (cols) = 1 is
 * broadcast over rows (cols). out may be a or b, at the same place.
 *   ADD            alpha * a + beta * b
 *   MULTIPLY       a * b
 *   SCALE          alpha * a
 *   UNARY          f(a)
 *   UNARY_GRADIENT f'(a) * b
 *   BIAS_UNARY     f(a + b) */
typedef enum tsr_map_kind {
  TSR_MAP_ADD,
  TSR_MAP_MULTIPLY,
  TSR_MAP_SCALE,
  TSR_MAP_UNARY,
  TSR_MAP_UNARY_GRADIENT,
  TSR_MAP_BIAS_UNARY
} tsr_map_kind;
typedef struct tsr_map_call {
  tsr_map_kind kind;
  tsr_unary unary;
  tsr_dtype dtype;
  double alpha, beta;
  tsr_matrix a, b, out;
} tsr_map_call;

/* Reduces row-major a (rows x cols).
 *   REDUCE_ROWS     out[c] = scale * (sum or max over r of a[r,c])
 *   REDUCE_COLS     out[r] = scale * (sum or max over c of a[r,c])
 *   SQUARED_ERROR   out[0] = scale * sum over all of (a - b)^2; b has a's shape
 * Order of summation depends on the shape alone. accumulate: out += instead of out = (sum), or
 * out = max(out, .). out is row-major, contiguous. workspace holds tsr_reduce_workspace_bytes(). */
typedef enum tsr_reduce_kind { TSR_REDUCE_ROWS, TSR_REDUCE_COLS, TSR_REDUCE_SQUARED_ERROR } tsr_reduce_kind;
typedef struct tsr_reduce_call {
  tsr_reduce_kind kind;
  tsr_reduction reduction;
  tsr_dtype dtype;
  double scale;
  bool accumulate;
  tsr_matrix a, b, out;
  tsr_buffer *workspace;
} tsr_reduce_call;

/* WRITE: the host writes the whole range; what it held before is lost (a GPU need not send it). */
typedef enum tsr_host_mode { TSR_HOST_READ, TSR_HOST_WRITE, TSR_HOST_READ_WRITE } tsr_host_mode;

/* Commands of the queue that follow each other, by the first and the last, as the device keeps them. */
typedef struct tsr_device_span {
  void *first, *last;
} tsr_device_span;

/* A place in the queue, behind what was enqueued before it, as the device keeps it; {0} = in front of
 * everything. */
typedef struct tsr_device_mark {
  void *last;
} tsr_device_mark;

/* What a device implements. Called by the functions below alone, which have checked their arguments. */
typedef struct tsr_device_ops {
  /* Frees the device's own part; buffers are gone, the queue may still run: wait for it. */
  void (*close)(tsr_device *device);
  /* bytes > 0, within the ledger and the largest allocation. Contents undefined. */
  tsr_status (*buffer_create)(tsr_device *device, size_t bytes, tsr_buffer **out, tsr_error *error);
  /* The same over page-aligned host memory, which is borrowed until the last command that uses it has ended;
   * mapping such a buffer gives that memory. Only of a device with takes_memory. */
  tsr_status (*buffer_create_over)(tsr_device *device, void *memory, size_t bytes, tsr_buffer **out,
                                   tsr_error *error);
  void (*buffer_destroy)(tsr_device *device, tsr_buffer *buffer);
  /* Bytes [offset, offset + bytes) of a buffer as one of its own, which buffer_destroy ends; *out = NULL:
   * they cannot be one. NULL = no such bytes can. */
  tsr_status (*buffer_part)(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                            tsr_buffer **out, tsr_error *error);
  /* Enqueues making bytes [offset, offset + bytes) visible at *pointer, which is valid once poll says idle.
   */
  tsr_status (*host_begin)(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                           tsr_host_mode mode, void **pointer, tsr_error *error);
  /* Enqueues giving it back to the device. */
  tsr_status (*host_end)(tsr_device *device, tsr_buffer *buffer, void *pointer, tsr_error *error);
  tsr_status (*fill_zero)(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                          tsr_error *error);
  tsr_status (*gemm)(tsr_device *device, const tsr_gemm_call *call, tsr_error *error);
  tsr_status (*map)(tsr_device *device, const tsr_map_call *call, tsr_error *error);
  tsr_status (*reduce)(tsr_device *device, const tsr_reduce_call *call, tsr_error *error);
  tsr_status (*conv)(tsr_device *device, const tsr_conv_call *call, tsr_error *error);
  tsr_status (*pool)(tsr_device *device, const tsr_pool_call *call, tsr_error *error);
  /* Starts what was enqueued; *idle = all has ended. A failure of an earlier command is reported here. */
  tsr_status (*poll)(tsr_device *device, bool *idle, tsr_error *error);
  /* Sets an empty mark behind what was enqueued last. All three NULL = every call has ended when it returns.
   */
  void (*mark_set)(tsr_device *device, tsr_device_mark *mark);
  /* Starts what was enqueued; *reached = all before the mark has ended, and it is empty again. A failure of
   * the command before it is reported here. */
  tsr_status (*mark_test)(tsr_device *device, tsr_device_mark *mark, bool *reached, tsr_error *error);
  void (*mark_drop)(tsr_device *device, tsr_device_mark *mark);
  /* Blocks until all has ended, without keeping a core busy if it can; failures are poll's to report. NULL =
   * poll says idle soon anyhow. */
  void (*wait)(tsr_device *device);

  /* The backend's variant for products of these types at this place of its preferences; family NONE ends the
   * list. NULL = the device's gemm[] is all there is. */
  void (*gemm_offer)(const tsr_device *device, tsr_gemm_types types, int preference, tsr_gemm_facts *out);

  /* Times of commands, for traces; all four NULL: the device has no clock of its own.
   * The device is idle: from now on commands are timed, or no longer. */
  tsr_status (*timing_set)(tsr_device *device, bool on, tsr_error *error);
  /* While timing, and idle: runs a small command; seconds of the device's clock when it began and ended.
   * False: the device does not say. */
  bool (*timing_probe)(tsr_device *device, double *begin, double *end);
  /* What is enqueued from now on belongs to the span, which begins as {0}; NULL: to none. */
  void (*span_watch)(tsr_device *device, tsr_device_span *span);
  /* When the first began and the last ended, and empties the span. False: it was empty, has not ended, or the
   * device does not say. */
  bool (*span_take)(tsr_device *device, tsr_device_span *span, double *begin, double *end);
} tsr_device_ops;

/* The part that all devices share; an implementation begins its own struct with it. */
struct tsr_device {
  const tsr_device_ops *ops;
  tsr_context *context;
  tsr_device_info info; /* with the caps applied */
  /* The family and default parameters for products of these types; NONE = not supported. A panel
   * width may differ from type to type. */
  tsr_gemm_facts gemm[TSR_GEMM_TYPES_COUNT];
  struct tsr_tuning *tuning; /* device/tuning.h; NULL = no rows */
  char architecture[64];     /* by which tuning rows know it */
  size_t work_group_size;    /* the largest; 0 = not known */
  int vector_registers;      /* of a CPU's core; 0 = not known */
  uint64_t bytes_used, bytes_peak;
  uint64_t alignment; /* of an offset in bytes within a buffer, for host_begin; 1 if any will do */
  bool takes_memory;  /* buffers may lie in host memory that is given, and are used where they lie */
};

/* Whether work (of tsr_work) names a bit; 0 names all. */
static inline bool tsr_work_has(unsigned work, tsr_work bit) {
  return !work || (work & bit);
}

/* Each buffer begins with this. */
struct tsr_buffer {
  size_t bytes;
};

/* Errors: OUT_OF_MEMORY (ledger or device: bytes wanted, used, there), INVALID_ARGUMENT. *out is the
 * caller's. */
tsr_status tsr_buffer_create(tsr_device *device, size_t bytes, tsr_buffer **out, tsr_error *error);
/* Over host memory of the caller, which must be page-aligned and stay until the buffer is gone and the device
 * idle. A device without takes_memory makes an ordinary buffer. */
tsr_status tsr_buffer_create_over(tsr_device *device, void *memory, size_t bytes, tsr_buffer **out,
                                  tsr_error *error);
void tsr_buffer_destroy(tsr_device *device, tsr_buffer **buffer);
/* A part of a buffer as a buffer of its own, in the same memory, not counted again: the host may have one
 * part mapped while kernels write another, which no device promises of ranges of one buffer. *out = NULL:
 * this device does not make one at that offset. Destroyed before the buffer. */
tsr_status tsr_buffer_part(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                           tsr_buffer **out, tsr_error *error);
void tsr_buffer_part_destroy(tsr_device *device, tsr_buffer **part);

tsr_status tsr_device_host_begin(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                                 tsr_host_mode mode, void **pointer, tsr_error *error);
tsr_status tsr_device_host_end(tsr_device *device, tsr_buffer *buffer, void *pointer, tsr_error *error);
/* The same, waiting until the pointer is valid. */
tsr_status tsr_device_host_wait(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                                tsr_host_mode mode, void **pointer, tsr_error *error);
tsr_status tsr_device_fill_zero(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                                tsr_error *error);
tsr_status tsr_device_gemm(tsr_device *device, const tsr_gemm_call *call, tsr_error *error);
tsr_status tsr_device_map(tsr_device *device, const tsr_map_call *call, tsr_error *error);
tsr_status tsr_device_reduce(tsr_device *device, const tsr_reduce_call *call, tsr_error *error);
tsr_status tsr_device_pool(tsr_device *device, const tsr_pool_call *call, tsr_error *error);
tsr_status tsr_device_conv(tsr_device *device, const tsr_conv_call *call, tsr_error *error);

/* Seconds of a span by the device's clock, of commands that took `host_seconds` by the host's, from before
 * the first was enqueued until the last was waited for. 0: the device does not say, or it cannot be right.
 * Empties the span. */
double tsr_device_span_seconds(tsr_device *device, tsr_device_span *span, double host_seconds);
tsr_status tsr_device_poll(tsr_device *device, bool *idle, tsr_error *error);
/* Whether what was enqueued before the mark was set has ended; see tsr_device_ops. */
void tsr_device_mark_set(tsr_device *device, tsr_device_mark *mark);
tsr_status tsr_device_mark_test(tsr_device *device, tsr_device_mark *mark, bool *reached, tsr_error *error);
void tsr_device_mark_drop(tsr_device *device, tsr_device_mark *mark);
/* Blocks until idle. */
tsr_status tsr_device_finish(tsr_device *device, tsr_error *error);

/* Bytes of a matrix's element range, for tests and loaders: the index in elements of (r, c). */
static inline int64_t tsr_matrix_index(const tsr_matrix *matrix, int64_t r, int64_t c) {
  return matrix->panel
             ? matrix->offset + ((c / matrix->panel) * matrix->ld + r) * matrix->panel + c % matrix->panel
             : matrix->offset + r * matrix->ld + c;
}

#endif
