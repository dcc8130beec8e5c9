/* bench_product.h: the operands of a product on the host, and the check of a result.
 *
 * Numbers are such that every element type holds them exactly. A result is held to two things: sampled
 * elements are computed again in f64 and may differ by 4 sqrt(k) eps |A||B|; and the whole of it is
 * multiplied by a vector of signs and compared with A (B x) in f64 (Freivalds 1979), so that no element can
 * be far off. */
#ifndef TOOL_BENCH_PRODUCT_H
#define TOOL_BENCH_PRODUCT_H

#include <tessera/tessera.h>

#include "bench_shapes.h"

typedef struct tool_product {
  tool_shape shape;
  const char *types; /* borrowed */
  bool transpose_a, transpose_b;
  tsr_dtype wide;              /* f64 or f32: of a and b here, and of c */
  void *a, *b, *scale;         /* as stored; b by its factors, NULL unless b is i8, not transposed */
  double *probe;               /* [n] signs */
  double *image, *image_bound; /* [m] A (B probe), and what it may be off by */
  struct tool_sample *samples;
} tool_product;

/* types: of --dtype; form: of --form. Release with tool_product_finish, also after a failure. Errors:
 * OUT_OF_MEMORY. */
tsr_status tool_product_init(tool_product *product, const tool_shape *shape, const char *types,
                             const char *form, tsr_error *error);
void tool_product_finish(tool_product *product);

/* A product on a device, with these operands in it. weights: copies of b. variant may be NULL. wide: in the
 * elements of c, for a library that has no narrow ones. Gives *out. */
tsr_status tool_product_place(const tool_product *product, tsr_device *device, int64_t weights,
                              const char *variant, bool wide, tsr_gemm **out, tsr_error *error);

/* Bytes of b as it is stored. */
double tool_product_weight_bytes(const tool_product *product);

/* Errors: CHECK_FAILED with the place; c is [m,n], dense, in `wide`. who: "ours". */
tsr_status tool_product_check(const tool_product *product, const void *c, const char *who, tsr_error *error);

#endif
