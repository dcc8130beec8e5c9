/* report.c: numbers for people: three digits and a unit. */
#include "report.h"

#include <stdio.h>

static char *format(char *buffer, double number, const char *const *units, int count, double step) {
  int unit = 0;
  for (; unit + 1 < count && number >= 0.9995 * step; unit++) number /= step;
  int decimals = number < 9.995 ? 2 : number < 99.95 ? 1 : 0;
  snprintf(buffer, TOOL_QUANTITY_BYTES, "%.*f %s", decimals, number, units[unit]);
  return buffer;
}

char *tool_format_bytes(char *buffer, double bytes) {
  static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  if (bytes >= 1000) return format(buffer, bytes, units, sizeof units / sizeof units[0], 1000);
  snprintf(buffer, TOOL_QUANTITY_BYTES, "%.0f B", bytes);
  return buffer;
}

char *tool_format_seconds(char *buffer, double seconds) {
  static const char *const units[] = {"ns", "us", "ms", "s"};
  return format(buffer, seconds * 1e9, units, sizeof units / sizeof units[0], 1000);
}
