#include "plan/plan_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/json.h"
#include "base/memory.h"
#include "plan/buffers.h"
#include "plan/chunks.h"
#include "plan/cuts.h"
#include "plan/decide.h"
#include "plan/plan_text.h"
#include <tessera/version.h>

static const char schema[] = "tessera.plan/1";
static const char *const replicate_names[] = {
#define TSR_REPLICATE_TEXT(name, text) text,
    TSR_REPLICATE_LIST(TSR_REPLICATE_TEXT)
#undef TSR_REPLICATE_TEXT
};

const char *tsr_replicate_name(tsr_replicate replicate) {
  return replicate_names[replicate];
}

static const char *value_name(const tsr_graph *graph, tsr_value value) {
  const tsr_graph_value *at = tsr_graph_at(graph, value);
  return at->name ? at->name : at->output ? at->output : "";
}

static json_t *lines_to_json(const tsr_plan_member *member) {
  json_t *lines = json_object();
  for (int line = 0; line < TSR_MEMORY_LINES; line++)
    json_object_set_new(lines, tsr_memory_line_name((tsr_memory_line)line),
                        json_integer((json_int_t)member->lines[line]));
  return lines;
}

static json_t *ranks_to_json(const tsr_plan *plan) {
  json_t *ranks = json_array();
  for (int i = 0; i < plan->cluster->member_count; i++) {
    const tsr_plan_member *member = &plan->members[i];
    json_array_append_new(
        ranks, json_pack("{s:i, s:s, s:b, s:f, s:I, s:o, s:I, s:I, s:I, s:I, s:f}", "rank", i, "device",
                         member->device, "active", (int)member->active, "share", member->share, "bytes",
                         (json_int_t)member->bytes, "lines", lines_to_json(member), "host_bytes",
                         (json_int_t)member->host_bytes, "reserve_bytes", (json_int_t)member->reserve_bytes,
                         "memory_bytes", (json_int_t)member->memory_bytes, "sent_bytes",
                         (json_int_t)member->sent_bytes, "compute_seconds", member->compute_seconds));
  }
  return ranks;
}

static const char *step_op(const tsr_plan *plan, const tsr_step *step) {
  if (step->kind == TSR_STEP_CONVERT) return tsr_collective_kind_name(step->collective);
  if (step->kind == TSR_STEP_COPY) return "copy";
  return tsr_operator_rules_of(plan->graph->nodes[step->node].op)->name;
}

static json_t *fused_to_json(const tsr_plan *plan, const tsr_step *step) {
  json_t *fused = json_array();
  for (int i = 0; i < step->fused_count; i++)
    json_array_append_new(fused, json_string(tsr_plan_fused_name(plan, &step->fused[i])));
  return fused;
}

static json_t *steps_to_json(const tsr_plan *plan) {
  json_t *steps = json_array();
  for (int i = 0; i < plan->step_count; i++) {
    const tsr_step *step = &plan->steps[i];
    bool convert = step->kind == TSR_STEP_CONVERT;
    json_t *json = json_pack("{s:s, s:i, s:s, s:s, s:I, s:f, s:s}", "op", step_op(plan, step), "value",
                             (int)step->value.id, "name", value_name(plan->graph, step->value), "layout",
                             tsr_place_name(step->to), "bytes", (json_int_t)step->bytes, "seconds",
                             step->seconds, "bound_by", step->bound_by ? step->bound_by : "");
    json_object_set_new(json, "collective",
                        convert ? json_string(tsr_collective_kind_name(step->collective)) : json_null());
    if (convert) json_object_set_new(json, "from", json_string(tsr_place_name(step->from)));
    if (convert) json_object_set_new(json, "algorithm", json_string(tsr_algorithm_name(step->algorithm)));
    if (step->chunks > 1) json_object_set_new(json, "chunk", json_pack("[i, i]", step->chunk, step->chunks));
    if (step->waits_for >= 0) json_object_set_new(json, "waits_for", json_integer(step->waits_for));
    if (step->fused_count) json_object_set_new(json, "fused", fused_to_json(plan, step));
    if (step->kind == TSR_STEP_NODE && plan->graph->nodes[step->node].op == TSR_OPERATOR_MATMUL) {
      const tsr_cluster_member *member = &plan->cluster->members[plan->decision.active[0]];
      tsr_dtype dtype = tsr_matmul_dtype(plan->graph, &plan->graph->nodes[step->node]);
      json_object_set_new(json, "family", json_string(tsr_gemm_family_name(member->gemm[dtype].family)));
    }
    json_array_append_new(steps, json);
  }
  return steps;
}

