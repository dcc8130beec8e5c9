#include "base/gemm_facts.h"

#include <string.h>

#include "base/memory.h"

enum { REDUCE_PARTIALS = 256 };

static const char *const family_names[] = {
#define TSR_GEMM_FAMILY_NAME(name, text) text,
    TSR_GEMM_FAMILY_LIST(TSR_GEMM_FAMILY_NAME)
#undef TSR_GEMM_FAMILY_NAME
};

const char *tsr_gemm_family_name(tsr_gemm_family family) {
  return family < TSR_GEMM_FAMILY_COUNT ? family_names[family] : "?";
}

tsr_gemm_family tsr_gemm_family_of(const char *name) {
  int family = 0;
  while (family < TSR_GEMM_FAMILY_COUNT && strcmp(name, family_names[family])) family++;
  return (tsr_gemm_family)family;
}

static bool same_blocking(const tsr_gemm_blocking *a, const tsr_gemm_blocking *b) {
  return a->k_block == b->k_block && a->row_block == b->row_block &&
         a->panels_per_group == b->panels_per_group;
}

static bool equal(const tsr_gemm_facts *a, const tsr_gemm_facts *b) {
  return a->family == b->family && a->tile_m == b->tile_m && a->tile_n == b->tile_n && a->panel == b->panel &&
         a->prefetch == b->prefetch && same_blocking(&a->stored, &b->stored) &&
         same_blocking(&a->copied, &b->copied);
}

bool tsr_gemm_facts_equal(const tsr_gemm_facts *a, const tsr_gemm_facts *b, int count) {
  for (int i = 0; i < count; i++)
    if (!equal(&a[i], &b[i])) return false;
  return true;
}

const tsr_gemm_blocking *tsr_gemm_blocking_of(const tsr_gemm_facts *facts, bool transpose_a,
                                              bool b_as_stored) {
  return transpose_a || !b_as_stored ? &facts->copied : &facts->stored;
}

size_t tsr_gemm_workspace_bytes(const tsr_gemm_facts *facts, tsr_dtype dtype, bool transpose_a,
                                bool transpose_b, int64_t m, int64_t n, int64_t k) {
  (void)transpose_b, (void)n;
  bool transposes_first = facts->family == TSR_GEMM_PANEL && transpose_a && !facts->copied.row_block;
  return transposes_first ? (size_t)m * (size_t)k * tsr_dtype_bytes(dtype) : 0;
}

size_t tsr_reduce_workspace_bytes(void) {
  return REDUCE_PARTIALS * sizeof(double);
}

int64_t tsr_matrix_bytes(int panel, tsr_dtype dtype, int64_t rows, int64_t cols) {
  int64_t padded = panel ? (cols + panel - 1) / panel * panel : cols, bytes;
  if (!tsr_multiply_fits(rows, padded, &bytes) ||
      !tsr_multiply_fits(bytes, (int64_t)tsr_dtype_bytes(dtype), &bytes))
    return -1;
  return bytes;
}
