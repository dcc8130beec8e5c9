/* operand.h: matrices for tests of kernels: random and awkward numbers, views that start at an odd offset and
 * have gaps, a sentinel wherever the view is not, and comparison within a tolerance. Included by one file per
 * test. */
#ifndef TSR_TEST_OPERAND_H
#define TSR_TEST_OPERAND_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"

enum { OFFSET = 3, GAP = 5, PANEL = 16 };
static const double SENTINEL = -12345;

static tsr_context *context;
static tsr_device *device;
static tsr_buffer *workspace;
static bool small, denormals;

#define CHECK(call)                                                                                          \
  do {                                                                                                       \
    tsr_error error_ = {0};                                                                                  \
    if ((call) != TSR_OK) fail_msg("%s: %s %s", #call, error_.message, error_.build_log);                    \
  } while (0)
#define ERROR (&error_)

/* --- random numbers and awkward ones --- */

static uint64_t random_state = 1;
static double uniform(void) { /* -1 .. 1 */
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (double)(int64_t)(random_state >> 11 << 11) / 9223372036854775808.0;
}

static double any_number(int64_t i) {
  static const double special[] = {0,    -0.0,  1,     -1,     INFINITY, -INFINITY, NAN,
                                   1e30, -1e30, 1e20,  -1e20,  88.5,     -88.5,     -13,
                                   5.5,  -5.5,  1e-30, -1e-30, 1e-41,    -1e-42};
  size_t count = sizeof special / sizeof *special - (denormals ? 0 : 2);
  if (i % 3 == 0) return special[(size_t)(i / 3) % count];
  return uniform() * (i % 3 == 1 ? 2 : 12);
}

static double finite_number(int64_t i) {
  return uniform() * (i % 2 ? 1 : 10);
}

/* -2 .. 1: sums of a million squared differences are still exact in f32. */
static double small_integer(int64_t i) {
  (void)i;
  return floor(uniform() * 2);
}

/* --- matrices: values on the host in double, views on the device --- */

typedef struct operand {
  tsr_matrix view;
  double *values; /* rows x cols */
  int64_t held;   /* elements of the buffer */
} operand;

static double rounded(tsr_dtype dtype, double x) {
  return dtype == TSR_F64 ? x : (double)(float)x;
}

static double get(const void *data, tsr_dtype dtype, int64_t i) {
  return dtype == TSR_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void set(void *data, tsr_dtype dtype, int64_t i, double x) {
  if (dtype == TSR_F64)
    ((double *)data)[i] = x;
  else
    ((float *)data)[i] = (float)x;
}

static void *map_buffer(tsr_buffer *buffer, tsr_host_mode mode) {
  void *data = NULL;
  CHECK(tsr_device_host_wait(device, buffer, 0, buffer->bytes, mode, &data, ERROR));
  return data;
}

static void unmap_buffer(tsr_buffer *buffer, void *data) {
  CHECK(tsr_device_host_end(device, buffer, data, ERROR));
  CHECK(tsr_device_finish(device, ERROR));
}

static void upload(const operand *matrix, tsr_dtype dtype) {
  void *data = map_buffer(matrix->view.buffer, TSR_HOST_WRITE);
  for (int64_t i = 0; i < matrix->held; i++) set(data, dtype, i, SENTINEL);
  for (int64_t r = 0; r < matrix->view.rows; r++)
    for (int64_t c = 0; c < matrix->view.cols; c++)
      set(data, dtype, tsr_matrix_index(&matrix->view, r, c), matrix->values[r * matrix->view.cols + c]);
  unmap_buffer(matrix->view.buffer, data);
}

static operand make(tsr_dtype dtype, int64_t rows, int64_t cols, int panel, int gap,
                    double (*number)(int64_t)) {
  operand made = {.view = {.offset = OFFSET, .rows = rows, .cols = cols, .panel = panel}};
  made.view.ld = (panel ? rows : cols) + gap;
  made.held = OFFSET + GAP + (panel ? (cols + panel - 1) / panel * panel : rows) * made.view.ld;
  made.values = malloc((size_t)(rows * cols) * sizeof(double));
  for (int64_t i = 0; i < rows * cols; i++) made.values[i] = rounded(dtype, number(i));
  CHECK(tsr_buffer_create(device, (size_t)made.held * tsr_dtype_bytes(dtype), &made.view.buffer, ERROR));
  upload(&made, dtype);
  return made;
}

static void drop(operand *matrix) {
  tsr_buffer_destroy(device, &matrix->view.buffer);
  free(matrix->values);
}

static double value(const operand *matrix, int64_t r, int64_t c) {
  r = matrix->view.rows == 1 ? 0 : r, c = matrix->view.cols == 1 ? 0 : c;
  return matrix->values[r * matrix->view.cols + c];
}

/* --- comparison --- */

typedef struct expected {
  long double value, tolerance;
} expected;

static bool agrees(double got, expected want, tsr_dtype dtype) {
  const long double largest = dtype == TSR_F64 ? 0x1.fffffffffffffp1023L : 0x1.fffffep127L;
  const long double least = dtype == TSR_F64 ? 0x1p-1022L : 0x1p-126L; /* below, devices may flush to zero */
  if (isnan(want.value)) return isnan(got);
  if (fabsl(want.value) > largest) return isinf(got) && (got > 0) == (want.value > 0);
  return fabsl(got - want.value) <= want.tolerance * (long double)tsr_dtype_epsilon(dtype) + least;
}

#endif
