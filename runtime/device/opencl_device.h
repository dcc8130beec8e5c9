/* device/opencl_device.h: the inside of an OpenCL device, for the files of this room that launch kernels. */
#ifndef TSR_DEVICE_OPENCL_DEVICE_H
#define TSR_DEVICE_OPENCL_DEVICE_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>

#include "device/backend.h"
#include "device/device.h"
#include "device/program_cache.h"

typedef struct tsr_opencl_kernel tsr_opencl_kernel; /* a built kernel under its key, in a list */
typedef struct tsr_gemm_tested tsr_gemm_tested;     /* a variant that was tested, in a list */

typedef struct tsr_opencl_device {
  tsr_device base;
  const tsr_backend *backend;
  unsigned work; /* of tsr_work */
  tsr_opencl_facts facts;
  cl_device_id id;
  cl_context context;
  cl_command_queue queue;
  cl_event last;              /* of the last command enqueued; NULL = idle */
  tsr_device_span *span;      /* takes what is enqueued; NULL = nobody does */
  tsr_opencl_kernel *kernels; /* built so far */
  tsr_opencl_kernel *fresh;   /* compiled, its program's lock held, not stored yet; NULL = none */
  tsr_cache_lock fresh_lock;
  uint64_t fingerprint[2]; /* hash of device, driver and library: keys of the disk cache begin with it */
  tsr_gemm_tested *tested; /* variants whose self-test passed */
  bool uses_clblast;
} tsr_opencl_device;

typedef struct tsr_opencl_buffer {
  tsr_buffer base;
  cl_mem memory;
} tsr_opencl_buffer;

static inline tsr_opencl_device *tsr_opencl_of(tsr_device *device) {
  return (tsr_opencl_device *)device;
}
static inline cl_mem tsr_opencl_memory(tsr_buffer *buffer) {
  return buffer ? ((tsr_opencl_buffer *)buffer)->memory : NULL;
}

/* "CL_OUT_OF_RESOURCES", ... */
const char *tsr_opencl_error_name(cl_int code);
/* Fills error with the call, OpenCL's error and the device; DEVICE or OUT_OF_MEMORY. */
tsr_status tsr_opencl_fail(const tsr_opencl_device *device, const char *call, cl_int code, tsr_error *error);

/* Reads what OpenCL says of a device; CL_SUCCESS or the code of the query that failed. */
cl_int tsr_opencl_facts_read(cl_device_id id, tsr_opencl_facts *facts);
/* The backend that takes the device (NULL if none), and all of *info, without caps. */
const tsr_backend *tsr_opencl_claim(const tsr_opencl_facts *facts, tsr_device_info *info);

/* The kernel `name` of cl_kernels/<file> built with options ("-DREAL=float ..."): from this device's list,
 * from the disk cache, or compiled. Borrowed; lives as long as the device. */
tsr_status tsr_opencl_kernel_get(tsr_opencl_device *device, const char *file, const char *name,
                                 const char *options, cl_kernel *out, tsr_error *error);
/* Takes the event of a command just enqueued: it becomes the last one. */
void tsr_opencl_remember(tsr_opencl_device *device, cl_event event);
/* Enqueues it; local may be NULL. Arguments are set by the caller before. */
tsr_status tsr_opencl_enqueue(tsr_opencl_device *device, cl_kernel kernel, cl_uint dimensions,
                              const size_t *global, const size_t *local, tsr_error *error);
/* Enqueues it for at least columns x rows work-items in whole groups of local[0] x local[1]. NVIDIA takes
 * 65535 groups at most in any dimension but the first, so rows run on in the third: a work-item's is
 * get_global_id(2) * get_global_size(1) + get_global_id(1), and may be beyond the last. */
tsr_status tsr_opencl_enqueue_rows(tsr_opencl_device *device, cl_kernel kernel, size_t columns, size_t rows,
                                   const size_t local[2], tsr_error *error);

/* After `kernel` was enqueued: if this process has just compiled it, waits until it has run, stores it and
 * gives its lock back to the ranks that wait for it. */
