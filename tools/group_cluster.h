/* group_cluster.h: the cluster that a command plans for: from the cache, or measured. */
#ifndef TOOL_GROUP_CLUSTER_H
#define TOOL_GROUP_CLUSTER_H

#include <tessera/tessera.h>

#include "team.h"

/* All ranks together. Measures the devices, which are open without caps, and keeps the result in the cache.
 */
tsr_status tool_cluster_measure(tool_team *team, tsr_cluster **out, tsr_error *error);

/* All ranks together, of a team that was started. A cached cluster if it still fits the devices, of
 * everything or of the team's work, else a measurement of that work. The devices are open afterwards, with
 * memory[rank] as their caps (NULL: none). */
tsr_status tool_cluster_obtain(tool_team *team, const uint64_t *memory, tsr_cluster **out, tsr_error *error);

/* Without a group: the cluster that these ranks of this host would have, from the cache (of everything, or of
 * this work), or measured by `tessera profile`. */
tsr_status tool_cluster_of_host(tsr_context *context, const tool_options *options, int ranks,
                                tool_transport transport, unsigned work, tsr_cluster **out, tsr_error *error);

/* The document, which the caller frees; NULL, with error, if there is no memory. */
char *tool_cluster_text(const tsr_cluster *cluster, tsr_error *error);

#endif
