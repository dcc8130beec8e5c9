/* tests/mpi/test_mpi.c: collectives, agreement and the end of a group over MPI. Run with mpiexec -n 1, 2, 3,
 * 4, 7. Arguments: threads = MPI_Init_thread(MPI_THREAD_MULTIPLE); alone = the last rank can make no shared
 * memory, so MPI carries all; mixed = the ranks are on two hosts. Each rank prints its failures; the exit
 * code is the same on all: 0 = no rank failed. */
#include <mpi.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tessera/mpi.h>

#include "base/memory.h"
#include "collective_case.h"
#include "comm/shared_inside.h"

enum { RANKS_MAX = 64 };

static tsr_context *context;
static tsr_error error;
static int rank, size, failures, warnings;
static bool alone; /* MPI carries all */
static bool mixed; /* MPI carries some */

static void report(const char *where, int line, const char *text) {
  printf("rank %d of %d, %s:%d: %s\n", rank, size, where, line, text);
  fflush(stdout);
  failures++;
}
#define CHECK(condition)                                                                                     \
  do {                                                                                                       \
    if (!(condition)) report(__func__, __LINE__, #condition);                                                \
  } while (0)
#define CHECK_OK(call)                                                                                       \
  do {                                                                                                       \
    if ((call) != TSR_OK) report(__func__, __LINE__, error.message);                                         \
  } while (0)

static tsr_group *make_group(MPI_Comm communicator, double deadline_seconds) {
  tsr_group *group = NULL;
  tsr_group_options *options = TSR_GROUP_OPTIONS(.deadline_seconds = deadline_seconds);
  if (tsr_group_create_mpi(context, communicator, options, &group, &error) != TSR_OK) {
    report(__func__, __LINE__, error.message);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return group;
}

/* ---- collectives ---- */

static void run_case(tsr_group *group, const collective_case *test, int index) {
  case_member member;
  int me = tsr_group_local_member(group, 0);
  uint64_t before = tsr_group_bytes_sent(group, me);
  if (!case_member_setup(group, test, index, &member, &error)) report(__func__, __LINE__, error.message);
  for (int turn = 0; turn < 2; turn++) {
    case_member_fill(&member, test);
    CHECK_OK(case_member_start(&member, test, &error));
    CHECK_OK(tsr_collective_wait_all(group, &member.collective, 1, &error));
    const char *wrong = case_member_check(&member, test);
    if (wrong) report(__func__, __LINE__, wrong);
  }
  CHECK(tsr_group_bytes_sent(group, me) - before == 2 * tsr_collective_sent_bytes(&test->options, index));
  case_member_release(&member);
}

static void run_kinds(tsr_group *group, const int *subset, int count, int index) {
  int64_t counts[RANKS_MAX];
  for (int pattern = 0; pattern < COUNT_PATTERNS; pattern++)
    for (int way = 0; way < 64; way++) {
      case_counts(pattern, count, counts);
      collective_case test = {.options = {.kind = (tsr_collective_kind)(way % 4),
                                          .dtype = way & 4 ? TSR_F64 : TSR_F32,
                                          .reduction = way & 8 ? TSR_MAX : TSR_SUM,
                                          .root = count / 2,
                                          .counts = counts,
                                          .members = subset,
                                          .member_count = count},
                              .in_place = way & 16,
                              .ordered = way & 32};
      run_case(group, &test, index);
    }
}

static void every_kind(void) {
  tsr_group *group = make_group(MPI_COMM_WORLD, 20);
  CHECK(!strcmp(tsr_group_transport(group), "mpi"));
  CHECK(tsr_group_member_count(group) == size && tsr_group_local_count(group) == 1);
  CHECK(tsr_group_local_member(group, 0) == rank);
  run_kinds(group, NULL, size, rank);
  tsr_group_destroy(&group);
}

/* The others are busy elsewhere meanwhile. */
static void subsets(void) {
  int even[RANKS_MAX], count = 0;
  tsr_group *group = make_group(MPI_COMM_WORLD, 20);
  for (int i = 0; i < size; i += 2) even[count++] = i;
  if (rank % 2 == 0) run_kinds(group, even, count, rank / 2);
  run_kinds(group, NULL, size, rank);
  tsr_group_destroy(&group);
}

static void sub_communicators(void) {
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  tsr_group *group = make_group(half, 20), *world = make_group(MPI_COMM_WORLD, 20);
  int members = tsr_group_member_count(group);
  run_kinds(group, NULL, members, tsr_group_local_member(group, 0));
  CHECK_OK(tsr_group_agree(world, TSR_OK, NULL, &error));
  /* Groups may end in any order, and the communicator before them. */
  MPI_Comm_free(&half);
  tsr_group_destroy(&world);
  tsr_group_destroy(&group);
}

/* As messages of more than 1 GiB travel. */
static void messages_in_pieces(void) {
  tsr_group *group = make_group(MPI_COMM_WORLD, 20);
  group->transport->message_bytes_max = 1000;
  run_kinds(group, NULL, size, rank);
  tsr_group_destroy(&group);
}

static void two_in_flight(void) {
  int64_t large[RANKS_MAX], small[RANKS_MAX];
  tsr_group *group = make_group(MPI_COMM_WORLD, 20);
  for (int i = 0; i < size; i++) large[i] = 300000, small[i] = 10 + i;
  collective_case a = {.options = {.kind = TSR_ALL_REDUCE, .counts = large, .member_count = size}};
  collective_case b = {.options = {.kind = TSR_ALL_GATHER, .counts = small, .member_count = size}};
  case_member of_a, of_b;
  CHECK(case_member_setup(group, &a, rank, &of_a, &error));
  CHECK(case_member_setup(group, &b, rank, &of_b, &error));
  for (int turn = 0; turn < 20; turn++) {
    case_member_fill(&of_a, &a);
    case_member_fill(&of_b, &b);
    CHECK_OK(case_member_start(&of_a, &a, &error));
    CHECK_OK(case_member_start(&of_b, &b, &error));
    CHECK_OK(tsr_collective_wait_all(group, turn % 2 ? &of_a.collective : &of_b.collective, 1, &error));
    CHECK_OK(tsr_collective_wait_all(group, turn % 2 ? &of_b.collective : &of_a.collective, 1, &error));
    CHECK(!case_member_check(&of_a, &a));
    CHECK(!case_member_check(&of_b, &b));
  }
  case_member_release(&of_a);
  case_member_release(&of_b);
  tsr_group_destroy(&group);
}

/* ---- shared memory ---- */

static int refuse_file(void) {
  errno = EPERM;
  return -1;
}

static void count_warnings(void *user, tsr_log_level level, const char *area, const char *message) {
  (void)user;
  if (level == TSR_LOG_WARNING && !strcmp(area, "comm") && strstr(message, "no shared memory")) warnings++;
}

static bool wait_for(tsr_group *group, tsr_request *request) {
  bool done = false;
  while (!done) {
    if (group->transport->ops->test(group->transport, request, &done, &error) != TSR_OK) return false;
    if (!done && tsr_group_wait_turn(group, &error) != TSR_OK) return false;
  }
  return true;
}

/* A message round the ring, from memory that the next rank reads where it lies, and from its own. */
static void views(void) {
  enum { BYTES = 500000 };
  tsr_group *group = make_group(MPI_COMM_WORLD, 20);
  tsr_transport *transport = group->transport;
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  char *window = tsr_group_memory_create(group, rank, BYTES), *own = malloc(BYTES), *copy = malloc(BYTES);
  CHECK(!window == (alone || size == 1));
  for (int turn = 0; turn < 2; turn++) {
    tsr_request send = {0}, receive = {0};
    char *data = turn && window ? window : own;
    memset(data, 'a' + rank + turn, BYTES);
    memset(copy, 0, BYTES);
    CHECK_OK(transport->ops->irecv_view(transport, rank, previous, 5, copy, BYTES, &receive, &error));
    CHECK_OK(transport->ops->isend(transport, rank, next, 5, data, BYTES, &send, &error));
    CHECK(wait_for(group, &receive));
    const char *seen = receive.view;
    CHECK(mixed || (seen == copy) == (data == own));
    CHECK(seen[0] == 'a' + previous + turn && seen[BYTES - 1] == 'a' + previous + turn);
    transport->ops->release(transport, &receive);
    CHECK(wait_for(group, &send));
  }
  tsr_group_memory_destroy(group, window);
  free(own);
  free(copy);
  tsr_group_destroy(&group);
  CHECK((warnings > 0) == (alone && rank == size - 1));
}

/* ---- agreement, broadcast, gather ---- */

static void agreement(void) {
  tsr_group *group = make_group(MPI_COMM_WORLD, 20);
  CHECK_OK(tsr_group_agree(group, TSR_OK, NULL, &error));
  for (int failing = 0; failing < size; failing++) {
    tsr_error own;
    char expected[64];
    tsr_fail(&own, TSR_ERROR_IO, "cannot read w%d", rank);
    if (size > 1)
      snprintf(expected, sizeof expected, "rank %d: cannot read w%d", failing, failing);
    else
      snprintf(expected, sizeof expected, "cannot read w%d", failing);
    tsr_status status = rank >= failing ? TSR_ERROR_IO : TSR_OK;
    CHECK(tsr_group_agree(group, status, status ? &own : NULL, &error) == TSR_ERROR_IO);
    CHECK(!strcmp(error.message, expected));
    CHECK(error.rank == failing && !error.file);
  }
  CHECK_OK(tsr_group_agree(group, TSR_OK, NULL, &error));
  tsr_group_destroy(&group);
}

/* Any one allocation may fail, on any one rank: all learn the same. */
static void agreement_without_memory(void) {
  tsr_group *group = make_group(MPI_COMM_WORLD, 20);
  for (int failing = 0; failing < size; failing++)
    for (int k = 0; k < 4; k++) {
      if (rank == failing) tsr_memory_fail_after(k);
      CHECK(tsr_group_agree(group, rank == size - 1 ? TSR_ERROR_IO : TSR_OK, NULL, &error) == TSR_ERROR_IO);
      tsr_memory_fail_after(-1);
      CHECK(error.rank == size - 1);
    }
  tsr_group_destroy(&group);
}

/* One rank made fewer collectives because something failed: after the agreement all work again. */
static void agreement_repairs_tags(void) {
  int64_t count = 4;
  tsr_group *group = make_group(MPI_COMM_WORLD, 20);
  collective_case test = {.options = {.kind = TSR_ALL_REDUCE, .counts = &count, .member_count = size}};
  case_member member = {0};
  bool fails = rank == size - 1;
  if (!fails) CHECK(case_member_setup(group, &test, rank, &member, &error));
  CHECK(tsr_group_agree(group, fails ? TSR_ERROR_DEVICE : TSR_OK, NULL, &error) == TSR_ERROR_DEVICE);
  if (!fails) case_member_release(&member);
  run_case(group, &test, rank);
  tsr_group_destroy(&group);
}

static void broadcast_and_gather(void) {
  tsr_group *group = make_group(MPI_COMM_WORLD, 20);
  enum { BYTES = 300001 };
  char *data = malloc(BYTES);
  for (int root = 0; root < size; root++) {
    memset(data, rank == root ? 'a' + root : 0, BYTES);
    CHECK_OK(tsr_group_broadcast(group, root, data, BYTES, &error));
    CHECK(data[0] == 'a' + root && data[BYTES - 1] == 'a' + root);
  }
  int64_t own = 100 + rank, all[RANKS_MAX];
  CHECK_OK(tsr_group_gather(group, &own, sizeof own, all, &error));
  for (int i = 0; i < size; i++) CHECK(all[i] == 100 + i);
  free(data);
  tsr_group_destroy(&group);
}

/* ---- failures ---- */

static void other_sizes_are_an_error(void) {
  if (size < 2) return;
  int64_t count = rank ? 5 : 3;
  tsr_group *group = make_group(MPI_COMM_WORLD, 20);
  const int pair[] = {0, 1};
  collective_case test = {
      .options = {.kind = TSR_ALL_REDUCE, .counts = &count, .members = pair, .member_count = 2}};
  case_member member;
  if (rank < 2) {
    CHECK(case_member_setup(group, &test, rank, &member, &error));
    tsr_status status = case_member_start(&member, &test, &error);
    if (status == TSR_OK) status = tsr_collective_wait_all(group, &member.collective, 1, &error);
    CHECK(status == TSR_ERROR_COMM);
    CHECK(strstr(error.message, rank    ? "sent 12 bytes, 20 were expected"
                                : alone ? "more than 12 bytes"
                                        : "sent 20 bytes, 12 were expected"));
    case_member_release(&member);
  }
  tsr_group_destroy(&group);
}

/* Who left early is not lost, but whoever waits for it hears of it; nobody hangs. */
static void one_leaves_early(void) {
  int64_t count = 4;
  if (size < 2) return;
  tsr_group *group = make_group(MPI_COMM_WORLD, 1);
  collective_case test = {.options = {.kind = TSR_ALL_REDUCE, .counts = &count, .member_count = size}};
  case_member member;
  if (rank < size - 1) {
    CHECK(case_member_setup(group, &test, rank, &member, &error));
    tsr_status status = case_member_start(&member, &test, &error);
    if (status == TSR_OK) status = tsr_collective_wait_all(group, &member.collective, 1, &error);
    CHECK(status == TSR_ERROR_COMM);
    CHECK(strstr(error.message, "destroyed its group"));
    case_member_release(&member);
  }
  tsr_group_destroy(&group);
}

/* Own silence is not the others' silence. */
static void all_compute_for_long(void) {
  tsr_group *group = make_group(MPI_COMM_WORLD, 1);
  CHECK_OK(tsr_group_agree(group, TSR_OK, NULL, &error));
  usleep(1500000);
  CHECK_OK(tsr_group_agree(group, TSR_OK, NULL, &error));
  tsr_group_destroy(&group);
}

/* One rank lacks memory: all hear of it. */
static void memory_runs_out(void) {
  bool created = false;
  for (int after = 0; !created; after++) {
    tsr_group *group = NULL;
    tsr_memory_fail_after(rank == size - 1 ? after : -1);
    tsr_status status = tsr_group_create_mpi(context, MPI_COMM_WORLD, NULL, &group, &error);
    tsr_memory_fail_after(-1);
    created = status == TSR_OK;
    if (!created) CHECK(status == TSR_ERROR_OUT_OF_MEMORY);
    tsr_group_destroy(&group);
  }
}

static void another_launcher(void) {
  tsr_group *group = NULL;
  if (size > 1) return;
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  CHECK(tsr_group_create_mpi(context, MPI_COMM_WORLD, NULL, &group, &error) == TSR_ERROR_COMM);
  CHECK(strstr(error.message, "OMPI_COMM_WORLD_SIZE is 4") && strstr(error.message, "mpiexec"));
  unsetenv("OMPI_COMM_WORLD_SIZE");
}

static void wrong_arguments(void) {
  tsr_group *group = NULL;
  tsr_group_options bad = {0};
  MPI_Errhandler handler;
  CHECK(tsr_group_create_mpi(context, MPI_COMM_NULL, NULL, &group, &error) == TSR_ERROR_INVALID_ARGUMENT);
  CHECK(tsr_group_create_mpi(NULL, MPI_COMM_WORLD, NULL, &group, &error) == TSR_ERROR_INVALID_ARGUMENT);
  CHECK(tsr_group_create_mpi(context, MPI_COMM_WORLD, &bad, &group, &error) == TSR_ERROR_INVALID_ARGUMENT);
  CHECK(!group);
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
  CHECK(handler == MPI_ERRORS_ARE_FATAL);
}

static void outside_mpi(const char *text) {
  tsr_group *group = NULL;
  CHECK(tsr_group_create_mpi(context, MPI_COMM_WORLD, NULL, &group, &error) == TSR_ERROR_INVALID_ARGUMENT);
  CHECK(strstr(error.message, text));
}

int main(int argc, char **argv) {
  void (*const tests[])(void) = {every_kind,
                                 subsets,
                                 sub_communicators,
                                 messages_in_pieces,
                                 two_in_flight,
                                 views,
                                 agreement,
                                 agreement_without_memory,
                                 agreement_repairs_tags,
                                 broadcast_and_gather,
                                 other_sizes_are_an_error,
                                 one_leaves_early,
                                 all_compute_for_long,
                                 memory_runs_out,
                                 another_launcher,
                                 wrong_arguments};
  int granted, all = 0;
  bool threads = argc > 1 && !strcmp(argv[1], "threads");
  alone = argc > 1 && !strcmp(argv[1], "alone");
  mixed = argc > 1 && !strcmp(argv[1], "mixed");
  tsr_context_options *options =
      TSR_CONTEXT_OPTIONS(.cache_folder = "", .log = count_warnings, .log_level = TSR_LOG_WARNING);
  if (tsr_context_create(options, &context, &error) != TSR_OK) return 2;
  outside_mpi("not initialised");
  if (threads)
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);
  else
    MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (alone && rank == size - 1) tsr_shared_make_file = refuse_file;
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tests[i]();
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  outside_mpi("finalised already");
  tsr_context_destroy(&context);
  return all + failures > 0;
}
