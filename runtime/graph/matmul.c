/* graph/matmul.c: out[m,n] = alpha op(a)[m,k] op(b)[k,n] + beta c[m,n]. */
#include "graph/adjoint.h"
#include "graph/graph.h"

#include <math.h>

void tsr_matmul_options_init(tsr_matmul_options *options) {
  *options = (tsr_matmul_options){.struct_size = sizeof *options};
}

tsr_status tsr_graph_matmul(tsr_graph *graph, tsr_value a, tsr_value b, const tsr_matmul_options *options,
                            tsr_value *out, tsr_error *error) {
  TSR_CHECK_OPTIONS_SIZE(options, tsr_matmul_options);
  tsr_matmul_options defaults;
  tsr_matmul_options_init(&defaults);
  if (!options) options = &defaults;
  bool adds = options->beta != 0;
  tsr_node node = {.op = TSR_OPERATOR_MATMUL,
                   .input_count = adds ? 3 : 2,
                   .inputs = {a, b, adds ? options->c : TSR_NO_VALUE},
                   .alpha = options->alpha == 0 ? 1 : options->alpha,
                   .beta = options->beta,
                   .transpose_a = options->transpose_a,
                   .transpose_b = options->transpose_b};
  if (adds && !options->c.id)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "matmul: beta is %g, but c is no value: set c, or beta to 0", options->beta);
  return tsr_graph_append(graph, &node, out, error);
}

/* Which axes of the stored a and b are m, k and n. */
static int axis_m(const tsr_node *node) {
  return node->transpose_a;
}
static int axis_k_of_a(const tsr_node *node) {
  return !node->transpose_a;
}
static int axis_k_of_b(const tsr_node *node) {
  return node->transpose_b;
}
static int axis_n(const tsr_node *node) {
  return !node->transpose_b;
}

void tsr_matmul_extents(const tsr_node *node, const tsr_shape *inputs, int64_t *m, int64_t *n, int64_t *k) {
  *m = inputs[0].extent[axis_m(node)];
  *n = inputs[1].extent[axis_n(node)];
  *k = inputs[0].extent[axis_k_of_a(node)];
}

static tsr_status matmul_shape(const tsr_graph *graph, const tsr_node *node, tsr_dtype *dtype, tsr_shape *out,
                               tsr_error *error) {
  (void)dtype;
  tsr_shape inputs[2];
  for (int i = 0; i < 2; i++) {
    inputs[i] = tsr_graph_at(graph, node->inputs[i])->shape;
    if (inputs[i].axes != 2)
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s, %s, has %d axes, 2 are needed", i ? "b" : "a",
                      tsr_graph_describe(graph, node->inputs[i]).text, inputs[i].axes);
  }
  int64_t m, n, k, k_of_b = inputs[1].extent[axis_k_of_b(node)];
  tsr_matmul_extents(node, inputs, &m, &n, &k);
  if (k != k_of_b)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "k is %lld in a%s, %s, but %lld in b%s, %s: they must be equal", (long long)k,
                    node->transpose_a ? " transposed" : "", tsr_graph_describe(graph, node->inputs[0]).text,
                    (long long)k_of_b, node->transpose_b ? " transposed" : "",
                    tsr_graph_describe(graph, node->inputs[1]).text);
  *out = tsr_shape_of(2, m, n);
  if (node->input_count == 2 && node->beta != 0)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "beta is %g, but there is no c: it must be 0",
                    node->beta);
  if (node->input_count == 2) return TSR_OK;
  const tsr_shape *c = &tsr_graph_at(graph, node->inputs[2])->shape;
  if (c->axes != 2 || c->extent[0] != m || c->extent[1] != n)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "c, %s, must be [%lld, %lld]",
                    tsr_graph_describe(graph, node->inputs[2]).text, (long long)m, (long long)n);
  return TSR_OK;
}

