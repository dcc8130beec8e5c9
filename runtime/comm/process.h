/* comm/process.h: whether another rank's process, on this host, still lives: a rank that computes or reads
 * for long gives no sign, but is not lost. */
#ifndef TSR_COMM_PROCESS_H
#define TSR_COMM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Plain data; ranks exchange it. host = 0: this system does not tell, and nobody is known to live. */
typedef struct tsr_process {
  uint64_t host; /* of the boot, the pid namespace and the host's name */
  int64_t pid;
  uint64_t started; /* so that a pid that was given anew is not taken for the old process */
} tsr_process;

void tsr_process_identify(tsr_process *out);
/* True if `other` is a process of the same host as `own` that runs or sleeps; false if it has ended, is
 * stopped, or is on another host. */
bool tsr_process_lives(const tsr_process *own, const tsr_process *other);

#endif
