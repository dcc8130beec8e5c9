/* workload.c: words of the command line to a graph. */
#include "workload.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "message.h"
#include "numbers.h"

/* The most parameters that any of the operations has. */
enum { PARAMETERS_MAX = 8 };

static const int64_t EXTENT_MAX = (int64_t)1 << 40;

typedef struct built {
  tsr_value x, y;
} built;

typedef tsr_status (*builder)(const tool_workload *workload, built *out, tsr_error *error);

struct tool_operation {
  const char *name;
  const char *dimensions[TOOL_DIMENSIONS_MAX];
  builder build;
  const char *input, *output, *output_gradient, *gradient_prefix;
  bool output_free; /* y and dy lie as the planner likes; else every member has all of them */
  bool activation;  /* --activation means something */
};

static tsr_status pin_replicate(tsr_graph *graph, tsr_value value, tsr_error *error) {
  tsr_layout layout = tsr_layout_replicate();
  return tsr_graph_pin(graph, value, &layout, error);
}

static tsr_status add_input(const tool_workload *workload, const char *name, tsr_shape shape, bool pinned,
                            tsr_value *out, tsr_error *error) {
  tsr_status status =
      tsr_graph_input(workload->graph, name, (tsr_dtype)workload->options->dtype, &shape, out, error);
  return status == TSR_OK && pinned ? pin_replicate(workload->graph, *out, error) : status;
}

static tsr_status add_parameter(const tool_workload *workload, const char *name, tsr_dtype dtype,
                                tsr_shape shape, tsr_value *out, tsr_error *error) {
  return tsr_graph_parameter(workload->graph, name, dtype, &shape, out, error);
}

static const tsr_dtype weight_dtypes[] = {TSR_F16, TSR_BF16, TSR_I8}; /* in the order of tool_weight_names */

tsr_dtype tool_workload_weights(const tool_workload *workload) {
  const tool_options *options = workload->options;
  return options->weight_type < 0 ? (tsr_dtype)options->dtype : weight_dtypes[options->weight_type];
}

static tsr_status build_gemm(const tool_workload *workload, built *out, tsr_error *error) {
  int64_t m = workload->extent[0], n = workload->extent[1], k = workload->extent[2];
  tsr_value b;
  tsr_status status = add_input(workload, "a", tsr_shape_of(2, m, k), true, &out->x, error);
  if (status == TSR_OK)
    status = add_parameter(workload, "b", tool_workload_weights(workload), tsr_shape_of(2, k, n), &b, error);
  if (status == TSR_OK) status = tsr_graph_linear(workload->graph, out->x, b, TSR_NO_VALUE, &out->y, error);
  return status;
}

static tsr_status build_linear(const tool_workload *workload, built *out, tsr_error *error) {
  int64_t m = workload->extent[0], d_in = workload->extent[1], d_out = workload->extent[2];
  tsr_value w, bias;
  tsr_status status = add_input(workload, "x", tsr_shape_of(2, m, d_in), true, &out->x, error);
  if (status == TSR_OK)
    status = add_parameter(workload, "w", tool_workload_weights(workload), tsr_shape_of(2, d_in, d_out), &w,
                           error);
  if (status == TSR_OK)
    status = add_parameter(workload, "bias", (tsr_dtype)workload->options->dtype, tsr_shape_of(1, d_out, 0),
                           &bias, error);
  if (status == TSR_OK) status = tsr_graph_linear(workload->graph, out->x, w, bias, &out->y, error);
  return status;
}

static tsr_status build_ffn(const tool_workload *workload, built *out, tsr_error *error) {
  const tool_options *options = workload->options;
  tsr_ffn_options ffn;
  tsr_ffn_options_init(&ffn);
  ffn.hidden = workload->extent[2];
  if (options->activation >= 0) ffn.activation = (tsr_unary)options->activation;
  ffn.weight_dtype = tool_workload_weights(workload);
  ffn.gated = options->gated;
  ffn.no_bias = options->gated;
  tsr_status status = add_input(workload, "x", tsr_shape_of(2, workload->extent[0], workload->extent[1]),
                                true, &out->x, error);
  if (status == TSR_OK) status = tsr_graph_ffn(workload->graph, out->x, &ffn, &out->y, error);
  return status;
}

