/* vector.h: vectors of VECTOR elements of REAL, where VECTOR may be 1.
 *
 * Needs -DREAL=float|double -DVECTOR=1|2|4|8|16. Gives the type `vector`, VECTOR_OF(type), VLOAD(pointer) and
 * VSTORE(value, pointer), which ask no more of a pointer than an element's alignment, and JOIN(x, y). */
#ifndef VECTOR_H
#define VECTOR_H

#if !defined(REAL) || !defined(VECTOR)
#error "vector.h needs -DREAL=float|double -DVECTOR=1|2|4|8|16"
#endif

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
#define WIDE_float 0
#define WIDE_double 1
#define WIDE JOIN(WIDE_, REAL) /* REAL is double */

typedef VECTOR_OF(REAL) vector;

/* A whole vector of global memory, at any element, in one access: PoCL's vload and vstore are pairs of elements, which
 * its compiler does not always join. */
typedef vector loose_vector __attribute__((aligned(sizeof(REAL))));

static inline vector load_vector(global const REAL *from)
{
    return *(global const loose_vector *)from;
}

static inline void store_vector(vector value, global REAL *to)
{
    *(global loose_vector *)to = value;
}

/* The first count < VECTOR elements; the others are 0. */
static inline vector load_part(global const REAL *from, uint count)
{
    REAL line[VECTOR];
#pragma unroll
    for (uint i = 0; i < VECTOR; i++)
        line[i] = i < count ? from[i] : 0;
    return VLOAD(line);
}

static inline void store_part(vector value, global REAL *to, uint count)
{
    REAL line[VECTOR];
    VSTORE(value, line);
#pragma unroll
    for (uint i = 0; i < VECTOR; i++) /* constant, so that the line stays in registers */
        if (i < count)
            to[i] = line[i];
}

#endif
