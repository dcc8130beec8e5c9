/* The decision: which members take part, where dimensions are cut, in which layouts values exist.
 *
 * For each candidate set of active members: cuts by speed, then in turn the cheapest layouts for these cuts
 * and the best cuts for these layouts, until nothing moves. What does not fit its memory gets its cuts from
 * what is there, and, if that does not suffice, memory gets a price until a plan fits. The best candidate by
 * predicted time wins; where it is not proven exact, each parameter is tried in each other layout as well.
 * Members without a type that the graph needs take no part. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "plan/buffers.h"
#include "plan/chunks.h"
#include "plan/cuts.h"
#include "plan/decide.h"
#include "plan/factors.h"
#include "plan/plan.h"
#include "plan/search.h"

enum { ROUNDS_MAX = 4, SQUEEZES_MAX = 8, SMALL_GROUP = 16, DEVICES_MAX = 256, PRICES = 7 };

/* Nanoseconds per byte, tried in this order; the last makes memory all that counts. */
static const double prices[PRICES] = {1e-4, 1e-3, 1e-2, 1e-1, 1, 1e2, 1e6};

static tsr_status allocate(tsr_plan *plan, tsr_error *error) {
  tsr_decision *decision = &plan->decision;
  size_t members = (size_t)plan->cluster->member_count;
  decision->dim_count = plan->dim_count;
  decision->value_count = plan->graph->value_count;
  decision->active = tsr_calloc(members, sizeof *decision->active);
  decision->offsets = tsr_calloc(plan->dim_count * (members + 1), sizeof *decision->offsets);
  decision->choices = tsr_calloc(plan->graph->value_count, sizeof *decision->choices);
  decision->rules = tsr_calloc(plan->graph->node_count, sizeof *decision->rules);
  decision->chunks = tsr_calloc(plan->graph->value_count, sizeof *decision->chunks);
  if (!decision->active || !decision->offsets || !decision->choices || !decision->rules || !decision->chunks)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a decision");
  return TSR_OK;
}

/* Nodes that reach no output and no assign have no rule. */
static tsr_status mark_live(tsr_plan *plan, tsr_error *error) {
  const tsr_graph *graph = plan->graph;
  bool *wanted = tsr_calloc(graph->value_count, sizeof *wanted);
  if (!wanted)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %zu values", graph->value_count);
  for (size_t id = 1; id < graph->value_count; id++) {
    if (graph->values[id].output) wanted[id] = true;
    if (graph->values[id].assigned.id) wanted[graph->values[id].assigned.id] = true;
  }
  for (size_t i = graph->node_count; i-- > 0;) {
    const tsr_node *node = &graph->nodes[i];
    plan->decision.rules[i] = wanted[node->output.id] ? 0 : -1;
    for (int j = 0; wanted[node->output.id] && j < node->input_count; j++) wanted[node->inputs[j].id] = true;
  }
  free(wanted);
  return TSR_OK;
}

/* How a candidate did. */
typedef struct outcome {
  bool allowed; /* some assignment of layouts exists */
  bool fits;
  bool exact; /* the layout search was */
  double seconds;
  int64_t searched; /* the layout search's own cost */
} outcome;

/* A buffer of which some active member (*r) cannot allocate a single row or panel, of *needed bytes; NULL
 * with *needed above 0: the workspace; with 0: none. */
static const tsr_plan_buffer *find_uncuttable(const tsr_plan *plan, int *r, int64_t *needed) {
  int workspace = tsr_plan_workspace(plan);
  for (*r = 0; *r < plan->decision.active_count; ++*r) {
    for (int b = 0; b < plan->buffer_count; b++) {
      const tsr_plan_buffer *buffer = &plan->buffers[b];
      tsr_shape shape = tsr_plan_local_shape(plan, buffer->value, buffer->place, *r);
      int64_t rows, cols, units;
      int pieces;
      tsr_shape_matrix(&shape, &rows, &cols);
      if (!tsr_plan_pieces(plan, *r, tsr_plan_buffer_panel(plan, buffer, *r),
                           tsr_graph_at(plan->graph, buffer->value)->dtype, rows, cols, &units, needed,
                           &pieces))
        return buffer;
    }
    *needed = workspace < 0 ? 0 : plan->storages[workspace].bytes[*r];
    if ((uint64_t)*needed > plan->cluster->members[plan->decision.active[*r]].max_allocation_bytes)
      return NULL;
  }
  *needed = 0;
  return NULL;
}

