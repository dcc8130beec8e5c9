/* Room runtime/exec: convolutions over members: every split, unequal and empty shares, groups, odd windows;
 * two layers; training. Small integers are exact in any order, so results must be equal bit for bit. */
#include "exec_support.h"

typedef struct layer {
  int64_t n, c, h, w, k, r, s;
  tsr_conv_options options;
} layer;

static tsr_value leaf(tsr_graph *graph, tsr_value_kind kind, const char *name, tsr_dtype dtype, int64_t e0,
                      int64_t e1, int64_t e2, int64_t e3) {
  tsr_shape shape = {.axes = 4, .extent = {e0, e1, e2, e3}};
  tsr_value value;
  exec_ok(tsr_graph_leaf(graph, kind, name, dtype, &shape, &value, &exec_error));
  return value;
}

typedef struct conv_graph {
  tsr_graph *graph;
  tsr_value x, w, y;
} conv_graph;

static conv_graph make_graph(const layer *l, tsr_dtype dtype, bool bias, bool activate, exec_mode mode) {
  conv_graph g = {.graph = exec_graph()};
  int64_t groups = l->options.groups ? l->options.groups : 1;
  tsr_conv_options options = l->options;
  tsr_value b = TSR_NO_VALUE;
  options.struct_size = sizeof options;
  g.x = leaf(g.graph, TSR_INPUT, "x", dtype, l->n, l->c, l->h, l->w);
  g.w = leaf(g.graph, TSR_PARAMETER, "w", dtype, l->k, l->c / groups, l->r, l->s);
  if (bias) b = exec_leaf(g.graph, TSR_PARAMETER, "b", dtype, 1, l->k, 0);
  exec_ok(tsr_graph_conv(g.graph, g.x, g.w, b, &options, &g.y, &exec_error));
  if (activate) exec_ok(tsr_graph_unary(g.graph, TSR_UNARY_RELU, g.y, &g.y, &exec_error));
  exec_output(g.graph, "y", g.y);
  exec_extend(g.graph, mode, g.x, g.y, 1);
  return g;
}

static const layer layers[] = {
    {2, 4, 5, 6, 8, 3, 3, {.padding = {1, 1}}},
    {1, 3, 7, 7, 5, 3, 2, {.stride = {2, 3}, .padding = {2, 0}}},
    {3, 2, 4, 4, 3, 1, 1, {0}},
    {2, 6, 5, 5, 6, 3, 3, {.padding = {1, 1}, .groups = 6}},        /* depthwise */
    {2, 6, 5, 4, 6, 2, 2, {.groups = 3}},                           /* input and output channels in pairs */
    {2, 4, 5, 4, 6, 2, 2, {.padding = {1, 1}, .groups = 2}},        /* as many as not */
    {1, 2, 1, 1, 3, 3, 3, {.padding = {4, 4}, .dilation = {1, 2}}}, /* one pixel, padding beyond the window */
    {2, 3, 9, 8, 4, 3, 3, {.stride = {5, 4}, .dilation = {2, 3}}},
    {1, 5, 6, 3, 2, 6, 3, {0}}, /* the window is the image */
};
enum { LAYERS = sizeof layers / sizeof *layers };

static void run(const char *selector, int members, conv_graph g, uint64_t seed) {
  exec_rig rig;
  exec_setup setup = {.members = members};
  for (int i = 0; i < members; i++) setup.selectors[i] = selector;
  exec_open(&rig, &setup);
  exec_create(&rig, g.graph);
  tsr_source *source = exec_source(rig.plan->graph, true, 2, seed);
  assert_true(exec_run_exact(&rig, source, 2) > 0);
  tsr_source_destroy(&source);
  exec_discard(&rig);
  exec_close(&rig);
}

static void every_layer(const char *selector, tsr_dtype dtype) {
  for (int i = 0; i < LAYERS; i++)
    for (int members = 1; members <= 3; members++)
      run(selector, members, make_graph(&layers[i], dtype, i % 2, i % 3, EXEC_BACKWARD),
          (uint64_t)(10 * i + members));
}

static void layers_are_exact(void **state) {
  (void)state;
  every_layer(NULL, TSR_F64);
}

static void layers_are_exact_on_a_device(void **state) {
  (void)state;
  if (!exec_has("pocl")) skip();
  every_layer("pocl", TSR_F32);
}

static void layers_are_exact_on_a_device_in_f64(void **state) {
  (void)state;
  if (!exec_has("pocl")) skip();
  for (int i = 0; i < LAYERS; i++)
    run("pocl", 2, make_graph(&layers[i], TSR_F64, true, true, EXEC_BACKWARD), (uint64_t)i);
}

