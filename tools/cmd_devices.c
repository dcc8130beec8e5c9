/* cmd_devices.c: tessera devices: what there is, which backend takes it and why. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "device_json.h"
#include "message.h"
#include "report.h"

static void print_device(const tool_device *device) {
  const tsr_device_info *info = &device->info;
  char memory[TOOL_QUANTITY_BYTES], allocation[TOOL_QUANTITY_BYTES], local[TOOL_QUANTITY_BYTES];
  tool_format_bytes(memory, (double)info->memory_bytes);
  tool_format_bytes(allocation, (double)info->max_allocation_bytes);
  tool_format_bytes(local, (double)info->local_memory_bytes);
  printf("%s: %s\n", info->short_name, info->name);
  const char *vendor = info->vendor;
  printf("    platform  %s%s%s%s, driver %s\n", info->platform, vendor[0] ? " (" : "", vendor,
         vendor[0] ? ")" : "", info->driver[0] ? info->driver : "unknown");
  printf("    backend   %s: %s\n", info->usable ? info->backend : "none", info->reason);
  printf("    memory    %s, largest allocation %s, local %s\n", memory, allocation, local);
  printf("    computes  %u compute unit%s, f32%s%s\n", info->compute_units,
         info->compute_units == 1 ? "" : "s", info->f64 ? " f64" : "", info->f16 ? " f16" : "");
}

static void print_table(const tool_device_table *table) {
  for (size_t i = 0; i < table->count; i++) print_device(&table->items[i]);
  size_t index;
  json_t *skipped;
  json_array_foreach(json_object_get(table->document, "skipped"), index, skipped) {
    printf("skipped: %s: %s\n", tool_json_get_text(skipped, "icd"), tool_json_get_text(skipped, "message"));
  }
}

/* What a probing child does: one driver, in this process. */
static int probe(const tool_options *options, tsr_context *context) {
  tsr_error error = {.rank = -1};
  json_t *document = tool_probe_one(context, options->probe, &error);
  bool good = document != NULL;
  if (!good) document = tool_json_failure(options->name, &error);
  return tool_json_print(options->name, document) && good ? TOOL_EXIT_DONE : TOOL_EXIT_FAILED;
}

static int list(const tool_options *options, tsr_context *context) {
  tool_device_table table;
  tsr_error error = {.rank = -1};
  bool good = tool_devices_find(context, true, &table, &error) == TSR_OK;
  json_t *document = good ? json_incref(table.document) : tool_json_failure(options->name, &error);
  if (options->json) good = tool_json_print(options->name, json_incref(document)) && good;
  if (!options->json && good) print_table(&table);
  json_decref(document);
  if (error.message[0]) tool_complain(options->name, -1, &error);
  tool_devices_free(&table);
  return good ? TOOL_EXIT_DONE : TOOL_EXIT_FAILED;
}

int tool_command_devices(const tool_options *options) {
  tsr_context *context = NULL;
  tsr_error error = {.rank = -1};
  if (tool_context_create(-1, &context, &error) != TSR_OK) {
    if (options->json) tool_json_print(options->name, tool_json_failure(options->name, &error));
    return tool_complain(options->name, -1, &error);
  }
  int code = options->probe ? probe(options, context) : list(options, context);
  tsr_context_destroy(&context);
  return code;
}
