/* Who holds which part of a value: ranges, shapes, pieces, and the collectives between layouts. */
#include <string.h>

#include "base/memory.h"
#include "plan/chunks.h"
#include "plan/plan.h"

void tsr_plan_range(const tsr_plan *plan, tsr_value value, tsr_place place, int axis, int active_index,
                    int64_t *begin, int64_t *end) {
  const tsr_shape *shape = &tsr_graph_at(plan->graph, value)->shape;
  *begin = 0;
  *end = shape->extent[axis];
  if (place != axis) return;
  size_t dim = plan->dims[value.id * TSR_AXES_MAX + (size_t)axis];
  const int64_t *offsets = plan->decision.offsets + dim * (size_t)(plan->decision.active_count + 1);
  *begin = offsets[active_index];
  *end = offsets[active_index + 1];
}

tsr_shape tsr_plan_local_shape(const tsr_plan *plan, tsr_value value, tsr_place place, int active_index) {
  tsr_shape shape = tsr_graph_at(plan->graph, value)->shape;
  if (place >= 0) {
    int64_t begin, end;
    tsr_plan_range(plan, value, place, place, active_index, &begin, &end);
    shape.extent[place] = end - begin;
  }
  return shape;
}

/* The first axis that is columns. */
static int first_column_axis(const tsr_shape *shape) {
  return shape->axes > 3 ? 1 : shape->axes ? shape->axes - 1 : 0;
}

void tsr_shape_matrix(const tsr_shape *shape, int64_t *rows, int64_t *cols) {
  *rows = *cols = 1;
  for (int i = 0; i < shape->axes; i++) *(i < first_column_axis(shape) ? rows : cols) *= shape->extent[i];
}

bool tsr_axis_matrix(const tsr_shape *shape, int axis, bool *along_cols, int64_t *unit) {
  const int first = first_column_axis(shape);
  *along_cols = axis >= first;
  *unit = 1;
  for (int i = axis + 1; i < (*along_cols ? shape->axes : first); i++) *unit *= shape->extent[i];
  return axis == first || axis == 0;
}

static int64_t first_of(const tsr_plan *plan, tsr_value value, tsr_place place, int axis, int active_index) {
  int64_t begin, end;
  tsr_plan_range(plan, value, place, axis, active_index, &begin, &end);
  return begin;
}

tsr_conv_geometry tsr_plan_conv(const tsr_plan *plan, const tsr_node *node, const tsr_rule *rule,
                                int active_index) {
  const bool input = node->op == TSR_OPERATOR_CONV_INPUT, weight = node->op == TSR_OPERATOR_CONV_WEIGHT;
  const tsr_value x = input ? node->output : node->inputs[0], w = weight ? node->output : node->inputs[1];
  const tsr_place x_place = input ? rule->out : rule->in[0], w_place = weight ? rule->out : rule->in[1];
  tsr_shape inputs[2], output = tsr_plan_local_shape(plan, node->output, rule->out, active_index);
  for (int j = 0; j < 2; j++)
    inputs[j] = tsr_plan_local_shape(plan, node->inputs[j], rule->in[j], active_index);
  return tsr_conv_geometry_of(
      node, inputs, &output, tsr_graph_at(plan->graph, w)->shape.extent[0] / node->window.groups,
      first_of(plan, w, w_place, 0, active_index), first_of(plan, x, x_place, 1, active_index));
}

int tsr_plan_buffer_panel(const tsr_plan *plan, const tsr_plan_buffer *buffer, int active_index) {
  if (!buffer->panels) return 0;
  const tsr_cluster_member *member = &plan->cluster->members[plan->decision.active[active_index]];
  return member->gemm[tsr_graph_at(plan->graph, buffer->value)->dtype].panel;
}

bool tsr_plan_pieces(const tsr_plan *plan, int active_index, int panel, tsr_dtype dtype, int64_t rows,
                     int64_t cols, int64_t *units, int64_t *unit_bytes, int *pieces) {
  const tsr_cluster_member *member = &plan->cluster->members[plan->decision.active[active_index]];
  int64_t total = panel ? cols / panel + (cols % panel != 0) : rows, all;
  *units = total;
  *pieces = 1;
  if (!tsr_multiply_fits(panel ? rows : cols, (panel ? panel : 1) * (int64_t)tsr_dtype_bytes(dtype),
                         unit_bytes))
    *unit_bytes = INT64_MAX;
  if (!total || !*unit_bytes) return true;
  if (tsr_multiply_fits(total, *unit_bytes, &all) && (uint64_t)all <= member->max_allocation_bytes)
    return true;
  *units = (int64_t)(member->max_allocation_bytes / (uint64_t)*unit_bytes);
  if (!*units) return false;
  *pieces = (int)((total + *units - 1) / *units);
  return true;
}

