/* core_type.h: for which CPU OpenBLAS should take this one. */
#ifndef TOOL_CORE_TYPE_H
#define TOOL_CORE_TYPE_H

/* OpenBLAS takes an unknown CPU (or one behind a hypervisor) for a very old one. What OPENBLAS_CORETYPE
 * should be where it `detected` that; NULL = it chose well. */
const char *tool_core_type_better(const char *detected);

#endif