static int matmul_rules(const tsr_graph *graph, const tsr_node *node, tsr_rule *out) {
  (void)graph;
  const tsr_place r = TSR_PLACE_REPLICATE, p = TSR_PLACE_SUM;
  const tsr_place m = (tsr_place)axis_m(node), n = (tsr_place)axis_n(node);
  const tsr_place k_of_a = (tsr_place)axis_k_of_a(node), k_of_b = (tsr_place)axis_k_of_b(node);
  const struct {
    tsr_place a, b, out;
  } products[] = {{r, r, r}, {m, r, 0}, {r, n, 1}, {k_of_a, k_of_b, p}, {p, r, p}, {r, p, p}};
  bool adds = node->input_count == 3;
  int count = 0;
  for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
    tsr_place result = products[i].out;
    out[count++] = (tsr_rule){.in = {products[i].a, products[i].b, adds ? result : r}, .out = result};
    if (adds && result == p)
      out[count++] =
          (tsr_rule){.in = {products[i].a, products[i].b, r}, .out = p, .one_owner = {false, false, true}};
  }
  return count;
}

static int matmul_links(const tsr_graph *graph, const tsr_node *node, tsr_axis_link *out) {
  (void)graph;
  const tsr_axis_link links[] = {{{0, -1}, {axis_m(node), 0}},
                                 {{1, -1}, {axis_n(node), 1}},
                                 {{0, 1}, {axis_k_of_a(node), axis_k_of_b(node)}},
                                 {{2, -1}, {0, 0}},
                                 {{2, -1}, {1, 1}}};
  int count = node->input_count == 3 ? 5 : 3;
  for (int i = 0; i < count; i++) out[i] = links[i];
  return count;
}

/* With A and B as stored and y = op(A) op(B), per input and transpose_a, transpose_b: the product that gives
 * its gradient in its own orientation. For a plain a (x w, x w^T) the weight stays operand b, NN or NT. */
typedef enum factor { A, B, DY } factor;
typedef struct gradient_form {
  factor left, right;
  bool transpose_left, transpose_right;
} gradient_form;
static const gradient_form gradient_forms[2][2][2] = {
    {{{DY, B, false, true}, {DY, B, false, false}}, {{B, DY, false, true}, {B, DY, true, true}}},
    {{{A, DY, true, false}, {DY, A, true, false}}, {{A, DY, false, false}, {DY, A, true, true}}}};

static tsr_status matmul_gradient(tsr_graph *graph, const tsr_node *node, tsr_adjoint dy, int i,
                                  tsr_adjoint *out, tsr_error *error) {
  if (i == 2) {
    *out = (tsr_adjoint){dy.value, dy.factor * node->beta};
    return TSR_OK;
  }
  tsr_value factors[] = {[A] = node->inputs[0], [B] = node->inputs[1], [DY] = TSR_NO_VALUE};
  TSR_RETURN_IF_FAILED(tsr_adjoint_value(dy, node, &factors[DY], error));
  const gradient_form *form = &gradient_forms[i][node->transpose_a][node->transpose_b];
  tsr_node product = {.op = TSR_OPERATOR_MATMUL,
                      .input_count = 2,
                      .inputs = {factors[form->left], factors[form->right]},
                      .alpha = node->alpha * dy.factor,
                      .transpose_a = form->transpose_left,
                      .transpose_b = form->transpose_right};
  out->factor = 1;
  return tsr_graph_append(graph, &product, &out->value, error);
}

static double matmul_flops(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output) {
  (void)output;
  int64_t m, n, k;
  tsr_matmul_extents(node, inputs, &m, &n, &k);
  return 2.0 * (double)m * (double)n * ((double)k + (node->input_count == 3 ? 1 : 0));
}

/* What the loops of the oracle need: element (i, p) of op(a) is at i * a_row + p * a_column. */
typedef struct product {
  int64_t m, n, k, a_row, a_column;
  tsr_oracle_value a, b, out;
  double rounding; /* relative error of a sum of k products, against |a||b| */
} product;

/* One row of out += a * (one row of b), with |a| (e_b + rounding |b|) + e_a (|b| + e_b) for the errors. */
static void add_row(double a, double e_a, const double *restrict b, const double *restrict e_b,
                    double rounding, int64_t n, double *restrict out, double *restrict e_out) {
  double size = fabs(a);
  for (int64_t j = 0; j < n; j++) {
    out[j] += a * b[j];
    e_out[j] += size * (e_b[j] + rounding * fabs(b[j])) + e_a * (fabs(b[j]) + e_b[j]);
  }
}

