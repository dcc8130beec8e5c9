/* base/error.h: how a function of the library fails.
 *
 *   tsr_status f(..., tsr_error *error) {
 *     tsr_status status = TSR_OK;
 *     ...
 *     TSR_TRY(g(..., error));                                   goes to done: with g's status
 *     if (bad) TSR_THROW(TSR_ERROR_IO, "cannot read %s", path); goes to done: with a message
 *   done:
 *     free what is local
 *     return status;
 *   }
 *
 * A function with nothing to clean up returns tsr_fail(...) or TSR_RETURN_IF_FAILED(...) at once. */
#ifndef TSR_BASE_ERROR_H
#define TSR_BASE_ERROR_H

#include <tessera/status.h>

#if defined(__GNUC__)
#define TSR_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#else
#define TSR_PRINTF(format_index, first)
#endif

/* Fills error (may be NULL) and returns status. */
tsr_status tsr_fail_at(const char *file, int line, tsr_error *error, tsr_status status, const char *format,
                       ...) TSR_PRINTF(5, 6);
#define tsr_fail(error, status, ...) tsr_fail_at(__FILE__, __LINE__, error, status, __VA_ARGS__)

/* Puts "<context>: " before error's message: "while loading w1: ..." */
void tsr_error_wrap(tsr_error *error, const char *format, ...) TSR_PRINTF(2, 3);

/* Adds the native code. */
void tsr_error_native(tsr_error *error, const char *domain, int64_t code);

/* Both expect `tsr_status status`, `tsr_error *error` and a label `done` in the function. */
#define TSR_TRY(call)                                                                                        \
  do {                                                                                                       \
    status = (call);                                                                                         \
    if (status != TSR_OK) goto done;                                                                         \
  } while (0)
#define TSR_THROW(code, ...)                                                                                 \
  do {                                                                                                       \
    status = tsr_fail(error, code, __VA_ARGS__);                                                             \
    goto done;                                                                                               \
  } while (0)
#define TSR_RETURN_IF_FAILED(call)                                                                           \
  do {                                                                                                       \
    tsr_status status_ = (call);                                                                             \
    if (status_ != TSR_OK) return status_;                                                                   \
  } while (0)

/* The first check of every function with options: their struct_size must be set, by the init function or the
 * literal macro. `options` may be NULL. */
#define TSR_CHECK_OPTIONS_SIZE(options, type)                                                                \
  do {                                                                                                       \
    if ((options) && (options)->struct_size != sizeof(type))                                                 \
      return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,                                                     \
                      #type ".struct_size is %zu, expected %zu: initialise it with " #type "_init()",        \
                      (options)->struct_size, sizeof(type));                                                 \
  } while (0)

#endif
