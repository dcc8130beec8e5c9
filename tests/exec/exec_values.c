/* exec_values.c: an interpreter of graphs in plain loops over f64: what integers must come out. */
#include "base/activation.h"
#include "exec_support.h"

/* A value as a matrix. */
typedef struct matrix {
  int64_t rows, cols;
  double *data;
} matrix;

static matrix matrix_of(const exec_values *values, tsr_value value) {
  matrix m = {.data = values->data[value.id]};
  tsr_shape_matrix(&tsr_graph_at(values->graph, value)->shape, &m.rows, &m.cols);
  return m;
}

static double at(const matrix *m, int64_t r, int64_t c) {
  return m->data[(m->rows == 1 ? 0 : r) * m->cols + (m->cols == 1 ? 0 : c)];
}

static void note(exec_values *values, double magnitude) {
  if (!(magnitude <= values->magnitude)) values->magnitude = magnitude;
}

static void multiply(exec_values *values, const tsr_node *node, const matrix *in, const matrix *out) {
  int64_t k = node->transpose_a ? in[0].rows : in[0].cols;
  for (int64_t i = 0; i < out->rows; i++)
    for (int64_t j = 0; j < out->cols; j++) {
      double sum = 0, size = 0;
      for (int64_t p = 0; p < k; p++) {
        double a = in[0].data[node->transpose_a ? p * in[0].cols + i : i * in[0].cols + p];
        double b = in[1].data[node->transpose_b ? j * in[1].cols + p : p * in[1].cols + j];
        sum += a * b;
        size += fabs(a * b);
      }
      double c = node->input_count == 3 ? node->beta * in[2].data[i * out->cols + j] : 0;
      out->data[i * out->cols + j] = node->alpha * sum + c;
      note(values, fabs(node->alpha) * size + fabs(c));
    }
}

static double element(const tsr_node *node, const matrix *in, int64_t r, int64_t c) {
  double a = at(&in[0], r, c), b = node->input_count > 1 ? at(&in[1], r, c) : 0;
  switch (node->op) {
  case TSR_OPERATOR_ADD:
    return (node->alpha != 0 ? node->alpha * a : 0) + (node->beta != 0 ? node->beta * b : 0);
  case TSR_OPERATOR_MULTIPLY: return a * b;
  case TSR_OPERATOR_UNARY: return tsr_unary_apply(node->unary, a);
  default: return tsr_unary_derivative(node->unary, a) * b;
  }
}

static void reduce(exec_values *values, const tsr_node *node, const matrix *in, const matrix *out) {
  int axes = tsr_graph_at(values->graph, node->inputs[0])->shape.axes;
  bool along = node->axis == axes - 1;
  int64_t outer = along ? in->rows : in->cols, length = along ? in->cols : in->rows;
  for (int64_t i = 0; i < outer; i++) {
    double result = node->reduction == TSR_SUM ? 0 : -INFINITY, size = 0;
    for (int64_t j = 0; j < length; j++) {
      double x = along ? in->data[i * in->cols + j] : in->data[j * in->cols + i];
      size += fabs(x);
      result = node->reduction == TSR_SUM ? result + x : fmax(result, x);
    }
    out->data[i] = result;
    note(values, size);
  }
}

/* Every product of a convolution, added to what it belongs to: the output, or the gradient of images or
 * weights. */
