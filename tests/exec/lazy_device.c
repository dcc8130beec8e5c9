#include "lazy_device.h"

#include "../../backends/host/host.h"

enum { COMMANDS = 4096, MAPPINGS = 256, DEVICES = 8 };

typedef enum kind { GEMM, MAP, REDUCE, FILL, BEGIN, END } kind;

typedef struct command {
  kind kind;
  union {
    tsr_gemm_call gemm;
    tsr_map_call map;
    tsr_reduce_call reduce;
  } call;
  tsr_buffer *buffer;
  size_t offset, bytes;
  tsr_host_mode mode;
  void *pointer;
} command;

typedef struct mapping {
  const tsr_buffer *buffer;
  const void *pointer;
  bool written;
} mapping;

typedef struct lazy {
  tsr_device *device;
  const tsr_device_ops *real;
  tsr_device_ops ops;
  int pace;
  uint64_t enqueued, computed;
  command commands[COMMANDS];
  int mapping_count;
  mapping mappings[MAPPINGS];
} lazy;

static lazy *lazies[DEVICES];
static int overlaps;

static lazy *lazy_of(const tsr_device *device) {
  for (int i = 0; i < DEVICES; i++)
    if (lazies[i] && lazies[i]->device == device) return lazies[i];
  fail_msg("not a lazy device");
  return NULL;
}

static const char *data_of(const tsr_buffer *buffer) {
  return ((const tsr_host_buffer *)buffer)->data;
}

static bool share_memory(const tsr_buffer *a, const tsr_buffer *b) {
  return data_of(a) < data_of(b) + b->bytes && data_of(b) < data_of(a) + a->bytes;
}

/* OpenCL 1.2, 5.2.3, by buffers, not by ranges: no kernel writes what is mapped, or reads what is mapped for
 * writing. */
static void touch(const lazy *l, const tsr_buffer *buffer, bool writes) {
  for (int i = 0; buffer && i < l->mapping_count; i++)
    if (share_memory(buffer, l->mappings[i].buffer) && (writes || l->mappings[i].written))
      fail_msg("a kernel %s a buffer that is mapped%s", writes ? "writes" : "reads",
               l->mappings[i].written ? " for writing" : "");
}

static void check_kernel(const lazy *l, const command *command) {
  overlaps += l->mapping_count > 0;
  if (command->kind == GEMM) {
    const tsr_gemm_call *call = &command->call.gemm;
    touch(l, call->a.buffer, false);
    touch(l, call->b.buffer, false);
    touch(l, call->c.buffer, true);
    touch(l, call->epilogue.bias.buffer, false);
    touch(l, call->epilogue.gate.buffer, false);
    touch(l, call->epilogue.residual.buffer, false);
  } else if (command->kind == MAP) {
    touch(l, command->call.map.a.buffer, false);
    touch(l, command->call.map.b.buffer, false);
    touch(l, command->call.map.out.buffer, true);
  } else if (command->kind == REDUCE) {
    touch(l, command->call.reduce.a.buffer, false);
    touch(l, command->call.reduce.b.buffer, false);
    touch(l, command->call.reduce.out.buffer, true);
  } else {
    touch(l, command->buffer, true);
  }
}

/* What the host sees too early, or holds too long, is worth nothing. */
static void spoil(const command *command) {
  if (command->mode == TSR_HOST_WRITE) memset(command->pointer, 0x7f, command->bytes);
}

static void end_mapping(lazy *l, const command *command) {
  for (int i = 0; i < l->mapping_count; i++)
    if (l->mappings[i].pointer == command->pointer && l->mappings[i].buffer == command->buffer) {
      l->mappings[i] = l->mappings[--l->mapping_count];
      return;
    }
  fail_msg("what was not mapped is given back");
}

static tsr_status compute(lazy *l, command *command, tsr_error *error) {
  if (command->kind < BEGIN) check_kernel(l, command);
  switch (command->kind) {
  case GEMM: return l->real->gemm(l->device, &command->call.gemm, error);
  case MAP: return l->real->map(l->device, &command->call.map, error);
  case REDUCE: return l->real->reduce(l->device, &command->call.reduce, error);
  case FILL: return l->real->fill_zero(l->device, command->buffer, command->offset, command->bytes, error);
  case BEGIN:
    assert_true(l->mapping_count < MAPPINGS);
    spoil(command);
    l->mappings[l->mapping_count++] =
        (mapping){command->buffer, command->pointer, command->mode != TSR_HOST_READ};
    return TSR_OK;
  default: end_mapping(l, command); return TSR_OK;
  }
}

