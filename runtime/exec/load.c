/* Loading: every member reads its own slices of a source, straight into its mapped buffers.
 *
 * A parameter w of i8 beside which the graph has w_scale stands for w[i,j] * w_scale[j]. Where the source
 * holds w in floating point, it becomes whole numbers on the way (io/quantise.h), by the factors that the
 * source has for it or else by the columns' own; w_scale then needs no contents. */
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "exec/session.h"
#include "io/quantise.h"
#include "io/source.h"

/* Rows that are read at a time, so that a file is read in its own order while panels are filled. */
enum { ROWS_AT_A_TIME = 128 };

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* A value of one member, and what it is filled from. */
typedef struct loading {
  tsr_session *session;
  tsr_local *local;
  const tsr_source *source;
  const tsr_graph_value *value;
  tsr_tensor tensor;
  int64_t origin[TSR_AXES_MAX]; /* where the member's block begins in the value */
  float *scales;                /* of its columns; NULL: the contents are taken as they are */
} loading;

static tsr_status read_array(const loading *l, const int64_t *start, const tsr_array *array,
                             tsr_error *error) {
  const tsr_graph_value *value = l->value;
  if (!l->scales) return tsr_source_read(l->source, value->name, &value->shape, start, array, error);
  return tsr_quantise_read(l->source, value->name, &value->shape, start,
                           l->scales + (start[1] - l->origin[1]), array, error);
}

/* Images and their weights: whole rows of the member's block, which is never cut within a row. */
static void take_channels(const loading *l, int64_t columns, int64_t *start, tsr_array *array) {
  const int64_t *extent = l->value->shape.extent;
  start[1] = l->origin[1];
  array->stride[3] = 1;
  array->stride[2] = extent[3];
  array->stride[1] = extent[2] * extent[3];
  array->shape.extent[1] = columns / array->stride[1];
}

/* Reads one block of a value that lies within one mapped piece: panel by panel, or at once. */
static tsr_status load_block(const loading *l, const tsr_matrix *matrix, int64_t row, int64_t col,
                             void *mapped, tsr_error *error) {
  const tsr_graph_value *value = l->value;
  size_t size = tsr_dtype_bytes(value->dtype);
  int axes = value->shape.axes;
  int64_t width = matrix->panel ? matrix->panel : matrix->cols;
  for (int64_t c = 0; c < matrix->cols; c += width) {
    tsr_array array = {.dtype = value->dtype, .shape = value->shape};
    int64_t start[TSR_AXES_MAX] = {0}, columns = smaller(width, matrix->cols - c);
    if (axes > 1) {
      start[0] = l->origin[0] + row;
      array.shape.extent[0] = matrix->rows;
      array.stride[0] = matrix->panel ? matrix->panel : matrix->ld;
    }
    if (axes == 4) {
      take_channels(l, columns, start, &array);
    } else if (axes) {
      start[axes - 1] = l->origin[axes - 1] + col + c;
      array.shape.extent[axes - 1] = columns;
      array.stride[axes - 1] = 1;
    }
    array.data = (char *)mapped + (size_t)tsr_matrix_index(matrix, 0, c) * size;
    TSR_RETURN_IF_FAILED(read_array(l, start, &array, error));
  }
  return TSR_OK;
}

/* All of a piece between two cuts. A file may be read for minutes: the others hear that this rank lives. */
static tsr_status load_piece(const loading *l, int64_t r, int64_t rows, int64_t c, int64_t cols,
                             tsr_error *error) {
  void *mapped;
  tsr_device *device = l->local->device;
  tsr_buffer *buffer = tsr_tensor_block(&l->tensor, r, 1, c, 1).buffer;
  TSR_RETURN_IF_FAILED(
      tsr_device_host_wait(device, buffer, 0, buffer->bytes, TSR_HOST_READ_WRITE, &mapped, error));
  tsr_status status = TSR_OK;
  for (int64_t i = 0; i < rows && status == TSR_OK; i += ROWS_AT_A_TIME) {
    tsr_matrix block = tsr_tensor_block(&l->tensor, r + i, smaller(ROWS_AT_A_TIME, rows - i), c, cols);
    status = load_block(l, &block, r + i, c, mapped, error);
    if (status == TSR_OK) status = tsr_group_beat(l->session->group, error);
  }
  TSR_RETURN_IF_FAILED(tsr_device_host_end(device, buffer, mapped, status == TSR_OK ? error : NULL));
  return status;
}

