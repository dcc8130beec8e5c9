/* A product C = alpha op(A) op(B) + beta C0 on one member, by Freivalds' probe: with a vector x of random
 * signs on a block of columns, C x must equal alpha A (B x) + beta C0 x. Every block of columns is probed, so
 * that a single wrong element anywhere shows if it is off by more than its row's bound.
 *
 * The bound: an element of C carries at most e_ij = 4 sqrt(k) eps (|A||B|)_ij (Higham and Mary 2019, SIAM J.
 * Sci. Comput. 41). The signs are random, so the errors of a row add up as their root sum of squares, which
 * is at most sqrt(max_j e_ij * sum_j e_ij); both come from |A| times a vector. The probe's own sums, in f64,
 * are off by no more than (n + k) 2^-53 |A||B| summed over the block. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "exec/check.h"

enum { BLOCK = 256, ROWS_AT_A_TIME = 256 };

/* A product's operands, untransposed, and vectors of one block. */
typedef struct probe {
  tsr_device *device;
  const tsr_node *node;
  tsr_tensor a, b, c, c0;
  bool has_c0;
  int64_t m, n, k;
  double *b_block;            /* [k][width] */
  double *bx, *sum, *most;    /* [k]: B x, sum of |B|, largest |B| over the block */
  double *rows;               /* [ROWS_AT_A_TIME][k] of A */
  double *c_block, *c0_block; /* [ROWS_AT_A_TIME][width] */
} probe;

/* Reads rows x cols of op(tensor) beginning at (row, col). */
static tsr_status read_block(tsr_device *device, tsr_tensor tensor, bool transposed, int64_t row,
                             int64_t rows, int64_t col, int64_t cols, double *out, tsr_error *error) {
  tensor.row0 += transposed ? col : row;
  tensor.col0 += transposed ? row : col;
  tensor.rows = transposed ? cols : rows;
  tensor.cols = transposed ? rows : cols;
  return tsr_tensor_read(device, &tensor, out, TSR_F64, transposed ? 1 : cols, transposed ? cols : 1, error);
}

static void free_probe(probe *p) {
  free(p->b_block);
  free(p->bx);
  free(p->sum);
  free(p->most);
  free(p->rows);
  free(p->c_block);
  free(p->c0_block);
}

static bool allocate_probe(probe *p) {
  size_t k = (size_t)p->k;
  p->b_block = tsr_calloc(k * BLOCK, sizeof(double));
  p->bx = tsr_calloc(k, sizeof(double));
  p->sum = tsr_calloc(k, sizeof(double));
  p->most = tsr_calloc(k, sizeof(double));
  p->rows = tsr_calloc(k * ROWS_AT_A_TIME, sizeof(double));
  p->c_block = tsr_calloc(BLOCK * ROWS_AT_A_TIME, sizeof(double));
  p->c0_block = tsr_calloc(BLOCK * ROWS_AT_A_TIME, sizeof(double));
  return p->b_block && p->bx && p->sum && p->most && p->rows && p->c_block && p->c0_block;
}

static void reduce_block(probe *p, int64_t width, const double *signs) {
  for (int64_t i = 0; i < p->k; i++) {
    const double *row = p->b_block + i * width;
    p->bx[i] = p->sum[i] = p->most[i] = 0;
    for (int64_t j = 0; j < width; j++) {
      p->bx[i] += row[j] * signs[j];
      p->sum[i] += fabs(row[j]);
      if (!(fabs(row[j]) <= p->most[i])) p->most[i] = fabs(row[j]);
    }
  }
}

static void check_row(const probe *p, int64_t row, int64_t at, int64_t col, int64_t width,
                      const double *signs, const char *name, int member, tsr_finding *finding) {
  const double *a = p->rows + at * p->k, epsilon = tsr_dtype_epsilon(p->c.dtype);
  double expected = 0, sum = 0, most = 0, found = 0, found_sum = 0, c0_sum = 0, c0_most = 0;
  for (int64_t i = 0; i < p->k; i++) {
    expected += a[i] * p->bx[i];
    sum += fabs(a[i]) * p->sum[i];
    most += fabs(a[i]) * p->most[i];
  }
  expected *= p->node->alpha;
  sum *= fabs(p->node->alpha);
  most *= fabs(p->node->alpha);
  for (int64_t j = 0; j < width; j++) {
    double c0 = p->has_c0 ? p->node->beta * p->c0_block[at * width + j] : 0;
    found += p->c_block[at * width + j] * signs[j];
    found_sum += fabs(p->c_block[at * width + j]);
    expected += c0 * signs[j];
    c0_sum += fabs(c0);
    if (!(fabs(c0) <= c0_most)) c0_most = fabs(c0);
  }
  double bound = 4 * epsilon * (sqrt((double)p->k) * sqrt(sum) * sqrt(most) + sqrt(c0_sum) * sqrt(c0_most));
  bound += (double)(width + p->k) * 0x1p-53 * (sum + c0_sum);
  bound = tsr_check_bound(p->c.dtype, sum + c0_sum, (double)(width * (p->k + 1)), bound);
  tsr_finding_note(finding, tsr_check_sum(found, found_sum), expected, bound,
                   "%s, row %lld, columns %lld to %lld of rank %d", name, (long long)row, (long long)col,
                   (long long)(col + width - 1), member);
}