static json_t *decision_to_json(const tsr_plan *plan) {
  const tsr_decision *decision = &plan->decision;
  json_t *active = json_array(), *offsets = json_array(), *choices = json_array(), *rules = json_array(),
         *chunks = json_array(), *algorithms = json_array();
  int n = decision->active_count;
  for (int r = 0; r < n; r++) json_array_append_new(active, json_integer(decision->active[r]));
  for (size_t dim = 0; dim < plan->dim_count; dim++) {
    json_t *row = json_array();
    for (int r = 0; r <= n; r++)
      json_array_append_new(row, json_integer(decision->offsets[dim * (size_t)(n + 1) + (size_t)r]));
    json_array_append_new(offsets, row);
  }
  for (size_t id = 1; id < plan->graph->value_count; id++)
    json_array_append_new(choices, json_pack("[i, i]", (int)decision->choices[id].produced,
                                             (int)decision->choices[id].present));
  for (size_t i = 0; i < plan->graph->node_count; i++)
    json_array_append_new(rules, json_integer(decision->rules[i]));
  for (size_t id = 1; id < plan->graph->value_count; id++)
    json_array_append_new(chunks, json_integer(decision->chunks[id] > 1 ? decision->chunks[id] : 1));
  for (int i = 0; i < decision->algorithm_count; i++)
    json_array_append_new(algorithms,
                          json_string(tsr_algorithm_name((tsr_algorithm)decision->algorithms[i])));
  return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "active", active, "offsets", offsets, "layouts",
                   choices, "rules", rules, "chunks", chunks, "algorithms", algorithms, "wire",
                   tsr_dtype_name(plan->options.wire));
}

tsr_status tsr_plan_hash(const tsr_plan *plan, uint64_t *out, tsr_error *error) {
  char variant[512];
  json_t *members = json_array();
  for (int i = 0; i < plan->cluster->member_count; i++) {
    const tsr_cluster_member *member = &plan->cluster->members[i];
    for (int dtype = 0; dtype < TSR_CLUSTER_DTYPES; dtype++)
      json_array_append_new(members,
                            json_pack("[s, s, s, I]", member->name, member->driver,
                                      tsr_gemm_facts_format(&member->gemm[dtype], variant, sizeof variant),
                                      (json_int_t)member->max_allocation_bytes));
  }
  json_t *all =
      json_pack("[s, o, o, o]", TSR_VERSION, tsr_graph_to_json(plan->graph), decision_to_json(plan), members);
  char *text = all ? json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17)) : NULL;
  json_decref(all);
  if (!text) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to hash a plan");
  *out = XXH3_64bits(text, strlen(text));
  free(text);
  return TSR_OK;
}

