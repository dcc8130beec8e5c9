/* drivers.h: the OpenCL drivers (ICDs) that are installed, as files: none is loaded. */
#ifndef TOOL_DRIVERS_H
#define TOOL_DRIVERS_H

#include <stddef.h>
#include <stdint.h>

#include <tessera/tessera.h>

typedef struct tool_drivers {
  char **paths; /* .icd files, sorted; or one library name that OCL_ICD_VENDORS holds */
  size_t count;
} tool_drivers;

/* Those of $OCL_ICD_VENDORS (a folder, a .icd file or a library), else of /etc/OpenCL/vendors. A missing
 * folder is no error. Release with tool_drivers_free. */
tsr_status tool_drivers_list(tool_drivers *out, tsr_error *error);
void tool_drivers_free(tool_drivers *drivers);

/* Changes when drivers come, go or are replaced, or when the environment shows other devices. */
uint64_t tool_drivers_key(const tool_drivers *drivers);

/* A 64-bit FNV-1a hash, continued. */
enum { TOOL_HASH_BYTES = 17 };
#define TOOL_HASH_BEGIN 14695981039346656037u
uint64_t tool_hash(uint64_t hash, const char *text);

#endif