static tsr_status check_block(probe *p, int64_t col, int64_t width, uint64_t seed, const char *name,
                              int member, tsr_finding *finding, tsr_error *error) {
  double signs[BLOCK];
  for (int64_t j = 0; j < width; j++) signs[j] = tsr_check_sign(seed, (uint64_t)(col + j));
  TSR_RETURN_IF_FAILED(
      read_block(p->device, p->b, p->node->transpose_b, 0, p->k, col, width, p->b_block, error));
  reduce_block(p, width, signs);
  for (int64_t row = 0; row < p->m; row += ROWS_AT_A_TIME) {
    int64_t rows = p->m - row < ROWS_AT_A_TIME ? p->m - row : ROWS_AT_A_TIME;
    TSR_RETURN_IF_FAILED(
        read_block(p->device, p->a, p->node->transpose_a, row, rows, 0, p->k, p->rows, error));
    TSR_RETURN_IF_FAILED(read_block(p->device, p->c, false, row, rows, col, width, p->c_block, error));
    if (p->has_c0)
      TSR_RETURN_IF_FAILED(read_block(p->device, p->c0, false, row, rows, col, width, p->c0_block, error));
    for (int64_t i = 0; i < rows; i++) check_row(p, row + i, i, col, width, signs, name, member, finding);
  }
  return TSR_OK;
}

/* The largest factor of a row that a product of whole numbers is multiplied by next, on this member; 1 if
 * there is none: an error of the product is so much smaller in what people see. */
static tsr_status largest_factor(const tsr_session *session, const tsr_local *local, const tsr_node *product,
                                 double *factor, tsr_error *error) {
  const tsr_graph *graph = session->plan->graph;
  const tsr_node *scaling = NULL;
  *factor = 1;
  if (tsr_matmul_dtype(graph, product) != TSR_I8) return TSR_OK;
  for (size_t i = 0; i < graph->node_count && !scaling; i++)
    if (graph->nodes[i].op == TSR_OPERATOR_MULTIPLY && graph->nodes[i].inputs[0].id == product->output.id)
      scaling = &graph->nodes[i];
  if (!scaling || tsr_graph_at(graph, scaling->inputs[1])->producer >= 0) return TSR_OK;
  tsr_tensor row;
  TSR_RETURN_IF_FAILED(tsr_session_tensor(session, local, scaling->inputs[1], &row, error));
  if (row.rows != 1 || !row.cols) return TSR_OK;
  double *factors = tsr_calloc((size_t)row.cols, sizeof *factors);
  if (!factors) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to check a product");
  tsr_status status = tsr_tensor_read(local->device, &row, factors, TSR_F64, row.cols, 1, error);
  *factor = 0;
  for (int64_t j = 0; j < row.cols; j++)
    if (fabs(factors[j]) > *factor) *factor = fabs(factors[j]);
  free(factors);
  return status;
}

tsr_status tsr_check_product(tsr_session *session, tsr_local *local, const tsr_step *step, uint64_t seed,
                             tsr_finding *finding, tsr_error *error) {
  tsr_status status = TSR_OK;
  const tsr_plan *plan = session->plan;
  const tsr_node *node = &plan->graph->nodes[step->node];
  tsr_rule rule = tsr_check_rule(plan, step->node);
  tsr_finding own = {0};
  double factor;
  probe p = {.device = local->device, .node = node};
  char buffer[80];
  const char *name = tsr_check_name(plan, node->output, buffer, sizeof buffer);
  TSR_TRY(tsr_tensor_of(plan, local->stores, local->active_index, node->inputs[0], rule.in[0], &p.a, error));
  TSR_TRY(tsr_tensor_of(plan, local->stores, local->active_index, node->inputs[1], rule.in[1], &p.b, error));
  TSR_TRY(tsr_tensor_of(plan, local->stores, local->active_index, step->value, step->to, &p.c, error));
  p.has_c0 = node->beta != 0 && (!rule.one_owner[2] || local->active_index == 0);
  if (p.has_c0)
    TSR_TRY(
        tsr_tensor_of(plan, local->stores, local->active_index, node->inputs[2], rule.in[2], &p.c0, error));
  p.m = p.c.rows;
  p.n = p.c.cols;
  p.k = node->transpose_a ? p.a.rows : p.a.cols;
  if (!allocate_probe(&p)) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory to check %s", name);
  for (int64_t col = 0; col < p.n; col += BLOCK) {
    int64_t width = p.n - col < BLOCK ? p.n - col : BLOCK;
    TSR_TRY(check_block(&p, col, width, seed, name, local->member, &own, error));
  }
  TSR_TRY(largest_factor(session, local, node, &factor, error));
  own.detectable *= factor;
  tsr_finding_merge(finding, &own);
done:
  free_probe(&p);
  return status;
}
