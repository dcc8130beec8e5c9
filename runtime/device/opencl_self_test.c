/* opencl_self_test.c: which GEMM family a device uses, and proof that it computes right here.
 *
 * Drivers are sometimes wrong, so a family is used only after it has multiplied matrices of small integers,
 * whose products are exact, and every bit was right. For f32 that happens when the device is opened, in the
 * forms that inference and training use: a plan depends on the family, so it must be final by then. The
 * transposes that are left, and f64, are tested when first used; there is no way back then, and a failure is
 * the device's. That a test was passed is remembered on disk, under a key that the driver and the kernels are
 * part of.
 *
 * Buffers of a test go past the ledger: they are small, and gone before anything else is there. */
#include "device/opencl_device.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "device/program_cache.h"

enum { A, B, C, SAMPLE_STEP_M = 97, SAMPLE_STEP_N = 89 };
enum { LOCK_SECONDS = 60 }; /* what another process may take to test and compile */

/* One product of a test. Large ones are checked at samples: CLBlast changes its kernel beyond about 1024^3.
 */
typedef struct test_shape {
  tsr_gemm_family family;
  int64_t m, n, k;
  bool beyond_block; /* k counts from the larger k_block on, to reach the second block */
  bool large;        /* GPUs only, checked at samples */
} test_shape;

static const test_shape shapes[] = {
    {.family = TSR_GEMM_REFERENCE, .m = 67, .n = 43, .k = 129},
    {.family = TSR_GEMM_PANEL, .m = 67, .n = 139, .k = 129},
    {.family = TSR_GEMM_PANEL, .m = 7, .n = 75, .k = 37, .beyond_block = true},
    {.family = TSR_GEMM_CLBLAST, .m = 67, .n = 43, .k = 129},
    {.family = TSR_GEMM_CLBLAST, .m = 2051, .n = 2049, .k = 2053, .large = true},
};

/* The files whose change makes a verdict worthless. */
static const char *const kernel_files[TSR_GEMM_FAMILY_COUNT][2] = {
    [TSR_GEMM_REFERENCE] = {"gemm_reference.cl"},
    [TSR_GEMM_PANEL] = {"gemm_panel.cl", "transpose.cl"},
};

/* A small integer that depends on operand and place. */
static double value_at(int operand, int64_t r, int64_t c) {
  uint64_t x = (uint64_t)(r * 1000003 + c) * 3 + (uint64_t)operand;
  x = (x ^ (x >> 15)) * 0x9E3779B97F4A7C15u;
  return (double)(int)(x >> 61) - 3;
}

static double product_at(const tsr_gemm_call *call, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t p = 0; p < call->k; p++)
    sum += (call->transpose_a ? value_at(A, p, i) : value_at(A, i, p)) *
           (call->transpose_b ? value_at(B, j, p) : value_at(B, p, j));
  return call->alpha * sum + (call->beta == 0 ? 0 : call->beta * value_at(C, i, j));
}

static void put(void *data, tsr_dtype dtype, int64_t index, double value) {
  if (dtype == TSR_F64)
    ((double *)data)[index] = value;
  else
    ((float *)data)[index] = (float)value;
}

static double get(const void *data, tsr_dtype dtype, int64_t index) {
  return dtype == TSR_F64 ? ((const double *)data)[index] : (double)((const float *)data)[index];
}

/* Everything is NaN that the matrix does not hold; and C too where it must not be read. */
static tsr_status fill(tsr_opencl_device *device, const tsr_gemm_call *call, int operand,
                       const tsr_matrix *matrix, tsr_error *error) {
  tsr_device *base = &device->base;
  void *data = NULL;
  size_t bytes = matrix->buffer->bytes;
  TSR_RETURN_IF_FAILED(tsr_device_host_wait(base, matrix->buffer, 0, bytes, TSR_HOST_WRITE, &data, error));
  for (size_t i = 0; i < bytes / tsr_dtype_bytes(call->dtype); i++) put(data, call->dtype, (int64_t)i, NAN);
  for (int64_t r = 0; r < matrix->rows && (operand != C || call->beta != 0); r++)
    for (int64_t c = 0; c < matrix->cols; c++)
      put(data, call->dtype, tsr_matrix_index(matrix, r, c), value_at(operand, r, c));
  return tsr_device_host_end(base, matrix->buffer, data, error);
}

