/* run_job.c: the phases of `tessera run`. */
#include "run_job.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "group_cluster.h"
#include "message.h"
#include "planning.h"

static tsr_status no_memory(tsr_error *error) {
  return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "out of host memory");
}

/* Graph, contents, and what the report needs: on each process for itself. */
static tsr_status prepare(tool_run_job *job, tsr_error *error) {
  size_t ranks = (size_t)job->team.ranks;
  job->members = calloc(ranks, sizeof *job->members);
  job->devices = calloc(ranks, sizeof *job->devices);
  tsr_status status = tool_team_leads(&job->team) ? tool_file_check(job->options->output, error) : TSR_OK;
  if (status == TSR_OK && tool_team_leads(&job->team)) status = tool_file_check(job->options->trace, error);
  if (status != TSR_OK) return status;
  job->steps = job->options->steps ? job->options->steps : job->options->sgd > 0 ? 1 : 3;
  job->losses = calloc(job->options->sgd > 0 ? (size_t)job->steps : 1, sizeof *job->losses);
  if (!job->members || !job->devices || !job->losses) return no_memory(error);
  tsr_context *context = job->team.context;
  status = tool_planning_memory(&job->workload, job->team.ranks, &job->memory, error);
  if (status == TSR_OK) status = tool_workload_build(context, &job->workload, error);
  return status == TSR_OK ? tool_workload_source(context, &job->workload, &job->source, error) : status;
}

/* Who computes where, for the report. */
static tsr_status gather_devices(tool_run_job *job, tsr_error *error) {
  tool_team *team = &job->team;
  tool_run_device *own = calloc((size_t)team->local_count, sizeof *own);
  tsr_status status = tool_team_agree(team, own ? TSR_OK : no_memory(error), error);
  for (int i = 0; status == TSR_OK && i < team->local_count; i++) {
    const tsr_device_info *info = tsr_device_get_info(team->devices[i]);
    memcpy(own[i].name, info->name, sizeof own[i].name);
    memcpy(own[i].driver, info->driver, sizeof own[i].driver);
  }
  if (status == TSR_OK) status = tsr_group_gather(team->group, own, sizeof *own, job->devices, error);
  free(own);
  return status;
}

/* A plan brings the cluster that it was made for; without one the cluster is found, or measured. */
tsr_status tool_run_begin(tool_run_job *job, tsr_error *error) {
  tool_team *team = &job->team;
  tsr_status status = tool_team_start(team, error);
  if (status != TSR_OK) return status;
  status = tool_team_agree(team, prepare(job, error), error);
  if (status == TSR_OK && !job->options->plan)
    status = tool_cluster_obtain(team, job->memory, &job->cluster, error);
  return status;
}

/* What was asked for beyond what a device has cannot be held: plan for what is there. */
static void limit_memory(tool_run_job *job) {
  for (int rank = 0; job->memory && rank < job->team.ranks; rank++) {
    uint64_t there;
    const char *name;
    if (tsr_cluster_get_member(job->cluster, rank, &name, &there, NULL) != TSR_OK ||
        job->memory[rank] <= there)
      continue;
    if (tool_team_leads(&job->team))
      fprintf(stderr,
              "warning: --device-memory of rank %d is %" PRIu64 " bytes, but %s has %" PRIu64
              ": planned for what it has\n",
              rank, job->memory[rank], name, there);
    job->memory[rank] = there;
  }
}

static tsr_status plan_alone(tool_run_job *job, tsr_error *error) {
  if (!tool_team_leads(&job->team)) return TSR_OK;
  if (!job->options->plan)
    return tool_planning_run(&job->workload, job->cluster, job->memory, &job->plan, &job->planning_seconds,
                             error);
  tsr_status status = tsr_plan_read(job->team.context, job->options->plan, &job->plan, error);
  return status == TSR_OK ? tool_workload_match(&job->workload, tsr_plan_graph(job->plan), error) : status;
}

/* Caps of a plan that was read: what it was made for, unless --device-memory says. */
static tsr_status open_for_plan(tool_run_job *job, tsr_error *error) {
  tool_team *team = &job->team;
  const tsr_cluster *cluster = tsr_plan_cluster(job->plan);
  tsr_status status = TSR_OK;
  int members = tsr_cluster_member_count(cluster);
  if (members != team->ranks)
    return tool_fail(error, TSR_ERROR_MISMATCH,
                     "plan '%s' is for %d members, but there are %d ranks: use -n %d", job->options->plan,
                     members, team->ranks, members);
  if (!job->memory) {
    job->memory = calloc((size_t)members, sizeof *job->memory);
    status = tool_team_agree(team, job->memory ? TSR_OK : no_memory(error), error);
    for (int rank = 0; status == TSR_OK && rank < members; rank++) {
      const char *name;
      status = tsr_cluster_get_member(cluster, rank, &name, &job->memory[rank], error);
    }
  }
  if (status == TSR_OK) status = tool_team_open(team, job->memory, error);
  if (status == TSR_OK)
    status = tsr_cluster_match(cluster, team->group, team->devices, (size_t)team->local_count, error);
  return status;
}