json_t *tsr_plan_to_json(const tsr_plan *plan) {
  char hash[24];
  snprintf(hash, sizeof hash, "%016" PRIx64, plan->hash);
  return json_pack("{s:s, s:s, s:s, s:b, s:b, s:f, s:s, s:f, s:f, s:o, s:o, s:{s:s, s:f, s:b, s:i, s:s, "
                   "s:s}, s:o, s:o, s:o}",
                   "schema", schema, "version", TSR_VERSION, "hash", hash, "feasible", (int)plan->feasible,
                   "exact", (int)plan->exact, "gap", plan->gap, "reason", plan->reason, "predicted_seconds",
                   plan->predicted_seconds, "flops", tsr_graph_flops(plan->graph), "ranks",
                   ranks_to_json(plan), "steps", steps_to_json(plan), "options", "replicate",
                   replicate_names[plan->options.replicate], "reserve_fraction",
                   plan->options.reserve_fraction, "keep_all", (int)plan->options.keep_all, "chunks",
                   plan->options.chunks, "collective", tsr_algorithm_name(plan->options.collective), "wire",
                   tsr_dtype_name(plan->options.wire), "decision", decision_to_json(plan), "graph",
                   tsr_graph_to_json(plan->graph), "cluster", tsr_cluster_to_json(plan->cluster));
}

/* ---- reading ---- */

static tsr_status algorithm_from_json(const json_t *json, const char *path, tsr_algorithm *out,
                                      tsr_error *error) {
  const char *name = json_string_value(json);
  for (int i = 0; name && i < TSR_ALGORITHM_COUNT; i++)
    if (!strcmp(name, tsr_algorithm_name((tsr_algorithm)i))) {
      *out = (tsr_algorithm)i;
      return TSR_OK;
    }
  return tsr_fail(error, TSR_ERROR_FORMAT, "%s: \"%s\": expected the name of an algorithm", path,
                  name ? name : "");
}

static tsr_status wire_from_json(const json_t *json, tsr_plan_options *options, tsr_error *error) {
  static const tsr_dtype wires[] = {TSR_F32, TSR_BF16, TSR_F16};
  char name[16];
  TSR_RETURN_IF_FAILED(tsr_json_text(json, "plan.options", "wire", name, sizeof name, error));
  for (size_t i = 0; i < sizeof wires / sizeof *wires; i++)
    if (!strcmp(name, tsr_dtype_name(wires[i]))) {
      options->wire = wires[i];
      return TSR_OK;
    }
  return tsr_fail(error, TSR_ERROR_FORMAT, "plan.options.wire: \"%s\": expected f32, bf16 or f16", name);
}

static tsr_status options_from_json(const json_t *document, tsr_plan_options *options, tsr_error *error) {
  json_t *json;
  char name[16];
  tsr_plan_options_init(options);
  TSR_RETURN_IF_FAILED(tsr_json_object(document, "plan", "options", &json, error));
  TSR_RETURN_IF_FAILED(tsr_json_text(json, "plan.options", "replicate", name, sizeof name, error));
  TSR_RETURN_IF_FAILED(
      tsr_json_real(json, "plan.options", "reserve_fraction", -1, &options->reserve_fraction, error));
  if (options->reserve_fraction >= 1)
    return tsr_fail(error, TSR_ERROR_FORMAT, "plan.options.reserve_fraction: %g is not below 1",
                    options->reserve_fraction);
  TSR_RETURN_IF_FAILED(tsr_json_bool(json, "plan.options", "keep_all", &options->keep_all, error));
  int64_t chunks;
  TSR_RETURN_IF_FAILED(tsr_json_integer(json, "plan.options", "chunks", 0, TSR_CHUNKS_MAX, &chunks, error));
  options->chunks = (int)chunks;
  TSR_RETURN_IF_FAILED(algorithm_from_json(json_object_get(json, "collective"), "plan.options.collective",
                                           &options->collective, error));
  TSR_RETURN_IF_FAILED(wire_from_json(json, options, error));
  for (int i = 0; i < 3; i++)
    if (!strcmp(name, replicate_names[i])) {
      options->replicate = (tsr_replicate)i;
      return TSR_OK;
    }
  return tsr_fail(error, TSR_ERROR_FORMAT, "plan.options.replicate: \"%s\": expected never, small or auto",
                  name);
}