void tsr_opencl_kernel_settle(tsr_opencl_device *device, cl_kernel kernel);
/* Where `kernel` was not enqueued, because that or an argument failed: gives its lock back too. */
void tsr_opencl_kernel_abandon(tsr_opencl_device *device, cl_kernel kernel);
/* Stores the binaries that the disk cache lacks. The queue is idle. */
void tsr_opencl_kernels_store(tsr_opencl_device *device);
/* Stores likewise, unless another process is at it, and releases every kernel. */
void tsr_opencl_kernels_destroy(tsr_opencl_device *device);
/* The device's lock of the disk cache, see tsr_cache_lock_take. */
bool tsr_opencl_cache_lock(const tsr_opencl_device *device, double seconds, tsr_cache_lock *out);
/* The source of cl_kernels/<file>, with what it includes: the context's kernel folder goes before what is
 * embedded. Gives *out. */
tsr_status tsr_opencl_source_read(const tsr_opencl_device *device, const char *file, char **out,
                                  tsr_error *error);

/* Chooses the default GEMM variants: the first of the backend's that is there and passes its self-test;
 * forced names the only family that will do (NULL = any). */
tsr_status tsr_opencl_gemm_choose(tsr_opencl_device *device, const char *forced, tsr_error *error);
/* The variant for a product, tested. Borrowed until the next call. Errors: DEVICE with what was wrong. */
tsr_status tsr_opencl_gemm_facts(tsr_opencl_device *device, const tsr_gemm_call *call,
                                 const tsr_gemm_facts **out, tsr_error *error);
/* Forgets which variants were tested. */
void tsr_opencl_gemm_forget(tsr_opencl_device *device);
enum { TSR_FORM_FEW_ROWS = 4 };
/* Tests a variant on small products; form = transpose_a + 2 * transpose_b, and
 * TSR_FORM_FEW_ROWS where the panel family has another kernel for that. Errors: DEVICE with what was
 * wrong, COMPILE, UNSUPPORTED. */
tsr_status tsr_opencl_self_test(tsr_opencl_device *device, const tsr_gemm_facts *facts, tsr_gemm_types types,
                                int form, tsr_error *error);
/* What is tested, in words: the part of a verdict's key that changes with the test. */
void tsr_opencl_self_test_name(const tsr_gemm_facts *facts, tsr_gemm_types types, int form, char *out,
                               size_t bytes);
/* Runs a product in a variant, tested or not. */
tsr_status tsr_opencl_gemm_launch(tsr_opencl_device *device, const tsr_gemm_facts *facts,
                                  const tsr_gemm_call *call, tsr_error *error);

/* backends/clblast, which may include this header. */
bool tsr_clblast_available(void);
/* Writes what tells this CLBlast from another: the loaded file, its size and its time. False if that cannot
 * be told, or is too long. */
bool tsr_clblast_identify(char *text, size_t bytes);
/* Called before a context that CLBlast has seen is released. */
void tsr_clblast_forget(void);

/* Of the device's table, see device.h. */
tsr_status tsr_opencl_timing_set(tsr_device *device, bool on, tsr_error *error);
bool tsr_opencl_timing_probe(tsr_device *device, double *begin, double *end);
void tsr_opencl_span_watch(tsr_device *device, tsr_device_span *span);
bool tsr_opencl_span_take(tsr_device *device, tsr_device_span *span, double *begin, double *end);
/* A command was enqueued while a span is watched. */
void tsr_opencl_span_add(tsr_device_span *span, cl_event event);

tsr_status tsr_opencl_buffer_part(tsr_device *device, tsr_buffer *buffer, size_t offset, size_t bytes,
                                  tsr_buffer **out, tsr_error *error);
void tsr_opencl_mark_set(tsr_device *device, tsr_device_mark *mark);
tsr_status tsr_opencl_mark_test(tsr_device *device, tsr_device_mark *mark, bool *reached, tsr_error *error);
void tsr_opencl_mark_drop(tsr_device *device, tsr_device_mark *mark);

/* What activation.h calls the functions: -DUNARY=... */
extern const char *const tsr_opencl_unary_names[TSR_UNARY_COUNT];

/* Launchers, one file each. */
tsr_status tsr_opencl_gemm(tsr_device *device, const tsr_gemm_call *call, tsr_error *error);
tsr_status tsr_opencl_map(tsr_device *device, const tsr_map_call *call, tsr_error *error);
tsr_status tsr_opencl_conv(tsr_device *device, const tsr_conv_call *call, tsr_error *error);
tsr_status tsr_opencl_pool(tsr_device *device, const tsr_pool_call *call, tsr_error *error);
tsr_status tsr_opencl_reduce(tsr_device *device, const tsr_reduce_call *call, tsr_error *error);

#endif
