/* host_pool.c: the largest element or the mean of windows, and their gradients, in f64. */
#include "host.h"

#include <math.h>

#include "base/memory.h"

/* A plane of x, of y and of out: where they begin. */
typedef struct plane {
  const tsr_pool_call *call;
  int64_t x, y, out;
} plane;

static double load(const plane *at, const tsr_matrix *matrix, int64_t index) {
  return tsr_number_load(tsr_host_data(matrix), at->call->dtype, index);
}

static void store(const plane *at, int64_t index, double value) {
  tsr_number_store(tsr_host_data(&at->call->out), at->call->dtype, index, value);
}

/* Rows [first[0], last[0]) and columns of the window at (p, q) that are inside of the image. */
static void window_at(const tsr_pool_call *call, int64_t p, int64_t q, int64_t *first, int64_t *last) {
  const int64_t place[] = {p, q}, size[] = {call->r, call->s}, extent[] = {call->h, call->w};
  for (int i = 0; i < 2; i++) {
    first[i] = place[i] * call->stride[i] - call->padding[i];
    last[i] = first[i] + size[i] < extent[i] ? first[i] + size[i] : extent[i];
    if (first[i] < 0) first[i] = 0;
  }
}

/* The sum of a window's elements, or the place of the first of the largest. */
static double look(const plane *at, const int64_t *first, const int64_t *last, int64_t *largest) {
  const tsr_pool_call *call = at->call;
  double sum = 0, most = 0;
  *largest = -1;
  for (int64_t i = first[0]; i < last[0]; i++)
    for (int64_t j = first[1]; j < last[1]; j++) {
      double x = load(at, &call->x, at->x + i * call->w + j);
      sum += x;
      if (*largest >= 0 && !(x > most || (isnan(x) && !isnan(most)))) continue;
      most = x;
      *largest = i * call->w + j;
    }
  return sum;
}

static void pool_window(const plane *at, int64_t p, int64_t q) {
  int64_t first[2], last[2], largest;
  window_at(at->call, p, q, first, last);
  double sum = look(at, first, last, &largest), count = (double)((last[0] - first[0]) * (last[1] - first[1]));
  store(at, at->out + p * at->call->q + q,
        at->call->reduction == TSR_SUM ? sum / count : load(at, &at->call->x, at->x + largest));
}

static void spread_window(const plane *at, int64_t p, int64_t q, double *sums) {
  const tsr_pool_call *call = at->call;
  int64_t first[2], last[2], largest;
  window_at(call, p, q, first, last);
  double dy = load(at, &call->y, at->y + p * call->q + q);
  double count = (double)((last[0] - first[0]) * (last[1] - first[1]));
  if (call->reduction == TSR_MAX) {
    look(at, first, last, &largest);
    sums[largest] += dy;
    return;
  }
  for (int64_t i = first[0]; i < last[0]; i++)
    for (int64_t j = first[1]; j < last[1]; j++) sums[i * call->w + j] += dy / count;
}

static void pool_plane(const plane *at, double *sums) {
  const tsr_pool_call *call = at->call;
  const int64_t pixels = call->h * call->w;
  for (int64_t i = 0; call->gradient && i < pixels; i++) sums[i] = 0;
  for (int64_t p = 0; p < call->p; p++)
    for (int64_t q = 0; q < call->q; q++)
      if (call->gradient)
        spread_window(at, p, q, sums);
      else
        pool_window(at, p, q);
  for (int64_t i = 0; call->gradient && i < pixels; i++) store(at, at->out + i, sums[i]);
}

tsr_status tsr_host_pool(tsr_device *device, const tsr_pool_call *call, tsr_error *error) {
  (void)device;
  double *sums = call->gradient ? tsr_calloc((size_t)(call->h * call->w), sizeof *sums) : NULL;
  if (call->gradient && !sums)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the gradient of %lld x %lld pixels",
                    (long long)call->h, (long long)call->w);
  const int64_t of_x = call->h * call->w, of_y = call->p * call->q;
  for (int64_t n = 0; n < call->n; n++)
    for (int64_t c = 0; c < call->c; c++) {
      const plane at = {.call = call,
                        .x = call->x.offset + n * call->x.ld + c * of_x,
                        .y = call->gradient ? call->y.offset + n * call->y.ld + c * of_y : 0,
                        .out = call->out.offset + n * call->out.ld + c * (call->gradient ? of_x : of_y)};
      pool_plane(&at, sums);
    }
  free(sums);
  return TSR_OK;
}
