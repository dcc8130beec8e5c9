/* "tessera.cluster/1": see docs/schemas.md. */
#include <stdio.h>
#include <string.h>

#include "base/gemm_json.h"
#include "base/memory.h"
#include "plan/cluster.h"

static const char schema[] = "tessera.cluster/1";
static const char *const kind_names[] = {"cpu", "gpu", "other"};
static const char *const form_names[TSR_GEMM_FORMS] = {"nn", "nt", "tn"};

static json_t *curve_to_json(const tsr_gemm_curve *curve) {
  json_t *points = json_array();
  for (int i = 0; i < curve->count; i++)
    json_array_append_new(points, json_pack("[I, I, f]", (json_int_t)curve->points[i].m,
                                            (json_int_t)curve->points[i].side, curve->points[i].seconds));
  return points;
}

static json_t *gemm_to_json(const tsr_cluster_member *member, int dtype) {
  json_t *gemm = tsr_gemm_facts_to_json(&member->gemm[dtype]);
  for (int form = 0; form < TSR_GEMM_FORMS; form++)
    json_object_set_new(gemm, form_names[form], curve_to_json(&member->curves[dtype][form]));
  return gemm;
}

static json_t *member_to_json(const tsr_cluster_member *member) {
  json_t *json =
      json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:b, s:I, s:I, s:f, s:f}", "name", member->name,
                "platform", member->platform, "backend", member->backend, "driver", member->driver, "host",
                member->host, "kind", kind_names[member->kind], "unified_memory", (int)member->unified_memory,
                "estimated", (int)member->estimated, "memory_bytes", (json_int_t)member->memory_bytes,
                "max_allocation_bytes", (json_int_t)member->max_allocation_bytes, "memory_bandwidth",
                member->memory_bandwidth, "launch_seconds", member->launch_seconds);
  json_t *gemm = json_object();
  for (int dtype = 0; dtype < TSR_CLUSTER_DTYPES; dtype++)
    json_object_set_new(gemm, tsr_gemm_types_name((tsr_gemm_types)dtype), gemm_to_json(member, dtype));
  json_object_set_new(json, "gemm", gemm);
  return json;
}

static json_t *link_to_json(const tsr_link *link) {
  return json_pack("{s:f, s:f}", "latency", link->latency, "bandwidth", link->bandwidth);
}

json_t *tsr_cluster_to_json(const tsr_cluster *cluster) {
  json_t *members = json_array();
  for (int i = 0; i < cluster->member_count; i++)
    json_array_append_new(members, member_to_json(&cluster->members[i]));
  return json_pack("{s:s, s:o, s:o, s:f, s:o}", "schema", schema, "link", link_to_json(&cluster->links.host),
                   "network", link_to_json(&cluster->links.network), "reduce_bandwidth",
                   cluster->links.reduce_bandwidth, "members", members);
}

/* "cpu" -> 0; -1 if it is none of the names. */
static int index_of(const char *name, const char *const *names, int count) {
  for (int i = 0; i < count; i++)
    if (!strcmp(name, names[i])) return i;
  return -1;
}

/* A curve must be a full grid, both axes ascending: interpolation relies on it. */
static bool is_grid(const tsr_gemm_curve *curve) {
  int sides = 0;
  while (sides < curve->count && curve->points[sides].m == curve->points[0].m) sides++;
  for (int i = 0; i < curve->count; i++) {
    const tsr_gemm_point *point = &curve->points[i];
    if (i % sides && point->side <= point[-1].side) return false;
    if (point->side != curve->points[i % sides].side) return false;
    if (point->m != curve->points[i / sides * sides].m) return false;
    if (i >= sides && point->m <= curve->points[i - sides].m) return false;
  }
  return !curve->count || curve->count % sides == 0;
}

