#include "profile/measure.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

enum { FEW_ROWS = 16 }; /* see TSR_WORK_FEW_ROWS */
enum { GRID = 3, REPETITIONS = 3, LAUNCHES = 20, COPY_ELEMENTS = 1 << 21 };
/* A point is repeated for so long: where members share cores, a shorter run may happen to have one to itself.
 */
static const double POINT_SECONDS = 6e-3;

/* Grids for slow, usual and very fast devices: the largest product of each takes well under a second there.
 */
static const struct {
  double gflops_from;
  int64_t rows[GRID], sides[GRID];
} grids[] = {
    {0, {4, 16, 64}, {32, 64, 128}},
    {2, {8, 32, 128}, {64, 128, 256}},
    {20, {16, 128, 512}, {128, 512, 1024}},
    {2000, {16, 512, 2048}, {512, 2048, 4096}},
};
enum { GRIDS = sizeof grids / sizeof *grids };
/* Few rows take as long as their weight takes to be read: the last is larger than caches are. */
static const int64_t few_rows_sides[GRID] = {256, 1024, 4096};
static const double few_rows_gflops = 5;

void tsr_member_describe(const tsr_device *device, tsr_cluster_member *member) {
  const tsr_device_info *info = &device->info;
  *member =
      (tsr_cluster_member){.kind = info->kind,
                           .unified_memory = info->unified_memory,
                           .memory_bytes = info->memory_bytes,
                           .max_allocation_bytes = info->max_allocation_bytes,
                           .capped_bytes = info->memory_bytes,
                           .host_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE)};
  snprintf(member->name, sizeof member->name, "%s", info->name);
  snprintf(member->platform, sizeof member->platform, "%s", info->platform);
  snprintf(member->backend, sizeof member->backend, "%s", info->backend);
  snprintf(member->driver, sizeof member->driver, "%s", info->driver);
  if (gethostname(member->host, sizeof member->host - 1)) member->host[0] = 0;
  memcpy(member->gemm, device->gemm, sizeof member->gemm);
  tsr_cluster_estimate(member, info->compute_units);
}

tsr_status tsr_member_match(const tsr_cluster_member *planned, const tsr_device *device, int member,
                            tsr_error *error) {
  const tsr_device_info *info = &device->info;
  if (strcmp(planned->name, info->name) || strcmp(planned->driver, info->driver))
    return tsr_fail(error, TSR_ERROR_MISMATCH,
                    "rank %d: the plan's device is %s (driver %s), this one is %s (driver %s); plan again",
                    member, planned->name, planned->driver, info->name, info->driver);
  for (int types = 0; types < TSR_CLUSTER_DTYPES; types++) {
    const tsr_gemm_facts *counted = &planned->gemm[types], *own = &device->gemm[types];
    tsr_gemm_facts same_rows = *counted;
    same_rows.tuning = own->tuning;
    if (counted->tuning != own->tuning && tsr_gemm_facts_equal(&same_rows, own, 1))
      return tsr_fail(
          error, TSR_ERROR_MISMATCH,
          "rank %d: the plan is for other tuning rows in %s than are in force on %s here; plan again", member,
          tsr_gemm_types_name((tsr_gemm_types)types), info->name);
    if (!tsr_gemm_facts_equal(counted, own, 1))
      return tsr_fail(
          error, TSR_ERROR_MISMATCH,
          "rank %d: the plan is for the %s GEMM in %s with panels of %d, %s has %s with panels of "
          "%d here; plan again",
          member, tsr_gemm_family_name(counted->family), tsr_gemm_types_name((tsr_gemm_types)types),
          counted->panel, info->name, tsr_gemm_family_name(own->family), own->panel);
  }
  if (planned->memory_bytes > info->memory_bytes)
    return tsr_fail(error, TSR_ERROR_MISMATCH,
                    "rank %d: the plan counts on %llu bytes of memory, %s has %llu; plan again", member,
                    (unsigned long long)planned->memory_bytes, info->name,
                    (unsigned long long)info->memory_bytes);
  return TSR_OK;
}

/* Three matrices and a workspace, large enough for the products of one grid. */
typedef struct bench {
  tsr_device *device;
  tsr_dtype dtype; /* of the weight */
  tsr_buffer *a, *b, *c, *workspace;
} bench;

