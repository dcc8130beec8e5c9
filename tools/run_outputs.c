/* run_outputs.c: -o and --trace of `tessera run`. */
#include <stdio.h>
#include <stdlib.h>

#include "cache.h"
#include "message.h"
#include "run_job.h"

enum { OUTPUTS_MAX = 32 };

typedef struct output_list {
  size_t count;
  tsr_value values[OUTPUTS_MAX];
  const char *names[OUTPUTS_MAX];
  tsr_array arrays[OUTPUTS_MAX]; /* data NULL on processes that do not write */
} output_list;

/* Borrowed names: the list must not outlive the graph. */
static tsr_status list_outputs(const tsr_graph *graph, output_list *list, tsr_error *error) {
  size_t count = tsr_graph_value_count(graph);
  for (uint32_t id = 1; id <= count; id++) {
    tsr_value_info info;
    tsr_status status = tsr_graph_value_info(graph, (tsr_value){id}, &info, error);
    if (status != TSR_OK) return status;
    const char *name = info.output[0] ? info.output : info.assigned ? info.name : "";
    if (!name[0]) continue;
    if (list->count == OUTPUTS_MAX)
      return tool_fail(error, TSR_ERROR_INTERNAL, "the graph has more than %d outputs", OUTPUTS_MAX);
    list->values[list->count] = (tsr_value){id};
    list->names[list->count] = name;
    list->arrays[list->count++] = tsr_array_dense(NULL, info.dtype, &info.shape);
  }
  return TSR_OK;
}

static tsr_status make_room(output_list *list, tsr_error *error) {
  for (size_t i = 0; i < list->count; i++) {
    tsr_array *array = &list->arrays[i];
    int64_t count = tsr_shape_count(&array->shape);
    size_t size = tsr_dtype_bytes(array->dtype);
    if (count >= 0 && (uint64_t)count <= SIZE_MAX / size) array->data = malloc((size_t)count * size + 1);
    if (!array->data)
      return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no host memory for the %lld elements of output '%s'",
                       (long long)count, list->names[i]);
  }
  return TSR_OK;
}

tsr_status tool_run_write_outputs(tool_run_job *job, tsr_error *error) {
  output_list list = {0};
  tool_team *team = &job->team;
  bool leads = tool_team_leads(team);
  tsr_status status = list_outputs(tsr_plan_graph(job->plan), &list, error);
  if (status == TSR_OK && leads) status = make_room(&list, error);
  status = tool_team_agree(team, status, error);
  for (size_t i = 0; status == TSR_OK && i < list.count; i++)
    status = tsr_session_gather(job->session, list.values[i], leads ? &list.arrays[i] : NULL, error);
  if (status == TSR_OK) {
    if (leads) status = tsr_file_write(job->options->output, list.names, list.arrays, list.count, error);
    status = tool_team_agree(team, status, error);
  }
  for (size_t i = 0; i < list.count; i++) free(list.arrays[i].data);
  return status;
}

tsr_status tool_run_write_trace(tool_run_job *job, tsr_error *error) {
  tool_team *team = &job->team;
  char *text = NULL;
  size_t bytes = 0;
  FILE *memory = tool_team_leads(team) ? open_memstream(&text, &bytes) : NULL;
  bool lacking = tool_team_leads(team) && !memory;
  tsr_status status = tool_team_agree(
      team, lacking ? tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to write the trace") : TSR_OK,
      error);
  if (status == TSR_OK)
    status = tsr_session_trace_write(job->session, memory ? tool_write_file : NULL, memory, error);
  bool complete = !memory || fclose(memory) == 0;
  if (status == TSR_OK) {
    if (!complete) status = tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to write the trace");
    if (complete && memory) status = tool_file_write(job->options->trace, text, error);
    status = tool_team_agree(team, status, error);
  }
  free(text);
  return status;
}
