/* cmd_plan.c: tessera plan: how a workload would be split over a cluster, and why. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"
#include "commands.h"
#include "group_cluster.h"
#include "json.h"
#include "message.h"
#include "planning.h"
#include "workload.h"

typedef struct plan_job {
  const tool_options *options;
  tool_workload workload;
  tsr_context *context;
  tsr_cluster *cluster;
  tsr_plan *plan;
  double planning_seconds;
} plan_job;

/* Ranks, when -n and the lists are silent, are those of the cluster file. */
static tsr_status check_ranks(const plan_job *job, tsr_error *error) {
  const tool_options *options = job->options;
  int members = tsr_cluster_member_count(job->cluster);
  if (options->ranks && options->ranks != members)
    return tool_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                     "-n is %lld, but the cluster '%s' has %d members: leave -n out, or give another cluster",
                     (long long)options->ranks, options->cluster, members);
  size_t sizes = options->device_memory.count;
  if (sizes > 1 && sizes != (size_t)members)
    return tool_fail(
        error, TSR_ERROR_INVALID_ARGUMENT,
        "--device-memory names %zu, but the cluster '%s' has %d members: give one for all, or one for each",
        sizes, options->cluster, members);
  return TSR_OK;
}

static tsr_status find_cluster(plan_job *job, const tool_team *team, tsr_error *error) {
  const tool_options *options = job->options;
  if (!options->cluster)
    return tool_cluster_of_host(job->context, options, team->ranks, team->transport,
                                tool_workload_work(&job->workload), &job->cluster, error);
  tsr_status status = tsr_cluster_read(job->context, options->cluster, &job->cluster, error);
  return status == TSR_OK ? check_ranks(job, error) : status;
}

static tsr_status plan_for_cluster(plan_job *job, tsr_error *error) {
  uint64_t *memory = NULL;
  tsr_status status =
      tool_planning_memory(&job->workload, tsr_cluster_member_count(job->cluster), &memory, error);
  if (status == TSR_OK)
    status =
        tool_planning_run(&job->workload, job->cluster, memory, &job->plan, &job->planning_seconds, error);
  free(memory);
  return status;
}

/* A plan needs no contents, but what a run would refuse to read is better said now. */
static tsr_status check_contents(plan_job *job, tsr_error *error) {
  tsr_source *source = NULL;
  tsr_status status = tool_workload_source(job->context, &job->workload, &source, error);
  tsr_source_destroy(&source);
  return status;
}

static tsr_status make_plan(plan_job *job, const tool_team *team, tsr_error *error) {
  tsr_status status = tool_context_create(-1, &job->context, error);
  if (status == TSR_OK) status = tool_file_check(job->options->output, error);
  if (status == TSR_OK) status = tool_workload_build(job->context, &job->workload, error);
  if (status == TSR_OK) status = check_contents(job, error);
  if (status == TSR_OK) status = find_cluster(job, team, error);
  return status == TSR_OK ? plan_for_cluster(job, error) : status;
}

static tsr_status write_output(const plan_job *job, tsr_error *error) {
  char *text = tool_planning_text(job->plan, error);
  if (!text) return TSR_ERROR_OUT_OF_MEMORY;
  tsr_status status = tool_file_write(job->options->output, text, error);
  free(text);
  return status;
}

/* The plan's own document, with what only the tool knows; without a plan one that has the error alone. */
static bool print_document(const plan_job *job, tsr_status status, const tsr_error *error) {
  json_t *document = job->plan ? tool_planning_document(job->plan) : NULL;
  if (!document) document = json_pack("{s:s, s:b}", "schema", "tessera.plan/1", "feasible", 0);
  json_object_set_new(document, "planning_seconds", tool_json_number(job->planning_seconds));
  json_object_set_new(document, "workload", tool_planning_workload(&job->workload));
  if (status != TSR_OK) json_object_set_new(document, "error", tool_json_error(error));
  return tool_json_print(job->options->name, document);
}

static void print_text(const plan_job *job) {
  char scale[512];
  tool_workload_scale_text(&job->workload, scale, sizeof scale);
  if (scale[0]) printf("%s\n", scale);
  if (job->plan)
    tsr_plan_write(job->plan, job->options->explain ? TSR_PLAN_EXPLAIN : TSR_PLAN_TEXT, tool_write_file,
                   stdout, NULL);
  fflush(stdout);
}

/* On a terminal the text of a plan that is infeasible has just said why. */
static bool was_said(const plan_job *job, tsr_status status) {
  return status == TSR_ERROR_INFEASIBLE && job->plan && !job->options->json && isatty(STDOUT_FILENO) &&
         isatty(STDERR_FILENO);
}

int tool_command_plan(const tool_options *options) {
  plan_job job = {.options = options};
  tool_team team = {0};
  tsr_error error = {.rank = -1};
  int code = tool_workload_parse(options, &job.workload);
  /* The ranks of a cluster file are known, and checked, when it has been read. */
  if (!code && !options->cluster) code = tool_team_plan(options, 0, &team);
  if (code) return code;
  tsr_status status = make_plan(&job, &team, &error);
  if (status == TSR_OK && options->output) status = write_output(&job, &error);
  bool printed = true;
  if (options->json)
    printed = print_document(&job, status, &error);
  else
    print_text(&job);
  if (status != TSR_OK && !was_said(&job, status)) tool_complain(options->name, -1, &error);
  tsr_plan_destroy(&job.plan);
  tsr_cluster_destroy(&job.cluster);
  tool_workload_finish(&job.workload);
  tsr_context_destroy(&job.context);
  return status == TSR_OK && printed ? TOOL_EXIT_DONE : TOOL_EXIT_FAILED;
}
