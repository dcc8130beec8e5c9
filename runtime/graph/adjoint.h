/* graph/adjoint.h: what the gradient rules share. */
#ifndef TSR_GRAPH_ADJOINT_H
#define TSR_GRAPH_ADJOINT_H

#include "graph/graph.h"

/* The value of an adjoint, for a rule that needs one; UNSUPPORTED if it is a mere number. */
tsr_status tsr_adjoint_value(tsr_adjoint dy, const tsr_node *node, tsr_value *out, tsr_error *error);

/* factor * value as a value: a scale if the factor is not 1. UNSUPPORTED if it is a mere number. */
tsr_status tsr_adjoint_finish(tsr_graph *graph, tsr_adjoint adjoint, tsr_value *out, tsr_error *error);

/* *sum += term: one add. */
tsr_status tsr_adjoint_accumulate(tsr_graph *graph, tsr_adjoint term, tsr_adjoint *sum, tsr_error *error);

#endif
