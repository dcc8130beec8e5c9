/* Room runtime/graph: JSON there and back and from hostile hands, and every allocation failing once. */
#include "graph_support.h"

#include "base/memory.h"

/* A training step in which every operator and every mark occurs. */
static void build_everything(void) {
  const int64_t offsets[] = {0, 3, 8};
  tsr_layout split = tsr_layout_shard(1, 2, offsets), replicated = tsr_layout_replicate(),
             free_split = tsr_layout_shard(0, 0, NULL);
  tsr_value x = input("x \"quoted\" \xc3\xa4", 2, 5, 8), target = input("target", 2, 5, 8), y, loss, w[2],
            dw[2], top;
  y = add_block(false, "", x);
  y = add_block(true, "second.", y);
  ok(tsr_graph_scale(graph, 1.0 / 3, y, &y, &error));
  ok(tsr_graph_squared_error(graph, y, target, &loss, &error));
  ok(tsr_graph_find(graph, "w1", &w[0], &error));
  ok(tsr_graph_find(graph, "b1", &w[1], &error));
  ok(tsr_graph_gradients(graph, loss, TSR_NO_VALUE, w, 2, dw, &error));
  for (int i = 0; i < 2; i++) {
    ok(tsr_graph_add(graph, 1, w[i], -0.1, dw[i], &dw[i], &error));
    ok(tsr_graph_assign(graph, w[i], dw[i], &error));
  }
  ok(tsr_graph_reduce(graph, TSR_MAX, 1, y, &top, &error));
  ok(tsr_graph_reduce(graph, TSR_SUM, 1, y, &y, &error));
  tsr_value dy, back;
  tsr_shape shape = tsr_shape_of(1, 5, 0);
  ok(tsr_graph_state(graph, "dy", TSR_F32, &shape, &dy, &error));
  ok(tsr_graph_gradients(graph, y, dy, &w[0], 1, &back, &error));
  ok(tsr_graph_output(graph, "loss", loss, &error));
  ok(tsr_graph_output(graph, "top", top, &error));
  ok(tsr_graph_pin(graph, x, &split, &error));
  ok(tsr_graph_pin(graph, target, &replicated, &error));
  ok(tsr_graph_pin(graph, top, &free_split, &error));
}

static char *dump(const tsr_graph *of) {
  json_t *json = tsr_graph_to_json(of);
  assert_non_null(json);
  char *text = json_dumps(json, JSON_COMPACT);
  json_decref(json);
  return text;
}

static void json_keeps_everything(void **state) {
  (void)state;
  build_everything();
  char *text = dump(graph);
  json_t *json = json_loads(text, 0, NULL);
  tsr_graph *read, *copy;
  ok(tsr_graph_from_json(context, json, &read, &error));
  ok(tsr_graph_copy(graph, &copy, &error));
  assert_true(read->frozen && copy->frozen && !graph->frozen);
  bool equal;
  ok(tsr_graph_equal(graph, read, &equal, &error));
  assert_true(equal);
  read->nodes[0].alpha += 1;
  ok(tsr_graph_equal(graph, read, &equal, &error));
  assert_false(equal);
  read->nodes[0].alpha -= 1;
  assert_int_equal(read->node_count, graph->node_count);
  for (size_t i = 0; i < graph->node_count; i++) {
    const tsr_node *a = &graph->nodes[i], *b = &read->nodes[i];
    assert_true(a->op == b->op && a->alpha == b->alpha && a->beta == b->beta && a->axis == b->axis &&
                a->unit_axis == b->unit_axis && a->unary == b->unary && a->reduction == b->reduction &&
                a->transpose_a == b->transpose_a && a->transpose_b == b->transpose_b &&
                a->output.id == b->output.id);
  }
  char *again = dump(read), *third = dump(copy);
  assert_string_equal(text, again);
  assert_string_equal(text, third);
  assert_true(tsr_graph_flops(read) == tsr_graph_flops(graph));
  free(text);
  free(again);
  free(third);
  json_decref(json);
  tsr_graph_destroy(&read);
  tsr_graph_destroy(&copy);
}

