/* tests/mpi/test_distributed.c: distributed products over MPI as a program with MPI_THREAD_SINGLE makes them:
 * on the whole communicator, on one whose ranks are in another order, on two halves at the same time; what
 * one rank gets wrong, all are told alike. Run with mpiexec -n 1, 2, 3, 4, 7. Every rank knows all data. */
#include <mpi.h>

#include <tessera/mpi.h>

#include "distributed_support.h"

static int world_rank, world_size;
static tsr_device *device;

typedef struct problem {
  MPI_Comm communicator;
  tsr_group *group;
  int rank, size;
  int64_t m, n, k;
  double alpha, beta;
  tsr_distributed_gemm_options options;
  spread_matrix a, b, c;
  double *expected;
} problem;

static void open_problem(problem *p, MPI_Comm communicator, int64_t m, int64_t n, int64_t k, int turn) {
  *p = (problem){.communicator = communicator, .m = m, .n = n, .k = k, .alpha = 2, .beta = turn % 2 ? -1 : 0};
  MPI_Comm_rank(communicator, &p->rank);
  MPI_Comm_size(communicator, &p->size);
  exec_ok(tsr_group_create_mpi(exec_context, communicator, NULL, &p->group, &exec_error));
  tsr_distributed_gemm_options_init(&p->options);
  p->options.dtype = turn % 3 ? TSR_F32 : TSR_F64;
  p->options.transpose_a = turn & 2;
  p->options.transpose_b = turn & 4;
  p->options.message_bytes = turn % 5 ? 0 : 4096;
  bool ta = p->options.transpose_a, tb = p->options.transpose_b;
  exec_seed((uint64_t)turn);
  spread_init(&p->a, ta ? k : m, ta ? m : k, p->options.dtype, p->size, (spread)exec_between(0, SPREADS - 1),
              3);
  spread_init(&p->b, tb ? n : k, tb ? k : n, p->options.dtype, p->size, (spread)exec_between(0, SPREADS - 1),
              3);
  spread_init(&p->c, m, n, p->options.dtype, p->size, (spread)exec_between(0, SPREADS_OF_C - 1), 3);
  p->expected = calloc((size_t)(m * n) + 1, sizeof *p->expected);
  for (int64_t i = 0; i < m; i++)
    for (int64_t l = 0; l < k; l++)
      for (int64_t j = 0; j < n; j++)
        p->expected[i * n + j] +=
            p->alpha * p->a.whole[ta ? l * m + i : i * k + l] * p->b.whole[tb ? j * k + l : l * n + j];
  for (int64_t i = 0; i < m * n; i++) p->expected[i] += p->beta * p->c.whole[i];
  if (p->beta == 0) spread_poison(&p->c);
}

static void close_problem(problem *p) {
  spread_finish(&p->a);
  spread_finish(&p->b);
  spread_finish(&p->c);
  free(p->expected);
  tsr_group_destroy(&p->group);
}

static tsr_status create(problem *p, tsr_distributed_gemm **out) {
  return tsr_distributed_gemm_create(p->group, &device, 1, p->m, p->n, p->k, p->alpha, p->beta,
                                     &p->a.parts[p->rank], &p->b.parts[p->rank], &p->c.parts[p->rank],
                                     &p->options, out, &exec_error);
}

static tsr_status run(problem *p, tsr_distributed_gemm *gemm) {
  return tsr_distributed_gemm_run(gemm, &p->a.parts[p->rank], &p->b.parts[p->rank], &p->c.parts[p->rank],
                                  &exec_error);
}

/* Of C, this rank's blocks only are computed here. */
static void expect_own(const problem *p) {
  spread_matrix own = p->c;
  own.members = 1;
  own.parts[0] = p->c.parts[p->rank];
  own.memory[0] = p->c.memory[p->rank];
  own.before[0] = p->c.before[p->rank];
  own.bytes[0] = p->c.bytes[p->rank];
  spread_expect(&own, p->expected, NULL, "C");
}

static void multiply(MPI_Comm communicator, int64_t m, int64_t n, int64_t k, int turn) {
  problem p;
  tsr_distributed_gemm *gemm;
  open_problem(&p, communicator, m, n, k, turn);
  exec_ok(create(&p, &gemm));
  exec_ok(run(&p, gemm));
  expect_own(&p);
  if (p.beta == 0) {
    exec_ok(run(&p, gemm));
    expect_own(&p);
  }
  tsr_distributed_gemm_destroy(&gemm);
  close_problem(&p);
}

static void products(void **state) {
  (void)state;
  for (int turn = 0; turn < 30; turn++) multiply(MPI_COMM_WORLD, 40 + turn, 57, 33 + 9 * (turn % 4), turn);
  for (int turn = 0; turn < 2; turn++) multiply(MPI_COMM_WORLD, 500, 300, 400, turn); /* several messages */
}

