#include "io/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/memory.h"
#include "base/text.h"
#include "io/convert.h"
#include "io/philox.h"
#include "io/tensor_file.h"

enum { SHAPE_BYTES = 100 };

typedef enum entry_kind { ENTRY_FILE, ENTRY_ARRAY, ENTRY_CONSTANT, ENTRY_RANDOM } entry_kind;

/* Where one name's contents come from. */
typedef struct entry {
  char *name;
  entry_kind kind;
  const tsr_tensor_file *file; /* FILE: borrowed from the source, as tensor is */
  const tsr_tensor *tensor;
  bool transposed;
  tsr_array array;          /* ARRAY */
  double constant;          /* CONSTANT */
  tsr_random_stream random; /* RANDOM */
} entry;

struct tsr_source {
  tsr_context *context; /* borrowed */
  entry **entries;      /* ordered by name */
  size_t entry_count, entry_capacity;
  tsr_tensor_file **files; /* each path once */
  size_t file_count, file_capacity;
};

tsr_status tsr_source_create(tsr_context *context, tsr_source **out, tsr_error *error) {
  tsr_source *source = tsr_calloc(1, sizeof *source);
  if (!source) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a source");
  source->context = context;
  *out = source;
  return TSR_OK;
}

void tsr_source_destroy(tsr_source **source) {
  if (!*source) return;
  for (size_t i = 0; i < (*source)->entry_count; i++) {
    free((*source)->entries[i]->name);
    free((*source)->entries[i]);
  }
  for (size_t i = 0; i < (*source)->file_count; i++) tsr_tensor_file_close(&(*source)->files[i]);
  free((*source)->entries);
  free((*source)->files);
  free(*source);
  *source = NULL;
}

/* Index of name, or where it would go. */
static size_t place_of(const tsr_source *source, const char *name, bool *found) {
  size_t low = 0, high = source->entry_count;
  *found = false;
  while (low < high && !*found) {
    size_t middle = low + (high - low) / 2;
    int order = strcmp(name, source->entries[middle]->name);
    *found = !order;
    if (order > 0)
      low = middle + 1;
    else
      high = middle;
  }
  return *found ? high : low;
}

bool tsr_source_has(const tsr_source *source, const char *name) {
  bool found;
  if (!name) return false;
  place_of(source, name, &found);
  return found;
}

bool tsr_source_is_whole(const tsr_source *source, const char *name) {
  bool found;
  size_t place = place_of(source, name, &found);
  if (!found) return false;
  const entry *e = source->entries[place];
  switch (e->kind) {
  case ENTRY_FILE: return e->tensor->readable && e->tensor->dtype == TSR_I8;
  case ENTRY_ARRAY: return e->array.dtype == TSR_I8;
  case ENTRY_CONSTANT: return e->constant == rint(e->constant);
  default: return e->random.kind == TSR_RANDOM_INTEGER;
  }
}

/* Stores a copy of what under a copy of name. */
static tsr_status add(tsr_source *source, const char *name, const entry *what, tsr_error *error) {
  bool found;
  char shown[TSR_NAME_BYTES];
  if (!name || !*name)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "a name in the source is empty: give the value's name");
  size_t place = place_of(source, name, &found);
  if (found)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "source has \"%s\" already: add each name once",
                    tsr_name_print(shown, sizeof shown, name));
  entry *added = tsr_malloc(sizeof *added);
  char *copy = tsr_text_copy(name);
  if (!added || !copy || !TSR_GROW(source->entries, source->entry_count, source->entry_capacity)) {
    free(added);
    free(copy);
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a source of %zu names",
                    source->entry_count + 1);
  }
  *added = *what;
  added->name = copy;
  entry **at = source->entries + place;
  memmove(at + 1, at, (source->entry_count - place) * sizeof *at);
  *at = added;
  source->entry_count++;
  return TSR_OK;
}

/* Opens path unless it is open. */
static tsr_status shared_file(tsr_source *source, const char *path, const tsr_tensor_file **out,
                              tsr_error *error) {
  for (size_t i = 0; i < source->file_count; i++)
    if (!strcmp(source->files[i]->path, path)) {
      *out = source->files[i];
      return TSR_OK;
    }
  char size[16];
  if (!TSR_GROW(source->files, source->file_count, source->file_capacity))
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %zu files", source->file_count + 1);
  tsr_tensor_file *file = NULL;
  TSR_RETURN_IF_FAILED(tsr_tensor_file_open(path, &file, error));
  tsr_log(source->context, TSR_LOG_DEBUG, "io", "mapped %s: %zu tensors, %s", path, file->tensor_count,
          tsr_format_bytes(size, (double)file->byte_count));
  source->files[source->file_count++] = file;
  *out = file;
  return TSR_OK;
}

