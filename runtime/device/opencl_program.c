/* opencl_program.c: kernels, from this device's list, from the disk cache, or compiled.
 *
 * A binary is stored after its first command has ended, not when it is built: PoCL compiles a kernel when it
 * is first enqueued, others in clCreateKernel, and only a binary taken after that spares the next process the
 * work. Until then the program's lock is held, so that ranks that need it at the same time wait and then load
 * it. A program that has grown since (a work-group size that is new) is stored again when a self-test has
 * passed and when the device closes. */
#include "device/opencl_device.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "device/kernel_source.h"
#include "device/program_cache.h"

enum { INCLUDE_DEPTH_MAX = 8 };
enum { LOCK_SECONDS = 60 }; /* what another process may take to compile a program */

struct tsr_opencl_kernel {
  tsr_opencl_kernel *next;
  uint64_t hash;      /* of file, options and name: found by it, then compared */
  char *label;        /* "file name options" */
  cl_program program; /* each kernel has its own */
  cl_kernel kernel;
  tsr_cache_key key;
  size_t stored_bytes; /* of the binary on disk; 0 = none */
};

/* The kernel folder's file, or NULL if there is none. */
static char *read_file(const char *path) {
  char *text = NULL;
  size_t bytes;
  return tsr_regular_file_read(path, &text, &bytes, NULL) == TSR_OK ? text : NULL;
}

static const char *embedded(const char *file) {
  const tsr_kernel_source *source = tsr_kernel_sources;
  while (source->name && strcmp(source->name, file)) source++;
  return source->text;
}

static tsr_status append_file(const tsr_opencl_device *device, const char *file, int depth, tsr_text *out,
                              tsr_error *error);

/* Appends text, with the file in the place of each line `#include "file"`: programs have no folder to search.
 * The #line makes build logs name the true file. */
static tsr_status append_text(const tsr_opencl_device *device, const char *name, const char *text, int depth,
                              tsr_text *out, tsr_error *error) {
  static const char include[] = "#include \"";
  int number = 1;
  tsr_text_append(out, "#line 1 \"%s\"\n", name);
  for (const char *end; *text; text = end, number++) {
    end = strchr(text, '\n');
    end = end ? end + 1 : text + strlen(text);
    if (strncmp(text, include, sizeof include - 1)) {
      tsr_text_append(out, "%.*s", (int)(end - text), text);
      continue;
    }
    char file[64];
    const char *begin = text + sizeof include - 1;
    snprintf(file, sizeof file, "%.*s", (int)strcspn(begin, "\"\n"), begin);
    TSR_RETURN_IF_FAILED(append_file(device, file, depth + 1, out, error));
    tsr_text_append(out, "\n#line %d \"%s\"\n", number + 1, name);
  }
  return TSR_OK;
}

static tsr_status append_file(const tsr_opencl_device *device, const char *file, int depth, tsr_text *out,
                              tsr_error *error) {
  const char *folder = tsr_context_kernel_folder(device->base.context);
  char *path = *folder ? tsr_text_format("%s/%s", folder, file) : NULL;
  char *own = path ? read_file(path) : NULL;
  const char *text = own ? own : embedded(file);
  tsr_status status = TSR_OK;
  if (!text) TSR_THROW(TSR_ERROR_NOT_FOUND, "kernel file %s: it is not in this library", file);
  if (depth > INCLUDE_DEPTH_MAX)
    TSR_THROW(TSR_ERROR_COMPILE, "kernel file %s: included %d deep, at most %d", file, depth,
              INCLUDE_DEPTH_MAX);
  TSR_TRY(append_text(device, own ? path : file, text, depth, out, error));
done:
  free(own);
  free(path);
  return status;
}

tsr_status tsr_opencl_source_read(const tsr_opencl_device *device, const char *file, char **out,
                                  tsr_error *error) {
  tsr_text text = {0};
  tsr_status status = append_file(device, file, 0, &text, error);
  if (status == TSR_OK && text.failed)
    status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the source of %s", file);
  if (status != TSR_OK) {
    free(text.data);
    text.data = NULL;
  }
  *out = text.data;
  return status;
}

/* What an error tells of a build log: its first line that speaks of one, else its first. */
static void find_error(const char *log, char *out, size_t bytes) {
  const char *at = strstr(log, "error");
  if (!at) at = log + strspn(log, "\n");
  while (at > log && at[-1] != '\n') at--;
  snprintf(out, bytes, "%.*s", (int)strcspn(at, "\n"), at);
}

/* A log message is one line. */
static void log_lines(const tsr_opencl_device *device, char *text) {
  char *rest = NULL;
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    tsr_log(device->base.context, TSR_LOG_DEBUG, "device", "%s", line);
}

