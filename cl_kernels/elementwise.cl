/* elementwise: out[r,c] = an operation on a[r,c] and b[r,c], for r < rows, c < cols.
 *
 *     OPERATION        out
 *     ADD              alpha * a + beta * b
 *     MULTIPLY         a * b
 *     SCALE            alpha * a
 *     APPLY            f(a)
 *     APPLY_GRADIENT   f'(a) * b
 *     BIAS_APPLY       f(a + b)
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
 * Memory: an operand is a view, element (r,c) of which lies at
 *
 *     PANEL = 0 (row-major)    offset + r * row_stride + c * column_stride
 *     PANEL = W (panels)       offset + (c / W) * panel_stride + r * row_stride + (c % W) * column_stride
 *
 * column_stride is 1, or 0 where the operand is broadcast over the columns; row_stride is 0 where it is broadcast
 * over the rows. Everything counts elements. out may be a or b, at the same place.
 *
 * Launch: 2 dimensions, global size (ceil(cols / block_columns), ceil(rows / block_rows)) or more. A work-item
 * does a block, VECTOR columns at a time. CPU: VECTOR = the vector registers, blocks of some thousands of elements.
 * GPU: blocks of one vector, so that neighbours read neighbouring memory.
 *
 * Limits: VECTOR divides every panel width that is not 0, and block_columns. OpenCL 1.2; double needs the device to
 * have it. Not for -cl-fast-relaxed-math or -cl-finite-math-only, which lose NaN. */

#if !defined(REAL) || !defined(VECTOR) || !defined(OPERATION) || !defined(UNARY)
#error "map needs -DREAL=float|double -DVECTOR=1|2|4|8|16 -DOPERATION=ADD|MULTIPLY|... -DUNARY=NONE|RELU|..."
#endif
#if !defined(A_PANEL) || !defined(B_PANEL) || !defined(OUT_PANEL)
#error "map needs -DA_PANEL=0|W -DB_PANEL=0|W -DOUT_PANEL=0|W"
#endif

/* Numbers for the preprocessor. */
#define ADD 1
#define MULTIPLY 2
#define SCALE 3
#define APPLY 4
#define APPLY_GRADIENT 5
#define BIAS_APPLY 6
#define NONE 0
#define RELU 1
#define GELU 2
#define GELU_TANH 3
#define SILU 4
#define WIDE_float 0
#define WIDE_double 1

#define PASTE(x, y) x##y
#define JOIN(x, y) PASTE(x, y)
#if VECTOR == 1
#define VECTOR_OF(type) type
#define VLOAD(pointer) (*(pointer))
#define VSTORE(value, pointer) (*(pointer) = (value))
#else
#define VECTOR_OF(type) JOIN(type, VECTOR)
#define VLOAD(pointer) JOIN(vload, VECTOR)(0, pointer)
#define VSTORE(value, pointer) JOIN(vstore, VECTOR)(value, 0, pointer)
#endif
#define WIDE JOIN(WIDE_, REAL)

#if OPERATION < ADD || OPERATION > BIAS_APPLY
#error "OPERATION is none of ADD, MULTIPLY, SCALE, APPLY, APPLY_GRADIENT, BIAS_APPLY"
#endif
#if OPERATION >= APPLY && (UNARY < RELU || UNARY > SILU)
#error "UNARY is none of RELU, GELU, GELU_TANH, SILU"
#endif
#if (A_PANEL % VECTOR) || (B_PANEL % VECTOR) || (OUT_PANEL % VECTOR)
#error "VECTOR does not divide a panel width"
#endif

typedef VECTOR_OF(REAL) vector;

/* A comparison keeps NaN where fmin and fmax would drop it. */
static vector at_most(vector x, REAL limit)
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
static vector exponential(vector high, vector low)
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
static vector bell(vector t)
{
    const vector upper = AS_VECTOR(AS_INTEGERS(t) & (integers)0xfffff000);
    return exponential(upper * upper * -0.5f, (t - upper) * (t + upper) * -0.5f);
}

/* Q(t) / exp(-t^2/2). */
static vector tail_over_bell(vector t)
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

static vector tail(vector t)
{
    return bell(t) * tail_over_bell(t);
}
#elif UNARY > RELU
#define TAIL_END ((REAL)39)
#define EXP_END ((REAL)746)
#define TANH_END ((REAL)23)

static vector exponential(vector high, vector low)
{
    return exp(high + low);
}

static vector bell(vector t)
{
    return exp(t * t * -0.5);
}

static vector tail(vector t)
{
    return erfc(t * 0.70710678118654752440) * 0.5;
}
#endif

#if UNARY == RELU
static vector apply(vector x)
{
    return x < (vector)0 ? (vector)0 : x;
}

static vector gradient(vector x)
{
    return x > (vector)0 ? (vector)1 : (x <= (vector)0 ? (vector)0 : x);
}
#elif UNARY == GELU
static vector apply(vector x)
{
    const vector t = at_most(fabs(x), TAIL_END);
    return (x < (vector)0 ? (vector)0 : x) - t * tail(t);
}