static void convolve(exec_values *values, const tsr_node *node) {
  const bool input = node->op == TSR_OPERATOR_CONV_INPUT, weight = node->op == TSR_OPERATOR_CONV_WEIGHT;
  const tsr_value ids[] = {input ? node->output : node->inputs[0], weight ? node->output : node->inputs[1],
                           input    ? node->inputs[0]
                           : weight ? node->inputs[1]
                                    : node->output};
  double *data[3], *out = values->data[node->output.id];
  const int64_t *x, *w, *y, count = tsr_shape_count(&tsr_graph_at(values->graph, node->output)->shape);
  const tsr_window *window = &node->window;
  for (int i = 0; i < 3; i++) data[i] = values->data[ids[i].id];
  x = tsr_graph_at(values->graph, ids[0])->shape.extent;
  w = tsr_graph_at(values->graph, ids[1])->shape.extent;
  y = tsr_graph_at(values->graph, ids[2])->shape.extent;
  double *size = calloc((size_t)count, sizeof *size);
  for (int64_t i = 0; i < count; i++) out[i] = 0;
  for (int64_t n = 0; n < y[0]; n++)
    for (int64_t k = 0; k < y[1]; k++)
      for (int64_t p = 0; p < y[2]; p++)
        for (int64_t q = 0; q < y[3]; q++)
          for (int64_t c = 0; c < w[1]; c++)
            for (int64_t r = 0; r < w[2]; r++)
              for (int64_t s = 0; s < w[3]; s++) {
                int64_t i = p * window->stride[0] - window->padding[0] + r * window->dilation[0];
                int64_t j = q * window->stride[1] - window->padding[1] + s * window->dilation[1];
                int64_t channel = k / (y[1] / window->groups) * w[1] + c;
                if (i < 0 || i >= x[2] || j < 0 || j >= x[3]) continue;
                int64_t at[] = {((n * x[1] + channel) * x[2] + i) * x[3] + j,
                                ((k * w[1] + c) * w[2] + r) * w[3] + s,
                                ((n * y[1] + k) * y[2] + p) * y[3] + q};
                int to = input ? 0 : weight ? 1 : 2, a = input ? 1 : 0, b = weight || input ? 2 : 1;
                out[at[to]] += data[a][at[a]] * data[b][at[b]];
                size[at[to]] += fabs(data[a][at[a]] * data[b][at[b]]);
              }
  for (int64_t i = 0; i < count; i++) {
    double bias = node->input_count == 3 ? values->data[node->inputs[2].id][i / (y[2] * y[3]) % y[1]] : 0;
    out[i] += bias;
    note(values, size[i] + fabs(bias));
  }
  free(size);
}

static void sum_channels(exec_values *values, const tsr_node *node) {
  const int64_t *a = tsr_graph_at(values->graph, node->inputs[0])->shape.extent;
  double *out = values->data[node->output.id];
  for (int64_t k = 0; k < a[1]; k++) {
    double size = 0;
    out[k] = 0;
    for (int64_t n = 0; n < a[0]; n++)
      for (int64_t i = 0; i < a[2] * a[3]; i++) {
        double x = values->data[node->inputs[0].id][(n * a[1] + k) * a[2] * a[3] + i];
        out[k] += x;
        size += fabs(x);
      }
    note(values, size);
  }
}

/* Window by window: the largest element (of a gradient: to which dy goes), the first of equal ones. */
static void pool(exec_values *values, const tsr_node *node) {
  const bool gradient = node->op == TSR_OPERATOR_POOL_GRADIENT;
  const int64_t *x = tsr_graph_at(values->graph, node->inputs[0])->shape.extent;
  const int64_t *y = tsr_graph_at(values->graph, gradient ? node->inputs[1] : node->output)->shape.extent;
  const tsr_window *window = &node->window;
  const double *in = values->data[node->inputs[0].id];
  double *out = values->data[node->output.id];
  assert_int_equal(node->reduction, TSR_MAX); /* means are no integers */
  for (int64_t i = 0; gradient && i < x[0] * x[1] * x[2] * x[3]; i++) out[i] = 0;
  for (int64_t at = 0; at < y[0] * y[1] * y[2] * y[3]; at++) {
    const int64_t plane = at / (y[2] * y[3]), p = at / y[3] % y[2], q = at % y[3];
    int64_t most = -1;
    for (int64_t r = 0; r < window->extent[0]; r++)
      for (int64_t s = 0; s < window->extent[1]; s++) {
        int64_t i = p * window->stride[0] - window->padding[0] + r,
                j = q * window->stride[1] - window->padding[1] + s;
        if (i < 0 || i >= x[2] || j < 0 || j >= x[3]) continue;
        int64_t pixel = (plane * x[2] + i) * x[3] + j;
        if (most < 0 || in[pixel] > in[most]) most = pixel;
      }
    if (gradient)
      out[most] += values->data[node->inputs[1].id][at];
    else
      out[at] = in[most];
    note(values, 4 * fabs(gradient ? out[most] : out[at]));
  }
}

