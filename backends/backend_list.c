/* backend_list.c: the table that runtime/device reaches the backends through. */
#include "backend_list.h"

const tsr_backend *const tsr_backends[] = {
#define TSR_BACKEND_ROW(name) &tsr_backend_##name,
    TSR_BACKEND_LIST(TSR_BACKEND_ROW)
#undef TSR_BACKEND_ROW
        NULL,
};
