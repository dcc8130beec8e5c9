/* host_map.c: elementwise operations and reductions in f64, rounded once to the element type. */
#include "host.h"

#include <math.h>

#include "base/activation.h"

/* Of a matrix that may be broadcast over rows and columns. */
static double load(const tsr_matrix *matrix, tsr_dtype dtype, int64_t r, int64_t c) {
  int64_t index = tsr_matrix_index(matrix, matrix->rows == 1 ? 0 : r, matrix->cols == 1 ? 0 : c);
  return tsr_number_load(tsr_host_data(matrix), dtype, index);
}

static double map_element(const tsr_map_call *call, int64_t r, int64_t c) {
  double a = load(&call->a, call->dtype, r, c);
  if (call->kind == TSR_MAP_SCALE) return call->alpha * a;
  if (call->kind == TSR_MAP_UNARY) return tsr_unary_apply(call->unary, a);
  double b = load(&call->b, call->dtype, r, c);
  switch (call->kind) {
  case TSR_MAP_ADD: return call->alpha * a + call->beta * b;
  case TSR_MAP_MULTIPLY: return a * b;
  case TSR_MAP_UNARY_GRADIENT: return tsr_unary_derivative(call->unary, a) * b;
  default: return tsr_unary_apply(call->unary, a + b);
  }
}

tsr_status tsr_host_map(tsr_device *device, const tsr_map_call *call, tsr_error *error) {
  (void)device, (void)error;
  for (int64_t r = 0; r < call->out.rows; r++)
    for (int64_t c = 0; c < call->out.cols; c++)
      tsr_number_store(tsr_host_data(&call->out), call->dtype, tsr_matrix_index(&call->out, r, c),
                       map_element(call, r, c));
  return TSR_OK;
}

/* A sum, or a maximum that is NaN once a value is. Neumaier's sum: `rest` collects what rounding drops. */
typedef struct total {
  tsr_reduction reduction;
  double value, rest;
} total;

static void add(total *to, double x) {
  if (to->reduction == TSR_MAX) {
    if (x > to->value || isnan(x)) to->value = x;
    return;
  }
  double sum = to->value + x;
  to->rest += fabs(to->value) >= fabs(x) ? (to->value - sum) + x : (x - sum) + to->value;
  to->value = sum;
}

static double finished(const total *from) {
  return isfinite(from->rest) ? from->value + from->rest : from->value;
}

/* Element e of output i. */
static double element(const tsr_reduce_call *call, int64_t i, int64_t e) {
  if (call->kind == TSR_REDUCE_ROWS) return load(&call->a, call->dtype, e, i);
  if (call->kind == TSR_REDUCE_COLS) return load(&call->a, call->dtype, i, e);
  int64_t r = e / call->a.cols, c = e % call->a.cols;
  double difference = load(&call->a, call->dtype, r, c) - load(&call->b, call->dtype, r, c);
  return difference * difference;
}

static double reduce_output(const tsr_reduce_call *call, int64_t i, int64_t length) {
  bool maximum = call->kind != TSR_REDUCE_SQUARED_ERROR && call->reduction == TSR_MAX;
  total sum = {.reduction = maximum ? TSR_MAX : TSR_SUM, .value = maximum ? -INFINITY : 0};
  for (int64_t e = 0; e < length; e++) add(&sum, element(call, i, e));

  total result = {.reduction = sum.reduction, .value = call->scale * finished(&sum)};
  if (call->accumulate)
    add(&result, tsr_number_load(tsr_host_data(&call->out), call->dtype, call->out.offset + i));
  return finished(&result);
}

tsr_status tsr_host_reduce(tsr_device *device, const tsr_reduce_call *call, tsr_error *error) {
  (void)device, (void)error;
  int64_t rows = call->a.rows, cols = call->a.cols, outputs = 1, length = rows * cols;
  if (call->kind == TSR_REDUCE_ROWS) outputs = cols, length = rows;
  if (call->kind == TSR_REDUCE_COLS) outputs = rows, length = cols;
  for (int64_t i = 0; i < outputs; i++)
    tsr_number_store(tsr_host_data(&call->out), call->dtype, call->out.offset + i,
                     reduce_output(call, i, length));
  return TSR_OK;
}
