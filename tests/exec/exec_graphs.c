/* exec_graphs.c: the graphs that tests of sessions run. */
#include "exec_support.h"

tsr_graph *exec_graph(void) {
  tsr_graph *graph;
  exec_ok(tsr_graph_create(exec_context, &graph, &exec_error));
  return graph;
}

tsr_value exec_leaf(tsr_graph *graph, tsr_value_kind kind, const char *name, tsr_dtype dtype, int axes,
                    int64_t e0, int64_t e1) {
  tsr_shape shape = tsr_shape_of(axes, e0, e1);
  tsr_value value;
  exec_ok(tsr_graph_leaf(graph, kind, name, dtype, &shape, &value, &exec_error));
  return value;
}

void exec_output(tsr_graph *graph, const char *name, tsr_value value) {
  exec_ok(tsr_graph_output(graph, name, value, &exec_error));
}

void exec_pin(tsr_graph *graph, tsr_value value, int axis, int parts, const int64_t *offsets) {
  tsr_layout layout = axis < 0 ? tsr_layout_replicate() : tsr_layout_shard(axis, parts, offsets);
  exec_ok(tsr_graph_pin(graph, value, &layout, &exec_error));
}

/* An input of the shape and type of y. */
static tsr_value exec_like(tsr_graph *graph, const char *name, tsr_value y) {
  const tsr_graph_value like = *tsr_graph_at(graph, y);
  tsr_value value;
  exec_ok(tsr_graph_leaf(graph, TSR_INPUT, name, like.dtype, &like.shape, &value, &exec_error));
  return value;
}

static void update(tsr_graph *graph, tsr_value parameter, tsr_value gradient, double rate) {
  tsr_value next;
  exec_ok(tsr_graph_add(graph, 1, parameter, -rate, gradient, &next, &exec_error));
  exec_ok(tsr_graph_assign(graph, parameter, next, &exec_error));
}

void exec_extend(tsr_graph *graph, exec_mode mode, tsr_value x, tsr_value y, double rate) {
  if (mode == EXEC_FORWARD) return;
  tsr_value wrt[16], gradients[16], from = y, dy = TSR_NO_VALUE;
  size_t count = 0;
  if (mode == EXEC_LOSS) {
    tsr_value target = exec_like(graph, "target", y);
    exec_pin(graph, target, -1, 0, NULL);
    exec_ok(tsr_graph_squared_error(graph, y, target, &from, &exec_error));
    exec_output(graph, "loss", from);
  } else {
    dy = exec_like(graph, "dy", y);
  }
  for (uint32_t id = 1; id < graph->value_count; id++)
    if (graph->values[id].kind == TSR_PARAMETER) wrt[count++] = (tsr_value){id};
  size_t parameters = count;
  if (x.id) wrt[count++] = x;
  exec_ok(tsr_graph_gradients(graph, from, dy, wrt, count, gradients, &exec_error));
  for (size_t i = 0; i < count; i++) {
    char name[80];
    snprintf(name, sizeof name, "d_%s", tsr_graph_at(graph, wrt[i])->name);
    if (mode == EXEC_BACKWARD) exec_output(graph, name, gradients[i]);
    if (mode != EXEC_BACKWARD && i < parameters) update(graph, wrt[i], gradients[i], rate);
  }
}

tsr_graph *exec_ffn_graph(const exec_ffn *ffn) {
  tsr_graph *graph = exec_graph();
  tsr_value x = exec_leaf(graph, TSR_INPUT, "x", ffn->dtype, 2, ffn->m, ffn->d), y;
  exec_ok(tsr_graph_ffn(graph, x,
                        TSR_FFN_OPTIONS(.hidden = ffn->h, .activation = ffn->activation, .gated = ffn->gated,
                                        .no_bias = ffn->gated),
                        &y, &exec_error));
  if (ffn->residual) exec_ok(tsr_graph_add(graph, 1, y, 1, x, &y, &exec_error));
  exec_output(graph, "y", y);
  if (ffn->pinned) exec_pin(graph, x, -1, 0, NULL), exec_pin(graph, y, -1, 0, NULL);
  exec_extend(graph, ffn->mode, ffn->mode == EXEC_BACKWARD ? x : TSR_NO_VALUE, y, ffn->rate);
  return graph;
}