static void bench_finish(bench *bench) {
  tsr_buffer_destroy(bench->device, &bench->a);
  tsr_buffer_destroy(bench->device, &bench->b);
  tsr_buffer_destroy(bench->device, &bench->c);
  tsr_buffer_destroy(bench->device, &bench->workspace);
}

static size_t larger(size_t a, size_t b) {
  return a > b ? a : b;
}

/* What the hungriest product of a grid wants: small ones are cut along k, large ones are not. */
static size_t workspace_bytes(const tsr_gemm_facts *facts, tsr_gemm_types types, const int64_t *rows,
                              const int64_t *sides, int count) {
  size_t most = 0;
  for (int i = 0; i < count; i++)
    for (int j = 0; j < count; j++) {
      most = larger(most, tsr_gemm_workspace_bytes(facts, types, sides[j], sides[j], rows[i]));
      most = larger(most, tsr_gemm_workspace_bytes(facts, types, rows[i], sides[j], sides[j]));
    }
  return most;
}

/* rows and sides ascend. */
static tsr_status bench_init(bench *bench, tsr_device *device, tsr_dtype dtype, const int64_t *grid_rows,
                             const int64_t *grid_sides, int count, bool weight_gradients, tsr_error *error) {
  const int64_t m = grid_rows[count - 1], side = grid_sides[count - 1];
  const tsr_gemm_facts *facts = &device->gemm[dtype];
  const tsr_gemm_types types = (tsr_gemm_types)dtype;
  int panel = facts->panel ? facts->panel : 1;
  size_t size = tsr_dtype_bytes(tsr_gemm_dtype_c(types)),
         padded = (size_t)((side + panel - 1) / panel * panel);
  size_t rows = (size_t)m * padded * size, square = (size_t)side * padded * size;
  size_t workspace = workspace_bytes(facts, types, grid_rows, grid_sides, count);
  *bench = (struct bench){.device = device, .dtype = dtype};
  tsr_status status = TSR_OK;
  TSR_TRY(tsr_buffer_create(device, rows, &bench->a, error));
  TSR_TRY(tsr_buffer_create(device, larger(rows, square), &bench->b, error));
  TSR_TRY(tsr_buffer_create(device, weight_gradients ? larger(rows, square) : rows, &bench->c, error));
  if (workspace) TSR_TRY(tsr_buffer_create(device, workspace, &bench->workspace, error));
  TSR_TRY(tsr_device_fill_zero(device, bench->a, 0, bench->a->bytes, error));
  TSR_TRY(tsr_device_fill_zero(device, bench->b, 0, bench->b->bytes, error));
  TSR_TRY(tsr_device_fill_zero(device, bench->c, 0, bench->c->bytes, error));
done:
  if (status != TSR_OK) bench_finish(bench);
  return status;
}

/* The products as forward and backward use them: y = x w, dx = dy w^T, dw = x^T dy, the weight in its stored
 * form. */
static tsr_gemm_call call_of(const bench *bench, tsr_gemm_form form, int64_t m, int64_t side) {
  int panel = bench->device->gemm[bench->dtype].panel;
  tsr_matrix rows = {.buffer = bench->a, .rows = m, .cols = side, .ld = side};
  tsr_matrix other = {.buffer = bench->b, .rows = m, .cols = side, .ld = side};
  tsr_matrix result = {.buffer = bench->c, .rows = m, .cols = side, .ld = side};
  tsr_matrix weight = {.rows = side, .cols = side, .ld = side, .panel = panel};
  tsr_gemm_call call = {
      .types = (tsr_gemm_types)bench->dtype, .alpha = 1, .workspace = bench->workspace, .a = rows};
  if (form == TSR_GEMM_TN) {
    weight.buffer = bench->c;
    call.m = call.n = side;
    call.k = m;
    call.transpose_a = true;
    call.b = other;
    call.c = weight;
  } else {
    weight.buffer = bench->b;
    call.m = m;
    call.n = call.k = side;
    call.transpose_b = form == TSR_GEMM_NT;
    call.b = weight;
    call.c = result;
  }
  return call;
}

