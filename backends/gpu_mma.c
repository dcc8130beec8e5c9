/* gpu_mma.c: see the header. Devices are named narrowly: on any other the tile kernel multiplies, and a
 * driver that does not compile the instruction, or computes wrong with it, leaves the tile kernel too.
 *
 * Nobody has measured these variants. They were chosen by what compiles without spilling: a warp's sums take
 * up to half of its registers, and local memory holds 2 steps (3 in NVIDIA's 48 KiB).
 * tests/kernels/test_mma.c proves the layout of the registers, tools/dev/vendor_checks that the programs
 * compile. */
#include "gpu_mma.h"

#include <string.h>

typedef struct unit_row {
  const char *platform;  /* begins so */
  const char *device;    /* its name begins so; "" = any */
  const char *extension; /* that it must have; "" = none */
  uint32_t capability;   /* NVIDIA's compute capability, at least; 80 = 8.0 */
  uint32_t sub_group;    /* the smallest that it has; 0 = no matter */
  tsr_gemm_facts facts;
} unit_row;

#define VARIANT(name, rows, cols, depth, warp_rows, warp_cols, slots)                                        \
  {                                                                                                          \
    .family = TSR_GEMM_MMA, .instruction = TSR_MMA_##name, .tile_m = (rows), .tile_n = (cols),               \
    .tile_k = (depth), .warp_m = (warp_rows), .warp_n = (warp_cols), .stages = (slots), .split_k = 8         \
  }
#define AMD "AMD Accelerated Parallel Processing"
#define INTEL "Intel(R) OpenCL"
#define DPAS "cl_intel_subgroup_matrix_multiply_accumulate"

static const unit_row rows[] = {
    {"NVIDIA CUDA", "", "", 80, 0, VARIANT(NVIDIA_MMA, 128, 128, 32, 64, 64, 3)},
    {AMD, "gfx90a", "", 0, 0, VARIANT(AMD_MFMA, 128, 128, 32, 64, 64, 2)},
    {AMD, "gfx94", "", 0, 0, VARIANT(AMD_MFMA, 128, 128, 32, 64, 64, 2)},
    {AMD, "gfx11", "", 0, 0, VARIANT(AMD_WMMA, 128, 128, 32, 64, 32, 2)},
    {AMD, "gfx120", "", 0, 0, VARIANT(AMD_WMMA12, 128, 128, 32, 64, 32, 2)},
    {INTEL, "", DPAS, 0, 8, VARIANT(INTEL_DPAS8, 128, 128, 32, 32, 16, 2)},
    {INTEL, "", DPAS, 0, 16, VARIANT(INTEL_DPAS16, 128, 128, 32, 32, 32, 2)},
};

static bool begins(const char *text, const char *beginning) {
  return !strncmp(text, beginning, strlen(beginning));
}

/* A word of a list with blanks between. */
static bool lists(const char *list, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = list; length && (at = strstr(at, word)); at += length)
    if ((at == list || at[-1] == ' ') && (!at[length] || at[length] == ' ')) return true;
  return !length;
}

static bool is_for(const unit_row *row, const tsr_opencl_facts *facts) {
  return facts->kind == TSR_DEVICE_GPU && begins(facts->platform, row->platform) &&
         begins(facts->name, row->device) && lists(facts->extensions, row->extension) &&
         facts->compute_capability >= row->capability &&
         (!row->sub_group || facts->sub_group_least == row->sub_group) &&
         tsr_gemm_mma_local_bytes(&row->facts) <= facts->local_memory_bytes &&
         tsr_gemm_mma_items(&row->facts) <= facts->work_group_size_max;
}

bool tsr_gpu_mma(const tsr_opencl_facts *facts, tsr_gemm_types types, tsr_gemm_facts *out) {
  if (types != TSR_GEMM_TYPES_F16 && types != TSR_GEMM_TYPES_BF16) return false;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (is_for(&rows[i], facts)) {
      *out = rows[i].facts;
      return true;
    }
  return false;
}
