/* plan_checker.c: walks the steps of a lowered plan as a simulator would: every storage holds at most one
 * buffer's contents at a time, a step may only read what is there, and what must stand at the end is there.
 */
#include "plan_support.h"

#include "plan/buffers.h"
#include "plan/chunks.h"
#include "plan/cuts.h"
#include "plan/order.h"

typedef struct walk {
  const tsr_plan *plan;
  int *holds;           /* [storage]: buffer whose contents it has now; -1 = none */
  bool *target_written; /* [value]: this target has its new contents */
} walk;

/* The buffer that serves value at place: a copy there, or a replicated one. */
static int find(const tsr_plan *plan, tsr_value value, tsr_place place) {
  int replicated = -1;
  for (int i = 0; i < plan->buffer_count; i++) {
    if (plan->buffers[i].value.id != value.id) continue;
    if (plan->buffers[i].place == place) return i;
    if (plan->buffers[i].place == TSR_PLACE_REPLICATE && place >= 0) replicated = i;
  }
  return replicated;
}

static void reads(const walk *w, tsr_value value, tsr_place place, int step) {
  int buffer = find(w->plan, value, place);
  if (buffer < 0) fail_msg("step %d reads value %u as %s: no buffer", step, value.id, tsr_place_name(place));
  if (w->holds[w->plan->buffers[buffer].storage] != buffer)
    fail_msg("step %d reads value %u as %s: its memory holds something else", step, value.id,
             tsr_place_name(place));
  if (w->target_written[value.id]) fail_msg("step %d reads value %u after it was replaced", step, value.id);
}

static void writes(walk *w, tsr_value value, tsr_place place, int step) {
  int buffer = find(w->plan, value, place);
  if (buffer < 0 || w->plan->buffers[buffer].place != place)
    fail_msg("step %d writes value %u as %s: no buffer", step, value.id, tsr_place_name(place));
  w->holds[w->plan->buffers[buffer].storage] = buffer;
}

static bool elementwise(tsr_operator op) {
  return op == TSR_OPERATOR_ADD || op == TSR_OPERATOR_MULTIPLY || op == TSR_OPERATOR_SCALE ||
         op == TSR_OPERATOR_UNARY || op == TSR_OPERATOR_UNARY_GRADIENT;
}

/* A step may write over an input of its own only element by element, and the input must lie as the output
 * does. */
static void overwrites_legally(const walk *w, const tsr_step *step, tsr_value input, tsr_place in,
                               int number) {
  const tsr_plan *plan = w->plan;
  int from = find(plan, input, in), to = find(plan, step->value, step->to);
  const tsr_plan_buffer *source = &plan->buffers[from], *target = &plan->buffers[to];
  if (source->storage != target->storage) return;
  bool sums = step->kind == TSR_STEP_CONVERT && step->collective == TSR_ALL_REDUCE;
  bool legal = sums || (step->kind == TSR_STEP_NODE && elementwise(plan->graph->nodes[step->node].op) &&
                        source->place == target->place && source->panels == target->panels &&
                        tsr_shape_equal(&tsr_graph_at(plan->graph, input)->shape,
                                        &tsr_graph_at(plan->graph, step->value)->shape));
  if (!legal)
    fail_msg("step %d writes value %u over value %u, which it reads", number, step->value.id, input.id);
}

/* A node computed with another takes its value, which is nowhere, and has its other operand; returns what it
 * makes. */