/* More channels than a register tile has, more pixels than a panel, deeper than a block; small images, whose
 * panels lie in several. */
static void many_channels_are_exact(void **state) {
  (void)state;
  static const layer wide[] = {
      {3, 40, 7, 7, 25, 3, 3, {.padding = {1, 1}}},
      {2, 33, 17, 19, 50, 3, 3, {.padding = {1, 1}, .stride = {2, 2}}},
      {2, 48, 9, 10, 40, 2, 3, {.padding = {1, 0}, .groups = 2, .dilation = {2, 1}}},
      {5, 70, 3, 2, 31, 1, 1, {0}},
  };
  const char *selectors[] = {NULL, "pocl"};
  for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
    for (int j = 0; j < 2; j++)
      if (!j || exec_has("pocl"))
        run(selectors[j], 2, make_graph(&wide[i], TSR_F32, true, i % 2, EXEC_BACKWARD), 40 + (uint64_t)i);
}

/* Few channels in a group: images of several strips, vectors and rows that do not come out even, windows that
 * step and spread, with several channels of either kind. */
static void few_channels_are_exact(void **state) {
  (void)state;
  static const layer few[] = {
      {2, 5, 61, 203, 5, 3, 3, {.padding = {1, 1}, .groups = 5}},
      {1, 3, 37, 150, 6, 3, 5, {.stride = {2, 3}, .padding = {1, 4}, .dilation = {2, 1}, .groups = 3}},
      {2, 8, 30, 29, 6, 2, 3, {.stride = {1, 2}, .padding = {3, 0}, .dilation = {1, 3}, .groups = 2}},
      {1, 4, 19, 17, 12, 7, 7, {.stride = {3, 1}, .padding = {3, 9}, .groups = 4}},
      {3, 6, 4, 1, 6, 1, 1, {.stride = {2, 2}, .groups = 6}},
      {1, 4, 9, 1700, 4, 3, 3, {.padding = {1, 1}, .groups = 4}}, /* four lines are no strip */
      {1, 4, 40, 6, 4, 30, 2, {.padding = {1, 1}, .groups = 4}},  /* the window has no registers */
  };
  const char *selectors[] = {NULL, "pocl"};
  const tsr_dtype dtypes[] = {TSR_F32, TSR_F64};
  for (size_t i = 0; i < sizeof few / sizeof *few; i++)
    for (int j = 0; j < 4; j++)
      if (j < 2 || exec_has("pocl"))
        run(selectors[j / 2], 2, make_graph(&few[i], dtypes[j % 2], true, i % 2, EXEC_BACKWARD),
            60 + (uint64_t)i);
}

/* Convolution, ReLU, pooling, twice; then one window over all that is left: a classifier. */
static void stacks_are_exact(void **state) {
  (void)state;
  const char *selectors[] = {NULL, "pocl"};
  for (int j = 0; j < 2; j++)
    for (int members = 1; members <= 3 && (!j || exec_has("pocl")); members++) {
      conv_graph g = {.graph = exec_graph()};
      tsr_value y = g.x = leaf(g.graph, TSR_INPUT, "x", TSR_F64, 2, 1, 8, 9);
      tsr_value w1 = leaf(g.graph, TSR_PARAMETER, "w1", TSR_F64, 5, 1, 3, 3);
      tsr_value w2 = leaf(g.graph, TSR_PARAMETER, "w2", TSR_F64, 6, 5, 3, 3);
      tsr_value w3 = leaf(g.graph, TSR_PARAMETER, "w3", TSR_F64, 4, 6, 2, 3);
      const tsr_conv_options *same = TSR_CONV_OPTIONS(.padding = {1, 1});
      exec_ok(tsr_graph_conv(g.graph, y, w1, TSR_NO_VALUE, same, &y, &exec_error));
      exec_ok(tsr_graph_unary(g.graph, TSR_UNARY_RELU, y, &y, &exec_error));
      exec_ok(tsr_graph_pool(g.graph, y,
                             TSR_POOL_OPTIONS(.window = {3, 2}, .stride = {2, 2}, .padding = {1, 0}), &y,
                             &exec_error));
      exec_ok(tsr_graph_conv(g.graph, y, w2, TSR_NO_VALUE, same, &y, &exec_error));
      exec_ok(
          tsr_graph_pool(g.graph, y, TSR_POOL_OPTIONS(.window = {2, 2}, .stride = {2, 1}), &y, &exec_error));
      exec_ok(tsr_graph_conv(g.graph, y, w3, TSR_NO_VALUE, NULL, &y, &exec_error));
      exec_output(g.graph, "y", y);
      exec_extend(g.graph, EXEC_BACKWARD, g.x, y, 1);
      run(selectors[j], members, g, 5 + (uint64_t)members);
    }
}

