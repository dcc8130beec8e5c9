/* base/text.h: strings, numbers as people read them, names that were nearly right. */
#ifndef TSR_BASE_TEXT_H
#define TSR_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Copies and formats into memory that the caller frees; NULL if there is none. */
char *tsr_text_copy(const char *text);
char *tsr_text_format(const char *format, ...) TSR_PRINTF(1, 2);

/* A text that grows; init with {0}, release with free(text.data). failed stays set once memory ran out. */
typedef struct tsr_text {
  char *data; /* NULL or terminated */
  size_t bytes, capacity;
  bool failed;
} tsr_text;
void tsr_text_append(tsr_text *text, const char *format, ...) TSR_PRINTF(2, 3);

/* "26.0 GB", "813 B": decimal units, three digits; in a buffer of at least 16 bytes, which is returned. */
char *tsr_format_bytes(char *buffer, double bytes);
/* "1.23 ms". */
char *tsr_format_seconds(char *buffer, double seconds);

/* Writes "a, b, c": up to three of count names nearest to `wanted` (edit distance), into buffer. */
void tsr_nearest_names(const char *wanted, const char *const *names, size_t count, char *buffer,
                       size_t bytes);

/* A shape as "[64, 384]". */
struct tsr_shape;
char *tsr_format_shape(char *buffer, size_t bytes, const struct tsr_shape *shape);

#endif
