/* exec/distributed.c: a distributed product: made from checked blocks and a plan, then run: blocks to shards,
 * one step of the session, shards to blocks. */
#include "exec/distributed.h"

#include <math.h>

#include "base/memory.h"

static const int64_t default_message_bytes = (int64_t)1 << 20;

void tsr_distributed_gemm_options_init(tsr_distributed_gemm_options *options) {
  *options = (tsr_distributed_gemm_options){.struct_size = sizeof *options};
}

/* ---- what this process alone can get wrong ---- */

static tsr_status check_options(const tsr_distributed_gemm_options *options, tsr_error *error) {
  TSR_CHECK_OPTIONS_SIZE(options, tsr_distributed_gemm_options);
  if (!options) return TSR_OK;
  if (options->dtype != TSR_F32 && options->dtype != TSR_F64)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "dtype is %s (%d): a distributed product has f32 or f64", tsr_dtype_name(options->dtype),
                    (int)options->dtype);
  if (options->message_bytes < 0 || (options->message_bytes && options->message_bytes < 64) ||
      options->message_bytes > INT64_MAX / 8)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "message_bytes is %lld: give 64 to 2^60, or 0 for 1 MiB",
                    (long long)options->message_bytes);
  return TSR_OK;
}

static tsr_status check_extents(const tsr_distributed_gemm *gemm, tsr_error *error) {
  if (gemm->m < 0 || gemm->n < 0 || gemm->k < 0)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "m = %lld, n = %lld, k = %lld: none may be below 0",
                    (long long)gemm->m, (long long)gemm->n, (long long)gemm->k);
  for (int i = 0; i < TSR_OPERANDS; i++) {
    int64_t bytes;
    const tsr_operand *operand = &gemm->operands[i];
    if (!tsr_multiply_fits(operand->rows, operand->cols, &bytes) ||
        !tsr_multiply_fits(bytes, (int64_t)tsr_dtype_bytes(gemm->dtype), &bytes))
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%s of %lld x %lld %s does not fit 63 bits of bytes",
                      operand->name, (long long)operand->rows, (long long)operand->cols,
                      tsr_dtype_name(gemm->dtype));
  }
  if (!isfinite(gemm->alpha) || !isfinite(gemm->beta))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "alpha is %g, beta is %g: both must be finite",
                    gemm->alpha, gemm->beta);
  return TSR_OK;
}

static tsr_status check_devices(const tsr_distributed_gemm *gemm, size_t count, tsr_error *error) {
  if (count != (size_t)gemm->local_count)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%zu devices given, this process drives %d members",
                    count, gemm->local_count);
  for (size_t i = 0; i < count; i++)
    if (!gemm->devices || !gemm->devices[i])
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                      "device %zu of %zu is NULL: open one for each local member", i, count);
  return TSR_OK;
}

/* ---- passages ---- */

static void finish_passage(tsr_passage *passage, int local_count) {
  for (int i = 0; passage->moves && i < local_count; i++) tsr_redistribution_destroy(&passage->moves[i]);
  free(passage->moves);
  free(passage->shards);
  free(passage->own);
  free(passage->direct);
}

/* The block of this process that is just the shard; -1 = none is. */
static int64_t find_direct(const tsr_operand *operand, int local, const tsr_rectangle *shard) {
  for (int64_t j = 0; j < operand->given_count[local]; j++) {
    const tsr_rectangle *at = &operand->given[local][j];
    if (at->row == shard->row && at->col == shard->col && at->rows == shard->rows && at->cols == shard->cols)
      return j;
  }
  return -1;
}

