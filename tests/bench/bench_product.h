/* bench_product.h: one product, computed by a device and by a yardstick on the same numbers. */
#ifndef TSR_TESTS_BENCH_PRODUCT_H
#define TSR_TESTS_BENCH_PRODUCT_H

#include "device/device.h"

/* NN is a layer's forward product, NT and TN are its gradients. The weight's panels are packed beforehand:
 *   NN  Y = X W        W in panels
 *   NT  dX = dY W^T    W in panels
 *   TN  dW = X^T dY    dY row-major, dW in panels, with an epilogue row-major */
typedef struct bench_shape {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
} bench_shape;

/* What the product is compared with. */
typedef enum bench_yardstick {
  BENCH_OPENBLAS,
  BENCH_SEQUENCE, /* the device's product without the epilogue, then a pass for each of its parts */
  BENCH_BARE,     /* the device's product alone: what does the epilogue cost? */
} bench_yardstick;

typedef struct bench_epilogue {
  const char *name;
  bool bias, activate, gate, residual;
  tsr_unary unary;
} bench_epilogue;

typedef struct bench_product {
  bench_shape shape;
  tsr_dtype dtype; /* f32 or f64 */
  bench_epilogue epilogue;
  bench_yardstick yardstick;
  tsr_device *device;
  tsr_gemm_call call, bare; /* bare: without the epilogue, into a matrix of its own */
  void *a, *b, *c;          /* OpenBLAS's, row-major; c: the yardstick's result */
  void *sizes;              /* |A||B|, of C's shape */
} bench_product;

/* Fills all operands; shape, dtype, epilogue, yardstick and device are set. A failure leaves what
 * bench_product_finish releases. */
tsr_status bench_product_init(bench_product *product, tsr_error *error);
void bench_product_finish(bench_product *product);

/* Computes the product `count` times; back when the last has ended. */
tsr_status bench_product_run_ours(bench_product *product, int count, tsr_error *error);
tsr_status bench_product_run_yardstick(bench_product *product, int count, tsr_error *error);

/* Makes the device's C invalid, so that the next check sees only what was computed after. */
tsr_status bench_product_spoil(bench_product *product, tsr_error *error);
/* Compares the two results, element by element, with what two sums may differ by; CHECK_FAILED. Nothing to do
 * for BENCH_BARE. */
tsr_status bench_product_check(bench_product *product, tsr_error *error);

#endif
