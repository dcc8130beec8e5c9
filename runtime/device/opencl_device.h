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

typedef struct tsr_opencl_device {
  tsr_device base;
  const tsr_backend *backend;
  tsr_opencl_facts facts;
  cl_device_id id;
  cl_context context;
  cl_command_queue queue;
  cl_event last;              /* of the last command enqueued; NULL = idle */
  tsr_opencl_kernel *kernels; /* built so far */
  uint64_t fingerprint[2];    /* hash of device, driver and library: keys of the disk cache begin with it */
  uint8_t gemm_tested[2];     /* by dtype: bit (transpose_a + 2 * transpose_b) = self-test passed */
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

/* Stores the binaries that the disk cache lacks. The queue is idle. */
void tsr_opencl_kernels_store(tsr_opencl_device *device);
/* Stores likewise, unless another process is at it, and releases every kernel. */
void tsr_opencl_kernels_destroy(tsr_opencl_device *device);
/* The device's lock of the disk cache, see tsr_cache_lock_take. */
bool tsr_opencl_cache_lock(const tsr_opencl_device *device, double seconds, tsr_cache_lock *out);
/* The source of cl_kernels/<file>: the context's kernel folder goes before what is embedded. Gives *out. */
tsr_status tsr_opencl_source_read(const tsr_opencl_device *device, const char *file, char **out,
                                  tsr_error *error);

/* Chooses the GEMM families: the first of the backend's that is there and passes its self-test; forced names
 * the only one that will do (NULL = any). */
tsr_status tsr_opencl_gemm_choose(tsr_opencl_device *device, const char *forced, tsr_error *error);
/* Tests the family in use on small products unless this device or the disk cache remembers that it passed.
 * Errors: DEVICE with what was wrong. */
tsr_status tsr_opencl_gemm_test(tsr_opencl_device *device, tsr_dtype dtype, bool transpose_a,
                                bool transpose_b, tsr_error *error);
/* Runs a product in the family in use, tested or not. */
tsr_status tsr_opencl_gemm_launch(tsr_opencl_device *device, const tsr_gemm_call *call, tsr_error *error);

/* The one GEMM provider, backends/clblast, which may include this header. A build without CLBlast has a stub:
 * not available, UNSUPPORTED. */
bool tsr_clblast_available(void);
/* Called before a context that CLBlast has seen is released. */
void tsr_clblast_forget(void);
tsr_status tsr_clblast_gemm(tsr_opencl_device *device, const tsr_gemm_call *call, tsr_error *error);

/* Launchers, one file each. */
tsr_status tsr_opencl_gemm(tsr_device *device, const tsr_gemm_call *call, tsr_error *error);
tsr_status tsr_opencl_map(tsr_device *device, const tsr_map_call *call, tsr_error *error);
tsr_status tsr_opencl_reduce(tsr_device *device, const tsr_reduce_call *call, tsr_error *error);

#endif