static void means_follow_the_oracle(void **state) {
  (void)state;
  for (int members = 1; members <= 2; members++) {
    exec_rig rig;
    tsr_graph *graph = exec_graph();
    tsr_value x = leaf(graph, TSR_INPUT, "x", TSR_F32, 3, 4, 6, 7), y;
    exec_ok(tsr_graph_pool(
        graph, x, TSR_POOL_OPTIONS(.window = {3, 2}, .stride = {2, 1}, .padding = {1, 1}, .mean = true), &y,
        &exec_error));
    exec_output(graph, "y", y);
    exec_extend(graph, EXEC_BACKWARD, x, y, 1);
    exec_setup setup = {.members = members, .selectors = {NULL, exec_has("pocl") ? "pocl" : NULL}};
    exec_open(&rig, &setup);
    exec_create(&rig, graph);
    tsr_source *source = exec_source(rig.plan->graph, false, 1, 11);
    exec_run_bound(&rig, source, 1);
    tsr_source_destroy(&source);
    exec_discard(&rig);
    exec_close(&rig);
  }
}

/* Pins force each split, with shares that are unequal, and empty for one member. */
static void splits_are_exact(void **state) {
  (void)state;
  for (int i = 0; i < LAYERS; i++)
    for (int which = 0; which < 6; which++) {
      const bool of_weight = which >= 2 && which < 4;
      const int axis = which % 2;
      if (of_weight && axis && layers[i].options.groups)
        continue; /* the input channels of a group stay together */
      conv_graph g = make_graph(&layers[i], TSR_F64, true, false, EXEC_BACKWARD);
      tsr_value value = of_weight ? g.w : which < 2 ? g.x : g.y;
      int64_t extent = tsr_graph_at(g.graph, value)->shape.extent[axis], groups = layers[i].options.groups;
      int64_t unit = groups > 1 && (axis || of_weight) ? extent % groups ? extent : extent / groups : 1;
      int64_t offsets[] = {0, extent / unit > 2 ? unit : 0, extent / unit > 2 ? unit : 0, extent};
      exec_pin(g.graph, value, axis, 3, offsets);
      run(NULL, 3, g, (uint64_t)(100 * i + which));
    }
}

/* y = conv(relu(conv(x))): the first split by its output channels, the second by its input channels, one
 * reduction. */
static void two_layers_pair_up(void **state) {
  (void)state;
  exec_rig rig;
  tsr_graph *graph = exec_graph();
  tsr_value x = leaf(graph, TSR_INPUT, "x", TSR_F32, 4, 64, 14, 14), y;
  tsr_value w1 = leaf(graph, TSR_PARAMETER, "w1", TSR_F32, 256, 64, 3, 3);
  tsr_value w2 = leaf(graph, TSR_PARAMETER, "w2", TSR_F32, 64, 256, 3, 3);
  const tsr_conv_options *same = TSR_CONV_OPTIONS(.padding = {1, 1});
  exec_ok(tsr_graph_conv(graph, x, w1, TSR_NO_VALUE, same, &y, &exec_error));
  exec_ok(tsr_graph_unary(graph, TSR_UNARY_RELU, y, &y, &exec_error));
  exec_ok(tsr_graph_conv(graph, y, w2, TSR_NO_VALUE, same, &y, &exec_error));
  exec_output(graph, "y", y);
  exec_pin(graph, x, -1, 0, NULL);
  exec_pin(graph, y, -1, 0, NULL);
  exec_open(&rig, &(exec_setup){.members = 2, .keep_all = true, .replicate = TSR_REPLICATE_NEVER});
  exec_create(&rig, graph);
  int collectives = 0;
  for (int i = 0; i < rig.plan->step_count; i++)
    if (rig.plan->steps[i].kind == TSR_STEP_CONVERT) {
      collectives += rig.plan->steps[i].chunk == 0;
      assert_int_equal(rig.plan->steps[i].collective, TSR_ALL_REDUCE);
    }
  assert_int_equal(collectives, 1);
  assert_int_equal(rig.plan->decision.choices[w1.id].produced, 0);
  assert_int_equal(rig.plan->decision.choices[w2.id].produced, 1);
  exec_discard(&rig);
  exec_close(&rig);
}

