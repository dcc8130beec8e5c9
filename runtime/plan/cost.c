#include "plan/cost.h"

#include <math.h>

#include "graph/conv.h"
#include "plan/factors.h"

tsr_gemm_form tsr_gemm_form_of(const tsr_node *node) {
  return node->transpose_a ? TSR_GEMM_TN : node->transpose_b ? TSR_GEMM_NT : TSR_GEMM_NN;
}

/* Of a convolution, against the product of the same m, n and k: the 3x3 layers of ResNet-50 on a CPU
 * (tests/bench/bench_conv); directly, where groups have fewer than CONV_DIRECT_CHANNELS pairs of channels:
 * 3x3 to 7x7, 7 to 112 pixels, on the same CPU; element by element, as other devices compute it, an estimate.
 */
static const double CONV_AS_PRODUCT = 0.7, CONV_DIRECT = 0.4, CONV_BY_ELEMENT = 0.05;
enum { CONV_DIRECT_CHANNELS = 16 };

/* The interval of a grid axis that x falls into: index of its lower end, or of the nearest interval. */
static int interval(const double *grid, int count, double x) {
  int i = 0;
  while (i + 2 < count && x >= grid[i + 1]) i++;
  return i;
}

/* Linear between (and beyond) the ends of an interval of log time, with a slope clamped to [0, steepest]. */
static double interpolate(double x, double x0, double y0, double x1, double y1, double steepest) {
  double slope = (y1 - y0) / (x1 - x0);
  if (slope < 0) slope = 0; /* more work never takes less time */
  if (x > x1) return y1 + (x - x1) * steepest;
  if (x < x0 && slope > steepest) slope = steepest;
  return y0 + (x - x0) * slope;
}

double tsr_cost_gemm(const tsr_cluster_member *member, tsr_dtype dtype, tsr_gemm_form form, int64_t m,
                     int64_t n, int64_t k) {
  const tsr_gemm_curve *curve = &member->curves[dtype][form];
  if (!m || !n || !k || !curve->count) return 0;
  double log_m[TSR_GEMM_POINTS_MAX], log_side[TSR_GEMM_POINTS_MAX];
  int sides = 0, rows;
  while (sides < curve->count && curve->points[sides].m == curve->points[0].m) sides++;
  rows = curve->count / sides;
  for (int i = 0; i < sides; i++) log_side[i] = log((double)curve->points[i].side);
  for (int i = 0; i < rows; i++) log_m[i] = log((double)curve->points[i * sides].m);

  double x = log((double)m), y = 0.5 * (log((double)n) + log((double)k)), along[2];
  int row = interval(log_m, rows, x), side = interval(log_side, sides, y), row_count = rows > 1 ? 2 : 1;
  for (int i = 0; i < row_count; i++) {
    const tsr_gemm_point *point = &curve->points[(row + i) * sides + side];
    along[i] = sides > 1 ? interpolate(y, log_side[side], log(point[0].seconds), log_side[side + 1],
                                       log(point[1].seconds), 2)
                         : log(point[0].seconds) + 2 * (y - log_side[0]);
  }
  double seconds = exp(row_count > 1 ? interpolate(x, log_m[row], along[0], log_m[row + 1], along[1], 1)
                                     : along[0] + (x - log_m[0]));
  return seconds > member->launch_seconds ? seconds : member->launch_seconds;
}

double tsr_cost_elementwise(const tsr_cluster_member *member, double bytes) {
  return bytes > 0 ? member->launch_seconds + bytes / member->memory_bandwidth : 0;
}

int64_t tsr_cost_nanoseconds(double seconds) {
  const double most = (double)(TSR_COST_FORBIDDEN / 1024); /* a thousand of them stay below what forbids */
  double rounded = seconds * 1e9 + 0.5;
  return rounded < most ? (int64_t)rounded : (int64_t)most;
}

static double shape_bytes(const tsr_graph *graph, tsr_value value, const tsr_shape *shape) {
  return (double)tsr_shape_count(shape) * (double)tsr_dtype_bytes(tsr_graph_at(graph, value)->dtype);
}

/* Few channels in a group are no product: images are read and written, and multiplied at part of the speed;
 * on CPUs the gradient of the images with the zeros between the output's elements, which a stride makes. */
