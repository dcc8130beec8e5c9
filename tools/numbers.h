/* numbers.h: strict readers of what people type: the whole text is a number within its limits, or false. */
#ifndef TOOL_NUMBERS_H
#define TOOL_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

/* A whole number in low .. high. */
bool tool_read_count(const char *text, int64_t low, int64_t high, int64_t *out);
bool tool_read_seed(const char *text, uint64_t *out);
/* A finite number above 0. */
bool tool_read_positive(const char *text, double *out);
/* "24GB" (10^9), "24GiB" (2^30), "1.5TB", "500MB", "375000000": at least 1, below 2^63. */
bool tool_read_bytes(const char *text, uint64_t *out);

/* "60s", "1.5m", "1h", "60": seconds above 0. */
bool tool_read_duration(const char *text, double *out);

#endif
