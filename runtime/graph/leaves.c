/* graph/leaves.c: inputs, parameters, states and outputs, and their names. */
#include "base/memory.h"
#include "base/text.h"
#include "graph/graph.h"

#include <string.h>

enum { NAME_BYTES_MAX = 255 };

/* Bytes of the UTF-8 sequence at text (at least one byte long), 0 if it is none (overlong forms and
 * surrogates are none either): names are written to JSON, which knows only UTF-8. */
static size_t utf8_bytes(const unsigned char *text) {
  static const struct {
    unsigned char mask, lead;
    uint32_t first;
  } forms[] = {{0x80, 0x00, 0}, {0xE0, 0xC0, 0x80}, {0xF0, 0xE0, 0x800}, {0xF8, 0xF0, 0x10000}};
  for (size_t n = 0; n < 4; n++) {
    if ((text[0] & forms[n].mask) != forms[n].lead) continue;
    uint32_t code = text[0] & (unsigned char)~forms[n].mask;
    for (size_t i = 1; i <= n; i++) {
      if ((text[i] & 0xC0) != 0x80) return 0;
      code = code << 6 | (text[i] & 0x3F);
    }
    bool legal = code >= forms[n].first && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    return legal ? n + 1 : 0;
  }
  return 0;
}

static bool is_plain_text(const char *name) {
  for (const unsigned char *at = (const unsigned char *)name; *at;) {
    size_t bytes = utf8_bytes(at);
    if (!bytes || *at < ' ' || *at == 0x7F) return false;
    at += bytes;
  }
  return true;
}

static tsr_status check_name(const char *name, const char *what, tsr_error *error) {
  if (!name || !*name)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "the name of this %s is empty", what);
  if (strlen(name) > NAME_BYTES_MAX)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "the name \"%.40s...\" of this %s has %zu bytes, at most %d are allowed", name, what,
                    strlen(name), NAME_BYTES_MAX);
  if (!is_plain_text(name))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "the name of this %s has control characters or is not UTF-8: use plain text", what);
  return TSR_OK;
}

static tsr_status check_unused(const tsr_graph *graph, tsr_value_kind kind, const char *name,
                               tsr_error *error) {
  for (uint32_t id = 1; id < graph->value_count; id++) {
    const tsr_graph_value *value = &graph->values[id];
    const char *taken = kind == TSR_INTERMEDIATE ? value->output : value->kind == kind ? value->name : NULL;
    if (taken && !strcmp(taken, name))
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                      "the name \"%s\" belongs to %s already: choose another one", name,
                      tsr_graph_describe(graph, (tsr_value){id}).text);
  }
  return TSR_OK;
}

static tsr_status check_dtype(tsr_value_kind kind, const char *name, tsr_dtype dtype, tsr_error *error) {
  if (!tsr_dtype_is_narrow(dtype)) return TSR_OK;
  if (!tsr_dtype_bytes(dtype))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "\"%s\" has type ? (%d), expected a tsr_dtype", name,
                    (int)dtype);
  if (kind == TSR_PARAMETER) return TSR_OK;
  return tsr_fail(
      error, TSR_ERROR_INVALID_ARGUMENT,
      "\"%s\" has type %s: inputs and states are f32 or f64, only parameters may be narrow; files "
      "are converted at load",
      name, tsr_dtype_name(dtype));
}

static tsr_status check_extents(const char *name, const tsr_shape *shape, tsr_error *error) {
  if (!shape)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "\"%s\" has shape NULL: give its extents", name);
  if (shape->axes < 0 || shape->axes > TSR_AXES_MAX)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "\"%s\" has %d axes, 0 to %d are allowed", name,
                    shape->axes, TSR_AXES_MAX);
  for (int i = 0; i < shape->axes; i++) {
    if (shape->extent[i] < 1)
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                      "axis %d of \"%s\" has extent %lld, at least 1 is needed", i, name,
                      (long long)shape->extent[i]);
    if (shape->symbol[i])
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                      "axis %d of \"%s\" has symbol %u, which is reserved: use 0", i, name,
                      (unsigned)shape->symbol[i]);
  }
  return TSR_OK;
}

/* A shape whose unused places are zero. */
static tsr_shape tidy_shape(const tsr_shape *shape) {
  tsr_shape tidy = {.axes = shape->axes};
  for (int i = 0; i < shape->axes; i++) tidy.extent[i] = shape->extent[i];
  return tidy;
}

