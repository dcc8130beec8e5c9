/* conv: a convolution, or one of its gradients, element by element: right on every device, fast on none.
 *
 *     KIND = FORWARD   y[n,k,p,q] = f(sum over the c of k's group, r, s, of x[n,c,i,j] weight[k,c,r,s] + bias[k])
 *     KIND = INPUT     x[n,c,i,j] = sum over the k of c's group, r, s, and the p, q that read it, of y weight
 *     KIND = WEIGHT    weight[k,c,r,s] = sum over n, p, q of x y
 *     KIND = BIAS      bias[k] = sum over n, p, q of y[n,k,p,q]
 *
 *     i = p stride - padding + r dilation,  j likewise; x is 0 outside of its h x w
 *
 * Memory: images are rows of row-major matrices, NCHW: element (c,i,j) of image n of x at
 * x_offset + n x_ld + (c h + i) w + j, of y likewise with p and q; the window of output channel k and input channel c (of
 * its group) is r s elements of weight's row k from c r s on. groups groups of c input and k output channels.
 * Constants (-D): REAL, KIND, HAS_BIAS (FORWARD: 0 or 1), UNARY (FORWARD, see activation.h).
 * Launch: global size (ceil(elements of a line of the output / block), y, z), y * z >= lines; a line is a channel of an
 * image, an output channel of weight, or all of bias. A work-item does `block` elements. Sums are in REAL, in the order
 * above.
 * Limits: all extents > 0. OpenCL 1.2; double needs the device to have it. */

#define FORWARD 0
#define INPUT 1
#define WEIGHT 2
#define BIAS 3
#if !defined(REAL) || !defined(KIND) || !defined(HAS_BIAS) || !defined(UNARY)
#error "conv needs -DREAL=float|double -DKIND=FORWARD|INPUT|WEIGHT|BIAS -DHAS_BIAS=0|1 -DUNARY"
#endif

#define VECTOR 1
#include "vector.h"
#include "activation.h"
#include "conv_window.h"

kernel void conv(CONV_EXTENTS, ulong block,
                 global REAL *x, ulong x_offset, ulong x_ld,
                 global REAL *weight, ulong weight_offset, ulong weight_ld,
                 global REAL *y, ulong y_offset, ulong y_ld,
                 global REAL *bias, ulong bias_offset)
{
    const ulong line = get_global_id(2) * get_global_size(1) + get_global_id(1), first = get_global_id(0) * block;
    x += x_offset;
    weight += weight_offset;
    y += y_offset;
    bias += bias_offset;
#if KIND == FORWARD
    const ulong image = line / (groups * k), channel = line % (groups * k), last = min(first + block, p * q);
    if (image >= n)
        return;
    for (ulong at = first; at < last; at++) {
        REAL sum = 0;
        for (ulong c1 = 0; c1 < c; c1++)
            for (ulong r1 = 0; r1 < r; r1++)
                for (ulong s1 = 0; s1 < s; s1++) {
                    const long i = IMAGE_ROW((long)(at / q), (long)r1), j = IMAGE_COLUMN((long)(at % q), (long)s1);
                    if (i >= 0 && i < (long)h && j >= 0 && j < (long)w)
                        sum += x[image * x_ld + ((channel / k * c + c1) * h + (ulong)i) * w + (ulong)j] *
                               weight[channel * weight_ld + (c1 * r + r1) * s + s1];
                }
#if HAS_BIAS
        sum += bias[channel];
#endif
        y[image * y_ld + channel * p * q + at] = apply(sum);
    }
#elif KIND == INPUT
    const ulong image = line / (groups * c), channel = line % (groups * c), last = min(first + block, h * w);
    if (image >= n)
        return;
    for (ulong at = first; at < last; at++) {
        REAL sum = 0;
        for (ulong k1 = 0; k1 < k; k1++)
            for (ulong r1 = 0; r1 < r; r1++)
                for (ulong s1 = 0; s1 < s; s1++) {
                    const long p1 = PLACE_ROW((long)(at / w), (long)r1), q1 = PLACE_COLUMN((long)(at % w), (long)s1);
                    const ulong to = channel / c * k + k1;
                    if (p1 >= 0 && p1 < (long)p && q1 >= 0 && q1 < (long)q)
                        sum += y[image * y_ld + (to * p + (ulong)p1) * q + (ulong)q1] *
                               weight[to * weight_ld + (channel % c * r + r1) * s + s1];
                }
        x[image * x_ld + channel * h * w + at] = sum;
    }
#elif KIND == WEIGHT
    const ulong last = min(first + block, c * r * s);
    if (line >= groups * k)
        return;
    for (ulong at = first; at < last; at++) {
        REAL sum = 0;
        for (ulong image = 0; image < n; image++)
            for (ulong p1 = 0; p1 < p; p1++)
                for (ulong q1 = 0; q1 < q; q1++) {
                    const long i = IMAGE_ROW((long)p1, (long)(at / s % r)), j = IMAGE_COLUMN((long)q1, (long)(at % s));
                    if (i >= 0 && i < (long)h && j >= 0 && j < (long)w)
                        sum += x[image * x_ld + ((line / k * c + at / s / r) * h + (ulong)i) * w + (ulong)j] *
                               y[image * y_ld + (line * p + p1) * q + q1];
                }
        weight[line * weight_ld + at] = sum;
    }
#else
    const ulong last = min(first + block, groups * k);
    if (line)
        return;
    for (ulong channel = first; channel < last; channel++) {
        REAL sum = 0;
        for (ulong image = 0; image < n; image++)
            for (ulong at = 0; at < p * q; at++)
                sum += y[image * y_ld + channel * p * q + at];
        bias[channel] = sum;
    }
#endif
}