static bool fits_memory(const tsr_plan *plan, uint64_t *short_bytes) {
  bool fits = true;
  int64_t uncuttable;
  for (int r = 0; r < plan->decision.active_count; r++) {
    int member = plan->decision.active[r];
    uint64_t usable = tsr_plan_usable_bytes(plan, member);
    if (plan->members[member].bytes <= usable) continue;
    fits = false;
    if (short_bytes) short_bytes[r] += plan->members[member].bytes - usable;
  }
  int ignored;
  find_uncuttable(plan, &ignored, &uncuttable);
  return fits && !uncuttable;
}

bool tsr_plan_fits(const tsr_plan *plan) {
  return fits_memory(plan, NULL);
}

/* Cuts that follow memory where the first ones did not fit: what was missing is taken off, again and again.
 */
static tsr_status squeeze(tsr_plan *plan, bool *fits, tsr_error *error) {
  tsr_status status = TSR_OK;
  uint64_t *short_bytes = tsr_calloc((size_t)plan->decision.active_count, sizeof *short_bytes);
  if (!short_bytes)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %d shares", plan->decision.active_count);
  *fits = fits_memory(plan, NULL);
  for (int i = 0; i < SQUEEZES_MAX && !*fits; i++) {
    bool changed, enough;
    TSR_TRY(tsr_cuts_improve(plan, short_bytes, &changed, &enough, error));
    TSR_TRY(tsr_plan_lower(plan, error));
    *fits = fits_memory(plan, short_bytes);
  }
done:
  free(short_bytes);
  return status;
}

/* Pinned offsets are for a certain number of members. */
static bool pins_fit(const tsr_plan *plan) {
  for (size_t id = 1; id < plan->graph->value_count; id++)
    if (plan->graph->values[id].pin_offsets &&
        plan->graph->values[id].pin_parts != plan->decision.active_count)
      return false;
  return true;
}

/* Chunks come last: layouts and cuts are found without. */
static tsr_status cut_products(tsr_plan *plan, bool fits, tsr_error *error) {
  if (!tsr_plan_choose_chunks(plan)) return TSR_OK;
  TSR_RETURN_IF_FAILED(tsr_plan_lower(plan, error));
  if (!fits || fits_memory(plan, NULL)) return TSR_OK;
  tsr_plan_drop_chunks(plan); /* small products may want more workspace */
  return tsr_plan_lower(plan, error);
}

static tsr_status try_active(tsr_plan *plan, const tsr_search_options *options, outcome *out,
                             tsr_error *error) {
  *out = (outcome){.exact = true};
  if (!pins_fit(plan)) return TSR_OK;
  tsr_plan_drop_chunks(plan);
  TSR_RETURN_IF_FAILED(tsr_cuts_begin(plan, error));
  for (int round = 0; round < ROUNDS_MAX; round++) {
    bool changed, enough;
    TSR_RETURN_IF_FAILED(tsr_plan_search(plan, options, &out->searched, &out->exact, error));
    if (out->searched >= TSR_COST_FORBIDDEN) return TSR_OK;
    TSR_RETURN_IF_FAILED(tsr_plan_lower(plan, error));
    TSR_RETURN_IF_FAILED(tsr_cuts_improve(plan, NULL, &changed, &enough, error));
    if (!changed) break;
    TSR_RETURN_IF_FAILED(tsr_plan_lower(plan, error));
  }
  out->allowed = true;
  TSR_RETURN_IF_FAILED(squeeze(plan, &out->fits, error));
  TSR_RETURN_IF_FAILED(cut_products(plan, out->fits, error));
  out->seconds = plan->predicted_seconds;
  return TSR_OK;
}

/* A copy of the arrays of a decision, into arrays of the same capacity. */
static void copy_decision(const tsr_plan *plan, tsr_decision *to, const tsr_decision *from) {
  size_t members = (size_t)plan->cluster->member_count;
  to->active_count = from->active_count;
  memcpy(to->active, from->active, members * sizeof *to->active);
  memcpy(to->offsets, from->offsets, plan->dim_count * (members + 1) * sizeof *to->offsets);
  memcpy(to->choices, from->choices, plan->graph->value_count * sizeof *to->choices);
  memcpy(to->rules, from->rules, plan->graph->node_count * sizeof *to->rules);
  memcpy(to->chunks, from->chunks, plan->graph->value_count * sizeof *to->chunks);
}

