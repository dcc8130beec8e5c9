#include "plan/cuts.h"

#include <string.h>

#include "base/memory.h"
#include "plan/cost.h"
#include "plan/shares.h"

/* Times of so many shares are computed, the others lie on straight lines between them. */
enum { SAMPLES = 32 };

/* Part of a step's least computing time by which members miss each other at a collective. */
static const double STRAGGLING = 0.005;

static bool same_curve(const tsr_gemm_curve *a, const tsr_gemm_curve *b) {
  return a->count == b->count && !memcmp(a->points, b->points, (size_t)a->count * sizeof *a->points);
}

bool tsr_members_alike(const tsr_cluster_member *a, const tsr_cluster_member *b) {
  for (int dtype = 0; dtype < TSR_CLUSTER_DTYPES; dtype++)
    for (int form = 0; form < TSR_GEMM_FORMS; form++)
      if (!same_curve(&a->curves[dtype][form], &b->curves[dtype][form])) return false;
  return tsr_gemm_facts_equal(a->gemm, b->gemm, TSR_CLUSTER_DTYPES) &&
         a->memory_bandwidth == b->memory_bandwidth && a->launch_seconds == b->launch_seconds;
}

double tsr_cuts_alone_seconds(const tsr_plan *plan, int member) {
  double seconds = 0;
  for (size_t i = 0; i < plan->graph->node_count; i++) {
    if (plan->decision.rules[i] < 0) continue;
    const tsr_node *node = &plan->graph->nodes[i];
    tsr_shape inputs[TSR_NODE_INPUTS_MAX];
    for (int j = 0; j < node->input_count; j++) inputs[j] = tsr_graph_at(plan->graph, node->inputs[j])->shape;
    seconds += tsr_cost_node(&plan->cluster->members[member], plan->graph, node, inputs,
                             &tsr_graph_at(plan->graph, node->output)->shape, NULL);
  }
  return seconds;
}

uint64_t tsr_plan_usable_bytes(const tsr_plan *plan, int member) {
  const tsr_plan_member *at = &plan->members[member];
  return at->memory_bytes > at->reserve_bytes ? at->memory_bytes - at->reserve_bytes : 0;
}

static const tsr_cluster_member *active_member(const tsr_plan *plan, int r) {
  return &plan->cluster->members[plan->decision.active[r]];
}

static int64_t *offsets_of(const tsr_plan *plan, size_t dim) {
  return plan->decision.offsets + dim * (size_t)(plan->decision.active_count + 1);
}

static bool has_dtype(const tsr_graph *graph, int dtype) {
  for (size_t id = 1; id < graph->value_count; id++)
    if ((int)graph->values[id].dtype == dtype) return true;
  return false;
}

static int64_t common_multiple(int64_t a, int64_t b) {
  int64_t x = a, y = b;
  while (y) {
    int64_t rest = x % y;
    x = y;
    y = rest;
  }
  return a / x * b;
}

/* Channels that must stay together along a dimension: those of a group. */
static int64_t unit_of(const tsr_plan *plan, size_t dim) {
  int64_t unit = 1;
  for (size_t i = 0; i < plan->graph->node_count; i++) {
    const tsr_node *node = &plan->graph->nodes[i];
    if (!tsr_operator_is_conv(node->op) || node->window.groups < 2) continue;
    const tsr_value w = node->op == TSR_OPERATOR_CONV_WEIGHT ? node->output : node->inputs[1];
    if (plan->dims[w.id * TSR_AXES_MAX] == dim)
      unit = common_multiple(unit, tsr_graph_at(plan->graph, w)->shape.extent[0] / node->window.groups);
  }
  return unit;
}

/* Whole register tiles where every member would still get several, single elements otherwise; groups of
 * channels stay together. */
