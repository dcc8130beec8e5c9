/* host_conv.c: convolutions and their gradients in plain loops: products in f64, rounded once to the element
 * type. */
#include "host.h"

#include "base/activation.h"

static double load(const tsr_conv_call *call, const tsr_matrix *matrix, int64_t row, int64_t column) {
  return tsr_number_load(tsr_host_data(matrix), call->dtype, tsr_matrix_index(matrix, row, column));
}

static void store(const tsr_conv_call *call, const tsr_matrix *matrix, int64_t row, int64_t column,
                  double value) {
  tsr_number_store(tsr_host_data(matrix), call->dtype, tsr_matrix_index(matrix, row, column), value);
}

/* Where window element (r, s) at (p, q) lies on a plane of x: its place; -1 = outside. */
static int64_t pixel(const tsr_conv_call *call, int64_t p, int64_t q, int64_t r, int64_t s) {
  int64_t i = p * call->stride[0] - call->padding[0] + r * call->dilation[0];
  int64_t j = q * call->stride[1] - call->padding[1] + s * call->dilation[1];
  return i < 0 || i >= call->h || j < 0 || j >= call->w ? -1 : i * call->w + j;
}

/* The p (axis 0) or q at which window element r lies on row (column) i; -1 = none. */
static int64_t place(const tsr_conv_call *call, int axis, int64_t i, int64_t r) {
  int64_t from = i + call->padding[axis] - r * call->dilation[axis], count = axis ? call->q : call->p;
  if (from < 0 || from % call->stride[axis] || from / call->stride[axis] >= count) return -1;
  return from / call->stride[axis];
}

/* y[image, channel, p, q] */
static double output_at(const tsr_conv_call *call, int64_t image, int64_t channel, int64_t p, int64_t q) {
  double sum = call->bias.buffer ? load(call, &call->bias, 0, channel) : 0;
  for (int64_t c = 0; c < call->c; c++)
    for (int64_t r = 0; r < call->r; r++)
      for (int64_t s = 0; s < call->s; s++) {
        int64_t at = pixel(call, p, q, r, s), plane = channel / call->k * call->c + c;
        if (at >= 0)
          sum += load(call, &call->x, image, plane * call->h * call->w + at) *
                 load(call, &call->weight, channel, (c * call->r + r) * call->s + s);
      }
  return call->activate ? tsr_unary_apply(call->unary, sum) : sum;
}

/* The gradient of x[image, channel, i, j] */
static double input_at(const tsr_conv_call *call, int64_t image, int64_t channel, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t r = 0; r < call->r; r++)
    for (int64_t s = 0; s < call->s; s++) {
      int64_t p = place(call, 0, i, r), q = place(call, 1, j, s);
      for (int64_t k = 0; k < call->k && p >= 0 && q >= 0; k++) {
        int64_t plane = channel / call->c * call->k + k;
        sum += load(call, &call->y, image, (plane * call->p + p) * call->q + q) *
               load(call, &call->weight, plane, (channel % call->c * call->r + r) * call->s + s);
      }
    }
  return sum;
}

/* The gradient of weight[channel, c, r, s] */
static double weight_at(const tsr_conv_call *call, int64_t channel, int64_t c, int64_t r, int64_t s) {
  double sum = 0;
  for (int64_t image = 0; image < call->n; image++)
    for (int64_t p = 0; p < call->p; p++)
      for (int64_t q = 0; q < call->q; q++) {
        int64_t at = pixel(call, p, q, r, s), plane = channel / call->k * call->c + c;
        if (at >= 0)
          sum += load(call, &call->x, image, plane * call->h * call->w + at) *
                 load(call, &call->y, image, (channel * call->p + p) * call->q + q);
      }
  return sum;
}

static double bias_at(const tsr_conv_call *call, int64_t channel) {
  double sum = 0;
  for (int64_t image = 0; image < call->n; image++)
    for (int64_t at = 0; at < call->p * call->q; at++)
      sum += load(call, &call->y, image, channel * call->p * call->q + at);
  return sum;
}

tsr_status tsr_host_conv(tsr_device *device, const tsr_conv_call *call, tsr_error *error) {
  (void)device, (void)error;
  const int64_t of_y = call->p * call->q, of_x = call->h * call->w, window = call->r * call->s;
  const tsr_matrix *out = call->kind == TSR_CONV_FORWARD           ? &call->y
                          : call->kind == TSR_CONV_INPUT_GRADIENT  ? &call->x
                          : call->kind == TSR_CONV_WEIGHT_GRADIENT ? &call->weight
                                                                   : &call->bias;
  for (int64_t row = 0; row < out->rows; row++)
    for (int64_t at = 0; at < out->cols; at++) {
      double value;
      switch (call->kind) {
      case TSR_CONV_FORWARD:
        value = output_at(call, row, at / of_y, at % of_y / call->q, at % call->q);
        break;
      case TSR_CONV_INPUT_GRADIENT:
        value = input_at(call, row, at / of_x, at % of_x / call->w, at % call->w);
        break;
      case TSR_CONV_WEIGHT_GRADIENT:
        value = weight_at(call, row, at / window, at % window / call->s, at % call->s);
        break;
      default: value = bias_at(call, at);
      }
      store(call, out, row, at, value);
    }
  return TSR_OK;
}
