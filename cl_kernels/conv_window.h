/* conv_window.h: how the window of a convolution lies on an image. For kernels of convolutions.
 *
 * CONV_EXTENTS are their first parameters: groups of c input and k output channels, n images of h x w and p x q,
 * windows of r x s. */
#ifndef CONV_WINDOW_H
#define CONV_WINDOW_H

#define CONV_EXTENTS                                                                                                \
    ulong groups, ulong n, ulong c, ulong h, ulong w, ulong k, ulong r, ulong s, ulong p, ulong q,                  \
        long stride_rows, long stride_columns, long padding_rows, long padding_columns, long dilation_rows,         \
        long dilation_columns

/* The row (column) of the image that element r (s) of the window at p (q) lies on. */
#define IMAGE_ROW(p, r) ((p) * stride_rows - padding_rows + (r) * dilation_rows)
#define IMAGE_COLUMN(q, s) ((q) * stride_columns - padding_columns + (s) * dilation_columns)

/* The p (q) at which element r (s) of the window lies on row i (column j); -1 = none. */
#define PLACE(at, stride) ((at) >= 0 && (at) % (stride) == 0 ? (at) / (stride) : -1)
#define PLACE_ROW(i, r) PLACE((i) + padding_rows - (r) * dilation_rows, stride_rows)
#define PLACE_COLUMN(j, s) PLACE((j) + padding_columns - (s) * dilation_columns, stride_columns)

#endif
