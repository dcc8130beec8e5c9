/* cpu.c: CPUs behind any OpenCL driver: PoCL, Intel's CPU runtime, rusticl on llvmpipe.
 *
 * The panel kernel's facts follow the width of the vector registers and how many there are: the register tile
 * must leave room for one row of the panel and one broadcast element.
 *
 *     width 16   AVX-512, 32 registers   6 x 64: 24 + 4 + 1
 *     width  8   AVX2,    16 registers   6 x 16: 12 + 2 + 1
 *     width  4   NEON,    32 registers   6 x 16: 24 + 4 + 1
 *     width  4   SSE,     16 registers   6 x  8: 12 + 2 + 1
 *
 * Memory: PoCL takes its size from hwloc, which on small virtual machines reads a fraction of what is there
 * (3.7 GiB of 24), and enforces only the limit of one buffer. So a CPU device that shares the host's memory
 * counts the physical memory less 2 GiB for the system (less a quarter where that is less), unless the user
 * set POCL_MEMORY_LIMIT. The largest buffer stays what OpenCL says, since that is enforced. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend_list.h"
#include "gpu_gemm.h"

typedef struct platform_row {
  const char *platform, *short_name, *reason;
  bool panel;    /* whether its compiler can digest the panel kernel */
  bool prefetch; /* whether it has __builtin_prefetch */
  bool pages;    /* whether it was seen to use memory that it is given in place */
} platform_row;

/* rusticl's llvmpipe did not end compiling the panel kernel within two minutes. */
static const platform_row platforms[] = {
    {"Portable Computing Language", "pocl", "a CPU of PoCL", true, true, true},
    {"Intel(R) OpenCL", "intel", "a CPU of Intel's CPU runtime", true, false, false},
    {"rusticl", "rusticl", "a CPU of Mesa's rusticl (llvmpipe): slow, for tests", false, false, false},
    {NULL, "opencl", "a CPU of an OpenCL driver that is not known here", true, false, false},
};

/* Products of few rows, gemm_small.cl. Measured on AVX2 (Zen 3): fetching gains up to 1.5 times, but costs a
 * single row of f32 a tenth, where the hardware's own prefetching is enough. The others follow from it, or,
 * AVX-512, from its larger panels. */
typedef struct small_row {
  int32_t m, k_block, fetch, fetch_row, fetch_narrow_row;
} small_row;

/* What suits vector registers of `vector_width` floats. In f64 half as many elements make the same registers
 * and panels, and twice as many panels the same columns; blocks of the same depth would be twice as large. */
typedef struct panel_row {
  uint32_t vector_width;
  int registers;
  tsr_gemm_facts f32, f64;
  small_row small;
} panel_row;

/* Blocking as k_block, row_block, panels per group, for operands as they are stored and for copied ones. */
#define PANEL_FACTS(width, rows, cols, k1, rows1, panels1, k2, rows2, panels2)                               \
  {                                                                                                          \
    .family = TSR_GEMM_PANEL, .tile_m = (rows), .tile_n = (cols), .panel = (cols), .vector = (width),        \
    .stored_k_block = (k1), .stored_row_block = (rows1), .stored_panels = (panels1), .copied_k_block = (k2), \
    .copied_row_block = (rows2), .copied_panels = (panels2)                                                  \
  }

static const panel_row panel_rows[] = {
    {16,
     32,
     PANEL_FACTS(16, 6, 64, 2048, 0, 1, 256, 192, 32),
     PANEL_FACTS(8, 6, 32, 2048, 0, 2, 256, 192, 64),
     {16, 128, 6144, 6144, 6144}},
    {8,
     16,
     PANEL_FACTS(8, 6, 16, 384, 144, 64, 192, 240, 128),
     PANEL_FACTS(4, 6, 8, 256, 96, 128, 192, 240, 256),
     {16, 128, 2048, 0, 3072}},
#if defined(__x86_64__) || defined(__i386__)
    {4,
     16,
     PANEL_FACTS(4, 6, 8, 256, 96, 128, 192, 240, 256),
     PANEL_FACTS(2, 6, 4, 256, 96, 256, 192, 240, 512),
     {16, 256, 2048, 0, 3072}},
#else
    {4,
     32,
     PANEL_FACTS(4, 6, 16, 256, 96, 64, 192, 240, 128),
     PANEL_FACTS(2, 6, 8, 256, 96, 128, 192, 240, 256),
     {16, 128, 2048, 0, 3072}},
#endif
};

static const tsr_gemm_facts other_families[] = {
    {.family = TSR_GEMM_REFERENCE, .tile_m = 4, .tile_n = 16},
    TSR_GPU_TILE(16, 16, 16, 1, 1, 1, 1, 16), /* for tests: rusticl compiles it, PoCL runs it */
    {.family = TSR_GEMM_CLBLAST, .tile_m = 32, .tile_n = 32},
};

static const platform_row *find_platform(const tsr_opencl_facts *facts) {
  const platform_row *row = platforms;
  while (row->platform && strcmp(row->platform, facts->platform)) row++;
  return row;
}