/* ---- random graphs ---- */

typedef struct pool {
  tsr_graph *graph;
  tsr_dtype dtype;
  int members, count, named;
  bool descends; /* gradients are wanted: no maximum, which has none */
  int64_t extents[3];
  tsr_value values[80];
} pool;

static bool chance(int percent) {
  return exec_between(0, 99) < percent;
}

static const tsr_shape *shape_of(const pool *p, tsr_value value) {
  return &tsr_graph_at(p->graph, value)->shape;
}

/* A matrix of the pool that has the wanted extent on an axis (-1 = any). */
static tsr_value pick(const pool *p, int axis, int64_t extent) {
  for (int tries = 0; tries < 200; tries++) {
    tsr_value value = p->values[exec_between(0, p->count - 1)];
    if (axis < 0 || shape_of(p, value)->extent[axis] == extent) return value;
  }
  return TSR_NO_VALUE;
}

static void pin_randomly(pool *p, tsr_value value) {
  const tsr_shape *shape = shape_of(p, value);
  int axis = (int)exec_between(-1, shape->axes - 1);
  int64_t offsets[EXEC_MEMBERS_MAX + 1] = {0};
  if (axis >= 0 && chance(50)) {
    for (int i = 1; i <= p->members; i++) offsets[i] = exec_between(offsets[i - 1], shape->extent[axis]);
    offsets[p->members] = shape->extent[axis];
    exec_pin(p->graph, value, axis, p->members, offsets);
  } else {
    exec_pin(p->graph, value, axis, 0, NULL);
  }
}

static tsr_value add_leaf(pool *p, tsr_value_kind kind, int axes, int64_t e0, int64_t e1) {
  char name[16];
  snprintf(name, sizeof name, "v%d", p->named++);
  tsr_value value = exec_leaf(p->graph, kind, name, p->dtype, axes, e0, e1);
  /* Pins with offsets may contradict one another through what links axes: few of them. */
  if (chance(15)) pin_randomly(p, value);
  return value;
}

static tsr_value random_product(pool *p) {
  tsr_value a = pick(p, -1, 0), b, out;
  tsr_matmul_options options;
  tsr_matmul_options_init(&options);
  options.transpose_a = chance(30);
  options.transpose_b = chance(30);
  int64_t k = shape_of(p, a)->extent[options.transpose_a ? 0 : 1], n = p->extents[exec_between(0, 2)];
  b = chance(50) ? pick(p, options.transpose_b, k) : TSR_NO_VALUE;
  if (!b.id) b = add_leaf(p, TSR_PARAMETER, 2, options.transpose_b ? n : k, options.transpose_b ? k : n);
  if (chance(30)) {
    options.beta = 2;
    options.c = add_leaf(p, chance(50) ? TSR_INPUT : TSR_PARAMETER, 2,
                         shape_of(p, a)->extent[options.transpose_a ? 1 : 0],
                         shape_of(p, b)->extent[options.transpose_b ? 0 : 1]);
  }
  exec_ok(tsr_graph_matmul(p->graph, a, b, &options, &out, &exec_error));
  return out;
}

static tsr_value random_sum(pool *p) {
  tsr_value a = pick(p, -1, 0), b = pick(p, -1, 0), out;
  const tsr_shape shape = *shape_of(p, a);
  if (!tsr_shape_equal(&shape, shape_of(p, b)))
    b = chance(50) ? add_leaf(p, TSR_PARAMETER, 1, shape.extent[1], 0)
                   : add_leaf(p, TSR_PARAMETER, 2, chance(50) ? 1 : shape.extent[0],
                              chance(30) ? 1 : shape.extent[1]);
  if (chance(25))
    exec_ok(tsr_graph_multiply(p->graph, a, b, &out, &exec_error));
  else
    exec_ok(tsr_graph_add(p->graph, exec_between(-1, 1), a, chance(50) ? 1 : -1, b, &out, &exec_error));
  return out;
}

