/* bench_collective.c: the library's all-reduce on the ranks of one host beside MPI_Allreduce of the MPI that
 * it is built with, in one run: for each size the two alternate in batches, and what counts is the median of
 * the pairs' ratios of times. Memory is the group's, as a session's is.
 *
 *     mpiexec -n 2 bench_collective [--seconds S] [--bytes N] [--goal R] [--floor R] [--json]
 *
 * --goal, --floor: what the median over all sizes, and each size, has to reach. Exit code: 0 goals reached, 1
 * not reached or a wrong sum, 2 wrong usage. */
#include <mpi.h>

#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/mpi.h>

#include "base/memory.h"
#include "bench_time.h"
#include "comm/collective.h"

enum { EXIT_WRONG_USAGE = 2, PAIRS_MIN = 5, PAIRS_MAX = 101, SIZES_MAX = 16, TURNS_MAX = 1000 };

/* Batches are about this long: a rank that was not running when the other began spoils one turn, not all. */
static const double batch_seconds = 0.02;

typedef struct options {
  double seconds; /* per size */
  int64_t bytes;  /* 0 = all sizes */
  double goal, floor;
  bool json;
} options;

typedef struct result {
  int64_t bytes;
  double ours, theirs, ratio, low, high; /* seconds; theirs / ours: median, quartiles */
  int pairs;
} result;

typedef struct bench {
  int rank, size;
  tsr_context *context;
  tsr_group *group;
  int64_t bytes, count;
  float *in, *out, *mpi_in, *mpi_out;
  void *scratch;
  tsr_collective *collective;
  tsr_error error;
} bench;

typedef void one_turn(bench *bench);

