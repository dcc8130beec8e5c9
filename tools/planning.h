/* planning.h: a workload and a cluster to a plan, and documents about them. */
#ifndef TOOL_PLANNING_H
#define TOOL_PLANNING_H

#include <jansson.h>

#include "workload.h"

/* Gives the cluster's members memory[member] bytes (NULL: what they have), plans, and measures how long that
 * took. As tsr_plan_create, an INFEASIBLE plan is given all the same. */
tsr_status tool_planning_run(const tool_workload *workload, tsr_cluster *cluster, const uint64_t *memory,
                             tsr_plan **out, double *seconds, tsr_error *error);
/* --device-memory of `members` ranks, which the caller frees; *out is NULL if it was not said. */
tsr_status tool_planning_memory(const tool_workload *workload, int members, uint64_t **out, tsr_error *error);

/* The plan's document, which the caller frees; NULL, with error, if there is no memory. */
char *tool_planning_text(const tsr_plan *plan, tsr_error *error);
/* The same as a new object; NULL if there is no memory. */
json_t *tool_planning_document(const tsr_plan *plan);
/* {text, operation, dimensions, dtype, mode, scale} */
json_t *tool_planning_workload(const tool_workload *workload);

#endif
