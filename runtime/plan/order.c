#include "plan/order.h"

#include <string.h>

#include "base/memory.h"
#include "plan/buffers.h"
#include "plan/chunks.h"

/* How far a step may move ahead of one that could go first. */
enum { WINDOW = 16, PLACES = TSR_AXES_MAX - TSR_PLACE_MAX };

int tsr_plan_step_reads(const tsr_plan *plan, const tsr_step *step, tsr_use *out) {
  int count = 0;
  if (step->kind != TSR_STEP_NODE) {
    out[count++] = (tsr_use){step->value, step->from};
    return count;
  }
  const tsr_node *node = &plan->graph->nodes[step->node];
  tsr_rule rule = tsr_plan_rule(plan, step->node);
  for (int j = 0; j < node->input_count; j++) out[count++] = (tsr_use){node->inputs[j], rule.in[j]};
  for (int f = 0; f < step->fused_count; f++) {
    const tsr_fused *fused = &step->fused[f];
    if (fused->operand < 0) continue;
    out[count++] = (tsr_use){plan->graph->nodes[fused->node].inputs[fused->operand],
                             tsr_plan_rule(plan, fused->node).in[fused->operand]};
  }
  return count;
}

/* ---- order ---- */

typedef struct uses {
  int count;
  tsr_use of[TSR_USES_MAX];
} uses;

typedef struct edge {
  int before, after;
} edge;

typedef struct ordering {
  tsr_plan *plan;
  int count;    /* steps that may move: those in front of the copies, which read and replace whatever */
  uses *reads;  /* [step] */
  int *made_by; /* [value id * PLACES + place]: step; -1 = none */
  size_t edge_count, edge_capacity;
  edge *edges;       /* by `after`, ascending */
  size_t *first;     /* [step]: its edges begin here */
  bool *starts;      /* [step]: a collective takes its result */
  int *position;     /* [step]: in the new order; -1 = not there yet */
  tsr_step *ordered; /* the new order */
  int ended;         /* collectives at positions before this one have been waited for */
} ordering;

static int *made_by(const ordering *o, tsr_value value, tsr_place place) {
  return &o->made_by[value.id * PLACES + (size_t)(place - TSR_PLACE_MAX)];
}

/* The step that makes what is read, a copy in that layout or a replicated one of which it is a view; -1 = it
 * is there from the beginning. */
static int maker_of(const ordering *o, tsr_use use) {
  bool exact = tsr_place_in(o->plan->decision.choices[use.value.id].present, use.place);
  return *made_by(o, use.value, exact ? use.place : TSR_PLACE_REPLICATE);
}

static tsr_status add_edge(ordering *o, int before, int after, tsr_error *error) {
  if (before < 0) return TSR_OK;
  if (!TSR_GROW(o->edges, o->edge_count, o->edge_capacity))
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to order %d steps", o->count);
  o->edges[o->edge_count++] = (edge){before, after};
  return TSR_OK;
}

/* What replaces a target in its own memory goes behind whatever reads the old contents. */
static tsr_status add_readers(ordering *o, tsr_value target, int after, tsr_error *error) {
  for (int i = 0; i < after; i++)
    for (int j = 0; j < o->reads[i].count; j++)
      if (o->reads[i].of[j].value.id == target.id) {
        TSR_RETURN_IF_FAILED(add_edge(o, i, after, error));
        break;
      }
  return TSR_OK;
}

/* The target in whose memory each step computes, by step; 0 = none. */
static void find_updates(const ordering *o, uint32_t *updates) {
  const tsr_graph *graph = o->plan->graph;
  for (size_t id = 1; id < graph->value_count; id++) {
    tsr_value self = {(uint32_t)id}, value = graph->values[id].assigned;
    if (!value.id || value.id == id || !tsr_plan_updates_in_place(o->plan, self)) continue;
    int step = *made_by(o, value, o->plan->decision.choices[value.id].produced);
    if (step >= 0) updates[step] = self.id;
  }
}

static tsr_status add_edges(ordering *o, tsr_error *error) {
  tsr_status status = TSR_OK;
  uint32_t *updates = tsr_calloc((size_t)o->count, sizeof *updates);
  if (!updates) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory to order %d steps", o->count);
  find_updates(o, updates);
  for (int i = 0; i < o->count; i++) {
    o->first[i] = o->edge_count;
    for (int j = 0; j < o->reads[i].count; j++)
      TSR_TRY(add_edge(o, maker_of(o, o->reads[i].of[j]), i, error));
    if (updates[i]) TSR_TRY(add_readers(o, (tsr_value){updates[i]}, i, error));
  }
  o->first[o->count] = o->edge_count;
done:
  free(updates);
  return status;
}

static bool is_convert(const ordering *o, int step) {
  return o->plan->steps[step].kind == TSR_STEP_CONVERT;
}

