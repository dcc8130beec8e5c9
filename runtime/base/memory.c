#include "base/memory.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

/* The one piece of process-wide state, for tests alone: it is never set otherwise. */
static _Atomic int64_t countdown = -1;

static bool must_fail(void) {
  return countdown >= 0 && countdown-- == 0;
}

void tsr_memory_fail_after(int64_t after) {
  countdown = after;
}

void *tsr_malloc(size_t bytes) {
  return must_fail() ? NULL : malloc(bytes ? bytes : 1);
}

void *tsr_calloc(size_t count, size_t size) {
  return must_fail() ? NULL : calloc(count ? count : 1, size ? size : 1);
}

void *tsr_realloc(void *pointer, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || must_fail()) return NULL;
  return realloc(pointer, bytes ? bytes : 1);
}

void *tsr_malloc_pages(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (bytes > SIZE_MAX - page || must_fail()) return NULL;
  return aligned_alloc(page, bytes ? (bytes + page - 1) / page * page : page);
}

/* An operating system without huge pages refuses the advice, or has none to give: no harm. */
void *tsr_malloc_huge(size_t bytes) {
  void *pointer = NULL;
  if (must_fail() || posix_memalign(&pointer, (size_t)2 << 20, bytes ? bytes : 1)) return NULL;
#ifdef MADV_HUGEPAGE
  (void)madvise(pointer, bytes, MADV_HUGEPAGE);
#endif
  return pointer;
}

bool tsr_grow_bytes(void **items, size_t count, size_t *capacity, size_t size) {
  if (count < *capacity) return true;
  size_t larger = *capacity ? 2 * *capacity : 8;
  void *moved = tsr_realloc(*items, larger, size);
  if (!moved) return false;
  *items = moved;
  *capacity = larger;
  return true;
}

bool tsr_multiply_fits(int64_t a, int64_t b, int64_t *product) {
  return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, product);
}
