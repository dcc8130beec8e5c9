#include "exec/convert.h"

#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "plan/chunks.h"

/* An all-reduce works on one buffer; the others read one and write another. */
static bool in_place(const tsr_convert *convert) {
  return convert->from.tensor.store == convert->to.tensor.store;
}

static tsr_status make_regions(tsr_convert_side *side, int count, tsr_error *error) {
  side->regions = tsr_calloc((size_t)count, sizeof *side->regions);
  if (!side->regions) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %d mappings", count);
  return TSR_OK;
}

/* All of the store's pieces. */
static tsr_status take_pieces(tsr_convert_side *side, tsr_error *error) {
  const tsr_tensor *tensor = &side->tensor;
  int64_t row_bytes = tensor->store_cols * (int64_t)tsr_dtype_bytes(tensor->dtype);
  TSR_RETURN_IF_FAILED(make_regions(side, tensor->store->piece_count, error));
  for (int i = 0; i < tensor->store->piece_count; i++) {
    tsr_buffer *piece = tensor->store->pieces[i];
    side->regions[side->region_count++] = (tsr_convert_region){
        .buffer = piece, .first = i * tensor->units_per_piece * row_bytes, .bytes = (int64_t)piece->bytes};
  }
  return TSR_OK;
}

/* Rows of a store of one piece; none if there are none. */
static void take_rows(tsr_convert_side *side, int64_t begin, int64_t end) {
  const tsr_tensor *tensor = &side->tensor;
  int64_t row_bytes = tensor->store_cols * (int64_t)tsr_dtype_bytes(tensor->dtype);
  if (begin == end || !row_bytes) return;
  side->regions[side->region_count++] = (tsr_convert_region){.buffer = tensor->store->pieces[0],
                                                             .offset = (size_t)(begin * row_bytes),
                                                             .first = begin * row_bytes,
                                                             .bytes = (end - begin) * row_bytes,
                                                             .row = begin,
                                                             .rows = end - begin};
}

static tsr_status take_chunk(tsr_convert *convert, tsr_error *error) {
  int64_t begin, end;
  int ranges = tsr_plan_chunk_ranges(convert->plan, convert->step);
  TSR_RETURN_IF_FAILED(make_regions(&convert->from, ranges, error));
  for (int i = 0; i < ranges; i++) {
    tsr_plan_chunk_range(convert->plan, convert->step, i, &begin, &end);
    take_rows(&convert->from, begin, end);
  }
  convert->apart = true;
  for (int i = 0; i < convert->from.region_count; i++) {
    tsr_convert_region *region = &convert->from.regions[i];
    TSR_RETURN_IF_FAILED(tsr_buffer_part(convert->device, region->buffer, region->offset,
                                         (size_t)region->bytes, &region->part, error));
    convert->apart = convert->apart && region->part;
  }
  if (in_place(convert)) return TSR_OK;
  TSR_RETURN_IF_FAILED(make_regions(&convert->to, 1, error));
  tsr_plan_chunk_result(convert->plan, convert->step, convert->active_index, &begin, &end);
  take_rows(&convert->to, begin, end);
  return TSR_OK;
}

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
      tsr_tensor_of(plan, stores, active_index, step->value, step->from, &convert->from.tensor, error));
  TSR_RETURN_IF_FAILED(
      tsr_tensor_of(plan, stores, active_index, step->value, step->to, &convert->to.tensor, error));
  if (step->chunks > 1) {
    TSR_RETURN_IF_FAILED(take_chunk(convert, error));
  } else {
    TSR_RETURN_IF_FAILED(take_pieces(&convert->from, error));
    if (!in_place(convert)) TSR_RETURN_IF_FAILED(take_pieces(&convert->to, error));
  }
  tsr_plan_collective(plan, step, counts, &options);
  return tsr_collective_create(group, plan->decision.active[active_index], &options, scratch,
                               &convert->collective, error);
}

static void drop_side(tsr_convert_side *side, tsr_device *device) {
  for (int i = 0; i < side->region_count; i++) tsr_buffer_part_destroy(device, &side->regions[i].part);
  free(side->regions);
  *side = (tsr_convert_side){0};
}

void tsr_convert_finish(tsr_convert *convert) {
  tsr_collective_destroy(&convert->collective);
  if (!convert->device) return;
  tsr_device_mark_drop(convert->device, &convert->mapped);
  drop_side(&convert->from, convert->device);
  drop_side(&convert->to, convert->device);
}

static tsr_status map_side(const tsr_convert *convert, const tsr_convert_side *side, tsr_host_mode mode,
                           tsr_error *error) {
  for (int i = 0; i < side->region_count; i++) {
    tsr_convert_region *region = &side->regions[i];
    TSR_RETURN_IF_FAILED(tsr_device_host_begin(convert->device, region->part ? region->part : region->buffer,
                                               region->part ? 0 : region->offset, (size_t)region->bytes, mode,
                                               &region->pointer, error));
  }
  return TSR_OK;
}

