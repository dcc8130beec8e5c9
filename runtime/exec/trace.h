/* exec/trace.h: what a member did, and when. Events go to a ring that is allocated when tracing is switched
 * on; a step allocates nothing, and the oldest events make room.
 *
 * Kernels run behind the host's back: on a device that times its commands their times are the device's, and
 * are turned into the host's when the trace is written. On any other the host waits for each step's kernels
 * and uses its own clock. Everything else is timed by the host, which is tsr_clock_seconds() on all ranks. */
#ifndef TSR_EXEC_TRACE_H
#define TSR_EXEC_TRACE_H

#include "exec/convert.h"

typedef enum tsr_trace_part {
  TSR_TRACE_KERNELS, /* of a NODE or COPY step */
  TSR_TRACE_TO_HOST, /* of a CONVERT step: what the device does to hand a value over, and to take it back */
  TSR_TRACE_TO_DEVICE,
  TSR_TRACE_PACK, /* of a CONVERT step, on the host */
  TSR_TRACE_COLLECTIVE,
  TSR_TRACE_UNPACK,
  TSR_TRACE_PARTS
} tsr_trace_part;
typedef struct tsr_trace_event {
  double begin, end; /* seconds */
  uint64_t turn;     /* number of the session's step, from 0 */
  int32_t step;      /* of the plan */
  uint8_t part;
  bool by_device; /* begin and end are of the device's clock */
} tsr_trace_event;

/* The device's clock seen from the host's: at the device's moment `device` it is `host`, within `accuracy`.
 */
typedef struct tsr_trace_sight {
  double device, host, accuracy;
} tsr_trace_sight;

typedef struct tsr_trace {
  const tsr_plan *plan; /* borrowed */
  size_t capacity;
  uint64_t recorded; /* the last `capacity` of these are held: number i at events[i % capacity] */
  tsr_trace_event *events;
  tsr_device_span *spans; /* [plan step][KERNELS or TO_HOST, TO_DEVICE]; of the session's step in flight */
  bool by_device;         /* kernels are timed by the device */
  tsr_trace_sight first;  /* when tracing was switched on */
  double host_begin;      /* of the kernels that the host times now */
} tsr_trace;

/* The device is idle, and times its commands from now on. Gives *out. */
tsr_status tsr_trace_create(const tsr_plan *plan, tsr_device *device, size_t capacity, tsr_trace **out,
                            tsr_error *error);
/* Takes *trace (may be NULL), leaves NULL. */
void tsr_trace_destroy(tsr_trace **trace, tsr_device *device);

/* In all of these trace may be NULL: nothing is recorded. */
/* What the device is given between begin and end is this part (KERNELS, TO_HOST or TO_DEVICE) of a step. end
 * waits for kernels that the device does not time. */
void tsr_trace_begin(tsr_trace *trace, tsr_device *device, int step, tsr_trace_part part);
tsr_status tsr_trace_end(tsr_trace *trace, tsr_device *device, uint64_t turn, int step, tsr_trace_part part,
                         tsr_error *error);
/* A CONVERT step has ended. */
void tsr_trace_convert(tsr_trace *trace, uint64_t turn, int step, const tsr_convert *convert);
/* The session's step has ended and the device is idle; or (ended = false) it failed, and nothing more is
 * known of its kernels. */
void tsr_trace_turn_end(tsr_trace *trace, tsr_device *device, uint64_t turn, bool ended);

/* ---- clocks ---- */

/* Where the device's clock stands; false if it does not say or contradicts itself. The device is idle. */
bool tsr_trace_look(tsr_device *device, tsr_trace_sight *out);
/* The host's time of a device's moment, from two looks. */
double tsr_trace_host_time(const tsr_trace_sight *first, const tsr_trace_sight *last, double device);

/* One rank's clock: add offset to get rank 0's; the truth is within accuracy. */
typedef struct tsr_trace_offset {
  double seconds, accuracy;
} tsr_trace_offset;
/* [C] Every member's offset, the same on all. */
tsr_status tsr_trace_offsets(tsr_group *group, tsr_trace_offset *out, tsr_error *error);

#endif