/* Whether a member's device computes in every type that the graph needs; those that do not are excluded. */
static bool computes(const tsr_plan *plan, int member) {
  for (size_t i = 0; i < plan->graph->node_count; i++) {
    if (plan->decision.rules[i] < 0) continue;
    const tsr_node *node = &plan->graph->nodes[i];
    const tsr_gemm_facts *gemm = plan->cluster->members[member].gemm;
    if (gemm[tsr_graph_at(plan->graph, node->output)->dtype].family == TSR_GEMM_NONE) return false;
    if (node->op == TSR_OPERATOR_MATMUL && gemm[tsr_matmul_dtype(plan->graph, node)].family == TSR_GEMM_NONE)
      return false;
  }
  return true;
}

/* Members that can take part by speed on the whole graph, the fastest first; alike ones by memory, then by
 * number. Returns how many. */
static int order_members(const tsr_plan *plan, double *seconds, int *order) {
  int count = 0;
  for (int i = 0; i < plan->cluster->member_count; i++) {
    bool again = i && tsr_members_alike(&plan->cluster->members[i], &plan->cluster->members[i - 1]);
    seconds[i] = again ? seconds[i - 1] : tsr_cuts_alone_seconds(plan, i);
    if (!computes(plan, i)) continue;
    int place = count++;
    for (; place; place--) {
      int other = order[place - 1];
      bool slower = seconds[other] > seconds[i] ||
                    (seconds[other] == seconds[i] &&
                     plan->cluster->members[other].memory_bytes < plan->cluster->members[i].memory_bytes);
      if (!slower) break;
      order[place] = other;
    }
    order[place] = i;
  }
  return count;
}

/* The `count` fastest members, ascending by number. */
static void set_active(tsr_plan *plan, const int *order, int count) {
  plan->decision.active_count = 0;
  for (int i = 0; i < plan->cluster->member_count; i++)
    for (int j = 0; j < count; j++)
      if (order[j] == i) plan->decision.active[plan->decision.active_count++] = i;
}

static bool has_offset_pins(const tsr_graph *graph) {
  for (size_t id = 1; id < graph->value_count; id++)
    if (graph->values[id].pinned && graph->values[id].pin_offsets) return true;
  return false;
}

/* The next smaller number of members worth a try. */
static int next_size(int size) {
  return size <= SMALL_GROUP ? size - 1 : size / 2;
}

/* Tries every candidate set under one price; the best that fits (or, if none does, the last that is allowed
 * with all members) stays in `best`. */
static tsr_status try_sizes(tsr_plan *plan, const int *order, int able, const tsr_search_options *options,
                            tsr_decision *best, outcome *result, tsr_error *error) {
  bool all = plan->options.keep_all || has_offset_pins(plan->graph);
  *result = (outcome){0};
  for (int size = able; size >= 1; size = next_size(size)) {
    outcome own;
    set_active(plan, order, size);
    TSR_RETURN_IF_FAILED(try_active(plan, options, &own, error));
    bool better = own.allowed && (!result->allowed || (own.fits && !result->fits) ||
                                  (own.fits == result->fits && own.fits && own.seconds < result->seconds));
    if (better) {
      *result = own;
      copy_decision(plan, best, &plan->decision);
    }
    if (all) break;
  }
  return TSR_OK;
}

/* Cheapest rule of each node, whatever the layouts: a bound that always holds. */
static int64_t sum_of_cheapest(const tsr_plan *plan, const int64_t *costs) {
  int64_t sum = 0;
  for (size_t i = 0; i < plan->graph->node_count; i++) {
    tsr_rule rules[TSR_RULES_MAX];
    if (plan->decision.rules[i] < 0) continue;
    const tsr_node *node = &plan->graph->nodes[i];
    int count = tsr_operator_rules_of(node->op)->rules(plan->graph, node, rules);
    int64_t least = costs[i * TSR_RULES_MAX];
    for (int k = 1; k < count; k++)
      if (costs[i * TSR_RULES_MAX + (size_t)k] < least) least = costs[i * TSR_RULES_MAX + (size_t)k];
    sum += least;
  }
  return sum;
}

/* A lower bound of what any plan with these active members costs step by step: the layout search, each node
 * at its own best shares, each collective at even ones. */
