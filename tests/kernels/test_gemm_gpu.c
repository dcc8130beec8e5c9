/* test_gemm_gpu.c: the tile kernel in the variants that GPUs run, on the device under test, which need not be
 * a GPU: every element type and transpose, ragged and aligned, k in one piece and in parts, ordinary and
 * extreme numbers; that its self-test finds mistakes; that the presets of the backends fit any device; and
 * matrices of more rows than a GPU's launch has groups in its second dimension. */
#include "gemm_case.h"

#include "backends/backend_list.h"
#include "backends/gpu_gemm.h"
#include "device/opencl_device.h"
#include "planted.h"

/* Variants that differ in what the kernel does, and are cheap to compile: one and two buffers, tiles that the
 * work-items' vectors do not fill evenly, work-groups with and without blocks of 8 x 4 neighbours. */
static const tsr_gemm_facts variants[] = {
    TSR_GPU_TILE(16, 16, 16, 1, 1, 1, 1, 3), TSR_GPU_TILE(16, 32, 8, 4, 4, 4, 1, 3),
    TSR_GPU_TILE(16, 32, 16, 4, 4, 4, 2, 3), TSR_GPU_TILE(32, 64, 8, 8, 4, 4, 2, 3),
    TSR_GPU_TILE(24, 20, 12, 4, 2, 2, 2, 3),
};

static tsr_device *open_plain(fixture *f) {
  return open_device(f, test_selector(), TSR_DEVICE_OPTIONS(.gemm = "reference"));
}

/* Every other case aligned; one of four so deep that k is cut; one of three extreme. */
static void run_cases(tsr_device *device, const tsr_gemm_facts *variant, tsr_gemm_types types, int cases) {
  if (device->gemm[types].family == TSR_GEMM_NONE) {
    print_message("skipped: no %s on this device\n", tsr_gemm_types_name(types));
    return;
  }
  for (int i = 0; i < cases; i++) {
    test_case t = draw_case(variant, types, i);
    t.variant = variant;
    t.aligned = i / 4 % 2;
    if (i % 3 == 0) make_extreme(&t);
    if (i % 4 == 3) {
      t.k += 768;
      t.m = t.m % 32 + 1;
    }
    run_case(device, &t);
  }
}

/* Mesa's compiler takes minutes for vectors in registers. */
static bool is_slow_compiler(void) {
  return !strncmp(test_selector(), "rusticl", strlen("rusticl"));
}

/* As large as a slow device can be asked, and whole tiles. */
static void test_scalar(void **state) {
  if (!has_device(*state)) skip();
  tsr_device *device = open_plain(*state);
  test_case t = {.types = TSR_GEMM_TYPES_F32,
                 .m = 256,
                 .n = 512,
                 .k = 512,
                 .integers = true,
                 .aligned = true,
                 .alpha = 2,
                 .beta = 1,
                 .variant = &variants[0]};
  run_case(device, &t);
  run_cases(device, &variants[0], TSR_GEMM_TYPES_F32_BF16, 4);
  run_cases(device, &variants[0], TSR_GEMM_TYPES_F32_I8, 4);
  tsr_device_close(&device);
}

static void test_variants(void **state) {
  if (!has_device(*state) || is_slow_compiler()) skip();
  tsr_device *device = open_plain(*state);
  seed = 1;
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
    run_cases(device, &variants[i], TSR_GEMM_TYPES_F32, 8);
  tsr_device_close(&device);
}

static void test_types(void **state) {
  if (!has_device(*state) || is_slow_compiler()) skip();
  tsr_device *device = open_plain(*state);
  seed = 2;
  for (int types = TSR_GEMM_TYPES_F64; types < TSR_GEMM_TYPES_COUNT; types++) {
    run_cases(device, &variants[types % 2 ? 2 : 4], (tsr_gemm_types)types, 8);
  }
  tsr_device_close(&device);
}

