/* tessera/device.h: the devices of this machine, and opening one.
 *
 * Every OpenCL device is claimed by a backend (nvidia, amd, intel, cpu, or generic); the host backend, plain
 * C on the calling thread, is always there under the name "host".
 *
 * Selectors: PATTERN[:INDEX]. PATTERN is a shell pattern, without regard to case, held against the
 * platform's name, its short name (pocl, rusticl, nvidia, amd, intel, host), the backend and the device's
 * name; INDEX (default 0) counts the devices that match. "pocl", "rusticl", "NVIDIA*:1", "host".
 *
 * Thread safety: a device belongs to one thread at a time. */
#ifndef TESSERA_DEVICE_H
#define TESSERA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/context.h>
#include <tessera/dtype.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tsr_device_kind { TSR_DEVICE_CPU, TSR_DEVICE_GPU, TSR_DEVICE_OTHER } tsr_device_kind;

typedef struct tsr_device_info {
  char platform[64];
  char short_name[16]; /* "pocl", "rusticl", "nvidia", "amd", "intel", "host", or "opencl" */
  char name[128];
  char vendor[64];
  char driver[128];
  char backend[16];
  char reason[128]; /* why this backend took it, or why no backend can use it */
  bool usable;
  tsr_device_kind kind;
  uint64_t memory_bytes;         /* what the backend believes can be used */
  uint64_t max_allocation_bytes; /* of one buffer */
  uint64_t local_memory_bytes;
  uint32_t compute_units;
  bool unified_memory; /* host and device share memory: mapping copies nothing */
  bool f64, f16;       /* precisions of arithmetic, beside f32 */
} tsr_device_info;

typedef struct tsr_device_list tsr_device_list;
typedef struct tsr_device tsr_device;

/* Every device that this process sees, the host backend last. Loads every OpenCL driver that the ICD loader
 * names: a driver that crashes takes the process with it (the tessera program probes in child processes).
 * Gives *out. A missing OpenCL platform is no error. */
tsr_status tsr_device_list_create(tsr_context *context, tsr_device_list **out, tsr_error *error);
void tsr_device_list_destroy(tsr_device_list **list);
size_t tsr_device_list_count(const tsr_device_list *list);
/* Borrowed; lives as long as the list. NULL when index is out of range. */
const tsr_device_info *tsr_device_list_get(const tsr_device_list *list, size_t index);
/* Whether selector's pattern (its index left aside) matches. */
bool tsr_device_matches(const char *selector, const tsr_device_info *info);

/* What a device is opened, or measured, for: bits. What is not named works all the same, but nothing is built
 * for it beforehand: it is tested when it is first used, and planned for by estimates. 0 = all. */
typedef enum tsr_work {
  TSR_WORK_F32 = 1,
  TSR_WORK_F64 = 2,
  TSR_WORK_FORWARD = 4,      /* products of operands as they are stored, of any number of rows */
  TSR_WORK_BACKWARD = 8,     /* products with a transposed operand, as gradients need them */
  TSR_WORK_ELEMENTWISE = 16, /* anything but products */
  TSR_WORK_F16 = 32,         /* products of f32 by weights in f16, bf16, i8 */
  TSR_WORK_BF16 = 64,
  TSR_WORK_I8 = 128,
  TSR_WORK_FEW_ROWS = 256 /* forward products of up to 16 rows, for which CPUs have a kernel of their own;
                             without FORWARD: no others */
} tsr_work;

typedef struct tsr_device_options {
  size_t struct_size;
  uint64_t memory_bytes;         /* cap for the ledger; 0 = what the device has */
  uint64_t max_allocation_bytes; /* cap for one buffer; 0 = what the device allows */
  const char *gemm;              /* borrowed for the call; forces a GEMM family ("reference", "panel",
                                    "clblast"); NULL = the backend's choice */
  unsigned work;                 /* of tsr_work: products that are tested at once, so that another family can
                                    take the place of one that fails; 0 = all in f32 */
} tsr_device_options;
void tsr_device_options_init(tsr_device_options *options);
#define TSR_DEVICE_OPTIONS(...)                                                                              \
  (&(tsr_device_options){.struct_size = sizeof(tsr_device_options), __VA_ARGS__})

/* Opens the device that selector names (NULL: the first GPU, else the first CPU other than rusticl, else
 * host). Gives *out. Errors: NOT_FOUND naming what there is, UNSUPPORTED, DEVICE, INVALID_ARGUMENT. */
tsr_status tsr_device_open(tsr_context *context, const char *selector, const tsr_device_options *options,
                           tsr_device **out, tsr_error *error);
void tsr_device_close(tsr_device **device);

/* Borrowed; lives as long as the device. memory_bytes and max_allocation_bytes with the caps applied. */
const tsr_device_info *tsr_device_get_info(const tsr_device *device);
/* Bytes that the ledger holds now, and the most it has held. */
uint64_t tsr_device_bytes_used(const tsr_device *device);
uint64_t tsr_device_bytes_peak(const tsr_device *device);

#ifdef __cplusplus
}
#endif
#endif
