/* gpu_gemm.c: see the header. Shares of CLBlast are cut at 32 columns: it pads to its tiles whatever it gets,
 * so this bounds what is lost without making shares coarse. */
#include "gpu_gemm.h"

#include "gpu_mma.h"

enum { TILE_K_LEAST = 8 };

const tsr_gpu_tiles tsr_gpu_tiles_generic = {
    .local_bytes = 32 << 10,
    .f32 = TSR_GPU_TILE(64, 64, 16, 4, 4, 4, 2, 16),
    .f64 = TSR_GPU_TILE(64, 64, 8, 4, 4, 2, 2, 16),
};

static const tsr_gemm_facts others[] = {
    {.family = TSR_GEMM_CLBLAST, .tile_m = 32, .tile_n = 32},
    {.family = TSR_GEMM_REFERENCE, .tile_m = 4, .tile_n = 16},
};

static bool fits(const tsr_opencl_facts *facts, uint64_t local_bytes, tsr_gemm_types types,
                 const tsr_gemm_facts *tile) {
  const uint64_t there = facts->local_memory_bytes < local_bytes ? facts->local_memory_bytes : local_bytes;
  const size_t items = (size_t)(tile->tile_m / tile->item_m) * (size_t)(tile->tile_n / tile->item_n);
  return tsr_gemm_tile_local_bytes(tile, types) <= there && items <= facts->work_group_size_max;
}

/* One step down; false at the bottom. Fewer bytes first, while the items are what they were. */
static bool shrink(const tsr_opencl_facts *facts, tsr_gemm_facts *tile) {
  const size_t items = (size_t)(tile->tile_m / tile->item_m) * (size_t)(tile->tile_n / tile->item_n);
  if (items <= facts->work_group_size_max && tile->buffers > 1)
    tile->buffers = 1;
  else if (items <= facts->work_group_size_max && tile->tile_k > TILE_K_LEAST)
    tile->tile_k /= 2;
  else if (tile->tile_m > tile->item_m && tile->tile_m >= tile->tile_n)
    tile->tile_m /= 2;
  else if (tile->tile_n > tile->item_n)
    tile->tile_n /= 2;
  else
    return false;
  return true;
}

/* Gives the variant for these types, made smaller until the device has the local memory and the work-group
 * for it; false if none fits. */
static bool find_tile(const tsr_opencl_facts *facts, const tsr_gpu_tiles *tiles, tsr_gemm_types types,
                      tsr_gemm_facts *out) {
  tsr_gemm_facts tile = types == TSR_GEMM_TYPES_F64 ? tiles->f64 : tiles->f32;
  while (!fits(facts, tiles->local_bytes, types, &tile))
    if (!shrink(facts, &tile)) return false;
  *out = tile;
  return true;
}

void tsr_gpu_gemm(const tsr_opencl_facts *facts, const tsr_gpu_tiles *tiles, tsr_gemm_types types,
                  int preference, tsr_gemm_facts *out) {
  tsr_gemm_facts tile, units;
  if (types == TSR_GEMM_TYPES_F64 && !facts->f64) return;
  if (tsr_gpu_mma(facts, types, &units) && preference-- == 0) {
    *out = units;
    return;
  }
  if (find_tile(facts, tiles, types, &tile) && preference-- == 0) {
    *out = tile;
    return;
  }
  /* CLBlast multiplies f32 by f32 and f64 by f64. */
  if (types > TSR_GEMM_TYPES_F64) preference++;
  if (preference < (int)(sizeof others / sizeof *others)) *out = others[preference];
}