/* One line: that a variant is passed over is no reason for more. */
static tsr_status fail_build(const tsr_opencl_device *device, cl_program program, const char *label,
                             cl_int code, tsr_error *error) {
  size_t bytes = 0;
  clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes);
  char *log = tsr_calloc(bytes + 1, 1);
  if (log) clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, bytes, log, NULL);
  char line[192] = "";
  if (log) find_error(log, line, sizeof line);
  tsr_status status =
      tsr_fail(error, TSR_ERROR_COMPILE,
               "%s does not compile on %s (driver %s): %s: %s; TSR_LOG=device:debug shows all", label,
               device->base.info.name, device->base.info.driver, tsr_opencl_error_name(code), line);
  tsr_error_native(error, "opencl", code);
  if (error) snprintf(error->build_log, sizeof error->build_log, "%s", log ? log : "");
  tsr_log(device->base.context, TSR_LOG_DEBUG, "device", "%s does not compile; the build log:", label);
  if (log) log_lines(device, log);
  free(log);
  return status;
}

/* Options of the caller, of the backend, and of this library. The caller frees them. */
static char *all_options(const tsr_opencl_device *device, const char *options) {
  const char *own = device->backend->build_options;
  /* -w: what compilers warn of (loops that they did not unroll as told), some print to stderr. */
  return tsr_text_format("-cl-std=CL1.2 -w%s%s%s%s", *options ? " " : "", options, own ? " " : "",
                         own ? own : "");
}

/* Any failure leaves *program NULL: the source will do. */
static void load_binary(tsr_opencl_device *device, tsr_opencl_kernel *kernel, const char *options) {
  void *binary = NULL;
  size_t bytes = 0;
  cl_int code = CL_SUCCESS, state = CL_SUCCESS;
  if (!tsr_cache_read(device->base.context, kernel->key, &binary, &bytes)) return;
  cl_program program = clCreateProgramWithBinary(device->context, 1, &device->id, &bytes,
                                                 (const unsigned char **)&binary, &state, &code);
  if (program && state == CL_SUCCESS) code = clBuildProgram(program, 1, &device->id, options, NULL, NULL);
  free(binary);
  if (code == CL_SUCCESS && state == CL_SUCCESS) {
    kernel->program = program;
    kernel->stored_bytes = bytes;
    tsr_log(device->base.context, TSR_LOG_DEBUG, "device", "loaded %s from the cache", kernel->label);
    return;
  }
  tsr_log(device->base.context, TSR_LOG_WARNING, "device",
          "the cached binary %016llx%016llx.bin of %s is refused by the driver (%s) and made anew",
          (unsigned long long)kernel->key.half[0], (unsigned long long)kernel->key.half[1], kernel->label,
          tsr_opencl_error_name(code));
  if (program) clReleaseProgram(program);
}

static tsr_status compile(tsr_opencl_device *device, tsr_opencl_kernel *kernel, const char *source,
                          const char *options, tsr_error *error) {
  double start = tsr_clock_seconds();
  char seconds[16];
  cl_int code = CL_SUCCESS;
  kernel->program = clCreateProgramWithSource(device->context, 1, &source, NULL, &code);
  if (!kernel->program) return tsr_opencl_fail(device, "clCreateProgramWithSource", code, error);
  code = clBuildProgram(kernel->program, 1, &device->id, options, NULL, NULL);
  if (code != CL_SUCCESS) return fail_build(device, kernel->program, kernel->label, code, error);
  tsr_log(device->base.context, TSR_LOG_INFO, "device", "compiled %s in %s", kernel->label,
          tsr_format_seconds(seconds, tsr_clock_seconds() - start));
  return TSR_OK;
}