static tsr_status check(tsr_opencl_device *device, const tsr_gemm_call *call, bool sampled,
                        tsr_error *error) {
  tsr_device *base = &device->base;
  void *data = NULL;
  tsr_status status = TSR_OK;
  TSR_RETURN_IF_FAILED(
      tsr_device_host_wait(base, call->c.buffer, 0, call->c.buffer->bytes, TSR_HOST_READ, &data, error));
  for (int64_t i = 0; i < call->m && status == TSR_OK; i++)
    for (int64_t j = 0; j < call->n && status == TSR_OK; j++) {
      bool seen =
          (i % SAMPLE_STEP_M == 0 || i == call->m - 1) && (j % SAMPLE_STEP_N == 0 || j == call->n - 1);
      if (sampled && !seen) continue;
      double is = get(data, call->dtype, tsr_matrix_index(&call->c, i, j)), should = product_at(call, i, j);
      if (is != should)
        status = tsr_fail(error, TSR_ERROR_DEVICE,
                          "element (%" PRId64 ", %" PRId64 ") of a product of m = %" PRId64 ", n = %" PRId64
                          ", k = %" PRId64 " is %g, expected %g",
                          i, j, call->m, call->n, call->k, is, should);
    }
  tsr_status ended = tsr_device_host_end(base, call->c.buffer, data, status == TSR_OK ? error : NULL);
  return status == TSR_OK ? ended : status;
}

/* A matrix with a buffer of its own, a few elements from its start. */
static tsr_status make_matrix(tsr_opencl_device *device, tsr_dtype dtype, int64_t rows, int64_t cols,
                              int panel, tsr_matrix *out, tsr_error *error) {
  const int64_t offset = 16;
  *out =
      (tsr_matrix){.offset = offset, .rows = rows, .cols = cols, .ld = panel ? rows : cols, .panel = panel};
  size_t bytes = (size_t)tsr_matrix_bytes(panel, dtype, rows, cols) + (size_t)offset * tsr_dtype_bytes(dtype);
  TSR_RETURN_IF_FAILED(device->base.ops->buffer_create(&device->base, bytes, &out->buffer, error));
  out->buffer->bytes = bytes;
  return TSR_OK;
}

static int64_t larger_block(const tsr_gemm_facts *facts) {
  int stored = facts->stored.k_block, copied = facts->copied.k_block;
  return stored > copied ? stored : copied;
}

/* Weights come in panels: B of a forward product and of its gradient by the input (NT), C of the gradient by
 * the weight (TN). */
static tsr_status make_call(tsr_opencl_device *device, const test_shape *shape, tsr_gemm_call *call,
                            tsr_error *error) {
  const tsr_gemm_facts *facts = &device->base.gemm[call->dtype];
  int64_t m = shape->m, n = shape->n, k = shape->k + (shape->beyond_block ? larger_block(facts) : 0);
  bool by_weight = call->transpose_a && !call->transpose_b;
  call->m = m;
  call->n = n;
  call->k = k;
  TSR_RETURN_IF_FAILED(make_matrix(device, call->dtype, call->transpose_a ? k : m, call->transpose_a ? m : k,
                                   0, &call->a, error));
  TSR_RETURN_IF_FAILED(make_matrix(device, call->dtype, call->transpose_b ? n : k, call->transpose_b ? k : n,
                                   by_weight ? 0 : facts->panel, &call->b, error));
  TSR_RETURN_IF_FAILED(make_matrix(device, call->dtype, m, n, by_weight ? facts->panel : 0, &call->c, error));
  size_t bytes = tsr_gemm_workspace_bytes(facts, call->dtype, call->transpose_a, call->transpose_b, m, n, k);
  return bytes ? device->base.ops->buffer_create(&device->base, bytes, &call->workspace, error) : TSR_OK;
}

static void free_call(tsr_opencl_device *device, tsr_gemm_call *call) {
  tsr_buffer *const buffers[] = {call->a.buffer, call->b.buffer, call->c.buffer, call->workspace};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
    if (buffers[i]) device->base.ops->buffer_destroy(&device->base, buffers[i]);
}