static tsr_value check_fused(walk *w, const tsr_step *step, int index, tsr_value made, tsr_place place,
                             int number) {
  static const tsr_operator operators[] = {[TSR_FUSED_SCALE] = TSR_OPERATOR_MULTIPLY,
                                           [TSR_FUSED_BIAS] = TSR_OPERATOR_ADD,
                                           [TSR_FUSED_UNARY] = TSR_OPERATOR_UNARY,
                                           [TSR_FUSED_GATE] = TSR_OPERATOR_MULTIPLY,
                                           [TSR_FUSED_RESIDUAL] = TSR_OPERATOR_ADD};
  const tsr_graph *graph = w->plan->graph;
  const tsr_fused *fused = &step->fused[index];
  const tsr_node *node = &graph->nodes[fused->node];
  tsr_rule rules[TSR_RULES_MAX];
  tsr_operator_rules_of(node->op)->rules(graph, node, rules);
  const tsr_rule *rule = &rules[w->plan->decision.rules[fused->node]];
  assert_int_equal(node->op, operators[fused->role]);
  assert_true(index == 0 || fused->role > step->fused[index - 1].role);
  assert_true(place >= TSR_PLACE_REPLICATE || node->op == TSR_OPERATOR_ADD);
  assert_true(rule->out == place);
  assert_true(find(w->plan, made, place) < 0);
  int chain = fused->operand < 0 ? 0 : 1 - fused->operand;
  assert_int_equal(node->inputs[chain].id, made.id);
  assert_int_equal(rule->in[chain], place);
  if (fused->operand >= 0) {
    reads(w, node->inputs[fused->operand], rule->in[fused->operand], number);
    if (graph->nodes[step->node].op == TSR_OPERATOR_MATMUL) {
      int operand = find(w->plan, node->inputs[fused->operand], rule->in[fused->operand]);
      assert_int_not_equal(w->plan->buffers[operand].storage,
                           w->plan->buffers[find(w->plan, step->value, step->to)].storage);
    }
  }
  return node->output;
}

static void check_node(walk *w, const tsr_step *step, int number) {
  const tsr_graph *graph = w->plan->graph;
  const tsr_node *node = &graph->nodes[step->node];
  tsr_rule rules[TSR_RULES_MAX];
  int count = tsr_operator_rules_of(node->op)->rules(graph, node, rules),
      chosen = w->plan->decision.rules[step->node];
  assert_in_range(chosen, 0, count - 1);
  for (int j = 0; j < node->input_count; j++) reads(w, node->inputs[j], rules[chosen].in[j], number);
  for (int j = 0; j < node->input_count; j++)
    overwrites_legally(w, step, node->inputs[j], rules[chosen].in[j], number);
  tsr_value made = node->output;
  for (int i = 0; i < step->fused_count; i++) made = check_fused(w, step, i, made, rules[chosen].out, number);
  assert_int_equal(step->value.id, made.id);
  assert_int_equal(step->to, rules[chosen].out);
  writes(w, step->value, step->to, number);
}

static void check_convert(walk *w, const tsr_step *step, int number) {
  reads(w, step->value, step->from, number);
  overwrites_legally(w, step, step->value, step->from, number);
  if (step->from >= 0)
    assert_true(step->collective == TSR_ALL_GATHER && step->to == TSR_PLACE_REPLICATE);
  else if (step->to == TSR_PLACE_REPLICATE)
    assert_true(step->collective == TSR_ALL_REDUCE && step->from < TSR_PLACE_REPLICATE);
  else
    assert_true(step->collective == TSR_REDUCE_SCATTER && step->from < TSR_PLACE_REPLICATE && step->to >= 0);
  writes(w, step->value, step->to, number);
}

/* After a copy the target's memory holds what it becomes. */
static void check_copy(walk *w, const tsr_step *step, int number) {
  const tsr_plan *plan = w->plan;
  reads(w, step->value, step->from, number);
  assert_int_equal(tsr_graph_at(plan->graph, step->target)->assigned.id, step->value.id);
  assert_int_equal(step->to, plan->decision.choices[step->target.id].produced);
  assert_false(w->target_written[step->target.id]);
  w->target_written[step->target.id] = true;
}

static void check_ends(walk *w) {
  const tsr_plan *plan = w->plan;
  for (size_t id = 1; id < plan->graph->value_count; id++) {
    const tsr_graph_value *value = &plan->graph->values[id];
    tsr_value self = {(uint32_t)id};
    bool target = value->assigned.id && value->assigned.id != id;
    if (value->output && !target) reads(w, self, tsr_plan_final_place(plan, self), plan->step_count);
    if (!target || w->target_written[id]) continue;
    /* In place: the target's memory holds the new value. */
    int own = find(plan, self, plan->decision.choices[id].produced);
    int made = find(plan, value->assigned, plan->decision.choices[id].produced);
    if (plan->buffers[own].storage != plan->buffers[made].storage ||
        w->holds[plan->buffers[own].storage] != made)
      fail_msg("value %zu does not become value %u", id, value->assigned.id);
  }
}