static tsr_status find_shards(const tsr_distributed_gemm *gemm, tsr_passage *passage, tsr_error *error) {
  const tsr_decision *decision = &gemm->plan->decision;
  size_t locals = (size_t)gemm->local_count;
  passage->moves = tsr_calloc(locals, sizeof *passage->moves);
  passage->own = tsr_calloc(locals, sizeof *passage->own);
  passage->direct = tsr_calloc(locals, sizeof *passage->direct);
  passage->shards = tsr_calloc((size_t)decision->active_count, sizeof *passage->shards);
  if (!passage->moves || !passage->own || !passage->direct || !passage->shards)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the shards of %d members",
                    decision->active_count);
  for (int r = 0; r < decision->active_count; r++) {
    tsr_rectangle at = tsr_distributed_shard(gemm->plan, passage->value, r);
    if (!at.rows || !at.cols) continue;
    int member = decision->active[r], local = tsr_transport_local_index(gemm->group->transport, member);
    passage->shards[passage->shard_count++] = (tsr_owned){.at = at, .member = member};
    if (local >= 0) passage->own[local] = at;
  }
  tsr_owned_sort(passage->shards, passage->shard_count);
  for (int i = 0; i < gemm->local_count; i++)
    passage->direct[i] = find_direct(&gemm->operands[passage->operand], i, &passage->own[i]);
  return TSR_OK;
}

static tsr_status create_passage(tsr_distributed_gemm *gemm, tsr_passage *passage, tsr_error *error) {
  const tsr_operand *operand = &gemm->operands[passage->operand];
  TSR_RETURN_IF_FAILED(find_shards(gemm, passage, error));
  tsr_redistribution_options options = {.element_bytes = tsr_dtype_bytes(gemm->dtype),
                                        .column_major = operand->column_major,
                                        .message_bytes = gemm->message_bytes,
                                        .source = operand->blocks,
                                        .source_count = operand->count,
                                        .target = passage->shards,
                                        .target_count = passage->shard_count};
  if (tsr_passage_is_output(gemm, passage)) {
    options.source = passage->shards;
    options.source_count = passage->shard_count;
    options.target = operand->blocks;
    options.target_count = operand->count;
  }
  for (int i = 0; i < gemm->local_count; i++)
    TSR_RETURN_IF_FAILED(tsr_redistribution_create(gemm->group, tsr_group_local_member(gemm->group, i),
                                                   &options, &passage->moves[i], error));
  return TSR_OK;
}

static size_t larger(size_t a, size_t b) {
  return a > b ? a : b;
}

static tsr_status allocate_local(tsr_distributed_gemm *gemm, int i, tsr_error *error) {
  size_t staging = 0, scratch = 0, views = 0;
  for (int p = 0; p < gemm->passage_count; p++) {
    const tsr_passage *passage = &gemm->passages[p];
    const tsr_rectangle *own = &passage->own[i];
    if (passage->direct[i] < 0)
      staging = larger(staging, (size_t)(own->rows * own->cols) * tsr_dtype_bytes(gemm->dtype));
    scratch = larger(scratch, tsr_redistribution_scratch_bytes(passage->moves[i]));
    views = larger(views, (size_t)gemm->operands[passage->operand].given_count[i]);
  }
  gemm->staging[i] = tsr_malloc_pages(staging);
  gemm->scratch[i] = tsr_malloc_pages(scratch);
  gemm->views[i] = tsr_calloc(views, sizeof *gemm->views[i]);
  if (gemm->staging[i] && gemm->scratch[i] && gemm->views[i]) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY,
                  "no host memory for a shard of %zu bytes and messages of %zu", staging, scratch);
}

static tsr_status create_passages(tsr_distributed_gemm *gemm, tsr_error *error) {
  const bool adds = gemm->beta != 0;
  const int operands[] = {TSR_OPERAND_A, TSR_OPERAND_B, TSR_OPERAND_C, TSR_OPERAND_C};
  gemm->passage_count = adds ? 4 : 3;
  for (int p = 0; p < gemm->passage_count; p++) {
    tsr_passage *passage = &gemm->passages[p];
    passage->operand = operands[p];
    TSR_RETURN_IF_FAILED(tsr_distributed_value(gemm->plan, passage->operand,
                                               tsr_passage_is_output(gemm, passage), &passage->value, error));
    TSR_RETURN_IF_FAILED(create_passage(gemm, passage, error));
  }
  for (int i = 0; i < gemm->local_count; i++) TSR_RETURN_IF_FAILED(allocate_local(gemm, i, error));
  return TSR_OK;
}

