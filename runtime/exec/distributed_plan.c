/* exec/distributed_plan.c: how a distributed product is shared. A plan for a product alone knows nothing of
 * where the caller's blocks lie. So several are made, each with the three matrices pinned to one of the ways
 * in which a product can be split, along the planner's own cuts and along those at which the caller's blocks
 * already lie; the one that is fastest together with all that must be moved is taken. */
#include <math.h>

#include "base/memory.h"
#include "exec/distributed.h"

/* ---- the product as a graph ---- */

static const char *const names[] = {"a", "b", "c"};
static const char *const result_name = "product";

tsr_status tsr_distributed_value(const tsr_plan *plan, int operand, bool output, tsr_value *out,
                                 tsr_error *error) {
  return tsr_graph_find(plan->graph, output ? result_name : names[operand], out, error);
}

/* Where the values of a candidate must lie: NULL = the planner chooses. */
typedef struct pins {
  const tsr_layout *a, *b, *result;
  const tsr_layout *c; /* with beta; else it may end replicated, of which every part is a free view */
} pins;

static tsr_status pin(tsr_graph *graph, tsr_value value, const tsr_layout *layout, tsr_error *error) {
  return layout ? tsr_graph_pin(graph, value, layout, error) : TSR_OK;
}

static tsr_status build(const tsr_distributed_gemm *gemm, const pins *pins, tsr_graph *graph,
                        tsr_error *error) {
  tsr_value a, b, result;
  tsr_matmul_options options;
  tsr_matmul_options_init(&options);
  options.transpose_a = gemm->transpose_a;
  options.transpose_b = gemm->transpose_b;
  options.alpha = gemm->alpha;
  options.beta = gemm->beta;
  const tsr_operand *o = gemm->operands;
  tsr_shape shapes[TSR_OPERANDS];
  for (int i = 0; i < TSR_OPERANDS; i++) shapes[i] = tsr_shape_of(2, o[i].rows, o[i].cols);
  TSR_RETURN_IF_FAILED(tsr_graph_input(graph, names[0], gemm->dtype, &shapes[0], &a, error));
  /* As a parameter, b may be kept in the form that is fastest to multiply by. */
  TSR_RETURN_IF_FAILED(tsr_graph_parameter(graph, names[1], gemm->dtype, &shapes[1], &b, error));
  if (gemm->beta != 0)
    TSR_RETURN_IF_FAILED(tsr_graph_input(graph, names[2], gemm->dtype, &shapes[2], &options.c, error));
  TSR_RETURN_IF_FAILED(tsr_graph_matmul(graph, a, b, &options, &result, error));
  TSR_RETURN_IF_FAILED(tsr_graph_output(graph, result_name, result, error));
  TSR_RETURN_IF_FAILED(pin(graph, a, pins->a, error));
  TSR_RETURN_IF_FAILED(pin(graph, b, pins->b, error));
  if (gemm->beta != 0) TSR_RETURN_IF_FAILED(pin(graph, options.c, pins->c, error));
  return pin(graph, result, pins->result, error);
}

/* ---- what moving costs ---- */

tsr_rectangle tsr_distributed_shard(const tsr_plan *plan, tsr_value value, int r) {
  tsr_place place = tsr_plan_final_place(plan, value);
  int64_t begin[2], end[2];
  for (int axis = 0; axis < 2; axis++) tsr_plan_range(plan, value, place, axis, r, &begin[axis], &end[axis]);
  return (tsr_rectangle){begin[0], begin[1], end[0] - begin[0], end[1] - begin[1]};
}

static double area_of(const tsr_rectangle *at) {
  return (double)at->rows * (double)at->cols;
}

/* Elements that each member receives and sends. */
typedef struct traffic {
  double received, sent, shards;
} traffic;

