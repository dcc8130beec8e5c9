#include "plan/buffers.h"

#include <string.h>

#include "base/memory.h"
#include "plan/chunks.h"
#include "plan/order.h"

static bool is_elementwise(tsr_operator op) {
  return op == TSR_OPERATOR_ADD || op == TSR_OPERATOR_MULTIPLY || op == TSR_OPERATOR_SCALE ||
         op == TSR_OPERATOR_UNARY || op == TSR_OPERATOR_UNARY_GRADIENT;
}

static bool same_shape(const tsr_graph *graph, tsr_value a, tsr_value b) {
  const tsr_shape *x = &tsr_graph_at(graph, a)->shape, *y = &tsr_graph_at(graph, b)->shape;
  return x->axes == y->axes && !memcmp(x->extent, y->extent, (size_t)x->axes * sizeof *x->extent);
}

static const tsr_rule *rule_of(const tsr_plan *plan, int node_index, tsr_rule *rules) {
  const tsr_node *node = &plan->graph->nodes[node_index];
  tsr_operator_rules_of(node->op)->rules(plan->graph, node, rules);
  return &rules[plan->decision.rules[node_index]];
}

static bool exists_once(const tsr_plan *plan, tsr_value value) {
  const tsr_choice *choice = &plan->decision.choices[value.id];
  return choice->present == tsr_place_bit(choice->produced);
}

/* The parameter in whose form a value is stored: itself, the one whose gradient it is, or the one it is
 * assigned to; id 0 = none. */
static tsr_value root_of(const tsr_graph *graph, tsr_value value) {
  const tsr_graph_value *at = tsr_graph_at(graph, value);
  if (at->kind == TSR_PARAMETER) return value;
  if (at->gradient_of.id) return at->gradient_of;
  for (size_t id = 1; id < graph->value_count; id++)
    if (graph->values[id].assigned.id == value.id && graph->values[id].kind == TSR_PARAMETER)
      return (tsr_value){(uint32_t)id};
  return TSR_NO_VALUE;
}

/* Whether every use of value (and its making) can be in panels; *product counts uses as operand b. */
static bool uses_allow_panels(const tsr_plan *plan, tsr_value value, int *products) {
  const tsr_graph *graph = plan->graph;
  const tsr_graph_value *at = tsr_graph_at(graph, value);
  if (at->shape.axes != 2 || !exists_once(plan, value)) return false;
  if (at->producer >= 0) {
    const tsr_node *maker = &graph->nodes[at->producer];
    if (maker->op == TSR_OPERATOR_MATMUL ? maker->beta != 0 : !is_elementwise(maker->op)) return false;
  }
  for (size_t i = 0; i < graph->node_count; i++) {
    if (plan->decision.rules[i] < 0) continue;
    const tsr_node *node = &graph->nodes[i];
    tsr_rule rules[TSR_RULES_MAX];
    const tsr_rule *rule = rule_of(plan, (int)i, rules);
    for (int j = 0; j < node->input_count; j++) {
      if (node->inputs[j].id != value.id) continue;
      if (rule->in[j] != plan->decision.choices[value.id].produced) return false;
      bool second = node->op == TSR_OPERATOR_MATMUL && j == 1;
      if (!second && !(is_elementwise(node->op) && same_shape(graph, value, node->output))) return false;
      *products += second;
    }
  }
  return true;
}

bool tsr_plan_is_panels(const tsr_plan *plan, tsr_value value) {
  tsr_value root = root_of(plan->graph, value);
  int products = 0, ignored = 0;
  if (!root.id || !uses_allow_panels(plan, root, &products) || !products) return false;
  return root.id == value.id ||
         (same_shape(plan->graph, root, value) && uses_allow_panels(plan, value, &ignored));
}

bool tsr_plan_updates_in_place(const tsr_plan *plan, tsr_value target) {
  const tsr_graph *graph = plan->graph;
  tsr_value value = tsr_graph_at(graph, target)->assigned;
  int producer = tsr_graph_at(graph, value)->producer;
  if (producer < 0 || !exists_once(plan, value)) return false;
  const tsr_node *node = &graph->nodes[producer];
  tsr_place place = plan->decision.choices[target.id].produced;
  if (!is_elementwise(node->op) || plan->decision.choices[value.id].produced != place) return false;
  if (tsr_plan_is_panels(plan, value) != tsr_plan_is_panels(plan, target)) return false;
  for (size_t id = 1; id < graph->value_count; id++)
    if (id != target.id &&
        (graph->values[id].assigned.id == value.id || graph->values[id].assigned.id == target.id))
      return false;
  tsr_rule rules[TSR_RULES_MAX];
  const tsr_rule *rule = rule_of(plan, producer, rules);
  bool reads_target = false;
  for (int j = 0; j < node->input_count; j++)
    reads_target |=
        node->inputs[j].id == target.id && rule->in[j] == place && same_shape(graph, target, value);
  for (size_t i = (size_t)producer + 1; i < graph->node_count; i++)
    for (int j = 0; plan->decision.rules[i] >= 0 && j < graph->nodes[i].input_count; j++)
      if (graph->nodes[i].inputs[j].id == target.id) return false;
  return reads_target;
}