static tsr_status lower_bound(tsr_plan *plan, int64_t *bound, tsr_error *error) {
  tsr_status status = TSR_OK;
  const tsr_graph *graph = plan->graph;
  tsr_decision kept = plan->decision;
  size_t offset_count = plan->dim_count * ((size_t)kept.active_count + 1);
  int64_t *costs = tsr_calloc(graph->node_count * TSR_RULES_MAX, sizeof *costs);
  tsr_choice *choices = tsr_calloc(graph->value_count, sizeof *choices);
  int *rules = tsr_calloc(graph->node_count, sizeof *rules);
  int64_t *offsets = tsr_calloc(offset_count, sizeof *offsets);
  if (!costs || !choices || !rules || !offsets)
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for %zu nodes", graph->node_count);
  memcpy(rules, kept.rules, graph->node_count * sizeof *rules);
  memcpy(offsets, kept.offsets, offset_count * sizeof *offsets);
  for (size_t i = 0; i < graph->node_count; i++) {
    tsr_rule found[TSR_RULES_MAX];
    if (kept.rules[i] < 0) continue;
    int count = tsr_operator_rules_of(graph->nodes[i].op)->rules(graph, &graph->nodes[i], found);
    for (int k = 0; k < count; k++)
      TSR_TRY(tsr_cuts_node_bound(plan, (int)i, &found[k], &costs[i * TSR_RULES_MAX + (size_t)k], error));
  }
  bool exact;
  plan->decision.choices = choices;
  plan->decision.rules = rules;
  plan->decision.offsets = offsets;
  tsr_cuts_even(plan);
  tsr_search_options options = {.node_costs = costs};
  TSR_TRY(tsr_plan_search(plan, &options, bound, &exact, error));
  plan->decision = kept;
  if (!exact) *bound = sum_of_cheapest(plan, costs);
done:
  plan->decision = kept;
  free(costs);
  free(choices);
  free(rules);
  free(offsets);
  return status;
}

/* How far the plan may be from the best one. */
static tsr_status judge(tsr_plan *plan, const outcome *result, double price, tsr_error *error) {
  int64_t bound = 0, cost = tsr_plan_layout_cost(plan);
  TSR_RETURN_IF_FAILED(lower_bound(plan, &bound, error));
  plan->exact = cost <= bound;
  plan->gap = plan->exact ? 0 : (double)(cost - bound) / (double)(bound > 0 ? bound : 1);
  if (!plan->exact)
    snprintf(plan->reason, sizeof plan->reason, "%s; at most %.1f %% from the best plan with these members",
             !result->exact             ? "the layout search was cut short"
             : price > 0                ? "memory is short, so layouts were chosen that need less of it"
             : tsr_cuts_all_alike(plan) ? "shares are whole tiles, or follow memory"
                                        : "unequal members share one set of cuts between several products",
             100 * plan->gap);
  return TSR_OK;
}

/* Whether `devices` members like `model` hold the graph; *most = bytes of the one that needs most. */
static tsr_status fits_on(const tsr_plan *plan, int model, int devices, bool *fits, uint64_t *most,
                          tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_plan trial = {.context = plan->context,
                    .graph = plan->graph,
                    .options = plan->options,
                    .dims = plan->dims,
                    .dim_extents = plan->dim_extents,
                    .dim_count = plan->dim_count};
  outcome result;
  tsr_search_options options = {.price = prices[PRICES - 1]};
  *fits = false;
  TSR_TRY(tsr_cluster_create(plan->context, devices, &trial.cluster, error));
  trial.cluster->links = plan->cluster->links;
  for (int i = 0; i < devices; i++) trial.cluster->members[i] = plan->cluster->members[model];
  trial.members = tsr_calloc((size_t)devices, sizeof *trial.members);
  if (!trial.members) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for %d members", devices);
  TSR_TRY(allocate(&trial, error));
  TSR_TRY(mark_live(&trial, error));
  trial.decision.active_count = devices;
  for (int i = 0; i < devices; i++) trial.decision.active[i] = i;
  TSR_TRY(try_active(&trial, &options, &result, error));
  *fits = result.allowed && result.fits;
  *most = 0;
  for (int i = 0; result.allowed && i < devices; i++)
    if (trial.members[i].bytes > *most) *most = trial.members[i].bytes;
done:
  tsr_plan_release(&trial);
  return status;
}

/* The least number of devices like the largest one that would do; 0 = none will, -1 = more than DEVICES_MAX.
 */
