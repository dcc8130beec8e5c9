/* A plan as tables for people. */
#include "plan/plan_text.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "plan/cuts.h"
#include "plan/plan_json.h"

static const char *name_of(const tsr_graph *graph, tsr_value value, char *buffer) {
  const tsr_graph_value *at = tsr_graph_at(graph, value);
  if (at->name || at->output) return at->name ? at->name : at->output;
  for (size_t id = 1; id < graph->value_count; id++)
    if (graph->values[id].assigned.id == value.id) {
      snprintf(buffer, 64, "new %s", graph->values[id].name);
      return buffer;
    }
  snprintf(buffer, 64, "%%%u", value.id);
  return buffer;
}

static void write_head(const tsr_plan *plan, tsr_text *text) {
  char seconds[16];
  int n = plan->cluster->member_count;
  if (!plan->feasible) {
    tsr_text_append(text, "no plan: %s\n", plan->reason);
    return;
  }
  tsr_text_append(text, "plan for %d device%s: %s predicted", n, n > 1 ? "s" : "",
                  tsr_format_seconds(seconds, plan->predicted_seconds));
  if (plan->decision.active_count < n)
    tsr_text_append(text, ", %d of them excluded: the others do better without",
                    n - plan->decision.active_count);
  tsr_text_append(text, plan->exact ? ", exact\n" : "\n");
  if (!plan->exact) tsr_text_append(text, "not proven best: %s\n", plan->reason);
}

static void write_members(const tsr_plan *plan, tsr_text *text) {
  tsr_text_append(text, "\n%5s %-28s %7s %10s %10s %12s %10s %10s %10s\n", "rank", "device", "share",
                  "weights", "gradients", "activations", "total", "usable", "sends");
  for (int i = 0; i < plan->cluster->member_count; i++) {
    const tsr_plan_member *member = &plan->members[i];
    char w[16], g[16], a[16], t[16], u[16], s[16];
    uint64_t usable = tsr_plan_usable_bytes(plan, i);
    tsr_text_append(
        text, "%5d %-28.28s %6.1f%% %10s %10s %12s %10s %10s %10s%s\n", i, member->device,
        100 * member->share,
        tsr_format_bytes(w, (double)(member->lines[TSR_MEMORY_WEIGHTS] + member->lines[TSR_MEMORY_STATE])),
        tsr_format_bytes(g, (double)member->lines[TSR_MEMORY_GRADIENTS]),
        tsr_format_bytes(
            a, (double)(member->lines[TSR_MEMORY_ACTIVATIONS] + member->lines[TSR_MEMORY_WORKSPACE])),
        tsr_format_bytes(t, (double)member->bytes), tsr_format_bytes(u, (double)usable),
        tsr_format_bytes(s, (double)member->sent_bytes), member->active ? "" : "  excluded");
  }
}

static void write_leaves(const tsr_plan *plan, tsr_text *text) {
  tsr_text_append(text, "\n%-16s %-12s %-14s %s\n", "value", "shape", "layout", "cut at");
  for (size_t id = 1; id < plan->graph->value_count; id++) {
    const tsr_graph_value *value = &plan->graph->values[id];
    tsr_value self = {(uint32_t)id};
    char shape[64];
    if (!value->name && !value->output) continue;
    tsr_place place = tsr_plan_final_place(plan, self);
    tsr_text_append(text, "%-16s %-12s %-14s", value->name ? value->name : value->output,
                    tsr_format_shape(shape, sizeof shape, &value->shape), tsr_place_name(place));
    for (int r = 1; place >= 0 && r < plan->decision.active_count && r < 16; r++) {
      int64_t begin, end;
      tsr_plan_range(plan, self, place, place, r, &begin, &end);
      tsr_text_append(text, " %lld", (long long)begin);
    }
    tsr_text_append(text, "\n");
  }
}

const char *tsr_plan_fused_name(const tsr_plan *plan, const tsr_fused *fused) {
  static const char *const names[] = {[TSR_FUSED_SCALE] = "scale",
                                      [TSR_FUSED_BIAS] = "bias",
                                      [TSR_FUSED_GATE] = "gate",
                                      [TSR_FUSED_RESIDUAL] = "residual"};
  return fused->role == TSR_FUSED_UNARY ? tsr_unary_name(plan->graph->nodes[fused->node].unary)
                                        : names[fused->role];
}

