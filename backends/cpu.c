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

typedef struct platform_row {
  const char *platform, *short_name, *reason;
  bool panel;    /* whether its compiler can digest the panel kernel */
  bool prefetch; /* whether it has __builtin_prefetch */
} platform_row;

/* rusticl's llvmpipe did not end compiling the panel kernel within two minutes. */
static const platform_row platforms[] = {
    {"Portable Computing Language", "pocl", "a CPU of PoCL", true, true},
    {"Intel(R) OpenCL", "intel", "a CPU of Intel's CPU runtime", true, false},
    {"rusticl", "rusticl", "a CPU of Mesa's rusticl (llvmpipe): slow, for tests", false, false},
    {NULL, "opencl", "a CPU of an OpenCL driver that is not known here", true, false},
};

typedef struct panel_row {
  uint32_t vector_width;
  tsr_gemm_facts facts;
} panel_row;

/* Blockings as {k_block, row_block, panels_per_group}; prefetch is the platform's. */
#define PANEL_FACTS(tile_m, panel, ...)                                                                      \
  { TSR_GEMM_PANEL, tile_m, panel, panel, false, __VA_ARGS__ }

static const panel_row panel_rows[] = {
    {16, PANEL_FACTS(6, 64, {2048, 0, 1}, {192, 48, 8})},
    {8, PANEL_FACTS(6, 16, {256, 96, 64}, {192, 48, 32})},
#if defined(__x86_64__) || defined(__i386__)
    {4, PANEL_FACTS(6, 8, {256, 96, 128}, {192, 48, 64})},
#else
    {4, PANEL_FACTS(6, 16, {256, 96, 64}, {192, 48, 32})},
#endif
};

static const tsr_gemm_facts other_families[] = {
    {.family = TSR_GEMM_REFERENCE, .tile_m = 4, .tile_n = 16},
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

/* Local memory of a work-group of the panel kernel that copies both, see gemm_panel.cl. */
static uint64_t copy_bytes(const tsr_gemm_blocking *blocking, int panel) {
  uint64_t a = (uint64_t)blocking->row_block * (uint64_t)(blocking->k_block + 16);
  uint64_t b = (uint64_t)blocking->panels_per_group * (uint64_t)blocking->k_block * (uint64_t)panel;
  return (a + b) * sizeof(float);
}

static void fit_local_memory(tsr_gemm_blocking *blocking, int panel, uint64_t bytes) {
  while (blocking->panels_per_group > 1 && copy_bytes(blocking, panel) > bytes)
    blocking->panels_per_group /= 2;
  while (blocking->k_block > panel && copy_bytes(blocking, panel) > bytes)
    blocking->k_block = blocking->k_block / 2 / panel * panel;
}

/* False where there is no row for the vectors. The copies of a block must fit local memory. */
static bool find_panel(const tsr_opencl_facts *facts, tsr_gemm_facts *out) {
  if (!find_platform(facts)->panel) return false;
  for (size_t i = 0; i < sizeof panel_rows / sizeof *panel_rows; i++) {
    if (panel_rows[i].vector_width != facts->float_vector_width) continue;
    *out = panel_rows[i].facts;
    out->prefetch = find_platform(facts)->prefetch;
    fit_local_memory(&out->copied, out->panel, facts->local_memory_bytes);
    if (copy_bytes(&(tsr_gemm_blocking){out->stored.k_block, out->stored.row_block, 0}, 0) >
        facts->local_memory_bytes)
      out->stored.row_block = 0;
    return true;
  }
  return false;
}

static void gemm(const tsr_opencl_facts *facts, tsr_dtype dtype, int preference, tsr_gemm_facts *out) {
  tsr_gemm_facts panel;
  if (dtype == TSR_F64 && !facts->f64) return;
  if (dtype == TSR_F32 && find_panel(facts, &panel) && preference-- == 0)
    *out = panel;
  else if (preference < (int)(sizeof other_families / sizeof *other_families))
    *out = other_families[preference];
}

const tsr_backend tsr_backend_cpu = {
    .name = "cpu",
    .claim = claim,
    .describe = describe,
    .gemm = gemm,
};