static void faults_in_json_are_named(void **state) {
  (void)state;
  static const struct {
    const char *text, *words;
  } faults[] = {
#define VALUE(rest) "{\"kind\":\"input\",\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[2,3]" rest "}"
#define RESULT(shape) "{\"kind\":\"intermediate\",\"dtype\":\"f32\",\"shape\":" shape "}"
#define GRAPH(values, nodes) "{\"values\":[" values "],\"nodes\":[" nodes "]}"
#define SCALE(rest)                                                                                          \
  "{\"op\":\"scale\",\"inputs\":[1],\"output\":2,\"alpha\":2,\"axis\":0,\"unit_axis\":false" rest "}"
      {"[]", "graph.values: missing"},
      {"{\"values\":[]}", "graph.nodes: missing"},
      {GRAPH("7", ""), "values[0].kind: missing"},
      {GRAPH("{\"kind\":\"imput\"}", ""), "values[0].kind: \"imput\" is unknown; the nearest are input"},
      {GRAPH("{\"kind\":\"input\",\"dtype\":\"f32\",\"shape\":[2,-1]}", ""),
       "values[0].shape[1] is no integer in [1, "},
      {GRAPH("{\"kind\":\"input\",\"dtype\":\"f32\",\"shape\":[1,1,1,1,1]}", ""), "5 axes, at most 4"},
      {GRAPH("{\"kind\":\"input\",\"name\":\"\",\"dtype\":\"f32\",\"shape\":[]}", ""), "values[0]: the name"},
      {GRAPH(VALUE("") "," VALUE(""), ""), "values[1]: the name \"x\" belongs"},
      {GRAPH(VALUE(",\"pin\":{\"axis\":1,\"offsets\":[0,2]}"), ""), "end with 3"},
      {GRAPH(VALUE(",\"pin\":{\"axis\":1,\"offsets\":[]}"), ""), "0 numbers, at least 2"},
      {GRAPH(VALUE(",\"pin\":{\"axis\":1,\"offsets\":[0]}"), ""), "1 numbers, at least 2"},
      {GRAPH(VALUE(",\"assigned\":1"), ""), "values[0]: value 1 \"x\" [2, 3] is of kind input"},
      {GRAPH(VALUE(",\"assigned\":2"), ""), "values[0].assigned: 2 is not in [1, 1]"},
      {GRAPH(VALUE(",\"gradient_of\":1"), ""),
       "values[0]: value 1 \"x\" [2, 3] of kind input cannot be the gradient"},
      {GRAPH(RESULT("[2,3]"), ""), "nodes[0].op: missing"},
      {GRAPH(RESULT("[2,3]"), SCALE("")), "nodes[0].output: 2 is not in [1, 1]"},
      {GRAPH(VALUE("") "," RESULT("[2,4]"), SCALE("")),
       "nodes[0] makes value 2 [2, 3] of f32, but \"values\" says [2, 4]"},
      {GRAPH(VALUE(""), SCALE("")), "1 nodes for 0 intermediate values"},
      {GRAPH(VALUE("") "," RESULT("[2,3]"),
             "{\"op\":\"scale\",\"inputs\":[2],\"output\":2,\"alpha\":2,\"axis\":0,\"unit_axis\":false}"),
       "nodes[0].inputs[0] is no integer in [1, 1]"},
      {GRAPH(VALUE("") "," RESULT("[2,3]"),
             "{\"op\":\"add\",\"inputs\":[1],\"output\":2,\"alpha\":2,\"beta\":0}"),
       "nodes[0]: add: 1 inputs, 2 to 2 are needed"},
      {GRAPH(VALUE("") "," RESULT("[2,3]"),
             "{\"op\":\"add\",\"inputs\":[1,1,1,1,1],\"output\":2,\"alpha\":2,\"beta\":0}"),
       "nodes[0]: add: 4 inputs"},
      {GRAPH(VALUE("") "," RESULT("[2,3]"),
             "{\"op\":\"unary\",\"inputs\":[1],\"output\":2,\"function\":\"tanh\"}"),
       "nodes[0].function: \"tanh\" is unknown"},
  };
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    json_t *json = json_loads(faults[i].text, 0, NULL);
    tsr_graph *read = NULL;
    assert_non_null(json);
    refused(tsr_graph_from_json(context, json, &read, &error), TSR_ERROR_FORMAT, faults[i].words);
    json_decref(json);
  }
}

static uint64_t random_state;
static size_t below(size_t limit) { /* splitmix64 */
  uint64_t z = random_state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return (size_t)((z ^ z >> 31) % limit);
}

/* Something else in the place of a number, a text, a list or an object. */
static json_t *random_json(void) {
  static const char *const texts[] = {"0",
                                      "-1",
                                      "1",
                                      "2",
                                      "7",
                                      "1000000",
                                      "9223372036854775807",
                                      "-0.5",
                                      "1e308",
                                      "true",
                                      "null",
                                      "\"\"",
                                      "\"add\"",
                                      "\"matmul\"",
                                      "\"intermediate\"",
                                      "[]",
                                      "{}",
                                      "[1]",
                                      "[1,2]",
                                      "[0,1,2]",
                                      "[5,8]",
                                      "[9223372036854775807,9223372036854775807]"};
  return json_loads(texts[below(sizeof texts / sizeof *texts)], JSON_DECODE_ANY, NULL);
}