static void expect_fit(const tsr_backend *backend, const tsr_opencl_facts *facts, tsr_gemm_types types) {
  tsr_gemm_facts tile = {.family = TSR_GEMM_NONE};
  for (int preference = 0; tile.family != TSR_GEMM_TILE; preference++) {
    tile.family = TSR_GEMM_NONE;
    backend->gemm(facts, types, preference, &tile);
    if (tile.family == TSR_GEMM_NONE) fail_msg("%s: no tile kernel", backend->name);
  }
  assert_true(tsr_gemm_tile_local_bytes(&tile, types) <= facts->local_memory_bytes);
  assert_true(tsr_gemm_tile_local_bytes(&tile, types) <= 48 << 10);
  assert_true((size_t)(tile.tile_m / tile.item_m * (tile.tile_n / tile.item_n)) <=
              facts->work_group_size_max);
  const int32_t parts[] = {tile.tile_m % tile.item_m, tile.tile_n % tile.item_n, tile.item_m % tile.vector,
                           tile.item_n % tile.vector, tile.tile_k % tile.vector};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) assert_int_equal(parts[i], 0);
}

static void test_fit(void **state) {
  static const uint64_t local_bytes[] = {8 << 10, 16 << 10, 32 << 10, 48 << 10, 64 << 10};
  static const size_t groups[] = {64, 128, 256, 1024};
  static const tsr_backend *const backends[] = {&tsr_backend_nvidia, &tsr_backend_amd, &tsr_backend_intel,
                                                &tsr_backend_generic};
  (void)state;
  for (size_t i = 0; i < 5 * 4 * 4; i++) {
    const tsr_opencl_facts facts = {.kind = TSR_DEVICE_GPU,
                                    .f64 = true,
                                    .local_memory_bytes = local_bytes[i % 5],
                                    .work_group_size_max = groups[i / 5 % 4]};
    for (int types = 0; types < TSR_GEMM_TYPES_COUNT; types++)
      expect_fit(backends[i / 20], &facts, (tsr_gemm_types)types);
  }
}

/* ---- planted mistakes ---- */

static void test_mistakes(void **state) {
  static const mistake mistakes[] = {
      {&variants[1], TSR_GEMM_TYPES_F32, "aligned stores are wrong", "gemm_tile.cl",
       "*(global vector *)out = value;", "*(global vector *)out = value + 1;"},
      {&variants[1], TSR_GEMM_TYPES_F32, "there is no bias", "gemm_epilogue.h",
       "value += load_some(e->bias + j, count);", ";"},
  };
  if (!has_device(*state) || is_slow_compiler()) skip();
  expect_refusals(*state, mistakes, sizeof mistakes / sizeof *mistakes);
}

/* ---- many rows ---- */

enum { ROW_GROUPS_MAX = 65535, REFERENCE_ROWS = 4 };

/* The reference kernel, and in f64 the epilogue by itself behind the tile kernel. */
static void test_tall_products(void **state) {
  if (!has_device(*state) || is_slow_compiler()) skip();
  tsr_device *device = open_plain(*state);
  seed = 3;
  test_case t = {.m = REFERENCE_ROWS * ROW_GROUPS_MAX + 5, .n = 2, .k = 2, .integers = true, .alpha = 1};
  run_case(device, &t);
  t.types = TSR_GEMM_TYPES_F64;
  t.variant = &variants[4];
  t.m = ROW_GROUPS_MAX + 5;
  t.activate = true;
  t.unary = TSR_UNARY_GELU;
  if (device->gemm[t.types].family) run_case(device, &t);
  tsr_device_close(&device);
}

enum { TALL = ROW_GROUPS_MAX + 6, WIDE = 3, LD = 4 };

