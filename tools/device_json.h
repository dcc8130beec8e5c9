/* device_json.h: a device as the object that `tessera devices --json` has for it, and back. */
#ifndef TOOL_DEVICE_JSON_H
#define TOOL_DEVICE_JSON_H

#include "json.h"
#include "probe.h"

json_t *tool_device_to_json(const tool_device *device);
void tool_device_from_json(const json_t *object, tool_device *out);

#endif
