/* tessera/gemm.h: one product whose operands live on one open device, to be run many times.
 *
 *     c[m,n] = f(alpha * op(a)[m,k] * op(b)[k,n] * scale + beta * c + bias) * gate + residual
 *
 * op(x) = x or its transpose; what the options do not ask for is left out. It is what a plan's steps are made
 * of, without the plan: for measuring a device, and for programs that split nothing.
 *
 * An operand is stored as the device's kernels want it: b, unless only a is transposed, as a weight (on CPUs
 * in packed panels), c as a weight where only a is transposed (the gradient of a weight) and nothing is
 * fused; all others row-major. The device's memory ledger counts all of it.
 *
 * Thread safety: as the device, which is borrowed until destroy. */
#ifndef TESSERA_GEMM_H
#define TESSERA_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/array.h>
#include <tessera/device.h>
#include <tessera/graph.h>
#include <tessera/writer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_gemm tsr_gemm;

/* Shapes as stored: A [m,k], or [k,m] if transposed; B [k,n], or [n,k]; C, GATE, RESIDUAL [m,n]; SCALE (of
 * weights in i8 that are not transposed: one factor for each column) and BIAS [1,n]. */
typedef enum tsr_gemm_operand {
  TSR_GEMM_OPERAND_A,
  TSR_GEMM_OPERAND_B,
  TSR_GEMM_OPERAND_C,
  TSR_GEMM_OPERAND_SCALE,
  TSR_GEMM_OPERAND_BIAS,
  TSR_GEMM_OPERAND_GATE,
  TSR_GEMM_OPERAND_RESIDUAL
} tsr_gemm_operand;
enum { TSR_GEMM_OPERANDS = 7 };

enum { TSR_GEMM_COPIES_MAX = 1 << 16 };

typedef struct tsr_gemm_options {
  size_t struct_size;
  const char *types; /* borrowed for the call; NULL = "f32". Element types of a and b: "f32", "f64";
                        "f32xf16", "f32xbf16", "f32xi8" (b is narrow); "f16", "bf16" (both are). c, and all
                        that is fused, is f64 for f64, else f32 */
  bool transpose_a, transpose_b;
  double alpha; /* 0 = 1 */
  double beta;  /* c is not read when it is 0 */
  bool bias, gate, residual;
  bool activate; /* whether f is `activation`; else f(x) = x */
  tsr_unary activation;
  int64_t copies; /* of b, at most TSR_GEMM_COPIES_MAX; 0 = 1. Products read them in turn, a run goes on where
                     the last one ended: weights that no cache holds */
  const char *variant; /* borrowed for the call; the kernel and its parameters ("panel tile_m=6 ..."), as
                          tsr_gemm_variant has it; NULL = by the tuning rows, else the backend's choice */
} tsr_gemm_options;
void tsr_gemm_options_init(tsr_gemm_options *options);
#define TSR_GEMM_OPTIONS(...) (&(tsr_gemm_options){.struct_size = sizeof(tsr_gemm_options), __VA_ARGS__})

/* Allocates the operands, whose contents are undefined. Gives *out. options may be NULL. Errors:
 * INVALID_ARGUMENT (sizes below 1, unknown types, a variant that is none), UNSUPPORTED (types or a family
 * that the device does not have, a variant that breaks one of its limits), OUT_OF_MEMORY. */
tsr_status tsr_gemm_create(tsr_device *device, int64_t m, int64_t n, int64_t k,
                           const tsr_gemm_options *options, tsr_gemm **out, tsr_error *error);
/* Takes *gemm (may be NULL), leaves NULL. */
void tsr_gemm_destroy(tsr_gemm **gemm);

/* Converts array (2 axes, the operand's shape, any strides; borrowed for the call) to the operand's type and
 * stores it, B into every copy. Waits for the device. Errors: INVALID_ARGUMENT (another shape, an operand
 * that was not asked for), DEVICE. */
tsr_status tsr_gemm_write(tsr_gemm *gemm, tsr_gemm_operand operand, const tsr_array *array, tsr_error *error);
/* Copies the operand (of B: the first copy) into array, likewise. */
tsr_status tsr_gemm_read(tsr_gemm *gemm, tsr_gemm_operand operand, const tsr_array *array, tsr_error *error);

/* Runs the product `count` >= 1 times, one after another, and waits for the last. The first run compiles the
 * kernel and tests it. *seconds (may be NULL): of all of them by the host's clock. *device_seconds (NULL: do
 * not ask, which is cheaper) likewise by the device's own, from the beginning of the first to the end of the
 * last; 0 where the device has none, or one that cannot be right. Errors: INVALID_ARGUMENT, COMPILE, DEVICE.
 */
tsr_status tsr_gemm_run(tsr_gemm *gemm, int64_t count, double *seconds, double *device_seconds,
                        tsr_error *error);

/* The kernel and the parameters that a run uses: "panel tile_m=6 tile_n=16 ...". Borrowed; lives as long as
 * the product, and changes only when a run has found that a tuned variant does not work. */
const char *tsr_gemm_variant(tsr_gemm *gemm);
/* Writes lines for people: the variant, and which tuning row it comes from, or why from none. Errors: IO. */
tsr_status tsr_gemm_describe(tsr_gemm *gemm, tsr_writer writer, void *user, tsr_error *error);

/* Floating-point operations of one run, a multiply-add counted as two. */
double tsr_gemm_flops(const tsr_gemm *gemm);

#ifdef __cplusplus
}
#endif
#endif
