/* group_cluster.c: clusters and their cache. Speeds depend on who computes beside whom: the key holds every
 * rank's host, device, driver and tuning rows, their number, the transport with what chooses its network, and
 * what limits a CPU device's threads. A cluster that was measured for some work only has a key of its own. */
#include "group_cluster.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"
#include "drivers.h"
#include "launch.h"
#include "message.h"

static const char KIND[] = "cluster";

/* Who a rank is, as one text of fixed size, so that ranks can gather it. */
typedef struct identity {
  char text[512];
} identity;

/* Changes when a file of the user's tuning rows comes, goes or is replaced: with it the variants that
 * products run, and what a plan's hash sees of them. */
static uint64_t tuning_key(const tsr_context *context) {
  uint64_t key = 0;
  const char *folder = tsr_context_tuning_folder(context);
  DIR *entries = *folder ? opendir(folder) : NULL;
  for (struct dirent *entry; entries && (entry = readdir(entries));) {
    char text[4096];
    struct stat facts;
    snprintf(text, sizeof text, "%s/%s", folder, entry->d_name);
    if (entry->d_name[0] == '.' || stat(text, &facts) != 0) continue;
    uint64_t hash = tool_hash(TOOL_HASH_BEGIN, entry->d_name);
    snprintf(text, sizeof text, "%lld %ld %lld", (long long)facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec,
             (long long)facts.st_size);
    key += tool_hash(hash, text); /* in whatever order */
  }
  if (entries) closedir(entries);
  return key;
}

/* By these variables a user of MPICH chooses among a host's networks. */
static uint64_t network_key(void) {
  static const char *const names[] = {"UCX_NET_DEVICES", "FI_PROVIDER", "MPIR_CVAR_CH4_NETMOD"};
  uint64_t hash = TOOL_HASH_BEGIN;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *value = getenv(names[i]);
    hash = tool_hash(hash, value ? value : "");
  }
  return hash;
}

static void identify(const tsr_context *context, const tool_choice *choice, identity *out) {
  char host[65] = "";
  const tsr_device_info *info = &choice->device.info;
  gethostname(host, sizeof host - 1);
  memset(out, 0, sizeof *out);
  snprintf(out->text, sizeof out->text, "%s|%s|%s|%s|%s|%016" PRIx64 "|%016" PRIx64, host, info->platform,
           info->name, info->driver, info->backend, tuning_key(context), network_key());
}

static uint64_t make_key(const identity *identities, int ranks, tool_transport transport) {
  uint64_t hash = tool_hash(TOOL_HASH_BEGIN, tsr_version());
  hash = tool_hash(hash, ranks == 1 ? "self" : transport == TOOL_TRANSPORT_SIM ? "sim" : "mpi");
  for (int i = 0; i < ranks; i++) hash = tool_hash(hash, identities[i].text);
  return hash;
}

static uint64_t key_for_work(uint64_t key, unsigned work) {
  char text[32];
  snprintf(text, sizeof text, "work %u", work);
  return work ? tool_hash(key, text) : key;
}

/* All ranks together. */
static tsr_status group_key(tool_team *team, uint64_t *key, tsr_error *error) {
  identity *all = calloc((size_t)team->ranks, sizeof *all);
  identity *own = calloc((size_t)team->local_count, sizeof *own);
  tsr_status status =
      all && own ? TSR_OK : tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", team->ranks);
  for (int i = 0; status == TSR_OK && i < team->local_count; i++)
    identify(team->context, &team->choices[i], &own[i]);
  status = tool_team_agree(team, status, error);
  if (status == TSR_OK) status = tsr_group_gather(team->group, own, sizeof *own, all, error);
  if (status == TSR_OK) *key = make_key(all, team->ranks, team->transport);
  free(all);
  free(own);
  return status;
}

char *tool_cluster_text(const tsr_cluster *cluster, tsr_error *error) {
  char *text = NULL;
  size_t bytes;
  FILE *memory = open_memstream(&text, &bytes);
  tsr_status status = memory ? tsr_cluster_write(cluster, tool_write_file, memory, error)
                             : tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to write the cluster");
  if (memory && fclose(memory) != 0 && status == TSR_OK)
    status = tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to write the cluster");
  if (status == TSR_OK) return text;
  free(text);
  return NULL;
}

static tsr_status measure(tool_team *team, uint64_t key, tsr_cluster **out, tsr_error *error) {
  if (tool_team_leads(team))
    tool_progress("measuring %d device%s, once ...", team->ranks, team->ranks == 1 ? "" : "s");
  tsr_measure_options options;
  tsr_measure_options_init(&options);
  options.work = team->work;
  tsr_status status =
      tsr_cluster_measure(team->group, team->devices, (size_t)team->local_count, &options, out, error);
  if (status != TSR_OK || !tool_team_leads(team)) return status;
  char *text = tool_cluster_text(*out, NULL); /* a cluster that is not cached only costs time */
  if (text) tool_cache_write(team->context, KIND, key_for_work(key, team->work), text);
  free(text);
  return TSR_OK;
}

tsr_status tool_cluster_measure(tool_team *team, tsr_cluster **out, tsr_error *error) {
  uint64_t key = 0;
  tsr_status status = group_key(team, &key, error);
  return status == TSR_OK ? measure(team, key, out, error) : status;
}