static tsr_status curve_from_json(const json_t *gemm, const char *path, const char *key,
                                  tsr_gemm_curve *curve, tsr_error *error) {
  json_t *points;
  TSR_RETURN_IF_FAILED(tsr_json_array(gemm, path, key, &points, error));
  if (json_array_size(points) > TSR_GEMM_POINTS_MAX)
    return tsr_fail(error, TSR_ERROR_FORMAT, "%s.%s: %zu points, at most %d are allowed", path, key,
                    json_array_size(points), TSR_GEMM_POINTS_MAX);
  curve->count = (int)json_array_size(points);
  for (int i = 0; i < curve->count; i++) {
    const json_t *point = json_array_get(points, (size_t)i);
    json_int_t m = json_integer_value(json_array_get(point, 0)),
               side = json_integer_value(json_array_get(point, 1));
    double seconds = json_number_value(json_array_get(point, 2));
    if (m < 1 || side < 1 || !(seconds > 0 && seconds < 1e9))
      return tsr_fail(error, TSR_ERROR_FORMAT, "%s.%s[%d]: expected [m, side, seconds], all above 0", path,
                      key, i);
    curve->points[i] = (tsr_gemm_point){m, side, seconds};
  }
  if (!is_grid(curve))
    return tsr_fail(error, TSR_ERROR_FORMAT, "%s.%s: points are not a grid of ascending m and side", path,
                    key);
  return TSR_OK;
}

/* Narrow weights may be missing: they are not supported then. */
static tsr_status gemm_from_json(const json_t *gemms, const char *path, int dtype, tsr_cluster_member *member,
                                 tsr_error *error) {
  char place[96];
  json_t *gemm;
  const char *name = tsr_gemm_types_name((tsr_gemm_types)dtype);
  if (tsr_dtype_is_narrow((tsr_dtype)dtype) && !json_object_get(gemms, name)) return TSR_OK;
  snprintf(place, sizeof place, "%s.%s", path, name);
  TSR_RETURN_IF_FAILED(tsr_json_object(gemms, path, name, &gemm, error));
  TSR_RETURN_IF_FAILED(tsr_gemm_facts_from_json(gemm, place, &member->gemm[dtype], error));
  for (int form = 0; form < TSR_GEMM_FORMS; form++) {
    tsr_gemm_curve *curve = &member->curves[dtype][form];
    TSR_RETURN_IF_FAILED(curve_from_json(gemm, place, form_names[form], curve, error));
    if (!curve->count && member->gemm[dtype].family != TSR_GEMM_NONE)
      return tsr_fail(error, TSR_ERROR_FORMAT, "%s.%s: no point, but the family is \"%s\"", place,
                      form_names[form], tsr_gemm_family_name(member->gemm[dtype].family));
  }
  return TSR_OK;
}

static tsr_status member_from_json(const json_t *json, const char *path, tsr_cluster_member *member,
                                   tsr_error *error) {
  char kind[16], place[64];
  int64_t memory, allocation;
  json_t *gemms;
  TSR_RETURN_IF_FAILED(tsr_json_text(json, path, "name", member->name, sizeof member->name, error));
  TSR_RETURN_IF_FAILED(
      tsr_json_text(json, path, "platform", member->platform, sizeof member->platform, error));
  TSR_RETURN_IF_FAILED(tsr_json_text(json, path, "backend", member->backend, sizeof member->backend, error));
  TSR_RETURN_IF_FAILED(tsr_json_text(json, path, "driver", member->driver, sizeof member->driver, error));
  TSR_RETURN_IF_FAILED(tsr_json_text(json, path, "host", member->host, sizeof member->host, error));
  TSR_RETURN_IF_FAILED(tsr_json_text(json, path, "kind", kind, sizeof kind, error));
  TSR_RETURN_IF_FAILED(tsr_json_bool(json, path, "unified_memory", &member->unified_memory, error));
  TSR_RETURN_IF_FAILED(tsr_json_bool(json, path, "estimated", &member->estimated, error));
  TSR_RETURN_IF_FAILED(tsr_json_integer(json, path, "memory_bytes", 1, INT64_MAX, &memory, error));
  TSR_RETURN_IF_FAILED(
      tsr_json_integer(json, path, "max_allocation_bytes", 1, INT64_MAX, &allocation, error));
  TSR_RETURN_IF_FAILED(tsr_json_real(json, path, "memory_bandwidth", 1, &member->memory_bandwidth, error));
  TSR_RETURN_IF_FAILED(tsr_json_real(json, path, "launch_seconds", 0, &member->launch_seconds, error));
  int index = index_of(kind, kind_names, sizeof kind_names / sizeof *kind_names);
  if (index < 0)
    return tsr_fail(error, TSR_ERROR_FORMAT, "%s.kind: \"%s\": expected cpu, gpu or other", path, kind);
  member->kind = (tsr_device_kind)index;
  member->memory_bytes = (uint64_t)memory;
  member->max_allocation_bytes = (uint64_t)allocation;
  TSR_RETURN_IF_FAILED(tsr_json_object(json, path, "gemm", &gemms, error));
  snprintf(place, sizeof place, "%s.gemm", path);
  for (int dtype = 0; dtype < TSR_CLUSTER_DTYPES; dtype++)
    TSR_RETURN_IF_FAILED(gemm_from_json(gemms, place, dtype, member, error));
  return TSR_OK;
}

