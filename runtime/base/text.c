#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include <tessera/array.h>

char *tsr_text_copy(const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copy = tsr_malloc(bytes);
  return copy ? memcpy(copy, text, bytes) : NULL;
}

char *tsr_text_format(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int bytes = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  char *text = bytes < 0 ? NULL : tsr_malloc((size_t)bytes + 1);
  if (!text) return NULL;
  va_start(arguments, format);
  vsnprintf(text, (size_t)bytes + 1, format, arguments);
  va_end(arguments);
  return text;
}

void tsr_text_append(tsr_text *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int needed = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (text->failed || needed < 0) return;
  if (text->bytes + (size_t)needed + 1 > text->capacity) {
    size_t capacity = 2 * (text->bytes + (size_t)needed + 1);
    char *moved = tsr_realloc(text->data, capacity, 1);
    if (!moved) {
      text->failed = true;
      return;
    }
    text->data = moved;
    text->capacity = capacity;
  }
  va_start(arguments, format);
  vsnprintf(text->data + text->bytes, text->capacity - text->bytes, format, arguments);
  va_end(arguments);
  text->bytes += (size_t)needed;
}

char *tsr_format_bytes(char *buffer, double bytes) {
  static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  int unit = 0;
  while (bytes >= 999.5 && unit < 5) {
    bytes /= 1000;
    unit++;
  }
  snprintf(buffer, 16, "%.*f %s",
           unit && bytes < 9.995   ? 2
           : unit && bytes < 99.95 ? 1
                                   : 0,
           bytes, units[unit]);
  return buffer;
}

char *tsr_format_seconds(char *buffer, double seconds) {
  static const char *const units[] = {"s", "ms", "us", "ns"};
  int unit = 0;
  while (seconds < 0.9995 && unit < 3) {
    seconds *= 1000;
    unit++;
  }
  snprintf(buffer, 16, "%.*f %s", seconds < 9.995 ? 2 : seconds < 99.95 ? 1 : 0, seconds, units[unit]);
  return buffer;
}

/* Levenshtein's distance, capped by the length of what fits the row. */
static size_t edit_distance(const char *a, const char *b) {
  enum { LENGTH_MAX = 256 };
  size_t row[LENGTH_MAX + 1], length = strnlen(b, LENGTH_MAX);
  for (size_t j = 0; j <= length; j++) row[j] = j;
  for (size_t i = 1; a[i - 1] && i <= LENGTH_MAX; i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= length; j++) {
      size_t best = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      if (row[j] + 1 < best) best = row[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      row[j] = best;
    }
  }
  return row[length];
}

void tsr_nearest_names(const char *wanted, const char *const *names, size_t count, char *buffer,
                       size_t bytes) {
  enum { NAMES_MAX = 3 };
  size_t best[NAMES_MAX], distance[NAMES_MAX], found = 0;
  for (size_t i = 0; i < count; i++) {
    size_t d = edit_distance(wanted, names[i]), place = found;
    while (place && distance[place - 1] > d) place--;
    if (place == NAMES_MAX) continue;
    if (found < NAMES_MAX) found++;
    for (size_t j = found - 1; j > place; j--) {
      best[j] = best[j - 1];
      distance[j] = distance[j - 1];
    }
    best[place] = i;
    distance[place] = d;
  }
  size_t used = 0;
  if (bytes) *buffer = 0;
  for (size_t i = 0; i < found && used < bytes; i++) {
    int written = snprintf(buffer + used, bytes - used, "%s%s", i ? ", " : "", names[best[i]]);
    used += written > 0 ? (size_t)written : 0;
  }
}

char *tsr_format_shape(char *buffer, size_t bytes, const tsr_shape *shape) {
  size_t used = (size_t)snprintf(buffer, bytes, "[");
  for (int i = 0; i < shape->axes && used < bytes; i++)
    used +=
        (size_t)snprintf(buffer + used, bytes - used, "%s%lld", i ? ", " : "", (long long)shape->extent[i]);
  if (used < bytes) snprintf(buffer + used, bytes - used, "]");
  return buffer;
}
