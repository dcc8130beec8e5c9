/* device/kernel_source.h: the kernel files of cl_kernels/, embedded by the build (tools/dev/embed.py). */
#ifndef TSR_DEVICE_KERNEL_SOURCE_H
#define TSR_DEVICE_KERNEL_SOURCE_H

#include <stddef.h>

typedef struct tsr_kernel_source {
  const char *name; /* "gemm_panel.cl", "vector.h" */
  const char *text; /* terminated */
  size_t bytes;     /* without the terminator */
} tsr_kernel_source;

/* Ended by a NULL name. */
extern const tsr_kernel_source tsr_kernel_sources[];

#endif
