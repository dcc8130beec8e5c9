/* Planned against measured. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/session.h"

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, uint64_t count) {
  qsort(values, count, sizeof *values, ascending);
  return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

/* Every kept step's time on the slowest process, and after them that of the last step. */
static tsr_status slowest_times(tsr_session *session, double *seconds, tsr_error *error) {
  tsr_status status = TSR_OK;
  size_t steps = session->sample_count + 1, locals = (size_t)session->local_count;
  size_t members = (size_t)tsr_group_member_count(session->group);
  double *own = tsr_calloc(locals * steps, sizeof *own), *all = tsr_calloc(members * steps, sizeof *all);
  if (!own || !all)
    status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the times of %zu steps", steps);
  TSR_TRY(tsr_session_agree(session, status, error));
  for (size_t i = 0; i < locals; i++) {
    memcpy(own + i * steps, session->sample_seconds, session->sample_count * sizeof *own);
    own[i * steps + steps - 1] = session->last_seconds;
  }
  TSR_TRY(tsr_session_agree(session, tsr_group_gather(session->group, own, steps * sizeof *own, all, error),
                            error));
  for (size_t i = 0; i < members; i++)
    for (size_t j = 0; j < steps; j++)
      if (all[i * steps + j] > seconds[j]) seconds[j] = all[i * steps + j];
done:
  free(own);
  free(all);
  return status;
}

tsr_status tsr_session_report(tsr_session *session, tsr_report *out, tsr_member_report *members,
                              tsr_error *error) {
  tsr_status status = TSR_OK;
  TSR_RETURN_IF_FAILED(tsr_session_usable(session, "tsr_session_report", error));
  uint64_t steps = session->step_count;
  *out = (tsr_report){.steps = steps, .predicted_seconds = session->plan->predicted_seconds};
  size_t kept = session->sample_count;
  double *seconds = tsr_calloc(kept + 1, sizeof *seconds);
  tsr_member_report *own = tsr_calloc((size_t)session->local_count, sizeof *own);
  tsr_member_report *all = tsr_calloc((size_t)tsr_group_member_count(session->group), sizeof *all);
  if (!seconds || !own || !all) status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a report");
  TSR_TRY(tsr_session_agree(session, status, error));
  for (int i = 0; i < session->local_count; i++) own[i] = session->locals[i].report;
  TSR_TRY(tsr_session_agree(session, tsr_group_gather(session->group, own, sizeof *own, all, error), error));
  if (members) memcpy(members, all, (size_t)tsr_group_member_count(session->group) * sizeof *all);
  if (!steps) goto done;
  TSR_TRY(slowest_times(session, seconds, error));
  out->first_seconds = seconds[0];
  out->last_seconds = seconds[kept];
  out->median_seconds = kept > 1 ? median(seconds + 1, kept - 1) : seconds[0];
done:
  free(seconds);
  free(own);
  free(all);
  return status;
}