static void fill_rows(tsr_device *device, tsr_matrix *matrix) {
  tsr_error error = {0};
  void *data = NULL;
  const size_t bytes = sizeof(float) * TALL * LD;
  *matrix = (tsr_matrix){.rows = TALL, .cols = WIDE, .ld = LD};
  assert_ok(tsr_buffer_create(device, bytes, &matrix->buffer, &error), &error);
  assert_ok(tsr_device_host_wait(device, matrix->buffer, 0, bytes, TSR_HOST_WRITE, &data, &error), &error);
  for (int i = 0; i < TALL * LD; i++) ((float *)data)[i] = (float)i;
  assert_ok(tsr_device_host_end(device, matrix->buffer, data, &error), &error);
}

/* Elements that are `step` apart are first, first + growth, ... */
static void expect_rows(tsr_device *device, tsr_buffer *buffer, int step, double first, double growth) {
  tsr_error error = {0};
  void *data = NULL;
  assert_ok(tsr_device_host_wait(device, buffer, 0, buffer->bytes, TSR_HOST_READ, &data, &error), &error);
  for (int i = 0; i < TALL; i++)
    if ((double)((float *)data)[i * step] != first + growth * i)
      fail_msg("row %d is %g, expected %g", i, (double)((float *)data)[i * step], first + growth * i);
  assert_ok(tsr_device_host_end(device, buffer, data, &error), &error);
}

/* As GPUs do it, a group to a row; all numbers are exact. */
static void test_tall_matrices(void **state) {
  if (!has_device(*state)) skip();
  tsr_error error = {0};
  tsr_device *device = open_plain(*state);
  tsr_matrix a, out, sums = {.rows = 1, .cols = TALL, .ld = TALL};
  tsr_buffer *workspace = NULL;
  tsr_opencl_of(device)->facts.float_vector_width = 1;
  fill_rows(device, &a);
  fill_rows(device, &out);
  assert_ok(tsr_buffer_create(device, sizeof(float) * TALL, &sums.buffer, &error), &error);
  assert_ok(tsr_buffer_create(device, tsr_reduce_workspace_bytes(), &workspace, &error), &error);
  const tsr_map_call map = {.kind = TSR_MAP_SCALE, .alpha = 2, .a = a, .out = out};
  assert_ok(tsr_device_map(device, &map, &error), &error);
  expect_rows(device, out.buffer, LD, 0, 2 * LD);
  const tsr_reduce_call reduce = {
      .kind = TSR_REDUCE_COLS, .scale = 1, .a = a, .out = sums, .workspace = workspace};
  assert_ok(tsr_device_reduce(device, &reduce, &error), &error);
  expect_rows(device, sums.buffer, 1, 0 + 1 + 2, 3 * LD);
  tsr_buffer *all[] = {a.buffer, out.buffer, sums.buffer, workspace};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tsr_buffer_destroy(device, &all[i]);
  tsr_device_close(&device);
}

/* What was tested is part of a verdict's key: every shape of the family, no other's. */
static void test_names(void **state) {
  (void)state;
  char tile[512], reference[512], other[512];
  const tsr_gemm_facts facts = {.family = TSR_GEMM_REFERENCE};
  tsr_opencl_self_test_name(&variants[0], TSR_GEMM_TYPES_F32, 0, tile, sizeof tile);
  tsr_opencl_self_test_name(&facts, TSR_GEMM_TYPES_F32, 0, reference, sizeof reference);
  tsr_opencl_self_test_name(&variants[0], TSR_GEMM_TYPES_F32, 2, other, sizeof other);
  assert_non_null(
      strstr(tile, "self-test 1, f32 0: 67x139x129 epilogue 68x140x132 7x75x4099 1027x1025x517 large"));
  assert_string_equal(reference, "self-test 1, f32 0: 67x43x129");
  assert_string_not_equal(tile, other);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fit),           cmocka_unit_test(test_scalar),
      cmocka_unit_test(test_variants),      cmocka_unit_test(test_types),
      cmocka_unit_test(test_mistakes),      cmocka_unit_test(test_tall_products),
      cmocka_unit_test(test_tall_matrices), cmocka_unit_test(test_names),
  };
  return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