static tsr_status test_shape_once(tsr_opencl_device *device, const test_shape *shape, tsr_dtype dtype,
                                  bool transpose_a, bool transpose_b, tsr_error *error) {
  static const double scales[][2] = {{2, 0}, {1, -3}}; /* alpha, beta */
  tsr_status status = TSR_OK;
  tsr_gemm_call call = {.dtype = dtype, .transpose_a = transpose_a, .transpose_b = transpose_b};
  TSR_TRY(make_call(device, shape, &call, error));
  for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
    call.alpha = scales[i][0];
    call.beta = scales[i][1];
    TSR_TRY(fill(device, &call, A, &call.a, error));
    TSR_TRY(fill(device, &call, B, &call.b, error));
    TSR_TRY(fill(device, &call, C, &call.c, error));
    TSR_TRY(tsr_opencl_gemm_launch(device, &call, error));
    TSR_TRY(check(device, &call, shape->large, error));
  }
done:
  free_call(device, &call);
  return status;
}

static tsr_status test_shapes(tsr_opencl_device *device, tsr_dtype dtype, bool transpose_a, bool transpose_b,
                              tsr_error *error) {
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (shapes[i].family == device->base.gemm[dtype].family &&
        (!shapes[i].large || device->facts.kind == TSR_DEVICE_GPU))
      TSR_RETURN_IF_FAILED(test_shape_once(device, &shapes[i], dtype, transpose_a, transpose_b, error));
  return TSR_OK;
}

/* False if there is no memory to make the key: nothing is remembered then. */
static bool verdict_key(const tsr_opencl_device *device, tsr_dtype dtype, int form, tsr_cache_key *key) {
  const tsr_gemm_facts *facts = &device->base.gemm[dtype];
  char text[256], *sources[2] = {NULL, NULL};
  bool made = true;
  snprintf(text, sizeof text, "self-test %s %s %d: %d %d %d %d, %d %d %d, %d %d %d",
           tsr_gemm_family_name(facts->family), tsr_dtype_name(dtype), form, facts->tile_m, facts->tile_n,
           facts->panel, facts->prefetch, facts->stored.k_block, facts->stored.row_block,
           facts->stored.panels_per_group, facts->copied.k_block, facts->copied.row_block,
           facts->copied.panels_per_group);
  for (int i = 0; i < 2; i++) {
    const char *file = kernel_files[facts->family][i];
    if (file && tsr_opencl_source_read(device, file, &sources[i], NULL) != TSR_OK) made = false;
  }
  const char *const parts[] = {text, sources[0] ? sources[0] : "", sources[1] ? sources[1] : ""};
  *key = tsr_cache_key_of(device->fingerprint, parts, sizeof parts / sizeof *parts);
  free(sources[0]);
  free(sources[1]);
  return made;
}

static bool has_passed(const tsr_opencl_device *device, tsr_cache_key key) {
  void *verdict = NULL;
  size_t bytes = 0;
  bool known = tsr_cache_read(device->base.context, key, &verdict, &bytes);
  free(verdict);
  return known;
}

/* Tests, and stores the verdict and the kernels, unless another process has just done so. */
static tsr_status test_and_store(tsr_opencl_device *device, tsr_dtype dtype, int form, tsr_error *error) {
  static const char passed[] = "passed";
  tsr_status status = TSR_OK;
  tsr_cache_key key;
  tsr_cache_lock lock;
  bool keyed = verdict_key(device, dtype, form, &key);
  if (keyed && has_passed(device, key)) return TSR_OK;
  bool locked = keyed && tsr_opencl_cache_lock(device, LOCK_SECONDS, &lock);
  if (!locked || !has_passed(device, key)) {
    status = test_shapes(device, dtype, form & 1, form & 2, error);
    if (status == TSR_OK && locked) {
      tsr_cache_write(device->base.context, key, passed, sizeof passed);
      tsr_opencl_kernels_store(device);
    }
  }
  if (locked) tsr_cache_lock_release(&lock);
  return status;
}

