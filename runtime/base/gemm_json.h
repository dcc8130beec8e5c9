/* base/gemm_json.h: a GEMM variant in documents: {"family": "panel", "tile_m": 6, ...}. */
#ifndef TSR_BASE_GEMM_JSON_H
#define TSR_BASE_GEMM_JSON_H

#include "base/gemm_facts.h"
#include "base/json.h"

/* Parameters that a family does not have are 0, and left out. A new reference; NULL = no memory. */
json_t *tsr_gemm_facts_to_json(const tsr_gemm_facts *facts);
/* Other keys are ignored, parameters that are missing are 0. FORMAT with the place, which is `path`. */
tsr_status tsr_gemm_facts_from_json(const json_t *json, const char *path, tsr_gemm_facts *out,
                                    tsr_error *error);

#endif