tsr_status tool_run_plan(tool_run_job *job, tsr_error *error) {
  tool_team *team = &job->team;
  if (job->cluster) limit_memory(job);
  tsr_status status = tool_team_agree(team, plan_alone(job, error), error);
  if (status == TSR_OK) status = tsr_plan_share(team->group, team->context, &job->plan, error);
  if (status == TSR_OK && job->options->plan) status = open_for_plan(job, error);
  return status == TSR_OK ? gather_devices(job, error) : status;
}

/* The loss of the step that has ended. */
static tsr_status read_loss(tool_run_job *job, tsr_value loss, double *out, tsr_error *error) {
  union {
    float f32;
    double f64;
  } number = {0};
  tsr_dtype dtype = (tsr_dtype)job->options->dtype;
  tsr_shape scalar = tsr_shape_of(0, 0, 0);
  tsr_array array = tsr_array_dense(&number, dtype, &scalar);
  tsr_status status = tsr_session_gather(job->session, loss, &array, error);
  *out = dtype == TSR_F64 ? number.f64 : (double)number.f32;
  return status;
}

static tsr_status one_step(tool_run_job *job, tsr_value loss, tsr_error *error) {
  tsr_status status = tsr_session_start(job->session, error);
  if (status == TSR_OK) status = tsr_session_wait(job->session, error);
  tool_team_note_failure(&job->team, status, error);
  if (status != TSR_OK || !loss.id) return status;
  status = read_loss(job, loss, &job->losses[job->losses_count], error);
  if (status == TSR_OK) job->losses_count++;
  if (status == TSR_OK && !isfinite(job->losses[job->losses_count - 1]))
    status = tool_fail(error, TSR_ERROR_CHECK_FAILED,
                       "the loss of step %" PRId64 " is %g: training diverged; try a lower --sgd",
                       job->losses_count, job->losses[job->losses_count - 1]);
  if (status == TSR_OK && !job->options->json && tool_team_leads(&job->team)) {
    printf("step %" PRId64 ": loss %.10g\n", job->losses_count, job->losses[job->losses_count - 1]);
    fflush(stdout);
  }
  return status;
}

tsr_status tool_run_steps(tool_run_job *job, tsr_error *error) {
  tool_team *team = &job->team;
  tsr_value loss = TSR_NO_VALUE;
  tsr_status status = tsr_session_create(team->group, job->plan, team->devices, (size_t)team->local_count,
                                         &job->session, error);
  if (status == TSR_OK) status = tsr_session_load(job->session, job->source, error);
  if (status == TSR_OK && job->options->trace)
    status = tsr_session_trace(job->session, TOOL_TRACE_EVENTS, error);
  if (status == TSR_OK && job->options->sgd > 0)
    status = tsr_graph_find(tsr_plan_graph(job->plan), "loss", &loss, error);
  for (int64_t step = 0; status == TSR_OK && step < job->steps; step++) status = one_step(job, loss, error);
  if (status == TSR_OK) status = tsr_session_report(job->session, &job->report, job->members, error);
  job->reported = status == TSR_OK;
  return status;
}

tsr_status tool_run_finish(tool_run_job *job, tsr_error *error) {
  tsr_status status = TSR_OK;
  if (job->options->output) status = tool_run_write_outputs(job, error);
  if (status == TSR_OK && job->options->trace) status = tool_run_write_trace(job, error);
  if (status != TSR_OK || !job->options->check) return status;
  tsr_check_options options;
  tsr_check_options_init(&options);
  options.seed = job->options->seed;
  status = tsr_session_check(job->session, &options, &job->check, error);
  if (status != TSR_ERROR_CHECK_FAILED) tool_team_note_failure(&job->team, status, error);
  job->checked = status == TSR_OK || status == TSR_ERROR_CHECK_FAILED;
  return status;
}

void tool_run_free(tool_run_job *job) {
  tsr_session_destroy(&job->session);
  tsr_plan_destroy(&job->plan);
  tsr_cluster_destroy(&job->cluster);
  tsr_source_destroy(&job->source);
  tool_workload_finish(&job->workload);
  free(job->memory);
  free(job->losses);
  free(job->members);
  free(job->devices);
}