static void compute_node(exec_values *values, const tsr_node *node) {
  matrix in[TSR_NODE_INPUTS_MAX] = {{0}}, out = matrix_of(values, node->output);
  for (int i = 0; i < node->input_count; i++) in[i] = matrix_of(values, node->inputs[i]);
  if (tsr_operator_is_conv(node->op)) {
    convolve(values, node);
  } else if (node->op == TSR_OPERATOR_POOL || node->op == TSR_OPERATOR_POOL_GRADIENT) {
    pool(values, node);
  } else if (node->op == TSR_OPERATOR_CHANNEL_SUM) {
    sum_channels(values, node);
  } else if (node->op == TSR_OPERATOR_MATMUL) {
    multiply(values, node, in, &out);
  } else if (node->op == TSR_OPERATOR_REDUCE) {
    reduce(values, node, in, &out);
  } else if (node->op == TSR_OPERATOR_SQUARED_ERROR) {
    out.data[0] = 0;
    for (int64_t i = 0; i < in[0].rows * in[0].cols; i++)
      out.data[0] += node->alpha * (in[0].data[i] - in[1].data[i]) * (in[0].data[i] - in[1].data[i]);
    note(values, HUGE_VAL); /* a mean is no integer */
  } else {
    for (int64_t r = 0; r < out.rows; r++)
      for (int64_t c = 0; c < out.cols; c++) {
        double *to = &out.data[r * out.cols + c];
        *to = node->op == TSR_OPERATOR_SCALE ? node->alpha * in[0].data[r * out.cols + c]
                                             : element(node, in, r, c);
        note(values, 2 * fabs(*to));
      }
  }
}

void exec_values_compute(exec_values *values) {
  for (size_t i = 0; i < values->graph->node_count; i++) compute_node(values, &values->graph->nodes[i]);
}

/* All at once: a target may be another's value. */
void exec_values_assign(exec_values *values) {
  const tsr_graph *graph = values->graph;
  double **fresh = calloc(graph->value_count, sizeof *fresh);
  for (uint32_t id = 1; id < graph->value_count; id++) {
    size_t bytes = (size_t)tsr_shape_count(&graph->values[id].shape) * sizeof(double);
    if (!graph->values[id].assigned.id) continue;
    fresh[id] = malloc(bytes + 1);
    memcpy(fresh[id], values->data[graph->values[id].assigned.id], bytes);
  }
  for (uint32_t id = 1; id < graph->value_count; id++) {
    if (!fresh[id]) continue;
    free(values->data[id]);
    values->data[id] = fresh[id];
  }
  free(fresh);
}

void exec_values_init(exec_values *values, const tsr_graph *graph, const tsr_source *source) {
  *values = (exec_values){.graph = graph, .data = calloc(graph->value_count, sizeof *values->data)};
  for (uint32_t id = 1; id < graph->value_count; id++) {
    const tsr_graph_value *at = &graph->values[id];
    int64_t start[TSR_AXES_MAX] = {0};
    values->data[id] = calloc((size_t)tsr_shape_count(&at->shape) + 1, sizeof(double));
    if (at->producer >= 0 || !tsr_source_has(source, at->name)) continue;
    tsr_array array = tsr_array_dense(values->data[id], TSR_F64, &at->shape);
    exec_ok(tsr_source_read(source, at->name, &at->shape, start, &array, &exec_error));
  }
}

void exec_values_finish(exec_values *values) {
  for (uint32_t id = 1; id < values->graph->value_count; id++) free(values->data[id]);
  free(values->data);
}

tsr_source *exec_source(const tsr_graph *graph, bool integers, double high, uint64_t seed) {
  tsr_source *source;
  exec_ok(tsr_source_create(exec_context, &source, &exec_error));
  for (uint32_t id = 1; id < graph->value_count; id++)
    if (graph->values[id].producer < 0)
      exec_ok(tsr_source_add_random(source, graph->values[id].name,
                                    integers ? TSR_RANDOM_INTEGER : TSR_RANDOM_UNIFORM, seed, -high, high,
                                    &exec_error));
  return source;
}
