/* Room runtime/graph: a proof by numbers of every layout rule of every operator. Random small integers (their
 * sums are exact) are split over three members by the rule, with unequal offsets and empty shares; each
 * member evaluates its part; the parts combined must be what the whole gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

enum { MEMBERS = 3, OWNER = 1 };

typedef struct tensor {
  tsr_shape shape;
  tsr_oracle_value data;
} tensor;

static uint64_t random_state;
static int64_t below(int64_t limit) { /* splitmix64 */
  uint64_t z = random_state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return (int64_t)((z ^ z >> 31) % (uint64_t)limit);
}

static tensor make_tensor(const tsr_shape *shape) {
  size_t count = (size_t)tsr_shape_count(shape);
  return (tensor){*shape, {calloc(count + 1, sizeof(double)), calloc(count + 1, sizeof(double))}};
}

static void free_tensor(tensor *t) {
  free(t->data.exact);
  free(t->data.error);
}

static void fill_random(tensor *t) {
  for (int64_t i = 0; i < tsr_shape_count(&t->shape); i++) t->data.exact[i] = (double)(below(9) - 4);
}

/* Copies between a whole tensor and the part from .. from + part's extent of its axis. */
static void copy_part(const tensor *whole, const tensor *part, int axis, int64_t from, bool out_of_whole) {
  int64_t before = 1, after = 1, length = part->shape.extent[axis];
  for (int i = 0; i < axis; i++) before *= whole->shape.extent[i];
  for (int i = axis + 1; i < whole->shape.axes; i++) after *= whole->shape.extent[i];
  for (int64_t i = 0; i < before; i++) {
    double *w = whole->data.exact + (i * whole->shape.extent[axis] + from) * after;
    double *p = part->data.exact + i * length * after;
    memcpy(out_of_whole ? p : w, out_of_whole ? w : p, (size_t)(length * after) * sizeof *p);
  }
}

/* Unequal shares, one of them empty: the same wherever an axis of this extent is split. */
static void share_of(int variant, int64_t extent, int member, int64_t *from, int64_t *to) {
  int64_t middle = (extent + 1) / 3;
  const int64_t offsets[2][MEMBERS + 1] = {{0, middle, middle, extent}, {0, 0, extent - middle, extent}};
  *from = offsets[variant][member];
  *to = offsets[variant][member + 1];
}

static tsr_shape local_shape(const tsr_shape *whole, tsr_place place, int variant, int member) {
  tsr_shape shape = *whole;
  int64_t from, to;
  if (place < 0) return shape;
  share_of(variant, whole->extent[place], member, &from, &to);
  shape.extent[place] = to - from;
  return shape;
}

/* The members' parts of an input. */
static void split(const tensor *whole, tsr_place place, bool one_owner, int variant, tensor parts[MEMBERS]) {
  int64_t from, to, count = tsr_shape_count(&whole->shape);
  for (int r = 0; r < MEMBERS; r++) {
    tsr_shape shape = local_shape(&whole->shape, place, variant, r);
    parts[r] = make_tensor(&shape);
    if (place >= 0) {
      share_of(variant, whole->shape.extent[place], r, &from, &to);
      copy_part(whole, &parts[r], place, from, true);
    } else if (place == TSR_PLACE_REPLICATE && (!one_owner || r == OWNER)) {
      memcpy(parts[r].data.exact, whole->data.exact, (size_t)count * sizeof(double));
    } else if (place == TSR_PLACE_SUM && r > 0) {
      fill_random(&parts[r]);
    }
  }
  if (place == TSR_PLACE_SUM)
    for (int64_t i = 0; i < count; i++)
      parts[0].data.exact[i] = whole->data.exact[i] - parts[1].data.exact[i] - parts[2].data.exact[i];
  if (place == TSR_PLACE_MAX)
    for (int64_t i = 0, winner = below(MEMBERS); i < count; i++, winner = below(MEMBERS))
      for (int r = 0; r < MEMBERS; r++)
        parts[r].data.exact[i] = r == winner ? whole->data.exact[i]
                                 : r == 2    ? -INFINITY
                                             : whole->data.exact[i] - 2;
}

