/* activation.h: the activation functions and their derivatives, element by element, of a `vector`.
 *
 *     UNARY            f(x)
 *     RELU             max(x, 0)
 *     GELU             x * (1 + erf(x / sqrt 2)) / 2
 *     GELU_TANH        x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2  =  x * sigmoid(v)
 *     SILU             x * sigmoid(x),  sigmoid(v) = 1 / (1 + exp(-v))
 *
 * NaN gives NaN. At -infinity and +infinity f and f' take their limits.
 *
 * How f32 is computed. exp(y), y <= 0, is 2^n * exp(s), |s| <= ln(2)/2, by a polynomial of degree 6 (relative
 * error 1.1e-8). With t = |x| the tail of the normal distribution is
 *
 *     Q(t) = erfc(t / sqrt 2) / 2 = exp(-t^2/2) * p(u) / (t + 4),   u = (t - 4) / (t + 4)
 *
 * with a polynomial p of degree 9 (relative error 1.4e-8 for 0 <= t <= 15, beyond which Q is 0). Then gelu(x) =
 * max(x, 0) - t Q(t), which never subtracts nearly equal numbers. f64 uses the built-in exp and erfc. Largest errors
 * measured in f32, ulp = 2^-23: gelu 3 ulp of f (8 where f < 1e-37), silu 2 ulp of f, gelu_tanh 1.2 ulp of |x|,
 * derivatives 2 ulp of 1.
 *
 * Needs vector.h, and -DUNARY=NONE|RELU|GELU|GELU_TANH|SILU. Gives apply(x) = f(x) and gradient(x) = f'(x); with NONE
 * apply(x) = x and no gradient. Not for -cl-fast-relaxed-math or -cl-finite-math-only, which lose NaN. */
#ifndef ACTIVATION_H
#define ACTIVATION_H

#ifndef UNARY
#error "activation.h needs -DUNARY=NONE|RELU|GELU|GELU_TANH|SILU"
#endif
#define NONE 0
#define RELU 1
#define GELU 2
#define GELU_TANH 3
#define SILU 4
#if UNARY < NONE || UNARY > SILU
#error "UNARY is none of NONE, RELU, GELU, GELU_TANH, SILU"
#endif

#if UNARY == NONE
static inline vector apply(vector x)
{
    return x;
}
#endif

/* A comparison keeps NaN where fmin and fmax would drop it. */
static inline vector at_most(vector x, REAL limit)
{
    return x > (vector)limit ? (vector)limit : x;
}

#if UNARY > RELU && !WIDE
#define TAIL_END ((REAL)15)     /* Q(15) < 4e-51 */
#define EXP_END ((REAL)104)     /* exp(-104) rounds to 0 */
#define TANH_END ((REAL)12)     /* v(12) > 104 */

typedef VECTOR_OF(int) integers;
#define AS_INTEGERS VECTOR_OF(as_int)
#define AS_VECTOR VECTOR_OF(as_float)
#define ROUNDER 12582912.0f     /* 1.5 * 2^23: adding it rounds to an integer, which its low bits show */

/* exp(high + low), high <= 0, |low| small. The factor 2^n comes in two, so that a denormal result is right. */
static inline vector exponential(vector high, vector low)
{
    const vector shifted = high * 1.44269504f + ROUNDER;
    const integers n = AS_INTEGERS(shifted) - AS_INTEGERS((vector)ROUNDER), half_n = n >> 1;
    const vector whole = shifted - ROUNDER;
    const vector s = ((high - whole * 0.693359375f) + whole * 2.12194440e-4f) + low;
    vector sum = s * 1.392625083e-3f + 8.363232884e-3f;
    sum = sum * s + 4.166655421e-2f;
    sum = sum * s + 1.666657667e-1f;
    sum = sum * s + 0.5f;
    sum = sum * (s * s) + s + 1.0f;
    return sum * AS_VECTOR((half_n + 127) << 23) * AS_VECTOR((n - half_n + 127) << 23);
}

