/* base/memory.h: allocation. One place, so that tests can make any allocation fail. */
#ifndef TSR_BASE_MEMORY_H
#define TSR_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* As malloc, calloc and realloc; products that overflow give NULL; a size of 0 gives one byte. Release with
 * free(). */
void *tsr_malloc(size_t bytes);
void *tsr_calloc(size_t count, size_t size);
void *tsr_realloc(void *pointer, size_t count, size_t size);
/* Page-aligned (what MPI and OpenCL like to be given); contents undefined. Release with free(). */
void *tsr_malloc_pages(size_t bytes);

/* The same in huge pages of 2 MiB where the kernel has them, so that walking over it misses the TLB less
 * often. */
void *tsr_malloc_huge(size_t bytes);

/* Makes room for one more element in an array that grows by doubling; false if there is no memory. */
bool tsr_grow_bytes(void **items, size_t count, size_t *capacity, size_t size);
#define TSR_GROW(items, count, capacity)                                                                     \
  tsr_grow_bytes((void **)&(items), count, &(capacity), sizeof *(items))

/* Tests: the allocation after `countdown` more fails, once; -1 = none fails. */
void tsr_memory_fail_after(int64_t countdown);

/* a / b, rounded up; a >= 0, b > 0. */
static inline int64_t tsr_ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/* *product = a * b of numbers >= 0; false if it does not fit. */
bool tsr_multiply_fits(int64_t a, int64_t b, int64_t *product);

#endif
