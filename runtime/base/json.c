#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

/* A cluster of 65536 members takes less. Some files, such as /dev/zero, have no end. */
enum { DOCUMENT_BYTES_MAX = 512 << 20 };

static tsr_status check_schema(const json_t *document, const char *what, const char *schema,
                               tsr_error *error) {
  const char *found = json_string_value(json_object_get(document, "schema"));
  if (!json_is_object(document) || !found)
    return tsr_fail(error, TSR_ERROR_FORMAT, "%s: no \"schema\"; expected \"%s\"", what, schema);
  if (strcmp(found, schema))
    return tsr_fail(error, TSR_ERROR_MISMATCH, "%s: schema is \"%s\", this version reads \"%s\"", what, found,
                    schema);
  return TSR_OK;
}

tsr_status tsr_json_parse(const char *text, size_t bytes, const char *what, const char *schema, json_t **out,
                          tsr_error *error) {
  json_error_t detail;
  json_t *document = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &detail);
  if (!document)
    return tsr_fail(error, TSR_ERROR_FORMAT, "%s: not JSON: line %d, column %d: %s", what, detail.line,
                    detail.column, detail.text);
  tsr_status status = check_schema(document, what, schema, error);
  if (status != TSR_OK) {
    json_decref(document);
    return status;
  }
  *out = document;
  return TSR_OK;
}

/* Closes the stream. */
static tsr_status read_stream(FILE *file, const char *path, char **text, size_t *bytes, tsr_error *error) {
  tsr_status status = TSR_OK;
  char *data = NULL;
  size_t count = 0, capacity = 0;
  if (!file) return tsr_fail(error, TSR_ERROR_IO, "cannot open %s: %s", path, strerror(errno));
  do {
    if (capacity > DOCUMENT_BYTES_MAX)
      TSR_THROW(TSR_ERROR_FORMAT, "%s: more than %d MiB, the limit of a document: check that it is one", path,
                DOCUMENT_BYTES_MAX >> 20);
    capacity = capacity ? 2 * capacity : 65536;
    char *moved = tsr_realloc(data, capacity, 1);
    if (!moved) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory to read %s (%zu bytes so far)", path, count);
    data = moved;
    count += fread(data + count, 1, capacity - count, file);
  } while (count == capacity);
  if (ferror(file)) TSR_THROW(TSR_ERROR_IO, "cannot read %s: %s", path, strerror(errno));
  data[count] = 0;
  *text = data;
  *bytes = count;
  data = NULL;
done:
  free(data);
  fclose(file);
  return status;
}

tsr_status tsr_file_read(const char *path, char **text, size_t *bytes, tsr_error *error) {
  return read_stream(fopen(path, "rb"), path, text, bytes, error);
}

tsr_status tsr_regular_file_read(const char *path, char **text, size_t *bytes, tsr_error *error) {
  struct stat facts;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file >= 0 && !fstat(file, &facts) && !S_ISREG(facts.st_mode)) {
    close(file);
    return tsr_fail(error, TSR_ERROR_IO, "cannot read %s: it is not a regular file; move it away", path);
  }
  return read_stream(file >= 0 ? fdopen(file, "rb") : NULL, path, text, bytes, error);
}

static tsr_status wrong_type(const json_t *found, const char *path, const char *key, const char *type,
                             tsr_error *error) {
  return tsr_fail(error, TSR_ERROR_FORMAT, "%s.%s: %s, expected %s", path, key,
                  found ? "of another type" : "missing", type);
}

tsr_status tsr_json_object(const json_t *object, const char *path, const char *key, json_t **out,
                           tsr_error *error) {
  *out = json_object_get(object, key);
  return json_is_object(*out) ? TSR_OK : wrong_type(*out, path, key, "an object", error);
}

tsr_status tsr_json_array(const json_t *object, const char *path, const char *key, json_t **out,
                          tsr_error *error) {
  *out = json_object_get(object, key);
  return json_is_array(*out) ? TSR_OK : wrong_type(*out, path, key, "an array", error);
}

tsr_status tsr_json_text(const json_t *object, const char *path, const char *key, char *buffer, size_t bytes,
                         tsr_error *error) {
  const json_t *found = json_object_get(object, key);
  if (!json_is_string(found)) return wrong_type(found, path, key, "a string", error);
  if (json_string_length(found) >= bytes)
    return tsr_fail(error, TSR_ERROR_FORMAT, "%s.%s: %zu characters, at most %zu are allowed", path, key,
                    json_string_length(found), bytes - 1);
  memcpy(buffer, json_string_value(found), json_string_length(found) + 1);
  return TSR_OK;
}

tsr_status tsr_json_integer(const json_t *object, const char *path, const char *key, int64_t low,
                            int64_t high, int64_t *out, tsr_error *error) {
  const json_t *found = json_object_get(object, key);
  if (!json_is_integer(found)) return wrong_type(found, path, key, "an integer", error);
  *out = json_integer_value(found);
  if (*out < low || *out > high)
    return tsr_fail(error, TSR_ERROR_FORMAT, "%s.%s: %lld is not in [%lld, %lld]", path, key, (long long)*out,
                    (long long)low, (long long)high);
  return TSR_OK;
}

tsr_status tsr_json_real(const json_t *object, const char *path, const char *key, double low, double *out,
                         tsr_error *error) {
  const json_t *found = json_object_get(object, key);
  if (!json_is_number(found)) return wrong_type(found, path, key, "a number", error);
  *out = json_number_value(found);
  if (!isfinite(*out) || *out < low)
    return tsr_fail(error, TSR_ERROR_FORMAT, "%s.%s: %g is below %g or not finite", path, key, *out, low);
  return TSR_OK;
}

tsr_status tsr_json_bool(const json_t *object, const char *path, const char *key, bool *out,
                         tsr_error *error) {
  const json_t *found = json_object_get(object, key);
  if (!json_is_boolean(found)) return wrong_type(found, path, key, "true or false", error);
  *out = json_is_true(found);
  return TSR_OK;
}
