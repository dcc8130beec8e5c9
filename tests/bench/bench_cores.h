/* bench_cores.h: a process that owns a given number of cores, PoCL and OpenBLAS alike. */
#ifndef TSR_TESTS_BENCH_CORES_H
#define TSR_TESTS_BENCH_CORES_H

/* Binds the process to the first `cores` of the cores that it may use, and starts the program again, because
 * both libraries read their environment while they are loaded; returns in the second start alone. Exits with
 * 77 (skipped) where there are fewer cores. What the user set in the environment stays. */
void bench_cores_take(int cores, char **argv);

#endif