/* The whole that the members' parts of an output stand for; for a replicated one, that they agree. */
static void combine(const tensor parts[MEMBERS], tsr_place place, int variant, tensor *whole) {
  int64_t from, to, count = tsr_shape_count(&whole->shape);
  for (int r = 0; r < MEMBERS; r++) {
    if (place >= 0) {
      share_of(variant, whole->shape.extent[place], r, &from, &to);
      copy_part(whole, &parts[r], place, from, false);
      continue;
    }
    for (int64_t i = 0; i < count; i++) {
      double *w = &whole->data.exact[i], p = parts[r].data.exact[i];
      if (place == TSR_PLACE_REPLICATE && r > 0) assert_true(*w == p);
      *w = r == 0 || place == TSR_PLACE_REPLICATE ? p : place == TSR_PLACE_SUM ? *w + p : fmax(*w, p);
    }
  }
}

static void evaluate(const tsr_node *node, const tensor *in[], tensor *out) {
  tsr_shape shapes[TSR_NODE_INPUTS_MAX] = {{0}};
  tsr_oracle_value data[TSR_NODE_INPUTS_MAX] = {{0}};
  for (int i = 0; i < node->input_count; i++) {
    shapes[i] = in[i]->shape;
    data[i] = in[i]->data;
  }
  tsr_operator_rules_of(node->op)->evaluate(node, shapes, &out->shape, data, 0x1p-53, out->data);
}

static void prove(const tsr_node *node, const tsr_rule *rule, const tensor *inputs, const tensor *expected,
                  int variant, double tolerance) {
  tensor in[TSR_NODE_INPUTS_MAX][MEMBERS], out[MEMBERS], combined = make_tensor(&expected->shape);
  for (int i = 0; i < node->input_count; i++)
    split(&inputs[i], rule->in[i], rule->one_owner[i], variant, in[i]);
  for (int r = 0; r < MEMBERS; r++) {
    const tensor *own[TSR_NODE_INPUTS_MAX];
    for (int i = 0; i < node->input_count; i++) own[i] = &in[i][r];
    tsr_shape shape = local_shape(&expected->shape, rule->out, variant, r);
    out[r] = make_tensor(&shape);
    evaluate(node, own, &out[r]);
  }
  combine(out, rule->out, variant, &combined);
  for (int64_t i = 0; i < tsr_shape_count(&expected->shape); i++)
    if (!(fabs(combined.data.exact[i] - expected->data.exact[i]) <= tolerance))
      fail_msg("%s by %s, %s -> %s: element %lld is %g, not %g", tsr_operator_rules_of(node->op)->name,
               tsr_place_name(rule->in[0]), tsr_place_name(rule->in[1]), tsr_place_name(rule->out),
               (long long)i, combined.data.exact[i], expected->data.exact[i]);
  free_tensor(&combined);
  for (int r = 0; r < MEMBERS; r++) {
    free_tensor(&out[r]);
    for (int i = 0; i < node->input_count; i++) free_tensor(&in[i][r]);
  }
}

/* Linked axes are split together. */
static void check_links(const tsr_graph *graph, const tsr_node *node, const tsr_rule *rule) {
  tsr_axis_link links[TSR_LINKS_MAX];
  int count = tsr_operator_rules_of(node->op)->links(graph, node, links);
  assert_in_range(count, 0, TSR_LINKS_MAX);
  for (int i = 0; i < count; i++) {
    bool split[2];
    int64_t extent[2];
    for (int j = 0; j < 2; j++) {
      int operand = links[i].operand[j];
      tsr_value value = operand < 0 ? node->output : node->inputs[operand];
      split[j] = (operand < 0 ? rule->out : rule->in[operand]) == links[i].axis[j];
      extent[j] = tsr_graph_at(graph, value)->shape.extent[links[i].axis[j]];
    }
    assert_int_equal(extent[0], extent[1]);
    assert_int_equal(split[0], split[1]);
  }
}

/* An operator with its inputs' shapes and the number of rules that it must have. Factors are powers of two,
 * counts under a mean as well, so that everything is exact but where `rounds`. */
typedef struct example {
  tsr_node node;
  tsr_shape shapes[TSR_NODE_INPUTS_MAX];
  int rules;
  bool rounds;
} example;