static void pins_keep_groups_whole(void **state) {
  (void)state;
  exec_rig rig;
  conv_graph g = make_graph(&layers[4], TSR_F32, false, false, EXEC_FORWARD); /* 6 channels in 3 groups */
  const int64_t offsets[] = {0, 3, 6};
  exec_pin(g.graph, g.y, 1, 2, offsets);
  exec_open(&rig, &(exec_setup){.members = 2});
  exec_refused(tsr_plan_create(g.graph, rig.cluster, NULL, &rig.plan, &exec_error),
               TSR_ERROR_INVALID_ARGUMENT, "inside of a group of 2");
  tsr_graph_destroy(&g.graph);
  exec_close(&rig);
}

static void training_follows_the_oracle(void **state) {
  (void)state;
  for (int members = 1; members <= 3; members++) {
    exec_rig rig;
    conv_graph g = make_graph(&layers[0], TSR_F32, true, true, EXEC_LOSS);
    exec_open(&rig, &(exec_setup){.members = members});
    exec_create(&rig, g.graph);
    tsr_source *source = exec_source(rig.plan->graph, false, 1, 7);
    exec_run_bound(&rig, source, 3);
    tsr_source_destroy(&source);
    exec_discard(&rig);
    exec_close(&rig);
  }
}

/* What `run --check` does, elements and collectives, agrees with what is right. */
static void check_passes(void **state) {
  (void)state;
  exec_rig rig;
  conv_graph g = make_graph(&layers[0], TSR_F32, true, true, EXEC_BACKWARD);
  tsr_check result;
  exec_open(&rig, &(exec_setup){.members = 2});
  exec_create(&rig, g.graph);
  tsr_source *source = exec_source(rig.plan->graph, false, 1, 3);
  exec_ok(tsr_session_load(rig.session, source, &exec_error));
  exec_ok(tsr_session_check(rig.session, NULL, &result, &exec_error));
  assert_true(result.passed && result.compared > 100);
  tsr_source_destroy(&source);
  exec_discard(&rig);
  exec_close(&rig);
}

static tsr_status conv_status(const layer *l) {
  tsr_graph *graph = exec_graph();
  tsr_conv_options options = l->options;
  tsr_value y;
  options.struct_size = sizeof options;
  tsr_value x = leaf(graph, TSR_INPUT, "x", TSR_F32, l->n, l->c, l->h, l->w);
  tsr_value w = leaf(graph, TSR_PARAMETER, "w", TSR_F32, l->k,
                     l->c / (options.groups > 0 ? options.groups : 1) + !l->c, l->r, l->s);
  tsr_status status = tsr_graph_conv(graph, x, w, TSR_NO_VALUE, &options, &y, &exec_error);
  tsr_graph_destroy(&graph);
  return status;
}

static void bad_windows_are_refused(void **state) {
  (void)state;
  const struct {
    layer layer;
    const char *words;
  } bad[] = {
      {{1, 4, 5, 5, 4, 7, 3, {0}}, "larger than the image"},
      {{1, 4, 5, 5, 4, 3, 3, {.dilation = {1, 3}}}, "larger than the image"},
      {{1, 4, 5, 5, 4, 3, 3, {.stride = {-1, 1}}}, "stride of rows is -1"},
      {{1, 4, 5, 5, 4, 3, 3, {.padding = {0, -2}}}, "padding of columns is -2"},
      {{1, 4, 5, 5, 4, 3, 3, {.groups = 3}}, "groups is 3"},
      {{1, 4, 5, 5, 4, 3, 3, {.groups = -1}}, "groups is -1"},
      {{1, 4, 5, 5, 4, 3, 3, {.padding = {INT64_MAX, 0}}}, "padding of rows"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    exec_refused(conv_status(&bad[i].layer), TSR_ERROR_INVALID_ARGUMENT, bad[i].words);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layers_are_exact),
      cmocka_unit_test(layers_are_exact_on_a_device),
      cmocka_unit_test(layers_are_exact_on_a_device_in_f64),
      cmocka_unit_test(many_channels_are_exact),
      cmocka_unit_test(few_channels_are_exact),
      cmocka_unit_test(stacks_are_exact),
      cmocka_unit_test(means_follow_the_oracle),
      cmocka_unit_test(splits_are_exact),
      cmocka_unit_test(two_layers_pair_up),
      cmocka_unit_test(pins_keep_groups_whole),
      cmocka_unit_test(training_follows_the_oracle),
      cmocka_unit_test(check_passes),
      cmocka_unit_test(bad_windows_are_refused),
  };
  return cmocka_run_group_tests_name("conv", tests, exec_begin, exec_end);
}