/* exp(-t^2/2); the square of t's upper half is exact. */
static inline vector bell(vector t)
{
    const vector upper = AS_VECTOR(AS_INTEGERS(t) & (integers)0xfffff000);
    return exponential(upper * upper * -0.5f, (t - upper) * (t + upper) * -0.5f);
}

/* Q(t) / exp(-t^2/2). */
static inline vector tail_over_bell(vector t)
{
    const vector scale = 1.0f / (t + 4.0f), u = (t - 4.0f) * scale;
    vector sum = u * -1.255583856e-4f + 1.889965194e-4f;
    sum = sum * u + 1.566881688e-3f;
    sum = sum * u - 3.520972824e-3f;
    sum = sum * u - 7.525402418e-3f;
    sum = sum * u + 6.040618551e-2f;
    sum = sum * u - 1.865233068e-1f;
    sum = sum * u + 3.871366831e-1f;
    sum = sum * u - 6.078965941e-1f;
    sum = sum * u + 7.552851386e-1f;
    return sum * scale;
}

static inline vector tail(vector t)
{
    return bell(t) * tail_over_bell(t);
}
#elif UNARY > RELU
#define TAIL_END ((REAL)39)
#define EXP_END ((REAL)746)
#define TANH_END ((REAL)23)

static inline vector exponential(vector high, vector low)
{
    return exp(high + low);
}

static inline vector bell(vector t)
{
    return exp(t * t * -0.5);
}

static inline vector tail(vector t)
{
    return erfc(t * 0.70710678118654752440) * 0.5;
}
#endif

#if UNARY == RELU
static inline vector apply(vector x)
{
    return x < (vector)0 ? (vector)0 : x;
}

static inline vector gradient(vector x)
{
    return x > (vector)0 ? (vector)1 : (x <= (vector)0 ? (vector)0 : x);
}
#elif UNARY == GELU
static inline vector apply(vector x)
{
    const vector t = at_most(fabs(x), TAIL_END);
    return (x < (vector)0 ? (vector)0 : x) - t * tail(t);
}

/* f'(x) = P(x) + x p(x), P the normal distribution, p = exp(-x^2/2) / sqrt(2 pi) its density. */
static inline vector gradient(vector x)
{
    const vector t = at_most(fabs(x), TAIL_END);
    const vector small = t * bell(t) * (REAL)0.39894228040143267794 - tail(t);
    return x < (vector)0 ? -small : 1 + small;
}
#elif UNARY == SILU || UNARY == GELU_TANH
#define TANH_SCALE ((REAL)1.59576912160573071176) /* 2 sqrt(2/pi) */
#define TANH_CUBIC ((REAL)0.044715)

#if UNARY == SILU
#define X_END EXP_END
static inline vector argument(vector x) /* v */
{
    return x;
}

static inline vector slope(vector x) /* x dv/dx */
{
    return x;
}
#else
#define X_END TANH_END
static inline vector argument(vector x)
{
    return TANH_SCALE * x * (1 + TANH_CUBIC * x * x);
}

static inline vector slope(vector x)
{
    return TANH_SCALE * x * (1 + 3 * TANH_CUBIC * x * x);
}
#endif

/* With e = exp(-|v|): sigmoid(v) is 1 / (1 + e) for v >= 0 and e / (1 + e) below, and neither overflows. */
static inline vector apply(vector x)
{
    const vector t = at_most(fabs(x), X_END), e = exponential(-argument(t), (vector)0);
    return (x < (vector)0 ? -t * e : x) / (1 + e);
}

/* f'(x) = sigmoid(v) + x v'(x) sigmoid(v) (1 - sigmoid(v)). */
static inline vector gradient(vector x)
{
    const vector t = at_most(fabs(x), X_END), e = exponential(-argument(t), (vector)0);
    const vector upper = 1 / (1 + e), lower = e * upper, change = slope(t) * upper * lower;
    return x < (vector)0 ? lower - change : upper + change;
}
#endif

#endif
