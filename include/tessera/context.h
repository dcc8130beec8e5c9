/* tessera/context.h: what every object shares: where the log goes and where the caches are.
 *
 * Thread safety: a context may be used by several threads; the log callback must then be able to. */
#ifndef TESSERA_CONTEXT_H
#define TESSERA_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_context tsr_context;

typedef enum tsr_log_level {
  TSR_LOG_ERROR,
  TSR_LOG_WARNING,
  TSR_LOG_INFO,
  TSR_LOG_DEBUG,
  TSR_LOG_TRACE
} tsr_log_level;

/* One line, no newline; `area` is the room that speaks: "device", "plan", "comm", ... */
typedef void (*tsr_log_callback)(void *user, tsr_log_level level, const char *area, const char *message);

typedef struct tsr_context_options {
  size_t struct_size;      /* sizeof(tsr_context_options) */
  tsr_log_callback log;    /* NULL = silent */
  void *log_user;          /* borrowed, passed to log */
  tsr_log_level log_level; /* lines above this level are not formatted */
  const char
      *log_filter; /* borrowed for the call; "plan:debug,comm:trace" raises single areas; NULL = none */
  const char *cache_folder;  /* borrowed for the call; NULL = $TESSERA_CACHE, $XDG_CACHE_HOME/tessera,
                                ~/.cache/tessera, the first that is set; "" = no cache on disk */
  const char *kernel_folder; /* borrowed for the call; searched for .cl files before the embedded ones;
                                NULL = $TSR_KERNEL_PATH if set */
  uint64_t cache_bytes;      /* limit of the compiled kernels in the cache folder, where those that were not
                                used for longest make room; 0 = $TESSERA_CACHE_BYTES if set, else 256 MiB */
  const char *tuning_folder; /* borrowed for the call; the user's tuning rows, files *.json (tuning.h); NULL =
                                $TESSERA_TUNING, $XDG_CONFIG_HOME/tessera/tuning, ~/.config/tessera/tuning,
                                the first that is set; "" = none */
} tsr_context_options;

void tsr_context_options_init(tsr_context_options *options);
#define TSR_CONTEXT_OPTIONS(...)                                                                             \
  (&(tsr_context_options){.struct_size = sizeof(tsr_context_options), __VA_ARGS__})

/* Gives *out. options may be NULL. Errors: INVALID_ARGUMENT (struct_size 0, bad filter), OUT_OF_MEMORY. A
 * cache folder that cannot be made or written is no error: a warning is logged and nothing is cached; nor is
 * a $TESSERA_CACHE_BYTES that is no number: a warning is logged and the default holds. */
tsr_status tsr_context_create(const tsr_context_options *options, tsr_context **out, tsr_error *error);

/* Takes *context (may be NULL) and leaves NULL. Every object made with it must be gone. */
void tsr_context_destroy(tsr_context **context);

/* The folder in use, "" if none. Borrowed; lives as long as the context. */
const char *tsr_context_cache_folder(const tsr_context *context);
/* Likewise the folder of the user's tuning rows, which need not exist. */
const char *tsr_context_tuning_folder(const tsr_context *context);

#ifdef __cplusplus
}
#endif
#endif
