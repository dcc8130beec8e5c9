/* run_report.c: what `tessera run` says at the end: a table, or a document. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "planning.h"
#include "report.h"
#include "run_job.h"

static double gflops(const tool_run_job *job) {
  double seconds = job->report.median_seconds;
  return seconds > 0 ? 1e-9 * tsr_graph_flops(tsr_plan_graph(job->plan)) / seconds : 0;
}

/* The share of the time in collectives in which devices computed, all ranks together; below 0: nothing was
 * sent. */
static double hidden_share(const tool_run_job *job) {
  double comm = 0, exposed = 0;
  for (int rank = 0; rank < job->team.ranks; rank++) {
    comm += job->members[rank].comm_seconds;
    exposed += job->members[rank].exposed_seconds;
  }
  return comm > 0 ? exposed < comm ? 1 - exposed / comm : 0 : -1;
}

static json_t *rank_json(const tool_run_job *job, int rank) {
  tsr_plan_member planned;
  memset(&planned, 0, sizeof planned);
  tsr_plan_get_member(job->plan, rank, &planned, NULL);
  const tsr_member_report *member = &job->members[rank];
  json_t *object = json_pack(
      "{s:i, s:o, s:o, s:o}", "rank", rank, "device", tool_json_text(job->devices[rank].name), "driver",
      tool_json_text(job->devices[rank].driver), "share", tool_json_number(planned.share));
  json_object_set_new(object, "bytes_planned", tool_json_bytes(member->bytes_planned));
  json_object_set_new(object, "bytes_allocated", tool_json_bytes(member->bytes_allocated));
  json_object_set_new(object, "bytes_sent", tool_json_bytes(member->bytes_sent));
  json_object_set_new(object, "predicted_compute_seconds", tool_json_number(planned.compute_seconds));
  json_object_set_new(object, "compute_seconds", tool_json_number(member->compute_seconds));
  json_object_set_new(object, "comm_seconds", tool_json_number(member->comm_seconds));
  json_object_set_new(object, "exposed_seconds", tool_json_number(member->exposed_seconds));
  return object;
}

static json_t *check_json(const tool_run_job *job) {
  const tsr_check *check = &job->check;
  if (!job->checked) return json_null();
  return json_pack("{s:b, s:b, s:o, s:o, s:o, s:o, s:I, s:I, s:o}", "passed", (int)check->passed, "oracle",
                   (int)check->oracle, "max_error", tool_json_number(check->max_error), "bound",
                   tool_json_number(check->bound), "detectable", tool_json_number(check->detectable), "where",
                   tool_json_text(check->where), "compared", (json_int_t)check->compared, "not_finite",
                   (json_int_t)check->not_finite, "wire_error", tool_json_number(check->wire_error));
}

static void add_results(const tool_run_job *job, json_t *document) {
  json_t *ranks = json_array();
  for (int rank = 0; rank < job->team.ranks; rank++) json_array_append_new(ranks, rank_json(job, rank));
  json_object_set_new(document, "ranks", ranks);
  json_object_set_new(document, "predicted_seconds", tool_json_number(job->report.predicted_seconds));
  json_object_set_new(document, "measured_seconds", tool_json_number(job->report.median_seconds));
  json_object_set_new(document, "first_seconds", tool_json_number(job->report.first_seconds));
  json_object_set_new(document, "gflops", tool_json_number(gflops(job)));
  double hidden = hidden_share(job);
  json_object_set_new(document, "hidden_share", hidden < 0 ? json_null() : tool_json_number(hidden));
  json_object_set_new(document, "check", check_json(job));
}

static json_t *losses_json(const tool_run_job *job) {
  json_t *losses = json_array();
  for (int64_t i = 0; i < job->losses_count; i++)
    json_array_append_new(losses, tool_json_number(job->losses[i]));
  return losses;
}

bool tool_run_print_document(const tool_run_job *job, tsr_status status, const tsr_error *error) {
  json_t *document =
      json_pack("{s:s, s:o}", "schema", "tessera.run/1", "workload", tool_planning_workload(&job->workload));
  json_object_set_new(document, "transport",
                      json_string(job->team.group ? tsr_group_transport(job->team.group) : "none"));
  json_object_set_new(document, "steps", json_integer(job->steps));
  json_object_set_new(document, "planning_seconds", tool_json_number(job->planning_seconds));
  if (job->reported) add_results(job, document);
  if (job->options->sgd > 0) json_object_set_new(document, "losses", losses_json(job));
  if (status != TSR_OK) json_object_set_new(document, "error", tool_json_error(error));
  return tool_json_print(job->options->name, document);
}

