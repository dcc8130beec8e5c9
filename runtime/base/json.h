/* base/json.h: reading JSON documents with errors that name the place. */
#ifndef TSR_BASE_JSON_H
#define TSR_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

/* Parses a document and checks its "schema" against "<name>/<major>": another name or major is MISMATCH, JSON
 * that is not well-formed FORMAT with line and column. *out is a new reference. `what` names the document in
 * messages. */
tsr_status tsr_json_parse(const char *text, size_t bytes, const char *what, const char *schema, json_t **out,
                          tsr_error *error);
/* Reads a whole file (given; free()), and puts a 0 behind it. Errors: IO, FORMAT (too large for a document),
 * OUT_OF_MEMORY. */
tsr_status tsr_file_read(const char *path, char **text, size_t *bytes, tsr_error *error);
/* The same for a file that nobody has named: a setting, a cache. What stands there and is no regular file (a
 * pipe, which would wait for a writer; a device; a folder) is IO. */
tsr_status tsr_regular_file_read(const char *path, char **text, size_t *bytes, tsr_error *error);

/* A member of an object; FORMAT if it is missing or of another type, naming path and key. `path` is where the
 * object stands: "members[2]". */
tsr_status tsr_json_object(const json_t *object, const char *path, const char *key, json_t **out,
                           tsr_error *error);
tsr_status tsr_json_array(const json_t *object, const char *path, const char *key, json_t **out,
                          tsr_error *error);
tsr_status tsr_json_text(const json_t *object, const char *path, const char *key, char *buffer, size_t bytes,
                         tsr_error *error);
/* Integers lie within [low, high]; reals are finite and not below low. */
tsr_status tsr_json_integer(const json_t *object, const char *path, const char *key, int64_t low,
                            int64_t high, int64_t *out, tsr_error *error);
tsr_status tsr_json_real(const json_t *object, const char *path, const char *key, double low, double *out,
                         tsr_error *error);
tsr_status tsr_json_bool(const json_t *object, const char *path, const char *key, bool *out,
                         tsr_error *error);

#endif
