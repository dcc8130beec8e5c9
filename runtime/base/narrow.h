/* base/narrow.h: f16, bf16 and i8 to f32 and back, and elements of any type by index. Inline, so that
 * compilers make vector code of a loop. */
#ifndef TSR_BASE_NARROW_H
#define TSR_BASE_NARROW_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <tessera/dtype.h>

static inline float tsr_float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t tsr_bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Without a branch, and without a denormal f32 in between (a caller may have them flushed to zero): normal
 * numbers get their exponent moved by a product, which carries inf and NaN along; denormals are the fraction
 * of a number in [0.5, 1). After Maratyszcza's FP16 library. */
static inline float tsr_widen_f16(uint16_t bits) {
  uint32_t magnitude = bits & 0x7fffu, sign = (bits & 0x8000u) << 16;
  uint32_t normal =
      tsr_bits_of_float(tsr_float_of_bits((magnitude << 13) + (UINT32_C(224) << 23)) * 0x1p-112f);
  uint32_t denormal = tsr_bits_of_float(tsr_float_of_bits(magnitude | (UINT32_C(126) << 23)) - 0.5f);
  uint32_t is_denormal = (uint32_t)((int32_t)(magnitude - 0x400) >> 31); /* all ones, or 0 */
  return tsr_float_of_bits(sign | (denormal & is_denormal) | (normal & ~is_denormal));
}

static inline float tsr_widen_bf16(uint16_t bits) {
  return tsr_float_of_bits((uint32_t)bits << 16);
}

/* The 16-bit format with `fraction` bits of fraction. */
static inline uint16_t tsr_narrow(double value, int fraction) {
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

static inline uint16_t tsr_narrow_f16(double value) {
  return tsr_narrow(value, 10);
}

static inline uint16_t tsr_narrow_bf16(double value) {
  return tsr_narrow(value, 7);
}
/* To the nearest, ties to even, within -127 .. 127 (so that the negative of a weight is one too); NaN is 0.
 */
static inline int8_t tsr_narrow_i8(double value) {
  double whole = rint(value);
  return (int8_t)(whole >= 127 ? 127 : whole <= -127 ? -127 : whole == whole ? whole : 0);
}

static inline float tsr_widen_i8(int8_t value) {
  return value;
}

static inline float tsr_narrow_f32(double value) {
  return (float)value;
}

static inline double tsr_narrow_f64(double value) {
  return value;
}

static inline float tsr_widen_f32(float value) {
  return value;
}

static inline double tsr_widen_f64(double value) {
  return value;
}

/* Element `index` of an array of any type, as f64. */
static inline double tsr_number_load(const void *data, tsr_dtype dtype, int64_t index) {
  switch (dtype) {
  case TSR_F64: return ((const double *)data)[index];
  case TSR_F16: return tsr_widen_f16(((const uint16_t *)data)[index]);
  case TSR_BF16: return tsr_widen_bf16(((const uint16_t *)data)[index]);
  case TSR_I8: return ((const int8_t *)data)[index];
  default: return (double)((const float *)data)[index];
  }
}

static inline void tsr_number_store(void *data, tsr_dtype dtype, int64_t index, double value) {
  switch (dtype) {
  case TSR_F64: ((double *)data)[index] = value; break;
  case TSR_F16: ((uint16_t *)data)[index] = tsr_narrow_f16(value); break;
  case TSR_BF16: ((uint16_t *)data)[index] = tsr_narrow_bf16(value); break;
  case TSR_I8: ((int8_t *)data)[index] = tsr_narrow_i8(value); break;
  default: ((float *)data)[index] = (float)value;
  }
}

#endif