static tsr_status compute_some(lazy *l, tsr_error *error) {
  for (int i = 0; i < l->pace && l->computed < l->enqueued; i++)
    TSR_RETURN_IF_FAILED(compute(l, &l->commands[l->computed++ % COMMANDS], error));
  return TSR_OK;
}

static command *enqueue(tsr_device *device, kind kind) {
  lazy *l = lazy_of(device);
  assert_true(l->enqueued - l->computed < COMMANDS);
  command *added = &l->commands[l->enqueued++ % COMMANDS];
  *added = (command){.kind = kind};
  return added;
}

static tsr_status lazy_gemm(tsr_device *device, const tsr_gemm_call *call, tsr_error *error) {
  (void)error;
  enqueue(device, GEMM)->call.gemm = *call;
  return TSR_OK;
}

static tsr_status lazy_map(tsr_device *device, const tsr_map_call *call, tsr_error *error) {
  (void)error;
  enqueue(device, MAP)->call.map = *call;
  return TSR_OK;
}

static tsr_status lazy_reduce(tsr_device *device, const tsr_reduce_call *call, tsr_error *error) {
  (void)error;
  enqueue(device, REDUCE)->call.reduce = *call;
  return TSR_OK;
}

static tsr_status lazy_fill(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                            tsr_error *error) {
  (void)error;
  command *added = enqueue(device, FILL);
  added->buffer = buffer;
  added->offset = offset;
  added->bytes = bytes;
  return TSR_OK;
}

static tsr_status lazy_begin(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                             tsr_host_mode mode, void **pointer, tsr_error *error) {
  command *added = enqueue(device, BEGIN);
  added->buffer = buffer;
  added->bytes = bytes;
  added->mode = mode;
  tsr_status status = lazy_of(device)->real->host_begin(device, buffer, offset, bytes, mode, pointer, error);
  added->pointer = *pointer;
  return status;
}

static tsr_status lazy_end(tsr_device *device, tsr_buffer *buffer, void *pointer, tsr_error *error) {
  (void)error;
  command *added = enqueue(device, END);
  added->buffer = buffer;
  added->pointer = pointer;
  return TSR_OK;
}

static tsr_status lazy_poll(tsr_device *device, bool *idle, tsr_error *error) {
  lazy *l = lazy_of(device);
  TSR_RETURN_IF_FAILED(compute_some(l, error));
  *idle = l->computed == l->enqueued;
  return TSR_OK;
}

static void lazy_mark_set(tsr_device *device, tsr_device_mark *mark) {
  mark->last = (void *)(uintptr_t)lazy_of(device)->enqueued;
}

static tsr_status lazy_mark_test(tsr_device *device, tsr_device_mark *mark, bool *reached, tsr_error *error) {
  lazy *l = lazy_of(device);
  *reached = l->computed >= (uint64_t)(uintptr_t)mark->last;
  return *reached ? TSR_OK : compute_some(l, error);
}

static void lazy_mark_drop(tsr_device *device, tsr_device_mark *mark) {
  (void)device;
  mark->last = NULL;
}

void lazy_open(tsr_device *device, int pace, bool parts) {
  int place = 0;
  while (lazies[place]) place++;
  lazy *l = calloc(1, sizeof *l);
  l->device = device;
  l->real = device->ops;
  l->pace = pace;
  l->ops = *device->ops;
  l->ops.gemm = lazy_gemm;
  l->ops.map = lazy_map;
  l->ops.reduce = lazy_reduce;
  l->ops.fill_zero = lazy_fill;
  l->ops.host_begin = lazy_begin;
  l->ops.host_end = lazy_end;
  l->ops.poll = lazy_poll;
  l->ops.mark_set = lazy_mark_set;
  l->ops.mark_test = lazy_mark_test;
  l->ops.mark_drop = lazy_mark_drop;
  if (!parts) l->ops.buffer_part = NULL;
  device->ops = &l->ops;
  lazies[place] = l;
}

void lazy_close(tsr_device *device) {
  lazy *l = lazy_of(device);
  assert_int_equal(l->mapping_count, 0);
  device->ops = l->real;
  for (int i = 0; i < DEVICES; i++)
    if (lazies[i] == l) lazies[i] = NULL;
  free(l);
}

int lazy_overlaps(void) {
  int found = overlaps;
  overlaps = 0;
  return found;
}
