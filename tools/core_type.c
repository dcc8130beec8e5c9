#include "core_type.h"

#include <stdbool.h>
#include <string.h>

static bool is_one_of(const char *name, const char *const *names) {
  while (*names && strcmp(name, *names) != 0) names++;
  return *names;
}

const char *tool_core_type_better(const char *detected) {
#if defined(__x86_64__)
  static const char *const with_avx512[] = {"SkylakeX", "Cooperlake", "SapphireRapids", NULL};
  static const char *const with_avx2[] = {"Haswell", "Zen", NULL};
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
    return is_one_of(detected, with_avx512) ? NULL : "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return is_one_of(detected, with_avx2) ? NULL : "Haswell";
#endif
  (void)is_one_of, (void)detected;
  return NULL;
}
