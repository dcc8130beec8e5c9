/* What goes into a session and comes out of it: binding, reading, gathering; loading is in load.c. */
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "exec/session.h"
#include "io/convert.h"

/* A view of the caller's as rows and columns; its shape must be what the member holds. */
static tsr_status check_view(const tsr_session *session, const tsr_local *local, tsr_value value,
                             const tsr_array *array, int64_t *row_stride, int64_t *col_stride,
                             tsr_error *error) {
  const tsr_graph_value *at = tsr_graph_at(session->plan->graph, value);
  tsr_shape own = tsr_plan_local_shape(session->plan, value, tsr_plan_final_place(session->plan, value),
                                       local->active_index);
  const char *name = at->name ? at->name : at->output ? at->output : "the value";
  char wanted[96], given[96];
  TSR_RETURN_IF_FAILED(tsr_array_check(array, error));
  if (array->shape.axes != own.axes ||
      memcmp(array->shape.extent, own.extent, (size_t)own.axes * sizeof *own.extent))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s: member %d holds %s, the array has shape %s", name,
                    local->member, tsr_format_shape(wanted, sizeof wanted, &own),
                    tsr_format_shape(given, sizeof given, &array->shape));
  if (own.axes == 3)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "%s has 3 axes: 1, 2 or 4 can be transferred", name);
  *row_stride = own.axes > 1 ? array->stride[0] : 0;
  *col_stride = own.axes ? array->stride[own.axes - 1] : 0;
  const int64_t step = *col_stride, pixels = own.axes < 4 ? 0 : own.extent[2] * own.extent[3];
  if (own.axes < 4 || (array->stride[2] == step * own.extent[3] && array->stride[1] == step * pixels))
    return TSR_OK;
  return tsr_fail(
      error, TSR_ERROR_UNSUPPORTED,
      "%s: an image must be without gaps: strides of its axes 1 and 2 are to be %lld and %lld times that of "
      "axis 3, not %lld and %lld to %lld",
      name, (long long)pixels, (long long)own.extent[3], (long long)array->stride[1],
      (long long)array->stride[2], (long long)step);
}

/* Finds the local and checks that it holds the value. */
static tsr_status holder(tsr_session *session, int member, tsr_value value, const char *call,
                         tsr_local **local, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_session_usable(session, call, error));
  TSR_RETURN_IF_FAILED(tsr_session_local(session, member, local, error));
  if (!value.id || value.id >= session->plan->graph->value_count)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s: value %u: the graph has values 1 to %zu", call,
                    value.id, session->plan->graph->value_count - 1);
  if ((*local)->active_index < 0)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%s: member %d is excluded from the plan and holds nothing", call, member);
  return TSR_OK;
}

tsr_status tsr_session_bind(tsr_session *session, int member, tsr_value value, const tsr_array *array,
                            tsr_error *error) {
  tsr_local *local;
  tsr_tensor tensor;
  int64_t row_stride, col_stride;
  TSR_RETURN_IF_FAILED(holder(session, member, value, "tsr_session_bind", &local, error));
  if (tsr_graph_at(session->plan->graph, value)->kind == TSR_INTERMEDIATE)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "tsr_session_bind: value %u is computed, not bound",
                    value.id);
  TSR_RETURN_IF_FAILED(check_view(session, local, value, array, &row_stride, &col_stride, error));
  TSR_RETURN_IF_FAILED(tsr_session_tensor(session, local, value, &tensor, error));
  tsr_status status =
      tsr_tensor_write(local->device, &tensor, array->data, array->dtype, row_stride, col_stride, error);
  if (status == TSR_ERROR_INVALID_ARGUMENT)
    tsr_error_wrap(error, "%s", tsr_graph_at(session->plan->graph, value)->name);
  return status;
}

tsr_status tsr_session_read(tsr_session *session, int member, tsr_value value, const tsr_array *array,
                            tsr_error *error) {
  tsr_local *local;
  tsr_tensor tensor;
  int64_t row_stride, col_stride;
  TSR_RETURN_IF_FAILED(holder(session, member, value, "tsr_session_read", &local, error));
  const tsr_graph_value *at = tsr_graph_at(session->plan->graph, value);
  if (at->kind == TSR_INTERMEDIATE && !at->output)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "tsr_session_read: value %u is no output: mark it with tsr_graph_output before planning",
                    value.id);
  TSR_RETURN_IF_FAILED(check_view(session, local, value, array, &row_stride, &col_stride, error));
  TSR_RETURN_IF_FAILED(tsr_session_tensor(session, local, value, &tensor, error));
  return tsr_tensor_read(local->device, &tensor, array->data, array->dtype, row_stride, col_stride, error);
}

/* ---- gathering ---- */

/* All blocks of a value, member after member, dense, in its own dtype. */
typedef struct gathered {
  tsr_value value;
  tsr_place place;
  int64_t *counts; /* [member of the group]: elements of its block; a replicated value is the first active
                      member's */
  char *blocks;
} gathered;

static void block_counts(const tsr_session *session, gathered *g) {
  const tsr_plan *plan = session->plan;
  for (int r = 0; r < plan->decision.active_count; r++) {
    tsr_shape shape = tsr_plan_local_shape(plan, g->value, g->place, r);
    bool counts = g->place >= 0 || r == 0;
    g->counts[plan->decision.active[r]] = counts ? tsr_shape_count(&shape) : 0;
  }
}