/* Rank 0's cached text, on all ranks; *text is NULL on all if there is none. */
static tsr_status share_cached(tool_team *team, uint64_t key, char **text, tsr_error *error) {
  *text = tool_team_leads(team) ? tool_cache_read(team->context, KIND, key, 0) : NULL;
  uint64_t bytes = *text ? strlen(*text) : 0;
  tsr_status status = tsr_group_broadcast(team->group, 0, &bytes, sizeof bytes, error);
  if (status != TSR_OK || !bytes) return status;
  if (!*text) *text = calloc(bytes + 1, 1);
  status = *text ? TSR_OK : tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the cluster");
  status = tool_team_agree(team, status, error);
  return status == TSR_OK ? tsr_group_broadcast(team->group, 0, *text, bytes, error) : status;
}

/* Whether the loss of a rank is behind a failure: then there is no other way to try. */
static bool is_final(tsr_status status) {
  return status == TSR_ERROR_RANK_LOST || status == TSR_ERROR_COMM;
}

/* The cluster as the capped devices are: it was measured, and cached, without caps. */
static tsr_status apply_caps(tsr_cluster *cluster, const uint64_t *memory, tsr_error *error) {
  for (int member = 0; memory && member < tsr_cluster_member_count(cluster); member++) {
    const char *name;
    uint64_t there;
    tsr_status status = tsr_cluster_get_member(cluster, member, &name, &there, error);
    if (status == TSR_OK && memory[member] < there)
      status = tsr_cluster_set_memory(cluster, member, memory[member], error);
    if (status != TSR_OK) return status;
  }
  return TSR_OK;
}

/* The cached cluster, if it is still true of the open devices; *out stays NULL if not. */
static tsr_status take_cached(tool_team *team, const char *text, const uint64_t *memory, tsr_cluster **out,
                              tsr_error *error) {
  tsr_cluster *cluster = NULL;
  tsr_status status = tsr_cluster_parse(team->context, text, strlen(text), &cluster, error);
  if (status == TSR_OK && tsr_cluster_member_count(cluster) == team->ranks)
    status = apply_caps(cluster, memory, error);
  status = tool_team_agree(team, status, error);
  if (status == TSR_OK)
    status = tsr_cluster_match(cluster, team->group, team->devices, (size_t)team->local_count, error);
  if (status == TSR_OK) {
    *out = cluster;
    return TSR_OK;
  }
  tsr_cluster_destroy(&cluster);
  return is_final(status) ? status : TSR_OK;
}

/* A cap may be too small to measure in: the devices are open without one meanwhile. */
static tsr_status measure_uncapped(tool_team *team, const uint64_t *memory, uint64_t key, tsr_cluster **out,
                                   tsr_error *error) {
  tool_team_close(team);
  tsr_status status = tool_team_open(team, NULL, error);
  if (status == TSR_OK) status = measure(team, key, out, error);
  if (status != TSR_OK || !memory) return status;
  tool_team_close(team);
  return tool_team_open(team, memory, error);
}

/* *out stays NULL if there is none, or none that fits. */
static tsr_status try_cached(tool_team *team, uint64_t key, const uint64_t *memory, tsr_cluster **out,
                             tsr_error *error) {
  char *text = NULL;
  tsr_status status = share_cached(team, key, &text, error);
  if (status == TSR_OK && text) {
    tool_team_close(team);
    status = tool_team_open(team, memory, error);
    if (status == TSR_OK) status = take_cached(team, text, memory, out, error);
  }
  free(text);
  return status;
}

tsr_status tool_cluster_obtain(tool_team *team, const uint64_t *memory, tsr_cluster **out, tsr_error *error) {
  uint64_t key = 0;
  tsr_status status = group_key(team, &key, error);
  if (status == TSR_OK) status = try_cached(team, key, memory, out, error);
  if (status == TSR_OK && !*out && team->work)
    status = try_cached(team, key_for_work(key, team->work), memory, out, error);
  if (status == TSR_OK && !*out) status = measure_uncapped(team, memory, key, out, error);
  return status;
}

/* The key that the ranks would find together; every one of them is on this host. */
static tsr_status host_key(tsr_context *context, const tool_options *options, int ranks,
                           tool_transport transport, uint64_t *key, tsr_error *error) {
  tool_device_table table;
  identity *all = calloc((size_t)ranks, sizeof *all);
  tsr_status status = tool_devices_find(context, false, &table, error);
  if (status == TSR_OK && !all)
    status = tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", ranks);
  for (int rank = 0; status == TSR_OK && rank < ranks; rank++) {
    tool_choice choice;
    status = tool_choose(&table, options, rank, rank, &choice, error);
    if (status == TSR_OK) identify(context, &choice, &all[rank]);
  }
  if (status == TSR_OK) *key = make_key(all, ranks, transport);
  free(all);
  tool_devices_free(&table);
  return status;
}

tsr_status tool_cluster_of_host(tsr_context *context, const tool_options *options, int ranks,
                                tool_transport transport, unsigned work, tsr_cluster **out,
                                tsr_error *error) {
  uint64_t key = 0;
  tsr_status status = host_key(context, options, ranks, transport, &key, error);
  if (status != TSR_OK) return status;
  char *text = tool_cache_read(context, KIND, key, 0);
  if (!text) text = tool_cache_read(context, KIND, key_for_work(key, work), 0);
  if (text) status = tsr_cluster_parse(context, text, strlen(text), out, error);
  free(text);
  if (*out) return status;
  text = NULL;
  tool_progress("measuring %d device%s, once ...", ranks, ranks == 1 ? "" : "s");
  status = tool_launch_profile(options, ranks, &text, error);
  if (status == TSR_OK) status = tsr_cluster_parse(context, text, strlen(text), out, error);
  free(text);
  return status;
}