static tsr_status load_pieces(const loading *l, tsr_error *error) {
  for (int64_t r = 0, rows; r < l->tensor.rows; r += rows) {
    rows = tsr_tensor_next_row(&l->tensor, r) - r;
    for (int64_t c = 0, cols; c < l->tensor.cols; c += cols) {
      cols = tsr_tensor_next_col(&l->tensor, c) - c;
      TSR_RETURN_IF_FAILED(load_piece(l, r, rows, c, cols, error));
    }
  }
  return tsr_device_finish(l->local->device, error);
}

/* ---- weights in i8 ---- */

/* The weight whose columns' factors a parameter holds, by its name; NULL = it is none. */
static const tsr_graph_value *weight_of(const tsr_graph *graph, const tsr_graph_value *scale) {
  for (size_t id = 1; id < graph->value_count; id++) {
    const tsr_graph_value *value = &graph->values[id];
    if (value->kind != TSR_PARAMETER || value->dtype != TSR_I8) continue;
    size_t bytes = strlen(value->name);
    if (!strncmp(scale->name, value->name, bytes) && !strcmp(scale->name + bytes, TSR_SCALE_SUFFIX))
      return value;
  }
  return NULL;
}

/* The parameter with the factors of a weight's columns; NULL = it has none. */
static tsr_status scale_of(const tsr_graph *graph, const tsr_graph_value *weight, const tsr_graph_value **out,
                           tsr_error *error) {
  char *name = tsr_text_format("%s%s", weight->name, TSR_SCALE_SUFFIX);
  if (!name) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the name of a scale");
  const tsr_value value = tsr_graph_parameter_named(graph, name);
  free(name);
  *out = value.id ? tsr_graph_at(graph, value) : NULL;
  return TSR_OK;
}

/* Whether a source holds a weight in floating point, that is to become whole numbers. */
static bool is_real(const tsr_source *source, const tsr_graph_value *weight) {
  return tsr_source_has(source, weight->name) && !tsr_source_is_whole(source, weight->name);
}

/* The factors of columns [col, col + cols) from the whole columns, whichever rows a member holds. */
static tsr_status find_scales(const loading *l, const tsr_graph_value *weight, int64_t col, int64_t cols,
                              float *scales, tsr_error *error) {
  tsr_status status = TSR_OK;
  const int64_t rows = weight->shape.extent[0];
  double *most = tsr_calloc((size_t)cols, sizeof *most);
  if (!most) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for the factors of %lld columns", (long long)cols);
  for (int64_t r = 0; r < rows; r += ROWS_AT_A_TIME) {
    TSR_TRY(tsr_quantise_most(l->source, weight->name, &weight->shape, r, smaller(ROWS_AT_A_TIME, rows - r),
                              col, cols, most, error));
    TSR_TRY(tsr_group_beat(l->session->group, error));
  }
  for (int64_t j = 0; j < cols; j++) scales[j] = tsr_quantise_scale(most[j]);
done:
  free(most);
  return status;
}

static tsr_status check_scale(const tsr_graph_value *weight, const tsr_graph_value *scale, tsr_error *error) {
  const tsr_shape *shape = &scale->shape;
  if (weight->shape.axes == 2 && shape->axes == 1 && shape->extent[0] == weight->shape.extent[1])
    return TSR_OK;
  char a[96], b[96];
  return tsr_fail(
      error, TSR_ERROR_INVALID_ARGUMENT,
      "\"%s\" %s holds no factors of the columns of \"%s\" %s: weights in floating point become i8 "
      "by one for each; give i8, or another name to it",
      scale->name, tsr_format_shape(a, sizeof a, shape), weight->name,
      tsr_format_shape(b, sizeof b, &weight->shape));
}

/* The factors by which the member's columns become whole numbers; *scales stays NULL if they are that, or are
 * to be taken for it because the graph has no factors. */