/* b as stored is [k,n]. Blocks of rows, so that a row of b is used several times while it is in the cache. */
static void multiply_plain(const product *x) {
  enum { ROWS = 8 };
  for (int64_t first = 0; first < x->m; first += ROWS)
    for (int64_t p = 0; p < x->k; p++)
      for (int64_t i = first; i < first + ROWS && i < x->m; i++) {
        int64_t at = i * x->a_row + p * x->a_column;
        add_row(x->a.exact[at], x->a.error[at], x->b.exact + p * x->n, x->b.error + p * x->n, x->rounding,
                x->n, x->out.exact + i * x->n, x->out.error + i * x->n);
      }
}

/* Dot product of `count` elements, with its error as in add_row. */
static void add_dot(const double *a, const double *e_a, const double *b, const double *e_b, double rounding,
                    int64_t count, double *out, double *e_out) {
  double sum = 0, e_sum = 0;
  for (int64_t p = 0; p < count; p++) {
    sum += a[p] * b[p];
    e_sum += fabs(a[p]) * (e_b[p] + rounding * fabs(b[p])) + e_a[p] * (fabs(b[p]) + e_b[p]);
  }
  *out += sum;
  *e_out += e_sum;
}

/* b as stored is [n,k]: dot products, since walking down its columns would miss the cache at every step. A
 * piece of a row of op(a) is copied, since that may be a column. */
static void multiply_transposed(const product *x) {
  enum { PIECE = 256 };
  double a[PIECE], e_a[PIECE];
  for (int64_t first = 0; first < x->k; first += PIECE) {
    int64_t count = x->k - first < PIECE ? x->k - first : PIECE;
    for (int64_t i = 0; i < x->m; i++) {
      for (int64_t p = 0; p < count; p++) {
        a[p] = x->a.exact[i * x->a_row + (first + p) * x->a_column];
        e_a[p] = x->a.error[i * x->a_row + (first + p) * x->a_column];
      }
      for (int64_t j = 0; j < x->n; j++)
        add_dot(a, e_a, x->b.exact + j * x->k + first, x->b.error + j * x->k + first, x->rounding, count,
                &x->out.exact[i * x->n + j], &x->out.error[i * x->n + j]);
    }
  }
}

static void matmul_evaluate(const tsr_node *node, const tsr_shape *inputs, const tsr_shape *output,
                            const tsr_oracle_value *in, double epsilon, tsr_oracle_value out) {
  (void)output;
  product x = {.a = in[0], .b = in[1], .out = out};
  tsr_matmul_extents(node, inputs, &x.m, &x.n, &x.k);
  x.a_row = node->transpose_a ? 1 : x.k;
  x.a_column = node->transpose_a ? x.m : 1;
  x.rounding = 4 * sqrt((double)x.k) * epsilon;
  for (int64_t i = 0; i < x.m * x.n; i++) out.exact[i] = out.error[i] = 0;
  (node->transpose_b ? multiply_transposed : multiply_plain)(&x);

  bool adds = node->input_count == 3;
  for (int64_t i = 0; i < x.m * x.n; i++) {
    double c = adds ? node->beta * in[2].exact[i] : 0, e_c = adds ? fabs(node->beta) * in[2].error[i] : 0;
    out.exact[i] = node->alpha * out.exact[i] + c;
    out.error[i] = fabs(node->alpha) * out.error[i] + e_c + epsilon * (2 * fabs(c) + fabs(out.exact[i]));
  }
}

const tsr_operator_rules tsr_matmul_rules = {
    .name = "matmul",
    .inputs_min = 2,
    .inputs_max = 3,
    .attributes = TSR_ATTRIBUTE_ALPHA | TSR_ATTRIBUTE_BETA | TSR_ATTRIBUTE_TRANSPOSES,
    .shape = matmul_shape,
    .rules = matmul_rules,
    .links = matmul_links,
    .gradient = matmul_gradient,
    .flops = matmul_flops,
    .evaluate = matmul_evaluate,
};
