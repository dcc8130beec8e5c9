/* comm/process.h: what ranks of one host see of each other's processes: whether one still lives (a rank that
 * computes or reads for long gives no sign, but is not lost), and whether they must share cores. */
#ifndef TSR_COMM_PROCESS_H
#define TSR_COMM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

enum { TSR_PROCESS_CORES = 1024 };

/* Plain data; ranks exchange it. host = 0: this system does not tell, and nobody is known to live. */
typedef struct tsr_process {
  uint64_t host; /* of the boot, the pid namespace and the host's name */
  int64_t pid;
  uint64_t started; /* so that a pid that was given anew is not taken for the old process */
  uint64_t cores[TSR_PROCESS_CORES / 64]; /* those that it may run on, a bit each; none = unknown */
} tsr_process;

void tsr_process_identify(tsr_process *out);
/* True if `other` is a process of the same host as `own` that runs or sleeps; false if it has ended, is
 * stopped, or is on another host. */
bool tsr_process_lives(const tsr_process *own, const tsr_process *other);
/* True if processes of own's host outnumber the cores that they may run on: all of them, or those which are
 * bound to the cores, or some of the cores, of one of them. */
bool tsr_process_crowded(const tsr_process *own, const tsr_process *all, int count);

#endif