static tsr_status build_conv(const tool_workload *workload, built *out, tsr_error *error) {
  const tool_options *options = workload->options;
  const int64_t *e = workload->extent, groups = options->groups ? options->groups : 1;
  tsr_conv_options conv;
  tsr_value w, bias;
  tsr_conv_options_init(&conv);
  conv.groups = groups;
  for (int i = 0; i < 2; i++) {
    conv.stride[i] = options->stride[i];
    conv.padding[i] = options->padding[i];
    conv.dilation[i] = options->dilation[i];
  }
  tsr_status status = add_input(workload, "x", (tsr_shape){.axes = 4, .extent = {e[0], e[1], e[2], e[3]}},
                                true, &out->x, error);
  if (status == TSR_OK)
    status = add_parameter(workload, "w", (tsr_dtype)options->dtype,
                           (tsr_shape){.axes = 4, .extent = {e[4], e[1] / groups, e[5], e[6]}}, &w, error);
  if (status == TSR_OK)
    status =
        add_parameter(workload, "bias", (tsr_dtype)options->dtype, tsr_shape_of(1, e[4], 0), &bias, error);
  if (status == TSR_OK) status = tsr_graph_conv(workload->graph, out->x, w, bias, &conv, &out->y, error);
  if (status == TSR_OK && options->activation >= 0)
    status = tsr_graph_unary(workload->graph, (tsr_unary)options->activation, out->y, &out->y, error);
  return status;
}

static const tool_operation operations[] = {
    {"gemm", {"M", "N", "K"}, build_gemm, "a", "c", "dc", "d", true, false},
    {"linear", {"M", "D_IN", "D_OUT"}, build_linear, "x", "y", "dy", "d_", true, false},
    {"ffn", {"M", "D", "H"}, build_ffn, "x", "y", "dy", "d_", false, true},
    {"conv", {"N", "C", "H", "W", "K", "R", "S"}, build_conv, "x", "y", "dy", "d_", true, true},
};
enum { OPERATIONS = sizeof operations / sizeof operations[0] };

static int64_t scaled(int64_t extent, double scale) {
  double quotient = nearbyint((double)extent / sqrt(scale));
  if (quotient < 1) return 1;
  return quotient > (double)EXTENT_MAX ? EXTENT_MAX + 1 : (int64_t)quotient;
}

static const tool_operation *find_operation(const char *name) {
  for (int i = 0; i < OPERATIONS; i++)
    if (strcmp(operations[i].name, name) == 0) return &operations[i];
  return NULL;
}

static int parse_extents(tool_workload *workload) {
  const tool_options *options = workload->options;
  const tool_operation *operation = workload->operation;
  for (int i = 0; i < tool_workload_dimensions(workload); i++) {
    const char *text = options->workload.items[i + 1];
    if (!tool_read_count(text, 1, EXTENT_MAX, &workload->stated[i]))
      return tool_usage(options->name, "%s of %s is '%s', expected a whole number from 1 to %lld",
                        operation->dimensions[i], operation->name, text, (long long)EXTENT_MAX);
    workload->extent[i] = scaled(workload->stated[i], options->scale);
    if (workload->extent[i] > EXTENT_MAX)
      return tool_usage(options->name, "%s of %s is %s, and with --scale %g above %lld",
                        operation->dimensions[i], operation->name, text, options->scale,
                        (long long)EXTENT_MAX);
  }
  return 0;
}

/* Options that another workload has. */
static int check_options(const tool_workload *workload) {
  const tool_options *options = workload->options;
  const tool_operation *operation = workload->operation;
  const bool conv = operation->build == build_conv, ffn = operation->build == build_ffn;
  if (!ffn && options->gated)
    return tool_usage(options->name, "--gated is an option of ffn, the workload is %s", operation->name);
  if (!operation->activation && options->activation >= 0)
    return tool_usage(options->name, "--activation is an option of ffn and conv, the workload is %s",
                      operation->name);
  const bool window = options->stride[0] || options->padding[0] || options->padding[1] ||
                      options->dilation[0] || options->groups;
  if (!conv && window)
    return tool_usage(options->name,
                      "--stride, --padding, --dilation and --groups are options of conv, the workload is %s",
                      operation->name);
  if (conv && options->weight_type >= 0)
    return tool_usage(options->name,
                      "--weights %s: the weights of conv have the type of --dtype; leave it out",
                      tool_weight_names[options->weight_type]);
  if (conv && options->scale != 1)
    return tool_usage(options->name, "--scale is for gemm, linear and ffn, the workload is %s; leave it out",
                      operation->name);
  return 0;
}

static int check_groups(const tool_workload *workload) {
  const int64_t groups = workload->options->groups, c = workload->extent[1], k = workload->extent[4];
  if (workload->operation->build != build_conv || !groups || (c % groups == 0 && k % groups == 0)) return 0;
  return tool_usage(workload->options->name, "--groups %lld must divide C, %lld, and K, %lld",
                    (long long)groups, (long long)c, (long long)k);
}