/* ---- buffers ---- */

static tsr_memory_line line_of(const tsr_graph_value *value) {
  if (value->kind == TSR_PARAMETER) return TSR_MEMORY_WEIGHTS;
  if (value->kind == TSR_STATE) return TSR_MEMORY_STATE;
  return value->gradient_of.id ? TSR_MEMORY_GRADIENTS : TSR_MEMORY_ACTIVATIONS;
}

static tsr_status add_buffer(tsr_plan *plan, tsr_value value, tsr_place place, int step, tsr_error *error) {
  size_t capacity = (size_t)plan->buffer_capacity;
  if (!TSR_GROW(plan->buffers, (size_t)plan->buffer_count, capacity))
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %d buffers", plan->buffer_count + 1);
  plan->buffer_capacity = (int)capacity;
  plan->buffers[plan->buffer_count++] = (tsr_plan_buffer){.value = value,
                                                          .place = place,
                                                          .storage = -1,
                                                          .first_step = step,
                                                          .last_step = step,
                                                          .panels = tsr_plan_is_panels(plan, value)};
  return TSR_OK;
}

/* Notes that value at place is used in a step. */
static int touch(tsr_plan *plan, tsr_value value, tsr_place place, int step) {
  bool is_view;
  int index = tsr_plan_find_buffer(plan, value, place, &is_view);
  if (index >= 0 && plan->buffers[index].last_step < step) plan->buffers[index].last_step = step;
  return index;
}

/* Whether what an all-reduce reads is wanted by nobody behind it. */
static bool reduces_in_place(const tsr_plan *plan, int convert) {
  const tsr_step *step = &plan->steps[convert];
  bool is_view;
  int from = tsr_plan_find_buffer(plan, step->value, step->from, &is_view);
  int last = step->chunks > 1 ? convert + 2 * (step->chunks - 1 - step->chunk) : convert;
  return step->collective == TSR_ALL_REDUCE && from >= 0 && plan->buffers[from].last_step == last;
}

/* What a collective reads is held until somebody waits for it. */
static void keep_in_flight(tsr_plan *plan) {
  for (int i = 0; plan->overlaps && i < plan->step_count; i++) {
    const tsr_step *step = &plan->steps[i];
    if (step->kind == TSR_STEP_CONVERT && !reduces_in_place(plan, i))
      touch(plan, step->value, step->from, tsr_plan_first_reader(plan, i) - 1);
  }
}

static tsr_status make_buffers(tsr_plan *plan, tsr_error *error) {
  const tsr_graph *graph = plan->graph;
  for (size_t id = 1; id < graph->value_count; id++) {
    if (graph->values[id].producer >= 0) continue;
    TSR_RETURN_IF_FAILED(
        add_buffer(plan, (tsr_value){(uint32_t)id}, plan->decision.choices[id].produced, 0, error));
    plan->buffers[plan->buffer_count - 1].last_step = plan->step_count;
  }
  for (int i = 0; i < plan->step_count; i++) {
    const tsr_step *step = &plan->steps[i];
    tsr_use reads[TSR_USES_MAX];
    int count = tsr_plan_step_reads(plan, step, reads);
    for (int j = 0; j < count; j++) touch(plan, reads[j].value, reads[j].place, i);
    if (step->kind != TSR_STEP_COPY && !step->chunk)
      TSR_RETURN_IF_FAILED(add_buffer(plan, step->value, step->to, i, error));
  }
  keep_in_flight(plan);
  for (size_t id = 1; id < graph->value_count; id++) {
    tsr_value self = {(uint32_t)id};
    if (graph->values[id].output) touch(plan, self, tsr_plan_final_place(plan, self), plan->step_count);
  }
  return TSR_OK;
}