static void print_rank(const tool_run_job *job, int rank) {
  char planned_bytes[TOOL_QUANTITY_BYTES], allocated[TOOL_QUANTITY_BYTES], sent[TOOL_QUANTITY_BYTES];
  char predicted[TOOL_QUANTITY_BYTES], compute[TOOL_QUANTITY_BYTES], comm[TOOL_QUANTITY_BYTES];
  tsr_plan_member planned;
  if (tsr_plan_get_member(job->plan, rank, &planned, NULL) != TSR_OK) return;
  const tsr_member_report *member = &job->members[rank];
  printf("%4d  %-28.28s %6.1f%% %9s %9s %9s %9s %9s %9s\n", rank, job->devices[rank].name,
         100 * planned.share, tool_format_bytes(planned_bytes, (double)member->bytes_planned),
         tool_format_bytes(allocated, (double)member->bytes_allocated),
         tool_format_bytes(sent, (double)member->bytes_sent),
         tool_format_seconds(predicted, planned.compute_seconds),
         tool_format_seconds(compute, member->compute_seconds),
         tool_format_seconds(comm, member->exposed_seconds));
}

static void print_hidden(const tool_run_job *job) {
  char longest[TOOL_QUANTITY_BYTES];
  double share = hidden_share(job), seconds = 0;
  for (int rank = 0; rank < job->team.ranks; rank++)
    if (job->members[rank].comm_seconds > seconds) seconds = job->members[rank].comm_seconds;
  if (share >= 0)
    printf("communication: at most %s in the last step, %.0f %% of it hidden behind kernels\n",
           tool_format_seconds(longest, seconds), 100 * share);
}

static void print_check(const tsr_check *check) {
  if (!check->where[0]) {
    printf("check FAILED: nothing could be compared\n");
    return;
  }
  printf("check %s (%s): ", check->passed ? "passed" : "FAILED",
         check->oracle ? "every output against f64" : "probes and samples in f64");
  if (isfinite(check->max_error))
    printf("largest error %.3g of at most %.3g, at %s; an error of %.3g would have been found\n",
           check->max_error, check->bound, check->where, check->detectable);
  else
    printf("NaN, infinity or a number in the place of another of them, at %s\n", check->where);
  if (check->wire_error > 0)
    printf("check: the narrow wire may add %.3g of what is summed to an element, in each collective\n",
           check->wire_error);
  if (check->not_finite)
    printf("check: %" PRId64 " of %" PRId64
           " comparisons were of numbers that are not finite or may overflow: by that alone\n",
           check->not_finite, check->compared);
}

/* A prediction that is no good is not to be taken for one. */
static void print_doubt(double predicted, double measured) {
  const double much = 2;
  if (!(predicted > 0 && measured > 0) || (measured < much * predicted && predicted < much * measured))
    return;
  printf(
      "off the prediction by %.1f times: other work here, now or when it was measured, or too short a step; "
      "tessera profile measures again\n",
      measured > predicted ? measured / predicted : predicted / measured);
}

void tool_run_print_text(const tool_run_job *job) {
  char text[512], predicted[TOOL_QUANTITY_BYTES], measured[TOOL_QUANTITY_BYTES];
  tool_workload_scale_text(&job->workload, text, sizeof text);
  if (text[0]) printf("%s\n", text);
  tool_workload_text(&job->workload, text, sizeof text);
  const tsr_dtype dtype = (tsr_dtype)job->options->dtype, weights = tool_workload_weights(&job->workload);
  printf("%s, %s%s%s, %s, %d rank%s (%s)\n", text, tsr_dtype_name(dtype),
         weights == dtype ? "" : ", weights in ", weights == dtype ? "" : tsr_dtype_name(weights),
         tool_workload_mode(&job->workload), job->team.ranks, job->team.ranks == 1 ? "" : "s",
         tsr_group_transport(job->team.group));
  printf("rank  %-28s %7s %9s %9s %9s %9s %9s %9s\n", "device", "share", "planned", "allocated", "sent",
         "predicted", "computed", "waited");
  for (int rank = 0; rank < job->team.ranks; rank++) print_rank(job, rank);
  int64_t after_first = job->steps - 1;
  char of_steps[48] = "the only step";
  if (after_first > 0)
    snprintf(of_steps, sizeof of_steps, "median of %" PRId64 " after the first", after_first);
  printf("per step: predicted %s, measured %s (%s), %.1f GFLOPS\n",
         tool_format_seconds(predicted, job->report.predicted_seconds),
         tool_format_seconds(measured, job->report.median_seconds), of_steps, gflops(job));
  print_doubt(job->report.predicted_seconds, job->report.median_seconds);
  print_hidden(job);
  if (job->checked) print_check(&job->check);
  fflush(stdout);
}
