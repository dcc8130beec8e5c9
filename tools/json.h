/* json.h: the few things about JSON that several commands need. */
#ifndef TOOL_JSON_H
#define TOOL_JSON_H

#include <jansson.h>
#include <tessera/tessera.h>

/* A number, or null for what JSON cannot say. */
json_t *tool_json_number(double number);
json_t *tool_json_bytes(uint64_t bytes);
/* Text that may hold anything: what is not UTF-8 becomes "?". */
json_t *tool_json_text(const char *text);
/* {status, message, rank} */
json_t *tool_json_error(const tsr_error *error);

/* The document of a command that failed before it had anything to show. */
json_t *tool_json_failure(const char *command, const tsr_error *error);

/* Writes the document and a newline to stdout, and releases it. False, with a line on stderr, if it is NULL
 * (no memory); whether stdout took it is told by tool_stdout_finish. */
bool tool_json_print(const char *command, json_t *document);

/* The document in a text to which others (a driver, mpiexec) may have added theirs; NULL if there is none. */
json_t *tool_json_find(const char *text);

/* "" and 0 if the member is missing or of another type. Borrowed. */
const char *tool_json_get_text(const json_t *object, const char *name);
uint64_t tool_json_get_bytes(const json_t *object, const char *name);

#endif
