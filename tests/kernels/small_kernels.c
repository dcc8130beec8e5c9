/* small_kernels.c: runs kernels on a few small ragged problems, untested variants too: oclgrind.sh gives it
 * to a checker of memory accesses and races, which is thousands of times slower than a device. Of products:
 * the reference kernel; the tile kernel with its join in f32, f64, weights of i8 and of bf16; the kernel for
 * matrix units with NVIDIA's instruction emulated, and its join; the panel kernel and the one for few rows,
 * in f32. And all elementwise operations and reductions. */
#include "gemm_case.h"

#include "backends/gpu_gemm.h"
#include "device/opencl_device.h"
#include "images_run.h"

enum { SIDE = 21 };

static const tsr_gemm_facts variants[] = {
    {.family = TSR_GEMM_REFERENCE},
    TSR_GPU_TILE(16, 16, 16, 1, 1, 1, 1, 3),
    TSR_GPU_TILE(8, 16, 8, 4, 4, 4, 1, 3),
    TSR_GPU_TILE(16, 32, 8, 4, 4, 4, 2, 3),
};

static const tsr_gemm_facts matrix_units = {.family = TSR_GEMM_MMA,
                                            .instruction = TSR_MMA_NVIDIA_MMA,
                                            .tile_m = 32,
                                            .tile_n = 16,
                                            .tile_k = 16,
                                            .warp_m = 16,
                                            .warp_n = 16,
                                            .stages = 2,
                                            .split_k = 3,
                                            .emulated = 1};

/* Blocks so small that there are several. */
static const tsr_gemm_facts panels = {.family = TSR_GEMM_PANEL,
                                      .tile_m = 3,
                                      .tile_n = 8,
                                      .panel = 8,
                                      .vector = 4,
                                      .stored_k_block = 16,
                                      .stored_row_block = 6,
                                      .stored_panels = 2,
                                      .copied_k_block = 8,
                                      .copied_row_block = 6,
                                      .copied_panels = 2,
                                      .small_m = 4,
                                      .small_k_block = 8};

/* Without a self-test, which takes minutes here. */
static tsr_status launch(tsr_device *device, const tsr_gemm_call *call, tsr_error *error) {
  return tsr_opencl_gemm_launch(tsr_opencl_of(device), call->facts, call, error);
}

static void run_products(tsr_device *device, const tsr_gemm_facts *variant, tsr_gemm_types types) {
  for (int i = 0; i < 4; i++) {
    test_case t = draw_case(variant, types, i);
    t.variant = variant;
    t.tight = true;
    t.aligned = i % 2;
    t.m = t.m % SIDE + 1;
    t.n = t.n % SIDE + 1;
    t.k = i == 3 ? 768 : t.k % SIDE + 1; /* now and then k is cut */
    if (i == 2) draw_epilogue(&t);
    run_case(device, &t);
  }
}

static void test_matrix_units(void **state) {
  tsr_device *device = *state;
  seed = 4;
  run_products(device, &matrix_units, TSR_GEMM_TYPES_BF16);
}

/* B and C as they are stored and in panels, all transposes. */
static void test_panels(void **state) {
  tsr_device *device = *state;
  seed = 5;
  for (int i = 0; i < 12; i++) {
    test_case t = draw_case(&panels, TSR_GEMM_TYPES_F32, i);
    t.variant = &panels;
    t.tight = true;
    t.m = t.m % SIDE + panels.small_m + 1;
    t.n = t.n % SIDE + 1;
    t.k = t.k % SIDE + 1;
    run_case(device, &t);
  }
}

static void test_few_rows(void **state) {
  tsr_device *device = *state;
  seed = 6;
  for (int i = 0; i < 4; i++) {
    test_case t = draw_case(&panels, TSR_GEMM_TYPES_F32, 4 * i);
    t.variant = &panels;
    t.tight = true;
    t.m = i + 1;
    t.n = t.n % SIDE + 1;
    t.k = t.k % SIDE + 1;
    t.b_panel = panels.panel;
    run_case(device, &t);
  }
}

static void test_products(void **state) {
  tsr_device *device = *state;
  seed = 3;
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
    run_products(device, &variants[i], TSR_GEMM_TYPES_F32);
  run_products(device, &variants[3], TSR_GEMM_TYPES_F32_I8);
  run_products(device, &variants[3], TSR_GEMM_TYPES_F32_BF16);
  if (device->gemm[TSR_GEMM_TYPES_F64].family) run_products(device, &variants[2], TSR_GEMM_TYPES_F64);
}

/* As CPUs run them, and as GPUs do. */
static void test_maps_and_reductions(void **state) {
  tsr_device *device = *state;
  uint32_t *width = &tsr_opencl_of(device)->facts.float_vector_width;
  const uint32_t own = *width;
  run_maps_and_reductions(device, TSR_F32, 7, 13, 0);
  run_maps_and_reductions(device, TSR_F32, 7, 13, 2);
  *width = 1;
  run_maps_and_reductions(device, TSR_F32, 7, 13, 0);
  run_maps_and_reductions(device, TSR_F32, 7, 13, 2);
  *width = own;
}

/* Element by element as CPUs and GPUs run them, and as products. */
static void test_images(void **state) {
  tsr_device *device = *state;
  uint32_t *width = &tsr_opencl_of(device)->facts.float_vector_width;
  const uint32_t width_before = *width;
  const tsr_gemm_facts facts_before = device->gemm[TSR_GEMM_TYPES_F32];
  run_images(device, TSR_F32, 2);
  *width = 1;
  run_images(device, TSR_F32, 0);
  *width = width_before;
  device->gemm[TSR_GEMM_TYPES_F32] = panels;
  run_images(device, TSR_F32, 0);
  run_images(device, TSR_F32, 2);
  device->gemm[TSR_GEMM_TYPES_F32] = facts_before;
}

static void *shared; /* the fixture */
static tsr_device_ops direct;

static int setup(void **state) {
  if (fixture_setup(&shared)) return -1;
  tsr_device *device = open_device(shared, test_selector(),
                                   TSR_DEVICE_OPTIONS(.gemm = "reference", .work = TSR_WORK_ELEMENTWISE));
  direct = *device->ops;
  direct.gemm = launch;
  device->ops = &direct;
  *state = device;
  return 0;
}

static int teardown(void **state) {
  tsr_device *device = *state;
  tsr_device_close(&device);
  return fixture_teardown(&shared);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_products),
      cmocka_unit_test(test_matrix_units),
      cmocka_unit_test(test_panels),
      cmocka_unit_test(test_few_rows),
      cmocka_unit_test(test_maps_and_reductions),
      cmocka_unit_test(test_images),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