/* A reduction, broadcast again. */
static tsr_value random_reduction(pool *p) {
  tsr_value a = pick(p, -1, 0), sum, out, b;
  int axis = (int)exec_between(0, 1);
  exec_ok(
      tsr_graph_reduce(p->graph, p->descends || chance(60) ? TSR_SUM : TSR_MAX, axis, a, &sum, &exec_error));
  if (chance(30)) {
    char name[16];
    snprintf(name, sizeof name, "sum%d", p->named++);
    exec_output(p->graph, name, sum);
  }
  b = pick(p, 1, shape_of(p, sum)->extent[0]);
  if (!b.id) return a;
  exec_ok(tsr_graph_add(p->graph, 1, b, 1, sum, &out, &exec_error));
  return out;
}

static tsr_value random_operator(pool *p) {
  tsr_value out;
  switch (exec_between(0, 7)) {
  case 0: exec_ok(tsr_graph_unary(p->graph, TSR_UNARY_RELU, pick(p, -1, 0), &out, &exec_error)); return out;
  case 1:
    exec_ok(tsr_graph_scale(p->graph, chance(50) ? 2 : -1, pick(p, -1, 0), &out, &exec_error));
    return out;
  case 2: return random_reduction(p);
  case 3:
  case 4: return random_sum(p);
  default: return random_product(p);
  }
}

/* Gradients of what `last` depends on; some leaves are stepped down, others' gradients are outputs. */
static void random_descent(pool *p, tsr_value last) {
  const tsr_shape shape = *shape_of(p, last);
  tsr_value dy = add_leaf(p, TSR_INPUT, 2, shape.extent[0], shape.extent[1]), gradient;
  for (uint32_t id = 1, count = (uint32_t)p->graph->value_count; id < count; id++) {
    tsr_value leaf = {id};
    if (p->graph->values[id].producer >= 0 || id == dy.id) continue;
    if (tsr_graph_gradients(p->graph, last, dy, &leaf, 1, &gradient, &exec_error) != TSR_OK) {
      exec_refused(exec_error.status, TSR_ERROR_INVALID_ARGUMENT, "depend");
      continue;
    }
    if (p->graph->values[id].kind == TSR_PARAMETER && chance(60))
      update(p->graph, leaf, gradient, 1);
    else if (!tsr_graph_at(p->graph, gradient)->output)
      exec_output(p->graph, tsr_graph_at(p->graph, leaf)->name, gradient);
  }
}

static void random_states(pool *p) {
  for (int i = 0; i < 2; i++) {
    tsr_value value = pick(p, -1, 0);
    tsr_shape shape = *shape_of(p, value);
    if (chance(60))
      exec_ok(tsr_graph_assign(p->graph, add_leaf(p, TSR_STATE, 2, shape.extent[0], shape.extent[1]), value,
                               &exec_error));
  }
}

tsr_graph *exec_random_graph(tsr_dtype dtype, int members) {
  static const int64_t extents[] = {1, 2, 7, 13, 33};
  pool p = {.graph = exec_graph(), .dtype = dtype, .members = members};
  p.descends = chance(50);
  for (int i = 0; i < 3; i++) p.extents[i] = extents[exec_between(0, 4)];
  for (int i = 0; i < 3; i++)
    p.values[p.count++] = add_leaf(&p, i ? TSR_PARAMETER : TSR_INPUT, 2, p.extents[exec_between(0, 2)],
                                   p.extents[exec_between(0, 2)]);
  tsr_value last = p.values[0];
  for (int i = (int)exec_between(2, 9); i > 0; i--) {
    p.values[p.count++] = last = random_operator(&p);
  }
  if (tsr_graph_at(p.graph, last)->producer < 0) last = p.values[p.count++] = random_product(&p);
  exec_output(p.graph, "last", last);
  if (chance(30)) pin_randomly(&p, last);
  if (p.descends) random_descent(&p, last);
  tsr_value other = pick(&p, -1, 0);
  if (!tsr_graph_at(p.graph, other)->output) exec_output(p.graph, "other", other);
  random_states(&p);
  return p.graph;
}
