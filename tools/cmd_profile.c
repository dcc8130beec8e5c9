/* cmd_profile.c: tessera profile: measures the devices of a group, all at once, and the links between them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "commands.h"
#include "group_cluster.h"
#include "json.h"
#include "launch.h"
#include "message.h"
#include "report.h"

/* Best measured speed of a member's curves, in GFLOPS: points are [m, side, seconds], n = k = side. */
static double best_gflops(const json_t *gemm) {
  double best = 0;
  size_t index;
  json_t *point;
  json_array_foreach(json_object_get(gemm, "nn"), index, point) {
    double m = json_number_value(json_array_get(point, 0)),
           side = json_number_value(json_array_get(point, 1));
    double seconds = json_number_value(json_array_get(point, 2));
    if (seconds > 0 && 2e-9 * m * side * side / seconds > best) best = 2e-9 * m * side * side / seconds;
  }
  return best;
}

static void print_member(size_t rank, const json_t *member) {
  char memory[TOOL_QUANTITY_BYTES], bandwidth[TOOL_QUANTITY_BYTES];
  const json_t *gemm = json_object_get(member, "gemm");
  tool_format_bytes(memory, (double)tool_json_get_bytes(member, "memory_bytes"));
  tool_format_bytes(bandwidth, json_number_value(json_object_get(member, "memory_bandwidth")));
  printf("%4zu  %-40.40s %9s %11s/s %10.1f %10.1f%s\n", rank, tool_json_get_text(member, "name"), memory,
         bandwidth, best_gflops(json_object_get(gemm, "f32")), best_gflops(json_object_get(gemm, "f64")),
         json_is_true(json_object_get(member, "estimated")) ? "  (estimated)" : "");
}

static void print_table(const json_t *document) {
  char latency[TOOL_QUANTITY_BYTES], bandwidth[TOOL_QUANTITY_BYTES];
  const json_t *link = json_object_get(document, "link");
  size_t rank;
  json_t *member;
  printf("rank  %-40s %9s %13s %10s %10s\n", "device", "memory", "bandwidth", "f32 GFLOPS", "f64 GFLOPS");
  json_array_foreach(json_object_get(document, "members"), rank, member) print_member(rank, member);
  tool_format_seconds(latency, json_number_value(json_object_get(link, "latency")));
  tool_format_bytes(bandwidth, json_number_value(json_object_get(link, "bandwidth")));
  printf("between ranks: %s, %s/s\n", latency, bandwidth);
}

/* What rank 0 has to show. */
static tsr_status show(const tool_options *options, const tsr_cluster *cluster, tsr_error *error) {
  char *text = tool_cluster_text(cluster, error);
  if (!text) return TSR_ERROR_OUT_OF_MEMORY;
  tsr_status status = options->output ? tool_file_write(options->output, text, error) : TSR_OK;
  json_t *document = json_loads(text, 0, NULL);
  if (status == TSR_OK && options->json)
    fputs(text, stdout);
  else if (status == TSR_OK)
    print_table(document);
  json_decref(document);
  free(text);
  return status;
}

int tool_command_profile(const tool_options *options) {
  tool_team team;
  tsr_cluster *cluster = NULL;
  tsr_error error = {.rank = -1};
  int code = tool_team_plan(options, 0, &team);
  if (code) return code;
  if (tool_team_needs_launch(&team)) return tool_launch(options, team.ranks);
  tsr_status status = tool_team_start(&team, &error);
  if (status == TSR_OK)
    status = tool_team_agree(
        &team, tool_team_leads(&team) ? tool_file_check(options->output, &error) : TSR_OK, &error);
  if (status == TSR_OK) status = tool_team_open(&team, NULL, &error);
  if (status == TSR_OK) status = tool_cluster_measure(&team, &cluster, &error);
  if (status == TSR_OK)
    status = tool_team_agree(&team, tool_team_leads(&team) ? show(options, cluster, &error) : TSR_OK, &error);
  if (status != TSR_OK && options->json && tool_team_leads(&team))
    tool_json_print(options->name, tool_json_failure(options->name, &error));
  tsr_cluster_destroy(&cluster);
  return tool_team_end(&team, status, &error);
}