int tool_workload_parse(const tool_options *options, tool_workload *out) {
  *out = (tool_workload){.options = options, .operation = find_operation(options->workload.items[0])};
  const tool_operation *operation = out->operation;
  if (!operation)
    return tool_usage(options->name, "unknown workload '%s', expected gemm, linear, ffn or conv",
                      options->workload.items[0]);
  int count = tool_workload_dimensions(out);
  char names[64] = "";
  for (int i = 0; i < count; i++) strcat(strcat(names, " "), operation->dimensions[i]);
  if (options->workload.count != (size_t)count + 1)
    return tool_usage(options->name, "%s takes %d numbers,%s, but got %zu", operation->name, count, names,
                      options->workload.count - 1);
  int code = check_options(out);
  if (!code) code = parse_extents(out);
  return code ? code : check_groups(out);
}

int tool_workload_dimensions(const tool_workload *workload) {
  int count = 0;
  while (count < TOOL_DIMENSIONS_MAX && workload->operation->dimensions[count]) count++;
  return count;
}

static void print_workload(const tool_workload *workload, const int64_t *extent, char *text, size_t bytes) {
  size_t used = (size_t)snprintf(text, bytes, "%s", workload->operation->name);
  for (int i = 0; i < tool_workload_dimensions(workload) && used < bytes; i++)
    used += (size_t)snprintf(text + used, bytes - used, " %lld", (long long)extent[i]);
}

void tool_workload_text(const tool_workload *workload, char *text, size_t bytes) {
  print_workload(workload, workload->extent, text, bytes);
}

void tool_workload_scale_text(const tool_workload *workload, char *text, size_t bytes) {
  text[0] = 0;
  if (workload->options->scale == 1) return;
  char stated[128], done[128];
  print_workload(workload, workload->stated, stated, sizeof stated);
  print_workload(workload, workload->extent, done, sizeof done);
  snprintf(text, bytes, "scale %g: %s becomes %s, --device-memory is divided by %g", workload->options->scale,
           stated, done, workload->options->scale);
}

const char *tool_workload_operation(const tool_workload *workload) {
  return workload->operation->name;
}

const char *tool_workload_mode(const tool_workload *workload) {
  if (workload->options->sgd > 0) return "training step";
  return workload->options->backward ? "forward and backward" : "forward";
}

enum { FEW_ROWS = 16 }; /* see TSR_WORK_FEW_ROWS */

unsigned tool_workload_work(const tool_workload *workload) {
  const tool_options *options = workload->options;
  /* Biases and activations of a forward pass are computed with the products. */
  bool products_alone =
      !(options->sgd > 0) && (workload->operation->build == build_gemm || !options->backward);
  static const tsr_work types[] = {[TSR_F32] = TSR_WORK_F32,
                                   [TSR_F64] = TSR_WORK_F64,
                                   [TSR_F16] = TSR_WORK_F16,
                                   [TSR_BF16] = TSR_WORK_BF16,
                                   [TSR_I8] = TSR_WORK_I8};
  const bool backward = options->backward || options->sgd > 0;
  const bool few = workload->extent[0] <= FEW_ROWS && workload->operation->build != build_conv;
  return (unsigned)types[tool_workload_weights(workload)] | (backward ? TSR_WORK_BACKWARD : 0) |
         (products_alone ? 0 : TSR_WORK_ELEMENTWISE) | (few ? TSR_WORK_FEW_ROWS : 0) |
         (few && !backward ? 0 : TSR_WORK_FORWARD);
}

uint64_t tool_workload_memory(const tool_workload *workload, int rank) {
  const tool_sizes *sizes = &workload->options->device_memory;
  if (!sizes->count) return 0;
  uint64_t stated = sizes->items[sizes->count == 1 ? 0 : (size_t)rank];
  if (workload->options->scale == 1) return stated;
  double bytes = nearbyint((double)stated / workload->options->scale);
  if (bytes < 1) return 1;
  return bytes < 9.2e18 ? (uint64_t)bytes : UINT64_MAX / 2;
}

/* Gradients of the graph's parameters and, first, of `also` unless that is no value. */
typedef struct gradient_list {
  size_t count;
  tsr_value of[PARAMETERS_MAX + 1], gradient[PARAMETERS_MAX + 1];
  char name[PARAMETERS_MAX + 1][32];
} gradient_list;