static int64_t grain_of(const tsr_plan *plan, size_t dim) {
  int64_t tile = 1, unit = unit_of(plan, dim);
  if (unit > 1) return unit;
  for (int dtype = 0; dtype < TSR_CLUSTER_DTYPES; dtype++) {
    if (!has_dtype(plan->graph, dtype)) continue;
    for (int r = 0; r < plan->decision.active_count; r++)
      if (active_member(plan, r)->gemm[dtype].tile_n > tile)
        tile = active_member(plan, r)->gemm[dtype].tile_n;
  }
  while (tile > 1 && plan->dim_extents[dim] < 4 * tile * plan->decision.active_count) tile /= 2;
  /* Of a very long dimension, larger grains: no more than a thousand per member. */
  while (plan->dim_extents[dim] / tile > 1024 * (int64_t)plan->decision.active_count) tile *= 2;
  return tile;
}

/* Offsets fixed by a pin on some value's axis of this dimension; NULL = none. */
static const int64_t *pinned_offsets(const tsr_plan *plan, size_t dim) {
  const tsr_graph *graph = plan->graph;
  for (size_t id = 1; id < graph->value_count; id++) {
    const tsr_graph_value *value = &graph->values[id];
    if (!value->pinned || value->pin.on[0].kind != TSR_SHARD || !value->pin_offsets) continue;
    if (plan->dims[id * TSR_AXES_MAX + (size_t)value->pin.on[0].axis] == dim) return value->pin_offsets;
  }
  return NULL;
}

static void set_offsets(const tsr_plan *plan, size_t dim, int64_t grain, const int64_t *shares) {
  int64_t *offsets = offsets_of(plan, dim), grains = 0;
  offsets[0] = 0;
  for (int r = 0; r < plan->decision.active_count; r++) {
    grains += shares[r];
    int64_t end = grains * grain;
    offsets[r + 1] = end < plan->dim_extents[dim] ? end : plan->dim_extents[dim];
  }
}

static int64_t grains_of(const tsr_plan *plan, size_t dim, int64_t grain) {
  return plan->dim_extents[dim] / grain + (plan->dim_extents[dim] % grain != 0);
}

void tsr_cuts_even(tsr_plan *plan) {
  int n = plan->decision.active_count;
  for (size_t dim = 0; dim < plan->dim_count; dim++) {
    if (pinned_offsets(plan, dim)) continue;
    int64_t grain = grain_of(plan, dim), grains = grains_of(plan, dim, grain),
            *offsets = offsets_of(plan, dim);
    for (int r = 0; r < n; r++) {
      int64_t end = (grains / n * (r + 1) + (r + 1 < grains % n ? r + 1 : grains % n)) * grain;
      offsets[r + 1] = end < plan->dim_extents[dim] ? end : plan->dim_extents[dim];
    }
  }
}

bool tsr_cuts_all_alike(const tsr_plan *plan) {
  for (int r = 1; r < plan->decision.active_count; r++)
    if (!tsr_members_alike(active_member(plan, r), active_member(plan, 0))) return false;
  return true;
}

typedef struct remainder {
  double missing;
  int member;
} remainder;

static int larger_first(const void *left, const void *right) {
  const remainder *a = left, *b = right;
  if (a->missing != b->missing) return a->missing < b->missing ? 1 : -1;
  return a->member - b->member;
}

/* Largest remainders; ties go to lower members. */
static tsr_status share_by_weight(int count, const double *weights, int64_t grains, int64_t *shares,
                                  tsr_error *error) {
  double sum = 0;
  int64_t left = grains;
  remainder *remainders = tsr_calloc((size_t)count, sizeof *remainders);
  if (!remainders) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %d shares", count);
  for (int r = 0; r < count; r++) sum += weights[r];
  for (int r = 0; r < count; r++) {
    double wanted = (double)grains * (weights[r] / sum);
    shares[r] = (int64_t)wanted;
    remainders[r] = (remainder){wanted - (double)shares[r], r};
    left -= shares[r];
  }
  qsort(remainders, (size_t)count, sizeof *remainders, larger_first);
  for (int i = 0; left > 0; i = (i + 1) % count, left--) shares[remainders[i].member]++;
  free(remainders);
  return TSR_OK;
}

void tsr_cuts_set_straggling(tsr_plan *plan) {
  double speed = 0, own = 0;
  for (int r = 0; r < plan->decision.active_count; r++) {
    if (!r || !tsr_members_alike(active_member(plan, r), active_member(plan, r - 1)))
      own = tsr_cuts_alone_seconds(plan, plan->decision.active[r]);
    speed += 1 / (own > 1e-12 ? own : 1e-12);
  }
  plan->straggle_seconds = STRAGGLING / speed;
}