static double direct_seconds(const tsr_cluster_member *member, tsr_operator op, tsr_dtype dtype,
                             const tsr_conv_geometry *g, double moved) {
  enum { SIDE = 512, WINDOW_MOST = 49 };
  const bool direct = member->gemm[dtype].family == TSR_GEMM_PANEL && g->r * g->s <= WINDOW_MOST;
  const bool spread = direct && op == TSR_OPERATOR_CONV_INPUT;
  const double per_product = tsr_cost_gemm(member, dtype, TSR_GEMM_NN, SIDE, SIDE, SIDE) / SIDE / SIDE / SIDE;
  const double plane = spread ? (double)(g->h * g->w) : (double)(g->p * g->q);
  const double products = (double)g->n * (double)g->k_held * plane * (double)(g->c * g->r * g->s);
  if (!g->n) return 0;
  return tsr_cost_elementwise(member, moved) +
         products * per_product / (direct ? CONV_DIRECT : CONV_BY_ELEMENT);
}

/* As so many products as there are groups, each of a window's depth. */
static double conv_seconds(const tsr_cluster_member *member, const tsr_graph *graph, const tsr_node *node,
                           const tsr_shape *inputs, const tsr_shape *output, double moved) {
  const tsr_value weight = node->op == TSR_OPERATOR_CONV_WEIGHT ? node->output : node->inputs[1];
  const tsr_conv_geometry g = tsr_conv_geometry_of(
      node, inputs, output, tsr_graph_at(graph, weight)->shape.extent[0] / node->window.groups, 0, 0);
  if (!moved || !g.k_held || !g.c) return tsr_cost_elementwise(member, moved);
  const tsr_dtype dtype = tsr_graph_at(graph, node->output)->dtype;
  if (node->window.groups > 1 && g.c * g.k_group < CONV_DIRECT_CHANNELS)
    return direct_seconds(member, node->op, dtype, &g, moved);
  const double product =
      tsr_cost_gemm(member, dtype, TSR_GEMM_NN, g.n * g.p * g.q, g.k_group, g.c * g.r * g.s);
  const double groups = (double)g.k_held / (double)g.k_group;
  return groups * product /
         (member->gemm[dtype].family == TSR_GEMM_PANEL ? CONV_AS_PRODUCT : CONV_BY_ELEMENT);
}

double tsr_cost_node(const tsr_cluster_member *member, const tsr_graph *graph, const tsr_node *node,
                     const tsr_shape *inputs, const tsr_shape *output, double *bytes) {
  double moved = shape_bytes(graph, node->output, output);
  for (int i = 0; i < node->input_count; i++) moved += shape_bytes(graph, node->inputs[i], &inputs[i]);
  if (bytes) *bytes = moved;
  if (tsr_operator_is_conv(node->op)) return conv_seconds(member, graph, node, inputs, output, moved);
  if (node->op != TSR_OPERATOR_MATMUL) return tsr_cost_elementwise(member, moved);
  int64_t m, n, k;
  tsr_matmul_extents(node, inputs, &m, &n, &k);
  return tsr_cost_gemm(member, tsr_matmul_dtype(graph, node), tsr_gemm_form_of(node), m, n, k);
}

/* Bytes per second between a device with memory of its own and its host: PCIe 3 x16, as nothing was measured.
 */
static const double HOST_LINK_BANDWIDTH = 12e9;

/* Seconds of the slowest member's copies from its device and to it, each with a launch; shares as if they
 * were even, so that this does not bear on them. */
static double staging(const tsr_cluster *cluster, const tsr_collective_options *options) {
  double slowest = 0, whole = 0;
  for (int i = 0; i < options->member_count; i++) whole += (double)options->counts[i];
  bool reduces = options->kind == TSR_ALL_REDUCE; /* all counts are the whole */
  double moved = reduces ? 2 * (double)options->counts[0] : whole * (1 + 1.0 / options->member_count);
  moved *= (double)tsr_dtype_bytes(options->dtype);
  for (int i = 0; i < options->member_count; i++) {
    const tsr_cluster_member *member = &cluster->members[options->members ? options->members[i] : i];
    double bandwidth = member->memory_bandwidth;
    if (!member->unified_memory && member->kind != TSR_DEVICE_CPU && bandwidth > HOST_LINK_BANDWIDTH)
      bandwidth = HOST_LINK_BANDWIDTH;
    double seconds = 2 * member->launch_seconds + moved / bandwidth;
    if (seconds > slowest) slowest = seconds;
  }
  return slowest;
}

double tsr_cost_collective(const tsr_cluster *cluster, tsr_collective_options *options) {
  if (options->member_count < 2) return 0;
  if (options->algorithm == TSR_ALGORITHM_AUTO)
    options->algorithm = tsr_collective_choose(options, &cluster->links);
  return staging(cluster, options) + tsr_collective_seconds(options, &cluster->links);
}
