#include "base/gemm_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { REDUCE_PARTIALS = 256 };

/* Tiles of C that are enough to fill a large GPU: with fewer, k is cut. */
enum { TILES_ENOUGH = 256, DEPTH_LEAST = 256 };

enum { BANK_BYTES = 128 }; /* of one element from each bank of local memory */

static const char *const family_names[] = {
#define TSR_GEMM_FAMILY_NAME(name, text) text,
    TSR_GEMM_FAMILY_LIST(TSR_GEMM_FAMILY_NAME)
#undef TSR_GEMM_FAMILY_NAME
};

static const struct {
  const char *name;
  tsr_dtype a, b, c;
} types_rows[] = {
#define TSR_GEMM_TYPES_ROW(name, text, a, b, c) {text, TSR_##a, TSR_##b, TSR_##c},
    TSR_GEMM_TYPES_LIST(TSR_GEMM_TYPES_ROW)
#undef TSR_GEMM_TYPES_ROW
};

/* Sets of families. */
enum {
  PANEL = 1 << TSR_GEMM_PANEL,
  TILE = 1 << TSR_GEMM_TILE,
  MMA = 1 << TSR_GEMM_MMA,
  EVERY = (1 << TSR_GEMM_FAMILY_COUNT) - 1,
  DEFAULTS = 0 /* of no family: it is of a device's default alone */
};

static const struct {
  const char *name;
  size_t offset;
  unsigned families;
} parameters[] = {
#define TSR_GEMM_PARAMETER_ROW(name, families) {#name, offsetof(tsr_gemm_facts, name), families},
    TSR_GEMM_PARAMETER_LIST(TSR_GEMM_PARAMETER_ROW)
#undef TSR_GEMM_PARAMETER_ROW
};
enum { PARAMETERS = sizeof parameters / sizeof *parameters };

tsr_dtype tsr_gemm_dtype_a(tsr_gemm_types types) {
  return types_rows[types].a;
}

tsr_dtype tsr_gemm_dtype_b(tsr_gemm_types types) {
  return types_rows[types].b;
}

tsr_dtype tsr_gemm_dtype_c(tsr_gemm_types types) {
  return types_rows[types].c;
}

const char *tsr_gemm_types_name(tsr_gemm_types types) {
  return types < TSR_GEMM_TYPES_COUNT ? types_rows[types].name : "?";
}

tsr_gemm_types tsr_gemm_types_of(const char *name) {
  int types = 0;
  while (types < TSR_GEMM_TYPES_COUNT && strcmp(name, types_rows[types].name)) types++;
  return (tsr_gemm_types)types;
}

tsr_gemm_types tsr_gemm_types_find(tsr_dtype a, tsr_dtype b) {
  int types = 0;
  while (types < TSR_GEMM_TYPES_COUNT && (types_rows[types].a != a || types_rows[types].b != b)) types++;
  return (tsr_gemm_types)types;
}

const char *tsr_gemm_family_name(tsr_gemm_family family) {
  return family < TSR_GEMM_FAMILY_COUNT ? family_names[family] : "?";
}

tsr_gemm_family tsr_gemm_family_of(const char *name) {
  int family = 0;
  while (family < TSR_GEMM_FAMILY_COUNT && strcmp(name, family_names[family])) family++;
  return (tsr_gemm_family)family;
}

int tsr_gemm_parameter_count(void) {
  return PARAMETERS;
}

const char *tsr_gemm_parameter_name(int index) {
  return parameters[index].name;
}

int32_t *tsr_gemm_parameter(tsr_gemm_facts *facts, int index) {
  return (int32_t *)((char *)facts + parameters[index].offset);
}

bool tsr_gemm_family_has(tsr_gemm_family family, int index) {
  return parameters[index].families >> family & 1;
}

int32_t tsr_gemm_parameter_most(int index) {
  return parameters[index].offset == offsetof(tsr_gemm_facts, tuning) ? INT32_MAX : 1 << 20;
}

char *tsr_gemm_facts_format(const tsr_gemm_facts *facts, char *buffer, size_t bytes) {
  tsr_gemm_facts copy = *facts;
  size_t used = (size_t)snprintf(buffer, bytes, "%s", tsr_gemm_family_name(facts->family));
  for (int i = 0; i < PARAMETERS && used < bytes; i++) {
    int32_t value = *tsr_gemm_parameter(&copy, i);
    if (value)
      used += (size_t)snprintf(buffer + used, bytes - used, " %s=%d", parameters[i].name, (int)value);
  }
  return buffer;
}

static tsr_status parse_parameter(const char *word, tsr_gemm_facts *out, tsr_error *error) {
  const char *equals = strchr(word, '=');
  for (int i = 0; equals && i < PARAMETERS; i++) {
    if (strncmp(word, parameters[i].name, (size_t)(equals - word)) || parameters[i].name[equals - word])
      continue;
    char *end;
    long value = strtol(equals + 1, &end, 10);
    if (end == equals + 1 || *end || value < 0 || value > tsr_gemm_parameter_most(i)) break;
    *tsr_gemm_parameter(out, i) = (int32_t)value;
    return TSR_OK;
  }
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                  "GEMM parameter \"%s\": expected name=value, such as tile_m=6, with a value from 0 to %d",
                  word, 1 << 20);
}