#define M 7
#define N 10
#define K 8
#define MATRIX(m, n)                                                                                         \
  {                                                                                                          \
    2, {m, n}, {                                                                                             \
      0                                                                                                      \
    }                                                                                                        \
  }
#define VECTOR(n)                                                                                            \
  {                                                                                                          \
    1, {n}, {                                                                                                \
      0                                                                                                      \
    }                                                                                                        \
  }
#define SCALAR                                                                                               \
  {                                                                                                          \
    0, {0}, {                                                                                                \
      0                                                                                                      \
    }                                                                                                        \
  }
#define PRODUCT(ta, tb) .op = TSR_OPERATOR_MATMUL, .alpha = 2, .transpose_a = ta, .transpose_b = tb
#define SUM .op = TSR_OPERATOR_ADD, .input_count = 2, .alpha = -2, .beta = 0.5
#define TIMES .op = TSR_OPERATOR_MULTIPLY, .input_count = 2
#define SCALE(f) .op = TSR_OPERATOR_SCALE, .input_count = 1, .alpha = f
#define UNARY(f) .op = TSR_OPERATOR_UNARY, .input_count = 1, .unary = TSR_UNARY_##f
#define SLOPE(f) .op = TSR_OPERATOR_UNARY_GRADIENT, .input_count = 2, .unary = TSR_UNARY_##f
#define IMAGES(n, c, h, w)                                                                                   \
  {                                                                                                          \
    4, {n, c, h, w}, {                                                                                       \
      0                                                                                                      \
    }                                                                                                        \
  }
/* Windows of 3 x 2 elements: 5 x 6 images give 3 x 7. */
#define WINDOW(operator, inputs, g, e0, e1)                                                                  \
  .op = TSR_OPERATOR_##operator, .input_count = inputs,                                                      \
  .window = {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 3}, .groups = g, .extent = {e0, e1}}
/* Windows of 3 x 2 elements that overlap: 6 x 7 images give 3 x 6. */
#define POOLED(operator, r, inputs)                                                                          \
  .op = TSR_OPERATOR_##operator, .input_count = inputs, .reduction = TSR_##r,                                \
  .window = {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 1}, .groups = 1, .extent = {3, 2}}
#define REDUCE(r, i, keep)                                                                                   \
  .op = TSR_OPERATOR_REDUCE, .input_count = 1, .reduction = TSR_##r, .axis = i, .unit_axis = keep