static bool claim(const tsr_opencl_facts *facts, const char **reason) {
  *reason = find_platform(facts)->reason;
  return facts->kind == TSR_DEVICE_CPU;
}

static uint64_t usable_memory(void) {
  const uint64_t for_the_system = (uint64_t)2 << 30;
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return 0;
  uint64_t there = (uint64_t)pages * (uint64_t)page;
  return there - (there / 4 < for_the_system ? there / 4 : for_the_system);
}

static void describe(const tsr_opencl_facts *facts, tsr_device_info *info) {
  snprintf(info->short_name, sizeof info->short_name, "%s", find_platform(facts)->short_name);
  uint64_t there = facts->unified_memory && !getenv("POCL_MEMORY_LIMIT") ? usable_memory() : 0;
  if (there > info->memory_bytes) info->memory_bytes = there;
}

/* Local memory of a work-group of the panel kernel, see gemm_panel.cl. */
static uint64_t copy_bytes(int k_block, int row_block, int panel, uint64_t element_bytes) {
  uint64_t a = (uint64_t)row_block * (uint64_t)(k_block + 16);
  uint64_t b = (uint64_t)k_block * (uint64_t)panel;
  return (a + b) * element_bytes + 64;
}

/* The copies of a block must fit local memory. */
static void fit_local_memory(tsr_gemm_facts *facts, uint64_t element_bytes, uint64_t bytes) {
  int32_t *k_block = &facts->copied_k_block, *rows = &facts->copied_row_block;
  while (*rows > facts->tile_m && copy_bytes(*k_block, *rows, facts->panel, element_bytes) > bytes)
    *rows -= facts->tile_m;
  while (*k_block > facts->panel && copy_bytes(*k_block, *rows, facts->panel, element_bytes) > bytes)
    *k_block -= facts->panel;
  if (copy_bytes(facts->stored_k_block, facts->stored_row_block, 0, element_bytes) > bytes)
    facts->stored_row_block = 0;
}

static void set_small(tsr_gemm_facts *facts, const small_row *row, tsr_dtype weight) {
  facts->small_m = row->m;
  facts->small_k_block = row->k_block;
  facts->small_fetch = row->fetch;
  facts->small_fetch_row = tsr_dtype_bytes(weight) < 4 ? row->fetch_narrow_row : row->fetch_row;
}

/* False where there is no row for the vectors, or A would have to be widened. */
static bool find_panel(const tsr_opencl_facts *facts, tsr_gemm_types types, tsr_gemm_facts *out) {
  const bool wide = types == TSR_GEMM_TYPES_F64;
  const platform_row *platform = find_platform(facts);
  const tsr_dtype a = tsr_gemm_dtype_a(types);
  if (!platform->panel || tsr_dtype_bytes(a) < 4) return false;
  for (size_t i = 0; i < sizeof panel_rows / sizeof *panel_rows; i++) {
    if (panel_rows[i].vector_width != facts->float_vector_width) continue;
    *out = wide ? panel_rows[i].f64 : panel_rows[i].f32;
    out->prefetch = platform->prefetch;
    set_small(out, &panel_rows[i].small, tsr_gemm_dtype_b(types));
    fit_local_memory(out, tsr_dtype_bytes(a), facts->local_memory_bytes);
    return true;
  }
  return false;
}

static void gemm(const tsr_opencl_facts *facts, tsr_gemm_types types, int preference, tsr_gemm_facts *out) {
  tsr_gemm_facts panel;
  const bool plain = types <= TSR_GEMM_TYPES_F64; /* what CLBlast multiplies */
  const int all = (int)(sizeof other_families / sizeof *other_families), others = plain ? all : all - 1;
  if (types == TSR_GEMM_TYPES_F64 && !facts->f64) return;
  if (find_panel(facts, types, &panel) && preference-- == 0)
    *out = panel;
  else if (preference < others)
    *out = other_families[preference];
}

/* Which vectors there are. */
static void architecture(const tsr_opencl_facts *facts, char *out, size_t bytes) {
#if defined(__x86_64__) || defined(__i386__)
  const char *name = facts->float_vector_width >= 16  ? "x86-avx512"
                     : facts->float_vector_width == 8 ? "x86-avx2"
                                                      : "x86-sse";
#elif defined(__aarch64__)
  const char *name = "arm-neon";
#else
  const char *name = "cpu";
#endif
  snprintf(out, bytes, "%s", name);
}

static int vector_registers(const tsr_opencl_facts *facts) {
  for (size_t i = 0; i < sizeof panel_rows / sizeof *panel_rows; i++)
    if (panel_rows[i].vector_width == facts->float_vector_width) return panel_rows[i].registers;
  return 0;
}

static bool uses_huge_pages(const tsr_opencl_facts *facts) {
  return find_platform(facts)->pages;
}

const tsr_backend tsr_backend_cpu = {
    .name = "cpu",
    .claim = claim,
    .describe = describe,
    .gemm = gemm,
    .uses_huge_pages = uses_huge_pages,
    .architecture = architecture,
    .vector_registers = vector_registers,
};
