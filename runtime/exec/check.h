/* exec/check.h: the parts of tsr_session_check. */
#ifndef TSR_EXEC_CHECK_H
#define TSR_EXEC_CHECK_H

#include "exec/session.h"

/* The worst place found so far: the largest error in units of its bound. Plain data: members exchange it. */
typedef struct tsr_finding {
  double ratio, error, bound;
  double found, expected;
  /* Twice the largest bound of all places looked at: what is right is within one bound of what is expected,
   * so an error of one element that is larger would have been found anywhere. */
  double detectable;
  int64_t compared, not_finite; /* comparisons, and those of them that had no finite bound */
  char where[128];
} tsr_finding;

/* Notes |found - expected| against bound. Where the bound is not finite (inputs that are not, or an overflow)
 * the kind alone is compared, and counted: NaN is not right where a number is expected, and with a bound of
 * NaN (what was computed with is not finite: nothing may have overflowed on the way) a number is not right
 * where NaN or infinity is. */
void tsr_finding_note(tsr_finding *finding, double found, double expected, double bound, const char *format,
                      ...) TSR_PRINTF(5, 6);
void tsr_finding_merge(tsr_finding *finding, const tsr_finding *other);

/* bound, and what a type's range adds to it: `products` numbers may each be flushed to zero, and where
 * results are as large as `magnitude` they may overflow: then there is no bound, see tsr_finding_note. */
double tsr_check_bound(tsr_dtype dtype, double magnitude, double products, double bound);

/* Runs one step, and checks each of its parts on its inputs as stored: products by a random +-1 vector on
 * every block of 256 columns, elementwise operators whole (large ones on sampled rows), reductions whole,
 * collectives and copies by signed sums; and replicated inputs are the same everywhere. */
tsr_status tsr_check_run_step(tsr_session *session, uint64_t seed, tsr_finding *finding, tsr_error *error);

/* No bound, where what is expected is not finite or may overflow: in f64, whose overflows depend on the order
 * of sums as well, infinity, else NaN. */
double tsr_check_no_bound(tsr_dtype dtype);
/* A sum with signs as tsr_finding_note needs it: NaN only if an element is NaN, for which `absolute`, the sum
 * of sizes, is; infinities of both signs give infinity. */
double tsr_check_sum(double sum, double absolute);

/* What the wire of a CONVERT step may add to an element, relative to the sum of the sizes of what is combined
 * into it; 0 of other steps. */
double tsr_check_wire_error(const tsr_plan *plan, const tsr_step *step);

/* A random sign by index. */
double tsr_check_sign(uint64_t seed, uint64_t index);

/* ---- one member, one step (check_products.c, check_elements.c) ---- */

/* One NODE step on one member, prepared before it runs. */
typedef struct tsr_step_probe {
  double *expected, *bound; /* sampled elements of an elementwise step, or a whole reduction */
  int64_t count;
  bool all_rows;
  int64_t rows[16], row_count, col, cols; /* which: rows (or all) x [col, col + cols) of the output */
} tsr_step_probe;

tsr_status tsr_check_product(tsr_session *session, tsr_local *local, const tsr_step *step, uint64_t seed,
                             tsr_finding *finding, tsr_error *error);
/* Of a product with fused nodes: the output holds the product alone. */
tsr_status tsr_check_elements_before(tsr_session *session, tsr_local *local, const tsr_step *step,
                                     uint64_t seed, tsr_step_probe *probe, tsr_error *error);
tsr_status tsr_check_elements_after(tsr_session *session, tsr_local *local, const tsr_step *step,
                                    tsr_step_probe *probe, tsr_finding *finding, tsr_error *error);

void tsr_check_elements_drop(tsr_step_probe *probe);

/* Of what works on images (check_images.c): how many elements of its output are looked at, and what
 * they are expected to be. */
int64_t tsr_check_images_limit(const tsr_plan *plan, const tsr_step *step, int active_index);
tsr_status tsr_check_images_expect(const tsr_plan *plan, const tsr_step *step, int active_index,
                                   tsr_device *device, const tsr_tensor *inputs, const tsr_tensor *output,
                                   double epsilon, tsr_step_probe *probe, tsr_error *error);

/* The rule that a node is computed by. */
tsr_rule tsr_check_rule(const tsr_plan *plan, int node);
/* A value's name for people. */
const char *tsr_check_name(const tsr_plan *plan, tsr_value value, char *buffer, size_t bytes);

#endif
