/* exec/launch.h: one launcher per operator: a planned step becomes calls to the device. */
#ifndef TSR_EXEC_LAUNCH_H
#define TSR_EXEC_LAUNCH_H

#include "exec/tensor.h"

/* A node computed in the step of another. */
typedef struct tsr_launch_fused {
  tsr_fused_role role;
  const tsr_node *node;
  tsr_tensor operand; /* of role scale, bias, gate, residual */
} tsr_launch_fused;

/* Rows [begin, end) of a product's output, which are all of `buffer` (NULL = they are within the output's
 * own).
 */
typedef struct tsr_launch_rows {
  int64_t begin, end;
  tsr_buffer *buffer;
} tsr_launch_rows;

/* What a launcher works on: one member's part of a step. */
typedef struct tsr_launch {
  const tsr_plan *plan;
  const tsr_node *node;
  const tsr_rule *rule;
  tsr_device *device;
  int active_index;
  bool owner; /* this member adds what only one owner may add */
  tsr_tensor inputs[TSR_NODE_INPUTS_MAX];
  tsr_tensor output;
  tsr_launch_rows chunk; /* of a product: end = 0: all rows */
  int fused_count;
  tsr_launch_fused fused[TSR_FUSED_MAX];
  tsr_buffer *workspace;
} tsr_launch;

typedef tsr_status (*tsr_launcher)(const tsr_launch *launch, tsr_error *error);

/* In launch_conv.c. */
tsr_status tsr_launch_conv(const tsr_launch *launch, tsr_error *error);
tsr_status tsr_launch_pool(const tsr_launch *launch, tsr_error *error);
tsr_status tsr_launch_channel_sum(const tsr_launch *launch, tsr_error *error);

/* Enqueues the node. */
tsr_status tsr_launch_node(const tsr_launch *launch, tsr_error *error);
/* Enqueues to = from. */
tsr_status tsr_launch_copy(tsr_device *device, const tsr_tensor *from, const tsr_tensor *to,
                           tsr_error *error);

#endif
