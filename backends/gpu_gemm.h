/* backends/gpu_gemm.h: the GEMM families that any GPU can use, in order: matrix units where there are some,
 * the tile kernel, CLBlast, the reference kernel. All store weights row-major. */
#ifndef TSR_BACKENDS_GPU_GEMM_H
#define TSR_BACKENDS_GPU_GEMM_H

#include "device/backend.h"

/* The variants of cl_kernels/gemm_tile.cl that a kind of device runs best, before they are made to fit. */
typedef struct tsr_gpu_tiles {
  uint64_t local_bytes; /* of a work-group: no variant takes more */
  tsr_gemm_facts f32, f64;
} tsr_gpu_tiles;

#define TSR_GPU_TILE(rows, cols, depth, item_rows, item_cols, width, halves, parts)                          \
  {                                                                                                          \
    .family = TSR_GEMM_TILE, .tile_m = (rows), .tile_n = (cols), .tile_k = (depth), .item_m = (item_rows),   \
    .item_n = (item_cols), .vector = (width), .buffers = (halves), .split_k = (parts)                        \
  }

/* For devices that nothing is known of. */
extern const tsr_gpu_tiles tsr_gpu_tiles_generic;

/* The body of a backend's gemm slot. */
void tsr_gpu_gemm(const tsr_opencl_facts *facts, const tsr_gpu_tiles *tiles, tsr_gemm_types types,
                  int preference, tsr_gemm_facts *out);

#endif
