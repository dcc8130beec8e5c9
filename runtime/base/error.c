#include "base/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tsr_status_name(tsr_status status) {
  switch (status) {
#define TSR_STATUS_NAME(name, value, text)                                                                   \
  case TSR_##name: return "TSR_" #name;
    TSR_STATUS_LIST(TSR_STATUS_NAME)
#undef TSR_STATUS_NAME
  }
  return "TSR_STATUS_UNKNOWN";
}

const char *tsr_status_text(tsr_status status) {
  switch (status) {
#define TSR_STATUS_TEXT(name, value, text)                                                                   \
  case TSR_##name: return text;
    TSR_STATUS_LIST(TSR_STATUS_TEXT)
#undef TSR_STATUS_TEXT
  }
  return "unknown status";
}

static bool continues_character(char byte) {
  return ((unsigned char)byte & 0xC0) == 0x80; /* UTF-8 */
}

/* Of a text that is too long the middle is left out: what was wrong comes first, what to do comes last. */
static void copy_shortened(char *line, size_t bytes, const char *text) {
  static const char mark[] = " ... ";
  size_t length = strlen(text), head = bytes / 2, tail = length - (bytes - head - sizeof mark);
  if (length < bytes) {
    memcpy(line, text, length + 1);
    return;
  }
  while (head && continues_character(text[head])) head--;
  while (continues_character(text[tail])) tail++;
  snprintf(line, bytes, "%.*s%s%s", (int)head, text, mark, text + tail);
}

/* Formats one line: names that people and files choose may hold newlines and worse. */
static void format_line(char *line, size_t bytes, const char *format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  int length = vsnprintf(line, bytes, format, arguments);
  char *whole = length >= 0 && (size_t)length >= bytes ? malloc((size_t)length + 1) : NULL;
  if (whole) {
    vsnprintf(whole, (size_t)length + 1, format, again);
    copy_shortened(line, bytes, whole);
  }
  va_end(again);
  free(whole);
  for (char *c = line; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 0x7f) *c = strchr("\t\n\r", *c) ? ' ' : '?';
}

tsr_status tsr_fail_at(const char *file, int line, tsr_error *error, tsr_status status, const char *format,
                       ...) {
  if (!error) return status;
  memset(error, 0, sizeof *error);
  error->status = status;
  error->file = file;
  error->line = line;
  error->rank = -1;
  va_list arguments;
  va_start(arguments, format);
  format_line(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return status;
}

void tsr_error_wrap(tsr_error *error, const char *format, ...) {
  if (!error) return;
  char context[TSR_ERROR_MESSAGE_BYTES / 2], joined[2 * TSR_ERROR_MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  format_line(context, sizeof context, format, arguments);
  va_end(arguments);
  snprintf(joined, sizeof joined, "%s: %s", context, error->message);
  copy_shortened(error->message, sizeof error->message, joined);
}

void tsr_error_native(tsr_error *error, const char *domain, int64_t code) {
  if (!error) return;
  snprintf(error->domain, sizeof error->domain, "%s", domain);
  error->native_code = code;
}
