/* base/context.h: the inside of a context, and logging. */
#ifndef TSR_BASE_CONTEXT_H
#define TSR_BASE_CONTEXT_H

#include <tessera/context.h>

#include "base/error.h"

/* Formats and hands a line to the context's callback, if its level (or the area's own) lets it through. */
void tsr_log(const tsr_context *context, tsr_log_level level, const char *area, const char *format, ...)
    TSR_PRINTF(4, 5);

/* Folder of .cl files that goes before the embedded ones; "" if none. */
const char *tsr_context_kernel_folder(const tsr_context *context);

/* How many bytes the compiled kernels in the cache folder may take. */
uint64_t tsr_context_cache_bytes(const tsr_context *context);

#endif
