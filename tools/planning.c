/* planning.c: a workload and a cluster to a plan. */
#include "planning.h"

#include <stdio.h>
#include <stdlib.h>

#include "json.h"
#include "message.h"

tsr_status tool_planning_memory(const tool_workload *workload, int members, uint64_t **out,
                                tsr_error *error) {
  *out = NULL;
  if (!workload->options->device_memory.count) return TSR_OK;
  *out = calloc((size_t)members, sizeof **out);
  if (!*out) return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no host memory for %d members", members);
  for (int member = 0; member < members; member++) (*out)[member] = tool_workload_memory(workload, member);
  return TSR_OK;
}

tsr_status tool_planning_run(const tool_workload *workload, tsr_cluster *cluster, const uint64_t *memory,
                             tsr_plan **out, double *seconds, tsr_error *error) {
  for (int member = 0; memory && member < tsr_cluster_member_count(cluster); member++) {
    tsr_status status = tsr_cluster_set_memory(cluster, member, memory[member], error);
    if (status != TSR_OK) return status;
  }
  tsr_plan_options options;
  tsr_plan_options_init(&options);
  options.replicate = (tsr_replicate)workload->options->replicate;
  options.chunks = (int)workload->options->chunks;
  options.collective = (tsr_algorithm)workload->options->collective;
  options.wire = (tsr_dtype[]){TSR_F32, TSR_BF16, TSR_F16}[workload->options->wire];
  double start = tool_seconds_now();
  tsr_status status = tsr_plan_create(workload->graph, cluster, &options, out, error);
  *seconds = tool_seconds_now() - start;
  return status;
}

char *tool_planning_text(const tsr_plan *plan, tsr_error *error) {
  char *text = NULL;
  size_t bytes;
  FILE *memory = open_memstream(&text, &bytes);
  tsr_status status = memory ? tsr_plan_write(plan, TSR_PLAN_JSON, tool_write_file, memory, NULL) : TSR_OK;
  if (memory && fclose(memory) == 0 && status == TSR_OK) return text;
  free(text);
  tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to write the plan");
  return NULL;
}

json_t *tool_planning_document(const tsr_plan *plan) {
  char *text = tool_planning_text(plan, NULL);
  json_t *document = text ? json_loads(text, 0, NULL) : NULL;
  free(text);
  return document;
}

json_t *tool_planning_workload(const tool_workload *workload) {
  char text[128];
  tool_workload_text(workload, text, sizeof text);
  json_t *dimensions = json_array();
  for (int i = 0; i < tool_workload_dimensions(workload); i++)
    json_array_append_new(dimensions, json_integer(workload->extent[i]));
  return json_pack("{s:s, s:s, s:o, s:s, s:s, s:s, s:f}", "text", text, "operation",
                   tool_workload_operation(workload), "dimensions", dimensions, "dtype",
                   tsr_dtype_name((tsr_dtype)workload->options->dtype), "weights",
                   tsr_dtype_name(tool_workload_weights(workload)), "mode", tool_workload_mode(workload),
                   "scale", workload->options->scale);
}
