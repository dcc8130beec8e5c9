/* tuning_limits.c: what a variant must keep to on a device. It is what is known without compiling; a kernel
 * may still refuse a variant. A refusal says which parameter has which value, and what it may have. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "device/tuning.h"

/* What no kernel would gain from, and an array or a loop must not be given. */
enum { TILE_MOST = 1024, PANEL_MOST = 256, BLOCK_MOST = 1 << 16, SPLIT_MOST = 64, SMALL_MOST = 64 };

/* What a limit is asked of. */
typedef struct subject {
  const tsr_device *device;
  tsr_gemm_types types;
  const tsr_gemm_facts *facts;
  int64_t element_bytes; /* of what local memory and registers hold */
  char why[192];         /* the first limit that is not kept */
} subject;

TSR_PRINTF(2, 3) static bool refuse(subject *s, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(s->why, sizeof s->why, format, arguments);
  va_end(arguments);
  return false;
}

static bool range(subject *s, const char *name, int32_t value, int32_t least, int32_t most) {
  return (value >= least && value <= most) ||
         refuse(s, "%s is %d, expected %d to %d", name, (int)value, (int)least, (int)most);
}

static bool multiple(subject *s, const char *name, int32_t value, const char *of, int32_t part) {
  return (part > 0 && value % part == 0) ||
         refuse(s, "%s is %d, expected a multiple of %s, %d", name, (int)value, of, (int)part);
}

#define RANGE(field, least, most) range(s, #field, s->facts->field, least, most)
#define MULTIPLE(field, of) multiple(s, #field, s->facts->field, #of, s->facts->of)

/* OpenCL has such vectors. */
static bool vector_exists(subject *s) {
  const int vector = (int)s->facts->vector;
  return vector == 1 || vector == 2 || vector == 4 || vector == 8 || vector == 16 ||
         refuse(s, "vector is %d, expected 1, 2, 4, 8 or 16", vector);
}

static bool local_memory(subject *s, const char *what, uint64_t bytes) {
  const uint64_t most = s->device->info.local_memory_bytes;
  return bytes <= most ||
         refuse(s, "%s take %" PRIu64 " bytes of local memory, the device has %" PRIu64, what, bytes, most);
}

static bool work_group(subject *s, const char *what, int64_t items) {
  const uint64_t most = s->device->work_group_size;
  return (items > 0 && (!most || (uint64_t)items <= most)) ||
         refuse(s, "%s make %" PRId64 " work-items of a group, expected 1 to %" PRIu64, what, items, most);
}

static bool registers(subject *s, const char *what, int64_t count, int64_t most) {
  return count <= most ||
         refuse(s, "%s take %" PRId64 " registers, expected at most %" PRId64, what, count, most);
}

/* ---- panel: cl_kernels/gemm_panel.cl ---- */

static bool panel_ranges(subject *s) {
  return vector_exists(s) && RANGE(panel, 1, PANEL_MOST) && RANGE(tile_m, 1, SMALL_MOST) &&
         RANGE(prefetch, 0, 1) && RANGE(stored_k_block, 1, BLOCK_MOST) &&
         RANGE(stored_row_block, 0, BLOCK_MOST) && RANGE(stored_panels, 1, BLOCK_MOST) &&
         RANGE(copied_k_block, 1, BLOCK_MOST) && RANGE(copied_row_block, 1, BLOCK_MOST) &&
         RANGE(copied_panels, 1, BLOCK_MOST);
}

/* The kernel for few rows holds small_m rows of sums. */
static bool panel_small(subject *s) {
  return RANGE(small_m, 0, SMALL_MOST) && RANGE(small_k_block, s->facts->small_m > 0, BLOCK_MOST) &&
         RANGE(small_fetch, 0, BLOCK_MOST) && RANGE(small_fetch_row, 0, BLOCK_MOST);
}

static bool panel_multiples(subject *s) {
  const tsr_gemm_facts *f = s->facts;
  return MULTIPLE(panel, vector) && multiple(s, "panel", f->panel, "one load", 4) &&
         MULTIPLE(stored_k_block, panel) && MULTIPLE(copied_k_block, panel) &&
         MULTIPLE(stored_row_block, tile_m) && MULTIPLE(copied_row_block, tile_m) &&
         (f->tile_n == f->panel ||
          refuse(s, "tile_n is %d, expected that of panel, %d", (int)f->tile_n, (int)f->panel));
}

/* Sums, one row of the panel, one element of A. */
static bool panel_registers(subject *s) {
  const tsr_gemm_facts *f = s->facts;
  const int64_t vectors = f->panel / f->vector, most = s->device->vector_registers;
  return !most ||
         registers(s, "sums (tile_m x panel / vector) and a row", f->tile_m * vectors + vectors + 1, most);
}

static bool panel_local_memory(subject *s) {
  const tsr_gemm_facts *f = s->facts;
  const int64_t pad = 16, stored = (int64_t)f->stored_row_block * (f->stored_k_block + pad);
  const int64_t copied =
      (int64_t)f->copied_row_block * (f->copied_k_block + pad) + (int64_t)f->copied_k_block * f->panel + pad;
  return local_memory(s, "blocks of stored_row_block x stored_k_block",
                      (uint64_t)(stored * s->element_bytes)) &&
         local_memory(s, "blocks of (copied_row_block + panel) x copied_k_block",
                      (uint64_t)(copied * s->element_bytes));
}