/* Elements of a block that its own member's shard of the value holds. */
static double kept(const tsr_plan *plan, tsr_value value, const tsr_owned *block) {
  tsr_rectangle meet;
  for (int r = 0; r < plan->decision.active_count; r++) {
    if (plan->decision.active[r] != block->member) continue;
    tsr_rectangle shard = tsr_distributed_shard(plan, value, r);
    return tsr_rectangle_meet(&shard, &block->at, &meet) ? area_of(&meet) : 0;
  }
  return 0;
}

static void add_shards(const tsr_plan *plan, tsr_value value, bool output, traffic *members) {
  for (int r = 0; r < plan->decision.active_count; r++) {
    tsr_rectangle shard = tsr_distributed_shard(plan, value, r);
    traffic *member = &members[plan->decision.active[r]];
    member->shards += area_of(&shard);
    if (!output) member->received += area_of(&shard);
  }
}

/* Blocks of one place, `count` replicas, go to shards: what their owners keep is not received, and the rest
 * is taken to be sent by all of them in equal parts. */
static void add_sources(const tsr_plan *plan, tsr_value value, const tsr_owned *blocks, int64_t count,
                        traffic *members) {
  bool replicated = tsr_plan_final_place(plan, value) == TSR_PLACE_REPLICATE;
  double sent = area_of(&blocks->at) * (replicated ? plan->decision.active_count : 1);
  for (int64_t i = 0; i < count; i++) {
    double own = kept(plan, value, &blocks[i]);
    members[blocks[i].member].received -= own;
    sent -= own;
  }
  for (int64_t i = 0; i < count; i++) members[blocks[i].member].sent += sent / (double)count;
}

/* An operand's blocks to the shards of its value; output: the result's shards to its blocks. */
static void add_traffic(const tsr_distributed_gemm *gemm, const tsr_plan *plan, int index, bool output,
                        traffic *members) {
  const tsr_operand *operand = &gemm->operands[index];
  tsr_value value;
  if (tsr_distributed_value(plan, index, output, &value, NULL) != TSR_OK) return;
  add_shards(plan, value, output, members);
  for (int64_t i = 0, count; i < operand->count; i += count) {
    const tsr_owned *block = &operand->blocks[i];
    count = output ? 1 : tsr_owned_equal(operand->blocks, operand->count, i);
    if (output)
      members[block->member].received += area_of(&block->at) - kept(plan, value, block);
    else
      add_sources(plan, value, block, count, members);
  }
}

static bool within_one_host(const tsr_cluster *cluster) {
  for (int i = 1; i < cluster->member_count; i++)
    if (cluster->hosts[i] != cluster->hosts[0]) return false;
  return true;
}

/* The slowest member's part: messages, and the way between host and device. */
static double moving_seconds(const tsr_distributed_gemm *gemm, const tsr_plan *plan, traffic *members) {
  const tsr_cluster *cluster = plan->cluster;
  const tsr_link *link = within_one_host(cluster) ? &cluster->links.host : &cluster->links.network;
  double worst = 0, bytes = (double)tsr_dtype_bytes(gemm->dtype);
  for (int i = 0; i < cluster->member_count; i++) members[i] = (traffic){0};
  add_traffic(gemm, plan, TSR_OPERAND_A, false, members);
  add_traffic(gemm, plan, TSR_OPERAND_B, false, members);
  if (gemm->beta != 0) add_traffic(gemm, plan, TSR_OPERAND_C, false, members);
  add_traffic(gemm, plan, TSR_OPERAND_C, true, members);
  for (int i = 0; i < cluster->member_count; i++) {
    double moved = fmax(members[i].received, members[i].sent) * bytes;
    double seconds = moved / link->bandwidth + (moved > 0 ? link->latency : 0) +
                     members[i].shards * bytes / cluster->members[i].memory_bandwidth;
    worst = fmax(worst, seconds);
  }
  return worst;
}

/* ---- the candidates ---- */

