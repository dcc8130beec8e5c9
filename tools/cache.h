/* cache.h: small documents: in the cache folder, where a missing or unwritable folder only costs time, and
 * where -o says. */
#ifndef TOOL_CACHE_H
#define TOOL_CACHE_H

#include <stdint.h>

#include <tessera/tessera.h>

#include "options.h"

/* Text of the document, which the caller frees; NULL if there is none, or it is older than `seconds` (0: any
 * age), or another user owns it. */
char *tool_cache_read(const tsr_context *context, const char *kind, uint64_t key, double seconds);
/* Writes under another name, then renames: a reader never sees half. */
void tool_cache_write(const tsr_context *context, const char *kind, uint64_t key, const char *text);

/* Whether -o (NULL: not said) can be written: asked before the work is done, not after. */
tsr_status tool_file_check(const char *path, tsr_error *error);
/* Writes as tool_cache_write does; to what is no regular file (a device, a pipe) directly; through a link to
 * what it leads to. */
tsr_status tool_file_write(const char *path, const char *text, tsr_error *error);

/* No two outputs may go to one file, however it is spelled: 0, or says what is wrong and returns
 * TOOL_EXIT_USAGE.
 */
int tool_outputs_check(const tool_options *options);

/* The whole file, terminated; NULL if it cannot be read. *bytes may be NULL. */
char *tool_file_read(const char *path, size_t *bytes);

#endif
