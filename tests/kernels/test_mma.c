/* test_mma.c: the kernel for matrix units, with each instruction emulated as its vendor documents it, on the
 * device under test: both element types, all transposes, ragged and aligned, whole and cut k, epilogues. And
 * that a register in the wrong place is seen, for each instruction. */
#include "gemm_case.h"

#include "backends/gpu_mma.h"
#include "planted.h"

#define VARIANT(name, rows, cols, depth, warp_rows, warp_cols, slots)                                        \
  {                                                                                                          \
    .family = TSR_GEMM_MMA, .instruction = TSR_MMA_##name, .tile_m = (rows), .tile_n = (cols),               \
    .tile_k = (depth), .warp_m = (warp_rows), .warp_n = (warp_cols), .stages = (slots), .split_k = 3,        \
    .emulated = 1                                                                                            \
  }

/* Each has several warps in both directions, several fragments of each kind, several steps in flight. In the
 * order of tsr_mma_instruction. */
static const tsr_gemm_facts variants[] = {
    VARIANT(NVIDIA_MMA, 64, 32, 32, 32, 16, 3),  VARIANT(AMD_MFMA, 32, 64, 32, 16, 32, 2),
    VARIANT(AMD_WMMA, 64, 32, 32, 32, 16, 2),    VARIANT(AMD_WMMA12, 32, 64, 32, 16, 32, 3),
    VARIANT(INTEL_DPAS8, 32, 32, 32, 16, 16, 2), VARIANT(INTEL_DPAS16, 32, 64, 32, 16, 32, 2),
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static tsr_device *open_plain(fixture *f) {
  return open_device(f, test_selector(), TSR_DEVICE_OPTIONS(.gemm = "reference"));
}

/* A plain product that is not aligned, and one with an epilogue that is, but for one type of most
 * instructions; every third extreme. */
static void run_form(tsr_device *device, const tsr_gemm_facts *facts, tsr_gemm_types types, int form) {
  const bool copies = facts->instruction == TSR_MMA_NVIDIA_MMA;
  device->gemm[types] = *facts;
  for (int i = 0; i < 2; i++) {
    test_case t = draw_case(facts, types, form + 4 * i + 8 * (form % 3));
    t.aligned = i && (copies || types == TSR_GEMM_TYPES_F16);
    if ((form + i) % 3 == 0) make_extreme(&t);
    run_case(device, &t);
  }
}

static void test_variants(void **state) {
  if (!has_device(*state)) skip();
  tsr_device *device = open_plain(*state);
  seed = 3;
  for (size_t v = 0; v < VARIANTS; v++)
    for (int types = TSR_GEMM_TYPES_F16; types <= TSR_GEMM_TYPES_BF16; types++)
      for (int form = 0; form < 4; form++) run_form(device, &variants[v], (tsr_gemm_types)types, form);
  tsr_device_close(&device);
}

/* ---- planted mistakes ---- */

#define OF(name) &variants[TSR_MMA_##name - 1], TSR_GEMM_TYPES_F16

static const mistake mistakes[] = {
    {OF(NVIDIA_MMA), "registers 1 and 2 of A change places", "mma_nvidia.h",
     "tile_at(row + 8 * low + line, k / 8 + high, TILE_K / 8)",
     "tile_at(row + 8 * high + line, k / 8 + low, TILE_K / 8)"},
    {OF(NVIDIA_MMA), "a step begins before its copies have arrived", "mma_nvidia.h",
     "#define YOUNGER (LOOKAHEAD - 1)", "#define YOUNGER LOOKAHEAD"},
    {OF(AMD_MFMA), "neighbours in k change places, in A alone", "mma_amd_mfma.h",
     "k_line_at(row + w->lane % 16, k + w->lane / 16 * 4)",
     "k_line_at(row + w->lane % 16, k + (w->lane / 16 ^ 1) * 4)"},
    {OF(AMD_WMMA), "the upper half of the wave has another A", "mma_amd_wmma.h",
     "load_line(tile, row + w->lane % 16, k)",
     "load_line(tile, row + (w->lane < 16 ? w->lane : w->lane ^ 1) % 16, k)"},
    {OF(AMD_WMMA12), "C as RDNA3 has it", "mma_amd_wmma12.h", "return lane / 16 * 8 + i;",
     "return 2 * i + lane / 16;"},
    {OF(INTEL_DPAS8), "rows of A change places", "mma_intel.h",
     "block_read_ui8(w, (local const uint *)(tile + a_at(row, k)));",
     "block_read_ui8(w, (local const uint *)(tile + a_at(row, k))).s10325476;"},
    {OF(INTEL_DPAS16), "the halves of a pair of B change places", "mma_intel.h",
     "block_read_ui8(w, (local const uint *)(tile + b_at(column, k)));",
     "rotate(block_read_ui8(w, (local const uint *)(tile + b_at(column, k))), (uint8)16);"},
    {OF(NVIDIA_MMA), "there is no bias", "gemm_epilogue.h", "value += load_some(e->bias + j, count);", ";"},
};

static void test_mistakes(void **state) {
  if (!has_device(*state)) skip();
  expect_refusals(*state, mistakes, sizeof mistakes / sizeof *mistakes);
}

/* ---- which device has which ---- */

static void test_choice(void **state) {
#define DPAS "cl_khr_fp16 cl_intel_subgroup_matrix_multiply_accumulate"
  static const struct {
    const char *platform, *name, *extensions;
    uint32_t capability, sub_group;
    tsr_mma_instruction wanted;
  } cases[] = {
      {"NVIDIA CUDA", "NVIDIA H100 PCIe", "", 90, 0, TSR_MMA_NVIDIA_MMA},
      {"NVIDIA CUDA", "NVIDIA A100-SXM4-40GB", "", 80, 0, TSR_MMA_NVIDIA_MMA},
      {"NVIDIA CUDA", "Tesla T4", "", 75, 0, TSR_MMA_NONE},
      {"AMD Accelerated Parallel Processing", "gfx90a:sramecc+:xnack-", "", 0, 0, TSR_MMA_AMD_MFMA},
      {"AMD Accelerated Parallel Processing", "gfx942:sramecc+:xnack-", "", 0, 0, TSR_MMA_AMD_MFMA},
      {"AMD Accelerated Parallel Processing", "gfx908", "", 0, 0, TSR_MMA_NONE},
      {"AMD Accelerated Parallel Processing", "gfx1100", "", 0, 0, TSR_MMA_AMD_WMMA},
      {"AMD Accelerated Parallel Processing", "gfx1030", "", 0, 0, TSR_MMA_NONE},
      {"AMD Accelerated Parallel Processing", "gfx1201", "", 0, 0, TSR_MMA_AMD_WMMA12},
      {"rusticl", "AMD Radeon RX 7900 XTX (radeonsi, navi31)", "", 0, 0, TSR_MMA_NONE},
      {"Intel(R) OpenCL Graphics", "Intel(R) Arc(TM) A770 Graphics", DPAS, 0, 8, TSR_MMA_INTEL_DPAS8},
      {"Intel(R) OpenCL Graphics", "Intel(R) Data Center GPU Max 1550", DPAS, 0, 16, TSR_MMA_INTEL_DPAS16},
      {"Intel(R) OpenCL Graphics", "Intel(R) Arc(TM) A770 Graphics", DPAS "_other", 0, 8, TSR_MMA_NONE},
      {"Intel(R) OpenCL Graphics", "Intel(R) UHD Graphics 770", "cl_khr_fp16", 0, 8, TSR_MMA_NONE},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_opencl_facts facts = {.kind = TSR_DEVICE_GPU,
                              .compute_capability = cases[i].capability,
                              .sub_group_least = cases[i].sub_group,
                              .local_memory_bytes = 48 << 10,
                              .work_group_size_max = 256};
    tsr_gemm_facts variant = {0};
    snprintf(facts.platform, sizeof facts.platform, "%s", cases[i].platform);
    snprintf(facts.name, sizeof facts.name, "%s", cases[i].name);
    snprintf(facts.extensions, sizeof facts.extensions, "%s", cases[i].extensions);
    bool found = tsr_gpu_mma(&facts, TSR_GEMM_TYPES_BF16, &variant);
    if ((found ? variant.instruction : TSR_MMA_NONE) != (int32_t)cases[i].wanted || variant.emulated)
      fail_msg("%s: instruction %d, expected %d", cases[i].name, (int)variant.instruction,
               (int)cases[i].wanted);
    assert_false(tsr_gpu_mma(&facts, TSR_GEMM_TYPES_F32, &variant));
    assert_false(tsr_gpu_mma(&facts, TSR_GEMM_TYPES_F32_BF16, &variant));
    facts.local_memory_bytes = 16 << 10;
    assert_false(tsr_gpu_mma(&facts, TSR_GEMM_TYPES_BF16, &variant));
  }
#undef DPAS
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_choice),
      cmocka_unit_test(test_variants),
      cmocka_unit_test(test_mistakes),
  };
  return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
