/* io/source.h: what loading asks of a source beside its contents. */
#ifndef TSR_IO_SOURCE_H
#define TSR_IO_SOURCE_H

#include <tessera/source.h>

/* Whether what the source has under this name is whole numbers by its kind: i8 in a file or an array, random
 * integers, a whole constant. False where it has nothing. */
bool tsr_source_is_whole(const tsr_source *source, const char *name);

#endif
