/* tessera/writer.h: where documents are written to. */
#ifndef TESSERA_WRITER_H
#define TESSERA_WRITER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Receives `bytes` bytes of text; returns 0, or anything else to stop with TSR_ERROR_IO. */
typedef int (*tsr_writer)(void *user, const char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
