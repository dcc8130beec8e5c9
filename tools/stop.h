/* stop.h: a command that is asked to stop keeps what it has. */
#ifndef TOOL_STOP_H
#define TOOL_STOP_H

#include <signal.h>

/* From now on SIGINT and SIGTERM are noted, unless they are ignored; a second one ends the process at once.
 */
void tool_stop_watch(void);
/* 0, or the signal that came. */
extern volatile sig_atomic_t tool_stop_signal;
/* "SIGINT"; "" without one. */
const char *tool_stop_name(void);
/* If one came, ends the process by it, as whoever waits for it expects. */
void tool_stop_end(void);

/* A process whose terminal is gone ends, unless whoever started it wants otherwise: libraries (UCX) take
 * SIGHUP for themselves when they are loaded or started. */
void tool_stop_on_hangup(void);

#endif