static int64_t bytes_of(const tsr_plan *plan, const tsr_plan_buffer *buffer, int r) {
  const tsr_graph_value *value = tsr_graph_at(plan->graph, buffer->value);
  int64_t rows = 1, cols = 1;
  for (int i = 0; i < value->shape.axes; i++) {
    int64_t extent = value->shape.extent[i];
    if (buffer->place == i) {
      size_t dim = plan->dims[buffer->value.id * TSR_AXES_MAX + (size_t)i];
      const int64_t *offsets = plan->decision.offsets + dim * (size_t)(plan->decision.active_count + 1);
      extent = offsets[r + 1] - offsets[r];
    }
    if (i + 1 < value->shape.axes)
      rows *= extent;
    else
      cols = extent;
  }
  const tsr_cluster_member *member = &plan->cluster->members[plan->decision.active[r]];
  int panel = buffer->panels ? member->gemm[value->dtype].panel : 0;
  if (panel) cols = (cols + panel - 1) / panel * panel;
  return rows * cols * (int64_t)tsr_dtype_bytes(value->dtype);
}

static void check_memory(const tsr_plan *plan) {
  for (int b = 0; b < plan->buffer_count; b++) {
    assert_in_range(plan->buffers[b].storage, 0, plan->storage_count - 1);
    for (int r = 0; r < plan->decision.active_count; r++)
      assert_true(plan->storages[plan->buffers[b].storage].bytes[r] >= bytes_of(plan, &plan->buffers[b], r));
  }
  for (int i = 0, r = 0; i < plan->cluster->member_count; i++) {
    uint64_t sum = 0, stored = 0;
    const tsr_plan_member *member = &plan->members[i];
    if (member->active) {
      for (int s = 0; s < plan->storage_count; s++) stored += (uint64_t)plan->storages[s].bytes[r];
      r++;
    }
    for (int line = 0; line < TSR_MEMORY_LINES; line++) sum += member->lines[line];
    assert_true(sum == member->bytes && stored == member->bytes);
    if (plan->feasible) assert_true(member->bytes <= tsr_plan_usable_bytes(plan, i));
  }
}

static void check_cuts(const tsr_plan *plan) {
  int n = plan->decision.active_count;
  for (size_t dim = 0; dim < plan->dim_count; dim++) {
    const int64_t *offsets = plan->decision.offsets + dim * (size_t)(n + 1);
    assert_int_equal(offsets[0], 0);
    assert_int_equal(offsets[n], plan->dim_extents[dim]);
    for (int r = 0; r < n; r++) assert_true(offsets[r] <= offsets[r + 1]);
  }
}

/* ---- collectives in flight ---- */

static int storage_of(const tsr_plan *plan, tsr_value value, tsr_place place) {
  int buffer = find(plan, value, place);
  return buffer < 0 ? -1 : plan->buffers[buffer].storage;
}

static bool same_chunks(const tsr_step *a, const tsr_step *b) {
  return a->chunks > 1 && a->value.id == b->value.id;
}

/* Step `number` may not touch what CONVERT `convert`, which may be in flight, reads or writes. */
static void check_beside(const tsr_plan *plan, int convert, int number) {
  const tsr_step *flying = &plan->steps[convert], *step = &plan->steps[number];
  int from = storage_of(plan, flying->value, flying->from), to = storage_of(plan, flying->value, flying->to);
  int written = step->kind == TSR_STEP_COPY ? storage_of(plan, step->target, step->to)
                                            : storage_of(plan, step->value, step->to);
  tsr_use reads[TSR_USES_MAX];
  int count = tsr_plan_step_reads(plan, step, reads);
  if (same_chunks(flying, step)) return;
  if (written == from || written == to)
    fail_msg("step %d writes memory of the collective of step %d, which may be in flight", number, convert);
  for (int j = 0; j < count; j++)
    if (storage_of(plan, reads[j].value, reads[j].place) == to)
      fail_msg("step %d reads what the collective of step %d, which may be in flight, writes", number,
               convert);
}

/* Which collectives may be in flight when a step begins: those before it that neither it nor a step in front
 * of it waits for. Where the plan overlaps, none of their buffers has given its memory to another by then. */
