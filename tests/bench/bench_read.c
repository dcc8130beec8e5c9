/* bench_read.c: a loop of additions in the compiler's own vectors. */
#include "bench_read.h"

#include <pthread.h>
#include <string.h>

enum { CORES_MAX = 256, SUMS = 8, WIDTH = 8, LINE = 64, AHEAD = 2048 };

typedef float vector __attribute__((vector_size(WIDTH * sizeof(float))));

typedef struct work {
  const void *const *parts;
  int count, core, cores;
  size_t bytes;
  float sum;
} work;

#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
static float
sum_range(const char *from, const char *to) {
  vector sums[SUMS] = {{0}};
  for (; from + SUMS * sizeof(vector) <= to; from += SUMS * sizeof(vector))
    for (int i = 0; i < SUMS; i++) {
      vector value;
      if (i * sizeof(vector) % LINE == 0) __builtin_prefetch(from + AHEAD + (size_t)i * sizeof(vector));
      memcpy(&value, from + (size_t)i * sizeof value, sizeof value);
      sums[i] += value;
    }
  float sum = 0;
  for (int i = 0; i < SUMS; i++) sum += sums[i][0] + sums[i][WIDTH - 1];
  return sum;
}

static void *run(void *argument) {
  work *work = argument;
  const size_t core = (size_t)work->core, cores = (size_t)work->cores;
  for (int i = 0; i < work->count; i++) {
    const char *part = work->parts[i];
    work->sum += sum_range(part + work->bytes / LINE * core / cores * LINE,
                           part + work->bytes / LINE * (core + 1) / cores * LINE);
  }
  return NULL;
}

float bench_read(const void *const *parts, int count, size_t bytes, int cores) {
  float sum = 0;
  work works[CORES_MAX];
  pthread_t threads[CORES_MAX];
  cores = cores < 1 ? 1 : cores > CORES_MAX ? CORES_MAX : cores;
  for (int i = 0; i < cores; i++) works[i] = (work){parts, count, i, cores, bytes, 0};
  int started = 1;
  while (started < cores && pthread_create(&threads[started], NULL, run, &works[started]) == 0) started++;
  run(&works[0]);
  for (int i = 1; i < started; i++) pthread_join(threads[i], NULL);
  for (int i = started; i < cores; i++) run(&works[i]);
  for (int i = 0; i < cores; i++) sum += works[i].sum;
  return sum;
}
