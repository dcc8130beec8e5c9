#include "exec/convert.h"

#include "base/clock.h"

#include <string.h>

tsr_status tsr_convert_init(tsr_convert *convert, const tsr_plan *plan, const tsr_step *step,
                            int active_index, tsr_device *device, const tsr_store *stores, tsr_group *group,
                            void *scratch, void *packing, tsr_error *error) {
  int64_t counts[plan->decision.active_count];
  tsr_collective_options options;
  size_t scratch_bytes, bytes = tsr_plan_convert_host_bytes(plan, step, active_index, &scratch_bytes);
  *convert = (tsr_convert){.plan = plan,
                           .step = step,
                           .device = device,
                           .active_index = active_index,
                           .packed = bytes > scratch_bytes,
                           .packing = packing};
  TSR_RETURN_IF_FAILED(
      tsr_tensor_of(plan, stores, active_index, step->value, step->from, &convert->from, error));
  TSR_RETURN_IF_FAILED(tsr_tensor_of(plan, stores, active_index, step->value, step->to, &convert->to, error));
  if (convert->from.store->piece_count > TSR_CONVERT_PIECES_MAX ||
      convert->to.store->piece_count > TSR_CONVERT_PIECES_MAX)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "a value of more than %d allocations cannot be sent",
                    TSR_CONVERT_PIECES_MAX);
  tsr_plan_collective(plan, step, counts, &options);
  return tsr_collective_create(group, plan->decision.active[active_index], &options, scratch,
                               &convert->collective, error);
}

void tsr_convert_finish(tsr_convert *convert) {
  tsr_collective_destroy(&convert->collective);
}

static tsr_status map_store(const tsr_convert *convert, const tsr_tensor *tensor, tsr_host_mode mode,
                            void **pointers, tsr_error *error) {
  for (int i = 0; i < tensor->store->piece_count; i++)
    TSR_RETURN_IF_FAILED(tsr_device_host_begin(convert->device, tensor->store->pieces[i], 0,
                                               tensor->store->pieces[i]->bytes, mode, &pointers[i], error));
  return TSR_OK;
}

static tsr_status unmap_store(const tsr_convert *convert, const tsr_tensor *tensor, void **pointers,
                              tsr_error *error) {
  for (int i = 0; i < tensor->store->piece_count; i++)
    TSR_RETURN_IF_FAILED(tsr_device_host_end(convert->device, tensor->store->pieces[i], pointers[i], error));
  return TSR_OK;
}

/* An all-reduce works on one buffer; the others read one and write another. */
static bool in_place(const tsr_convert *convert) {
  return convert->from.store == convert->to.store;
}

tsr_status tsr_convert_begin(tsr_convert *convert, tsr_error *error) {
  tsr_host_mode mode = in_place(convert) ? TSR_HOST_READ_WRITE : TSR_HOST_READ;
  TSR_RETURN_IF_FAILED(map_store(convert, &convert->from, mode, convert->from_pointers, error));
  if (!in_place(convert))
    TSR_RETURN_IF_FAILED(map_store(convert, &convert->to, TSR_HOST_WRITE, convert->to_pointers, error));
  convert->phase = TSR_CONVERT_DEVICE;
  return TSR_OK;
}

/* Rows of the value in front of the split axis, and elements behind it. */
static void outer_inner(const tsr_convert *convert, int64_t *outer, int64_t *extent, int64_t *inner) {
  const tsr_shape *shape = &tsr_graph_at(convert->plan->graph, convert->step->value)->shape;
  tsr_place split = convert->step->from >= 0 ? convert->step->from : convert->step->to;
  *outer = *inner = *extent = 1;
  for (int i = 0; i < shape->axes; i++) {
    if (split < 0 || i > split)
      *inner *= shape->extent[i];
    else if (i < split)
      *outer *= shape->extent[i];
    else
      *extent = shape->extent[i];
  }
}

/* Copies `bytes` bytes at byte `offset` of a mapped, row-major store that may be in pieces. */
static void copy_flat(const tsr_tensor *tensor, void *const *pointers, int64_t offset, char *data,
                      int64_t bytes, bool to_store) {
  int64_t size = (int64_t)tsr_dtype_bytes(tensor->dtype);
  int64_t piece_bytes = tensor->units_per_piece * tensor->store_cols * size;
  while (bytes > 0) {
    int64_t piece = tensor->store->piece_count > 1 ? offset / piece_bytes : 0,
            within = offset - piece * piece_bytes;
    int64_t room = tensor->store->piece_count > 1 ? piece_bytes - within : bytes,
            now = bytes < room ? bytes : room;
    char *store = (char *)pointers[piece] + within;
    memcpy(to_store ? store : data, to_store ? data : store, (size_t)now);
    offset += now;
    data += now;
    bytes -= now;
  }
}