tsr_status tsr_opencl_gemm_test(tsr_opencl_device *device, tsr_dtype dtype, bool transpose_a,
                                bool transpose_b, tsr_error *error) {
  int form = transpose_a + 2 * transpose_b;
  if (device->gemm_tested[dtype] & 1 << form) return TSR_OK;
  tsr_status status = test_and_store(device, dtype, form, error);
  if (status == TSR_OK)
    device->gemm_tested[dtype] |= (uint8_t)(1 << form);
  else
    tsr_error_wrap(error, "self-test of GEMM family %s (%s, %c%c) with driver %s",
                   tsr_gemm_family_name(device->base.gemm[dtype].family), tsr_dtype_name(dtype),
                   transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', device->base.info.driver);
  return status;
}

/* NN, NT, TN. */
static tsr_status test_forms(tsr_opencl_device *device, tsr_dtype dtype, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_opencl_gemm_test(device, dtype, false, false, error));
  TSR_RETURN_IF_FAILED(tsr_opencl_gemm_test(device, dtype, false, true, error));
  return tsr_opencl_gemm_test(device, dtype, true, false, error);
}

/* A family that is missing or wrong may be passed over; a lack of memory says nothing of it. */
static bool may_pass_over(tsr_status status) {
  return status == TSR_ERROR_DEVICE || status == TSR_ERROR_COMPILE || status == TSR_ERROR_UNSUPPORTED;
}

static tsr_status try_family(tsr_opencl_device *device, tsr_dtype dtype, tsr_error *error) {
  device->gemm_tested[dtype] = 0;
  if (device->base.gemm[dtype].family == TSR_GEMM_CLBLAST && !tsr_clblast_available())
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "CLBlast is not part of this build: install it (libclblast-dev) and configure with "
                    "-Dclblast=enabled");
  return dtype == TSR_F32 ? test_forms(device, dtype, error) : TSR_OK;
}

/* Leaves the facts at NONE if the backend has no family, none that works, or not the forced one. */
static tsr_status choose(tsr_opencl_device *device, tsr_dtype dtype, tsr_gemm_family forced,
                         tsr_error *error) {
  tsr_gemm_facts *facts = &device->base.gemm[dtype];
  for (int preference = 0;; preference++) {
    *facts = (tsr_gemm_facts){.family = TSR_GEMM_NONE};
    device->backend->gemm(&device->facts, dtype, preference, facts);
    if (facts->family == TSR_GEMM_NONE) return TSR_OK;
    if (forced && facts->family != forced) continue;
    tsr_status status = try_family(device, dtype, error);
    if (status == TSR_OK || !may_pass_over(status)) return status;
    tsr_log(device->base.context, TSR_LOG_WARNING, "device",
            "%s (driver %s): GEMM family %s is passed over: %s", device->base.info.name,
            device->base.info.driver, tsr_gemm_family_name(facts->family), error->message);
  }
}

/* failure: why the last family was passed over, if one was. */
static tsr_status fail_no_family(const tsr_opencl_device *device, const char *forced,
                                 const tsr_error *failure, tsr_error *error) {
  if (failure->status == TSR_OK)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "GEMM family \"%s\" on %s: backend %s does not offer it there", forced ? forced : "any",
                    device->base.info.name, device->backend->name);
  if (error) *error = *failure;
  return failure->status;
}

tsr_status tsr_opencl_gemm_choose(tsr_opencl_device *device, const char *forced, tsr_error *error) {
  tsr_error failure = {0};
  const tsr_gemm_facts *facts = device->base.gemm;
  tsr_gemm_family family = forced ? tsr_gemm_family_of(forced) : TSR_GEMM_NONE;
  tsr_status status = choose(device, TSR_F32, family, &failure);
  if (status == TSR_OK && facts[TSR_F32].family == TSR_GEMM_NONE)
    return fail_no_family(device, forced, &failure, error);
  if (status == TSR_OK) status = choose(device, TSR_F64, family, &failure);
  if (status == TSR_OK && facts[TSR_F64].family == TSR_GEMM_NONE)
    status = choose(device, TSR_F64, TSR_GEMM_NONE, &failure);
  if (status != TSR_OK && error) *error = failure;
  if (status == TSR_OK)
    tsr_log(device->base.context, TSR_LOG_DEBUG, "device", "%s uses GEMM families %s for f32, %s for f64",
            device->base.info.name, tsr_gemm_family_name(facts[TSR_F32].family),
            tsr_gemm_family_name(facts[TSR_F64].family));
  return status;
}
