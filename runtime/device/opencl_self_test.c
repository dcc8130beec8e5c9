/* opencl_self_test.c: proof that a GEMM variant computes right on this device.
 *
 * Drivers are sometimes wrong, so a variant is used only after it has multiplied matrices of small integers,
 * whose products are exact, and every bit was right. That a test was passed is remembered on disk, under a
 * key that the driver, the kernels and what was tested are part of.
 *
 * Buffers of a test go past the ledger: they are small, and gone before anything else is there. */
#include "device/opencl_device.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/narrow.h"
#include "device/program_cache.h"

enum { A, B, C, SCALE, BIAS, SAMPLE_STEP_M = 97, SAMPLE_STEP_N = 89 };
enum {
  VERSION = 1
}; /* of what is tested beside the shapes; another one makes every variant be tested again */
enum { FILES_MAX = 2, LOCK_SECONDS = 60 }; /* what another process may take to test and compile */

/* One product of a test. Large ones are checked at samples: CLBlast changes its kernel beyond about 1024^3.
 */
typedef struct test_shape {
  tsr_gemm_family family;
  int64_t m, n, k;
  bool beyond_block; /* k counts from the larger k_block on, to reach the second block */
  bool large;        /* GPUs only, checked at samples */
  bool epilogue;     /* a bias, and ReLU: exact on integers */
  bool few_rows;     /* the kernel for few rows, a test of its own */
} test_shape;

static const test_shape shapes[] = {
    {.family = TSR_GEMM_REFERENCE, .m = 67, .n = 43, .k = 129},
    {.family = TSR_GEMM_PANEL, .m = 67, .n = 139, .k = 129},
    {.family = TSR_GEMM_PANEL, .m = 19, .n = 75, .k = 37, .beyond_block = true},
    {.family = TSR_GEMM_PANEL, .m = 7, .n = 75, .k = 37, .beyond_block = true, .few_rows = true},
    {.family = TSR_GEMM_TILE, .m = 67, .n = 139, .k = 129, .epilogue = true},
    {.family = TSR_GEMM_TILE, .m = 68, .n = 140, .k = 132}, /* aligned: vectors as they lie in memory */
    {.family = TSR_GEMM_TILE, .m = 7, .n = 75, .k = 4099},  /* k is cut */
    {.family = TSR_GEMM_TILE, .m = 1027, .n = 1025, .k = 517, .large = true},
    {.family = TSR_GEMM_MMA, .m = 67, .n = 139, .k = 129, .epilogue = true},
    {.family = TSR_GEMM_MMA,
     .m = 8,
     .n = 72,
     .k = 1032}, /* aligned, as asynchronous copies need it; k is cut */
    {.family = TSR_GEMM_MMA, .m = 1032, .n = 1032, .k = 520, .large = true},
    {.family = TSR_GEMM_CLBLAST, .m = 67, .n = 43, .k = 129},
    {.family = TSR_GEMM_CLBLAST, .m = 2051, .n = 2049, .k = 2053, .large = true},
};

/* The files whose change makes a verdict worthless. */
static const char *const kernel_files[TSR_GEMM_FAMILY_COUNT][FILES_MAX] = {
    [TSR_GEMM_REFERENCE] = {"gemm_reference.cl"},
    [TSR_GEMM_PANEL] = {"gemm_panel.cl", "gemm_small.cl"},
    [TSR_GEMM_TILE] = {"gemm_tile.cl", "gemm_join.cl"},
    [TSR_GEMM_MMA] = {"gemm_mma.cl", "gemm_join.cl"},
};

/* A small integer that depends on operand and place. */
static double value_at(int operand, int64_t r, int64_t c) {
  uint64_t x = (uint64_t)(r * 1000003 + c) * 3 + (uint64_t)operand;
  x = (x ^ (x >> 15)) * 0x9E3779B97F4A7C15u;
  if (operand == SCALE) return (double)(1 << (x >> 62)) / 2;
  return (double)(int)(x >> 61) - 3;
}

static double product_at(const tsr_gemm_call *call, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t p = 0; p < call->k; p++)
    sum += (call->transpose_a ? value_at(A, p, i) : value_at(A, i, p)) *
           (call->transpose_b ? value_at(B, j, p) : value_at(B, p, j));
  if (call->scale.buffer) sum *= value_at(SCALE, 0, j);
  sum = call->alpha * sum + (call->beta == 0 ? 0 : call->beta * value_at(C, i, j));
  if (call->epilogue.bias.buffer) sum += value_at(BIAS, 0, j);
  return call->epilogue.activate && sum < 0 ? 0 : sum;
}

