/* report.h: numbers and tables for people. */
#ifndef TOOL_REPORT_H
#define TOOL_REPORT_H

#include <tessera/tessera.h>

enum { TOOL_QUANTITY_BYTES = 32 };

/* "26.0 GB", "813 B" (decimal units); "1.23 ms". In a buffer of TOOL_QUANTITY_BYTES, which is returned. */
char *tool_format_bytes(char *buffer, double bytes);
char *tool_format_seconds(char *buffer, double seconds);

#endif