tsr_status tsr_graph_leaf(tsr_graph *graph, tsr_value_kind kind, const char *name, tsr_dtype dtype,
                          const tsr_shape *shape, tsr_value *out, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_graph_check_open(graph, error));
  TSR_RETURN_IF_FAILED(check_name(name, tsr_value_kind_name(kind), error));
  TSR_RETURN_IF_FAILED(check_dtype(kind, name, dtype, error));
  TSR_RETURN_IF_FAILED(check_extents(name, shape, error));
  TSR_RETURN_IF_FAILED(tsr_graph_check_size(dtype, shape, error));
  TSR_RETURN_IF_FAILED(check_unused(graph, kind, name, error));
  tsr_graph_value value = {
      .kind = kind, .dtype = dtype, .shape = tidy_shape(shape), .name = tsr_text_copy(name), .producer = -1};
  if (!value.name) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the name \"%s\"", name);
  tsr_status status = tsr_graph_add_value(graph, &value, out, error);
  if (status != TSR_OK) free(value.name);
  return status;
}

tsr_status tsr_graph_input(tsr_graph *graph, const char *name, tsr_dtype dtype, const tsr_shape *shape,
                           tsr_value *out, tsr_error *error) {
  return tsr_graph_leaf(graph, TSR_INPUT, name, dtype, shape, out, error);
}

tsr_status tsr_graph_parameter(tsr_graph *graph, const char *name, tsr_dtype dtype, const tsr_shape *shape,
                               tsr_value *out, tsr_error *error) {
  return tsr_graph_leaf(graph, TSR_PARAMETER, name, dtype, shape, out, error);
}

tsr_status tsr_graph_state(tsr_graph *graph, const char *name, tsr_dtype dtype, const tsr_shape *shape,
                           tsr_value *out, tsr_error *error) {
  return tsr_graph_leaf(graph, TSR_STATE, name, dtype, shape, out, error);
}

tsr_status tsr_graph_output(tsr_graph *graph, const char *name, tsr_value value, tsr_error *error) {
  TSR_RETURN_IF_FAILED(tsr_graph_check_open(graph, error));
  TSR_RETURN_IF_FAILED(tsr_graph_check_value(graph, value, "this output", error));
  TSR_RETURN_IF_FAILED(check_name(name, "output", error));
  TSR_RETURN_IF_FAILED(check_unused(graph, TSR_INTERMEDIATE, name, error));
  tsr_graph_value *v = &graph->values[value.id];
  if (tsr_dtype_is_narrow(v->dtype))
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%s is %s: a narrow weight is no output; read the parameter itself",
                    tsr_graph_describe(graph, value).text, tsr_dtype_name(v->dtype));
  if (v->output)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%s is the output \"%s\" already, it cannot be \"%s\" as well",
                    tsr_graph_describe(graph, value).text, v->output, name);
  v->output = tsr_text_copy(name);
  if (!v->output) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the name \"%s\"", name);
  return TSR_OK;
}

tsr_value tsr_graph_parameter_named(const tsr_graph *graph, const char *name) {
  for (uint32_t id = 1; id < graph->value_count; id++)
    if (graph->values[id].kind == TSR_PARAMETER && !strcmp(graph->values[id].name, name))
      return (tsr_value){id};
  return TSR_NO_VALUE;
}

static uint32_t find_leaf(const tsr_graph *graph, const char *name) {
  for (uint32_t id = 1; id < graph->value_count; id++)
    if (graph->values[id].name && !strcmp(graph->values[id].name, name)) return id;
  return 0;
}

static uint32_t find_output(const tsr_graph *graph, const char *name) {
  for (uint32_t id = 1; id < graph->value_count; id++)
    if (graph->values[id].output && !strcmp(graph->values[id].output, name)) return id;
  return 0;
}

static tsr_status fail_not_found(const tsr_graph *graph, const char *name, tsr_error *error) {
  char nearest[3 * NAME_BYTES_MAX + 8];
  size_t count = 0;
  const char **names = tsr_calloc(2 * graph->value_count, sizeof *names);
  if (!names) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to look for \"%.80s\"", name);
  for (size_t id = 1; id < graph->value_count; id++) {
    if (graph->values[id].name) names[count++] = graph->values[id].name;
    if (graph->values[id].output) names[count++] = graph->values[id].output;
  }
  tsr_nearest_names(name, names, count, nearest, sizeof nearest);
  free(names);
  return tsr_fail(error, TSR_ERROR_NOT_FOUND, "no leaf or output is named \"%.80s\"; %s%s", name,
                  count ? "the nearest names are " : "the graph has no names", nearest);
}

tsr_status tsr_graph_find(const tsr_graph *graph, const char *name, tsr_value *out, tsr_error *error) {
  if (!name) name = "";
  uint32_t id = find_leaf(graph, name);
  if (!id) id = find_output(graph, name);
  if (!id) return fail_not_found(graph, name, error);
  out->id = id;
  return TSR_OK;
}