static tsr_status check_groups(const tsr_plan *plan, size_t dim, const int64_t *pinned, tsr_error *error) {
  const int64_t unit = unit_of(plan, dim);
  for (int r = 1; r < plan->decision.active_count; r++)
    if (pinned[r] % unit)
      return tsr_fail(
          error, TSR_ERROR_INVALID_ARGUMENT,
          "a pin cuts channels at %lld, inside of a group of %lld of a convolution: pin to multiples of it",
          (long long)pinned[r], (long long)unit);
  return TSR_OK;
}

tsr_status tsr_cuts_begin(tsr_plan *plan, tsr_error *error) {
  tsr_cuts_set_straggling(plan);
  tsr_status status = TSR_OK;
  int n = plan->decision.active_count;
  double *weights = tsr_calloc((size_t)n, sizeof *weights);
  int64_t *shares = tsr_calloc((size_t)n, sizeof *shares);
  if (!weights || !shares) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for %d shares", n);
  for (int r = 0; r < n; r++) {
    bool again = r && tsr_members_alike(active_member(plan, r), active_member(plan, r - 1));
    double seconds = again ? 0 : tsr_cuts_alone_seconds(plan, plan->decision.active[r]);
    weights[r] = again ? weights[r - 1] : 1 / (seconds > 1e-12 ? seconds : 1e-12);
  }
  for (size_t dim = 0; dim < plan->dim_count; dim++) {
    const int64_t *pinned = pinned_offsets(plan, dim);
    int64_t grain = grain_of(plan, dim);
    if (pinned) {
      TSR_TRY(check_groups(plan, dim, pinned, error));
      memcpy(offsets_of(plan, dim), pinned, (size_t)(n + 1) * sizeof *pinned);
      continue;
    }
    TSR_TRY(share_by_weight(n, weights, grains_of(plan, dim, grain), shares, error));
    set_offsets(plan, dim, grain, shares);
  }
done:
  free(weights);
  free(shares);
  return status;
}

/* Shape of what a member holds if its share of `dim` were `length`. */
static tsr_shape shape_at(const tsr_plan *plan, tsr_value value, tsr_place place, int r, size_t dim,
                          int64_t length) {
  tsr_shape shape = tsr_plan_local_shape(plan, value, place, r);
  if (place >= 0 && plan->dims[value.id * TSR_AXES_MAX + (size_t)place] == dim) shape.extent[place] = length;
  return shape;
}

static bool splits(const tsr_plan *plan, tsr_value value, tsr_place place, size_t dim) {
  return place >= 0 && plan->dims[value.id * TSR_AXES_MAX + (size_t)place] == dim;
}

/* Whether a node computed by this rule is split along dim. */
static bool node_splits(const tsr_plan *plan, const tsr_node *node, const tsr_rule *rule, size_t dim) {
  for (int j = 0; j < node->input_count; j++)
    if (splits(plan, node->inputs[j], rule->in[j], dim)) return true;
  return splits(plan, node->output, rule->out, dim);
}

static double node_seconds(const tsr_plan *plan, const tsr_node *node, const tsr_rule *rule, int r,
                           size_t dim, int64_t length) {
  tsr_shape inputs[TSR_NODE_INPUTS_MAX];
  for (int j = 0; j < node->input_count; j++)
    inputs[j] = shape_at(plan, node->inputs[j], rule->in[j], r, dim, length);
  tsr_shape output = shape_at(plan, node->output, rule->out, r, dim, length);
  return tsr_cost_node(active_member(plan, r), plan->graph, node, inputs, &output, NULL);
}

/* Seconds of all steps split along dim, or of one node by one rule, on member r at this share. */
typedef struct split_work {
  const tsr_plan *plan;
  size_t dim;
  int node; /* -1 = every node, by its chosen rule */
  const tsr_rule *rule;
} split_work;

