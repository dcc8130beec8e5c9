/* device/opencl_gemm.h: what the launchers of the GEMM families share; one file a family. */
#ifndef TSR_DEVICE_OPENCL_GEMM_H
#define TSR_DEVICE_OPENCL_GEMM_H

#include "base/memory.h"
#include "base/text.h"
#include "device/opencl_device.h"

/* facts are the variant to run, which the device's own facts need not be; the call is checked. */
typedef tsr_status (*tsr_gemm_launcher)(tsr_opencl_device *device, const tsr_gemm_facts *facts,
                                        const tsr_gemm_call *call, tsr_error *error);
tsr_status tsr_opencl_gemm_reference(tsr_opencl_device *device, const tsr_gemm_facts *facts,
                                     const tsr_gemm_call *call, tsr_error *error);
tsr_status tsr_opencl_gemm_panel(tsr_opencl_device *device, const tsr_gemm_facts *facts,
                                 const tsr_gemm_call *call, tsr_error *error);
/* The launch rule of gemm_panel.cl for m x n sums: whole groups of panels, as many for each core; rows are
 * cut only if panels alone do not keep every core busy. */
void tsr_opencl_panel_groups(const tsr_gemm_facts *facts, int panels_per_group, int64_t m, int64_t n,
                             int64_t cores, size_t groups[2]);
/* The panel family's products of at most facts->small_m rows, B in panels, nothing transposed. */
tsr_status tsr_opencl_gemm_small(tsr_opencl_device *device, const tsr_gemm_facts *facts,
                                 const tsr_gemm_call *call, tsr_error *error);
tsr_status tsr_opencl_gemm_tile(tsr_opencl_device *device, const tsr_gemm_facts *facts,
                                const tsr_gemm_call *call, tsr_error *error);
tsr_status tsr_opencl_gemm_mma(tsr_opencl_device *device, const tsr_gemm_facts *facts,
                               const tsr_gemm_call *call, tsr_error *error);
/* Into how many parts k is cut: as many as the facts want and the workspace holds. */
int64_t tsr_opencl_gemm_parts(const tsr_gemm_facts *facts, const tsr_gemm_call *call);
/* What all parts compute: plain sums, into the workspace; alpha = 0 still says that nobody reads A and B. */
tsr_gemm_call tsr_opencl_gemm_partial(const tsr_gemm_call *call);
/* Ends a product whose k was cut: adds the sums of `parts` parts, which lie in call->workspace, each m x n
 * without gaps, and applies alpha, beta and the epilogue. vector: elements of a load. */
tsr_status tsr_opencl_gemm_join(tsr_opencl_device *device, const tsr_gemm_call *call, int vector,
                                int64_t parts, tsr_error *error);
/* The one provider, backends/clblast: it knows no epilogue, so the next function follows it. A build without
 * CLBlast has a stub: UNSUPPORTED. */
tsr_status tsr_clblast_gemm(tsr_opencl_device *device, const tsr_gemm_facts *facts, const tsr_gemm_call *call,
                            tsr_error *error);
/* The epilogue by itself, on c in place. Nothing to do if it is empty. */
tsr_status tsr_opencl_gemm_finish(tsr_opencl_device *device, const tsr_gemm_call *call, tsr_error *error);

/* Appends what every GEMM kernel is compiled with but -DVECTOR: element types, transposes, panels, epilogue
 * (gemm_types.h, gemm_epilogue.h). */
void tsr_opencl_gemm_options(const tsr_gemm_call *call, tsr_text *options);
/* Builds the kernel with options and frees their text. */
tsr_status tsr_opencl_gemm_kernel(tsr_opencl_device *device, const char *file, const char *name,
                                  tsr_text *options, cl_kernel *out, tsr_error *error);

/* The next argument of a kernel. */
typedef struct tsr_arguments {
  tsr_opencl_device *device;
  cl_kernel kernel;
  cl_uint count;
  cl_int code; /* of the first that failed */
} tsr_arguments;
void tsr_argument_add(tsr_arguments *arguments, size_t bytes, const void *value);
void tsr_argument_count(tsr_arguments *arguments, int64_t count);                     /* ulong */
void tsr_argument_real(tsr_arguments *arguments, tsr_gemm_types types, double value); /* REAL */
/* Buffer, offset, leading dimension. */
void tsr_argument_matrix(tsr_arguments *arguments, const tsr_matrix *matrix);
void tsr_argument_epilogue(tsr_arguments *arguments, const tsr_gemm_call *call);
tsr_status tsr_arguments_end(const tsr_arguments *arguments, tsr_error *error);
/* m, n, k, alpha, beta, A, B, C, epilogue. */
tsr_status tsr_opencl_gemm_arguments(tsr_opencl_device *device, cl_kernel kernel, const tsr_gemm_call *call,
                                     tsr_error *error);

/* Whether a product goes to the panel family's kernel for few rows. */
static inline bool tsr_gemm_has_few_rows(const tsr_gemm_facts *facts, const tsr_gemm_call *call) {
  return call->m <= facts->small_m && call->b.panel && !call->transpose_a && !call->transpose_b;
}

#endif