static tsr_status list_parameters(tsr_graph *graph, gradient_list *list, tsr_error *error) {
  size_t count = tsr_graph_value_count(graph);
  for (uint32_t id = 1; id <= count; id++) {
    tsr_value_info info;
    tsr_status status = tsr_graph_value_info(graph, (tsr_value){id}, &info, error);
    if (status != TSR_OK) return status;
    if (info.kind != TSR_PARAMETER) continue;
    if (list->count > PARAMETERS_MAX)
      return tool_fail(error, TSR_ERROR_INTERNAL, "the workload has more than %d parameters", PARAMETERS_MAX);
    list->of[list->count] = (tsr_value){id};
    snprintf(list->name[list->count++], sizeof list->name[0], "%s", info.name);
  }
  return TSR_OK;
}

/* The gradient of a parameter is no pinned output: it lies as the parameter does, or it would not fit. */
static tsr_status build_backward(const tool_workload *workload, const built *forward, tsr_error *error) {
  const tool_operation *operation = workload->operation;
  tsr_graph *graph = workload->graph;
  gradient_list list = {.count = 1, .of = {forward->x}};
  snprintf(list.name[0], sizeof list.name[0], "%s", operation->input);
  tsr_value_info y;
  tsr_value dy;
  tsr_status status = tsr_graph_value_info(graph, forward->y, &y, error);
  if (status == TSR_OK)
    status = add_input(workload, operation->output_gradient, y.shape, !operation->output_free, &dy, error);
  if (status == TSR_OK) status = list_parameters(graph, &list, error);
  if (status == TSR_OK)
    status = tsr_graph_gradients(graph, forward->y, dy, list.of, list.count, list.gradient, error);
  for (size_t i = 0; status == TSR_OK && i < list.count; i++) {
    char name[48];
    snprintf(name, sizeof name, "%s%s", operation->gradient_prefix, list.name[i]);
    status = tsr_graph_output(graph, name, list.gradient[i], error);
  }
  if (status == TSR_OK) status = pin_replicate(graph, list.gradient[0], error);
  return status;
}

/* parameter := parameter - rate * gradient, for each of them. */
static tsr_status build_updates(tsr_graph *graph, double rate, const gradient_list *list, tsr_error *error) {
  for (size_t i = 0; i < list->count; i++) {
    tsr_value updated;
    tsr_status status = tsr_graph_add(graph, 1, list->of[i], -rate, list->gradient[i], &updated, error);
    if (status == TSR_OK) status = tsr_graph_assign(graph, list->of[i], updated, error);
    if (status != TSR_OK) return status;
  }
  return TSR_OK;
}

static tsr_status build_training(const tool_workload *workload, const built *forward, tsr_error *error) {
  tsr_graph *graph = workload->graph;
  gradient_list list = {0};
  tsr_value_info y;
  tsr_value target, loss;
  tsr_status status = tsr_graph_value_info(graph, forward->y, &y, error);
  if (status == TSR_OK) status = add_input(workload, "target", y.shape, true, &target, error);
  if (status == TSR_OK) status = tsr_graph_squared_error(graph, forward->y, target, &loss, error);
  if (status == TSR_OK) status = list_parameters(graph, &list, error);
  if (status == TSR_OK)
    status = tsr_graph_gradients(graph, loss, TSR_NO_VALUE, list.of, list.count, list.gradient, error);
  if (status == TSR_OK) status = build_updates(graph, workload->options->sgd, &list, error);
  if (status == TSR_OK) status = tsr_graph_output(graph, "loss", loss, error);
  if (status == TSR_OK) status = pin_replicate(graph, loss, error);
  return status;
}

tsr_status tool_workload_build(tsr_context *context, tool_workload *workload, tsr_error *error) {
  built forward;
  const tool_operation *operation = workload->operation;
  tsr_status status = tsr_graph_create(context, &workload->graph, error);
  if (status == TSR_OK) status = operation->build(workload, &forward, error);
  if (status == TSR_OK) status = tsr_graph_output(workload->graph, operation->output, forward.y, error);
  if (status == TSR_OK && !operation->output_free) status = pin_replicate(workload->graph, forward.y, error);
  if (status == TSR_OK && workload->options->backward) status = build_backward(workload, &forward, error);
  if (status == TSR_OK && workload->options->sgd > 0) status = build_training(workload, &forward, error);
  return status;
}

void tool_workload_finish(tool_workload *workload) {
  tsr_graph_destroy(&workload->graph);
}

tsr_status tool_workload_match(const tool_workload *workload, const tsr_graph *graph, tsr_error *error) {
  bool same;
  tsr_status status = tsr_graph_equal(workload->graph, graph, &same, error);
  if (status != TSR_OK || same) return status;
  char text[128];
  tool_workload_text(workload, text, sizeof text);
  return tool_fail(
      error, TSR_ERROR_MISMATCH,
      "plan '%s' is for another computation than %s (%s): give the workload and the options it was "
      "made with, or make a new plan",
      workload->options->plan, text, tool_workload_mode(workload));
}
