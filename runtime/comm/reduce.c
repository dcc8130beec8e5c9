/* comm/reduce.c: two contributions are combined straight through; more of them block by block: a block stays
 * in the nearest cache while all of them are added to it, so every contribution is read once and the result
 * is written once. The sum is formed in a buffer of its own, so the target may be one of the contributions.
 *
 * Inner loops have a fixed length and say that elements are independent: compilers then use vectors also at
 * -O2, and where target and source are the same. */
#include "comm/reduce.h"

#include <stdalign.h>
#include <string.h>

#include "base/narrow.h"

enum { BLOCK = 1024, STRIDE = 64 };

/* No element depends on another: target and source are apart, or the same. */
#if defined __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined __GNUC__
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

/* ---- f32 and the narrow types ---- */

/* To the nearest, ties to even; a NaN stays one. Without a branch: vector code. */
static inline uint16_t bf16_of(float value) {
  const uint32_t bits = tsr_bits_of_float(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16, nan = bits >> 16 | 0x40u;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* The same to f16, after Maratyszcza's FP16 library: adding a power of two of the right size lets the sum's
 * own rounding cut off the bits that f16 has no room for. */
static inline uint16_t f16_of(float value) {
  const uint32_t bits = tsr_bits_of_float(value), sign = bits & 0x80000000u;
  const int32_t magnitude = (int32_t)(bits & 0x7fffffffu);
  const float scaled = tsr_float_of_bits((uint32_t)magnitude) * 0x1p+112f * 0x1p-110f;
  int32_t exponent = magnitude & 0x7f800000;
  exponent = exponent < 0x38800000 ? 0x38800000 : exponent;
  const uint32_t sum = tsr_bits_of_float(tsr_float_of_bits((uint32_t)exponent + 0x07800000u) + scaled);
  const uint32_t rounded = (sum >> 13 & 0x00007c00u) + (sum & 0x00000fffu);
  const uint32_t is_nan = (uint32_t)((0x7f800000 - magnitude) >> 31); /* all ones, or 0 */
  return (uint16_t)(sign >> 16 | (rounded & ~is_nan) | (0x7e00u & is_nan));
}

#define DEFINE_CONVERT(name, from, to, convert)                                                              \
  static void name(const void *source, void *target, int64_t count) {                                        \
    const from *x = source;                                                                                  \
    to *y = target;                                                                                          \
    int64_t i = 0;                                                                                           \
    for (; i + STRIDE <= count; i += STRIDE)                                                                 \
      INDEPENDENT for (int j = 0; j < STRIDE; j++) y[i + j] = convert(x[i + j]);                             \
    for (; i < count; i++) y[i] = convert(x[i]);                                                             \
  }
#define ROUND_F16(value) tsr_widen_f16(f16_of(value))
#define ROUND_BF16(value) tsr_widen_bf16(bf16_of(value))
DEFINE_CONVERT(narrow_f16, float, uint16_t, f16_of)
DEFINE_CONVERT(narrow_bf16, float, uint16_t, bf16_of)
DEFINE_CONVERT(widen_f16, uint16_t, float, tsr_widen_f16)
DEFINE_CONVERT(widen_bf16, uint16_t, float, tsr_widen_bf16)
DEFINE_CONVERT(round_f16, float, float, ROUND_F16)
DEFINE_CONVERT(round_bf16, float, float, ROUND_BF16)

void tsr_reduce_narrow(tsr_dtype wire, const void *source, void *target, int64_t count) {
  (wire == TSR_F16 ? narrow_f16 : narrow_bf16)(source, target, count);
}

void tsr_reduce_widen(tsr_dtype wire, const void *source, void *target, int64_t count) {
  (wire == TSR_F16 ? widen_f16 : widen_bf16)(source, target, count);
}

void tsr_reduce_round(tsr_dtype wire, const void *source, void *target, int64_t count) {
  (wire == TSR_F16 ? round_f16 : round_bf16)(source, target, count);
}

/* ---- combining ---- */

/* target = x op y; target may be x or y. */
typedef void combine_function(const void *x, const void *y, void *target, int64_t count);

#define DEFINE_COMBINE(name, type, a_and_b)                                                                  \
  static void name(const void *first, const void *second, void *target, int64_t count) {                     \
    const type *x = first, *y = second;                                                                      \
    type *z = target;                                                                                        \
    int64_t i = 0;                                                                                           \
    for (; i + STRIDE <= count; i += STRIDE) INDEPENDENT for (int j = 0; j < STRIDE; j++) {                  \
        const type a = x[i + j], b = y[i + j];                                                               \
        z[i + j] = a_and_b;                                                                                  \
      }                                                                                                      \
    for (; i < count; i++) {                                                                                 \
      const type a = x[i], b = y[i];                                                                         \
      z[i] = a_and_b;                                                                                        \
    }                                                                                                        \
  }
DEFINE_COMBINE(sum_f32, float, a + b)
DEFINE_COMBINE(sum_f64, double, a + b)
/* a stays if it is a NaN; a NaN in b makes a > b false. */
DEFINE_COMBINE(max_f32, float, ((a > b) | (a != a)) ? a : b)
DEFINE_COMBINE(max_f64, double, ((a > b) | (a != a)) ? a : b)

/* By the type in which sums are formed. */
static combine_function *const combine_functions[][2] = {
    [TSR_F32] = {[TSR_SUM] = sum_f32, [TSR_MAX] = max_f32},
    [TSR_F64] = {[TSR_SUM] = sum_f64, [TSR_MAX] = max_f64},
};

bool tsr_reduce_supports(tsr_dtype dtype) {
  return dtype == TSR_F32 || dtype == TSR_F64 || dtype == TSR_F16 || dtype == TSR_BF16;
}

static bool is_narrow(tsr_dtype dtype) {
  return dtype == TSR_F16 || dtype == TSR_BF16;
}

/* A block of a contribution in the type of the sum: where it lies, or converted into `room`. */
static const void *load(const tsr_reduction_job *job, int i, int64_t at, int64_t count, void *room) {
  const tsr_dtype type = i == job->own ? job->dtype : job->wire;
  const char *from = (const char *)job->sources[i] + at * (int64_t)tsr_dtype_bytes(type);
  if (is_narrow(type))
    tsr_reduce_widen(type, from, room, count);
  else if (i == job->own && job->rounded)
    tsr_reduce_round(job->wire, from, room, count);
  else
    return from;
  return room;
}

static void combine_block(const tsr_reduction_job *job, int64_t at, int64_t count) {
  const tsr_dtype type = job->dtype == TSR_F64 ? TSR_F64 : TSR_F32;
  combine_function *combine = combine_functions[type][job->reduction];
  alignas(64) double sum[BLOCK], room[BLOCK];
  char *target = (char *)job->target + at * (int64_t)tsr_dtype_bytes(job->dtype);
  const void *so_far = load(job, 0, at, count, sum);
  for (int i = 1; i < job->contributions; i++) {
    const bool ends = i == job->contributions - 1 && !is_narrow(job->dtype);
    void *to = ends ? (void *)target : sum;
    combine(so_far, load(job, i, at, count, room), to, count);
    so_far = to;
  }
  if (is_narrow(job->dtype)) tsr_reduce_narrow(job->dtype, so_far, target, count);
}

void tsr_reduce(const tsr_reduction_job *job) {
  if (job->contributions == 2 && job->wire == job->dtype && !job->rounded && !is_narrow(job->dtype)) {
    combine_functions[job->dtype][job->reduction](job->sources[0], job->sources[1], job->target, job->count);
    return;
  }
  for (int64_t at = 0; at < job->count; at += BLOCK)
    combine_block(job, at, job->count - at < BLOCK ? job->count - at : BLOCK);
}
