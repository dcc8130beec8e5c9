/* bench_time.h: clocks and medians of the benchmarks. */
#ifndef TSR_TESTS_BENCH_TIME_H
#define TSR_TESTS_BENCH_TIME_H

#include <stdlib.h>
#include <time.h>

static inline double now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static inline int compare_numbers(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static inline double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, compare_numbers);
  return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

#endif
