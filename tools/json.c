/* json.c: helpers around jansson. */
#include "json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "message.h"

json_t *tool_json_number(double number) {
  return isfinite(number) ? json_real(number) : json_null();
}

json_t *tool_json_bytes(uint64_t bytes) {
  return json_integer(bytes > INT64_MAX ? INT64_MAX : (json_int_t)bytes);
}

json_t *tool_json_text(const char *text) {
  json_t *value = json_string(text);
  if (value) return value;
  char plain[TSR_ERROR_MESSAGE_BYTES];
  size_t used = 0;
  for (; *text && used + 1 < sizeof plain; text++) plain[used++] = (unsigned char)*text < 128 ? *text : '?';
  plain[used] = 0;
  return json_string(plain);
}

json_t *tool_json_error(const tsr_error *error) {
  return json_pack("{s:s, s:o, s:i}", "status", tsr_status_name(error->status), "message",
                   tool_json_text(error->message[0] ? error->message : tsr_status_text(error->status)),
                   "rank", error->rank);
}

json_t *tool_json_failure(const char *command, const tsr_error *error) {
  /* What a profile gives is a cluster. */
  const char *name = strcmp(command, "profile") == 0 ? "cluster" : command;
  json_t *document =
      json_pack("{s:s++, s:o}", "schema", "tessera.", name, "/1", "error", tool_json_error(error));
  if (strcmp(command, "plan") == 0) json_object_set_new(document, "feasible", json_false());
  if (strcmp(command, "devices") == 0) json_object_set_new(document, "devices", json_array());
  return document;
}

bool tool_json_print(const char *command, json_t *document) {
  if (!document) {
    fprintf(stderr, "tessera %s: no memory for the document\n", command);
    return false;
  }
  json_dumpf(document, stdout, JSON_INDENT(2));
  putchar('\n');
  fflush(stdout);
  json_decref(document);
  return true;
}

json_t *tool_json_find(const char *text) {
  const char *start = text ? strchr(text, '{') : NULL;
  return start ? json_loads(start, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
}

const char *tool_json_get_text(const json_t *object, const char *name) {
  const char *text = json_string_value(json_object_get(object, name));
  return text ? text : "";
}

uint64_t tool_json_get_bytes(const json_t *object, const char *name) {
  json_int_t number = json_integer_value(json_object_get(object, name));
  return number > 0 ? (uint64_t)number : 0;
}