/* Ranks in another order, the last one left out. */
static void reversed(void **state) {
  (void)state;
  MPI_Comm communicator;
  bool is_out = world_size > 1 && world_rank == world_size - 1;
  MPI_Comm_split(MPI_COMM_WORLD, is_out ? MPI_UNDEFINED : 0, -world_rank, &communicator);
  if (is_out) return;
  for (int turn = 0; turn < 10; turn++) multiply(communicator, 31, 45, 64, 100 + turn);
  MPI_Comm_free(&communicator);
}

/* Two communicators, each with products of its own. */
static void halves(void **state) {
  (void)state;
  MPI_Comm communicator;
  MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &communicator);
  for (int turn = 0; turn < 10; turn++)
    multiply(communicator, 31 + 5 * (world_rank % 2), 45, 64, 200 + turn + 50 * (world_rank % 2));
  MPI_Comm_free(&communicator);
}

static void refused(problem *p, const char *words) {
  tsr_distributed_gemm *gemm = NULL;
  exec_refused(create(p, &gemm), TSR_ERROR_INVALID_ARGUMENT, words);
  assert_null(gemm);
  char first[TSR_ERROR_MESSAGE_BYTES];
  memcpy(first, exec_error.message, sizeof first);
  MPI_Bcast(first, sizeof first, MPI_CHAR, 0, p->communicator);
  assert_string_equal(first, exec_error.message);
}

/* One rank says something else than rank 0: the error names it, everywhere. */
static void ranks_differ(void **state) {
  (void)state;
  if (world_size < 2) return;
  problem p;
  int last = world_size - 1;
  bool is_last = world_rank == last;
  char words[96];
  open_problem(&p, MPI_COMM_WORLD, 20, 22, 24, 7);
  const problem good = p;

  if (is_last) p.alpha = 2.5;
  snprintf(words, sizeof words, "rank %d: alpha is 2.5, on rank 0 it is 2: all", last);
  refused(&p, words);
  p.alpha = 2;
  if (is_last) p.options.transpose_a = !p.options.transpose_a, p.a.parts[last].block_count = 0;
  snprintf(words, sizeof words, "rank %d: transpose_a is ", last);
  refused(&p, words);
  p = good;
  if (is_last) p.n = 23;
  snprintf(words, sizeof words, "rank %d: ", last);
  refused(&p, words);
  p = good;
  if (is_last) p.options.dtype = TSR_I8;
  snprintf(words, sizeof words, "rank %d: dtype is i8", last);
  refused(&p, words);
  p = good;
  if (is_last) p.options.struct_size = 1;
  snprintf(words, sizeof words, "rank %d: tsr_distributed_gemm_options.struct_size is 1", last);
  refused(&p, words);
  p = good;
  p.a.parts[p.rank].block_count = 0;
  refused(&p, "rank 0: nobody has element (0, 0) of A");
  p = good;

  tsr_distributed_gemm *gemm;
  exec_ok(create(&p, &gemm));
  if (is_last) p.b.parts[last].block_count = -1;
  snprintf(words, sizeof words, "rank %d: -1 blocks of B", last);
  exec_refused(run(&p, gemm), TSR_ERROR_INVALID_ARGUMENT, words);
  p.b = good.b;
  exec_ok(run(&p, gemm)); /* an argument that was refused did no harm */
  expect_own(&p);
  tsr_distributed_gemm_destroy(&gemm);
  close_problem(&p);
}

/* A device that fails in a run: its rank says so, nobody waits for it, and the product is of no use any more.
 */
static tsr_status failing_gemm(tsr_device *own, const tsr_gemm_call *call, tsr_error *error) {
  (void)own, (void)call;
  return tsr_fail(error, TSR_ERROR_DEVICE, "the device fell off the bus");
}

static void device_fails(void **state) {
  (void)state;
  problem p;
  tsr_distributed_gemm *gemm;
  open_problem(&p, MPI_COMM_WORLD, 64, 64, 64, 8);
  exec_ok(create(&p, &gemm));
  const tsr_device_ops *real = device->ops;
  tsr_device_ops ops = *real;
  ops.gemm = failing_gemm;
  if (gemm->plan->decision.active[0] == p.rank) device->ops = &ops;
  tsr_status status = run(&p, gemm);
  assert_int_equal(status, gemm->plan->decision.active[0] == p.rank ? TSR_ERROR_DEVICE : TSR_ERROR_RANK_LOST);
  device->ops = real;
  exec_refused(run(&p, gemm), TSR_ERROR_POISONED, "an earlier run failed");
  tsr_distributed_gemm_destroy(&gemm);
  close_problem(&p);
}

int main(int argc, char **argv) {
  int granted, failures, all = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &granted);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  if (world_size > EXEC_MEMBERS_MAX || exec_begin(NULL) ||
      tsr_device_open(exec_context, "host", NULL, &device, &exec_error) != TSR_OK)
    MPI_Abort(MPI_COMM_WORLD, 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products),     cmocka_unit_test(reversed),     cmocka_unit_test(halves),
      cmocka_unit_test(ranks_differ), cmocka_unit_test(device_fails),
  };
  failures = cmocka_run_group_tests(tests, NULL, NULL);
  tsr_device_close(&device);
  exec_end(NULL);
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return all != 0;
}
