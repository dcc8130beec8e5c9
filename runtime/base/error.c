#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
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

tsr_status tsr_fail_at(const char *file, int line, tsr_error *error, tsr_status status, const char *format, ...) {
  if (!error) return status;
  memset(error, 0, sizeof *error);
  error->status = status;
  error->file = file;
  error->line = line;
  error->rank = -1;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return status;
}

void tsr_error_wrap(tsr_error *error, const char *format, ...) {
  if (!error) return;
  char text[TSR_ERROR_MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  int used = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (used < 0 || (size_t)used >= sizeof text - 2) return;
  snprintf(text + used, sizeof text - (size_t)used, ": %.*s", (int)(sizeof text) - used - 3, error->message);
  memcpy(error->message, text, sizeof text);
}

void tsr_error_native(tsr_error *error, const char *domain, int64_t code) {
  if (!error) return;
  snprintf(error->domain, sizeof error->domain, "%s", domain);
  error->native_code = code;
}
