#include "plan/plan.h"

#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "plan/chunks.h"
#include "plan/decide.h"
#include "plan/plan_json.h"
#include <tessera/group.h>

static const char *const line_names[TSR_MEMORY_LINES] = {"weights", "gradients", "state", "activations",
                                                         "workspace"};

const char *tsr_memory_line_name(tsr_memory_line line) {
  return line < TSR_MEMORY_LINES ? line_names[line] : "?";
}

void tsr_plan_options_init(tsr_plan_options *options) {
  *options = (tsr_plan_options){.struct_size = sizeof *options};
}

void tsr_plan_release(tsr_plan *plan) {
  tsr_plan_clear_lowered(plan);
  tsr_decision_finish(&plan->decision);
  free(plan->steps);
  free(plan->buffers);
  free(plan->storages);
  free(plan->members);
  tsr_cluster_destroy(&plan->cluster);
}

void tsr_plan_destroy(tsr_plan **plan) {
  if (!*plan) return;
  tsr_plan_release(*plan);
  tsr_graph_destroy(&(*plan)->graph);
  free((*plan)->dims);
  free((*plan)->dim_extents);
  free(*plan);
  *plan = NULL;
}

tsr_status tsr_plan_new(tsr_context *context, tsr_graph *graph, tsr_cluster *cluster,
                        const tsr_plan_options *options, tsr_plan **out, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_plan *plan = tsr_calloc(1, sizeof *plan);
  if (!plan) {
    tsr_graph_destroy(&graph);
    tsr_cluster_destroy(&cluster);
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a plan");
  }
  plan->context = context;
  plan->graph = graph;
  plan->cluster = cluster;
  plan->options = *options;
  plan->members = tsr_calloc((size_t)cluster->member_count, sizeof *plan->members);
  if (!plan->members) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for %d members", cluster->member_count);
  TSR_TRY(tsr_graph_dimensions(graph, &plan->dims, &plan->dim_extents, &plan->dim_count, error));
  *out = plan;
  plan = NULL;
done:
  tsr_plan_destroy(&plan);
  return status;
}

static tsr_status check_options(const tsr_plan_options *options, tsr_error *error) {
  TSR_CHECK_OPTIONS_SIZE(options, tsr_plan_options);
  if (!(options->reserve_fraction < 1))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "reserve_fraction %g: expected less than 1",
                    options->reserve_fraction);
  if (options->replicate > TSR_REPLICATE_AUTO)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "replicate %d: expected SMALL, NEVER or AUTO",
                    (int)options->replicate);
  if (options->chunks < 0 || options->chunks > TSR_CHUNKS_MAX)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "chunks %d: expected 0 to %d", options->chunks,
                    TSR_CHUNKS_MAX);
  if ((unsigned)options->collective >= TSR_ALGORITHM_COUNT)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "collective %d: expected 0 to %d",
                    (int)options->collective, TSR_ALGORITHM_COUNT - 1);
  if (options->wire != TSR_F32 && options->wire != TSR_BF16 && options->wire != TSR_F16)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "wire %s: expected f32, bf16 or f16",
                    tsr_dtype_name(options->wire));
  return TSR_OK;
}

static const char *pin_name(const tsr_graph_value *value) {
  return value->name ? value->name : value->output ? value->output : "a value";
}

/* The first value whose pin cuts the same dimension as value id's; id itself if it is the first. */
static size_t first_pin(const tsr_plan *plan, size_t id) {
  const tsr_graph_value *values = plan->graph->values;
  uint32_t dim = plan->dims[id * TSR_AXES_MAX + (size_t)values[id].pin.on[0].axis];
  size_t first = 1;
  while (!values[first].pin_offsets ||
         plan->dims[first * TSR_AXES_MAX + (size_t)values[first].pin.on[0].axis] != dim)
    first++;
  return first;
}

/* Pins with offsets must cut the axis for exactly these members, and pins of one dimension in the same
 * places. */
static tsr_status check_pins(const tsr_plan *plan, tsr_error *error) {
  for (size_t id = 1; id < plan->graph->value_count; id++) {
    const tsr_graph_value *value = &plan->graph->values[id];
    if (!value->pin_offsets) continue;
    const char *name = pin_name(value);
    if (value->pin_parts != plan->cluster->member_count)
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                      "%s is pinned to %d parts, the cluster has %d members", name, value->pin_parts,
                      plan->cluster->member_count);
    const tsr_graph_value *first = &plan->graph->values[first_pin(plan, id)];
    if (memcmp(first->pin_offsets, value->pin_offsets,
               (size_t)(value->pin_parts + 1) * sizeof *value->pin_offsets))
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                      "\"%s\" and \"%s\" are pinned at different offsets along one dimension",
                      pin_name(first), name);
  }
  return TSR_OK;
}