static double work_seconds(const split_work *work, int r, int64_t length) {
  const tsr_plan *plan = work->plan;
  if (work->node >= 0)
    return node_seconds(plan, &plan->graph->nodes[work->node], work->rule, r, work->dim, length);
  double seconds = 0;
  for (size_t i = 0; i < plan->graph->node_count; i++) {
    if (plan->decision.rules[i] < 0) continue;
    const tsr_node *node = &plan->graph->nodes[i];
    tsr_rule rules[TSR_RULES_MAX];
    tsr_operator_rules_of(node->op)->rules(plan->graph, node, rules);
    const tsr_rule *rule = &rules[plan->decision.rules[i]];
    if (node_splits(plan, node, rule, work->dim))
      seconds += node_seconds(plan, node, rule, r, work->dim, length);
  }
  return seconds;
}

/* row[x] = nanoseconds of x grains, x = 0 .. grains, made non-decreasing. */
static void fill_row(const split_work *work, int r, int64_t grain, int64_t grains, int64_t *row) {
  int64_t step = grains > SAMPLES ? (grains + SAMPLES - 1) / SAMPLES : 1,
          extent = work->plan->dim_extents[work->dim];
  for (int64_t x = 0, last = 0;; last = x, x = x + step < grains ? x + step : grains) {
    int64_t length = x * grain < extent ? x * grain : extent;
    row[x] = tsr_cost_nanoseconds(work_seconds(work, r, length));
    if (row[x] < row[last]) row[x] = row[last];
    int64_t rise = work->node < 0 ? row[x] - row[last] : 0; /* of one node, it is to be a lower bound */
    for (int64_t y = last + 1; y < x; y++)
      row[y] = row[last] + (int64_t)((double)rise * (double)(y - last) / (double)(x - last));
    if (x == grains) break;
  }
}

/* Bytes that one element of dim takes on a member, over all memory that is split along it. */
static double bytes_per_element(const tsr_plan *plan, size_t dim) {
  double sum = 0;
  for (int s = 0; s < plan->storage_count; s++) {
    double most = 0;
    for (int b = 0; b < plan->buffer_count; b++) {
      const tsr_plan_buffer *buffer = &plan->buffers[b];
      if (buffer->storage != s || !splits(plan, buffer->value, buffer->place, dim)) continue;
      const tsr_graph_value *value = tsr_graph_at(plan->graph, buffer->value);
      double bytes = (double)tsr_shape_count(&value->shape) * (double)tsr_dtype_bytes(value->dtype) /
                     (double)plan->dim_extents[dim];
      if (bytes > most) most = bytes;
    }
    sum += most;
  }
  return sum;
}

/* How many grains of dim fit member r, everything else as it lies now. */
static int64_t capacity_of(const tsr_plan *plan, size_t dim, int r, int64_t grain, uint64_t short_bytes) {
  double slope = bytes_per_element(plan, dim);
  if (slope <= 0) return INT64_MAX;
  const int64_t *offsets = offsets_of(plan, dim);
  int member = plan->decision.active[r];
  double present = slope * (double)(offsets[r + 1] - offsets[r]);
  double room = (double)tsr_plan_usable_bytes(plan, member) - (double)short_bytes -
                ((double)plan->members[member].bytes - present);
  return room > 0 ? (int64_t)(room / (slope * (double)grain)) : 0;
}

/* All-gathers along dim: what they send grows with the largest share. */
typedef struct gathers {
  double latency;           /* seconds of all of them, empty */
  double seconds_per_grain; /* of the largest share */
} gathers;

/* Between the members that take part. */
static const tsr_link *slowest_link(const tsr_plan *plan) {
  const tsr_cluster *cluster = plan->cluster;
  const tsr_decision *decision = &plan->decision;
  for (int r = 1; r < decision->active_count; r++)
    if (cluster->hosts[decision->active[r]] != cluster->hosts[decision->active[0]])
      return &cluster->links.network;
  return &cluster->links.host;
}