tsr_status tsr_source_add_file(tsr_source *source, const char *name, const char *path, const char *tensor,
                               bool transposed, tsr_error *error) {
  char shown[TSR_TENSOR_BYTES];
  entry e = {.kind = ENTRY_FILE, .transposed = transposed};
  if (!path) return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "the path is NULL: name a file");
  TSR_RETURN_IF_FAILED(shared_file(source, path, &e.file, error));
  TSR_RETURN_IF_FAILED(tsr_tensor_file_find(e.file, tensor, &e.tensor, error));
  if (transposed && e.tensor->axes != 2)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%s has %d axes, transposed needs 2: add it with transposed = false",
                    tsr_tensor_print(shown, sizeof shown, e.file, e.tensor), e.tensor->axes);
  return add(source, name, &e, error);
}

/* A view that a caller hands in. */
static tsr_status check_array(const char *name, const tsr_array *array, tsr_error *error) {
  char shown[TSR_NAME_BYTES];
  if (!array) return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "the array is NULL: give a view of memory");
  tsr_status status = tsr_array_check(array, error);
  if (status != TSR_OK) tsr_error_wrap(error, "array of \"%s\"", tsr_name_print(shown, sizeof shown, name));
  return status;
}

tsr_status tsr_source_add_array(tsr_source *source, const char *name, const tsr_array *array,
                                tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_array(name, array, error));
  entry e = {.kind = ENTRY_ARRAY, .array = *array};
  return add(source, name, &e, error);
}

tsr_status tsr_source_add_constant(tsr_source *source, const char *name, double constant, tsr_error *error) {
  entry e = {.kind = ENTRY_CONSTANT, .constant = constant};
  return add(source, name, &e, error);
}

tsr_status tsr_source_add_random(tsr_source *source, const char *name, tsr_random kind, uint64_t seed,
                                 double low, double high, tsr_error *error) {
  char shown[TSR_NAME_BYTES];
  entry e = {.kind = ENTRY_RANDOM};
  if (!name) return add(source, name, &e, error); /* refuses it */
  tsr_status status = tsr_random_init(&e.random, name, kind, seed, low, high, error);
  if (status == TSR_OK) return add(source, name, &e, error);
  tsr_error_wrap(error, "random value \"%s\"", tsr_name_print(shown, sizeof shown, name));
  return status;
}

static tsr_status fail_not_found(const tsr_source *source, const char *name, tsr_error *error) {
  char shown[TSR_NAME_BYTES], nearest[3 * TSR_NAME_BYTES];
  const char **names = tsr_malloc(source->entry_count * sizeof *names);
  for (size_t i = 0; names && i < source->entry_count; i++) names[i] = source->entries[i]->name;
  tsr_nearest_print(nearest, sizeof nearest, name, names, source->entry_count);
  free(names);
  return tsr_fail(error, TSR_ERROR_NOT_FOUND, "source has no \"%s\" among %zu names; nearest: %s",
                  tsr_name_print(shown, sizeof shown, name), source->entry_count,
                  *nearest ? nearest : "none");
}

/* The block asked for lies in `whole`. */
static tsr_status check_block(const char *name, const tsr_shape *whole, const int64_t *start,
                              const tsr_array *out, tsr_error *error) {
  char shown[TSR_NAME_BYTES], shape[SHAPE_BYTES];
  TSR_RETURN_IF_FAILED(check_array(name, out, error));
  tsr_name_print(shown, sizeof shown, name);
  if (whole->axes != out->shape.axes || tsr_shape_count(whole) < 0)
    return tsr_fail(
        error, TSR_ERROR_INVALID_ARGUMENT,
        "value \"%s\": whole has %d axes and the block %d: they must agree, and whole's count fit 64 bits",
        shown, whole->axes, out->shape.axes);
  for (int i = 0; i < whole->axes; i++)
    if (start[i] < 0 || start[i] > whole->extent[i] || out->shape.extent[i] > whole->extent[i] - start[i])
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                      "value \"%s\": block begins at %lld of axis %d and is %lld long, outside of %s", shown,
                      (long long)start[i], i, (long long)out->shape.extent[i],
                      tsr_format_shape(shape, sizeof shape, whole));
  return TSR_OK;
}

static tsr_status check_shape(const char *name, const char *origin, const tsr_shape *held,
                              const tsr_shape *whole, tsr_error *error) {
  char shown[TSR_NAME_BYTES], a[SHAPE_BYTES], b[SHAPE_BYTES];
  bool same = held->axes == whole->axes;
  for (int i = 0; same && i < whole->axes; i++) same = held->extent[i] == whole->extent[i];
  if (same) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                  "value \"%s\" has shape %s, but %s holds %s: give the graph the shape of its data",
                  tsr_name_print(shown, sizeof shown, name), tsr_format_shape(a, sizeof a, whole), origin,
                  tsr_format_shape(b, sizeof b, held));
}