static tsr_status weight_scales(loading *l, tsr_error *error) {
  const tsr_graph_value *scale = NULL;
  if (l->value->dtype != TSR_I8 || !is_real(l->source, l->value)) return TSR_OK;
  TSR_RETURN_IF_FAILED(scale_of(l->session->plan->graph, l->value, &scale, error));
  if (!scale) return TSR_OK;
  TSR_RETURN_IF_FAILED(check_scale(l->value, scale, error));
  const int64_t col = l->origin[1], cols = l->tensor.cols;
  l->scales = tsr_calloc((size_t)cols, sizeof *l->scales);
  if (!l->scales) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for factors of columns");
  if (!tsr_source_has(l->source, scale->name)) return find_scales(l, l->value, col, cols, l->scales, error);
  tsr_shape shape = tsr_shape_of(1, cols, 0);
  tsr_array array = tsr_array_dense(l->scales, TSR_F32, &shape);
  return tsr_source_read(l->source, scale->name, &scale->shape, &col, &array, error);
}

/* The weight whose columns' factors the value holds, if the source has none of them; else NULL. */
static const tsr_graph_value *weight_without_scale(const loading *l) {
  if (l->value->kind != TSR_PARAMETER || tsr_source_has(l->source, l->value->name)) return NULL;
  const tsr_graph_value *weight = weight_of(l->session->plan->graph, l->value);
  return weight && tsr_source_has(l->source, weight->name) ? weight : NULL;
}

/* Factors are made where weights become whole numbers; nobody but the user knows those of whole ones. */
static tsr_status load_missing_scale(const loading *l, const tsr_graph_value *weight, tsr_error *error) {
  const int64_t cols = l->tensor.cols;
  if (!is_real(l->source, weight))
    return tsr_fail(error, TSR_ERROR_NOT_FOUND,
                    "the source has no \"%s\", the factors of the columns of \"%s\", which it holds as whole "
                    "numbers: add them (tessera run: --weight %s=FILE), or give \"%s\" in floating point",
                    l->value->name, weight->name, l->value->name, weight->name);
  TSR_RETURN_IF_FAILED(check_scale(weight, l->value, error));
  float *scales = tsr_calloc((size_t)cols, sizeof *scales);
  if (!scales) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for factors of columns");
  tsr_status status = find_scales(l, weight, l->origin[0], cols, scales, error);
  if (status == TSR_OK)
    status = tsr_tensor_write(l->local->device, &l->tensor, scales, TSR_F32, cols, 1, error);
  free(scales);
  return status;
}

/* ------------------------------------------------------------------------------------------------------------
 */

static tsr_status load_value(tsr_session *session, tsr_local *local, tsr_value value,
                             const tsr_source *source, tsr_error *error) {
  const tsr_graph_value *at = tsr_graph_at(session->plan->graph, value);
  tsr_place place = tsr_plan_final_place(session->plan, value);
  loading l = {.session = session, .local = local, .source = source, .value = at};
  int64_t end;
  if (at->shape.axes == 3)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "%s has 3 axes: 1, 2 or 4 can be loaded", at->name);
  for (int axis = 0; axis < at->shape.axes; axis++)
    tsr_plan_range(session->plan, value, place, axis, local->active_index, &l.origin[axis], &end);
  TSR_RETURN_IF_FAILED(tsr_session_tensor(session, local, value, &l.tensor, error));
  const tsr_graph_value *weight = weight_without_scale(&l);
  if (weight) return load_missing_scale(&l, weight, error);
  tsr_status status = weight_scales(&l, error);
  if (status == TSR_OK) status = load_pieces(&l, error);
  free(l.scales);
  return status;
}

static tsr_status load_local(tsr_session *session, tsr_local *local, const tsr_source *source,
                             tsr_error *error) {
  const tsr_graph *graph = session->plan->graph;
  for (size_t id = 1; id < graph->value_count; id++) {
    const tsr_graph_value *at = &graph->values[id];
    if (at->kind == TSR_INTERMEDIATE || (at->kind != TSR_PARAMETER && !tsr_source_has(source, at->name)))
      continue;
    tsr_status status = load_value(session, local, (tsr_value){(uint32_t)id}, source, error);
    if (status != TSR_OK) {
      tsr_error_wrap(error, "while loading %s", at->name);
      return status;
    }
  }
  return TSR_OK;
}

tsr_status tsr_session_load(tsr_session *session, const tsr_source *source, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_session_usable(session, "tsr_session_load", error));
  tsr_status status = TSR_OK;
  for (int i = 0; i < session->local_count && status == TSR_OK; i++)
    if (session->locals[i].active_index >= 0)
      status = tsr_local_blame(&session->locals[i], load_local(session, &session->locals[i], source, error),
                               error);
  return tsr_session_agree(session, status, error);
}