/* Whether all that a step needs was placed before; *behind = the place of the last collective among it. */
static bool is_ready(const ordering *o, int step, int *behind) {
  *behind = -1;
  for (size_t e = o->first[step]; e < o->first[step + 1]; e++) {
    int before = o->edges[e].before;
    if (o->position[before] < 0) return false;
    if (is_convert(o, before) && o->position[before] > *behind) *behind = o->position[before];
  }
  return true;
}

/* The next step, of those from `base` on: a collective; what starts one; what waits for none; the first. */
static int choose(const ordering *o, int base, int *behind) {
  int best = -1, best_rank = 5;
  for (int i = base; i < o->count && i < base + WINDOW; i++) {
    int last;
    if (o->position[i] >= 0 || !is_ready(o, i, &last)) continue;
    int rank = is_convert(o, i) ? 0 : 1 + 2 * (last >= o->ended) + !o->starts[i];
    if (rank >= best_rank) continue;
    best = i;
    best_rank = rank;
    *behind = last;
  }
  return best;
}

static void place_all(ordering *o) {
  int base = 0;
  for (int at = 0; at < o->count; at++) {
    int behind = -1;
    while (o->position[base] >= 0) base++;
    int step = choose(o, base, &behind); /* `base` at least is ready: it needs steps before it alone */
    if (behind >= o->ended) o->ended = behind + 1;
    o->position[step] = at;
    o->ordered[at] = o->plan->steps[step];
  }
  memcpy(o->plan->steps, o->ordered, (size_t)o->count * sizeof *o->ordered);
}

static void read_steps(ordering *o) {
  const tsr_plan *plan = o->plan;
  for (size_t i = 0; i < plan->graph->value_count * PLACES; i++) o->made_by[i] = -1;
  for (int i = 0; i < o->count; i++) {
    o->position[i] = -1;
    o->reads[i].count = tsr_plan_step_reads(plan, &plan->steps[i], o->reads[i].of);
    *made_by(o, plan->steps[i].value, plan->steps[i].to) = i;
  }
  for (int i = 0; i < o->count; i++)
    if (is_convert(o, i) && maker_of(o, o->reads[i].of[0]) >= 0)
      o->starts[maker_of(o, o->reads[i].of[0])] = true;
}

static tsr_status reorder(tsr_plan *plan, tsr_error *error) {
  tsr_status status = TSR_OK;
  ordering o = {.plan = plan};
  while (o.count < plan->step_count && plan->steps[o.count].kind != TSR_STEP_COPY) o.count++;
  size_t count = (size_t)o.count;
  o.reads = tsr_calloc(count, sizeof *o.reads);
  o.made_by = tsr_calloc(plan->graph->value_count * PLACES, sizeof *o.made_by);
  o.first = tsr_calloc(count + 1, sizeof *o.first);
  o.starts = tsr_calloc(count, sizeof *o.starts);
  o.position = tsr_calloc(count, sizeof *o.position);
  o.ordered = tsr_calloc(count, sizeof *o.ordered);
  if (!o.reads || !o.made_by || !o.first || !o.starts || !o.position || !o.ordered)
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory to order %zu steps", count);
  read_steps(&o);
  TSR_TRY(add_edges(&o, error));
  place_all(&o);
done:
  free(o.reads);
  free(o.made_by);
  free(o.edges);
  free(o.first);
  free(o.starts);
  free(o.position);
  free(o.ordered);
  return status;
}

/* ---- chunks ---- */

/* Chunks of a step; of a CONVERT 0 if its product stands for both. */
static int chunks_at(const tsr_plan *plan, const int *convert_of, int step) {
  int convert = convert_of[plan->steps[step].value.id];
  if (plan->steps[step].kind == TSR_STEP_COPY || convert < 0) return 1;
  if (plan->steps[step].kind == TSR_STEP_CONVERT) return convert == step ? 0 : 1;
  return tsr_plan_chunks_of(plan, &plan->steps[step], &plan->steps[convert]);
}

/* The CONVERT of each value that is cut with its product; -1 = none. Returns how many steps there will be. */
static int find_cuts(const tsr_plan *plan, int *node_of, int *convert_of) {
  int count = plan->step_count;
  for (size_t id = 0; id < plan->graph->value_count; id++) node_of[id] = convert_of[id] = -1;
  for (int i = 0; i < plan->step_count; i++) {
    const tsr_step *step = &plan->steps[i];
    if (step->kind == TSR_STEP_NODE) node_of[step->value.id] = i;
    int node = node_of[step->value.id];
    if (step->kind != TSR_STEP_CONVERT || node < 0) continue;
    int chunks = tsr_plan_chunks_of(plan, &plan->steps[node], step);
    if (chunks < 2) continue;
    convert_of[step->value.id] = i;
    count += 2 * (chunks - 1);
  }
  return count;
}

