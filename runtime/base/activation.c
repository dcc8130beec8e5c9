/* activation.c: one pair of functions per activation, in a table. They are written so that nothing overflows:
 * a product x * g(x), where g vanishes faster than x grows, is 0 once g is 0. */
#include "base/activation.h"

#include <math.h>

static const double sqrt_half = 0.70710678118654752440;      /* sqrt(1/2) */
static const double normal_density = 0.39894228040143267794; /* 1 / sqrt(2 pi) */
static const double tanh_scale = 0.79788456080286535588;     /* sqrt(2/pi) */
static const double tanh_cubic = 0.044715;

/* x * factor, and 0 for factor 0 also where x is infinite. */
static double times(double x, double factor) {
  return factor == 0 ? 0 : x * factor;
}

static double sigmoid(double x) {
  return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static double relu(double x) {
  return x < 0 ? 0 : x;
}

static double relu_derivative(double x) {
  if (isnan(x)) return x;
  return x > 0;
}

static double gelu(double x) {
  return times(x, 0.5 * erfc(-x * sqrt_half));
}

static double gelu_derivative(double x) {
  return 0.5 * erfc(-x * sqrt_half) + times(x, normal_density * exp(-0.5 * x * x));
}

/* (1 + tanh(u)) / 2 = sigmoid(2 u). */
static double gelu_tanh(double x) {
  return times(x, sigmoid(2 * tanh_scale * (x + tanh_cubic * x * x * x)));
}

static double gelu_tanh_derivative(double x) {
  double v = 2 * tanh_scale * (x + tanh_cubic * x * x * x);
  return sigmoid(v) + times(2 * tanh_scale * (x + 3 * tanh_cubic * x * x * x), sigmoid(v) * sigmoid(-v));
}

static double silu(double x) {
  return times(x, sigmoid(x));
}

static double silu_derivative(double x) {
  return sigmoid(x) + times(x, sigmoid(x) * sigmoid(-x));
}

static const struct {
  double (*apply)(double x);
  double (*derivative)(double x);
} functions[TSR_UNARY_COUNT] = {
    [TSR_UNARY_RELU] = {relu, relu_derivative},
    [TSR_UNARY_GELU] = {gelu, gelu_derivative},
    [TSR_UNARY_GELU_TANH] = {gelu_tanh, gelu_tanh_derivative},
    [TSR_UNARY_SILU] = {silu, silu_derivative},
};

double tsr_unary_apply(tsr_unary unary, double x) {
  return functions[unary].apply(x);
}

double tsr_unary_derivative(tsr_unary unary, double x) {
  return functions[unary].derivative(x);
}
