/* device/backend.h: what a backend's author writes. See backends/README.md.
 *
 * An OpenCL backend is one table: which devices are its, their true limits and quirks, build options, and the
 * GEMM families in order of preference. backends/backend_list.h registers it by one line; the first backend
 * that claims a device gets it, `generic` is last and takes every device. */
#ifndef TSR_DEVICE_BACKEND_H
#define TSR_DEVICE_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/device.h>

#include "base/gemm_facts.h"

/* What OpenCL says of a device, as read; nothing corrected. */
typedef struct tsr_opencl_facts {
  char platform[128], platform_version[256];
  char name[128], vendor[128], driver[128], version[128];
  char extensions[4096];
  uint32_t vendor_id;
  tsr_device_kind kind;
  uint32_t compute_units;
  uint32_t float_vector_width; /* native; 8 with AVX2, 16 with AVX-512, 4 with NEON, 1 on most GPUs */
  uint32_t double_vector_width;
  uint32_t compute_capability; /* NVIDIA's, 80 for 8.0; 0 elsewhere */
  uint32_t sub_group_least;    /* of the sizes that Intel's compiler knows; 0 elsewhere */
  uint64_t memory_bytes, max_allocation_bytes, local_memory_bytes;
  size_t work_group_size_max;
  bool unified_memory, f64, f16, compiler, little_endian;
} tsr_opencl_facts;

typedef struct tsr_backend {
  const char *name;
  /* Called while listing. True if the device is this backend's; *reason becomes the static text that
   * `tessera devices` prints. */
  bool (*claim)(const tsr_opencl_facts *facts, const char **reason);
  /* Called after claim: corrects memory, largest allocation, short_name, usable (with info->reason).
   * NULL = as OpenCL says. */
  void (*describe)(const tsr_opencl_facts *facts, tsr_device_info *info);
  /* Fills facts of the family to use for products of these types; leaves family NONE if it cannot be used.
   * `preference` counts up from 0: the next is asked for when a family's self-test failed; NONE ends the
   * list. */
  void (*gemm)(const tsr_opencl_facts *facts, tsr_gemm_types types, int preference, tsr_gemm_facts *out);
  /* Names what its kernels' parameters depend on, for tuning rows: "x86-avx2". NULL = the device's name up to
   * a colon ("gfx90a:xnack-"). */
  void (*architecture)(const tsr_opencl_facts *facts, char *out, size_t bytes);
  /* Vector registers of a core, as far as a search for parameters must know; 0 = not known. NULL = so. */
  int (*vector_registers)(const tsr_opencl_facts *facts);
  /* Appended to every build; NULL = none. */
  const char *build_options;
  /* Whether the driver uses host memory that it is given in place (CL_MEM_USE_HOST_PTR): large buffers then
   * lie in huge pages that the library allocates, and what is exchanged with other ranks of the host, if
   * memory is unified, in memory that they share. NULL = the driver allocates all. */
  bool (*uses_huge_pages)(const tsr_opencl_facts *facts);
} tsr_backend;

/* The table of OpenCL backends, NULL-terminated, in order of claiming. */
extern const tsr_backend *const tsr_backends[];

/* Opens the host backend (backends/host). Gives *out. */
tsr_status tsr_host_device_create(tsr_context *context, tsr_device **out, tsr_error *error);
/* Describes it, for lists. */
void tsr_host_device_describe(tsr_device_info *out);

#endif