int tsr_plan_find_buffer(const tsr_plan *plan, tsr_value value, tsr_place place, bool *is_view) {
  int replicated = -1;
  *is_view = false;
  for (int i = 0; i < plan->buffer_count; i++) {
    if (plan->buffers[i].value.id != value.id) continue;
    if (plan->buffers[i].place == place) return i;
    if (plan->buffers[i].place == TSR_PLACE_REPLICATE) replicated = i;
  }
  *is_view = replicated >= 0 && place >= 0;
  return *is_view ? replicated : -1;
}

tsr_place tsr_plan_final_place(const tsr_plan *plan, tsr_value value) {
  const tsr_graph_value *at = tsr_graph_at(plan->graph, value);
  const tsr_choice *choice = &plan->decision.choices[value.id];
  if (plan->decision.active_count == 1) return TSR_PLACE_REPLICATE;
  if (at->pinned && at->pin.on[0].kind == TSR_REPLICATE) return TSR_PLACE_REPLICATE;
  if (at->pinned && at->pin.on[0].kind == TSR_SHARD) return (tsr_place)at->pin.on[0].axis;
  if (at->gradient_of.id) return plan->decision.choices[at->gradient_of.id].produced;
  if (choice->produced >= TSR_PLACE_REPLICATE || tsr_place_in(choice->present, TSR_PLACE_REPLICATE))
    return choice->produced >= TSR_PLACE_REPLICATE ? choice->produced : TSR_PLACE_REPLICATE;
  for (tsr_place place = 0; place < TSR_AXES_MAX; place++)
    if (tsr_place_in(choice->present, place)) return place;
  return choice->produced;
}

void tsr_plan_collective(const tsr_plan *plan, const tsr_step *step, int64_t *counts,
                         tsr_collective_options *out) {
  const tsr_graph_value *value = tsr_graph_at(plan->graph, step->value);
  tsr_place split = step->from >= 0 ? step->from : step->to;
  *out = (tsr_collective_options){.kind = step->collective,
                                  .dtype = value->dtype,
                                  .reduction = step->from == TSR_PLACE_MAX ? TSR_MAX : TSR_SUM,
                                  .counts = counts,
                                  .members = plan->decision.active,
                                  .member_count = plan->decision.active_count,
                                  .algorithm = step->algorithm,
                                  .wire = value->dtype == TSR_F32 ? plan->options.wire : TSR_F32,
                                  .hosts = plan->cluster->hosts};
  for (int r = 0; r < plan->decision.active_count; r++) {
    tsr_shape shape = tsr_plan_local_shape(plan, step->value, split, r);
    if (step->chunks > 1) {
      int64_t begin, end;
      tsr_plan_chunk_result(plan, step, r, &begin, &end);
      shape.extent[0] = end - begin;
    }
    counts[r] = tsr_shape_count(&shape);
  }
}

/* Whether the blocks of members are strided in the whole value: the split axis has something in front of it,
 * or a chunk has a part of each block. */
static bool needs_packing(const tsr_plan *plan, const tsr_step *step) {
  tsr_place split = step->from >= 0 ? step->from : step->to;
  const tsr_shape *shape = &tsr_graph_at(plan->graph, step->value)->shape;
  int64_t outer = 1;
  for (int i = 0; i < split; i++) outer *= shape->extent[i];
  return outer > 1 || (step->chunks > 1 && split == 0);
}

/* Whether a member stores the value at place in several pieces. */
static bool is_cut(const tsr_plan *plan, tsr_value value, tsr_place place, int active_index) {
  tsr_shape shape = tsr_plan_local_shape(plan, value, place, active_index);
  int64_t rows, cols, units, unit_bytes;
  int pieces;
  tsr_shape_matrix(&shape, &rows, &cols);
  tsr_plan_pieces(plan, active_index, 0, tsr_graph_at(plan->graph, value)->dtype, rows, cols, &units,
                  &unit_bytes, &pieces);
  return pieces > 1;
}

size_t tsr_plan_convert_host_bytes(const tsr_plan *plan, const tsr_step *step, int active_index,
                                   size_t *scratch_bytes) {
  int64_t counts[plan->decision.active_count];
  tsr_collective_options options;
  tsr_plan_collective(plan, step, counts, &options);
  *scratch_bytes = tsr_collective_scratch_bytes(&options, active_index);
  bool cut = is_cut(plan, step->value, step->from, active_index) ||
             is_cut(plan, step->value, step->to, active_index);
  if (!needs_packing(plan, step) && !cut) return *scratch_bytes;
  const tsr_graph_value *value = tsr_graph_at(plan->graph, step->value);
  int64_t elements = cut ? counts[active_index] : 0;
  if (step->chunks > 1)
    for (int r = 0; r < plan->decision.active_count; r++) elements += counts[r];
  else
    elements += tsr_shape_count(&value->shape);
  return *scratch_bytes + (size_t)elements * tsr_dtype_bytes(value->dtype);
}
