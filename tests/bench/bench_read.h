/* bench_read.h: the yardstick of products that are bound by memory: reading alone. */
#ifndef TSR_TESTS_BENCH_READ_H
#define TSR_TESTS_BENCH_READ_H

#include <stddef.h>

/* Sums `count` parts of `bytes` bytes as floats, one after another, on `cores` threads that each take a range
 * of every part: 8 vector sums, and a prefetch 2 KiB ahead. Returns a number that
 * depends on all of them, so that no compiler leaves the loop out. */
float bench_read(const void *const *parts, int count, size_t bytes, int cores);

#endif
