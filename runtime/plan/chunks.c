#include "plan/chunks.h"

#include <string.h>

#include "plan/buffers.h"
#include "plan/cost.h"

/* Boundaries fall on multiples of this where chunks are long enough: whole tiles, and aligned parts of a
 * buffer. */
enum { CHUNK_GRAIN = 64 };
/* What cutting must gain of a product and its reduction: figures are no better than that. */
static const double GAIN_LEAST = 0.03;
static const int candidates[] = {2, 4, 8};

/* ---- which rows ---- */

static int64_t boundary(int64_t rows, int chunk, int chunks) {
  int64_t grain = rows >= (int64_t)CHUNK_GRAIN * chunks ? CHUNK_GRAIN : 1;
  return chunk == chunks ? rows : rows / chunks * chunk / grain * grain;
}

static bool scatters_rows(const tsr_step *step) {
  return step->chunk_to == 0;
}

int tsr_plan_chunk_ranges(const tsr_plan *plan, const tsr_step *step) {
  return scatters_rows(step) ? plan->decision.active_count : 1;
}

void tsr_plan_chunk_range(const tsr_plan *plan, const tsr_step *step, int range, int64_t *begin,
                          int64_t *end) {
  int64_t first, last;
  tsr_plan_range(plan, step->value, step->chunk_to, 0, range, &first, &last);
  *begin = first + boundary(last - first, step->chunk, step->chunks);
  *end = first + boundary(last - first, step->chunk + 1, step->chunks);
}

void tsr_plan_chunk_result(const tsr_plan *plan, const tsr_step *step, int active_index, int64_t *begin,
                           int64_t *end) {
  int64_t first = 0, last;
  if (scatters_rows(step)) tsr_plan_range(plan, step->value, step->chunk_to, 0, active_index, &first, &last);
  tsr_plan_chunk_range(plan, step, scatters_rows(step) ? active_index : 0, begin, end);
  *begin -= first;
  *end -= first;
}

static int64_t chunk_rows(const tsr_plan *plan, const tsr_step *step) {
  int64_t rows = 0, begin, end;
  for (int i = 0; i < tsr_plan_chunk_ranges(plan, step); i++) {
    tsr_plan_chunk_range(plan, step, i, &begin, &end);
    rows += end - begin;
  }
  return rows;
}

void tsr_plan_chunk_shapes(const tsr_plan *plan, const tsr_step *step, tsr_shape *inputs, tsr_shape *output) {
  if (step->chunks < 2) return;
  int64_t rows = chunk_rows(plan, step);
  inputs[0].extent[plan->graph->nodes[step->node].transpose_a] = rows;
  output->extent[0] = rows;
}

/* ---- how many ---- */

/* Whether a node reads the value as its product makes it. */
static bool is_read(const tsr_plan *plan, tsr_value value, tsr_place place) {
  const tsr_graph *graph = plan->graph;
  for (size_t i = 0; i < graph->node_count; i++)
    for (int j = 0; plan->decision.rules[i] >= 0 && j < graph->nodes[i].input_count; j++)
      if (graph->nodes[i].inputs[j].id == value.id && tsr_plan_rule(plan, (int)i).in[j] == place) return true;
  return false;
}

static bool in_one_piece(const tsr_plan *plan, tsr_value value, tsr_place place) {
  tsr_dtype dtype = tsr_graph_at(plan->graph, value)->dtype;
  for (int r = 0; r < plan->decision.active_count; r++) {
    tsr_shape shape = tsr_plan_local_shape(plan, value, place, r);
    int64_t rows, cols, units, unit_bytes;
    int pieces;
    tsr_shape_matrix(&shape, &rows, &cols);
    if (!tsr_plan_pieces(plan, r, 0, dtype, rows, cols, &units, &unit_bytes, &pieces) || pieces > 1)
      return false;
  }
  return true;
}

