#include "base/gemm_json.h"

json_t *tsr_gemm_facts_to_json(const tsr_gemm_facts *facts) {
  tsr_gemm_facts copy = *facts;
  json_t *json = json_pack("{s:s}", "family", tsr_gemm_family_name(facts->family));
  for (int i = 0; i < tsr_gemm_parameter_count(); i++)
    if (*tsr_gemm_parameter(&copy, i))
      json_object_set_new(json, tsr_gemm_parameter_name(i), json_integer(*tsr_gemm_parameter(&copy, i)));
  return json;
}

tsr_status tsr_gemm_facts_from_json(const json_t *json, const char *path, tsr_gemm_facts *out,
                                    tsr_error *error) {
  char family[16];
  int64_t value;
  TSR_RETURN_IF_FAILED(tsr_json_text(json, path, "family", family, sizeof family, error));
  *out = (tsr_gemm_facts){.family = tsr_gemm_family_of(family)};
  if (out->family == TSR_GEMM_FAMILY_COUNT)
    return tsr_fail(error, TSR_ERROR_FORMAT, "%s.family: \"%s\" is not a GEMM family", path, family);
  for (int i = 0; i < tsr_gemm_parameter_count(); i++) {
    const char *key = tsr_gemm_parameter_name(i);
    if (!json_object_get(json, key)) continue;
    TSR_RETURN_IF_FAILED(tsr_json_integer(json, path, key, 0, tsr_gemm_parameter_most(i), &value, error));
    *tsr_gemm_parameter(out, i) = (int32_t)value;
  }
  return TSR_OK;
}