static tsr_status devices_needed(const tsr_plan *plan, int *model, int *devices, tsr_error *error) {
  *model = *devices = 0;
  for (int i = 1; i < plan->cluster->member_count; i++)
    if (plan->cluster->members[i].memory_bytes > plan->cluster->members[*model].memory_bytes) *model = i;
  if (has_offset_pins(plan->graph)) return TSR_OK; /* they are for this number of members */
  int low = 0, high = 1;
  bool shrinks = true;
  uint64_t before = 0, usable = tsr_plan_usable_bytes(plan, *model);
  for (;; high *= 2) {
    bool fits;
    uint64_t most;
    if (high > DEVICES_MAX) *devices = shrinks ? -1 : 0;
    if (high > DEVICES_MAX) return TSR_OK;
    TSR_RETURN_IF_FAILED(fits_on(plan, *model, high, &fits, &most, error));
    if (fits) break;
    shrinks = most < before || !before;
    /* What halves is split over the members, what stays is on each of them. */
    if (high > 4 && most > usable && before < 2 * most && 2 * most - before > usable) return TSR_OK;
    before = most;
    low = high;
  }
  while (high - low > 1) {
    bool fits;
    uint64_t most;
    int middle = low + (high - low) / 2;
    TSR_RETURN_IF_FAILED(fits_on(plan, *model, middle, &fits, &most, error));
    *(fits ? &high : &low) = middle;
  }
  *devices = high;
  return TSR_OK;
}

static void describe_lines(const tsr_plan *plan, char *buffer, size_t bytes) {
  size_t used = 0;
  *buffer = 0;
  for (int line = 0; line < TSR_MEMORY_LINES; line++) {
    uint64_t sum = 0;
    char text[16];
    for (int i = 0; i < plan->cluster->member_count; i++) sum += plan->members[i].lines[line];
    if (!sum || used >= bytes) continue;
    used +=
        (size_t)snprintf(buffer + used, bytes - used, "%s%s %s", used ? ", " : "",
                         tsr_memory_line_name((tsr_memory_line)line), tsr_format_bytes(text, (double)sum));
  }
}

/* What stands in the way, of the member that lacks most: bytes, or one allocation. */
static void describe_obstacle(const tsr_plan *plan, char *buffer, size_t bytes) {
  uint64_t worst = 0;
  int worst_member = 0, r;
  *buffer = 0;
  for (int i = 0; i < plan->cluster->member_count; i++) {
    uint64_t own = tsr_plan_usable_bytes(plan, i);
    if (plan->members[i].bytes <= own || plan->members[i].bytes - own <= worst) continue;
    worst = plan->members[i].bytes - own;
    worst_member = i;
  }
  if (worst) {
    snprintf(buffer, bytes, "; rank %d is short by %llu byte%s", worst_member, (unsigned long long)worst,
             worst == 1 ? "" : "s");
    return;
  }
  int64_t needed;
  const tsr_plan_buffer *buffer_found = find_uncuttable(plan, &r, &needed);
  if (!needed) return;
  int member = plan->decision.active[r];
  const tsr_graph_value *value = buffer_found ? tsr_graph_at(plan->graph, buffer_found->value) : NULL;
  snprintf(buffer, bytes, "; rank %d allocates at most %llu bytes at once, %s%.40s takes %lld", member,
           (unsigned long long)plan->cluster->members[member].max_allocation_bytes,
           value ? "a row or panel of " : "workspace",
           !value        ? ""
           : value->name ? value->name
                         : "a result",
           (long long)needed);
}

/* The refusal, in numbers. */
static tsr_status explain_refusal(tsr_plan *plan, tsr_error *error) {
  uint64_t need = 0, usable = 0, there = 0;
  int model, devices, n = plan->cluster->member_count;
  for (int i = 0; i < n; i++) {
    need += plan->members[i].bytes;
    usable += tsr_plan_usable_bytes(plan, i);
    there += plan->members[i].memory_bytes;
  }
  TSR_RETURN_IF_FAILED(devices_needed(plan, &model, &devices, error));
  char a[16], b[16], c[16], d[16], lines[200], obstacle[160],
      would[96] = "no number of such devices would do";
  describe_lines(plan, lines, sizeof lines);
  describe_obstacle(plan, obstacle, sizeof obstacle);
  if (devices < 0)
    snprintf(would, sizeof would, "more than %d such devices would be needed", DEVICES_MAX);
  else if (devices)
    snprintf(would, sizeof would, "%d such device%s (%s each) would do", devices, devices > 1 ? "s" : "",
             tsr_format_bytes(a, (double)plan->cluster->members[model].memory_bytes));
  else if (has_offset_pins(plan->graph))
    snprintf(would, sizeof would, "pinned offsets leave no choice");
  snprintf(plan->reason, sizeof plan->reason,
           "%s needed (%s) on %d device%s, %s there (%s usable beside the reserve)%s; %s",
           tsr_format_bytes(b, (double)need), lines, n, n > 1 ? "s" : "", tsr_format_bytes(c, (double)there),
           tsr_format_bytes(d, (double)usable), obstacle, would);
  return TSR_OK;
}