static tsr_status wrap_value(tsr_status status, const entry *e, tsr_error *error) {
  char shown[TSR_NAME_BYTES];
  if (status != TSR_OK) tsr_error_wrap(error, "value \"%s\"", tsr_name_print(shown, sizeof shown, e->name));
  return status;
}

/* The part of `all` that begins at start and has out's shape goes to out, which is not empty. */
static tsr_status copy_part(const entry *e, const tsr_array *all, const int64_t *start, const tsr_array *out,
                            tsr_error *error) {
  tsr_array part = *all;
  int64_t offset = 0;
  for (int i = 0; i < out->shape.axes; i++) offset += start[i] * all->stride[i];
  part.data = (uint8_t *)all->data + offset * (int64_t)tsr_dtype_bytes(all->dtype);
  part.shape = out->shape;
  return wrap_value(tsr_array_narrow(&part, out, start, error), e, error);
}

static void swap_axes(int64_t *pair) {
  int64_t first = pair[0];
  pair[0] = pair[1];
  pair[1] = first;
}

static tsr_status read_file(const entry *e, const tsr_shape *whole, const int64_t *start,
                            const tsr_array *out, tsr_error *error) {
  char shown[TSR_TENSOR_BYTES], origin[TSR_TENSOR_BYTES + 16];
  tsr_shape held;
  tsr_tensor_print(shown, sizeof shown, e->file, e->tensor);
  if (!e->tensor->readable)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "%s has dtype %s: convert it to F32, F64, F16, BF16 or I8 to read it", shown,
                    e->tensor->dtype_name);
  TSR_RETURN_IF_FAILED(tsr_tensor_shape(e->file, e->tensor, &held, error));
  tsr_shape seen = held;
  if (e->transposed) swap_axes(seen.extent);
  snprintf(origin, sizeof origin, "%s%s", shown, e->transposed ? ", transposed," : "");
  TSR_RETURN_IF_FAILED(check_shape(e->name, origin, &seen, whole, error));
  if (!tsr_shape_count(&out->shape)) return TSR_OK;
  tsr_array all = tsr_array_dense(e->tensor->data, e->tensor->dtype, &held);
  if (e->transposed) swap_axes(all.stride);
  return copy_part(e, &all, start, out, error);
}

static tsr_status read_array(const entry *e, const tsr_shape *whole, const int64_t *start,
                             const tsr_array *out, tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_shape(e->name, "its array", &e->array.shape, whole, error));
  return tsr_shape_count(&out->shape) ? copy_part(e, &e->array, start, out, error) : TSR_OK;
}

/* One element is converted and then repeated by strides of 0. */
static tsr_status read_constant(const entry *e, const tsr_shape *whole, const int64_t *start,
                                const tsr_array *out, tsr_error *error) {
  (void)whole, (void)start;
  uint64_t converted;
  TSR_RETURN_IF_FAILED(wrap_value(tsr_dtype_check(out->dtype, e->constant, "its constant", error), e, error));
  double constant = e->constant;
  tsr_array one = {.data = &constant, .dtype = TSR_F64};
  tsr_array cell = {.data = &converted, .dtype = out->dtype};
  tsr_array_convert(&one, &cell);
  cell.shape = out->shape;
  tsr_array_convert(&cell, out);
  return TSR_OK;
}

static tsr_status read_random(const entry *e, const tsr_shape *whole, const int64_t *start,
                              const tsr_array *out, tsr_error *error) {
  const double ends[] = {e->random.low, e->random.high};
  for (int i = 0; i < 2; i++)
    TSR_RETURN_IF_FAILED(
        wrap_value(tsr_dtype_check(out->dtype, ends[i], "an end of its range", error), e, error));
  if (tsr_shape_count(&out->shape)) tsr_random_fill(&e->random, whole, start, out);
  return TSR_OK;
}

/* Called by tsr_source_read with a block that lies in whole; each checks whole against what it holds. */
static tsr_status (*const readers[])(const entry *, const tsr_shape *, const int64_t *, const tsr_array *,
                                     tsr_error *) = {
    [ENTRY_FILE] = read_file,
    [ENTRY_ARRAY] = read_array,
    [ENTRY_CONSTANT] = read_constant,
    [ENTRY_RANDOM] = read_random,
};

tsr_status tsr_source_read(const tsr_source *source, const char *name, const tsr_shape *whole,
                           const int64_t *start, const tsr_array *out, tsr_error *error) {
  bool found;
  size_t place = place_of(source, name, &found);
  if (!found) return fail_not_found(source, name, error);
  TSR_RETURN_IF_FAILED(check_block(name, whole, start, out, error));
  const entry *e = source->entries[place];
  return readers[e->kind](e, whole, start, out, error);
}