/* A row of `count` integers of an array, each within [low, high]. */
static tsr_status read_integers(const json_t *array, const char *path, size_t count, int64_t low,
                                int64_t high, int64_t *out, tsr_error *error) {
  if (!json_is_array(array) || json_array_size(array) != count)
    return tsr_fail(error, TSR_ERROR_FORMAT, "%s: expected an array of %zu integers", path, count);
  for (size_t i = 0; i < count; i++) {
    const json_t *item = json_array_get(array, i);
    if (!json_is_integer(item) || json_integer_value(item) < low || json_integer_value(item) > high)
      return tsr_fail(error, TSR_ERROR_FORMAT, "%s[%zu]: expected an integer in [%lld, %lld]", path, i,
                      (long long)low, (long long)high);
    out[i] = json_integer_value(item);
  }
  return TSR_OK;
}

static tsr_status active_from_json(tsr_plan *plan, const json_t *json, tsr_error *error) {
  const json_t *active = json_object_get(json, "active");
  size_t n = json_array_size(active), members = (size_t)plan->cluster->member_count;
  if (n < 1 || n > members)
    return tsr_fail(error, TSR_ERROR_FORMAT, "plan.decision.active: %zu members of %zu", n, members);
  tsr_decision *decision = &plan->decision;
  decision->active_count = (int)n;
  decision->active = tsr_calloc(n, sizeof *decision->active);
  int64_t *numbers = tsr_calloc(n, sizeof *numbers);
  tsr_status status = TSR_OK;
  if (!decision->active || !numbers) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for %zu members", n);
  TSR_TRY(read_integers(active, "plan.decision.active", n, 0, (int64_t)members - 1, numbers, error));
  for (size_t r = 0; r < n; r++) {
    if (r && numbers[r] <= numbers[r - 1])
      TSR_THROW(TSR_ERROR_FORMAT, "plan.decision.active: members are not in ascending order");
    decision->active[r] = (int)numbers[r];
  }
done:
  free(numbers);
  return status;
}

static tsr_status offsets_from_json(tsr_plan *plan, const json_t *json, tsr_error *error) {
  json_t *rows;
  size_t n = (size_t)plan->decision.active_count;
  TSR_RETURN_IF_FAILED(tsr_json_array(json, "plan.decision", "offsets", &rows, error));
  if (json_array_size(rows) != plan->dim_count)
    return tsr_fail(error, TSR_ERROR_FORMAT, "plan.decision.offsets: %zu rows, the graph has %zu dimensions",
                    json_array_size(rows), plan->dim_count);
  plan->decision.dim_count = plan->dim_count;
  plan->decision.offsets = tsr_calloc(plan->dim_count * (n + 1), sizeof *plan->decision.offsets);
  if (!plan->decision.offsets) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for offsets");
  for (size_t dim = 0; dim < plan->dim_count; dim++) {
    int64_t *row = plan->decision.offsets + dim * (n + 1), extent = plan->dim_extents[dim];
    char path[64];
    snprintf(path, sizeof path, "plan.decision.offsets[%zu]", dim);
    TSR_RETURN_IF_FAILED(read_integers(json_array_get(rows, dim), path, n + 1, 0, extent, row, error));
    for (size_t r = 0; r < n; r++)
      if (row[r] > row[r + 1]) return tsr_fail(error, TSR_ERROR_FORMAT, "%s: offsets descend", path);
    if (row[0] != 0 || row[n] != extent)
      return tsr_fail(error, TSR_ERROR_FORMAT, "%s: offsets do not run from 0 to %lld", path,
                      (long long)extent);
  }
  return TSR_OK;
}

/* A partial value can be reduced to a whole one or to shards, a shard gathered; nothing else is a conversion.
 */
static bool can_exist(tsr_choice choice, int axes) {
  tsr_place_set reachable = tsr_place_bit(choice.produced);
  if (choice.produced != TSR_PLACE_REPLICATE) reachable |= tsr_place_bit(TSR_PLACE_REPLICATE);
  for (tsr_place axis = 0; choice.produced < TSR_PLACE_REPLICATE && axis < axes; axis++)
    reachable |= tsr_place_bit(axis);
  return tsr_place_in(choice.present, choice.produced) && !(choice.present & ~reachable);
}