/* f'(x) = P(x) + x p(x), P the normal distribution, p = exp(-x^2/2) / sqrt(2 pi) its density. */
static vector gradient(vector x)
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
static vector argument(vector x) /* v */
{
    return x;
}

static vector slope(vector x) /* x dv/dx */
{
    return x;
}
#else
#define X_END TANH_END
static vector argument(vector x)
{
    return TANH_SCALE * x * (1 + TANH_CUBIC * x * x);
}

static vector slope(vector x)
{
    return TANH_SCALE * x * (1 + 3 * TANH_CUBIC * x * x);
}
#endif

/* With e = exp(-|v|): sigmoid(v) is 1 / (1 + e) for v >= 0 and e / (1 + e) below, and neither overflows. */
static vector apply(vector x)
{
    const vector t = at_most(fabs(x), X_END), e = exponential(-argument(t), (vector)0);
    return (x < (vector)0 ? -t * e : x) / (1 + e);
}

/* f'(x) = sigmoid(v) + x v'(x) sigmoid(v) (1 - sigmoid(v)). */
static vector gradient(vector x)
{
    const vector t = at_most(fabs(x), X_END), e = exponential(-argument(t), (vector)0);
    const vector upper = 1 / (1 + e), lower = e * upper, change = slope(t) * upper * lower;
    return x < (vector)0 ? lower - change : upper + change;
}
#endif

static vector operate(vector a, vector b, REAL alpha, REAL beta)
{
#if OPERATION == ADD
    return alpha * a + beta * b;
#elif OPERATION == MULTIPLY
    return a * b;
#elif OPERATION == SCALE
    return alpha * a;
#elif OPERATION == APPLY
    return apply(a);
#elif OPERATION == APPLY_GRADIENT
    return gradient(a) * b;
#else
    return apply(a + b);
#endif
}

#define HAS_B (OPERATION != SCALE && OPERATION != APPLY)

/* Where (row, column) lies, column a multiple of VECTOR. */
#define ELEMENT(panel, row, column, row_stride, column_stride, panel_stride)                                    \
    ((row) * (row_stride) + ((panel) ? (column) / (panel ? panel : 1) * (panel_stride) +                        \
                                           (column) % (panel ? panel : 1) * (column_stride)                     \
                                     : (column) * (column_stride)))

static vector load(global const REAL *from, ulong column_stride)
{
    return column_stride ? VLOAD(from) : (vector)*from;
}

/* The first count < VECTOR elements; the others are 0. */
static vector load_part(global const REAL *from, ulong column_stride, uint count)
{
    REAL line[VECTOR];
    for (uint i = 0; i < VECTOR; i++)
        line[i] = i < count ? from[i * column_stride] : 0;
    return VLOAD(line);
}

static void store_part(vector value, global REAL *to, uint count)
{
    REAL line[VECTOR];
    VSTORE(value, line);
    for (uint i = 0; i < count; i++)
        to[i] = line[i];
}

kernel void map(ulong rows, ulong cols, ulong block_rows, ulong block_columns, REAL alpha, REAL beta,
                global const REAL *a, ulong a_offset, ulong a_row_stride, ulong a_column_stride, ulong a_panel_stride,
                global const REAL *b, ulong b_offset, ulong b_row_stride, ulong b_column_stride, ulong b_panel_stride,
                global REAL *out, ulong out_offset, ulong out_row_stride, ulong out_panel_stride)
{
    const ulong first_row = get_global_id(1) * block_rows, last_row = min(first_row + block_rows, rows);
    const ulong first_column = get_global_id(0) * block_columns, last_column = min(first_column + block_columns, cols);
    a += a_offset;
    b += b_offset;
    out += out_offset;

    for (ulong r = first_row; r < last_row; r++) {
        ulong c = first_column;
        for (; c + VECTOR <= last_column; c += VECTOR) {
            const vector x = load(a + ELEMENT(A_PANEL, r, c, a_row_stride, a_column_stride, a_panel_stride),
                                  a_column_stride);
            vector y = 0;
            if (HAS_B)
                y = load(b + ELEMENT(B_PANEL, r, c, b_row_stride, b_column_stride, b_panel_stride), b_column_stride);
            VSTORE(operate(x, y, alpha, beta), out + ELEMENT(OUT_PANEL, r, c, out_row_stride, 1, out_panel_stride));
        }
        if (c < last_column) {
            const uint count = (uint)(last_column - c);
            const vector x = load_part(a + ELEMENT(A_PANEL, r, c, a_row_stride, a_column_stride, a_panel_stride),
                                       a_column_stride, count);
            vector y = 0;
            if (HAS_B)
                y = load_part(b + ELEMENT(B_PANEL, r, c, b_row_stride, b_column_stride, b_panel_stride),
                              b_column_stride, count);
            store_part(operate(x, y, alpha, beta),
                       out + ELEMENT(OUT_PANEL, r, c, out_row_stride, 1, out_panel_stride), count);
        }
    }
}
