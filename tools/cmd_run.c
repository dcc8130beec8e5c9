/* cmd_run.c: tessera run: plans a workload, runs it on the ranks' devices, checks and reports. */
#include "commands.h"
#include "launch.h"
#include "message.h"
#include "run_job.h"

static tsr_status run(tool_run_job *job, tsr_error *error) {
  tsr_status status = tool_run_begin(job, error);
  if (status == TSR_OK) status = tool_run_plan(job, error);
  if (status == TSR_OK) status = tool_run_steps(job, error);
  if (status == TSR_OK) status = tool_run_finish(job, error);
  return status;
}

int tool_command_run(const tool_options *options) {
  tool_run_job job = {.options = options};
  tsr_error error = {.rank = -1};
  int code = tool_workload_parse(options, &job.workload);
  if (!code) code = tool_team_plan(options, 0, &job.team);
  if (code) return code;
  job.team.work = tool_workload_work(&job.workload);
  if (tool_team_needs_launch(&job.team)) return tool_launch(options, job.team.ranks);
  tsr_status status = run(&job, &error);
  bool printed = true;
  if (tool_team_leads(&job.team) && options->json)
    printed = tool_run_print_document(&job, status, &error);
  else if (tool_team_leads(&job.team) && job.reported)
    tool_run_print_text(&job);
  /* After a lost rank the process ends in tool_team_end: nothing is released that might wait for others. */
  if (status == TSR_OK || !tool_team_is_broken(&job.team, status)) tool_run_free(&job);
  code = tool_team_end(&job.team, status, &error);
  return printed ? code : TOOL_EXIT_FAILED;
}