typedef struct selection {
  const tsr_distributed_gemm *gemm;
  const tsr_cluster *cluster;
  traffic *members;
  tsr_plan *best;
  double seconds;
  tsr_status refusal; /* the first, for when nothing is feasible */
  tsr_error error;
} selection;

/* Plans with these pins, and keeps the plan if it is the fastest. Only errors that another candidate would
 * meet as well are returned. */
static tsr_status try_pins(selection *s, const pins *pins, tsr_error *error) {
  tsr_graph *graph = NULL;
  tsr_plan *plan = NULL;
  tsr_status status;
  TSR_TRY(tsr_graph_create(s->cluster->context, &graph, error));
  TSR_TRY(build(s->gemm, pins, graph, error));
  tsr_plan_options options;
  tsr_plan_options_init(&options);
  options.replicate = TSR_REPLICATE_AUTO;
  tsr_error refusal;
  status = tsr_plan_create(graph, s->cluster, &options, &plan, &refusal);
  if (status != TSR_OK && s->refusal == TSR_OK) s->refusal = status, s->error = refusal;
  if (status == TSR_ERROR_OUT_OF_MEMORY) {
    if (error) *error = refusal;
    goto done;
  }
  if (status != TSR_OK) {
    status = TSR_OK;
    goto done;
  }
  double seconds = plan->predicted_seconds + moving_seconds(s->gemm, plan, s->members);
  if (s->best && s->seconds <= seconds) goto done;
  tsr_plan_destroy(&s->best);
  s->best = plan;
  s->seconds = seconds;
  plan = NULL;
done:
  tsr_plan_destroy(&plan);
  tsr_graph_destroy(&graph);
  return status;
}

/* Whether the operand's blocks are cut along one axis only, one block a member, in the order of the members;
 * if so where, in offsets (a number more than members). */
static bool find_cuts(const tsr_distributed_gemm *gemm, int index, int axis, int64_t *offsets) {
  const tsr_operand *operand = &gemm->operands[index];
  int members = tsr_group_member_count(gemm->group);
  int64_t at = 0, begin, length, extent = axis ? operand->cols : operand->rows, other;
  int next = 0;
  for (int64_t i = 0; i < operand->count; i++) {
    const tsr_owned *block = &operand->blocks[i];
    begin = axis ? block->at.col : block->at.row;
    length = axis ? block->at.cols : block->at.rows;
    other = axis ? block->at.rows : block->at.cols;
    if (other != (axis ? operand->rows : operand->cols) || begin != at || block->member < next) return false;
    for (; next <= block->member; next++) offsets[next] = at;
    at += length;
  }
  for (; next <= members; next++) offsets[next] = at;
  return at == extent && operand->count > 1;
}

/* Cuts along one dimension of the product: the planner's, and those of the operands that it is an axis of. */
typedef struct dimension {
  int64_t *offsets[3]; /* NULL = the planner's */
  int count;
} dimension;

static tsr_status add_cuts(const tsr_distributed_gemm *gemm, dimension *d, int index, int axis,
                           tsr_error *error) {
  size_t count = (size_t)tsr_group_member_count(gemm->group) + 1;
  int64_t *offsets = tsr_calloc(count, sizeof *offsets);
  if (!offsets) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %zu offsets", count);
  if (find_cuts(gemm, index, axis, offsets))
    d->offsets[d->count++] = offsets;
  else
    free(offsets);
  return TSR_OK;
}

static void finish_dimension(dimension *d) {
  for (int i = 0; i < d->count; i++) free(d->offsets[i]);
}

/* The i-th way to split an axis along a dimension. */
static tsr_layout split(const tsr_distributed_gemm *gemm, const dimension *d, int i, int axis) {
  const int64_t *offsets = d->offsets[i];
  return tsr_layout_shard(axis, offsets ? tsr_group_member_count(gemm->group) : 0, offsets);
}

