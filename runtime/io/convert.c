#include "io/convert.h"

#include "base/narrow.h"

#include <math.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensor files are little-endian and are read as they are: this host needs a byte swap in io/convert.c"
#endif

/* Elements converted per step of a contiguous run: a constant, so that compilers make vector code of it at
 * -O2. */
enum { STEP = 16 };

static uint16_t bits_below(uint16_t bits) {
  if (bits & 0x8000) return (uint16_t)(bits + 1);
  return bits ? (uint16_t)(bits - 1) : 0x8001;
}

double tsr_dtype_below(tsr_dtype dtype, double value) {
  uint16_t bits;
  switch (dtype) {
  case TSR_F16:
    bits = tsr_narrow_f16(value);
    return tsr_widen_f16(bits) < value ? tsr_widen_f16(bits) : tsr_widen_f16(bits_below(bits));
  case TSR_BF16:
    bits = tsr_narrow_bf16(value);
    return tsr_widen_bf16(bits) < value ? tsr_widen_bf16(bits) : tsr_widen_bf16(bits_below(bits));
  case TSR_I8: return ceil(value) - 1;
  case TSR_F32: return (float)value < value ? (float)value : nextafterf((float)value, -INFINITY);
  case TSR_F64:
  case TSR_DTYPE_COUNT: break;
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
        for (int k = 0; k < STEP; k++) out[k] = tsr_narrow_##TO(tsr_widen_##FROM(in[k]));                    \
        memcpy(to + i * to_step, out, sizeof out);                                                           \
      }                                                                                                      \
    for (; i < count; i++) {                                                                                 \
      FROM_TYPE in;                                                                                          \
      memcpy(&in, from + i * from_step, sizeof in);                                                          \
      TO_TYPE out = tsr_narrow_##TO(tsr_widen_##FROM(in));                                                   \
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
DEFINE_RUN(f32, float, i8, int8_t)
DEFINE_RUN(f64, double, i8, int8_t)
DEFINE_RUN(f16, uint16_t, i8, int8_t)
DEFINE_RUN(bf16, uint16_t, i8, int8_t)
DEFINE_RUN(i8, int8_t, f32, float)
DEFINE_RUN(i8, int8_t, f64, double)
DEFINE_RUN(i8, int8_t, f16, uint16_t)
DEFINE_RUN(i8, int8_t, bf16, uint16_t)

/* One dtype to itself: bits are moved, so that NaN payloads survive. */
#define DEFINE_MOVE(SIZE)                                                                                    \
  static void move_##SIZE(const uint8_t *from, int64_t from_step, uint8_t *to, int64_t to_step,              \
                          int64_t count) {                                                                   \
    if (from_step == SIZE && to_step == SIZE)                                                                \
      memcpy(to, from, (size_t)count *SIZE);                                                                 \
    else                                                                                                     \
      for (int64_t i = 0; i < count; i++) memcpy(to + i * to_step, from + i * from_step, SIZE);              \
  }
DEFINE_MOVE(1)
DEFINE_MOVE(2)
DEFINE_MOVE(4)
DEFINE_MOVE(8)

static const tsr_convert_run runs[TSR_DTYPE_COUNT][TSR_DTYPE_COUNT] = {
    [TSR_F32] = {[TSR_F32] = move_4,
                 [TSR_F64] = f32_to_f64,
                 [TSR_F16] = f32_to_f16,
                 [TSR_BF16] = f32_to_bf16,
                 [TSR_I8] = f32_to_i8},
    [TSR_F64] = {[TSR_F32] = f64_to_f32,
                 [TSR_F64] = move_8,
                 [TSR_F16] = f64_to_f16,
                 [TSR_BF16] = f64_to_bf16,
                 [TSR_I8] = f64_to_i8},
    [TSR_F16] = {[TSR_F32] = f16_to_f32,
                 [TSR_F64] = f16_to_f64,
                 [TSR_F16] = move_2,
                 [TSR_BF16] = f16_to_bf16,
                 [TSR_I8] = f16_to_i8},
    [TSR_BF16] = {[TSR_F32] = bf16_to_f32,
                  [TSR_F64] = bf16_to_f64,
                  [TSR_F16] = bf16_to_f16,
                  [TSR_BF16] = move_2,
                  [TSR_I8] = bf16_to_i8},
    [TSR_I8] = {[TSR_F32] = i8_to_f32,
                [TSR_F64] = i8_to_f64,
                [TSR_F16] = i8_to_f16,
                [TSR_BF16] = i8_to_bf16,
                [TSR_I8] = move_1},
};

tsr_convert_run tsr_convert_run_of(tsr_dtype from, tsr_dtype to) {
  return runs[from][to];
}
