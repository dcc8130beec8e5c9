/* images_run.h: every convolution and every pooling once, on views that begin and end with their buffers, for
 * tests of what kernels touch. Their results are test_conv's business. */
#ifndef TSR_TESTS_KERNELS_IMAGES_RUN_H
#define TSR_TESTS_KERNELS_IMAGES_RUN_H

#include "map_reduce_run.h"

static void run_convolutions(tsr_device *device, tsr_conv_call call, tsr_matrix bias, int64_t gap) {
  tsr_error error = {0};
  for (int kind = 0; kind <= TSR_CONV_BIAS_GRADIENT; kind++) {
    call.kind = (tsr_conv_kind)kind;
    call.p = (call.h + 2 * call.padding[0] - call.dilation[0] * (call.r - 1) - 1) / call.stride[0] + 1;
    call.q = (call.w + 2 * call.padding[1] - call.dilation[1] * (call.s - 1) - 1) / call.stride[1] + 1;
    call.x = make_zeros(device, call.dtype, call.n, call.groups * call.c * call.h * call.w, gap);
    call.weight = make_zeros(device, call.dtype, call.groups * call.k, call.c * call.r * call.s, gap);
    call.y = make_zeros(device, call.dtype, call.n, call.groups * call.k * call.p * call.q, gap);
    call.bias = bias;
    call.bias.cols = call.bias.ld = call.groups * call.k;
    call.bias.offset = bias.cols - call.bias.cols;
    call.activate = kind == TSR_CONV_FORWARD;
    assert_ok(tsr_device_conv(device, &call, &error), &error);
    assert_ok(tsr_device_finish(device, &error), &error);
    tsr_buffer *all[] = {call.x.buffer, call.weight.buffer, call.y.buffer};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tsr_buffer_destroy(device, &all[i]);
  }
}

static void run_pools(tsr_device *device, tsr_dtype dtype, int64_t gap) {
  tsr_error error = {0};
  for (int i = 0; i < 4; i++) {
    tsr_pool_call call = {.gradient = i & 1,
                          .reduction = i & 2 ? TSR_SUM : TSR_MAX,
                          .dtype = dtype,
                          .n = 2,
                          .c = 3,
                          .h = 5,
                          .w = 6,
                          .r = 3,
                          .s = 2,
                          .p = 3,
                          .q = 4,
                          .stride = {2, 2},
                          .padding = {1, 1}};
    call.x = make_zeros(device, dtype, 2, 3 * 5 * 6, gap);
    call.y = make_zeros(device, dtype, 2, 3 * 3 * 4, gap);
    call.out = make_zeros(device, dtype, 2, call.gradient ? 3 * 5 * 6 : 3 * 3 * 4, gap);
    assert_ok(tsr_device_pool(device, &call, &error), &error);
    assert_ok(tsr_device_finish(device, &error), &error);
    tsr_buffer *all[] = {call.x.buffer, call.y.buffer, call.out.buffer};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++) tsr_buffer_destroy(device, &all[j]);
  }
}

static void run_images(tsr_device *device, tsr_dtype dtype, int64_t gap) {
  const tsr_conv_call calls[] = {{.groups = 1,
                                  .n = 2,
                                  .c = 3,
                                  .h = 5,
                                  .w = 7,
                                  .k = 8,
                                  .r = 3,
                                  .s = 3,
                                  .stride = {1, 1},
                                  .padding = {1, 1}},
                                 {.groups = 2,
                                  .n = 3,
                                  .c = 4,
                                  .h = 6,
                                  .w = 5,
                                  .k = 5,
                                  .r = 2,
                                  .s = 3,
                                  .stride = {2, 3},
                                  .padding = {0, 4}},
                                 {.groups = 6,
                                  .n = 1,
                                  .c = 1,
                                  .h = 9,
                                  .w = 4,
                                  .k = 1,
                                  .r = 3,
                                  .s = 2,
                                  .stride = {1, 2},
                                  .padding = {2, 0}},
                                 {.groups = 3,
                                  .n = 2,
                                  .c = 1,
                                  .h = 5,
                                  .w = 19,
                                  .k = 1,
                                  .r = 3,
                                  .s = 3,
                                  .stride = {1, 1},
                                  .padding = {1, 1}},
                                 {.groups = 1,
                                  .n = 3,
                                  .c = 2,
                                  .h = 1,
                                  .w = 1,
                                  .k = 7,
                                  .r = 1,
                                  .s = 1,
                                  .stride = {1, 1},
                                  .padding = {0, 0}}};
  tsr_matrix bias = make_zeros(device, dtype, 1, 16, 0);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    tsr_conv_call call = calls[i];
    call.dtype = dtype;
    call.dilation[0] = 1;
    call.dilation[1] = i == 1 ? 2 : 1;
    run_convolutions(device, call, bias, gap);
  }
  run_pools(device, dtype, gap);
  tsr_buffer_destroy(device, &bias.buffer);
}

#endif
