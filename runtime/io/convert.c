#include "io/convert.h"

#include <math.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensor files are little-endian and are read as they are: this host needs a byte swap in io/convert.c"
#endif

/* Elements converted per step of a contiguous run: a constant, so that compilers make vector code of it at
 * -O2. */
enum { STEP = 16 };

static inline float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Without a branch, and without a denormal f32 in between (a caller may have them flushed to zero): normal
 * numbers get their exponent moved by a product, which carries inf and NaN along; denormals are the fraction
 * of a number in [0.5, 1). After Maratyszcza's FP16 library. */
static inline float widen_f16(uint16_t bits) {
  uint32_t magnitude = bits & 0x7fffu, sign = (bits & 0x8000u) << 16;
  uint32_t normal = bits_of_float(float_of_bits((magnitude << 13) + (UINT32_C(224) << 23)) * 0x1p-112f);
  uint32_t denormal = bits_of_float(float_of_bits(magnitude | (UINT32_C(126) << 23)) - 0.5f);
  uint32_t is_denormal = (uint32_t)((int32_t)(magnitude - 0x400) >> 31); /* all ones, or 0 */
  return float_of_bits(sign | (denormal & is_denormal) | (normal & ~is_denormal));
}

static inline float widen_bf16(uint16_t bits) {
  return float_of_bits((uint32_t)bits << 16);
}

/* The 16-bit format with `fraction` bits of fraction. */
static inline uint16_t narrow(double value, int fraction) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint64_t sign = bits >> 63 << 15, infinity = (UINT64_C(0x7fff) >> fraction) << fraction;
  uint64_t significand = bits & ((UINT64_C(1) << 52) - 1);
  int exponent = (int)(bits >> 52 & 0x7ff), shift = 52 - fraction;
  if (exponent == 0x7ff) {
    uint64_t quiet = significand ? (UINT64_C(1) << (fraction - 1)) | significand >> shift : 0;
    return (uint16_t)(sign | infinity | quiet);
  }
  if (!exponent) return (uint16_t)sign; /* f64 denormals are far below half of the least f16 and bf16 */
  significand |= UINT64_C(1) << 52;
  int target = exponent - 1023 + ((1 << (14 - fraction)) - 1); /* biased as the 16-bit format does */
  if (target < 1) {
    shift += 1 - target;
    target = 1;
  }
  if (shift > 54) return (uint16_t)sign;
  uint64_t kept = significand >> shift, rest = significand & ((UINT64_C(1) << shift) - 1);
  uint64_t half = UINT64_C(1) << (shift - 1);
  kept += rest > half || (rest == half && (kept & 1));
  /* kept holds the leading one, which counts as one exponent step; a carry of the rounding does the same. */
  uint64_t result = ((uint64_t)(target - 1) << fraction) + kept;
  return (uint16_t)(sign | (result < infinity ? result : infinity));
}

static inline uint16_t narrow_f16(double value) {
  return narrow(value, 10);
}
static inline uint16_t narrow_bf16(double value) {
  return narrow(value, 7);
}
static inline float narrow_f32(double value) {
  return (float)value;
}
static inline double narrow_f64(double value) {
  return value;
}
static inline float widen_f32(float value) {
  return value;
}
static inline double widen_f64(double value) {
  return value;
}

float tsr_f16_widen(uint16_t bits) {
  return widen_f16(bits);
}
float tsr_bf16_widen(uint16_t bits) {
  return widen_bf16(bits);
}
uint16_t tsr_f16_narrow(double value) {
  return narrow_f16(value);
}
uint16_t tsr_bf16_narrow(double value) {
  return narrow_bf16(value);
}

static uint16_t bits_below(uint16_t bits) {
  if (bits & 0x8000) return (uint16_t)(bits + 1);
  return bits ? (uint16_t)(bits - 1) : 0x8001;
}

double tsr_dtype_below(tsr_dtype dtype, double value) {
  uint16_t bits;
  switch (dtype) {
  case TSR_F16:
    bits = narrow_f16(value);
    return widen_f16(bits) < value ? widen_f16(bits) : widen_f16(bits_below(bits));
  case TSR_BF16:
    bits = narrow_bf16(value);
    return widen_bf16(bits) < value ? widen_bf16(bits) : widen_bf16(bits_below(bits));
  case TSR_F32: return (float)value < value ? (float)value : nextafterf((float)value, -INFINITY);
  case TSR_F64: break;
  }
  return nextafter(value, -INFINITY);
}