static void check_flights(const tsr_plan *plan) {
  int ended = -1;
  for (int i = 0; i < plan->step_count; i++) {
    const tsr_step *step = &plan->steps[i];
    assert_true(step->waits_for < i);
    if (step->waits_for >= 0) assert_int_equal(plan->steps[step->waits_for].kind, TSR_STEP_CONVERT);
    if (step->waits_for > ended) ended = step->waits_for;
    for (int j = ended + 1; j < i; j++)
      if (plan->steps[j].kind == TSR_STEP_CONVERT) check_beside(plan, j, i);
  }
}

static bool is_leaf(const tsr_plan *plan, const tsr_plan_buffer *buffer) {
  return tsr_graph_at(plan->graph, buffer->value)->producer < 0;
}

/* What a collective in flight reads lives, and nobody else in its memory. A leaf shares its memory with what
 * replaces it, whatever their lives. */
static void check_lives(const tsr_plan *plan) {
  for (int i = 0; i < plan->step_count && plan->overlaps; i++) {
    const tsr_step *step = &plan->steps[i];
    if (step->kind != TSR_STEP_CONVERT) continue;
    const tsr_plan_buffer *from = &plan->buffers[find(plan, step->value, step->from)],
                          *to = &plan->buffers[find(plan, step->value, step->to)];
    int until = tsr_plan_first_reader(plan, i) - 1;
    assert_true(from->first_step <= i && to->first_step <= i);
    if (from->storage == to->storage || is_leaf(plan, from)) continue;
    assert_true(from->last_step >= until);
    for (int b = 0; b < plan->buffer_count; b++) {
      const tsr_plan_buffer *other = &plan->buffers[b];
      if (other == from || other->storage != from->storage || is_leaf(plan, other)) continue;
      assert_true(other->last_step <= from->first_step || other->first_step >= from->last_step);
    }
  }
}

/* Chunks follow each other, product and collective in turn, and take every row once. */
static void check_chunks(const tsr_plan *plan) {
  for (int i = 0; i < plan->step_count; i++) {
    const tsr_step *step = &plan->steps[i];
    if (step->chunks < 2) continue;
    assert_in_range(step->chunk, 0, step->chunks - 1);
    bool node = step->kind == TSR_STEP_NODE;
    int first = i - 2 * step->chunk - !node;
    assert_true(first >= 0 && plan->steps[first].chunk == 0 && same_chunks(&plan->steps[first], step));
    for (int range = 0; range < tsr_plan_chunk_ranges(plan, step); range++) {
      int64_t begin, end, first_row, last_row, before, after;
      tsr_plan_chunk_range(plan, step, range, &begin, &end);
      tsr_plan_range(plan, step->value, step->chunk_to, 0, range, &first_row, &last_row);
      if (step->chunk + 1 < step->chunks)
        tsr_plan_chunk_range(plan, &plan->steps[i + 2], range, &after, &before);
      else
        after = last_row;
      assert_true(begin <= end && end == after);
      if (!step->chunk) assert_int_equal(begin, first_row);
    }
  }
}

void plan_check(const tsr_plan *plan) {
  walk w = {.plan = plan,
            .holds = calloc((size_t)plan->storage_count + 1, sizeof *w.holds),
            .target_written = calloc(plan->graph->value_count, sizeof *w.target_written)};
  for (int s = 0; s < plan->storage_count; s++) w.holds[s] = -1;
  for (size_t id = 1; id < plan->graph->value_count; id++)
    if (plan->graph->values[id].producer < 0)
      writes(&w, (tsr_value){(uint32_t)id}, plan->decision.choices[id].produced, -1);
  for (int i = 0; i < plan->step_count; i++) {
    const tsr_step *step = &plan->steps[i];
    if (step->kind == TSR_STEP_NODE)
      check_node(&w, step, i);
    else if (step->kind == TSR_STEP_CONVERT)
      check_convert(&w, step, i);
    else
      check_copy(&w, step, i);
  }
  check_ends(&w);
  check_flights(plan);
  check_lives(plan);
  check_chunks(plan);
  check_memory(plan);
  check_cuts(plan);
  free(w.holds);
  free(w.target_written);
}
