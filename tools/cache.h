/* cache.h: small documents in the cache folder. A missing or unwritable folder only costs time. */
#ifndef TOOL_CACHE_H
#define TOOL_CACHE_H

#include <stdint.h>

#include <tessera/tessera.h>

/* Text of the document, which the caller frees; NULL if there is none, or it is older than `seconds` (0: any
 * age), or another user owns it. */
char *tool_cache_read(const tsr_context *context, const char *kind, uint64_t key, double seconds);
/* Writes under another name, then renames: a reader never sees half. */
void tool_cache_write(const tsr_context *context, const char *kind, uint64_t key, const char *text);

/* The whole file, terminated; NULL if it cannot be read. *bytes may be NULL. */
char *tool_file_read(const char *path, size_t *bytes);

#endif