/* `count` elements, steps in bytes. */
typedef void (*tsr_convert_run)(const uint8_t *from, int64_t from_step, uint8_t *to, int64_t to_step,
                                int64_t count);

#define DEFINE_RUN(FROM, FROM_TYPE, TO, TO_TYPE)                                                             \
  static void FROM##_to_##TO(const uint8_t *from, int64_t from_step, uint8_t *to, int64_t to_step,           \
                             int64_t count) {                                                                \
    int64_t i = 0;                                                                                           \
    if (from_step == (int64_t)sizeof(FROM_TYPE) && to_step == (int64_t)sizeof(TO_TYPE))                      \
      for (; count - i >= STEP; i += STEP) {                                                                 \
        FROM_TYPE in[STEP];                                                                                  \
        TO_TYPE out[STEP];                                                                                   \
        memcpy(in, from + i * from_step, sizeof in);                                                         \
        for (int k = 0; k < STEP; k++) out[k] = narrow_##TO(widen_##FROM(in[k]));                            \
        memcpy(to + i * to_step, out, sizeof out);                                                           \
      }                                                                                                      \
    for (; i < count; i++) {                                                                                 \
      FROM_TYPE in;                                                                                          \
      memcpy(&in, from + i * from_step, sizeof in);                                                          \
      TO_TYPE out = narrow_##TO(widen_##FROM(in));                                                           \
      memcpy(to + i * to_step, &out, sizeof out);                                                            \
    }                                                                                                        \
  }
DEFINE_RUN(f32, float, f64, double)
DEFINE_RUN(f32, float, f16, uint16_t)
DEFINE_RUN(f32, float, bf16, uint16_t)
DEFINE_RUN(f64, double, f32, float)
DEFINE_RUN(f64, double, f16, uint16_t)
DEFINE_RUN(f64, double, bf16, uint16_t)
DEFINE_RUN(f16, uint16_t, f32, float)
DEFINE_RUN(f16, uint16_t, f64, double)
DEFINE_RUN(f16, uint16_t, bf16, uint16_t)
DEFINE_RUN(bf16, uint16_t, f32, float)
DEFINE_RUN(bf16, uint16_t, f64, double)
DEFINE_RUN(bf16, uint16_t, f16, uint16_t)

/* One dtype to itself: bits are moved, so that NaN payloads survive. */
#define DEFINE_MOVE(SIZE)                                                                                    \
  static void move_##SIZE(const uint8_t *from, int64_t from_step, uint8_t *to, int64_t to_step,              \
                          int64_t count) {                                                                   \
    if (from_step == SIZE && to_step == SIZE)                                                                \
      memcpy(to, from, (size_t)count *SIZE);                                                                 \
    else                                                                                                     \
      for (int64_t i = 0; i < count; i++) memcpy(to + i * to_step, from + i * from_step, SIZE);              \
  }
DEFINE_MOVE(2)
DEFINE_MOVE(4)
DEFINE_MOVE(8)

static const tsr_convert_run runs[][4] = {
    [TSR_F32] =
        {[TSR_F32] = move_4, [TSR_F64] = f32_to_f64, [TSR_F16] = f32_to_f16, [TSR_BF16] = f32_to_bf16},
    [TSR_F64] =
        {[TSR_F32] = f64_to_f32, [TSR_F64] = move_8, [TSR_F16] = f64_to_f16, [TSR_BF16] = f64_to_bf16},
    [TSR_F16] =
        {[TSR_F32] = f16_to_f32, [TSR_F64] = f16_to_f64, [TSR_F16] = move_2, [TSR_BF16] = f16_to_bf16},
    [TSR_BF16] =
        {[TSR_F32] = bf16_to_f32, [TSR_F64] = bf16_to_f64, [TSR_F16] = bf16_to_f16, [TSR_BF16] = move_2},
};

tsr_convert_run tsr_convert_run_of(tsr_dtype from, tsr_dtype to) {
  return runs[from][to];
}
