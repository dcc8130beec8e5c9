#include "io/philox.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "io/convert.h"

/* Hosts with and without fused multiply-add must agree; gcc does not contract in -std=c11, clang does. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

enum { ROUNDS = 10, CHUNK = 512 };

void tsr_philox_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t a = UINT64_C(0xD2511F53) * c0, b = UINT64_C(0xCD9E8D57) * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)b;
    c3 = (uint32_t)a;
    k0 += UINT32_C(0x9E3779B9);
    k1 += UINT32_C(0xBB67AE85);
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

tsr_status tsr_random_init(tsr_random_stream *stream, const char *name, tsr_random kind, uint64_t seed,
                           double low, double high, tsr_error *error) {
  if (kind != TSR_RANDOM_UNIFORM && kind != TSR_RANDOM_INTEGER)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "random kind is %d, expected TSR_RANDOM_UNIFORM (0) or TSR_RANDOM_INTEGER (1)",
                    (int)kind);
  if (!isfinite(low) || !isfinite(high) || !isfinite(high - low))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "random range %g .. %g: low, high and high - low must be finite", low, high);
  if (kind == TSR_RANDOM_UNIFORM && !(low < high))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "random range [%g, %g) is empty: low must be below high", low, high);
  if (kind == TSR_RANDOM_INTEGER) {
    double first = ceil(low), last = floor(high);
    if (first > last || last - first > 0xFFFFFFFFp0 || fabs(first) > 0x1p53 || fabs(last) > 0x1p53)
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                      "random range [%.17g, %.17g] must hold 1 .. 2^32 whole numbers, none beyond 2^53", low,
                      high);
    low = first, high = last;
  }
  uint64_t hash = XXH64(name, strlen(name), seed);
  *stream = (tsr_random_stream){
      .key = {(uint32_t)hash, (uint32_t)(hash >> 32)}, .kind = kind, .low = low, .high = high};
  return TSR_OK;
}

/* limit: the largest that may come out, UNIFORM only. */
static double value_of(const tsr_random_stream *stream, uint32_t word, double limit) {
  if (stream->kind == TSR_RANDOM_INTEGER) {
    uint64_t numbers = (uint64_t)(stream->high - stream->low) + 1;
    return stream->low + (double)(word * numbers >> 32); /* fits: numbers is at most 2^32 */
  }
  double value = stream->low + word * 0x1p-32 * (stream->high - stream->low);
  return value < limit ? value : limit;
}

static void fill_run(const tsr_random_stream *stream, uint64_t first, int64_t count, double limit,
                     double *out) {
  uint32_t words[4];
  for (int64_t i = 0; i < count; i++) {
    uint64_t index = first + (uint64_t)i, block = index / 4;
    if (!i || index % 4 == 0) {
      uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
      tsr_philox_block(counter, stream->key, words);
    }
    out[i] = value_of(stream, words[index % 4], limit);
  }
}

/* One row: `count` elements whose places in memory are `stride` elements apart. */
static void fill_row(const tsr_random_stream *stream, uint64_t first, int64_t count, double limit,
                     uint8_t *data, tsr_dtype dtype, int64_t stride) {
  double values[CHUNK];
  int64_t step = stride * (int64_t)tsr_dtype_bytes(dtype);
  for (int64_t done = 0; done < count; done += CHUNK) {
    int64_t now = count - done < CHUNK ? count - done : CHUNK;
    fill_run(stream, first + (uint64_t)done, now, limit, values);
    tsr_shape shape = tsr_shape_of(1, now, 0);
    tsr_array from = tsr_array_dense(values, TSR_F64, &shape);
    tsr_array to = {.data = data + done * step, .dtype = dtype, .shape = shape, .stride = {stride}};
    tsr_array_convert(&from, &to);
  }
}

/* An array with as many axes as there can be: those that are missing have extent 1 and come first. */
static tsr_array with_all_axes(const tsr_array *array) {
  int missing = TSR_AXES_MAX - array->shape.axes;
  tsr_array all = {.data = array->data, .dtype = array->dtype, .shape = {.axes = TSR_AXES_MAX}};
  for (int i = 0; i < TSR_AXES_MAX; i++) {
    all.shape.extent[i] = i < missing ? 1 : array->shape.extent[i - missing];
    all.stride[i] = i < missing ? 1 : array->stride[i - missing];
  }
  return all;
}

void tsr_random_fill(const tsr_random_stream *stream, const tsr_shape *whole, const int64_t *start,
                     const tsr_array *out) {
  tsr_array dense = tsr_array_dense(NULL, out->dtype, whole); /* for its strides: the global index */
  int64_t first = 0, bytes = (int64_t)tsr_dtype_bytes(out->dtype);
  for (int i = 0; i < whole->axes; i++) first += start[i] * dense.stride[i];
  double limit = tsr_dtype_below(out->dtype, stream->high);
  tsr_array from = with_all_axes(&dense), to = with_all_axes(out);
  const int64_t *n = to.shape.extent;
  for (int64_t i = 0; i < n[0]; i++)
    for (int64_t j = 0; j < n[1]; j++)
      for (int64_t k = 0; k < n[2]; k++) {
        int64_t index = first + i * from.stride[0] + j * from.stride[1] + k * from.stride[2];
        int64_t place = i * to.stride[0] + j * to.stride[1] + k * to.stride[2];
        fill_row(stream, (uint64_t)index, n[3], limit, (uint8_t *)to.data + place * bytes, out->dtype,
                 to.stride[3]);
      }
}
