/* opencl_gemm_choice.c: which GEMM variant a device uses for which product.
 *
 * A device has one default variant for each combination of element types: the backend's first that is there
 * and passes its self-test. For f32 it is tested when the device is opened, in the forms that inference and
 * training use: a plan depends on it, so it must be final by then. What is left (other types, the fourth
 * transpose) is tested when it is first used, and gives way to the backend's next that stores weights
 * in the same form. */
#include "device/opencl_gemm.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "device/tuning.h"

/* A variant that was tested on this device. */
struct tsr_gemm_tested {
  tsr_gemm_tested *next;
  tsr_gemm_types types;
  tsr_gemm_facts facts;
  uint8_t passed; /* bit by form, see tsr_opencl_self_test */
};

void tsr_opencl_gemm_forget(tsr_opencl_device *device) {
  while (device->tested) {
    tsr_gemm_tested *tested = device->tested;
    device->tested = tested->next;
    free(tested);
  }
}

static tsr_gemm_tested *find(const tsr_opencl_device *device, const tsr_gemm_facts *facts,
                             tsr_gemm_types types) {
  tsr_gemm_tested *tested = device->tested;
  while (tested && (tested->types != types || !tsr_gemm_facts_equal(&tested->facts, facts, 1)))
    tested = tested->next;
  return tested;
}

static tsr_status add(tsr_opencl_device *device, const tsr_gemm_facts *facts, tsr_gemm_types types,
                      tsr_gemm_tested **out, tsr_error *error) {
  *out = tsr_calloc(1, sizeof **out);
  if (!*out) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory to note a self-test");
  **out = (tsr_gemm_tested){.next = device->tested, .types = types, .facts = *facts};
  device->tested = *out;
  return TSR_OK;
}

/* The same kernel, whatever rows there are beside it. */
static tsr_gemm_facts without_tuning(const tsr_gemm_facts *facts) {
  tsr_gemm_facts copy = *facts;
  copy.tuning = 0;
  return copy;
}

/* Tests a variant unless this device or the disk cache remembers that it passed. */
static tsr_status test(tsr_opencl_device *device, const tsr_gemm_facts *variant, tsr_gemm_types types,
                       int form, tsr_error *error) {
  const tsr_gemm_facts untuned = without_tuning(variant), *facts = &untuned;
  tsr_gemm_tested *tested = find(device, facts, types);
  if (tested && tested->passed & 1 << form) return TSR_OK;
  if (!tested) TSR_RETURN_IF_FAILED(add(device, facts, types, &tested, error));
  if (facts->family == TSR_GEMM_CLBLAST && !tsr_clblast_available())
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "CLBlast is not part of this build: install it (libclblast-dev) and configure with "
                    "-Dclblast=enabled");
  TSR_RETURN_IF_FAILED(tsr_opencl_self_test(device, facts, types, form, error));
  tested->passed |= (uint8_t)(1 << form);
  return TSR_OK;
}

/* A family that is missing or wrong may be passed over; a lack of memory says nothing of it. */
static bool may_pass_over(tsr_status status) {
  return status == TSR_ERROR_DEVICE || status == TSR_ERROR_COMPILE || status == TSR_ERROR_UNSUPPORTED;
}

/* The panel family's kernel for few rows may be wrong by itself: then its other one takes them. */
static tsr_status test_few_rows(tsr_opencl_device *device, tsr_gemm_facts *facts, tsr_gemm_types types,
                                tsr_error *error) {
  tsr_error failure = {0};
  tsr_status status = facts->small_m ? test(device, facts, types, TSR_FORM_FEW_ROWS, &failure) : TSR_OK;
  if (status == TSR_OK || !may_pass_over(status)) {
    if (error && status != TSR_OK) *error = failure;
    return status;
  }
  tsr_log(device->base.context, TSR_LOG_WARNING, "device",
          "%s (driver %s): the kernel for few rows is passed over: %s", device->base.info.name,
          device->base.info.driver, failure.message);
  facts->small_m = 0;
  return TSR_OK;
}