/* ---- creation ---- */

static void set_operands(tsr_distributed_gemm *gemm) {
  bool ta = gemm->transpose_a, tb = gemm->transpose_b;
  gemm->operands[TSR_OPERAND_A] =
      (tsr_operand){.name = "A", .rows = ta ? gemm->k : gemm->m, .cols = ta ? gemm->m : gemm->k};
  gemm->operands[TSR_OPERAND_B] =
      (tsr_operand){.name = "B", .rows = tb ? gemm->n : gemm->k, .cols = tb ? gemm->k : gemm->n};
  gemm->operands[TSR_OPERAND_C] = (tsr_operand){.name = "C", .rows = gemm->m, .cols = gemm->n};
}

static tsr_status allocate(tsr_distributed_gemm *gemm, tsr_error *error) {
  size_t locals = (size_t)gemm->local_count;
  gemm->staging = tsr_calloc(locals, sizeof *gemm->staging);
  gemm->scratch = tsr_calloc(locals, sizeof *gemm->scratch);
  gemm->views = tsr_calloc(locals, sizeof *gemm->views);
  gemm->memory = tsr_calloc(locals, sizeof *gemm->memory);
  gemm->shard_views = tsr_calloc(locals, sizeof *gemm->shard_views);
  if (gemm->staging && gemm->scratch && gemm->views && gemm->memory && gemm->shard_views) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a distributed product");
}

static tsr_status check(const tsr_distributed_gemm *gemm, size_t count, const tsr_part *const *parts,
                        const tsr_distributed_gemm_options *options, tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_options(options, error));
  TSR_RETURN_IF_FAILED(check_extents(gemm, error));
  TSR_RETURN_IF_FAILED(check_devices(gemm, count, error));
  return tsr_distributed_check_all(gemm, parts, false, error);
}

/* [C] Member 0's process plans; the others take its plan. */
static tsr_status make_plan(tsr_distributed_gemm *gemm, const tsr_cluster *given, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_cluster *estimated = NULL;
  bool plans = tsr_group_local_member(gemm->group, 0) == 0;
  int has_cluster = given != NULL;
  TSR_TRY(tsr_group_broadcast(gemm->group, 0, &has_cluster, sizeof has_cluster, error));
  if (!has_cluster) {
    tsr_measure_options measure;
    tsr_measure_options_init(&measure);
    measure.estimate_only = true;
    TSR_TRY(tsr_cluster_measure(gemm->group, gemm->devices, (size_t)gemm->local_count, &measure, &estimated,
                                error));
    given = estimated;
  }
  if (plans) status = tsr_distributed_plan(gemm, given, &gemm->plan, error);
  TSR_TRY(tsr_group_agree(gemm->group, status, error, error));
  TSR_TRY(tsr_plan_share(gemm->group, gemm->group->context, &gemm->plan, error));
done:
  tsr_cluster_destroy(&estimated);
  return status;
}

static bool multiplies(const tsr_distributed_gemm *gemm) {
  return gemm->m && gemm->n && gemm->k && gemm->alpha != 0;
}

