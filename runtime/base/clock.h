/* base/clock.h: the host's clock. */
#ifndef TSR_BASE_CLOCK_H
#define TSR_BASE_CLOCK_H

/* Monotonic; from whenever the host began. */
double tsr_clock_seconds(void);

#endif