static tsr_status link_from_json(const json_t *json, const char *key, tsr_link *link, tsr_error *error) {
  char place[32];
  json_t *object;
  snprintf(place, sizeof place, "cluster.%s", key);
  TSR_RETURN_IF_FAILED(tsr_json_object(json, "cluster", key, &object, error));
  TSR_RETURN_IF_FAILED(tsr_json_real(object, place, "latency", 0, &link->latency, error));
  return tsr_json_real(object, place, "bandwidth", 1, &link->bandwidth, error);
}

/* A document may know of one kind of link only. */
static tsr_status links_from_json(const json_t *json, tsr_links *links, tsr_error *error) {
  TSR_RETURN_IF_FAILED(link_from_json(json, "link", &links->host, error));
  links->network = links->host;
  if (json_object_get(json, "network"))
    TSR_RETURN_IF_FAILED(link_from_json(json, "network", &links->network, error));
  if (!json_object_get(json, "reduce_bandwidth")) return TSR_OK;
  return tsr_json_real(json, "cluster", "reduce_bandwidth", 1, &links->reduce_bandwidth, error);
}

tsr_status tsr_cluster_from_json(tsr_context *context, const json_t *json, tsr_cluster **out,
                                 tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_cluster *cluster = NULL;
  json_t *members;
  TSR_TRY(tsr_json_array(json, "cluster", "members", &members, error));
  if (!json_array_size(members) || json_array_size(members) > 65536)
    TSR_THROW(TSR_ERROR_FORMAT, "cluster.members: %zu members: expected 1 to 65536",
              json_array_size(members));
  TSR_TRY(tsr_cluster_create(context, (int)json_array_size(members), &cluster, error));
  TSR_TRY(links_from_json(json, &cluster->links, error));
  for (int i = 0; i < cluster->member_count; i++) {
    char path[32];
    snprintf(path, sizeof path, "members[%d]", i);
    TSR_TRY(member_from_json(json_array_get(members, (size_t)i), path, &cluster->members[i], error));
  }
  tsr_cluster_number_hosts(cluster);
  *out = cluster;
  cluster = NULL;
done:
  tsr_cluster_destroy(&cluster);
  return status;
}

tsr_status tsr_cluster_parse(tsr_context *context, const char *json, size_t bytes, tsr_cluster **out,
                             tsr_error *error) {
  json_t *document;
  TSR_RETURN_IF_FAILED(tsr_json_parse(json, bytes, "cluster", schema, &document, error));
  tsr_status status = tsr_cluster_from_json(context, document, out, error);
  json_decref(document);
  return status;
}

tsr_status tsr_cluster_read(tsr_context *context, const char *path, tsr_cluster **out, tsr_error *error) {
  char *text;
  size_t bytes;
  TSR_RETURN_IF_FAILED(tsr_file_read(path, &text, &bytes, error));
  tsr_status status = tsr_cluster_parse(context, text, bytes, out, error);
  if (status != TSR_OK) tsr_error_wrap(error, "%s", path);
  free(text);
  return status;
}

tsr_status tsr_cluster_write(const tsr_cluster *cluster, tsr_writer writer, void *user, tsr_error *error) {
  json_t *document = tsr_cluster_to_json(cluster);
  char *text = document ? json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
  json_decref(document);
  if (!text) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to write the cluster");
  int stopped = writer(user, text, strlen(text)) || writer(user, "\n", 1);
  free(text);
  return stopped ? tsr_fail(error, TSR_ERROR_IO, "the cluster could not be written") : TSR_OK;
}