/* Everything is NaN (i8: 127) that the matrix does not hold; and C too where it must not be read. */
static tsr_status fill(tsr_opencl_device *device, const tsr_gemm_call *call, int operand, tsr_dtype dtype,
                       const tsr_matrix *matrix, tsr_error *error) {
  tsr_device *base = &device->base;
  void *data = NULL;
  const size_t bytes = matrix->buffer->bytes;
  const double garbage = dtype == TSR_I8 ? 127 : NAN;
  TSR_RETURN_IF_FAILED(tsr_device_host_wait(base, matrix->buffer, 0, bytes, TSR_HOST_WRITE, &data, error));
  for (size_t i = 0; i < bytes / tsr_dtype_bytes(dtype); i++)
    tsr_number_store(data, dtype, (int64_t)i, garbage);
  for (int64_t r = 0; r < matrix->rows && (operand != C || call->beta != 0); r++)
    for (int64_t c = 0; c < matrix->cols; c++)
      tsr_number_store(data, dtype, tsr_matrix_index(matrix, r, c), value_at(operand, r, c));
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
      double is = tsr_number_load(data, tsr_gemm_dtype_c(call->types), tsr_matrix_index(&call->c, i, j)),
             should = product_at(call, i, j);
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
  return facts->stored_k_block > facts->copied_k_block ? facts->stored_k_block : facts->copied_k_block;
}

/* Weights come in panels: B of a forward product and of its gradient by the input (NT), C of the gradient by
 * the weight (TN). */
static tsr_status make_call(tsr_opencl_device *device, const tsr_gemm_facts *facts, const test_shape *shape,
                            tsr_gemm_call *call, tsr_error *error) {
  const tsr_dtype a = tsr_gemm_dtype_a(call->types), b = tsr_gemm_dtype_b(call->types),
                  c = tsr_gemm_dtype_c(call->types);
  const int64_t m = shape->m, n = shape->n, k = shape->k + (shape->beyond_block ? larger_block(facts) : 0);
  const bool turn_a = call->transpose_a, turn_b = call->transpose_b, by_weight = turn_a && !turn_b;
  call->m = m;
  call->n = n;
  call->k = k;
  TSR_RETURN_IF_FAILED(make_matrix(device, a, turn_a ? k : m, turn_a ? m : k, 0, &call->a, error));
  TSR_RETURN_IF_FAILED(
      make_matrix(device, b, turn_b ? n : k, turn_b ? k : n, by_weight ? 0 : facts->panel, &call->b, error));
  TSR_RETURN_IF_FAILED(make_matrix(device, c, m, n, by_weight ? facts->panel : 0, &call->c, error));
  if (b == TSR_I8) TSR_RETURN_IF_FAILED(make_matrix(device, TSR_F32, 1, n, 0, &call->scale, error));
  if (shape->epilogue) {
    call->epilogue.activate = true;
    call->epilogue.unary = TSR_UNARY_RELU;
    TSR_RETURN_IF_FAILED(make_matrix(device, c, 1, n, 0, &call->epilogue.bias, error));
  }
  size_t bytes = tsr_gemm_workspace_bytes(facts, call->types, m, n, k);
  if (!bytes) return TSR_OK;
  TSR_RETURN_IF_FAILED(device->base.ops->buffer_create(&device->base, bytes, &call->workspace, error));
  call->workspace->bytes = bytes;
  return TSR_OK;
}

static void free_call(tsr_opencl_device *device, tsr_gemm_call *call) {
  tsr_buffer *const buffers[] = {call->a.buffer,     call->b.buffer,  call->c.buffer,
                                 call->scale.buffer, call->workspace, call->epilogue.bias.buffer};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
    if (buffers[i]) device->base.ops->buffer_destroy(&device->base, buffers[i]);
}

static tsr_status fill_operands(tsr_opencl_device *device, const tsr_gemm_call *call, tsr_error *error) {
  const tsr_gemm_types types = call->types;
  TSR_RETURN_IF_FAILED(fill(device, call, A, tsr_gemm_dtype_a(types), &call->a, error));
  TSR_RETURN_IF_FAILED(fill(device, call, B, tsr_gemm_dtype_b(types), &call->b, error));
  TSR_RETURN_IF_FAILED(fill(device, call, C, tsr_gemm_dtype_c(types), &call->c, error));
  const tsr_matrix *bias = &call->epilogue.bias;
  if (bias->buffer) TSR_RETURN_IF_FAILED(fill(device, call, BIAS, tsr_gemm_dtype_c(types), bias, error));
  return call->scale.buffer ? fill(device, call, SCALE, TSR_F32, &call->scale, error) : TSR_OK;
}