static bool keeps_panel(subject *s) {
  return panel_ranges(s) && panel_small(s) && panel_multiples(s) && panel_registers(s) &&
         panel_local_memory(s);
}

/* ---- tile: cl_kernels/gemm_tile.cl ---- */

static bool tile_ranges(subject *s) {
  const int sub_group = (int)s->facts->sub_group;
  const bool known = !sub_group || (sub_group >= 8 && sub_group <= 64 && 64 % sub_group == 0);
  return vector_exists(s) && RANGE(tile_m, 1, TILE_MOST) && RANGE(tile_n, 1, TILE_MOST) &&
         RANGE(tile_k, 1, TILE_MOST) && RANGE(item_m, 1, TILE_MOST) && RANGE(item_n, 1, TILE_MOST) &&
         RANGE(buffers, 1, 2) && RANGE(split_k, 0, SPLIT_MOST) &&
         (known || refuse(s, "sub_group is %d, expected 0, 8, 16, 32 or 64", sub_group));
}

static bool tile_multiples(subject *s) {
  return MULTIPLE(tile_m, item_m) && MULTIPLE(tile_n, item_n) && MULTIPLE(item_m, vector) &&
         MULTIPLE(item_n, vector) && MULTIPLE(tile_k, vector);
}

/* 32-bit registers: sums, and one row and column of the operands; a work-item has at most 255. */
static bool tile_registers(subject *s) {
  const int64_t most = 160, m = s->facts->item_m, n = s->facts->item_n;
  return registers(s, "sums (item_m x item_n), a row and a column", (m * n + m + n) * (s->element_bytes / 4),
                   most);
}

static bool keeps_tile(subject *s) {
  const tsr_gemm_facts *f = s->facts;
  return tile_ranges(s) && tile_multiples(s) &&
         work_group(s, "tile_m / item_m x tile_n / item_n",
                    (int64_t)(f->tile_m / f->item_m) * (f->tile_n / f->item_n)) &&
         tile_registers(s) &&
         local_memory(s, "buffers of (tile_m + tile_n) x tile_k", tsr_gemm_tile_local_bytes(f, s->types));
}

/* ---- mma: cl_kernels/gemm_mma.cl ---- */

static bool mma_ranges(subject *s) {
  return RANGE(instruction, 1, TSR_MMA_COUNT - 1) && RANGE(tile_m, 1, TILE_MOST) &&
         RANGE(tile_n, 1, TILE_MOST) && RANGE(tile_k, 1, TILE_MOST) && RANGE(warp_m, 1, TILE_MOST) &&
         RANGE(warp_n, 1, TILE_MOST) && RANGE(stages, 2, 8) && RANGE(split_k, 0, SPLIT_MOST) &&
         RANGE(emulated, 0, 1);
}

static bool mma_multiples(subject *s) {
  const tsr_mma_size size = tsr_mma_size_of(s->facts->instruction);
  return MULTIPLE(tile_m, warp_m) && MULTIPLE(tile_n, warp_n) &&
         multiple(s, "warp_m", s->facts->warp_m, "the instruction's rows", size.rows) &&
         multiple(s, "warp_n", s->facts->warp_n, "the instruction's columns", size.cols);
}

/* Sums of a warp, over its work-items. */
static bool mma_registers(subject *s) {
  const tsr_gemm_facts *f = s->facts;
  const int64_t most = 256;
  return registers(s, "sums (warp_m x warp_n / work-items of a warp)",
                   f->warp_m * f->warp_n / tsr_mma_size_of(f->instruction).warp, most);
}

static bool keeps_mma(subject *s) {
  const tsr_gemm_facts *f = s->facts;
  return mma_ranges(s) && mma_multiples(s) &&
         work_group(s, "warps of tile_m / warp_m x tile_n / warp_n", (int64_t)tsr_gemm_mma_items(f)) &&
         mma_registers(s) &&
         local_memory(s, "stages of (tile_m + tile_n) x tile_k", tsr_gemm_mma_local_bytes(f));
}

/* ---- all ---- */

/* `tuning` is of a device's default alone, and no kernel looks at it. */
static bool keeps_family(subject *s) {
  tsr_gemm_facts copy = *s->facts;
  for (int i = 0; i < tsr_gemm_parameter_count(); i++) {
    const int32_t *value = tsr_gemm_parameter(&copy, i);
    if (*value && value != &copy.tuning && !tsr_gemm_family_has(copy.family, i))
      return refuse(s, "%s is %d, but family %s has no such parameter", tsr_gemm_parameter_name(i),
                    (int)*value, tsr_gemm_family_name(copy.family));
  }
  return true;
}

tsr_status tsr_tuning_check(const tsr_device *device, tsr_gemm_types types, const tsr_gemm_facts *facts,
                            tsr_error *error) {
  /* Another family, such as clblast, looks after itself. */
  static bool (*const keeps[TSR_GEMM_FAMILY_COUNT])(subject *) = {
      [TSR_GEMM_PANEL] = keeps_panel, [TSR_GEMM_TILE] = keeps_tile, [TSR_GEMM_MMA] = keeps_mma};
  subject s = {device, types, facts, (int64_t)tsr_dtype_bytes(tsr_gemm_dtype_c(types)), ""};
  char variant[TSR_VARIANT_BYTES];
  if (keeps_family(&s) && (!keeps[facts->family] || keeps[facts->family](&s))) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "%s on %s: %s",
                  tsr_gemm_facts_format(facts, variant, sizeof variant), device->info.name, s.why);
}