/* Along m: every member has rows of A and C, and all of B. Along n likewise. */
static tsr_status try_outer(selection *s, const dimension *d, bool along_m, tsr_error *error) {
  const tsr_distributed_gemm *gemm = s->gemm;
  const tsr_layout whole = tsr_layout_replicate();
  for (int i = 0; i < d->count; i++) {
    tsr_layout factor = split(gemm, d, i, along_m ? gemm->transpose_a : !gemm->transpose_b);
    tsr_layout result = split(gemm, d, i, along_m ? 0 : 1);
    pins p = {along_m ? &factor : &whole, along_m ? &whole : &factor, &result, &result};
    TSR_RETURN_IF_FAILED(try_pins(s, &p, error));
  }
  return TSR_OK;
}

/* Along k: everybody has a summand of C, and ends with rows or columns of the sum, or with all of it. */
static tsr_status try_inner(selection *s, const dimension *k, const dimension *m, const dimension *n,
                            tsr_error *error) {
  const tsr_distributed_gemm *gemm = s->gemm;
  tsr_layout result = tsr_layout_replicate();
  for (int i = 0; i < k->count; i++) {
    tsr_layout a = split(gemm, k, i, !gemm->transpose_a), b = split(gemm, k, i, gemm->transpose_b);
    pins p = {&a, &b, &result, NULL};
    TSR_RETURN_IF_FAILED(try_pins(s, &p, error));
    for (int axis = 0; axis < 2; axis++)
      for (int j = 0; j < (axis ? n : m)->count; j++) {
        tsr_layout part = split(gemm, axis ? n : m, j, axis);
        p.result = &part;
        TSR_RETURN_IF_FAILED(try_pins(s, &p, error));
      }
  }
  return TSR_OK;
}

static tsr_status try_all(selection *s, tsr_error *error) {
  const tsr_distributed_gemm *gemm = s->gemm;
  tsr_status status = TSR_OK;
  dimension m = {.count = 1}, n = {.count = 1}, k = {.count = 1};
  TSR_TRY(try_pins(s, &(pins){NULL, NULL, NULL, NULL}, error));
  if (tsr_group_member_count(gemm->group) < 2) goto done;
  TSR_TRY(add_cuts(gemm, &m, TSR_OPERAND_A, gemm->transpose_a, error));
  TSR_TRY(add_cuts(gemm, &m, TSR_OPERAND_C, 0, error));
  TSR_TRY(add_cuts(gemm, &n, TSR_OPERAND_B, !gemm->transpose_b, error));
  TSR_TRY(add_cuts(gemm, &n, TSR_OPERAND_C, 1, error));
  TSR_TRY(add_cuts(gemm, &k, TSR_OPERAND_A, !gemm->transpose_a, error));
  TSR_TRY(add_cuts(gemm, &k, TSR_OPERAND_B, gemm->transpose_b, error));
  TSR_TRY(try_outer(s, &m, true, error));
  TSR_TRY(try_outer(s, &n, false, error));
  TSR_TRY(try_inner(s, &k, &m, &n, error));
done:
  finish_dimension(&m);
  finish_dimension(&n);
  finish_dimension(&k);
  return status;
}

tsr_status tsr_distributed_plan(const tsr_distributed_gemm *gemm, const tsr_cluster *cluster, tsr_plan **out,
                                tsr_error *error) {
  int members = tsr_group_member_count(gemm->group);
  if (cluster->member_count != members)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "the cluster has %d members, the group has %d",
                    cluster->member_count, members);
  selection s = {.gemm = gemm, .cluster = cluster};
  s.members = tsr_calloc((size_t)members, sizeof *s.members);
  if (!s.members)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to plan for %d members", members);
  tsr_status status = try_all(&s, error);
  free(s.members);
  if (status == TSR_OK && !s.best) {
    status = s.refusal;
    if (error) *error = s.error;
  }
  if (status != TSR_OK) tsr_plan_destroy(&s.best);
  *out = s.best;
  return status;
}