/* NN, where it is not for few rows alone; NT, TN. */
static tsr_status test_forms(tsr_opencl_device *device, tsr_gemm_types types, tsr_error *error) {
  tsr_gemm_facts *facts = &device->base.gemm[types];
  if (!tsr_work_has(device->work, TSR_WORK_F32)) return TSR_OK;
  const bool few = tsr_work_has(device->work, TSR_WORK_FEW_ROWS);
  if (few) TSR_RETURN_IF_FAILED(test_few_rows(device, facts, types, error));
  if (tsr_work_has(device->work, TSR_WORK_FORWARD) || (few && !facts->small_m))
    TSR_RETURN_IF_FAILED(test(device, facts, types, 0, error));
  if (!tsr_work_has(device->work, TSR_WORK_BACKWARD)) return TSR_OK;
  TSR_RETURN_IF_FAILED(test(device, facts, types, 2, error));
  return test(device, facts, types, 1, error);
}

static void log_passed_over(const tsr_opencl_device *device, const tsr_gemm_facts *facts,
                            const tsr_error *error) {
  tsr_log(device->base.context, TSR_LOG_WARNING, "device",
          "%s (driver %s): GEMM family %s is passed over: %s", device->base.info.name,
          device->base.info.driver, tsr_gemm_family_name(facts->family), error ? error->message : "");
}

/* The backend's facts of a preference, if they name the forced family (NONE: any). */
static bool offered(const tsr_opencl_device *device, tsr_gemm_types types, int preference,
                    tsr_gemm_family forced, tsr_gemm_facts *out) {
  *out = (tsr_gemm_facts){.family = TSR_GEMM_NONE};
  device->backend->gemm(&device->facts, types, preference, out);
  return out->family == TSR_GEMM_NONE || !forced || out->family == forced;
}

/* Leaves the facts at NONE if the backend has no family, none that works, or not the forced one. */
static tsr_status choose(tsr_opencl_device *device, tsr_gemm_types types, tsr_gemm_family forced,
                         tsr_error *error) {
  tsr_gemm_facts *facts = &device->base.gemm[types];
  for (int preference = 0;; preference++) {
    if (!offered(device, types, preference, forced, facts)) continue;
    if (facts->family == TSR_GEMM_NONE || types != TSR_GEMM_TYPES_F32) return TSR_OK;
    tsr_status status = test_forms(device, types, error);
    if (status == TSR_OK || !may_pass_over(status)) return status;
    log_passed_over(device, facts, error);
  }
}

/* failure: why the last family was passed over, if one was. */
static tsr_status fail_no_family(const tsr_opencl_device *device, const char *forced,
                                 const tsr_error *failure, tsr_error *error) {
  if (failure->status == TSR_OK)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "GEMM family \"%s\" on %s: backend %s does not offer it there", forced ? forced : "any",
                    device->base.info.name, device->backend->name);
  if (error) *error = *failure;
  return failure->status;
}

tsr_status tsr_opencl_gemm_choose(tsr_opencl_device *device, const char *forced, tsr_error *error) {
  tsr_error failure = {0};
  const tsr_gemm_facts *facts = device->base.gemm;
  tsr_gemm_family family = forced ? tsr_gemm_family_of(forced) : TSR_GEMM_NONE;
  tsr_status status = TSR_OK;
  for (int types = 0; types < TSR_GEMM_TYPES_COUNT && status == TSR_OK; types++) {
    status = choose(device, (tsr_gemm_types)types, family, &failure);
    if (status == TSR_OK && facts[types].family == TSR_GEMM_NONE && types != TSR_GEMM_TYPES_F32)
      status = choose(device, (tsr_gemm_types)types, TSR_GEMM_NONE, &failure);
    if (status == TSR_OK && facts[types].family == TSR_GEMM_NONE && types == TSR_GEMM_TYPES_F32)
      return fail_no_family(device, forced, &failure, error);
    if (status == TSR_OK && facts[types].family != TSR_GEMM_NONE)
      tsr_log(device->base.context, TSR_LOG_DEBUG, "device", "%s multiplies %s by family %s",
              device->base.info.name, tsr_gemm_types_name((tsr_gemm_types)types),
              tsr_gemm_family_name(facts[types].family));
  }
  if (status != TSR_OK && error) *error = failure;
  return status;
}