static const example examples[] = {
    {{PRODUCT(0, 0), .input_count = 2}, {MATRIX(M, K), MATRIX(K, N)}, 6, false},
    {{PRODUCT(0, 1), .input_count = 2}, {MATRIX(M, K), MATRIX(N, K)}, 6, false},
    {{PRODUCT(1, 0), .input_count = 2}, {MATRIX(K, M), MATRIX(K, N)}, 6, false},
    {{PRODUCT(1, 1), .input_count = 2}, {MATRIX(K, M), MATRIX(N, K)}, 6, false},
    {{PRODUCT(0, 0), .input_count = 3, .beta = -4}, {MATRIX(M, K), MATRIX(K, N), MATRIX(M, N)}, 9, false},
    {{PRODUCT(1, 1), .input_count = 3, .beta = 1}, {MATRIX(K, M), MATRIX(N, K), MATRIX(M, N)}, 9, false},
    {{PRODUCT(0, 0), .input_count = 2}, {MATRIX(1, 1), MATRIX(1, N)}, 6, false},
    {{SUM}, {MATRIX(M, N), MATRIX(M, N)}, 6, false},
    {{SUM}, {MATRIX(M, N), VECTOR(N)}, 6, false},
    {{SUM}, {MATRIX(M, N), MATRIX(1, N)}, 6, false},
    {{SUM}, {MATRIX(M, N), MATRIX(M, 1)}, 6, false},
    {{SUM}, {MATRIX(M, N), SCALAR}, 6, false},
    {{SUM}, {SCALAR, SCALAR}, 4, false},
    {{SUM}, {{3, {3, M, N}, {0}}, MATRIX(M, 1)}, 7, false},
    {{SUM}, {{4, {2, 3, M, N}, {0}}, {4, {2, 1, M, N}, {0}}}, 6, false},
    {{TIMES}, {MATRIX(M, N), MATRIX(M, N)}, 5, false},
    {{TIMES}, {MATRIX(M, N), VECTOR(N)}, 5, false},
    {{TIMES}, {MATRIX(M, N), MATRIX(1, N)}, 5, false},
    {{TIMES}, {MATRIX(M, N), MATRIX(M, 1)}, 5, false},
    {{TIMES}, {MATRIX(M, N), SCALAR}, 5, false},
    {{SCALE(4)}, {MATRIX(M, N)}, 5, false},
    {{SCALE(-4)}, {MATRIX(M, N)}, 4, false},
    {{SCALE(0)}, {MATRIX(M, N)}, 4, false},
    {{SCALE(1), .axis = 1, .unit_axis = true}, {MATRIX(M, N)}, 5, false},
    {{SCALE(1), .axis = 0, .unit_axis = true}, {VECTOR(M)}, 4, false},
    {{UNARY(RELU)}, {MATRIX(M, N)}, 3, false},
    {{UNARY(GELU)}, {MATRIX(M, N)}, 3, false},
    {{UNARY(GELU_TANH)}, {VECTOR(N)}, 2, false},
    {{UNARY(SILU)}, {MATRIX(M, N)}, 3, false},
    {{SLOPE(RELU)}, {MATRIX(M, N), MATRIX(M, N)}, 4, false},
    {{SLOPE(GELU)}, {MATRIX(M, N), MATRIX(M, N)}, 4, true},
    {{SLOPE(GELU_TANH)}, {VECTOR(M), VECTOR(M)}, 3, true},
    {{SLOPE(SILU)}, {MATRIX(M, N), MATRIX(M, N)}, 4, true},
    {{REDUCE(SUM, 0, 0)}, {MATRIX(M, N)}, 4, false},
    {{REDUCE(SUM, 1, 0)}, {MATRIX(M, N)}, 4, false},
    {{REDUCE(SUM, 1, 1)}, {MATRIX(M, N)}, 4, false},
    {{REDUCE(SUM, 0, 0)}, {VECTOR(N)}, 3, false},
    {{REDUCE(SUM, 1, 0)}, {{4, {2, 3, M, N}, {0}}}, 6, false},
    {{REDUCE(MAX, 0, 0)}, {MATRIX(M, N)}, 4, false},
    {{REDUCE(MAX, 1, 0)}, {MATRIX(M, N)}, 4, false},
    {{REDUCE(MAX, 0, 1)}, {MATRIX(M, N)}, 4, false},
    {{REDUCE(MAX, 0, 0)}, {VECTOR(N)}, 3, false},
    {{.op = TSR_OPERATOR_SQUARED_ERROR, .input_count = 2, .alpha = 0.125},
     {MATRIX(M, N), MATRIX(M, N)},
     3,
     false},
    {{.op = TSR_OPERATOR_SQUARED_ERROR, .input_count = 2, .alpha = 0.125}, {SCALAR, SCALAR}, 1, false},
    {{WINDOW(CONV, 2, 1, 0, 0)}, {IMAGES(4, 5, 5, 6), IMAGES(7, 5, 3, 2)}, 6, false},
    {{WINDOW(CONV, 3, 1, 0, 0)}, {IMAGES(4, 5, 5, 6), IMAGES(7, 5, 3, 2), VECTOR(7)}, 9, false},
    {{WINDOW(CONV, 3, 6, 0, 0)}, {IMAGES(2, 6, 5, 6), IMAGES(6, 1, 3, 2), VECTOR(6)}, 7, false},
    {{WINDOW(CONV_INPUT, 2, 1, 5, 6)}, {IMAGES(4, 7, 3, 7), IMAGES(7, 5, 3, 2)}, 6, false},
    {{WINDOW(CONV_INPUT, 2, 6, 5, 6)}, {IMAGES(4, 6, 3, 7), IMAGES(6, 1, 3, 2)}, 5, false},
    {{WINDOW(CONV_WEIGHT, 2, 1, 3, 2)}, {IMAGES(4, 5, 5, 6), IMAGES(4, 7, 3, 7)}, 6, false},
    {{WINDOW(CONV_WEIGHT, 2, 6, 3, 2)}, {IMAGES(4, 6, 5, 6), IMAGES(4, 6, 3, 7)}, 5, false},
    {{.op = TSR_OPERATOR_CHANNEL_SUM, .input_count = 1}, {IMAGES(4, 5, 3, 7)}, 4, false},
    {{POOLED(POOL, MAX, 1)}, {IMAGES(4, 5, 6, 7)}, 3, false},
    {{POOLED(POOL, SUM, 1)}, {IMAGES(4, 5, 6, 7)}, 3, false},
    {{POOLED(POOL_GRADIENT, MAX, 2)}, {IMAGES(4, 5, 6, 7), IMAGES(4, 5, 3, 6)}, 3, false},
    {{POOLED(POOL_GRADIENT, SUM, 2)}, {IMAGES(4, 5, 6, 7), IMAGES(4, 5, 3, 6)}, 3, false},
};