tsr_status tsr_gemm_facts_parse(const char *text, tsr_gemm_facts *out, tsr_error *error) {
  char copy[1024], *rest = NULL;
  *out = (tsr_gemm_facts){.family = TSR_GEMM_NONE};
  if (strlen(text) >= sizeof copy)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "GEMM variant of %zu characters: at most %zu",
                    strlen(text), sizeof copy - 1);
  memcpy(copy, text, strlen(text) + 1);
  char *word = strtok_r(copy, " ", &rest);
  out->family = tsr_gemm_family_of(word ? word : "");
  if (out->family == TSR_GEMM_FAMILY_COUNT)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "\"%s\" is not a GEMM family: expected panel, tile, mma, "
                    "clblast or reference",
                    word ? word : "");
  while ((word = strtok_r(NULL, " ", &rest))) TSR_RETURN_IF_FAILED(parse_parameter(word, out, error));
  return TSR_OK;
}

/* Every field is 32 bits wide, so there is no padding to differ. */
bool tsr_gemm_facts_equal(const tsr_gemm_facts *a, const tsr_gemm_facts *b, int count) {
  return !memcmp(a, b, (size_t)count * sizeof *a);
}

int tsr_gemm_split(const tsr_gemm_facts *facts, int64_t m, int64_t n, int64_t k) {
  if (facts->split_k < 2 || !facts->tile_m || !facts->tile_n) return 1;
  int64_t tiles = tsr_ceil_div(m, facts->tile_m) * tsr_ceil_div(n, facts->tile_n);
  int64_t parts = TILES_ENOUGH / tiles, most = k / DEPTH_LEAST;
  if (parts > most) parts = most;
  if (parts > facts->split_k) parts = facts->split_k;
  return parts < 1 ? 1 : (int)parts;
}

size_t tsr_gemm_workspace_bytes(const tsr_gemm_facts *facts, tsr_gemm_types types, int64_t m, int64_t n,
                                int64_t k) {
  int parts = tsr_gemm_split(facts, m, n, k);
  return parts < 2 ? 0 : (size_t)parts * (size_t)m * (size_t)n * tsr_dtype_bytes(tsr_gemm_dtype_c(types));
}

/* As gemm_tile.cl counts: VECTOR rows of both tiles and their skew at a time. */
size_t tsr_gemm_tile_local_bytes(const tsr_gemm_facts *facts, tsr_gemm_types types) {
  const int element = (int)tsr_dtype_bytes(tsr_gemm_dtype_c(types)), vector = facts->vector;
  const int spread = BANK_BYTES / element * vector / facts->tile_k / vector * vector;
  const int skew = spread > vector ? spread : vector;
  const int rows = facts->tile_k / vector * (vector * (facts->tile_m + facts->tile_n) + 2 * skew);
  return (size_t)facts->buffers * (size_t)rows * (size_t)element;
}

tsr_mma_size tsr_mma_size_of(int32_t instruction) {
  static const tsr_mma_size sizes[TSR_MMA_COUNT] = {
#define TSR_MMA_INSTRUCTION_ROW(name, ...) [TSR_MMA_##name] = {__VA_ARGS__},
      TSR_MMA_INSTRUCTION_LIST(TSR_MMA_INSTRUCTION_ROW)
#undef TSR_MMA_INSTRUCTION_ROW
  };
  bool known = instruction > TSR_MMA_NONE && instruction < TSR_MMA_COUNT;
  return known ? sizes[instruction] : (tsr_mma_size){0};
}

/* As gemm_mma.cl counts: the stages' tiles, 2 bytes an element; at the end, in their place, a row of
 * fragments of each warp, 4 bytes an element, and 8 elements between rows. */
size_t tsr_gemm_mma_local_bytes(const tsr_gemm_facts *facts) {
  const size_t tiles =
      (size_t)facts->stages * (size_t)(facts->tile_m + facts->tile_n) * (size_t)facts->tile_k * 2;
  const int32_t rows = facts->tile_m / facts->warp_m * tsr_mma_size_of(facts->instruction).rows;
  const size_t slab = (size_t)rows * (size_t)(facts->tile_n + 8) * 4;
  return tiles > slab ? tiles : slab;
}

size_t tsr_gemm_mma_items(const tsr_gemm_facts *facts) {
  const int32_t warps = facts->tile_m / facts->warp_m * (facts->tile_n / facts->warp_n);
  return (size_t)warps * (size_t)tsr_mma_size_of(facts->instruction).warp;
}

size_t tsr_reduce_workspace_bytes(void) {
  return REDUCE_PARTIALS * sizeof(double);
}

int64_t tsr_matrix_bytes(int panel, tsr_dtype dtype, int64_t rows, int64_t cols) {
  int64_t padded = panel ? (cols + panel - 1) / panel * panel : cols, bytes;
  if (!tsr_multiply_fits(rows, padded, &bytes) ||
      !tsr_multiply_fits(bytes, (int64_t)tsr_dtype_bytes(dtype), &bytes))
    return -1;
  return bytes;
}
