/* contents.c: what the leaves of a workload hold: tensors of files, else random numbers. */
#include "workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"

enum { NAME_BYTES = 64, I8_MOST = 127 };

/* FILE.npy[:T] or FILE:TENSOR[:T], cut apart in a copy that `path` begins. */
typedef struct file_reference {
  char *path, *tensor; /* tensor is NULL for .npy */
  bool transposed;
} file_reference;

static bool ends_with(const char *text, const char *end) {
  size_t bytes = strlen(text), end_bytes = strlen(end);
  return bytes > end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

static tsr_status parse_reference(const char *text, file_reference *out, tsr_error *error) {
  *out = (file_reference){.path = strdup(text)};
  if (!out->path) return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "out of memory");
  if (ends_with(out->path, ":T")) {
    out->transposed = true;
    out->path[strlen(out->path) - 2] = 0;
  }
  if (ends_with(out->path, ".npy")) return TSR_OK;
  char *colon = strrchr(out->path, ':');
  if (!colon || colon == out->path || !colon[1]) {
    free(out->path);
    out->path = NULL;
    return tool_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                     "'%s' names no tensor: expected FILE.safetensors:TENSOR or FILE.npy", text);
  }
  *colon = 0;
  out->tensor = colon + 1;
  return TSR_OK;
}

static tsr_status add_file(const tool_workload *workload, tsr_source *source, const char *name,
                           const char *reference_text, tsr_error *error) {
  tsr_value value;
  tsr_value_info info;
  file_reference reference;
  tsr_status status = tsr_graph_find(workload->graph, name, &value, error);
  if (status == TSR_OK) status = tsr_graph_value_info(workload->graph, value, &info, error);
  if (status != TSR_OK) return status;
  if (info.kind != TSR_INPUT && info.kind != TSR_PARAMETER)
    return tool_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                     "'%s' is computed: only inputs and parameters have contents", name);
  if (tsr_source_has(source, name))
    return tool_fail(error, TSR_ERROR_INVALID_ARGUMENT, "the contents of '%s' are given twice", name);
  status = parse_reference(reference_text, &reference, error);
  if (status != TSR_OK) return status;
  status = tsr_source_add_file(source, name, reference.path, reference.tensor, reference.transposed, error);
  free(reference.path);
  return status;
}

/* NAME=REFERENCE */
static tsr_status add_weight(const tool_workload *workload, tsr_source *source, const char *text,
                             tsr_error *error) {
  const char *equals = strchr(text, '=');
  if (!equals || equals == text || !equals[1])
    return tool_fail(error, TSR_ERROR_INVALID_ARGUMENT, "--weight is '%s', expected NAME=FILE:TENSOR[:T]",
                     text);
  char *name = strndup(text, (size_t)(equals - text));
  if (!name) return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "out of memory");
  tsr_status status = add_file(workload, source, name, equals + 1, error);
  free(name);
  return status;
}

static tsr_status add_files(const tool_workload *workload, tsr_source *source, tsr_error *error) {
  const tool_options *options = workload->options;
  tsr_status status = TSR_OK;
  for (size_t i = 0; status == TSR_OK && i < options->weights.count; i++)
    status = add_weight(workload, source, options->weights.items[i], error);
  bool is_gemm = strcmp(tool_workload_operation(workload), "gemm") == 0;
  if (status == TSR_OK && options->input)
    status = add_file(workload, source, is_gemm ? "a" : "x", options->input, error);
  if (status == TSR_OK && options->target)
    status = add_file(workload, source, "target", options->target, error);
  return status;
}

/* Two values of one size must not hold the same numbers: each has a stream of its own. */
static uint64_t stream_seed(uint64_t seed, const char *name) {
  uint64_t hash = 14695981039346656037u ^ seed;
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 1099511628211u;
  return hash;
}

/* Of NAME_scale: the rows of the weight in i8 whose columns' factors it holds, and NAME (NAME_BYTES); 0 if it
 * is none of those. */
static int64_t rows_scaled(const tool_workload *workload, const char *name, char *weight) {
  static const char suffix[] = "_scale";
  tsr_value value;
  tsr_value_info info;
  size_t bytes = strlen(name);
  if (bytes >= NAME_BYTES || !ends_with(name, suffix)) return 0;
  snprintf(weight, NAME_BYTES, "%.*s", (int)(bytes - strlen(suffix)), name);
  bool found = tsr_graph_find(workload->graph, weight, &value, NULL) == TSR_OK &&
               tsr_graph_value_info(workload->graph, value, &info, NULL) == TSR_OK;
  return found && info.dtype == TSR_I8 ? info.shape.extent[0] : 0;
}

static tsr_status add_random(const tool_workload *workload, tsr_source *source, const tsr_value_info *info,
                             tsr_error *error) {
  const uint64_t seed = stream_seed(workload->options->seed, info->name);
  /* A sum over fan_in products keeps the size of its terms. */
  const int64_t *extent = info->shape.extent;
  double fan_in = info->shape.axes == 4  ? (double)(extent[1] * extent[2] * extent[3])
                  : info->shape.axes > 0 ? (double)extent[0]
                                         : 1;
  double high = info->kind == TSR_PARAMETER ? 1 / sqrt(fan_in) : 1;
  char weight[NAME_BYTES];
  int64_t scaled = info->kind == TSR_PARAMETER ? rows_scaled(workload, info->name, weight) : 0;
  if (info->dtype == TSR_I8)
    return tsr_source_add_random(source, info->name, TSR_RANDOM_INTEGER, seed, -I8_MOST, I8_MOST, error);
  if (scaled) {
    double largest = 1 / (I8_MOST * sqrt((double)scaled));
    return tsr_source_add_random(source, info->name, TSR_RANDOM_UNIFORM, seed, largest / 2, largest, error);
  }
  return tsr_source_add_random(source, info->name, TSR_RANDOM_UNIFORM, seed, -high, high, error);
}

/* Random contents for what has none yet: first for the factors of columns (but those of a weight from a file,
 * which are made as it is loaded, or must be given if it is whole numbers), then for all else. */
static tsr_status add_missing(const tool_workload *workload, tsr_source *source, bool scales,
                              tsr_error *error) {
  size_t count = tsr_graph_value_count(workload->graph);
  for (uint32_t id = 1; id <= count; id++) {
    char weight[NAME_BYTES];
    tsr_value_info info;
    tsr_status status = tsr_graph_value_info(workload->graph, (tsr_value){id}, &info, error);
    if (status != TSR_OK) return status;
    bool filled = info.kind == TSR_INPUT || info.kind == TSR_PARAMETER;
    bool is_scale = filled && rows_scaled(workload, info.name, weight);
    if (!filled || is_scale != scales || tsr_source_has(source, info.name)) continue;
    if (is_scale && tsr_source_has(source, weight)) continue;
    status = add_random(workload, source, &info, error);
    if (status != TSR_OK) return status;
  }
  return TSR_OK;
}

tsr_status tool_workload_source(tsr_context *context, const tool_workload *workload, tsr_source **out,
                                tsr_error *error) {
  tsr_status status = tsr_source_create(context, out, error);
  if (status == TSR_OK) status = add_files(workload, *out, error);
  if (status == TSR_OK) status = add_missing(workload, *out, true, error);
  if (status == TSR_OK) status = add_missing(workload, *out, false, error);
  return status;
}
