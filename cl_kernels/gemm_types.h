/* gemm_types.h: element types of A and B, and their widening to REAL.
 *
 *     A_TYPE, B_TYPE   stored as         value
 *     F32, F64         float, double     itself
 *     F16              half              IEEE binary16, read by vload_half: no extension is needed
 *     BF16             ushort            the upper half of a float
 *     I8               char              an integer; gemm_epilogue.h applies the factor of its column
 *
 * Needs vector.h, -DA_TYPE and -DB_TYPE. Gives the types a_element and b_element, A_NARROW and B_NARROW (0 or 1),
 * and for a pointer into any address space WIDEN(type, pointer), one element as REAL, and WIDEN_VECTOR(type, pointer),
 * VECTOR elements. */
#ifndef GEMM_TYPES_H
#define GEMM_TYPES_H

#if !defined(A_TYPE) || !defined(B_TYPE)
#error "gemm_types.h needs -DA_TYPE=F32|F64|F16|BF16 -DB_TYPE=F32|F64|F16|BF16|I8"
#endif

#define ELEMENT_F32 float
#define ELEMENT_F64 double
#define ELEMENT_F16 half
#define ELEMENT_BF16 ushort
#define ELEMENT_I8 char
typedef JOIN(ELEMENT_, A_TYPE) a_element;
typedef JOIN(ELEMENT_, B_TYPE) b_element;

#define NARROW_F32 0
#define NARROW_F64 0
#define NARROW_F16 1
#define NARROW_BF16 1
#define NARROW_I8 1
#define A_NARROW JOIN(NARROW_, A_TYPE)
#define B_NARROW JOIN(NARROW_, B_TYPE)

#define WIDEN_F32(pointer) (*(pointer))
#define WIDEN_F64(pointer) (*(pointer))
#define WIDEN_F16(pointer) vload_half(0, pointer)
#define WIDEN_BF16(pointer) as_float((uint)*(pointer) << 16)
#define WIDEN_I8(pointer) ((REAL)*(pointer))
#define WIDEN(type, pointer) JOIN(WIDEN_, type)(pointer)

#if VECTOR == 1
#define WIDEN_VECTOR(type, pointer) WIDEN(type, pointer)
#else
#define WIDEN_VECTOR_F32(pointer) VLOAD(pointer)
#define WIDEN_VECTOR_F64(pointer) VLOAD(pointer)
#define WIDEN_VECTOR_F16(pointer) JOIN(vload_half, VECTOR)(0, pointer)
#define WIDEN_VECTOR_BF16(pointer) VECTOR_OF(as_float)(VECTOR_OF(convert_uint)(VLOAD(pointer)) << 16)
#define WIDEN_VECTOR_I8(pointer) VECTOR_OF(convert_float)(VLOAD(pointer))
#define WIDEN_VECTOR(type, pointer) JOIN(WIDEN_VECTOR_, type)(pointer)
#endif

#endif