/* Layouts that a value can exist in: its axes, what its node can make, and what collectives make of that.
 * Values that nobody wants have none. */
static tsr_status choices_from_json(tsr_plan *plan, const json_t *json, tsr_error *error) {
  json_t *rows;
  const tsr_graph *graph = plan->graph;
  TSR_RETURN_IF_FAILED(tsr_json_array(json, "plan.decision", "layouts", &rows, error));
  if (json_array_size(rows) + 1 != graph->value_count)
    return tsr_fail(error, TSR_ERROR_FORMAT, "plan.decision.layouts: %zu rows, the graph has %zu values",
                    json_array_size(rows), graph->value_count - 1);
  plan->decision.value_count = graph->value_count;
  plan->decision.choices = tsr_calloc(graph->value_count, sizeof *plan->decision.choices);
  if (!plan->decision.choices) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for layouts");
  for (size_t id = 1; id < graph->value_count; id++) {
    int64_t pair[2];
    char path[64];
    snprintf(path, sizeof path, "plan.decision.layouts[%zu]", id - 1);
    TSR_RETURN_IF_FAILED(
        read_integers(json_array_get(rows, id - 1), path, 2, TSR_PLACE_MAX, (1 << 7) - 1, pair, error));
    int axes = graph->values[id].shape.axes, sets = 1 << (axes - TSR_PLACE_MAX);
    if (pair[0] >= axes || pair[1] < 0 || pair[1] >= sets)
      return tsr_fail(error, TSR_ERROR_FORMAT, "%s: a value of %d axes has no such layout", path, axes);
    plan->decision.choices[id] = (tsr_choice){(tsr_place)pair[0], (tsr_place_set)pair[1]};
    if (pair[1] && !can_exist(plan->decision.choices[id], axes))
      return tsr_fail(error, TSR_ERROR_FORMAT, "%s: no collective turns one of these layouts into the other",
                      path);
  }
  return TSR_OK;
}

static bool served(tsr_choice choice, tsr_place place) {
  return tsr_place_in(choice.present, place) ||
         (place >= 0 && tsr_place_in(choice.present, TSR_PLACE_REPLICATE));
}

/* Every live node has a rule that fits the layouts; what a dead node makes is used by nobody. */
static tsr_status rules_from_json(tsr_plan *plan, const json_t *json, tsr_error *error) {
  const tsr_graph *graph = plan->graph;
  tsr_status status = TSR_OK;
  size_t count = graph->node_count;
  int64_t *numbers = tsr_calloc(count, sizeof *numbers);
  plan->decision.rules = tsr_calloc(count, sizeof *plan->decision.rules);
  if (!numbers || !plan->decision.rules) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for %zu rules", count);
  TSR_TRY(read_integers(json_object_get(json, "rules"), "plan.decision.rules", count, -1, TSR_RULES_MAX - 1,
                        numbers, error));
  for (size_t i = 0; i < count; i++) {
    const tsr_node *node = &graph->nodes[i];
    tsr_rule rules[TSR_RULES_MAX];
    int found = tsr_operator_rules_of(node->op)->rules(graph, node, rules);
    plan->decision.rules[i] = (int)numbers[i];
    if (numbers[i] < 0) continue;
    bool fits =
        numbers[i] < found && rules[numbers[i]].out == plan->decision.choices[node->output.id].produced;
    for (int j = 0; fits && j < node->input_count; j++) {
      int producer = tsr_graph_at(graph, node->inputs[j])->producer;
      fits = served(plan->decision.choices[node->inputs[j].id], rules[numbers[i]].in[j]) &&
             (producer < 0 || numbers[producer] >= 0);
    }
    if (!fits)
      TSR_THROW(TSR_ERROR_FORMAT,
                "plan.decision.rules[%zu]: rule %lld does not fit the layouts of its values", i,
                (long long)numbers[i]);
  }
done:
  free(numbers);
  return status;
}