static void stop(const bench *bench, const char *what) {
  printf("rank %d: %s: %s\n", bench->rank, what, bench->error.message);
  fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void need(const bench *bench, tsr_status status, const char *what) {
  if (status != TSR_OK) stop(bench, what);
}

/* ---- one size ---- */

/* Small integers: the sum is exact in any order. */
static float value(int rank, int64_t i) {
  return (float)((i * 7 + rank * 3) % 17);
}

static void *group_memory(bench *bench, size_t bytes) {
  void *memory = tsr_group_memory_create(bench->group, bench->rank, bytes);
  if (!memory) stop(bench, "no shared memory is left, or this host has none");
  return memory;
}

static void set_up(bench *bench, int64_t bytes) {
  tsr_collective_options wanted = {.kind = TSR_ALL_REDUCE, .member_count = bench->size};
  bench->bytes = bytes;
  bench->count = bytes / (int64_t)sizeof(float);
  wanted.counts = &bench->count;
  bench->in = group_memory(bench, (size_t)bytes);
  bench->out = group_memory(bench, (size_t)bytes);
  bench->scratch = group_memory(bench, tsr_collective_scratch_bytes(&wanted, bench->rank));
  bench->mpi_in = tsr_malloc_pages((size_t)bytes);
  bench->mpi_out = tsr_malloc_pages((size_t)bytes);
  if (!bench->mpi_in || !bench->mpi_out) stop(bench, "no memory");
  for (int64_t i = 0; i < bench->count; i++) bench->in[i] = bench->mpi_in[i] = value(bench->rank, i);
  need(bench,
       tsr_collective_create(bench->group, bench->rank, &wanted, bench->scratch, &bench->collective,
                             &bench->error),
       "tsr_collective_create");
}

static void clear(bench *bench) {
  tsr_collective_destroy(&bench->collective);
  tsr_group_memory_destroy(bench->group, bench->in);
  tsr_group_memory_destroy(bench->group, bench->out);
  tsr_group_memory_destroy(bench->group, bench->scratch);
  free(bench->mpi_in);
  free(bench->mpi_out);
}

static void run_ours(bench *bench) {
  need(bench, tsr_collective_start(bench->collective, bench->in, bench->out, &bench->error), "all-reduce");
  need(bench, tsr_collective_wait_all(bench->group, &bench->collective, 1, &bench->error), "all-reduce");
}

static void run_theirs(bench *bench) {
  MPI_Allreduce(bench->mpi_in, bench->mpi_out, (int)bench->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* The slowest rank's seconds per turn. Where ranks outnumber cores they leave a barrier late, one by one, and
 * those that are through take the core from the others: turns that do not count bring them together, and keep
 * them together until all have their time. */
static double time_batch(bench *bench, one_turn *run, int turns) {
  double seconds, slowest;
  MPI_Barrier(MPI_COMM_WORLD);
  run(bench);
  double began = now(CLOCK_MONOTONIC);
  for (int turn = 0; turn < turns; turn++) run(bench);
  seconds = (now(CLOCK_MONOTONIC) - began) / turns;
  run(bench);
  MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

static int choose_turns(bench *bench, one_turn *run) {
  int turns = 1;
  while (turns < TURNS_MAX && turns * time_batch(bench, run, turns) < batch_seconds) turns *= 2;
  return turns;
}

static bool is_right(const bench *bench) {
  for (int64_t i = 0; i < bench->count; i++) {
    float sum = 0;
    for (int rank = 0; rank < bench->size; rank++) sum += value(rank, i);
    if (bench->out[i] != sum || bench->mpi_out[i] != sum) return false;
  }
  return true;
}

static result measure(bench *bench, const options *o, int64_t bytes) {
  double ours[PAIRS_MAX], theirs[PAIRS_MAX], ratios[PAIRS_MAX];
  set_up(bench, bytes);
  int turns_ours = choose_turns(bench, run_ours), turns_theirs = choose_turns(bench, run_theirs), pairs = 0;
  double until = now(CLOCK_MONOTONIC) + o->seconds;
  for (int go_on = 1; go_on && pairs < PAIRS_MAX; pairs++) {
    bool first = pairs % 2 == 0;
    if (first) ours[pairs] = time_batch(bench, run_ours, turns_ours);
    theirs[pairs] = time_batch(bench, run_theirs, turns_theirs);
    if (!first) ours[pairs] = time_batch(bench, run_ours, turns_ours);
    ratios[pairs] = theirs[pairs] / ours[pairs];
    go_on = pairs + 1 < PAIRS_MIN || now(CLOCK_MONOTONIC) < until;
    MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  if (!is_right(bench)) stop(bench, "a wrong sum");
  result result = {.bytes = bytes, .pairs = pairs, .ratio = median(ratios, pairs)};
  result.low = ratios[pairs / 4];
  result.high = ratios[pairs - 1 - pairs / 4];
  result.ours = median(ours, pairs);
  result.theirs = median(theirs, pairs);
  clear(bench);
  return result;
}

/* ---- all sizes ---- */

static void print_result(const result *r) {
  printf("%8lld KiB  %10.1f us  %10.1f us  %6.2f  (%.2f .. %.2f, %d pairs)\n", (long long)(r->bytes >> 10),
         1e6 * r->ours, 1e6 * r->theirs, r->ratio, r->low, r->high, r->pairs);
  fflush(stdout);
}

static json_t *result_json(const result *r) {
  return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:i}", "bytes", (json_int_t)r->bytes, "seconds", r->ours,
                   "mpi_seconds", r->theirs, "ratio", r->ratio, "ratio_low", r->low, "ratio_high", r->high,
                   "pairs", r->pairs);
}

static void print_document(const bench *bench, const result *results, int count, double middle,
                           double lowest) {
  json_t *list = json_array();
  for (int i = 0; i < count; i++) json_array_append_new(list, result_json(&results[i]));
  json_t *all = json_pack("{s:s, s:i, s:o, s:f, s:f}", "benchmark", "collective", "ranks", bench->size,
                          "results", list, "ratio_median", middle, "ratio_lowest", lowest);
  json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
  printf("\n");
  json_decref(all);
}

static int run_all(bench *bench, const options *o) {
  result results[SIZES_MAX];
  double ratios[SIZES_MAX];
  int count = 0;
  bool talks = bench->rank == 0 && !o->json;
  if (talks)
    printf("all-reduce of f32 on %d ranks: ours, MPI_Allreduce, how many times as fast\n", bench->size);
  for (int64_t bytes = 16 << 10; bytes <= 64 << 20; bytes *= 4) {
    if (o->bytes && bytes != 16 << 10) break;
    results[count] = measure(bench, o, o->bytes ? o->bytes : bytes);
    ratios[count] = results[count].ratio;
    if (talks) print_result(&results[count]);
    count++;
  }
  double middle = median(ratios, count), lowest = ratios[0];
  if (talks) printf("median %.2f (goal %.2f), lowest %.2f (goal %.2f)\n", middle, o->goal, lowest, o->floor);
  if (bench->rank == 0 && o->json) print_document(bench, results, count, middle, lowest);
  return middle < o->goal || lowest < o->floor;
}

static bool read_options(int argc, char **argv, options *o) {
  static const struct option names[] = {
      {"seconds", required_argument, NULL, 's'}, {"bytes", required_argument, NULL, 'b'},
      {"goal", required_argument, NULL, 'g'},    {"floor", required_argument, NULL, 'f'},
      {"json", no_argument, NULL, 'j'},          {0}};
  *o = (options){.seconds = 2, .goal = 1.0, .floor = 0.9};
  for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) switch (c) {
    case 's': o->seconds = atof(optarg); break;
    case 'b': o->bytes = atoll(optarg); break;
    case 'g': o->goal = atof(optarg); break;
    case 'f': o->floor = atof(optarg); break;
    case 'j': o->json = true; break;
    default: return false;
    }
  bool fits = o->bytes >= 0 && o->bytes % (int64_t)sizeof(float) == 0 && o->bytes <= (int64_t)1 << 32;
  return fits && optind == argc;
}

int main(int argc, char **argv) {
  bench bench = {0};
  options options;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &bench.size);
  if (!read_options(argc, argv, &options)) {
    if (bench.rank == 0) fprintf(stderr, "usage: see the first lines of bench_collective.c\n");
    MPI_Finalize();
    return EXIT_WRONG_USAGE;
  }
  need(&bench, tsr_context_create(TSR_CONTEXT_OPTIONS(.cache_folder = ""), &bench.context, &bench.error),
       "tsr_context_create");
  need(&bench, tsr_group_create_mpi(bench.context, MPI_COMM_WORLD, NULL, &bench.group, &bench.error),
       "tsr_group_create_mpi");
  int code = run_all(&bench, &options);
  tsr_group_destroy(&bench.group);
  tsr_context_destroy(&bench.context);
  MPI_Finalize();
  return code;
}