/* The mean, not the least: members that share cores must find out what they get. */
static tsr_status time_gemm(const bench *bench, tsr_gemm_form form, int64_t m, int64_t side, double *seconds,
                            tsr_error *error) {
  tsr_gemm_call call = call_of(bench, form, m, side);
  TSR_RETURN_IF_FAILED(
      tsr_device_gemm(bench->device, &call, error)); /* some drivers compile for each new grid */
  TSR_RETURN_IF_FAILED(tsr_device_finish(bench->device, error));
  double begun = tsr_clock_seconds();
  int count = 0;
  do {
    TSR_RETURN_IF_FAILED(tsr_device_gemm(bench->device, &call, error));
    TSR_RETURN_IF_FAILED(tsr_device_finish(bench->device, error));
    count++;
    *seconds = (tsr_clock_seconds() - begun) / count;
  } while (tsr_clock_seconds() - begun < POINT_SECONDS);
  return TSR_OK;
}

/* Whether all products have few rows, for which the device has a kernel of its own: no other is built. */
static bool only_few_rows(unsigned work, const tsr_gemm_facts *facts) {
  return facts->small_m >= FEW_ROWS && tsr_work_has(work, TSR_WORK_FEW_ROWS) &&
         !(tsr_work_has(work, TSR_WORK_FORWARD) || tsr_work_has(work, TSR_WORK_BACKWARD));
}

/* Products of this size and up to so many GFLOPS tell how fast a device is: small ones first, so that a slow
 * one is not kept busy. */
static const struct {
  int64_t m, side;
  double enough_below;
} speed_tests[] = {{32, 64, 0.5}, {64, 256, 20}, {512, 1024, 2000}, {2048, 2048, 1e30}};

tsr_status tsr_member_speed(tsr_device *device, unsigned work, tsr_dtype dtype, double *gflops,
                            tsr_error *error) {
  const tsr_gemm_facts *facts = &device->gemm[dtype];
  for (size_t i = 0; i < sizeof speed_tests / sizeof *speed_tests; i++) {
    int64_t m = only_few_rows(work, facts) ? FEW_ROWS : speed_tests[i].m, side = speed_tests[i].side;
    bench small;
    double seconds;
    TSR_RETURN_IF_FAILED(bench_init(&small, device, dtype, &m, &side, 1, false, error));
    tsr_status status = time_gemm(&small, TSR_GEMM_NN, m, side, &seconds, error);
    bench_finish(&small);
    TSR_RETURN_IF_FAILED(status);
    *gflops = 2e-9 * (double)(m * side * side) / seconds;
    if (*gflops < speed_tests[i].enough_below) break;
  }
  return TSR_OK;
}

static const tsr_work work_of[TSR_CLUSTER_DTYPES] = {[TSR_F32] = TSR_WORK_F32,
                                                     [TSR_F64] = TSR_WORK_F64,
                                                     [TSR_F16] = TSR_WORK_F16,
                                                     [TSR_BF16] = TSR_WORK_BF16,
                                                     [TSR_I8] = TSR_WORK_I8};

bool tsr_member_works_in(const tsr_device *device, unsigned work, tsr_dtype dtype) {
  return device->gemm[dtype].family != TSR_GEMM_NONE && tsr_work_has(work, work_of[dtype]);
}

bool tsr_member_measures(unsigned work, tsr_dtype dtype, tsr_gemm_form form) {
  return tsr_work_has(work, work_of[dtype]) &&
         (tsr_work_has(work, form == TSR_GEMM_NN ? TSR_WORK_FORWARD : TSR_WORK_BACKWARD) ||
          (form == TSR_GEMM_NN && tsr_work_has(work, TSR_WORK_FEW_ROWS))) &&
         !(form == TSR_GEMM_TN && tsr_dtype_is_narrow(dtype));
}

/* Rows that have a kernel of their own are left out where the work has no such products. */
static int64_t rows_at(int grid, int index, unsigned work, const tsr_gemm_facts *facts) {
  const int64_t rows = grids[grid].rows[index],
                least = tsr_work_has(work, TSR_WORK_FEW_ROWS) ? 1 : facts->small_m + 1;
  if (only_few_rows(work, facts)) return FEW_ROWS >> (GRID - 1 - index);
  return rows < least ? least + index : rows;
}