static void check_example(const example *e, tsr_context *context) {
  tsr_graph *graph;
  tsr_error error;
  tsr_node node = e->node;
  tensor inputs[TSR_NODE_INPUTS_MAX], expected;
  const tensor *in[TSR_NODE_INPUTS_MAX];
  assert_int_equal(tsr_graph_create(context, &graph, &error), TSR_OK);
  for (int i = 0; i < node.input_count; i++) {
    char name[] = {(char)('a' + i), 0};
    assert_int_equal(tsr_graph_input(graph, name, TSR_F64, &e->shapes[i], &node.inputs[i], &error), TSR_OK);
    inputs[i] = make_tensor(&e->shapes[i]);
    fill_random(&inputs[i]);
    in[i] = &inputs[i];
  }
  if (tsr_graph_append(graph, &node, &node.output, &error) != TSR_OK) fail_msg("%s", error.message);
  expected = make_tensor(&tsr_graph_at(graph, node.output)->shape);
  evaluate(&node, in, &expected);

  tsr_rule rules[TSR_RULES_MAX];
  int count = tsr_operator_rules_of(node.op)->rules(graph, &node, rules);
  assert_int_equal(count, e->rules);
  assert_int_equal(rules[0].out, TSR_PLACE_REPLICATE);
  for (int i = 0; i < count; i++) {
    check_links(graph, &node, &rules[i]);
    for (int variant = 0; variant < 2; variant++)
      prove(&node, &rules[i], inputs, &expected, variant, e->rounds ? 1e-12 : 0);
  }
  free_tensor(&expected);
  for (int i = 0; i < node.input_count; i++) free_tensor(&inputs[i]);
  tsr_graph_destroy(&graph);
}

static void every_rule_gives_the_whole(void **state) {
  tsr_context *context;
  (void)state;
  random_state = 1;
  assert_int_equal(tsr_context_create(
                       &(tsr_context_options){.struct_size = sizeof(tsr_context_options), .cache_folder = ""},
                       &context, NULL),
                   TSR_OK);
  bool seen[TSR_OPERATOR_COUNT] = {false};
  for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
    check_example(&examples[i], context);
    seen[examples[i].node.op] = true;
  }
  for (int i = 0; i < TSR_OPERATOR_COUNT; i++)
    if (!seen[i]) fail_msg("no example of %s", tsr_operator_rules_of((tsr_operator)i)->name);
  tsr_context_destroy(&context);
}

static void places_have_names(void **state) {
  (void)state;
  assert_string_equal(tsr_place_name(TSR_PLACE_REPLICATE), "replicate");
  assert_string_equal(tsr_place_name(TSR_PLACE_SUM), "partial(sum)");
  assert_string_equal(tsr_place_name(TSR_PLACE_MAX), "partial(max)");
  assert_string_equal(tsr_place_name(0), "shard(0)");
  assert_string_equal(tsr_place_name(3), "shard(3)");
  assert_string_equal(tsr_place_name(4), "?");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_rule_gives_the_whole),
      cmocka_unit_test(places_have_names),
  };
  return cmocka_run_group_tests_name("graph_rules", tests, NULL, NULL);
}
