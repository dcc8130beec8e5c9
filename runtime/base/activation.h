/* base/activation.h: the activation functions and their derivatives in f64, for the host device and for the
 * f64 reference that results are checked against. Formulas: tessera/graph.h.
 *
 * NaN gives NaN; at the infinities both take their limits. Thread safety: pure functions. */
#ifndef TSR_BASE_ACTIVATION_H
#define TSR_BASE_ACTIVATION_H

#include <tessera/graph.h>

double tsr_unary_apply(tsr_unary unary, double x);
/* relu's derivative at 0 is 0. */
double tsr_unary_derivative(tsr_unary unary, double x);

#endif