tsr_status tsr_plan_create(tsr_graph *graph, const tsr_cluster *cluster, const tsr_plan_options *options,
                           tsr_plan **out, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_plan_options defaults;
  tsr_plan_options_init(&defaults);
  tsr_graph *own_graph = NULL;
  tsr_cluster *own_cluster = NULL;
  tsr_plan *plan = NULL;
  *out = NULL;
  if (!options) options = &defaults;
  TSR_TRY(check_options(options, error));
  graph->frozen = true;
  TSR_TRY(tsr_graph_copy(graph, &own_graph, error));
  TSR_TRY(tsr_cluster_copy(cluster, &own_cluster, error));
  status = tsr_plan_new(cluster->context, own_graph, own_cluster, options, &plan, error);
  own_graph = NULL;
  own_cluster = NULL;
  if (status != TSR_OK) goto done;
  TSR_TRY(check_pins(plan, error));
  TSR_TRY(tsr_plan_decide(plan, error));
  TSR_TRY(tsr_plan_settle_algorithms(plan, error));
  TSR_TRY(tsr_plan_hash(plan, &plan->hash, error));
  if (!plan->feasible) status = tsr_fail(error, TSR_ERROR_INFEASIBLE, "%s", plan->reason);
  *out = plan;
  plan = NULL;
done:
  tsr_graph_destroy(&own_graph);
  tsr_cluster_destroy(&own_cluster);
  tsr_plan_destroy(&plan);
  return status;
}

const tsr_graph *tsr_plan_graph(const tsr_plan *plan) {
  return plan->graph;
}

const tsr_cluster *tsr_plan_cluster(const tsr_plan *plan) {
  return plan->cluster;
}

tsr_status tsr_plan_layout(const tsr_plan *plan, tsr_value value, tsr_layout *out, tsr_error *error) {
  if (!value.id || value.id >= plan->graph->value_count)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "value %u: the graph has values 1 to %zu", value.id,
                    plan->graph->value_count - 1);
  tsr_place place = tsr_plan_final_place(plan, value);
  if (place >= 0) {
    size_t dim = plan->dims[value.id * TSR_AXES_MAX + (size_t)place];
    int parts = plan->decision.active_count;
    *out = tsr_layout_shard(place, parts, plan->decision.offsets + dim * (size_t)(parts + 1));
  } else {
    *out = place == TSR_PLACE_REPLICATE ? tsr_layout_replicate()
                                        : tsr_layout_partial(place == TSR_PLACE_MAX ? TSR_MAX : TSR_SUM);
  }
  return TSR_OK;
}

void tsr_plan_summarize(const tsr_plan *plan, tsr_plan_summary *out) {
  *out = (tsr_plan_summary){.feasible = plan->feasible,
                            .exact = plan->exact,
                            .gap = plan->gap,
                            .reason = plan->reason,
                            .members = plan->cluster->member_count,
                            .active = plan->decision.active_count,
                            .predicted_seconds = plan->predicted_seconds,
                            .flops = tsr_graph_flops(plan->graph),
                            .hash = plan->hash};
}

tsr_status tsr_plan_get_member(const tsr_plan *plan, int member, tsr_plan_member *out, tsr_error *error) {
  if (member < 0 || member >= plan->cluster->member_count)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "member %d: the plan has members 0 to %d", member,
                    plan->cluster->member_count - 1);
  *out = plan->members[member];
  return TSR_OK;
}

static int append_text(void *user, const char *text, size_t bytes) {
  tsr_text_append(user, "%.*s", (int)bytes, text);
  return ((tsr_text *)user)->failed;
}

tsr_status tsr_plan_share(tsr_group *group, tsr_context *context, tsr_plan **inout, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_text text = {0};
  tsr_plan *plan = NULL;
  bool root = tsr_group_local_member(group, 0) == 0;
  if (root && !*inout)
    status = tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "member 0's process has no plan to share");
  else if (root)
    status = tsr_plan_write(*inout, TSR_PLAN_JSON, append_text, &text, error);
  TSR_TRY(tsr_group_agree(group, status, error, error));
  uint64_t bytes = text.bytes;
  TSR_TRY(tsr_group_broadcast(group, 0, &bytes, sizeof bytes, error));
  if (!root && !(text.data = tsr_malloc(bytes + 1)))
    status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a plan of %llu bytes",
                      (unsigned long long)bytes);
  TSR_TRY(tsr_group_agree(group, status, error, error));
  TSR_TRY(tsr_group_broadcast(group, 0, text.data, bytes, error));
  if (!root) status = tsr_plan_parse(context, text.data, bytes, &plan, error);
  TSR_TRY(tsr_group_agree(group, status, error, error));
  if (!root) *inout = plan;
  plan = NULL;
done:
  free(text.data);
  tsr_plan_destroy(&plan);
  return status;
}
