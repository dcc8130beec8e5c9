/* io/npy.h: NumPy's format of one array.
 *
 *   6 bytes   "\x93NUMPY"
 *   2 bytes   version: 1.0, 2.0 or 3.0
 *   2 bytes   (version 1) or 4: length N of the header, little-endian
 *   N bytes   a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, spaces, a
 * newline the rest  the elements
 *
 * Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#ifndef TSR_IO_NPY_H
#define TSR_IO_NPY_H

#include "io/tensor_file.h"

/* Fills the one tensor of a mapped file. Errors: FORMAT, UNSUPPORTED (Fortran order, another dtype),
 * OUT_OF_MEMORY; without the path. */
tsr_status tsr_npy_parse(tsr_tensor_file *file, tsr_error *error);

#endif
