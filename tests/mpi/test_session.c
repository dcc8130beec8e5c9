/* test_session.c: sessions over MPI: forward, backward and training bit for bit as on sim members, run after
 * run, on mpiexec -n 1, 2, 3, 4, 7; failures of one rank, the same status everywhere. TSR_TEST_DEVICES, a
 * comma list by rank (the last stands for the rest), chooses devices other than host; each rank then loads
 * its own driver alone. Each rank prints its failures; the exit code is not 0 if one has any. */
#include <mpi.h>

#include <tessera/mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/session.h"

static tsr_context *context;
static tsr_error error;
static int rank, size, failures;
static char selector[32] = "host";

static void report(const char *where, int line, const char *text) {
  printf("rank %d of %d, %s:%d: %s\n", rank, size, where, line, text);
  fflush(stdout);
  failures++;
}
#define CHECK(condition)                                                                                     \
  do {                                                                                                       \
    if (!(condition)) report(__func__, __LINE__, #condition);                                                \
  } while (0)
/* What follows makes no sense without. */
#define NEED_OK(call)                                                                                        \
  do {                                                                                                       \
    if ((call) != TSR_OK) {                                                                                  \
      report(__func__, __LINE__, error.message);                                                             \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                          \
    }                                                                                                        \
  } while (0)

/* ---- devices ---- */

/* One rank, one driver: before the first OpenCL call. */
static void choose_device(void) {
  const char *list = getenv("TSR_TEST_DEVICES"), *folder = "/etc/OpenCL/vendors/";
  char path[128];
  for (int i = 0; list && *list; i++) {
    size_t length = strcspn(list, ",");
    if (i <= rank) snprintf(selector, sizeof selector, "%.*s", (int)length, list);
    list += length + (list[length] == ',');
  }
  if (!strcmp(selector, "host")) return;
  snprintf(path, sizeof path, "%s%s.icd", folder, selector);
  setenv("OCL_ICD_VENDORS", path, 1);
  setenv("RUSTICL_ENABLE", "llvmpipe", 0);
}

static bool all_have_devices(void) {
  tsr_device_list *list;
  int own = 0, all;
  NEED_OK(tsr_device_list_create(context, &list, &error));
  for (size_t i = 0; i < tsr_device_list_count(list); i++) {
    const tsr_device_info *info = tsr_device_list_get(list, i);
    own |= info->usable && tsr_device_matches(selector, info);
  }
  tsr_device_list_destroy(&list);
  MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (!all && rank == 0) printf("skipped: not every rank has its device\n");
  return all;
}

/* ---- a training step of a block ---- */

enum { M = 33, D = 40, H = 130, STEPS = 3 };

static tsr_graph *make_graph(void) {
  tsr_graph *graph;
  tsr_value x, y, dy, wrt[5], gradients[5], next;
  tsr_shape shape = tsr_shape_of(2, M, D);
  tsr_layout replicated = tsr_layout_replicate();
  NEED_OK(tsr_graph_create(context, &graph, &error));
  NEED_OK(tsr_graph_input(graph, "x", TSR_F32, &shape, &x, &error));
  NEED_OK(tsr_graph_input(graph, "dy", TSR_F32, &shape, &dy, &error));
  NEED_OK(tsr_graph_pin(graph, x, &replicated, &error));
  NEED_OK(tsr_graph_ffn(graph, x, TSR_FFN_OPTIONS(.hidden = H), &y, &error));
  NEED_OK(tsr_graph_output(graph, "y", y, &error));
  NEED_OK(tsr_graph_pin(graph, y, &replicated, &error));
  static const char *const names[] = {"w1", "b1", "w2", "b2", "x"};
  for (int i = 0; i < 5; i++) NEED_OK(tsr_graph_find(graph, names[i], &wrt[i], &error));
  NEED_OK(tsr_graph_gradients(graph, y, dy, wrt, 5, gradients, &error));
  NEED_OK(tsr_graph_output(graph, "dx", gradients[4], &error));
  for (int i = 0; i < 4; i++) {
    NEED_OK(tsr_graph_add(graph, 1, wrt[i], -0.01, gradients[i], &next, &error));
    NEED_OK(tsr_graph_assign(graph, wrt[i], next, &error));
  }
  return graph;
}

static tsr_source *make_source(void) {
  static const char *const names[] = {"x", "dy", "w1", "b1", "w2", "b2"};
  tsr_source *source;
  NEED_OK(tsr_source_create(context, &source, &error));
  for (int i = 0; i < 6; i++)
    NEED_OK(tsr_source_add_random(source, names[i], TSR_RANDOM_UNIFORM, 5, -1, 1, &error));
  return source;
}

/* The cluster as it is, or of as many hosts; every member seems as fast as its number says, and links cost
 * nothing, so that everybody gets a part, and no two the same. */
static tsr_plan *make_plan(tsr_group *group, tsr_device *const *devices, size_t count) {
  tsr_cluster *cluster;
  tsr_plan *plan = NULL;
  tsr_measure_options options;
  tsr_measure_options_init(&options);
  options.estimate_only = true;
  NEED_OK(tsr_cluster_measure(group, devices, count, &options, &cluster, &error));
  cluster->links.host.latency = 1e-9;
  cluster->links.host.bandwidth = 1e12;
  for (int i = 0; i < cluster->member_count; i++)
    for (int form = 0; form < TSR_GEMM_FORMS; form++)
      for (int j = 0; j < cluster->members[i].curves[TSR_F32][form].count; j++)
        cluster->members[i].curves[TSR_F32][form].points[j].seconds = 1e-6 * (j + 1) / (1 + i % 3);
  if (tsr_group_local_member(group, 0) == 0) {
    tsr_graph *graph = make_graph();
    NEED_OK(tsr_plan_create(
        graph, cluster, TSR_PLAN_OPTIONS(.replicate = TSR_REPLICATE_NEVER, .keep_all = true), &plan, &error));
    tsr_graph_destroy(&graph);
  }
  NEED_OK(tsr_plan_share(group, context, &plan, &error));
  tsr_cluster_destroy(&cluster);
  return plan;
}

typedef struct results {
  float y[STEPS][M * D], dx[STEPS][M * D], w1[D * H], b1[H], w2[H * D], b2[D];
} results;

static void gather(tsr_session *session, const tsr_plan *plan, const char *name, float *data) {
  tsr_value value;
  tsr_value_info info;
  NEED_OK(tsr_graph_find(tsr_plan_graph(plan), name, &value, &error));
  NEED_OK(tsr_graph_value_info(tsr_plan_graph(plan), value, &info, &error));
  tsr_array array = tsr_array_dense(data, TSR_F32, &info.shape);
  NEED_OK(tsr_session_gather(session, value, &array, &error));
}

static void train(tsr_session *session, const tsr_plan *plan, results *out) {
  tsr_source *source = make_source();
  NEED_OK(tsr_session_load(session, source, &error));
  for (int i = 0; i < STEPS; i++) {
    NEED_OK(tsr_session_start(session, &error));
    bool done = false;
    for (int tries = 0; tries < 5 && !done; tries++) NEED_OK(tsr_session_test(session, &done, &error));
    NEED_OK(tsr_session_wait(session, &error));
    gather(session, plan, "y", out->y[i]);
    gather(session, plan, "dx", out->dx[i]);
  }
  gather(session, plan, "w1", out->w1);
  gather(session, plan, "b1", out->b1);
  gather(session, plan, "w2", out->w2);
  gather(session, plan, "b2", out->b2);
  tsr_source_destroy(&source);
}

/* The same plan on sim members in this process alone. */
static void train_alone(const tsr_plan *plan, results *out) {
  tsr_group *group;
  tsr_device *devices[64] = {NULL};
  tsr_session *session;
  NEED_OK(tsr_group_create_sim(context, size, NULL, &group, &error));
  for (int i = 0; i < size; i++) NEED_OK(tsr_device_open(context, selector, NULL, &devices[i], &error));
  NEED_OK(tsr_session_create(group, plan, devices, (size_t)size, &session, &error));
  train(session, plan, out);
  tsr_session_destroy(&session);
  for (int i = 0; i < size; i++) tsr_device_close(&devices[i]);
  tsr_group_destroy(&group);
}

static void check_reports(tsr_session *session, const tsr_plan *plan) {
  tsr_member_report *members = calloc((size_t)size, sizeof *members);
  tsr_report all;
  NEED_OK(tsr_session_report(session, &all, members, &error));
  CHECK(all.steps == 2 * STEPS && all.median_seconds > 0);
  for (int i = 0; i < size; i++) {
    CHECK(members[i].bytes_planned == members[i].bytes_allocated && members[i].bytes_allocated > 0);
    CHECK(members[i].bytes_sent == plan->members[i].sent_bytes);
  }
  free(members);
}

/* What ranks of one host exchange lies where the others can read it, if the device can use that. */
static void exchanges_in_place(const tsr_session *session) {
  const tsr_local *local = &session->locals[0];
  int shared = 0;
  if (local->active_index < 0) return;
  for (int i = 0; i < session->plan->storage_count; i++)
    for (int piece = 0; piece < local->stores[i].piece_count; piece++)
      shared += local->stores[i].memories[piece] != NULL;
  CHECK((shared > 0) == (size > 1 && local->device->takes_memory));
  CHECK(local->scratch.of_group == (size > 1) && local->packing.of_group == (size > 1));
}

/* Same bits twice, and as sim members have them where all devices are alike. */
static void same_bits(tsr_group *group, tsr_device *device) {
  results *first = calloc(1, sizeof *first), *second = calloc(1, sizeof *second);
  tsr_plan *plan = make_plan(group, &device, 1);
  tsr_session *session;
  tsr_check check;
  NEED_OK(tsr_session_create(group, plan, &device, 1, &session, &error));
  exchanges_in_place(session);
  train(session, plan, first);
  train(session, plan, second);
  CHECK(!memcmp(first, second, sizeof *first));
  check_reports(session, plan);
  NEED_OK(tsr_session_check(session, NULL, &check, &error));
  NEED_OK(tsr_session_check(session, TSR_CHECK_OPTIONS(.seed = 2, .oracle_flops = -1), &check, &error));
  tsr_session_destroy(&session);
  const char *list = getenv("TSR_TEST_DEVICES");
  if (!list || !strchr(list, ',')) {
    train_alone(plan, second);
    CHECK(!memcmp(first, second, sizeof *first));
  }
  tsr_plan_destroy(&plan);
  free(first);
  free(second);
}

/* ---- failures of one rank ---- */

/* The message names the rank, where there are several. */
static void expect_everywhere(tsr_status found, tsr_status wanted, int of) {
  char prefix[24] = "";
  if (size > 1) snprintf(prefix, sizeof prefix, "rank %d: ", of);
  if (found != wanted || error.rank != of || strncmp(error.message, prefix, strlen(prefix)))
    report(__func__, __LINE__, found == TSR_OK ? "no failure" : error.message);
}

/* A source that lacks a parameter, memory that is short, an allocation that fails: on the last rank alone. */
static void failures_are_shared(tsr_group *group, tsr_device *device) {
  tsr_plan *plan = make_plan(group, &device, 1);
  tsr_session *session = NULL;
  tsr_source *good = make_source(), *bad;
  int last = size - 1;
  NEED_OK(tsr_source_create(context, &bad, &error));

  uint64_t used = device->bytes_used;
  if (rank == last) device->bytes_used = device->info.memory_bytes - plan->members[last].bytes + 1;
  expect_everywhere(tsr_session_create(group, plan, &device, 1, &session, &error), TSR_ERROR_OUT_OF_MEMORY,
                    last);
  device->bytes_used = used;

  for (int64_t k = 0; k < 12; k += 3) {
    tsr_memory_fail_after(rank == last ? k : -1);
    tsr_status status = tsr_session_create(group, plan, &device, 1, &session, &error);
    tsr_memory_fail_after(-1);
    if (status != TSR_OK) expect_everywhere(status, TSR_ERROR_OUT_OF_MEMORY, last);
    tsr_session_destroy(&session);
  }

  NEED_OK(tsr_session_create(group, plan, &device, 1, &session, &error));
  expect_everywhere(tsr_session_load(session, rank == last ? bad : good, &error), TSR_ERROR_NOT_FOUND, last);
  NEED_OK(tsr_session_load(session, good, &error));
  tsr_session_destroy(&session);
  tsr_plan_destroy(&plan);
  tsr_source_destroy(&good);
  tsr_source_destroy(&bad);
}

static const tsr_device_ops *real;
static tsr_status failing_gemm(tsr_device *device, const tsr_gemm_call *call, tsr_error *own) {
  (void)device, (void)call;
  return tsr_fail(own, TSR_ERROR_DEVICE, "the device fell off the bus");
}

/* A device that fails within a step: its rank says so, nobody waits for it. The group is of no use
 * afterwards. */
static void device_fails(tsr_group *group, tsr_device *device) {
  tsr_plan *plan = make_plan(group, &device, 1);
  tsr_session *session;
  tsr_source *source = make_source();
  NEED_OK(tsr_session_create(group, plan, &device, 1, &session, &error));
  NEED_OK(tsr_session_load(session, source, &error));
  real = device->ops;
  tsr_device_ops ops = *real;
  ops.gemm = failing_gemm;
  if (rank == size - 1) device->ops = &ops;
  NEED_OK(tsr_session_start(session, &error));
  double started = MPI_Wtime();
  tsr_status status = tsr_session_wait(session, &error);
  CHECK(status == (rank == size - 1 ? TSR_ERROR_DEVICE : TSR_ERROR_RANK_LOST));
  CHECK(error.rank == size - 1);
  CHECK(MPI_Wtime() - started < 10); /* without waiting for the deadline */
  CHECK(tsr_session_start(session, &error) == TSR_ERROR_POISONED);
  device->ops = real;
  tsr_session_destroy(&session);
  tsr_plan_destroy(&plan);
  tsr_source_destroy(&source);
}

int main(int argc, char **argv) {
  tsr_group *group;
  tsr_device *device;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  choose_device();
  NEED_OK(tsr_context_create(NULL, &context, &error));
  if (all_have_devices()) {
    NEED_OK(tsr_group_create_mpi(context, MPI_COMM_WORLD, NULL, &group, &error));
    NEED_OK(tsr_device_open(context, selector, NULL, &device, &error));
    void *lowest = tsr_group_memory_create(group, rank, 1);
    tsr_group_memory_destroy(group, lowest);
    same_bits(group, device);
    failures_are_shared(group, device);
    device_fails(group, device);
    CHECK(tsr_device_bytes_used(device) == 0);
    void *again = tsr_group_memory_create(group, rank, 1);
    CHECK(again == lowest); /* sessions have returned all */
    tsr_group_memory_destroy(group, again);
    tsr_device_close(&device);
    tsr_group_destroy(&group);
  }
  tsr_context_destroy(&context);
  int all = failures;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return all != 0;
}