static tsr_status test_shape_once(tsr_opencl_device *device, const tsr_gemm_facts *facts,
                                  const test_shape *shape, tsr_gemm_types types, int form, tsr_error *error) {
  static const double scales[][2] = {{2, 0}, {1, -3}}; /* alpha, beta */
  tsr_status status = TSR_OK;
  tsr_gemm_call call = {.types = types, .transpose_a = form & 1, .transpose_b = form & 2};
  TSR_TRY(make_call(device, facts, shape, &call, error));
  for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
    call.alpha = scales[i][0];
    call.beta = scales[i][1];
    TSR_TRY(fill_operands(device, &call, error));
    TSR_TRY(tsr_opencl_gemm_launch(device, facts, &call, error));
    TSR_TRY(check(device, &call, shape->large, error));
  }
done:
  free_call(device, &call);
  return status;
}

static tsr_status test_shapes(tsr_opencl_device *device, const tsr_gemm_facts *facts, tsr_gemm_types types,
                              int form, tsr_error *error) {
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (shapes[i].family == facts->family && shapes[i].few_rows == !!(form & TSR_FORM_FEW_ROWS) &&
        (!shapes[i].large || device->facts.kind == TSR_DEVICE_GPU))
      TSR_RETURN_IF_FAILED(test_shape_once(device, facts, &shapes[i], types, form, error));
  return TSR_OK;
}

void tsr_opencl_self_test_name(const tsr_gemm_facts *facts, tsr_gemm_types types, int form, char *out,
                               size_t bytes) {
  size_t used =
      (size_t)snprintf(out, bytes, "self-test %d, %s %d:", VERSION, tsr_gemm_types_name(types), form);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes && used < bytes; i++) {
    const test_shape *s = &shapes[i];
    if (s->family == facts->family)
      used += (size_t)snprintf(out + used, bytes - used, " %" PRId64 "x%" PRId64 "x%" PRId64 "%s%s%s%s", s->m,
                               s->n, s->k, s->beyond_block ? " beyond" : "", s->large ? " large" : "",
                               s->epilogue ? " epilogue" : "", s->few_rows ? " few" : "");
  }
}

/* False if there is no memory to make the key, or nobody can say which CLBlast this is: nothing is remembered
 * then. */
static bool verdict_key(const tsr_opencl_device *device, const tsr_gemm_facts *facts, tsr_gemm_types types,
                        int form, tsr_cache_key *key) {
  char variant[512], what[512], library[512] = "", *sources[FILES_MAX] = {NULL};
  bool made = facts->family != TSR_GEMM_CLBLAST || tsr_clblast_identify(library, sizeof library);
  tsr_opencl_self_test_name(facts, types, form, what, sizeof what);
  for (int i = 0; i < FILES_MAX; i++) {
    const char *file = kernel_files[facts->family][i];
    if (file && tsr_opencl_source_read(device, file, &sources[i], NULL) != TSR_OK) made = false;
  }
  const char *const parts[] = {what, tsr_gemm_facts_format(facts, variant, sizeof variant),
                               sources[0] ? sources[0] : "", sources[1] ? sources[1] : "", library};
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
static tsr_status test_and_store(tsr_opencl_device *device, const tsr_gemm_facts *facts, tsr_gemm_types types,
                                 int form, tsr_error *error) {
  static const char passed[] = "passed";
  tsr_status status = TSR_OK;
  tsr_cache_key key;
  tsr_cache_lock lock;
  bool keyed = verdict_key(device, facts, types, form, &key);
  if (keyed && has_passed(device, key)) return TSR_OK;
  bool locked = keyed && tsr_opencl_cache_lock(device, LOCK_SECONDS, &lock);
  if (!locked || !has_passed(device, key)) {
    status = test_shapes(device, facts, types, form, error);
    if (status == TSR_OK && locked) {
      tsr_cache_write(device->base.context, key, passed, sizeof passed);
      tsr_opencl_kernels_store(device);
    }
  }
  if (locked) tsr_cache_lock_release(&lock);
  return status;
}

tsr_status tsr_opencl_self_test(tsr_opencl_device *device, const tsr_gemm_facts *facts, tsr_gemm_types types,
                                int form, tsr_error *error) {
  tsr_status status = test_and_store(device, facts, types, form, error);
  if (status != TSR_OK)
    tsr_error_wrap(error, "self-test of GEMM family %s (%s, %c%c) with driver %s",
                   tsr_gemm_family_name(facts->family), tsr_gemm_types_name(types), form & 1 ? 'T' : 'N',
                   form & 2 ? 'T' : 'N', device->base.info.driver);
  return status;
}