static int append_chunks(const tsr_plan *plan, int node, int convert, int chunks, tsr_step *out) {
  int count = 0;
  for (int i = 0; i < chunks; i++) {
    out[count++] = plan->steps[node];
    out[count++] = plan->steps[convert];
    for (int j = count - 2; j < count; j++) {
      out[j].chunk = i;
      out[j].chunks = chunks;
      out[j].chunk_to = plan->steps[convert].to;
    }
  }
  return count;
}

/* In place of a product and its reduction, product 0, reduction 0, product 1, ... */
static tsr_status cut_steps(tsr_plan *plan, tsr_error *error) {
  size_t values = plan->graph->value_count;
  int *node_of = tsr_calloc(values, sizeof *node_of), *convert_of = tsr_calloc(values, sizeof *convert_of);
  int count = node_of && convert_of ? find_cuts(plan, node_of, convert_of) : 0, made = 0;
  bool cuts = count != plan->step_count;
  tsr_step *steps = count && cuts ? tsr_calloc((size_t)count, sizeof *steps) : NULL;
  for (int i = 0; steps && i < plan->step_count; i++) {
    int chunks = chunks_at(plan, convert_of, i);
    if (chunks > 1)
      made += append_chunks(plan, i, convert_of[plan->steps[i].value.id], chunks, steps + made);
    else if (chunks == 1)
      steps[made++] = plan->steps[i];
  }
  free(node_of);
  free(convert_of);
  if (!cuts) return TSR_OK;
  if (!steps) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to cut %d steps", plan->step_count);
  free(plan->steps);
  plan->steps = steps;
  plan->step_count = plan->step_capacity = made;
  return TSR_OK;
}

tsr_status tsr_plan_order(tsr_plan *plan, tsr_error *error) {
  bool converts = false;
  for (int i = 0; i < plan->step_count; i++) converts |= plan->steps[i].kind == TSR_STEP_CONVERT;
  if (!converts) return TSR_OK;
  if (plan->overlaps) TSR_RETURN_IF_FAILED(reorder(plan, error));
  return cut_steps(plan, error);
}

/* ---- waits ---- */

static int storage_of(const tsr_plan *plan, tsr_value value, tsr_place place) {
  bool is_view;
  int buffer = tsr_plan_find_buffer(plan, value, place, &is_view);
  return buffer < 0 ? -1 : plan->buffers[buffer].storage;
}

static int written_by(const tsr_plan *plan, const tsr_step *step) {
  if (step->kind == TSR_STEP_COPY) return storage_of(plan, step->target, step->to);
  return storage_of(plan, step->value, step->to);
}

int tsr_plan_first_reader(const tsr_plan *plan, int convert) {
  const tsr_step *made = &plan->steps[convert];
  for (int i = convert + 1; i < plan->step_count; i++) {
    tsr_use reads[TSR_USES_MAX];
    int count = tsr_plan_step_reads(plan, &plan->steps[i], reads);
    for (int j = 0; j < count; j++) {
      bool view = made->to == TSR_PLACE_REPLICATE && reads[j].place >= 0 &&
                  !tsr_place_in(plan->decision.choices[made->value.id].present, reads[j].place);
      if (reads[j].value.id == made->value.id && (reads[j].place == made->to || view)) return i;
    }
  }
  return plan->step_count;
}

/* The last CONVERT that wrote, and read, each storage. */
typedef struct touched {
  int written, read;
} touched;

static int later(int a, int b) {
  return a > b ? a : b;
}

static int wait_of(const tsr_plan *plan, const tsr_step *step, const touched *storages) {
  tsr_use reads[TSR_USES_MAX];
  int count = tsr_plan_step_reads(plan, step, reads), target = written_by(plan, step);
  int wait = target < 0 ? -1 : later(storages[target].written, storages[target].read);
  for (int j = 0; j < count; j++) {
    int storage = storage_of(plan, reads[j].value, reads[j].place);
    if (storage >= 0) wait = later(wait, storages[storage].written);
  }
  return wait;
}

/* Chunks of one product are apart in memory: none waits for another, and all for the same. */
tsr_status tsr_plan_find_waits(tsr_plan *plan, tsr_error *error) {
  touched *storages = tsr_calloc((size_t)plan->storage_count, sizeof *storages);
  if (!storages)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %d storages", plan->storage_count);
  for (int i = 0; i < plan->storage_count; i++) storages[i] = (touched){-1, -1};
  for (int i = 0; i < plan->step_count; i++) {
    tsr_step *step = &plan->steps[i];
    step->waits_for = step->chunk ? plan->steps[i - 2].waits_for : wait_of(plan, step, storages);
    if (step->kind != TSR_STEP_CONVERT) continue;
    int from = storage_of(plan, step->value, step->from), to = storage_of(plan, step->value, step->to);
    if (from >= 0) storages[from].read = i;
    if (to >= 0) storages[to].written = i;
  }
  free(storages);
  return TSR_OK;
}
