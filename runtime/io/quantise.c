#include "io/quantise.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/narrow.h"

enum { AT_A_TIME = 1 << 14, I8_MOST = 127 };

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Called with `rows` x `cols` dense elements that begin at (row, col) of the block that is visited. */
typedef tsr_status (*visitor)(void *user, const double *w, int64_t row, int64_t rows, int64_t col,
                              int64_t cols, tsr_error *error);

/* A block in parts that are small enough for a cache. */
static tsr_status visit(const tsr_source *source, const char *name, const tsr_shape *whole,
                        const int64_t *start, int64_t rows, int64_t cols, visitor visited, void *user,
                        tsr_error *error) {
  tsr_status status = TSR_OK;
  double *w = tsr_malloc(AT_A_TIME * sizeof *w);
  if (!w) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory to read \"%s\"", name);
  for (int64_t c = 0, some_cols; c < cols; c += some_cols) {
    some_cols = smaller(cols - c, AT_A_TIME);
    for (int64_t r = 0, some_rows; r < rows; r += some_rows) {
      some_rows = smaller(rows - r, AT_A_TIME / some_cols);
      const int64_t first[] = {start[0] + r, start[1] + c};
      const tsr_shape shape = tsr_shape_of(2, some_rows, some_cols);
      const tsr_array part = tsr_array_dense(w, TSR_F64, &shape);
      TSR_TRY(tsr_source_read(source, name, whole, first, &part, error));
      TSR_TRY(visited(user, w, r, some_rows, c, some_cols, error));
    }
  }
done:
  free(w);
  return status;
}

typedef struct search {
  const char *name;
  const int64_t *start;
  double *most;
} search;

static tsr_status find_most(void *user, const double *w, int64_t row, int64_t rows, int64_t col, int64_t cols,
                            tsr_error *error) {
  const search *s = user;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      const double size = fabs(w[i * cols + j]);
      if (!isfinite(tsr_quantise_scale(size)))
        return tsr_fail(
            error, TSR_ERROR_INVALID_ARGUMENT,
            "\"%s\" is %g at row %lld, column %lld: i8 holds finite weights of at most %g, 127 times "
            "a factor in f32, alone: keep it in another dtype",
            s->name, w[i * cols + j], (long long)(s->start[0] + row + i), (long long)(s->start[1] + col + j),
            I8_MOST * (double)FLT_MAX);
      if (size > s->most[col + j]) s->most[col + j] = size;
    }
  return TSR_OK;
}

tsr_status tsr_quantise_most(const tsr_source *source, const char *name, const tsr_shape *whole, int64_t row,
                             int64_t rows, int64_t col, int64_t cols, double *most, tsr_error *error) {
  const int64_t start[] = {row, col};
  search s = {.name = name, .start = start, .most = most};
  return visit(source, name, whole, start, rows, cols, find_most, &s, error);
}

float tsr_quantise_scale(double most) {
  return (float)(most / I8_MOST);
}

typedef struct rounding {
  const float *scales;
  const tsr_array *out;
} rounding;

static tsr_status round_part(void *user, const double *w, int64_t row, int64_t rows, int64_t col,
                             int64_t cols, tsr_error *error) {
  const rounding *r = user;
  (void)error;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      const double scale = (double)r->scales[col + j];
      int8_t *to = (int8_t *)r->out->data + (row + i) * r->out->stride[0] + (col + j) * r->out->stride[1];
      *to = scale > 0 ? tsr_narrow_i8(w[i * cols + j] / scale) : 0;
    }
  return TSR_OK;
}

tsr_status tsr_quantise_read(const tsr_source *source, const char *name, const tsr_shape *whole,
                             const int64_t *start, const float *scales, const tsr_array *out,
                             tsr_error *error) {
  rounding r = {.scales = scales, .out = out};
  return visit(source, name, whole, start, out->shape.extent[0], out->shape.extent[1], round_part, &r, error);
}
