/* probe.h: the devices of this host, found without loading a driver into this process.
 *
 * Every driver (ICD) is loaded by a child of its own: one that crashes, hangs or cannot be loaded is a line
 * in the answer. The answer is kept in the cache folder, as the document that `tessera devices --json`
 * prints. */
#ifndef TOOL_PROBE_H
#define TOOL_PROBE_H

#include <jansson.h>
#include <tessera/tessera.h>

enum { TOOL_ICD_BYTES = 512 };

typedef struct tool_device {
  tsr_device_info info;
  char icd[TOOL_ICD_BYTES]; /* "" for the host backend */
} tool_device;

typedef struct tool_device_table {
  tool_device *items; /* host last */
  size_t count;
  json_t *document;
} tool_device_table;

/* fresh: ask the drivers, whatever the cache says. Release with tool_devices_free, also after a failure. */
tsr_status tool_devices_find(tsr_context *context, bool fresh, tool_device_table *out, tsr_error *error);
void tool_devices_free(tool_device_table *table);

/* The document of one driver, which is loaded into this process: what the child does. icd is a .icd file, a
 * library, or TOOL_PROBE_HOST: no driver at all. NULL, with error, if it cannot be loaded. */
#define TOOL_PROBE_HOST "host"
json_t *tool_probe_one(tsr_context *context, const char *icd, tsr_error *error);

/* Makes `icd` the only driver that the OpenCL loader will see in this process. */
void tool_icd_restrict(const char *icd);

#endif
