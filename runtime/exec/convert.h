/* exec/convert.h: one member's part of turning one layout into another: device to host, collective, host to
 * device.
 *
 * The collective works on flat memory. Where a member's block is strided in the whole value (a split that is
 * not along the first axis), or a buffer is cut into pieces, blocks are packed into and unpacked from host
 * memory. Nothing waits: begin, then test until it is done. The device may go on with other kernels in
 * between.
 */
#ifndef TSR_EXEC_CONVERT_H
#define TSR_EXEC_CONVERT_H

#include "comm/collective.h"
#include "exec/tensor.h"

typedef enum tsr_convert_phase {
  TSR_CONVERT_IDLE,
  TSR_CONVERT_DEVICE,    /* waiting until the device has the source ready and both ends are mapped */
  TSR_CONVERT_COLLECTIVE /* waiting for the other members */
} tsr_convert_phase;

/* A range of a store that is mapped as one: a piece, or rows of a chunk. */
typedef struct tsr_convert_region {
  tsr_buffer *buffer;
  tsr_buffer *part; /* owned: the range as a buffer of its own; NULL = it is a range of `buffer` */
  size_t offset;    /* bytes, of `buffer` */
  int64_t first;    /* byte of the row-major value at which it begins */
  int64_t bytes;
  int64_t row, rows; /* of a chunk */
  void *pointer;     /* while it is mapped */
} tsr_convert_region;

typedef struct tsr_convert_side {
  tsr_tensor tensor;
  int region_count;
  tsr_convert_region *regions;
} tsr_convert_side;

/* Seconds of the host's clock, of the last run. */
typedef struct tsr_convert_times {
  double ready;    /* the device has the source ready */
  double sent;     /* it is packed: the collective begins */
  double received; /* the collective has ended */
  double ended;    /* it is unpacked */
} tsr_convert_times;

typedef struct tsr_convert {
  const tsr_plan *plan;
  const tsr_step *step;
  tsr_device *device;
  int active_index;
  tsr_convert_side from, to; /* `to` has no regions where the collective works in place */
  bool packed;               /* goes through `packing` */
  bool apart; /* kernels may write other chunks while this one is mapped: its ranges are buffers of their own
               */
  tsr_collective *collective;
  char *packing; /* borrowed: the whole value or chunk, and this member's block where that is cut too */
  tsr_device_mark mapped;
  tsr_convert_phase phase;
  tsr_convert_times times;
} tsr_convert;

/* scratch and packing are borrowed until finish, and may be shared by all converts of a member, of which only
 * one at a time may be past the phase DEVICE. */
tsr_status tsr_convert_init(tsr_convert *convert, const tsr_plan *plan, const tsr_step *step,
                            int active_index, tsr_device *device, const tsr_store *stores, tsr_group *group,
                            void *scratch, void *packing, tsr_error *error);
void tsr_convert_finish(tsr_convert *convert);

/* Behind the kernel that makes its source; unless it is `apart`, behind those of all chunks. */
tsr_status tsr_convert_begin(tsr_convert *convert, tsr_error *error);
/* *done = it has ended; the device still has to be given both ends back by tsr_convert_end. */
tsr_status tsr_convert_test(tsr_convert *convert, bool *done, tsr_error *error);
tsr_status tsr_convert_end(tsr_convert *convert, tsr_error *error);

#endif