static tsr_status measure_products(tsr_device *device, unsigned work, tsr_dtype dtype, double gflops,
                                   tsr_cluster_member *member, tsr_error *error) {
  tsr_status status = TSR_OK;
  int grid = 0;
  bench bench;
  for (int i = 0; i < GRIDS; i++)
    if (gflops >= grids[i].gflops_from) grid = i;
  int64_t rows[GRID];
  const bool few = only_few_rows(work, &device->gemm[dtype]);
  const int64_t *sides = few && gflops >= few_rows_gflops ? few_rows_sides : grids[grid].sides;
  for (int i = 0; i < GRID; i++) rows[i] = rows_at(grid, i, work, &device->gemm[dtype]);
  TSR_RETURN_IF_FAILED(bench_init(&bench, device, dtype, rows, sides, GRID,
                                  tsr_member_measures(work, dtype, TSR_GEMM_TN), error));
  for (int form = 0; form < TSR_GEMM_FORMS; form++) {
    tsr_gemm_curve *curve = &member->curves[dtype][form];
    if (!tsr_member_measures(work, dtype, (tsr_gemm_form)form)) continue;
    curve->count = 0;
    for (int i = 0; i < GRID; i++)
      for (int j = 0; j < GRID; j++) {
        tsr_gemm_point *point = &curve->points[curve->count++];
        *point = (tsr_gemm_point){.m = rows[i], .side = sides[j]};
        TSR_TRY(time_gemm(&bench, (tsr_gemm_form)form, point->m, point->side, &point->seconds, error));
      }
  }
done:
  bench_finish(&bench);
  return status;
}

static tsr_status time_map(tsr_device *device, const tsr_map_call *call, int repetitions, double *seconds,
                           tsr_error *error) {
  *seconds = 1e9;
  for (int i = 0; i <= repetitions; i++) { /* the first is dropped */
    double begun = tsr_clock_seconds();
    TSR_RETURN_IF_FAILED(tsr_device_map(device, call, error));
    TSR_RETURN_IF_FAILED(tsr_device_finish(device, error));
    double own = tsr_clock_seconds() - begun;
    if (i && own < *seconds) *seconds = own;
  }
  return TSR_OK;
}

static tsr_status measure_memory(tsr_device *device, tsr_cluster_member *member, tsr_error *error) {
  tsr_status status = TSR_OK;
  size_t bytes = COPY_ELEMENTS * sizeof(float);
  double seconds;
  tsr_buffer *from = NULL, *to = NULL;
  TSR_TRY(tsr_buffer_create(device, bytes, &from, error));
  TSR_TRY(tsr_buffer_create(device, bytes, &to, error));
  TSR_TRY(tsr_device_fill_zero(device, from, 0, bytes, error));
  TSR_TRY(tsr_device_fill_zero(device, to, 0, bytes, error));
  tsr_matrix a = {.buffer = from, .rows = 1, .cols = COPY_ELEMENTS, .ld = COPY_ELEMENTS}, out = a;
  out.buffer = to;
  tsr_map_call call = {
      .kind = TSR_MAP_ADD, .dtype = TSR_F32, .alpha = 1, .beta = 1, .a = a, .b = out, .out = out};
  TSR_TRY(time_map(device, &call, REPETITIONS, &seconds, error));
  member->memory_bandwidth = 3 * (double)bytes / seconds;
  call.a.cols = call.b.cols = call.out.cols = 1;
  TSR_TRY(time_map(device, &call, LAUNCHES, &member->launch_seconds, error));
done:
  tsr_buffer_destroy(device, &from);
  tsr_buffer_destroy(device, &to);
  return status;
}

tsr_status tsr_member_measure(tsr_device *device, unsigned work, const double *gflops,
                              tsr_cluster_member *member, tsr_error *error) {
  for (int dtype = 0; dtype < TSR_CLUSTER_DTYPES; dtype++)
    if (tsr_member_works_in(device, work, (tsr_dtype)dtype))
      TSR_RETURN_IF_FAILED(measure_products(device, work, (tsr_dtype)dtype, gflops[dtype], member, error));
  if (tsr_work_has(work, TSR_WORK_ELEMENTWISE)) TSR_RETURN_IF_FAILED(measure_memory(device, member, error));
  memcpy(member->gemm, device->gemm, sizeof member->gemm); /* a first use may have passed a family over */
  member->estimated = false;
  return TSR_OK;
}
