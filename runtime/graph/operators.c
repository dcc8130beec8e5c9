/* graph/operators.c: the table of operators. */
#include "graph/graph.h"

static const tsr_operator_rules *const operators[TSR_OPERATOR_COUNT] = {
    [TSR_OPERATOR_MATMUL] = &tsr_matmul_rules,
    [TSR_OPERATOR_ADD] = &tsr_add_rules,
    [TSR_OPERATOR_MULTIPLY] = &tsr_multiply_rules,
    [TSR_OPERATOR_SCALE] = &tsr_scale_rules,
    [TSR_OPERATOR_UNARY] = &tsr_unary_rules,
    [TSR_OPERATOR_UNARY_GRADIENT] = &tsr_unary_gradient_rules,
    [TSR_OPERATOR_REDUCE] = &tsr_reduce_rules,
    [TSR_OPERATOR_SQUARED_ERROR] = &tsr_squared_error_rules,
    [TSR_OPERATOR_CONV] = &tsr_conv_rules,
    [TSR_OPERATOR_CONV_INPUT] = &tsr_conv_input_rules,
    [TSR_OPERATOR_CONV_WEIGHT] = &tsr_conv_weight_rules,
    [TSR_OPERATOR_CHANNEL_SUM] = &tsr_channel_sum_rules,
    [TSR_OPERATOR_POOL] = &tsr_pool_rules,
    [TSR_OPERATOR_POOL_GRADIENT] = &tsr_pool_gradient_rules,
};

const tsr_operator_rules *tsr_operator_rules_of(tsr_operator op) {
  return (size_t)op < TSR_OPERATOR_COUNT ? operators[op] : NULL;
}
