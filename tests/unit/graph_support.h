/* What the tests of runtime/graph share: one graph for each test, short calls, checks of messages. */
#ifndef TSR_TESTS_GRAPH_SUPPORT_H
#define TSR_TESTS_GRAPH_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

static tsr_context *context;
static tsr_graph *graph;
static tsr_error error;

static inline void ok(tsr_status status) {
  if (status != TSR_OK) fail_msg("%s", error.message);
}

/* The call failed with this status and these words, in one line. */
static inline void refused(tsr_status found, tsr_status status, const char *words) {
  assert_int_equal(found, status);
  assert_int_equal(error.status, status);
  assert_null(strchr(error.message, '\n'));
  if (!strstr(error.message, words)) fail_msg("\"%s\" lacks \"%s\"", error.message, words);
}
static inline void invalid(tsr_status found, const char *words) {
  refused(found, TSR_ERROR_INVALID_ARGUMENT, words);
}

static inline tsr_value input(const char *name, int axes, int64_t e0, int64_t e1) {
  tsr_shape shape = tsr_shape_of(axes, e0, e1);
  tsr_value value;
  ok(tsr_graph_input(graph, name, TSR_F32, &shape, &value, &error));
  return value;
}

static inline tsr_value add_block(bool gated, const char *prefix, tsr_value x) {
  tsr_ffn_options options;
  tsr_ffn_options_init(&options);
  options.hidden = 12;
  options.gated = gated;
  options.prefix = prefix;
  tsr_value y;
  ok(tsr_graph_ffn(graph, x, &options, &y, &error));
  return y;
}

static int new_graph(void **state) {
  (void)state;
  return tsr_graph_create(context, &graph, &error);
}

static int drop_graph(void **state) {
  (void)state;
  tsr_graph_destroy(&graph);
  return 0;
}

static int set_up(void **state) {
  (void)state;
  tsr_context_options options;
  tsr_context_options_init(&options);
  options.cache_folder = "";
  return tsr_context_create(&options, &context, &error);
}

static int tear_down(void **state) {
  (void)state;
  tsr_context_destroy(&context);
  return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, new_graph, drop_graph)

#endif