static void store(const tsr_opencl_device *device, tsr_opencl_kernel *kernel) {
  size_t bytes = 0;
  if (clGetProgramInfo(kernel->program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) != CL_SUCCESS)
    return;
  if (!bytes || bytes == kernel->stored_bytes) return;
  unsigned char *binary = tsr_malloc(bytes);
  if (binary &&
      clGetProgramInfo(kernel->program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == CL_SUCCESS)
    tsr_cache_write(device->base.context, kernel->key, binary, bytes);
  kernel->stored_bytes = bytes;
  free(binary);
}

static void forget_fresh(tsr_opencl_device *device) {
  if (!device->fresh) return;
  tsr_cache_lock_release(&device->fresh_lock);
  device->fresh = NULL;
}

static void store_fresh(tsr_opencl_device *device) {
  if (device->fresh) store(device, device->fresh);
  forget_fresh(device);
}

void tsr_opencl_kernel_settle(tsr_opencl_device *device, cl_kernel kernel) {
  if (!device->fresh || device->fresh->kernel != kernel) return;
  clFinish(device->queue);
  store_fresh(device);
}

void tsr_opencl_kernel_abandon(tsr_opencl_device *device, cl_kernel kernel) {
  if (device->fresh && device->fresh->kernel == kernel) forget_fresh(device);
}

/* One process compiles; others that came at the same time load what it has stored. Without a lock (no cache,
 * or the other takes too long) everybody compiles for himself. */
static tsr_status compile_once(tsr_opencl_device *device, tsr_opencl_kernel *kernel, const char *source,
                               const char *options, tsr_error *error) {
  store_fresh(device);
  bool locked = tsr_cache_lock_take(device->base.context, TSR_CACHE_LOCK_PROGRAM, kernel->key, LOCK_SECONDS,
                                    &device->fresh_lock);
  if (locked) load_binary(device, kernel, options);
  if (locked && !kernel->program) device->fresh = kernel;
  if (locked && kernel->program) tsr_cache_lock_release(&device->fresh_lock);
  return kernel->program ? TSR_OK : compile(device, kernel, source, options, error);
}

static tsr_status build(tsr_opencl_device *device, tsr_opencl_kernel *kernel, const char *file,
                        const char *name, const char *options, tsr_error *error) {
  tsr_status status = TSR_OK;
  cl_int code = CL_SUCCESS;
  char *source = NULL, *all = all_options(device, options);
  if (!all) TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for build options");
  TSR_TRY(tsr_opencl_source_read(device, file, &source, error));
  const char *const parts[] = {"program", source, all, name};
  kernel->key = tsr_cache_key_of(device->fingerprint, parts, sizeof parts / sizeof *parts);
  load_binary(device, kernel, all);
  if (!kernel->program) TSR_TRY(compile_once(device, kernel, source, all, error));
  kernel->kernel = clCreateKernel(kernel->program, name, &code);
  if (!kernel->kernel) status = fail_build(device, kernel->program, kernel->label, code, error);
done:
  if (status != TSR_OK && device->fresh == kernel) forget_fresh(device);
  free(source);
  free(all);
  return status;
}

static void release(tsr_opencl_kernel *kernel) {
  if (kernel->kernel) clReleaseKernel(kernel->kernel);
  if (kernel->program) clReleaseProgram(kernel->program);
  free(kernel->label);
  free(kernel);
}

static tsr_opencl_kernel *find(tsr_opencl_device *device, const char *label, size_t length) {
  uint64_t hash = XXH3_64bits(label, length);
  tsr_opencl_kernel *kernel = device->kernels;
  while (kernel && (kernel->hash != hash || strcmp(kernel->label, label))) kernel = kernel->next;
  return kernel;
}

tsr_status tsr_opencl_kernel_get(tsr_opencl_device *device, const char *file, const char *name,
                                 const char *options, cl_kernel *out, tsr_error *error) {
  char label[1024];
  int length = snprintf(label, sizeof label, "%s %s %s", file, name, options);
  if (length < 0 || (size_t)length >= sizeof label)
    return tsr_fail(error, TSR_ERROR_INTERNAL, "build options of %s: %d characters, at most %zu", file,
                    length, sizeof label - 1);
  tsr_opencl_kernel *kernel = find(device, label, (size_t)length);
  if (!kernel) {
    kernel = tsr_calloc(1, sizeof *kernel);
    if (kernel) kernel->label = tsr_text_copy(label);
    tsr_status status = kernel && kernel->label ? build(device, kernel, file, name, options, error)
                                                : tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY,
                                                           "no memory for a kernel's description");
    if (status != TSR_OK) {
      if (kernel) release(kernel);
      return status;
    }
    kernel->hash = XXH3_64bits(label, (size_t)length);
    kernel->next = device->kernels;
    device->kernels = kernel;
  }
  *out = kernel->kernel;
  return TSR_OK;
}

void tsr_opencl_kernels_store(tsr_opencl_device *device) {
  if (!*tsr_context_cache_folder(device->base.context)) return;
  for (tsr_opencl_kernel *kernel = device->kernels; kernel; kernel = kernel->next) store(device, kernel);
}

bool tsr_opencl_cache_lock(const tsr_opencl_device *device, double seconds, tsr_cache_lock *out) {
  static const char *const parts[] = {"lock"};
  return tsr_cache_lock_take(device->base.context, TSR_CACHE_LOCK_DEVICE,
                             tsr_cache_key_of(device->fingerprint, parts, 1), seconds, out);
}

/* Ranks that end together have built the same kernels: one of them stores, the others do not wait for it. */
void tsr_opencl_kernels_destroy(tsr_opencl_device *device) {
  tsr_cache_lock lock;
  store_fresh(device);
  if (device->kernels && tsr_opencl_cache_lock(device, 0, &lock)) {
    tsr_opencl_kernels_store(device);
    tsr_cache_lock_release(&lock);
  }
  while (device->kernels) {
    tsr_opencl_kernel *kernel = device->kernels;
    device->kernels = kernel->next;
    release(kernel);
  }
}
