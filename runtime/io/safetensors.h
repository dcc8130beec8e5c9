/* io/safetensors.h: Hugging Face's format of named tensors.
 *
 *   8 bytes   length N of the header, little-endian
 *   N bytes   JSON: {"name": {"dtype": "F16", "shape": [2, 3], "data_offsets": [begin, end]}, ...}, which may
 * be followed by spaces; "__metadata__" is a map of texts and ignored the rest  the tensors, row-major,
 * little-endian; offsets count from here and cover all of it, once
 *
 * Source: https://github.com/huggingface/safetensors, README.md, "Format". Writing is tsr_file_write. */
#ifndef TSR_IO_SAFETENSORS_H
#define TSR_IO_SAFETENSORS_H

#include "io/tensor_file.h"

enum { TSR_SAFETENSORS_HEADER_MAX = 100000000 }; /* the reference implementation's limit */

/* Fills the tensors of a mapped file. Errors: FORMAT, OUT_OF_MEMORY; without the path. */
tsr_status tsr_safetensors_parse(tsr_tensor_file *file, tsr_error *error);

/* "F16"; NULL for a value outside the list. */
const char *tsr_safetensors_dtype(tsr_dtype dtype);

#endif