static int64_t buffer_bytes(const tsr_plan *plan, const tsr_plan_buffer *buffer, int r) {
  tsr_shape shape = tsr_plan_local_shape(plan, buffer->value, buffer->place, r);
  int64_t rows, cols;
  tsr_shape_matrix(&shape, &rows, &cols);
  int64_t bytes = tsr_matrix_bytes(tsr_plan_buffer_panel(plan, buffer, r),
                                   tsr_graph_at(plan->graph, buffer->value)->dtype, rows, cols);
  return bytes < 0 ? INT64_MAX : bytes; /* more than any device has */
}

static void add_bytes(uint64_t *sum, uint64_t bytes) {
  *sum = bytes > UINT64_MAX - *sum ? UINT64_MAX : *sum + bytes;
}

/* ---- storages ---- */

static tsr_status add_storage(tsr_plan *plan, tsr_memory_line line, int *index, tsr_error *error) {
  size_t capacity = (size_t)plan->storage_capacity;
  int64_t *bytes = tsr_calloc((size_t)plan->decision.active_count, sizeof *bytes);
  if (!bytes || !TSR_GROW(plan->storages, (size_t)plan->storage_count, capacity)) {
    free(bytes);
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %d storages", plan->storage_count + 1);
  }
  plan->storage_capacity = (int)capacity;
  *index = plan->storage_count;
  plan->storages[plan->storage_count++] = (tsr_plan_storage){.line = line, .bytes = bytes, .last_step = -1};
  return TSR_OK;
}

/* Larger than one allocation somewhere: cut into pieces there, and shared with nobody. */
static bool is_cut(const tsr_plan *plan, const tsr_plan_buffer *buffer) {
  for (int r = 0; r < plan->decision.active_count; r++) {
    const tsr_cluster_member *member = &plan->cluster->members[plan->decision.active[r]];
    if ((uint64_t)buffer_bytes(plan, buffer, r) > member->max_allocation_bytes) return true;
  }
  return false;
}

/* The buffer whose memory this one takes over because its step works in place; -1 = none. */
static int takes_over(const tsr_plan *plan, const tsr_plan_buffer *buffer) {
  const tsr_graph *graph = plan->graph;
  const tsr_graph_value *value = tsr_graph_at(graph, buffer->value);
  if (value->producer < 0) return -1;
  const tsr_step *step = &plan->steps[buffer->first_step];
  bool is_view;
  if (step->kind == TSR_STEP_CONVERT)
    return reduces_in_place(plan, buffer->first_step)
               ? tsr_plan_find_buffer(plan, step->value, step->from, &is_view)
               : -1;
  const tsr_node *node = &graph->nodes[step->node];
  if (!is_elementwise(node->op)) return -1;
  tsr_rule rules[TSR_RULES_MAX];
  const tsr_rule *rule = rule_of(plan, step->node, rules);
  for (int j = 0; j < node->input_count; j++) {
    int from = tsr_plan_find_buffer(plan, node->inputs[j], rule->in[j], &is_view);
    if (from < 0 || is_view || !same_shape(graph, node->inputs[j], buffer->value)) continue;
    const tsr_plan_buffer *source = &plan->buffers[from];
    if (source->place != buffer->place || source->panels != buffer->panels) continue;
    bool target = tsr_graph_at(graph, source->value)->assigned.id == buffer->value.id &&
                  tsr_plan_updates_in_place(plan, source->value);
    bool dying = source->last_step == buffer->first_step &&
                 tsr_graph_at(graph, source->value)->producer >= 0 &&
                 line_of(tsr_graph_at(graph, source->value)) == line_of(value);
    if (target || dying) return from;
  }
  return -1;
}

/* A storage of the same line that is free by then; the one that grows least. -1 = none. */
static int free_storage(const tsr_plan *plan, const tsr_plan_buffer *buffer, tsr_memory_line line) {
  int best = -1;
  int64_t best_growth = INT64_MAX;
  for (int i = 0; i < plan->storage_count; i++) {
    const tsr_plan_storage *storage = &plan->storages[i];
    if (storage->line != line || storage->last_step < 0 || storage->last_step >= buffer->first_step) continue;
    int64_t growth = 0;
    for (int r = 0; r < plan->decision.active_count; r++) {
      int64_t more = buffer_bytes(plan, buffer, r) - storage->bytes[r];
      if (more > 0) growth = more > INT64_MAX - growth ? INT64_MAX : growth + more;
    }
    if (growth >= best_growth) continue;
    best = i;
    best_growth = growth;
  }
  return best;
}

