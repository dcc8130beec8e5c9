/* tune_search.c: coordinate descent, then random steps. Each variant is tried once, by a child, and judged by
 * its speed over that of what is in force in the same process: a host that is slower for a while changes
 * neither. */
#include "tune_search.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "stop.h"

static const double GAIN = 1.01;          /* what counts as faster */
static const double TRIAL_SECONDS = 0.25; /* to time one candidate for; the last word takes four times that */
enum { RANDOM_PATIENCE = 12, RANDOM_AXES = 3, DRAWS_MAX = 200, AXES_MAX = 64, VALUES_MAX = 64 };

typedef struct search {
  tool_trial_request request;
  tsr_tuning_space *space;
  double end;
  tool_trial *trials;
  size_t count;
  size_t best; /* of the trials */
  uint64_t random;
} search;

static bool time_is_up(const search *s) {
  return tool_stop_signal || tool_seconds_now() >= s->end;
}

static const tool_trial *find_trial(const search *s, const char *variant) {
  for (size_t i = 0; i < s->count; i++)
    if (strcmp(s->trials[i].variant, variant) == 0) return &s->trials[i];
  return NULL;
}

/* Tries a variant unless it was tried; *better = it is now the best. */
static tsr_status try_variant(search *s, const char *variant, bool *better, tsr_error *error) {
  *better = false;
  if (find_trial(s, variant) || (s->count && time_is_up(s))) return TSR_OK;
  tool_trial *trials = realloc(s->trials, (s->count + 1) * sizeof *trials);
  if (!trials) return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for another variant");
  s->trials = trials;
  tool_trial *trial = &trials[s->count];
  *trial = (tool_trial){.good = false};
  snprintf(trial->variant, sizeof trial->variant, "%s", variant);
  tsr_status status = tool_trial_run(&s->request, trial, error);
  if (status != TSR_OK || (!trial->good && tool_stop_signal)) return status; /* its child was ended */
  *better = trial->good && trial->ratio > GAIN * s->trials[s->best].ratio;
  if (*better) s->best = s->count;
  s->count++;
  tool_progress("%3zu  %s  %s%s", s->count, trial->good ? "" : trial->why, variant,
                *better ? "  <- best" : "");
  return TSR_OK;
}

static const char *best_variant(const search *s) {
  return s->trials[s->best].variant;
}

/* Whether the space has this value of this parameter, and it keeps the limits. */
static bool step(const search *s, const char *from, size_t axis, size_t value, char *out, bool *exists) {
  tsr_status status = tsr_tuning_space_step(s->space, from, axis, value, out, NULL);
  *exists = status == TSR_OK || status == TSR_ERROR_UNSUPPORTED;
  return status == TSR_OK;
}

/* The value that a variant has on an axis; -1 if it is not on the list. */
static int own_value(const search *s, const char *variant, size_t axis) {
  char other[TSR_VARIANT_BYTES];
  bool exists = true;
  for (int value = 0; exists && value < VALUES_MAX; value++)
    if (step(s, variant, axis, (size_t)value, other, &exists) && strcmp(other, variant) == 0) return value;
  return -1;
}

/* Away from `value` as long as it gets faster; what breaks a limit or was tried is stepped over. */
static tsr_status walk(search *s, size_t axis, int value, int by, bool *improved, tsr_error *error) {
  char next[TSR_VARIANT_BYTES];
  bool exists = true;
  for (value += by; exists && value >= 0 && value < VALUES_MAX && !time_is_up(s); value += by) {
    bool better;
    if (!step(s, best_variant(s), axis, (size_t)value, next, &exists) || find_trial(s, next)) continue;
    tsr_status status = try_variant(s, next, &better, error);
    if (status != TSR_OK) return status;
    *improved = *improved || better;
    if (!better) return TSR_OK;
  }
  return TSR_OK;
}

/* Both ways from where the best is; from the list's beginning where it is nowhere on it. */
static tsr_status improve_axis(search *s, size_t axis, bool *improved, tsr_error *error) {
  int own = own_value(s, best_variant(s), axis);
  tsr_status status = walk(s, axis, own, 1, improved, error);
  if (status == TSR_OK && own > 0) status = walk(s, axis, own, -1, improved, error);
  return status;
}

static tsr_status descend(search *s, tsr_error *error) {
  tsr_status status = TSR_OK;
  bool improved = true;
  while (status == TSR_OK && improved && !time_is_up(s)) {
    improved = false;
    for (size_t axis = 0; status == TSR_OK && axis < AXES_MAX; axis++) {
      char unused[TSR_VARIANT_BYTES];
      bool exists;
      step(s, best_variant(s), axis, 0, unused, &exists);
      if (!exists) break;
      status = improve_axis(s, axis, &improved, error);
    }
  }
  return status;
}

static size_t draw(search *s, size_t count) {
  s->random = s->random * 6364136223846793005u + 1442695040888963407u;
  return count ? (size_t)(s->random >> 33) % count : 0;
}