static gathers gathers_along(const tsr_plan *plan, size_t dim, int64_t grain) {
  gathers sum = {0, 0};
  int peers = plan->decision.active_count - 1;
  for (size_t id = 1; id < plan->graph->value_count; id++) {
    const tsr_choice *choice = &plan->decision.choices[id];
    tsr_value value = {(uint32_t)id};
    if (!splits(plan, value, choice->produced, dim) || !tsr_place_in(choice->present, TSR_PLACE_REPLICATE))
      continue;
    const tsr_graph_value *at = tsr_graph_at(plan->graph, value);
    double bytes = (double)tsr_shape_count(&at->shape) * (double)tsr_dtype_bytes(at->dtype);
    const tsr_link *link = slowest_link(plan);
    sum.latency += peers * link->latency;
    sum.seconds_per_grain += peers * bytes / (double)plan->dim_extents[dim] * (double)grain / link->bandwidth;
  }
  return sum;
}

static int64_t gather_nanoseconds(void *user, int64_t largest) {
  const gathers *sum = user;
  return tsr_cost_nanoseconds(sum->latency + sum->seconds_per_grain * (double)largest);
}

/* Rows of all members; members that are alike share one. */
static void fill_rows(const split_work *work, int64_t grain, int64_t grains, int64_t *rows,
                      const int64_t **pointers) {
  const tsr_plan *plan = work->plan;
  for (int r = 0; r < plan->decision.active_count; r++) {
    int same = 0;
    while (same < r && !tsr_members_alike(active_member(plan, same), active_member(plan, r))) same++;
    int64_t *row = rows + (size_t)r * (size_t)(grains + 1);
    pointers[r] = same < r ? pointers[same] : row;
    if (same == r) fill_row(work, r, grain, grains, row);
  }
}

/* Memory is the only thing that counts when it does not suffice: shares in proportion to capacity. */
static tsr_status share_by_capacity(int n, const int64_t *capacity, int64_t grains, int64_t *shares,
                                    tsr_error *error) {
  double *weights = tsr_calloc((size_t)n, sizeof *weights);
  if (!weights) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %d shares", n);
  for (int r = 0; r < n; r++) weights[r] = capacity[r] > 0 ? (double)capacity[r] : 1e-6;
  tsr_status status = share_by_weight(n, weights, grains, shares, error);
  free(weights);
  return status;
}

static tsr_status improve_dimension(tsr_plan *plan, size_t dim, const uint64_t *short_bytes, bool *changed,
                                    bool *fits, tsr_error *error) {
  tsr_status status = TSR_OK;
  int n = plan->decision.active_count;
  int64_t grain = grain_of(plan, dim), grains = grains_of(plan, dim, grain), time;
  int64_t *rows = tsr_calloc((size_t)n * (size_t)(grains + 1), sizeof *rows);
  const int64_t **pointers = tsr_calloc((size_t)n, sizeof *pointers);
  int64_t *capacity = tsr_calloc((size_t)n, sizeof *capacity),
          *shares = tsr_calloc((size_t)n, sizeof *shares);
  int64_t *before = tsr_calloc((size_t)n + 1, sizeof *before);
  if (!rows || !pointers || !capacity || !shares || !before)
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for shares of %lld grains", (long long)grains);
  split_work work = {.plan = plan, .dim = dim, .node = -1};
  fill_rows(&work, grain, grains, rows, pointers);
  for (int r = 0; r < n; r++)
    capacity[r] = capacity_of(plan, dim, r, grain, short_bytes ? short_bytes[r] : 0);
  gathers sum = gathers_along(plan, dim, grain);
  tsr_shares_problem problem = {.member_count = n,
                                .grains = grains,
                                .nanoseconds = pointers,
                                .capacity = capacity,
                                .collective = sum.seconds_per_grain > 0 ? gather_nanoseconds : NULL,
                                .user = &sum};
  if (!tsr_shares_solve(&problem, shares, &time)) {
    *fits = false;
    TSR_TRY(share_by_capacity(n, capacity, grains, shares, error));
  }
  memcpy(before, offsets_of(plan, dim), ((size_t)n + 1) * sizeof *before);
  set_offsets(plan, dim, grain, shares);
  *changed |= memcmp(before, offsets_of(plan, dim), ((size_t)n + 1) * sizeof *before) != 0;
done:
  free(rows);
  free(pointers);
  free(capacity);
  free(shares);
  free(before);
  return status;
}

