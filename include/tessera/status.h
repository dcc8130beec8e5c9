/* tessera/status.h: what a call returns, and where the detail goes.
 *
 * Every function that can fail returns a tsr_status and takes, as its last argument, a caller-owned
 * tsr_error (may be NULL) that receives one line for people: what was wrong, the value, the limit, what
 * to do. The library never prints, exits or aborts, and keeps no last error of its own.
 *
 * Thread safety: a tsr_error belongs to whoever passed it; the functions here are pure. */
#ifndef TESSERA_STATUS_H
#define TESSERA_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* name, value, text. One list yields the enum, tsr_status_name() and tsr_status_text(). */
#define TSR_STATUS_LIST(X)                                                                                   \
  X(OK, 0, "success")                                                                                        \
  X(ERROR_INVALID_ARGUMENT, -1, "invalid argument")                                                          \
  X(ERROR_OUT_OF_MEMORY, -2, "out of memory")                                                                \
  X(ERROR_NOT_FOUND, -3, "not found")                                                                        \
  X(ERROR_UNSUPPORTED, -4, "unsupported")                                                                    \
  X(ERROR_INFEASIBLE, -5, "no feasible plan")                                                                \
  X(ERROR_IO, -6, "input or output failed")                                                                  \
  X(ERROR_FORMAT, -7, "malformed file or document")                                                          \
  X(ERROR_DEVICE, -8, "device failed")                                                                       \
  X(ERROR_COMPILE, -9, "kernel does not compile")                                                            \
  X(ERROR_COMM, -10, "communication failed")                                                                 \
  X(ERROR_RANK_LOST, -11, "a rank was lost")                                                                 \
  X(ERROR_POISONED, -12, "session is poisoned by an earlier failure")                                        \
  X(ERROR_MISMATCH, -13, "plan does not match")                                                              \
  X(ERROR_CHECK_FAILED, -14, "verification failed")                                                          \
  X(ERROR_INTERNAL, -15, "internal error")

typedef enum tsr_status {
#define TSR_STATUS_ENUM(name, value, text) TSR_##name = value,
  TSR_STATUS_LIST(TSR_STATUS_ENUM)
#undef TSR_STATUS_ENUM
} tsr_status;

enum { TSR_ERROR_MESSAGE_BYTES = 1024, TSR_ERROR_LOG_BYTES = 2048, TSR_ERROR_NAME_BYTES = 64 };

/* The detail of a failure. Plain data: copy it, send it, forget it; nothing to free. */
typedef struct tsr_error {
  tsr_status status;
  char message[TSR_ERROR_MESSAGE_BYTES]; /* one line, no newline at the end */
  const char *file;                      /* where in the library it arose; NULL after it crossed ranks */
  int line;
  char domain[16]; /* "", "opencl", "mpi", "errno": whose native_code it is */
  int64_t native_code;
  int rank;                            /* the member that failed; -1 = this process */
  char device[TSR_ERROR_NAME_BYTES];   /* its device, or "" */
  char build_log[TSR_ERROR_LOG_BYTES]; /* start of a kernel's build log, or "" */
} tsr_error;

/* "TSR_ERROR_IO" and "input or output failed"; "unknown status" for a value outside the list. */
const char *tsr_status_name(tsr_status status);
const char *tsr_status_text(tsr_status status);

#ifdef __cplusplus
}
#endif
#endif