static tsr_status chunks_from_json(tsr_plan *plan, const json_t *json, tsr_error *error) {
  size_t count = plan->graph->value_count - 1;
  int64_t *numbers = tsr_calloc(count, sizeof *numbers);
  tsr_status status = TSR_OK;
  plan->decision.chunks = tsr_calloc(count + 1, sizeof *plan->decision.chunks);
  if (!numbers || !plan->decision.chunks)
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for the chunks of %zu values", count);
  TSR_TRY(read_integers(json_object_get(json, "chunks"), "plan.decision.chunks", count, 1, TSR_CHUNKS_MAX,
                        numbers, error));
  for (size_t i = 0; i < count; i++) plan->decision.chunks[i + 1] = (uint8_t)numbers[i];
done:
  free(numbers);
  return status;
}

static tsr_status algorithms_from_json(tsr_plan *plan, const json_t *json, tsr_error *error) {
  char path[64];
  json_t *array;
  TSR_RETURN_IF_FAILED(tsr_json_array(json, "plan.decision", "algorithms", &array, error));
  size_t count = json_array_size(array);
  plan->decision.algorithms = tsr_calloc(count + 1, sizeof *plan->decision.algorithms);
  if (!plan->decision.algorithms || count > INT32_MAX)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %zu algorithms", count);
  for (size_t i = 0; i < count; i++) {
    tsr_algorithm algorithm = TSR_ALGORITHM_AUTO;
    snprintf(path, sizeof path, "plan.decision.algorithms[%zu]", i);
    TSR_RETURN_IF_FAILED(algorithm_from_json(json_array_get(array, i), path, &algorithm, error));
    plan->decision.algorithms[i] = (uint8_t)algorithm;
  }
  plan->decision.algorithm_count = (int)count;
  return TSR_OK;
}

/* Pinned offsets are what they are pinned to. */
static tsr_status check_pins(const tsr_plan *plan, tsr_error *error) {
  size_t parts = (size_t)plan->decision.active_count;
  for (size_t id = 1; id < plan->graph->value_count; id++) {
    const tsr_graph_value *value = &plan->graph->values[id];
    if (!value->pin_offsets) continue;
    size_t dim = plan->dims[id * TSR_AXES_MAX + (size_t)value->pin.on[0].axis];
    if ((size_t)value->pin_parts != parts ||
        memcmp(plan->decision.offsets + dim * (parts + 1), value->pin_offsets, (parts + 1) * sizeof(int64_t)))
      return tsr_fail(error, TSR_ERROR_FORMAT, "plan.decision.offsets[%zu]: not where value %zu is pinned",
                      dim, id);
  }
  return TSR_OK;
}

/* What must stand at the end is provided for. */
static tsr_status check_ends(const tsr_plan *plan, tsr_error *error) {
  const tsr_graph *graph = plan->graph;
  for (size_t id = 1; id < graph->value_count; id++) {
    const tsr_graph_value *value = &graph->values[id];
    tsr_choice choice = plan->decision.choices[id];
    bool leaf = value->producer < 0, live = leaf || plan->decision.rules[value->producer] >= 0;
    tsr_value self = {(uint32_t)id};
    bool fits = !live || tsr_place_in(choice.present, choice.produced);
    if (leaf)
      fits &= choice.produced >= TSR_PLACE_REPLICATE && served(choice, tsr_plan_final_place(plan, self));
    if (value->output) fits &= live && served(choice, tsr_plan_final_place(plan, self));
    if (value->assigned.id) {
      int producer = graph->values[value->assigned.id].producer;
      fits &= (producer < 0 || plan->decision.rules[producer] >= 0) &&
              served(plan->decision.choices[value->assigned.id], choice.produced);
    }
    if (!fits)
      return tsr_fail(error, TSR_ERROR_FORMAT, "plan.decision.layouts[%zu]: not a layout it can end in",
                      id - 1);
  }
  return TSR_OK;
}