/* The cheapest plan, and the least price of memory under which one fits. A refusal is quick: where not even
 * the highest price helps, the others are not tried. */
static tsr_status try_prices(tsr_plan *plan, const int *order, int able, tsr_search_options options,
                             tsr_decision *best, outcome *result, double *price, tsr_error *error) {
  *price = options.price = 0;
  TSR_RETURN_IF_FAILED(try_sizes(plan, order, able, &options, best, result, error));
  if (!result->allowed || result->fits) return TSR_OK;
  *price = options.price = prices[PRICES - 1];
  TSR_RETURN_IF_FAILED(try_sizes(plan, order, able, &options, best, result, error));
  bool helps = result->fits;
  for (int i = 0; helps && i < PRICES; i++) {
    *price = options.price = prices[i];
    TSR_RETURN_IF_FAILED(try_sizes(plan, order, able, &options, best, result, error));
    if (result->fits) break;
  }
  return TSR_OK;
}

/* Where unequal members make the search a heuristic, each parameter is tried in each other layout too, so
 * that no single change makes a plan better. */
static tsr_status try_placements(tsr_plan *plan, outcome *result, tsr_decision *best, tsr_error *error) {
  const tsr_graph *graph = plan->graph;
  for (size_t id = 1; id < graph->value_count; id++) {
    tsr_value value = {(uint32_t)id};
    if (graph->values[id].kind != TSR_PARAMETER || graph->values[id].shape.axes < 2) continue;
    for (tsr_place place = TSR_PLACE_REPLICATE; place < graph->values[id].shape.axes; place++) {
      outcome own;
      tsr_search_options options = {.forced = value, .forced_place = place};
      if (best->choices[id].produced == place) continue;
      TSR_RETURN_IF_FAILED(try_active(plan, &options, &own, error));
      if (!own.allowed || !own.fits || own.seconds >= result->seconds) continue;
      *result = own;
      copy_decision(plan, best, &plan->decision);
    }
  }
  copy_decision(plan, &plan->decision, best);
  tsr_cuts_set_straggling(plan);
  TSR_RETURN_IF_FAILED(tsr_plan_lower(plan, error));
  return judge(plan, result, 0, error);
}

tsr_status tsr_plan_decide_with(tsr_plan *plan, tsr_search_options options, tsr_error *error) {
  tsr_status status = TSR_OK;
  size_t members = (size_t)plan->cluster->member_count;
  outcome result;
  tsr_plan best = {.cluster = plan->cluster, .graph = plan->graph, .dim_count = plan->dim_count};
  int *order = tsr_calloc(members, sizeof *order);
  double *seconds = tsr_calloc(members, sizeof *seconds);
  if (!order || !seconds) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for %zu members", members);
  TSR_TRY(allocate(plan, error));
  TSR_TRY(allocate(&best, error));
  TSR_TRY(mark_live(plan, error));
  int able = order_members(plan, seconds, order);
  if (!able || (able < plan->cluster->member_count && has_offset_pins(plan->graph)))
    TSR_THROW(TSR_ERROR_UNSUPPORTED, "%d of %d devices compute in the types of this graph%s", able,
              plan->cluster->member_count,
              able ? "; pins with offsets need all of them"
                   : ": choose another dtype, or measure the cluster again");
  double price;
  TSR_TRY(try_prices(plan, order, able, options, &best.decision, &result, &price, error));
  if (!result.allowed)
    TSR_THROW(TSR_ERROR_INFEASIBLE, "no layout is allowed: pins and --replicate contradict each other");
  copy_decision(plan, &plan->decision, &best.decision);
  tsr_cuts_set_straggling(plan);
  TSR_TRY(tsr_plan_lower(plan, error));
  plan->feasible = result.fits;
  plan->reason[0] = 0;
  if (result.fits) TSR_TRY(judge(plan, &result, price, error));
  if (result.fits && price == 0 && !plan->exact && !options.forced.id && !options.replicate_all)
    TSR_TRY(try_placements(plan, &result, &best.decision, error));
  if (!result.fits) TSR_TRY(explain_refusal(plan, error));
done:
  tsr_decision_finish(&best.decision);
  free(order);
  free(seconds);
  return status;
}

tsr_status tsr_plan_decide(tsr_plan *plan, tsr_error *error) {
  return tsr_plan_decide_with(plan, (tsr_search_options){0}, error);
}