/* The next of the backend's list behind the device's own facts that stores weights in the same form. */
static bool next_choice(tsr_opencl_device *device, tsr_gemm_types types) {
  tsr_gemm_facts *facts = &device->base.gemm[types], own = without_tuning(facts), next;
  bool behind = false;
  for (int preference = 0; offered(device, types, preference, TSR_GEMM_NONE, &next); preference++) {
    if (next.family == TSR_GEMM_NONE) break;
    if (behind && next.panel == facts->panel) {
      next.tuning = facts->tuning;
      *facts = next;
      return true;
    }
    behind |= tsr_gemm_facts_equal(&next, &own, 1);
  }
  return false;
}

/* The variant of the tuning row for a product. One that fails its test is not asked for again: *out stays
 * NULL, and the default takes over. */
static tsr_status tuned_facts(tsr_opencl_device *device, const tsr_gemm_call *call, int form,
                              const tsr_gemm_facts **out, tsr_error *error) {
  tsr_error failure = {0};
  *out = NULL;
  tsr_tuned *row = tsr_tuning_find(&device->base, call->types, form, call->m, call->n, call->k);
  if (!row) return TSR_OK;
  const bool few = tsr_gemm_has_few_rows(&row->facts, call);
  tsr_status status = test(device, &row->facts, call->types, few ? TSR_FORM_FEW_ROWS : form, &failure);
  if (status == TSR_OK) *out = &row->facts;
  if (status == TSR_OK || !may_pass_over(status)) {
    if (error && status != TSR_OK) *error = failure;
    return status;
  }
  row->refused = true;
  log_passed_over(device, &row->facts, &failure);
  return TSR_OK;
}

/* A variant that the caller forces stands or falls as it is. */
static tsr_status test_few(tsr_opencl_device *device, const tsr_gemm_call *call, const tsr_gemm_facts *facts,
                           tsr_error *error) {
  return facts == &device->base.gemm[call->types]
             ? test_few_rows(device, &device->base.gemm[call->types], call->types, error)
             : test(device, facts, call->types, TSR_FORM_FEW_ROWS, error);
}

tsr_status tsr_opencl_gemm_facts(tsr_opencl_device *device, const tsr_gemm_call *call,
                                 const tsr_gemm_facts **out, tsr_error *error) {
  const int form = call->transpose_a + 2 * call->transpose_b;
  if (!call->facts) {
    TSR_RETURN_IF_FAILED(tuned_facts(device, call, form, out, error));
    if (*out) return TSR_OK;
  }
  *out = call->facts ? call->facts : &device->base.gemm[call->types];
  for (;;) {
    tsr_error failure = {0};
    tsr_gemm_facts tried = **out;
    if (tsr_gemm_has_few_rows(*out, call)) {
      TSR_RETURN_IF_FAILED(test_few(device, call, *out, error));
      if (tsr_gemm_has_few_rows(*out, call)) return TSR_OK; /* the other kernel will not be asked */
    }
    tsr_status status = test(device, *out, call->types, form, &failure);
    if (status == TSR_OK) return TSR_OK;
    bool fixed = call->facts || call->types == TSR_GEMM_TYPES_F32 || !may_pass_over(status);
    if (fixed || !next_choice(device, call->types)) {
      if (error) *error = failure;
      return status;
    }
    log_passed_over(device, &tried, &failure);
  }
}
