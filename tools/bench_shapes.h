/* bench_shapes.h: which products are measured. */
#ifndef TOOL_BENCH_SHAPES_H
#define TOOL_BENCH_SHAPES_H

#include <tessera/tessera.h>

typedef struct tool_shape {
  int64_t m, n, k;
} tool_shape;

typedef struct tool_shapes {
  tool_shape *items;
  size_t count;
} tool_shapes;

/* By name (square, transformer, layers), as MxNxK[,MxNxK...], or from a file of lines "M N K"; NULL = square.
 * Errors: INVALID_ARGUMENT (none of these), IO, FORMAT (with the line), OUT_OF_MEMORY. Release with
 * tool_shapes_free. */
tsr_status tool_shapes_read(const char *text, tool_shapes *out, tsr_error *error);
void tool_shapes_free(tool_shapes *shapes);

#endif
