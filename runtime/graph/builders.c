/* graph/builders.c: blocks made of several operators. A builder that fails leaves the graph as it was. */
#include "base/memory.h"
#include "base/text.h"
#include "graph/graph.h"

/* Multiplies y by the factors of its columns, a parameter <name of w>_scale, which is made unless it is
 * there.
 */
static tsr_status scale_columns(tsr_graph *graph, tsr_value w, tsr_value *y, tsr_error *error) {
  tsr_value scale = TSR_NO_VALUE;
  const tsr_shape shape = tsr_shape_of(1, tsr_graph_at(graph, *y)->shape.extent[1], 0);
  char *name = tsr_text_format("%s%s", tsr_graph_at(graph, w)->name, TSR_SCALE_SUFFIX);
  if (!name) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the name of a scale");
  scale = tsr_graph_parameter_named(graph, name);
  tsr_status status = scale.id ? TSR_OK : tsr_graph_parameter(graph, name, TSR_F32, &shape, &scale, error);
  free(name);
  return status == TSR_OK ? tsr_graph_multiply(graph, *y, scale, y, error) : status;
}

tsr_status tsr_graph_linear(tsr_graph *graph, tsr_value x, tsr_value w, tsr_value bias, tsr_value *out,
                            tsr_error *error) {
  tsr_status status = TSR_OK;
  size_t value_count = graph->value_count, node_count = graph->node_count;
  tsr_value y;
  TSR_TRY(tsr_graph_matmul(graph, x, w, NULL, &y, error));
  if (tsr_graph_at(graph, w)->dtype == TSR_I8) TSR_TRY(scale_columns(graph, w, &y, error));
  if (bias.id) TSR_TRY(tsr_graph_add(graph, 1, y, 1, bias, &y, error));
  *out = y;
done:
  if (status != TSR_OK) tsr_graph_truncate(graph, value_count, node_count);
  return status;
}

void tsr_ffn_options_init(tsr_ffn_options *options) {
  *options = (tsr_ffn_options){.struct_size = sizeof *options};
}

/* A parameter <prefix><name>. */
static tsr_status add_parameter(tsr_graph *graph, tsr_dtype dtype, const char *prefix, const char *name,
                                tsr_shape shape, tsr_value *out, tsr_error *error) {
  char *full = tsr_text_format("%s%s", prefix ? prefix : "", name);
  if (!full) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the name of %s", name);
  tsr_status status = tsr_graph_parameter(graph, full, dtype, &shape, out, error);
  free(full);
  return status;
}

/* The parameters of a block, in the order in which they are made; an absent one is no value. */
typedef struct ffn_parameters {
  tsr_value wg, w1, b1, w2, b2;
} ffn_parameters;

static tsr_status add_parameters(tsr_graph *graph, tsr_value x, const tsr_ffn_options *options,
                                 ffn_parameters *p, tsr_error *error) {
  int64_t d = tsr_graph_at(graph, x)->shape.extent[1], h = options->hidden;
  bool bias = !options->no_bias && !options->gated;
  tsr_dtype dtype = tsr_graph_at(graph, x)->dtype;
  tsr_dtype weights = options->weight_dtype ? options->weight_dtype : dtype;
  const struct {
    const char *name;
    bool wanted;
    tsr_shape shape;
    tsr_value *value;
  } list[] = {{"wg", options->gated, tsr_shape_of(2, d, h), &p->wg},
              {"w1", true, tsr_shape_of(2, d, h), &p->w1},
              {"b1", bias, tsr_shape_of(1, h, 0), &p->b1},
              {"w2", true, tsr_shape_of(2, h, d), &p->w2},
              {"b2", bias, tsr_shape_of(1, d, 0), &p->b2}};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    if (list[i].wanted)
      TSR_RETURN_IF_FAILED(add_parameter(graph, list[i].shape.axes == 2 ? weights : dtype, options->prefix,
                                         list[i].name, list[i].shape, list[i].value, error));
  return TSR_OK;
}

static tsr_status check_block(const tsr_graph *graph, tsr_value x, const tsr_ffn_options *options,
                              tsr_error *error) {
  if (!options || options->hidden < 1)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "ffn: hidden is %lld, at least 1 is needed",
                    options ? (long long)options->hidden : 0);
  TSR_RETURN_IF_FAILED(tsr_graph_check_open(graph, error));
  TSR_RETURN_IF_FAILED(tsr_graph_check_value(graph, x, "ffn: x", error));
  if (tsr_graph_at(graph, x)->shape.axes != 2)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "ffn: x, %s, has %d axes, 2 are needed: [tokens, width]",
                    tsr_graph_describe(graph, x).text, tsr_graph_at(graph, x)->shape.axes);
  return TSR_OK;
}

tsr_status tsr_graph_ffn(tsr_graph *graph, tsr_value x, const tsr_ffn_options *options, tsr_value *out,
                         tsr_error *error) {
  TSR_CHECK_OPTIONS_SIZE(options, tsr_ffn_options);
  tsr_status status = TSR_OK;
  size_t value_count = graph->value_count, node_count = graph->node_count;
  ffn_parameters p = {0};
  tsr_value hidden, gate, y;
  TSR_TRY(check_block(graph, x, options, error));
  TSR_TRY(add_parameters(graph, x, options, &p, error));
  if (options->gated) {
    TSR_TRY(tsr_graph_linear(graph, x, p.wg, TSR_NO_VALUE, &gate, error));
    TSR_TRY(tsr_graph_unary(graph, options->activation, gate, &gate, error));
    TSR_TRY(tsr_graph_linear(graph, x, p.w1, TSR_NO_VALUE, &hidden, error));
    TSR_TRY(tsr_graph_multiply(graph, gate, hidden, &hidden, error));
  } else {
    TSR_TRY(tsr_graph_linear(graph, x, p.w1, p.b1, &hidden, error));
    TSR_TRY(tsr_graph_unary(graph, options->activation, hidden, &hidden, error));
  }
  TSR_TRY(tsr_graph_linear(graph, hidden, p.w2, p.b2, &y, error));
  *out = y;
done:
  if (status != TSR_OK) tsr_graph_truncate(graph, value_count, node_count);
  return status;
}
