/* exec/convert.h: one member's part of turning one layout into another: device to host, collective, host to
 * device.
 *
 * The collective works on flat memory. Where a member's block is strided in the whole value (a split that is
 * not along the first axis), or a buffer is cut into pieces, blocks are packed into and unpacked from host
 * memory. Nothing waits: begin, then test until it is done. */
#ifndef TSR_EXEC_CONVERT_H
#define TSR_EXEC_CONVERT_H

#include "comm/collective.h"
#include "exec/tensor.h"

typedef enum tsr_convert_phase {
  TSR_CONVERT_IDLE,
  TSR_CONVERT_DEVICE,    /* waiting until the device has the source ready and both ends are mapped */
  TSR_CONVERT_COLLECTIVE /* waiting for the other members */
} tsr_convert_phase;

enum { TSR_CONVERT_PIECES_MAX = 64 };

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
  tsr_tensor from, to;
  bool packed; /* goes through `packing` */
  tsr_collective *collective;
  char *packing; /* borrowed: the whole value, and this member's block where that is cut too */
  void *from_pointers[TSR_CONVERT_PIECES_MAX], *to_pointers[TSR_CONVERT_PIECES_MAX];
  tsr_convert_phase phase;
  tsr_convert_times times;
} tsr_convert;

/* scratch and packing are borrowed until finish, and may be shared by all converts of a member. */
tsr_status tsr_convert_init(tsr_convert *convert, const tsr_plan *plan, const tsr_step *step,
                            int active_index, tsr_device *device, const tsr_store *stores, tsr_group *group,
                            void *scratch, void *packing, tsr_error *error);
void tsr_convert_finish(tsr_convert *convert);

tsr_status tsr_convert_begin(tsr_convert *convert, tsr_error *error);
/* *done = it has ended; the device still has to be given both ends back by tsr_convert_end. */
tsr_status tsr_convert_test(tsr_convert *convert, bool *done, tsr_error *error);
tsr_status tsr_convert_end(tsr_convert *convert, tsr_error *error);

#endif