/* Replaces or removes one part somewhere below node. */
static void spoil(json_t *node) {
  size_t size = json_is_array(node) ? json_array_size(node) : json_object_size(node);
  if (!size) return;
  size_t at = below(size);
  json_t *child;
  const char *key = NULL;
  if (json_is_array(node)) {
    child = json_array_get(node, at);
  } else {
    void *iterator = json_object_iter(node);
    while (at--) iterator = json_object_iter_next(node, iterator);
    key = json_object_iter_key(iterator);
    child = json_object_iter_value(iterator);
  }
  if ((json_is_array(child) || json_is_object(child)) && below(4)) {
    spoil(child);
  } else if (key && !below(4)) {
    json_object_del(node, key);
  } else if (key) {
    json_object_set_new(node, key, random_json());
  } else if (!below(8)) {
    json_array_remove(node, at);
  } else {
    json_array_set_new(node, at, random_json());
  }
}

/* Whatever survives must be a sound graph: it can be written, read again, counted and its dimensions found.
 */
static bool survives(const json_t *json) {
  tsr_graph *read, *again;
  tsr_status status = tsr_graph_from_json(context, json, &read, &error);
  if (status != TSR_OK) {
    assert_true(status == TSR_ERROR_FORMAT && *error.message);
    return false;
  }
  uint32_t *dims;
  int64_t *extents;
  size_t count;
  ok(tsr_graph_dimensions(read, &dims, &extents, &count, &error));
  free(dims);
  free(extents);
  assert_true(tsr_graph_flops(read) >= 0);
  json_t *written = tsr_graph_to_json(read);
  ok(tsr_graph_from_json(context, written, &again, &error));
  json_decref(written);
  tsr_graph_destroy(&read);
  tsr_graph_destroy(&again);
  return true;
}

static void hostile_json_gives_errors_only(void **state) {
  (void)state;
  enum { ROUNDS = 1000 };
  build_everything();
  char *text = dump(graph);
  size_t bytes = strlen(text), survivors = 0;
  random_state = 2;
  for (int round = 0; round < ROUNDS; round++) {
    json_t *json = json_loads(text, 0, NULL);
    for (size_t i = 0; i <= below(3); i++) spoil(json);
    survivors += survives(json);
    json_decref(json);
  }
  for (int round = 0; round < ROUNDS; round++) { /* bytes of the text; most of it is no JSON any more */
    char *damaged = memcpy(malloc(bytes + 1), text, bytes + 1);
    damaged[below(bytes)] = "0123456789-,:\"[]{}eabft"[below(23)];
    json_t *json = json_loads(damaged, 0, NULL);
    if (json) survivors += survives(json);
    json_decref(json);
    free(damaged);
  }
  assert_in_range(survivors, 20, ROUNDS); /* both ways are taken */
  free(text);
}

/* --- memory --- */

static tsr_status try_everything(void) {
  tsr_status status = TSR_OK;
  tsr_graph *made = NULL, *copy = NULL, *read = NULL;
  tsr_shape shape = tsr_shape_of(2, 5, 8);
  tsr_value x, y, loss, w, dw;
  uint32_t *dims = NULL;
  int64_t *extents = NULL, offsets[] = {0, 4, 8};
  size_t count;
  json_t *json = NULL;
  tsr_layout layout = tsr_layout_shard(1, 2, offsets);
  tsr_ffn_options options;
  tsr_ffn_options_init(&options);
  options.hidden = 3;
  TSR_TRY(tsr_graph_create(context, &made, &error));
  TSR_TRY(tsr_graph_input(made, "x", TSR_F32, &shape, &x, &error));
  TSR_TRY(tsr_graph_pin(made, x, &layout, &error));
  TSR_TRY(tsr_graph_ffn(made, x, &options, &y, &error));
  TSR_TRY(tsr_graph_squared_error(made, y, x, &loss, &error));
  TSR_TRY(tsr_graph_find(made, "w1", &w, &error));
  TSR_TRY(tsr_graph_gradients(made, loss, TSR_NO_VALUE, &w, 1, &dw, &error));
  TSR_TRY(tsr_graph_output(made, "dw", dw, &error));
  TSR_TRY(tsr_graph_copy(made, &copy, &error));
  TSR_TRY(tsr_graph_dimensions(copy, &dims, &extents, &count, &error));
  json = tsr_graph_to_json(copy);
  TSR_TRY(tsr_graph_from_json(context, json, &read, &error));
done:
  json_decref(json);
  free(dims);
  free(extents);
  tsr_graph_destroy(&made);
  tsr_graph_destroy(&copy);
  tsr_graph_destroy(&read);
  return status;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  int64_t failures = 0;
  for (;; failures++) {
    tsr_memory_fail_after(failures);
    tsr_status status = try_everything();
    tsr_memory_fail_after(-1);
    if (status == TSR_OK) break;
    refused(status, TSR_ERROR_OUT_OF_MEMORY, "no memory");
  }
  assert_in_range(failures, 30, 300);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(json_keeps_everything),
      TEST(faults_in_json_are_named),
      TEST(hostile_json_gives_errors_only),
      TEST(every_allocation_may_fail),
  };
  return cmocka_run_group_tests_name("graph json", tests, set_up, tear_down);
}