static tsr_status read_own_block(const tsr_session *session, const tsr_local *local, const gathered *g,
                                 char *data, tsr_error *error) {
  if (local->active_index < 0 || !g->counts[local->member]) return TSR_OK;
  tsr_tensor tensor;
  TSR_RETURN_IF_FAILED(
      tsr_tensor_of(session->plan, local->stores, local->active_index, g->value, g->place, &tensor, error));
  return tsr_tensor_read(local->device, &tensor, data, tensor.dtype, tensor.cols, 1, error);
}

/* One all-gather over the whole group: excluded members contribute nothing and get everything. */
static tsr_status all_gather_blocks(tsr_session *session, const gathered *g, tsr_error *error) {
  tsr_status status = TSR_OK;
  size_t size = tsr_dtype_bytes(tsr_graph_at(session->plan->graph, g->value)->dtype);
  int members = tsr_group_member_count(session->group);
  tsr_collective_options options = {.kind = TSR_ALL_GATHER,
                                    .dtype = tsr_graph_at(session->plan->graph, g->value)->dtype,
                                    .counts = g->counts,
                                    .member_count = members};
  tsr_collective **collectives = tsr_calloc((size_t)session->local_count, sizeof *collectives);
  char **buffers = tsr_calloc((size_t)session->local_count, sizeof *buffers);
  int64_t total = 0;
  for (int i = 0; i < members; i++) total += g->counts[i];
  if (!collectives || !buffers)
    status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to gather a value");
  for (int i = 0; i < session->local_count && status == TSR_OK; i++) {
    tsr_local *local = &session->locals[i];
    buffers[i] = i ? tsr_malloc_pages((size_t)total * size) : g->blocks;
    if (!buffers[i])
      status =
          tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to gather %lld elements", (long long)total);
    int64_t before = 0;
    for (int j = 0; j < local->member; j++) before += g->counts[j];
    if (status == TSR_OK)
      status = tsr_local_blame(
          local, read_own_block(session, local, g, buffers[i] + (size_t)before * size, error), error);
    if (status == TSR_OK)
      status = tsr_collective_create(session->group, local->member, &options, NULL, &collectives[i], error);
  }
  TSR_TRY(tsr_session_agree(session, status, error));
  for (int i = 0; i < session->local_count; i++) {
    int64_t before = 0;
    for (int j = 0; j < session->locals[i].member; j++) before += g->counts[j];
    TSR_TRY(tsr_collective_start(collectives[i], buffers[i] + (size_t)before * size, buffers[i], error));
  }
  TSR_TRY(tsr_collective_wait_all(session->group, collectives, (size_t)session->local_count, error));
done:
  for (int i = 0; i < session->local_count; i++) {
    if (collectives) tsr_collective_destroy(&collectives[i]);
    if (buffers && i) tsr_group_free(session->group, buffers[i]);
  }
  free(collectives);
  free(buffers);
  return status;
}

/* Puts the blocks where they belong in the whole array. */
static void unpack_blocks(const tsr_session *session, const gathered *g, const tsr_array *array) {
  const tsr_plan *plan = session->plan;
  const tsr_graph_value *at = tsr_graph_at(plan->graph, g->value);
  const char *block = g->blocks;
  for (int r = 0; r < plan->decision.active_count; r++) {
    int64_t count = g->counts[plan->decision.active[r]];
    if (!count) continue;
    tsr_shape shape = tsr_plan_local_shape(plan, g->value, g->place, r);
    tsr_array from = tsr_array_dense((void *)block, at->dtype, &shape), to = *array;
    to.shape = shape;
    if (g->place >= 0) {
      int64_t begin, end;
      tsr_plan_range(plan, g->value, g->place, g->place, r, &begin, &end);
      to.data =
          (char *)array->data + begin * array->stride[g->place] * (int64_t)tsr_dtype_bytes(array->dtype);
    }
    tsr_array_convert(&from, &to);
    block += (size_t)count * tsr_dtype_bytes(at->dtype);
  }
}

tsr_status tsr_session_gather(tsr_session *session, tsr_value value, const tsr_array *array,
                              tsr_error *error) {
  tsr_status status = TSR_OK;
  TSR_RETURN_IF_FAILED(tsr_session_usable(session, "tsr_session_gather", error));
  const tsr_graph *graph = session->plan->graph;
  if (!value.id || value.id >= graph->value_count)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "tsr_session_gather: value %u: the graph has values 1 to %zu", value.id,
                    graph->value_count - 1);
  const tsr_graph_value *at = tsr_graph_at(graph, value);
  if (at->kind == TSR_INTERMEDIATE && !at->output)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "tsr_session_gather: value %u is no output", value.id);
  if (array) status = tsr_array_check(array, error);
  if (status == TSR_OK && array &&
      (array->shape.axes != at->shape.axes ||
       memcmp(array->shape.extent, at->shape.extent, (size_t)at->shape.axes * sizeof *at->shape.extent)))
    status = tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                      "tsr_session_gather: the array has another shape than the value");
  gathered g = {.value = value, .place = tsr_plan_final_place(session->plan, value)};
  g.counts = tsr_calloc((size_t)tsr_group_member_count(session->group), sizeof *g.counts);
  g.blocks = tsr_malloc_pages((size_t)tsr_shape_count(&at->shape) * tsr_dtype_bytes(at->dtype));
  if (!g.counts || !g.blocks)
    status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to gather a value");
  TSR_TRY(tsr_session_agree(session, status, error));
  block_counts(session, &g);
  TSR_TRY(all_gather_blocks(session, &g, error));
  if (array) unpack_blocks(session, &g, array);
done:
  free(g.counts);
  tsr_group_free(session->group, g.blocks);
  return tsr_session_note(session, status);
}
