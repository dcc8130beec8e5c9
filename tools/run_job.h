/* run_job.h: one `tessera run`, phase by phase. Every phase ends with the same status on all ranks. */
#ifndef TOOL_RUN_JOB_H
#define TOOL_RUN_JOB_H

#include <tessera/tessera.h>

#include "team.h"
#include "workload.h"

/* What a rank says about its device. */
typedef struct tool_run_device {
  char name[128], driver[128];
} tool_run_device;

/* Events that --trace keeps for each rank: the last ones. */
enum { TOOL_TRACE_EVENTS = 65536 };

typedef struct tool_run_job {
  const tool_options *options; /* borrowed */
  tool_team team;
  tool_workload workload;
  uint64_t *memory; /* caps by rank; NULL: none */
  tsr_source *source;
  tsr_cluster *cluster;
  tsr_plan *plan;
  tsr_session *session;
  double planning_seconds;

  int64_t steps;
  double *losses; /* of --sgd, by step */
  int64_t losses_count;
  bool reported; /* report, members, devices hold something */
  tsr_report report;
  tsr_member_report *members;
  tool_run_device *devices;
  bool checked;
  tsr_check check;
} tool_run_job;

/* Group, devices, cluster. */
tsr_status tool_run_begin(tool_run_job *job, tsr_error *error);
/* The plan, made by rank 0 or read from --plan. */
tsr_status tool_run_plan(tool_run_job *job, tsr_error *error);
/* Session, contents, steps, report. */
tsr_status tool_run_steps(tool_run_job *job, tsr_error *error);
/* -o, --trace and --check. */
tsr_status tool_run_finish(tool_run_job *job, tsr_error *error);
/* Releases all but the team. */
void tool_run_free(tool_run_job *job);

/* -o: outputs, and with --sgd the parameters, as rank 0's safetensors file. */
tsr_status tool_run_write_outputs(tool_run_job *job, tsr_error *error);

/* --trace: what was recorded, as rank 0's file. */
tsr_status tool_run_write_trace(tool_run_job *job, tsr_error *error);

/* What rank 0 says at the end. False if it could not be written. */
bool tool_run_print_document(const tool_run_job *job, tsr_status status, const tsr_error *error);
void tool_run_print_text(const tool_run_job *job);

#endif
