/* graph/dimensions.c: which axes of which values are one dimension of the problem (tokens, width, hidden,
 * ...): the union of all axes that an operator, an assign or a gradient links. */
#include "base/memory.h"
#include "graph/graph.h"

#include <assert.h>

static uint32_t slot_of(tsr_value value, int axis) {
  return value.id * TSR_AXES_MAX + (uint32_t)axis;
}

static uint32_t find_root(uint32_t *parent, uint32_t slot) {
  while (parent[slot] != slot) slot = parent[slot] = parent[parent[slot]];
  return slot;
}

/* The smaller root stays, so that the numbering does not depend on the order of the links. */
static void join(uint32_t *parent, uint32_t a, uint32_t b) {
  a = find_root(parent, a);
  b = find_root(parent, b);
  if (a < b)
    parent[b] = a;
  else
    parent[a] = b;
}

static void join_node(const tsr_graph *graph, const tsr_node *node, uint32_t *parent) {
  tsr_axis_link links[TSR_LINKS_MAX];
  int count = tsr_operator_rules_of(node->op)->links(graph, node, links);
  assert(count <= TSR_LINKS_MAX);
  for (int i = 0; i < count; i++) {
    uint32_t slot[2];
    for (int j = 0; j < 2; j++) {
      int operand = links[i].operand[j];
      slot[j] = slot_of(operand < 0 ? node->output : node->inputs[operand], links[i].axis[j]);
    }
    join(parent, slot[0], slot[1]);
  }
}

/* A value and what it becomes, or whose gradient it is, lie alike. */
static void join_alike(const tsr_graph *graph, uint32_t id, uint32_t *parent) {
  const tsr_graph_value *value = &graph->values[id];
  const tsr_value others[] = {value->assigned, value->gradient_of};
  for (int i = 0; i < 2; i++)
    for (int axis = 0; others[i].id && axis < value->shape.axes; axis++)
      join(parent, slot_of((tsr_value){id}, axis), slot_of(others[i], axis));
}

/* Numbers the roots in order of first appearance; parent becomes dims. */
static size_t number_roots(const tsr_graph *graph, const uint32_t *parent, uint32_t *dims, int64_t *extents) {
  size_t count = 0;
  for (uint32_t id = 0; id < graph->value_count; id++)
    for (int axis = 0; axis < TSR_AXES_MAX; axis++) {
      uint32_t slot = slot_of((tsr_value){id}, axis);
      dims[slot] = UINT32_MAX;
      if (!id || axis >= graph->values[id].shape.axes) continue;
      if (parent[slot] == slot) extents[count] = graph->values[id].shape.extent[axis];
      dims[slot] = parent[slot] == slot ? (uint32_t)count++ : dims[parent[slot]];
      assert(extents[dims[slot]] == graph->values[id].shape.extent[axis]);
    }
  return count;
}

tsr_status tsr_graph_dimensions(const tsr_graph *graph, uint32_t **dims, int64_t **extents, size_t *count,
                                tsr_error *error) {
  tsr_status status = TSR_OK;
  size_t slots = graph->value_count * TSR_AXES_MAX;
  uint32_t *parent = tsr_calloc(slots, sizeof *parent), *numbers = tsr_calloc(slots, sizeof *numbers);
  int64_t *sizes = tsr_calloc(slots, sizeof *sizes);
  if (!parent || !numbers || !sizes)
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for the dimensions of %zu values", graph->value_count - 1);

  for (uint32_t slot = 0; slot < slots; slot++) parent[slot] = slot;
  for (size_t i = 0; i < graph->node_count; i++) join_node(graph, &graph->nodes[i], parent);
  for (uint32_t id = 1; id < graph->value_count; id++) join_alike(graph, id, parent);
  for (uint32_t slot = 0; slot < slots; slot++) parent[slot] = find_root(parent, slot);
  *count = number_roots(graph, parent, numbers, sizes);
  *dims = numbers;
  *extents = sizes;
  numbers = NULL;
  sizes = NULL;
done:
  free(parent);
  free(numbers);
  free(sizes);
  return status;
}
