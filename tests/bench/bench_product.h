/* bench_product.h: one product, computed by a device and by OpenBLAS on the same numbers. */
#ifndef TSR_TESTS_BENCH_PRODUCT_H
#define TSR_TESTS_BENCH_PRODUCT_H

#include "device/device.h"

/* NN is a layer's forward product, NT and TN are its gradients. The weight's panels are packed beforehand:
 *   NN  Y = X W        W in panels
 *   NT  dX = dY W^T    W in panels
 *   TN  dW = X^T dY    dY row-major, dW in panels */
typedef struct bench_shape {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
} bench_shape;

typedef struct bench_product {
  bench_shape shape;
  tsr_device *device;
  tsr_gemm_call call;
  float *a, *b, *c; /* OpenBLAS's, row-major */
  float *sizes;     /* |A||B|, of C's shape */
} bench_product;

/* Fills all operands. A failure leaves what bench_product_finish releases. */
tsr_status bench_product_init(bench_product *product, const bench_shape *shape, tsr_device *device,
                              tsr_error *error);
void bench_product_finish(bench_product *product);

/* Computes the product `count` times; back when the last has ended. */
tsr_status bench_product_run_ours(bench_product *product, int count, tsr_error *error);
void bench_product_run_openblas(bench_product *product, int count);

/* Makes the device's C invalid, so that the next check sees only what was computed after. */
tsr_status bench_product_spoil(bench_product *product, tsr_error *error);
/* Compares the two results, element by element, with what two sums in f32 may differ by; CHECK_FAILED. */
tsr_status bench_product_check(bench_product *product, tsr_error *error);

#endif