static tsr_status place_buffer(tsr_plan *plan, tsr_plan_buffer *buffer, tsr_error *error) {
  tsr_memory_line line = line_of(tsr_graph_at(plan->graph, buffer->value));
  bool stays = buffer->last_step == plan->step_count, cut = is_cut(plan, buffer);
  int over = takes_over(plan, buffer);
  if (over >= 0)
    buffer->storage = plan->buffers[over].storage;
  else if (!stays && !cut)
    buffer->storage = free_storage(plan, buffer, line);
  if (buffer->storage < 0) TSR_RETURN_IF_FAILED(add_storage(plan, line, &buffer->storage, error));
  tsr_plan_storage *storage = &plan->storages[buffer->storage];
  for (int r = 0; r < plan->decision.active_count; r++) {
    int64_t bytes = buffer_bytes(plan, buffer, r);
    if (bytes > storage->bytes[r]) storage->bytes[r] = bytes;
  }
  storage->last_step = stays || cut ? -1 : buffer->last_step;
  return TSR_OK;
}

static tsr_status add_workspace(tsr_plan *plan, tsr_error *error) {
  int index = -1;
  for (int i = 0; i < plan->step_count; i++) {
    const tsr_step *step = &plan->steps[i];
    if (step->kind != TSR_STEP_NODE) continue;
    const tsr_node *node = &plan->graph->nodes[step->node];
    bool reduces = node->op == TSR_OPERATOR_REDUCE || node->op == TSR_OPERATOR_SQUARED_ERROR;
    if (node->op != TSR_OPERATOR_MATMUL && !reduces) continue;
    tsr_rule rules[TSR_RULES_MAX];
    const tsr_rule *rule = rule_of(plan, step->node, rules);
    for (int r = 0; r < plan->decision.active_count; r++) {
      size_t bytes = tsr_reduce_workspace_bytes();
      if (!reduces) {
        tsr_shape inputs[TSR_NODE_INPUTS_MAX], output = {0};
        int64_t m, n, k;
        for (int j = 0; j < node->input_count; j++)
          inputs[j] = tsr_plan_local_shape(plan, node->inputs[j], rule->in[j], r);
        tsr_plan_chunk_shapes(plan, step, inputs, &output);
        tsr_matmul_extents(node, inputs, &m, &n, &k);
        tsr_dtype dtype = tsr_matmul_dtype(plan->graph, node);
        const tsr_gemm_facts *facts = &plan->cluster->members[plan->decision.active[r]].gemm[dtype];
        bytes = tsr_gemm_workspace_bytes(facts, (tsr_gemm_types)dtype, m, n, k);
      }
      if (!bytes) continue;
      if (index < 0) TSR_RETURN_IF_FAILED(add_storage(plan, TSR_MEMORY_WORKSPACE, &index, error));
      if ((int64_t)bytes > plan->storages[index].bytes[r]) plan->storages[index].bytes[r] = (int64_t)bytes;
    }
  }
  return TSR_OK;
}

int tsr_plan_workspace(const tsr_plan *plan) {
  for (int i = 0; i < plan->storage_count; i++)
    if (plan->storages[i].line == TSR_MEMORY_WORKSPACE) return i;
  return -1;
}

/* Host memory for collectives: they run one after another, so the largest needs count. */
static void count_host_bytes(tsr_plan *plan) {
  for (int r = 0; r < plan->decision.active_count; r++) {
    size_t scratch = 0, packing = 0;
    for (int i = 0; i < plan->step_count; i++) {
      if (plan->steps[i].kind != TSR_STEP_CONVERT) continue;
      size_t own, all = tsr_plan_convert_host_bytes(plan, &plan->steps[i], r, &own);
      if (own > scratch) scratch = own;
      if (all - own > packing) packing = all - own;
    }
    plan->members[plan->decision.active[r]].host_bytes = scratch + packing;
  }
}

tsr_status tsr_plan_allocate(tsr_plan *plan, tsr_error *error) {
  TSR_RETURN_IF_FAILED(make_buffers(plan, error));
  for (int i = 0; i < plan->buffer_count; i++)
    TSR_RETURN_IF_FAILED(place_buffer(plan, &plan->buffers[i], error));
  TSR_RETURN_IF_FAILED(add_workspace(plan, error));
  for (int i = 0; i < plan->storage_count; i++)
    for (int r = 0; r < plan->decision.active_count; r++) {
      tsr_plan_member *member = &plan->members[plan->decision.active[r]];
      add_bytes(&member->lines[plan->storages[i].line], (uint64_t)plan->storages[i].bytes[r]);
      add_bytes(&member->bytes, (uint64_t)plan->storages[i].bytes[r]);
    }
  count_host_bytes(plan);
  return TSR_OK;
}