tsr_status tsr_distributed_gemm_create(tsr_group *group, tsr_device *const *devices, size_t count, int64_t m,
                                       int64_t n, int64_t k, double alpha, double beta, const tsr_part *a,
                                       const tsr_part *b, const tsr_part *c,
                                       const tsr_distributed_gemm_options *options,
                                       tsr_distributed_gemm **out, tsr_error *error) {
  const tsr_part *const parts[] = {a, b, c};
  tsr_error own = {.status = TSR_OK, .rank = -1};
  if (!group) return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "group is NULL: create one first");
  if (!error) error = &own;
  tsr_distributed_gemm *gemm = tsr_calloc(1, sizeof *gemm);
  tsr_status status =
      gemm ? TSR_OK : tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a distributed product");
  if (gemm) {
    *gemm = (tsr_distributed_gemm){.group = group,
                                   .devices = devices,
                                   .m = m,
                                   .n = n,
                                   .k = k,
                                   .alpha = alpha,
                                   .beta = beta,
                                   .message_bytes = default_message_bytes,
                                   .local_count = tsr_group_local_count(group)};
    if (options && options->struct_size == sizeof *options) {
      gemm->dtype = options->dtype;
      gemm->transpose_a = options->transpose_a;
      gemm->transpose_b = options->transpose_b;
      if (options->message_bytes) gemm->message_bytes = options->message_bytes;
    }
    set_operands(gemm);
    status = check(gemm, count, parts, options, error);
    if (status == TSR_OK) status = allocate(gemm, error);
  }
  TSR_TRY(tsr_group_agree(group, status, error, error));
  TSR_TRY(tsr_distributed_exchange(gemm, parts, error));
  if (multiplies(gemm)) {
    TSR_TRY(make_plan(gemm, options ? options->cluster : NULL, error));
    TSR_TRY(tsr_session_create(group, gemm->plan, devices, count, &gemm->session, error));
    status = create_passages(gemm, error);
    TSR_TRY(tsr_group_agree(group, status, error, error));
  }
  *out = gemm;
  return TSR_OK;
done:
  tsr_distributed_gemm_destroy(&gemm);
  return status;
}

void tsr_distributed_gemm_destroy(tsr_distributed_gemm **out) {
  tsr_distributed_gemm *gemm = *out;
  if (!gemm) return;
  for (int p = 0; p < TSR_PASSAGES_MAX; p++) finish_passage(&gemm->passages[p], gemm->local_count);
  tsr_session_destroy(&gemm->session);
  tsr_plan_destroy(&gemm->plan);
  for (int i = 0; i < TSR_OPERANDS; i++) tsr_operand_finish(&gemm->operands[i], gemm->local_count);
  for (int i = 0; i < gemm->local_count; i++) {
    if (gemm->staging) tsr_group_free(gemm->group, gemm->staging[i]);
    if (gemm->scratch) tsr_group_free(gemm->group, gemm->scratch[i]);
    if (gemm->views) free(gemm->views[i]);
  }
  free(gemm->staging);
  free(gemm->scratch);
  free(gemm->views);
  free(gemm->memory);
  free(gemm->shard_views);
  free(gemm);
  *out = NULL;
}

const tsr_plan *tsr_distributed_gemm_plan(const tsr_distributed_gemm *gemm) {
  return gemm->plan;
}

uint64_t tsr_distributed_gemm_bytes_moved(const tsr_distributed_gemm *gemm, int i) {
  uint64_t bytes = 0;
  for (int p = 0; i >= 0 && i < gemm->local_count && p < gemm->passage_count; p++)
    bytes += tsr_redistribution_sent_bytes(gemm->passages[p].moves[i]);
  return bytes;
}

tsr_status tsr_distributed_gemm_once(tsr_group *group, tsr_device *const *devices, size_t count, int64_t m,
                                     int64_t n, int64_t k, double alpha, double beta, const tsr_part *a,
                                     const tsr_part *b, const tsr_part *c,
                                     const tsr_distributed_gemm_options *options, tsr_error *error) {
  tsr_distributed_gemm *gemm = NULL;
  TSR_RETURN_IF_FAILED(tsr_distributed_gemm_create(group, devices, count, m, n, k, alpha, beta, a, b, c,
                                                   options, &gemm, error));
  tsr_status status = tsr_distributed_gemm_run(gemm, a, b, c, error);
  tsr_distributed_gemm_destroy(&gemm);
  return status;
}