/* Between the whole value in a store and members' blocks one after another in packing. */
static void copy_blocks(const tsr_convert *convert, const tsr_tensor *tensor, void *const *pointers,
                        bool to_store) {
  int64_t outer, extent, inner, size = (int64_t)tsr_dtype_bytes(tensor->dtype);
  outer_inner(convert, &outer, &extent, &inner);
  tsr_place split = convert->step->from >= 0 ? convert->step->from : convert->step->to;
  char *block = convert->packing;
  int members = split < 0 ? 1 : convert->plan->decision.active_count;
  for (int r = 0; r < members; r++) {
    int64_t begin = 0, end = extent;
    if (split >= 0) tsr_plan_range(convert->plan, convert->step->value, split, split, r, &begin, &end);
    int64_t run = (end - begin) * inner * size;
    for (int64_t o = 0; o < outer; o++, block += run)
      copy_flat(tensor, pointers, (o * extent + begin) * inner * size, block, run, to_store);
  }
}

/* Bytes of the blocks of the members before this one, and of its own. */
static void own_block(const tsr_convert *convert, int64_t *before, int64_t *own) {
  int64_t counts[convert->plan->decision.active_count];
  tsr_collective_options options;
  tsr_plan_collective(convert->plan, convert->step, counts, &options);
  int64_t size = (int64_t)tsr_dtype_bytes(options.dtype);
  *before = 0;
  for (int r = 0; r < convert->active_index; r++) *before += counts[r] * size;
  *own = counts[convert->active_index] * size;
}

static char *whole_end(const tsr_convert *convert) {
  const tsr_graph_value *value = tsr_graph_at(convert->plan->graph, convert->step->value);
  return convert->packing + tsr_shape_count(&value->shape) * (int64_t)tsr_dtype_bytes(value->dtype);
}

static bool is_cut(const tsr_tensor *tensor) {
  return tensor->store->piece_count > 1;
}

static tsr_status start_collective(tsr_convert *convert, tsr_error *error) {
  void *from = convert->from_pointers[0], *to = in_place(convert) ? from : convert->to_pointers[0];
  int64_t before, own;
  if (convert->packed) {
    own_block(convert, &before, &own);
    switch (convert->step->collective) {
    case TSR_ALL_GATHER:
      copy_flat(&convert->from, convert->from_pointers, 0, convert->packing + before, own, false);
      from = convert->packing + before;
      to = convert->packing;
      break;
    case TSR_REDUCE_SCATTER:
      copy_blocks(convert, &convert->from, convert->from_pointers, false);
      from = convert->packing;
      if (is_cut(&convert->to)) to = whole_end(convert);
      break;
    default:
      copy_blocks(convert, &convert->from, convert->from_pointers, false);
      from = to = convert->packing;
    }
  }
  convert->phase = TSR_CONVERT_COLLECTIVE;
  convert->times.sent = tsr_clock_seconds();
  return tsr_collective_start(convert->collective, from, to, error);
}

static void unpack(tsr_convert *convert) {
  const tsr_tensor *to = &convert->to;
  void **pointers = in_place(convert) ? convert->from_pointers : convert->to_pointers;
  int64_t before, own;
  if (convert->packed && convert->step->collective != TSR_REDUCE_SCATTER) {
    copy_blocks(convert, to, pointers, true);
  } else if (convert->packed && is_cut(to)) {
    own_block(convert, &before, &own);
    copy_flat(to, pointers, 0, whole_end(convert), own, true);
  }
}

tsr_status tsr_convert_test(tsr_convert *convert, bool *done, tsr_error *error) {
  bool now = false;
  *done = false;
  if (convert->phase == TSR_CONVERT_DEVICE) {
    TSR_RETURN_IF_FAILED(tsr_device_poll(convert->device, &now, error));
    if (!now) return TSR_OK;
    convert->times.ready = tsr_clock_seconds();
    TSR_RETURN_IF_FAILED(start_collective(convert, error));
  }
  TSR_RETURN_IF_FAILED(tsr_collective_test(convert->collective, &now, error));
  if (!now) return TSR_OK;
  convert->times.received = tsr_clock_seconds();
  unpack(convert);
  convert->times.ended = tsr_clock_seconds();
  *done = true;
  return TSR_OK;
}

tsr_status tsr_convert_end(tsr_convert *convert, tsr_error *error) {
  TSR_RETURN_IF_FAILED(unmap_store(convert, &convert->from, convert->from_pointers, error));
  if (!in_place(convert))
    TSR_RETURN_IF_FAILED(unmap_store(convert, &convert->to, convert->to_pointers, error));
  convert->phase = TSR_CONVERT_IDLE;
  return TSR_OK;
}