static void describe_whole(const tsr_plan *plan, const tsr_step *step, char *buffer, size_t bytes) {
  if (step->kind == TSR_STEP_CONVERT) {
    snprintf(buffer, bytes, "%s, %s", tsr_collective_kind_name(step->collective),
             tsr_algorithm_name(step->algorithm));
  } else if (step->kind == TSR_STEP_COPY) {
    snprintf(buffer, bytes, "copy");
  } else {
    const tsr_node *node = &plan->graph->nodes[step->node];
    const char *op = tsr_operator_rules_of(node->op)->name;
    size_t used;
    if (node->op == TSR_OPERATOR_MATMUL)
      snprintf(buffer, bytes, "%s %s%s", op, node->transpose_a ? "t" : "n", node->transpose_b ? "t" : "n");
    else if (node->op == TSR_OPERATOR_UNARY || node->op == TSR_OPERATOR_UNARY_GRADIENT)
      snprintf(buffer, bytes, "%s%s", tsr_unary_name(node->unary),
               node->op == TSR_OPERATOR_UNARY ? "" : " gradient");
    else
      snprintf(buffer, bytes, "%s", op);
    used = strlen(buffer);
    for (int i = 0; i < step->fused_count && used < bytes; i++)
      used +=
          (size_t)snprintf(buffer + used, bytes - used, " + %s", tsr_plan_fused_name(plan, &step->fused[i]));
  }
}

static void describe_step(const tsr_plan *plan, const tsr_step *step, char *buffer, size_t bytes) {
  describe_whole(plan, step, buffer, bytes);
  size_t used = strlen(buffer);
  if (step->chunks > 1) snprintf(buffer + used, bytes - used, " [%d/%d]", step->chunk + 1, step->chunks);
}

char *tsr_plan_step_text(const tsr_plan *plan, const tsr_step *step, char *buffer, size_t bytes) {
  char what[64], name[64];
  describe_step(plan, step, what, sizeof what);
  snprintf(buffer, bytes, "%s %s", what, name_of(plan->graph, step->value, name));
  return buffer;
}

static void write_steps(const tsr_plan *plan, bool bounds, tsr_text *text) {
  tsr_text_append(text, "\n%4s %-28s %-16s %-14s %10s %10s%s\n", "step", "what", "value", "layout", "time",
                  "bytes", bounds ? "  bound by" : "");
  for (int i = 0; i < plan->step_count; i++) {
    const tsr_step *step = &plan->steps[i];
    char what[64], name[64], seconds[16], bytes[16];
    describe_step(plan, step, what, sizeof what);
    tsr_text_append(text, "%4d %-28s %-16s %-14s %10s %10s", i, what, name_of(plan->graph, step->value, name),
                    tsr_place_name(step->to), tsr_format_seconds(seconds, step->seconds),
                    tsr_format_bytes(bytes, (double)step->bytes));
    if (bounds) tsr_text_append(text, "  %s", step->bound_by);
    tsr_text_append(text, "\n");
  }
}

static tsr_status plan_to_text(const tsr_plan *plan, tsr_plan_format format, tsr_text *text,
                               tsr_error *error) {
  if (format == TSR_PLAN_JSON) {
    json_t *document = tsr_plan_to_json(plan);
    char *dump = document ? json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    if (dump) tsr_text_append(text, "%s\n", dump);
    if (!dump) text->failed = true;
    free(dump);
    json_decref(document);
  } else {
    write_head(plan, text);
    write_members(plan, text);
    if (plan->feasible) {
      write_leaves(plan, text);
      write_steps(plan, format == TSR_PLAN_EXPLAIN, text);
    }
    if (plan->feasible && format == TSR_PLAN_EXPLAIN)
      TSR_RETURN_IF_FAILED(tsr_plan_explain(plan, text, error));
  }
  return text->failed ? tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to write a plan") : TSR_OK;
}

tsr_status tsr_plan_write(const tsr_plan *plan, tsr_plan_format format, tsr_writer writer, void *user,
                          tsr_error *error) {
  if (format > TSR_PLAN_EXPLAIN)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "format %d: expected JSON, TEXT or EXPLAIN",
                    (int)format);
  tsr_text text = {0};
  tsr_status status = plan_to_text(plan, format, &text, error);
  if (status == TSR_OK && writer(user, text.data, text.bytes))
    status = tsr_fail(error, TSR_ERROR_IO, "the plan could not be written");
  free(text.data);
  return status;
}