/* The value is made by a product, with an epilogue or without, and goes into one reduction. */
static bool can_cut(const tsr_plan *plan, const tsr_step *node, const tsr_step *convert) {
  tsr_value value = node->value;
  if (node->kind != TSR_STEP_NODE || convert->kind != TSR_STEP_CONVERT || convert->value.id != value.id)
    return false;
  const tsr_node *product = &plan->graph->nodes[node->node];
  if (product->op != TSR_OPERATOR_MATMUL || product->beta != 0) return false;
  if (convert->from >= TSR_PLACE_REPLICATE || tsr_graph_at(plan->graph, value)->shape.axes != 2) return false;
  if (convert->to == 0 && plan->decision.active_count > TSR_CHUNK_RANGES_MAX) return false;
  if (plan->decision.choices[value.id].present != (tsr_place_bit(convert->from) | tsr_place_bit(convert->to)))
    return false;
  return !tsr_plan_is_panels(plan, value) && in_one_piece(plan, value, convert->from) &&
         in_one_piece(plan, value, convert->to) && !is_read(plan, value, convert->from);
}

int tsr_plan_chunks_of(const tsr_plan *plan, const tsr_step *node, const tsr_step *convert) {
  int chunks = plan->decision.chunks[node->value.id];
  int64_t rows = tsr_graph_at(plan->graph, node->value)->shape.extent[0];
  if (chunks > rows) chunks = (int)rows;
  return chunks > 1 && can_cut(plan, node, convert) ? chunks : 1;
}

/* The slowest member's time of one chunk of a product, and its collective's. */
static void chunk_seconds(const tsr_plan *plan, const tsr_step *node, const tsr_step *convert, int chunks,
                          double *product, double *reduction) {
  tsr_step first = *node, second = *convert;
  first.chunks = second.chunks = chunks;
  first.chunk_to = second.chunk_to = convert->to;
  *product = 0;
  for (int r = 0; r < plan->decision.active_count; r++) {
    double seconds = tsr_plan_step_cost(plan, &first, r).seconds;
    if (seconds > *product) *product = seconds;
  }
  *reduction = tsr_plan_step_cost(plan, &second, 0).seconds;
}

/* From the product's beginning until the step that waits for the reduction may begin, with `behind` seconds
 * of other work between them; the last chunk's reduction has that and nothing else to hide behind. */
static double pipelined(double product, double reduction, int chunks, double behind) {
  double device = 0, network = 0;
  for (int i = 0; i < chunks; i++) {
    device += product;
    network = (network > device ? network : device) + reduction;
  }
  device += behind;
  return network > device ? network : device;
}

/* Seconds of the steps that run before somebody waits for the CONVERT. */
static double work_behind(const tsr_plan *plan, int convert) {
  double seconds = 0;
  for (int i = convert + 1; i < plan->step_count && plan->steps[i].waits_for < convert; i++)
    if (plan->steps[i].kind != TSR_STEP_CONVERT) seconds += plan->steps[i].seconds;
  return seconds;
}

static int best_chunks(const tsr_plan *plan, const tsr_step *node, int convert) {
  double product, reduction, behind = work_behind(plan, convert);
  chunk_seconds(plan, node, &plan->steps[convert], 1, &product, &reduction);
  double whole = pipelined(product, reduction, 1, behind);
  int64_t least = tsr_cost_nanoseconds(whole - GAIN_LEAST * (product + reduction));
  int best = 1;
  for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
    chunk_seconds(plan, node, &plan->steps[convert], candidates[i], &product, &reduction);
    int64_t cost = tsr_cost_nanoseconds(pipelined(product, reduction, candidates[i], behind));
    if (cost >= least) continue;
    least = cost;
    best = candidates[i];
  }
  return best;
}

/* The step whose value a CONVERT takes; -1 = a leaf's. */
static int maker_of(const tsr_plan *plan, int convert) {
  for (int i = convert - 1; i >= 0; i--)
    if (plan->steps[i].kind == TSR_STEP_NODE && plan->steps[i].value.id == plan->steps[convert].value.id)
      return i;
  return -1;
}

void tsr_plan_drop_chunks(tsr_plan *plan) {
  memset(plan->decision.chunks, 0, plan->graph->value_count * sizeof *plan->decision.chunks);
}

bool tsr_plan_choose_chunks(tsr_plan *plan) {
  bool cut = false;
  for (int i = 0; plan->options.chunks != 1 && i < plan->step_count; i++) {
    int node = plan->steps[i].kind == TSR_STEP_CONVERT ? maker_of(plan, i) : -1;
    if (node < 0 || !can_cut(plan, &plan->steps[node], &plan->steps[i])) continue;
    int chunks = plan->options.chunks ? plan->options.chunks : best_chunks(plan, &plan->steps[node], i);
    plan->decision.chunks[plan->steps[i].value.id] = (uint8_t)chunks;
    cut |= chunks > 1;
  }
  return cut;
}