static tsr_status summary_from_json(tsr_plan *plan, const json_t *document, tsr_error *error) {
  char hash[24], expected[24];
  TSR_RETURN_IF_FAILED(tsr_json_bool(document, "plan", "feasible", &plan->feasible, error));
  TSR_RETURN_IF_FAILED(tsr_json_bool(document, "plan", "exact", &plan->exact, error));
  TSR_RETURN_IF_FAILED(tsr_json_real(document, "plan", "gap", 0, &plan->gap, error));
  TSR_RETURN_IF_FAILED(tsr_json_text(document, "plan", "reason", plan->reason, sizeof plan->reason, error));
  TSR_RETURN_IF_FAILED(tsr_json_text(document, "plan", "hash", hash, sizeof hash, error));
  TSR_RETURN_IF_FAILED(tsr_plan_hash(plan, &plan->hash, error));
  snprintf(expected, sizeof expected, "%016" PRIx64, plan->hash);
  if (strcmp(hash, expected))
    return tsr_fail(error, TSR_ERROR_MISMATCH,
                    "plan: its hash is %s, its contents give %s: the file was changed, or "
                    "another version wrote it; plan again",
                    hash, expected);
  return TSR_OK;
}

static tsr_status plan_from_json(tsr_context *context, const json_t *document, tsr_plan **out,
                                 tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_graph *graph = NULL;
  tsr_cluster *cluster = NULL;
  tsr_plan *plan = NULL;
  tsr_plan_options options;
  json_t *json;
  TSR_TRY(options_from_json(document, &options, error));
  TSR_TRY(tsr_json_object(document, "plan", "graph", &json, error));
  TSR_TRY(tsr_graph_from_json(context, json, &graph, error));
  TSR_TRY(tsr_json_object(document, "plan", "cluster", &json, error));
  TSR_TRY(tsr_cluster_from_json(context, json, &cluster, error));
  status = tsr_plan_new(context, graph, cluster, &options, &plan, error);
  graph = NULL;
  cluster = NULL;
  if (status != TSR_OK) goto done;
  TSR_TRY(tsr_json_object(document, "plan", "decision", &json, error));
  TSR_TRY(active_from_json(plan, json, error));
  TSR_TRY(offsets_from_json(plan, json, error));
  TSR_TRY(choices_from_json(plan, json, error));
  TSR_TRY(rules_from_json(plan, json, error));
  TSR_TRY(chunks_from_json(plan, json, error));
  TSR_TRY(algorithms_from_json(plan, json, error));
  TSR_TRY(check_pins(plan, error));
  TSR_TRY(check_ends(plan, error));
  TSR_TRY(summary_from_json(plan, document, error));
  tsr_cuts_set_straggling(plan);
  TSR_TRY(tsr_plan_lower(plan, error));
  if (plan->feasible && !tsr_plan_fits(plan))
    TSR_THROW(TSR_ERROR_FORMAT,
              "plan.feasible: true, but it does not fit the memory of its cluster; plan again");
  *out = plan;
  plan = NULL;
done:
  tsr_graph_destroy(&graph);
  tsr_cluster_destroy(&cluster);
  tsr_plan_destroy(&plan);
  return status;
}

tsr_status tsr_plan_parse(tsr_context *context, const char *json, size_t bytes, tsr_plan **out,
                          tsr_error *error) {
  json_t *document;
  TSR_RETURN_IF_FAILED(tsr_json_parse(json, bytes, "plan", schema, &document, error));
  tsr_status status = plan_from_json(context, document, out, error);
  json_decref(document);
  return status;
}

tsr_status tsr_plan_read(tsr_context *context, const char *path, tsr_plan **out, tsr_error *error) {
  char *text;
  size_t bytes;
  TSR_RETURN_IF_FAILED(tsr_file_read(path, &text, &bytes, error));
  tsr_status status = tsr_plan_parse(context, text, bytes, out, error);
  if (status != TSR_OK) tsr_error_wrap(error, "%s", path);
  free(text);
  return status;
}
