/* bench_shapes.c: lists of products, by name, typed or in a file. */
#include "bench_shapes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"
#include "message.h"
#include "numbers.h"

enum { EXTENT_MAX = 1 << 24, SHAPES_MAX = 4096 };

static const int64_t squares[] = {512, 1024, 2048, 4096};

/* Rows, and n x k of the weights: of the list "layers" those that a kernel of any size meets, of
 * "transformer" the projections and the feed-forward block of a model of 7e9 parameters (width 4096, hidden
 * 11008). */
static const struct {
  const char *name;
  bool squares;
  int64_t rows[5], weights[6][2]; /* ended by 0 */
} named[] = {
    {"square", true, {0}, {{0}}},
    {"transformer", false, {1, 16, 512}, {{4096, 4096}, {11008, 4096}, {4096, 11008}}},
    {"layers",
     true,
     {8, 64, 512, 2048},
     {{1024, 1024}, {2048, 2048}, {4096, 4096}, {8192, 2048}, {2048, 8192}}},
};

static tsr_status add(tool_shapes *shapes, int64_t m, int64_t n, int64_t k, tsr_error *error) {
  tool_shape *items = realloc(shapes->items, (shapes->count + 1) * sizeof *items);
  if (!items || shapes->count == SHAPES_MAX)
    return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no room for more than %zu shapes", shapes->count);
  shapes->items = items;
  items[shapes->count++] = (tool_shape){m, n, k};
  return TSR_OK;
}

static tsr_status add_named(tool_shapes *shapes, size_t index, tsr_error *error) {
  tsr_status status = TSR_OK;
  for (size_t i = 0; named[index].squares && i < sizeof squares / sizeof squares[0]; i++)
    if (status == TSR_OK) status = add(shapes, squares[i], squares[i], squares[i], error);
  for (const int64_t *m = named[index].rows; *m; m++)
    for (const int64_t(*w)[2] = named[index].weights; (*w)[0]; w++)
      if (status == TSR_OK) status = add(shapes, *m, (*w)[0], (*w)[1], error);
  return status;
}

/* Three numbers with one of `between` between them; the line is taken to pieces. */
static bool read_three(char *line, const char *between, int64_t sizes[3]) {
  char *rest = NULL, *word = strtok_r(line, between, &rest);
  for (int i = 0; i < 3; i++, word = strtok_r(NULL, between, &rest))
    if (!word || !tool_read_count(word, 1, EXTENT_MAX, &sizes[i])) return false;
  return !word;
}

static bool looks_like_list(const char *text) {
  return text[0] && !text[strspn(text, "0123456789x,")] && strchr(text, 'x');
}

static tsr_status add_list(tool_shapes *shapes, const char *text, tsr_error *error) {
  tsr_status status = TSR_OK;
  while (status == TSR_OK && text) {
    char word[128];
    int64_t sizes[3];
    int bytes = (int)strcspn(text, ",");
    snprintf(word, sizeof word, "%.*s", bytes, text);
    if (!read_three(word, "x", sizes))
      return tool_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                       "--shapes has '%.*s', expected MxNxK, each from 1 to %d", bytes, text, EXTENT_MAX);
    status = add(shapes, sizes[0], sizes[1], sizes[2], error);
    text = text[bytes] ? text + bytes + 1 : NULL;
  }
  return status;
}

/* Empty lines, and what follows a '#', say nothing. */
static tsr_status add_file(tool_shapes *shapes, const char *path, tsr_error *error) {
  tsr_status status = TSR_OK;
  char *text = tool_file_read(path, NULL);
  if (!text && access(path, F_OK) == 0)
    return tool_fail(error, TSR_ERROR_IO, "--shapes '%s': the file cannot be read", path);
  if (!text)
    return tool_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                     "--shapes is '%s', expected square, transformer, layers, MxNxK[,MxNxK...] or a file",
                     path);
  int number = 1;
  for (char *line = text; status == TSR_OK && line; number++) {
    char *end = strchr(line, '\n');
    int64_t sizes[3];
    if (end) *end = 0;
    line[strcspn(line, "#")] = 0;
    bool empty = !line[strspn(line, " \t\r")];
    if (!empty && !read_three(line, " \tx\r", sizes))
      status = tool_fail(error, TSR_ERROR_FORMAT, "%s, line %d: expected M N K, each from 1 to %d", path,
                         number, EXTENT_MAX);
    else if (!empty)
      status = add(shapes, sizes[0], sizes[1], sizes[2], error);
    line = end ? end + 1 : NULL;
  }
  free(text);
  if (status == TSR_OK && !shapes->count)
    return tool_fail(error, TSR_ERROR_FORMAT, "%s: no shapes in it; expected lines M N K", path);
  return status;
}

tsr_status tool_shapes_read(const char *text, tool_shapes *out, tsr_error *error) {
  *out = (tool_shapes){0};
  if (!text) text = named[0].name;
  for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
    if (strcmp(text, named[i].name) == 0) return add_named(out, i, error);
  return looks_like_list(text) ? add_list(out, text, error) : add_file(out, text, error);
}

void tool_shapes_free(tool_shapes *shapes) {
  free(shapes->items);
  *shapes = (tool_shapes){0};
}