static tsr_status unmap_side(const tsr_convert *convert, const tsr_convert_side *side, tsr_error *error) {
  for (int i = 0; i < side->region_count; i++) {
    tsr_convert_region *region = &side->regions[i];
    TSR_RETURN_IF_FAILED(tsr_device_host_end(convert->device, region->part ? region->part : region->buffer,
                                             region->pointer, error));
  }
  return TSR_OK;
}

tsr_status tsr_convert_begin(tsr_convert *convert, tsr_error *error) {
  tsr_host_mode mode = in_place(convert) ? TSR_HOST_READ_WRITE : TSR_HOST_READ;
  TSR_RETURN_IF_FAILED(map_side(convert, &convert->from, mode, error));
  TSR_RETURN_IF_FAILED(map_side(convert, &convert->to, TSR_HOST_WRITE, error));
  tsr_device_mark_set(convert->device, &convert->mapped);
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

/* Copies `bytes` bytes at byte `offset` of a row-major value that is mapped in ranges. */
static void copy_flat(const tsr_convert_side *side, int64_t offset, char *data, int64_t bytes,
                      bool to_store) {
  const tsr_convert_region *region = side->regions;
  while (bytes > 0) {
    while (region->first + region->bytes <= offset) region++;
    int64_t within = offset - region->first, room = region->bytes - within, now = bytes < room ? bytes : room;
    char *store = (char *)region->pointer + within;
    memcpy(to_store ? store : data, to_store ? data : store, (size_t)now);
    offset += now;
    data += now;
    bytes -= now;
  }
}

/* Between the whole value (or a chunk of its rows) in a store and members' blocks one after another in
 * packing. */
static void copy_blocks(const tsr_convert *convert, const tsr_convert_side *side, bool to_store) {
  const tsr_step *step = convert->step;
  int64_t outer, extent, inner, size = (int64_t)tsr_dtype_bytes(side->tensor.dtype), first = 0, last;
  outer_inner(convert, &outer, &extent, &inner);
  last = outer;
  tsr_place split = step->from >= 0 ? step->from : step->to;
  if (step->chunks > 1 && split == 1) tsr_plan_chunk_range(convert->plan, step, 0, &first, &last);
  char *block = convert->packing;
  int members = split < 0 ? 1 : convert->plan->decision.active_count;
  for (int r = 0; r < members; r++) {
    int64_t begin = 0, end = extent;
    if (split >= 0) tsr_plan_range(convert->plan, step->value, split, split, r, &begin, &end);
    if (step->chunks > 1 && split == 0) tsr_plan_chunk_range(convert->plan, step, r, &begin, &end);
    int64_t run = (end - begin) * inner * size;
    for (int64_t o = first; o < last; o++, block += run)
      copy_flat(side, (o * extent + begin) * inner * size, block, run, to_store);
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

static bool is_cut(const tsr_convert_side *side) {
  return side->tensor.store->piece_count > 1;
}

static void *first_pointer(const tsr_convert_side *side) {
  return side->region_count ? side->regions[0].pointer : NULL;
}

static tsr_status start_collective(tsr_convert *convert, tsr_error *error) {
  void *from = first_pointer(&convert->from), *to = in_place(convert) ? from : first_pointer(&convert->to);
  int64_t before, own;
  if (convert->packed) {
    own_block(convert, &before, &own);
    switch (convert->step->collective) {
    case TSR_ALL_GATHER:
      copy_flat(&convert->from, 0, convert->packing + before, own, false);
      from = convert->packing + before;
      to = convert->packing;
      break;
    case TSR_REDUCE_SCATTER:
      copy_blocks(convert, &convert->from, false);
      from = convert->packing;
      if (is_cut(&convert->to)) to = whole_end(convert);
      break;
    default: copy_blocks(convert, &convert->from, false); from = to = convert->packing;
    }
  }
  convert->phase = TSR_CONVERT_COLLECTIVE;
  convert->times.sent = tsr_clock_seconds();
  return tsr_collective_start(convert->collective, from, to, error);
}

static void unpack(tsr_convert *convert) {
  const tsr_convert_side *to = in_place(convert) ? &convert->from : &convert->to;
  int64_t before, own;
  if (convert->packed && convert->step->collective != TSR_REDUCE_SCATTER) {
    copy_blocks(convert, to, true);
  } else if (convert->packed && is_cut(to)) {
    own_block(convert, &before, &own);
    copy_flat(to, 0, whole_end(convert), own, true);
  }
}

tsr_status tsr_convert_test(tsr_convert *convert, bool *done, tsr_error *error) {
  bool now = false;
  *done = false;
  if (convert->phase == TSR_CONVERT_DEVICE) {
    TSR_RETURN_IF_FAILED(tsr_device_mark_test(convert->device, &convert->mapped, &now, error));
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
  TSR_RETURN_IF_FAILED(unmap_side(convert, &convert->from, error));
  TSR_RETURN_IF_FAILED(unmap_side(convert, &convert->to, error));
  convert->phase = TSR_CONVERT_IDLE;
  return TSR_OK;
}
