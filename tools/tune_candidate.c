/* tune_candidate.c: one variant, measured in a child. */
#include "tune_candidate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bench_measure.h"
#include "child.h"
#include "json.h"
#include "message.h"
#include "stop.h"

/* ---- the child ---- */

static tsr_status measure(const tool_options *options, tsr_device *device, const tool_product *product,
                          tool_measurement *out, tsr_error *error) {
  const char *const variants[] = {options->candidate, options->baseline};
  tool_contender contenders[2] = {{0}};
  tsr_status status = TSR_OK;
  int count = options->baseline ? 2 : 1;
  for (int i = 0; status == TSR_OK && i < count; i++)
    status = tool_contender_init(&contenders[i], TOOL_RUNNER_OURS, product, device, variants[i], 1, error);
  if (status == TSR_OK)
    status = tool_measure(contenders, count, TOOL_CLOCK_DEVICE, options->seconds, out, error);
  for (int i = 0; i < count; i++) tool_contender_finish(&contenders[i]);
  return status;
}

/* Nothing is tested when the device is opened: what is asked for is tested when it is first used. */
static tsr_status measure_on_device(const tool_options *options, tsr_context *context, tool_measurement *out,
                                    tsr_error *error) {
  tsr_device *device = NULL;
  tool_product product = {0};
  tool_shapes shapes = {0};
  tsr_device_options open_options;
  tsr_device_options_init(&open_options);
  open_options.work = TSR_WORK_ELEMENTWISE;
  const char *selector = options->devices.count ? options->devices.items[0] : NULL;
  tsr_status status = tool_shapes_read(options->shapes, &shapes, error);
  if (status == TSR_OK) status = tsr_device_open(context, selector, &open_options, &device, error);
  if (status == TSR_OK)
    status = tool_product_init(&product, &shapes.items[0], tool_types_names[options->types],
                               tool_form_names[options->form], error);
  if (status == TSR_OK) status = measure(options, device, &product, out, error);
  tool_product_finish(&product);
  tool_shapes_free(&shapes);
  if (device) tsr_device_close(&device);
  return status;
}

int tool_candidate_measure(const tool_options *options) {
  tsr_context *context = NULL;
  tsr_error error = {.rank = -1};
  tool_measurement measured = {0};
  tsr_status status = tool_context_create(-1, &context, &error);
  if (status == TSR_OK) status = measure_on_device(options, context, &measured, &error);
  bool good = status == TSR_OK;
  const tool_result *results = measured.results;
  json_t *document = good
                         ? json_pack("{s:s, s:f, s:f, s:f, s:s}", "schema", "tessera.candidate/1", "seconds",
                                     results[0].seconds.median, "baseline_seconds", results[1].seconds.median,
                                     "ratio", options->baseline ? results[1].ratio.median : 1.0, "clock",
                                     tool_clock_name(measured.clock))
                         : tool_json_failure("candidate", &error);
  tool_json_print(options->name, document);
  if (context) tsr_context_destroy(&context);
  return good ? TOOL_EXIT_DONE : TOOL_EXIT_FAILED;
}

/* ---- its parent ---- */

static void read_answer(const tool_child *child, double deadline, tool_trial *trial) {
  json_t *answer = tool_json_find(child->text);
  int code = tool_child_code(child);
  const char *message = tool_json_get_text(json_object_get(answer, "error"), "message");
  trial->seconds = json_number_value(json_object_get(answer, "seconds"));
  trial->ratio = json_number_value(json_object_get(answer, "ratio"));
  trial->good = !child->late && code == 0 && trial->seconds > 0 && trial->ratio > 0;
  if (child->late)
    snprintf(trial->why, sizeof trial->why, "hangs: not done after %g s", deadline);
  else if (code > 128)
    snprintf(trial->why, sizeof trial->why, "crashes: signal %d", code - 128);
  else if (!trial->good)
    snprintf(trial->why, sizeof trial->why, "%s", message[0] ? message : "gives no answer");
  json_decref(answer);
}

tsr_status tool_trial_run(const tool_trial_request *request, tool_trial *trial, tsr_error *error) {
  const tool_options *options = request->options;
  char shape[96], seconds[32];
  tool_child child;
  snprintf(shape, sizeof shape, "%" PRId64 "x%" PRId64 "x%" PRId64, request->shape.m, request->shape.n,
           request->shape.k);
  snprintf(seconds, sizeof seconds, "%g", request->seconds);
  const char *arguments[] = {tool_program_path(options->argv[0]),
                             "tune",
                             "--candidate",
                             trial->variant,
                             "--baseline",
                             request->baseline,
                             "--device",
                             request->selector,
                             "--dtype",
                             tool_types_names[options->types],
                             "--form",
                             tool_form_names[options->form],
                             "--shapes",
                             shape,
                             "--seconds",
                             seconds,
                             NULL};
  const tool_child_options child_options = {
      .quiet = true, .alone = true, .apart = true, .stop = request->to_the_end ? NULL : &tool_stop_signal};
  tsr_status status = tool_child_start((char *const *)arguments, &child_options, &child, error);
  if (status != TSR_OK) return status;
  tool_children_collect(&child, 1, options->deadline);
  read_answer(&child, options->deadline, trial);
  tool_child_free(&child);
  return TSR_OK;
}