static size_t count_values(const search *s, const char *variant, size_t axis) {
  char unused[TSR_VARIANT_BYTES];
  size_t count = 0;
  for (bool exists = true; exists && count < VALUES_MAX; count += exists)
    step(s, variant, axis, count, unused, &exists);
  return count;
}

/* A few parameters of the best, changed at random. False: nothing new was found. */
static bool draw_variant(search *s, char *out) {
  size_t axes = 0;
  while (axes < AXES_MAX && count_values(s, best_variant(s), axes)) axes++;
  for (int i = 0; axes && i < DRAWS_MAX; i++) {
    char from[TSR_VARIANT_BYTES];
    bool exists, good = true;
    snprintf(from, sizeof from, "%s", best_variant(s));
    for (int j = 0; good && j < RANDOM_AXES; j++) {
      size_t axis = draw(s, axes);
      good = step(s, from, axis, draw(s, count_values(s, from, axis)), out, &exists);
      if (good) snprintf(from, sizeof from, "%s", out);
    }
    if (good && !find_trial(s, out)) return true;
  }
  return false;
}

static tsr_status wander(search *s, tsr_error *error) {
  char variant[TSR_VARIANT_BYTES];
  tsr_status status = TSR_OK;
  for (int idle = 0; status == TSR_OK && idle < RANDOM_PATIENCE && !time_is_up(s); idle++) {
    bool better;
    if (!draw_variant(s, variant)) break;
    status = try_variant(s, variant, &better, error);
    if (better) idle = -1;
  }
  return status;
}

/* Of many noisy trials the best is partly luck. Also when it is time to stop: what was found is worth that.
 */
static tsr_status confirm(search *s, tool_search_result *out, tsr_error *error) {
  tool_trial last = s->trials[s->best];
  snprintf(out->baseline, sizeof out->baseline, "%s", s->request.baseline);
  snprintf(out->best, sizeof out->best, "%s", s->request.baseline);
  out->baseline_seconds = out->seconds = s->trials[0].seconds;
  out->ratio = 1;
  if (!s->best) return TSR_OK;
  s->request.seconds = 4 * TRIAL_SECONDS;
  s->request.to_the_end = true;
  tsr_status status = tool_trial_run(&s->request, &last, error);
  if (status != TSR_OK || !last.good || last.ratio < GAIN) return status;
  snprintf(out->best, sizeof out->best, "%s", last.variant);
  out->seconds = last.seconds;
  out->baseline_seconds = last.seconds * last.ratio;
  out->ratio = last.ratio;
  return TSR_OK;
}

static tsr_status collect(const search *s, tool_search_result *out, tsr_error *error) {
  out->failures = calloc(s->count + 1, sizeof *out->failures);
  if (!out->failures) return tool_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a report");
  out->tried = (int)s->count;
  for (size_t i = 0; i < s->count; i++)
    if (!s->trials[i].good) out->failures[out->failed++] = s->trials[i];
  return TSR_OK;
}

static tsr_status search_space(search *s, tsr_error *error) {
  bool better;
  tsr_status status = try_variant(s, s->request.baseline, &better, error);
  if (!s->count) return status;
  if (status == TSR_OK && !s->trials[0].good)
    return tool_fail(error, TSR_ERROR_DEVICE,
                     "the variant in force, %s: %s; tune --explain says where it is from",
                     s->request.baseline, s->trials[0].why);
  for (size_t i = 1; status == TSR_OK && tsr_tuning_space_start(s->space, i); i++)
    status = try_variant(s, tsr_tuning_space_start(s->space, i), &better, error);
  if (status == TSR_OK) status = descend(s, error);
  return status == TSR_OK ? wander(s, error) : status;
}

tsr_status tool_search(const tool_options *options, const tsr_device *device, const char *selector,
                       const tool_shape *shape, double seconds, tool_search_result *out, tsr_error *error) {
  search s = {.random = 1, .end = tool_seconds_now() + seconds};
  tsr_tuning_product product = {.m = shape->m, .n = shape->n, .k = shape->k};
  tsr_tuning_space_options space_options;
  tsr_tuning_space_options_init(&space_options);
  space_options.any_panel = options->any_panel;
  *out = (tool_search_result){0};
  snprintf(product.types, sizeof product.types, "%s", tool_types_names[options->types]);
  snprintf(product.form, sizeof product.form, "%s", tool_form_names[options->form]);
  tsr_status status = tsr_tuning_space_create(device, &product, &space_options, &s.space, error);
  if (status == TSR_OK) {
    s.request = (tool_trial_request){options, selector,      tsr_tuning_space_start(s.space, 0),
                                     *shape,  TRIAL_SECONDS, false};
    status = search_space(&s, error);
  }
  out->complete = !time_is_up(&s);
  if (status == TSR_OK && s.count) status = confirm(&s, out, error);
  if (status == TSR_OK) status = collect(&s, out, error);
  free(s.trials);
  tsr_tuning_space_destroy(&s.space);
  return status;
}