static bool is_split(const tsr_plan *plan, size_t dim) {
  for (int i = 0; i < plan->buffer_count; i++)
    if (splits(plan, plan->buffers[i].value, plan->buffers[i].place, dim)) return true;
  for (size_t i = 0; i < plan->graph->node_count; i++) {
    tsr_rule rules[TSR_RULES_MAX];
    if (plan->decision.rules[i] < 0) continue;
    const tsr_node *node = &plan->graph->nodes[i];
    tsr_operator_rules_of(node->op)->rules(plan->graph, node, rules);
    if (node_splits(plan, node, &rules[plan->decision.rules[i]], dim)) return true;
  }
  return false;
}

tsr_status tsr_cuts_improve(tsr_plan *plan, const uint64_t *short_bytes, bool *changed, bool *fits,
                            tsr_error *error) {
  *changed = false;
  *fits = true;
  for (size_t dim = 0; dim < plan->dim_count; dim++)
    if (!pinned_offsets(plan, dim) && is_split(plan, dim))
      TSR_RETURN_IF_FAILED(improve_dimension(plan, dim, short_bytes, changed, fits, error));
  return TSR_OK;
}

/* The slowest member's nanoseconds, each with its present share, or all with this one. */
static int64_t slowest(const split_work *work, int64_t length) {
  const tsr_plan *plan = work->plan;
  int64_t most = 0;
  for (int r = 0; r < plan->decision.active_count; r++) {
    const int64_t *offsets = work->dim < plan->dim_count ? offsets_of(plan, work->dim) : NULL;
    int64_t own_length = length < 0 && offsets ? offsets[r + 1] - offsets[r] : length;
    int64_t own = tsr_cost_nanoseconds(work_seconds(work, r, own_length));
    if (own > most) most = own;
  }
  return most;
}

static tsr_status unequal_bound(const split_work *work, int64_t *nanoseconds, tsr_error *error) {
  tsr_status status = TSR_OK;
  const tsr_plan *plan = work->plan;
  int n = plan->decision.active_count;
  int64_t grain = grain_of(plan, work->dim), grains = grains_of(plan, work->dim, grain);
  int64_t *rows = tsr_calloc((size_t)n * (size_t)(grains + 1), sizeof *rows);
  const int64_t **pointers = tsr_calloc((size_t)n, sizeof *pointers);
  int64_t *capacity = tsr_calloc((size_t)n, sizeof *capacity),
          *shares = tsr_calloc((size_t)n, sizeof *shares);
  if (!rows || !pointers || !capacity || !shares)
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for shares of %lld grains", (long long)grains);
  fill_rows(work, grain, grains, rows, pointers);
  for (int r = 0; r < n; r++) capacity[r] = grains;
  tsr_shares_problem problem = {
      .member_count = n, .grains = grains, .nanoseconds = pointers, .capacity = capacity};
  tsr_shares_solve(&problem, shares, nanoseconds);
done:
  free(rows);
  free(pointers);
  free(capacity);
  free(shares);
  return status;
}

tsr_status tsr_cuts_node_bound(const tsr_plan *plan, int node_index, const tsr_rule *rule,
                               int64_t *nanoseconds, tsr_error *error) {
  const tsr_node *node = &plan->graph->nodes[node_index];
  split_work work = {.plan = plan, .node = node_index, .rule = rule};
  while (work.dim < plan->dim_count && !node_splits(plan, node, rule, work.dim)) work.dim++;
  bool split = work.dim < plan->dim_count;
  if (split && !pinned_offsets(plan, work.dim) && !tsr_cuts_all_alike(plan))
    return unequal_bound(&work, nanoseconds, error);
  int64_t length = -1;
  if (split && !pinned_offsets(plan, work.dim)) {
    int64_t grain = grain_of(plan, work.dim), grains = grains_of(plan, work.dim, grain);
    int64_t even = (grains + plan->decision.active_count - 1) / plan->decision.active_count * grain;
    length = even < plan->dim_extents[work.dim] ? even : plan->dim_extents[work.dim];
  }
  *nanoseconds = slowest(&work, length);
  return TSR_OK;
}
