/* numbers.c: strict readers of numbers and sizes. */
#include "numbers.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* strtol and its kin skip blanks and take signs, "0x10" and "nan": a number here begins with a digit. */
static bool begins_with_digit(const char *text) {
  return isdigit((unsigned char)text[0]) || (text[0] == '.' && isdigit((unsigned char)text[1]));
}

static bool is_hexadecimal(const char *text) {
  return text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
}

bool tool_read_count(const char *text, int64_t low, int64_t high, int64_t *out) {
  if (!begins_with_digit(text)) return false;
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (*end || errno || number < low || number > high) return false;
  *out = number;
  return true;
}

bool tool_read_seed(const char *text, uint64_t *out) {
  if (!begins_with_digit(text)) return false;
  char *end;
  errno = 0;
  unsigned long long number = strtoull(text, &end, 10);
  if (*end || errno) return false;
  *out = number;
  return true;
}

/* A finite number >= 0 at the start of text; *end is where it ends. */
static bool read_number(const char *text, char **end, double *out) {
  if (!begins_with_digit(text) || is_hexadecimal(text)) return false;
  *out = strtod(text, end);
  return isfinite(*out);
}

bool tool_read_positive(const char *text, double *out) {
  char *end;
  double number;
  if (!read_number(text, &end, &number) || *end || number <= 0) return false;
  *out = number;
  return true;
}

static const struct {
  const char *name;
  double bytes;
} units[] = {
    {"", 1},
    {"B", 1},
    {"kB", 1e3},
    {"KB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
    {"KiB", 1024.0},
    {"MiB", 1048576.0},
    {"GiB", 1073741824.0},
    {"TiB", 1099511627776.0},
};

bool tool_read_bytes(const char *text, uint64_t *out) {
  char *end;
  double number;
  if (!read_number(text, &end, &number)) return false;
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    if (strcmp(end, units[i].name) != 0) continue;
    double bytes = nearbyint(number * units[i].bytes);
    if (!(bytes >= 1 && bytes < 9.2e18)) return false;
    *out = (uint64_t)bytes;
    return true;
  }
  return false;
}

bool tool_read_duration(const char *text, double *out) {
  static const struct {
    const char *name;
    double seconds;
  } parts[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}};
  char *end;
  double number;
  if (!read_number(text, &end, &number)) return false;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    if (strcmp(end, parts[i].name) != 0) continue;
    *out = number * parts[i].seconds;
    return *out > 0 && *out < 1e9;
  }
  return false;
}
