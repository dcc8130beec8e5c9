#include "base/context.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/text.h"
#include <tessera/version.h>

enum { AREAS_MAX = 16, AREA_BYTES = 16 };
static const uint64_t default_cache_bytes = (uint64_t)256 << 20;

struct tsr_context {
  tsr_log_callback log;
  void *log_user;
  tsr_log_level log_level;
  int area_count;
  struct {
    char name[AREA_BYTES];
    tsr_log_level level;
  } areas[AREAS_MAX];
  char *cache_folder;
  char *kernel_folder;
  char *tuning_folder;
  uint64_t cache_bytes;
};

static const char *const level_names[] = {"error", "warning", "info", "debug", "trace"};

const char *tsr_version(void) {
  return TSR_VERSION;
}

void tsr_context_options_init(tsr_context_options *options) {
  *options = (tsr_context_options){.struct_size = sizeof *options};
}

static tsr_log_level level_of(const tsr_context *context, const char *area) {
  for (int i = 0; i < context->area_count; i++)
    if (!strcmp(context->areas[i].name, area)) return context->areas[i].level;
  return context->log_level;
}

void tsr_log(const tsr_context *context, tsr_log_level level, const char *area, const char *format, ...) {
  if (!context->log || level > level_of(context, area)) return;
  char line[TSR_ERROR_MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  context->log(context->log_user, level, area, line);
}

/* "plan:debug,comm:trace" */
static tsr_status parse_filter(tsr_context *context, const char *filter, tsr_error *error) {
  for (const char *item = filter; *item;) {
    size_t length = strcspn(item, ","), name_length = strcspn(item, ":,");
    int level = -1;
    if (name_length < length)
      for (int i = 0; i < (int)(sizeof level_names / sizeof *level_names); i++)
        if (strlen(level_names[i]) == length - name_length - 1 &&
            !strncmp(level_names[i], item + name_length + 1, length - name_length - 1))
          level = i;
    if (level < 0 || !name_length || name_length >= AREA_BYTES || context->area_count == AREAS_MAX)
      return tsr_fail(
          error, TSR_ERROR_INVALID_ARGUMENT,
          "log filter \"%.*s\": expected up to %d of AREA:LEVEL, LEVEL one of error, warning, info, "
          "debug, trace",
          (int)length, item, AREAS_MAX);
    memcpy(context->areas[context->area_count].name, item, name_length);
    context->areas[context->area_count++].level = (tsr_log_level)level;
    item += length + (item[length] == ',');
  }
  return TSR_OK;
}

static char *default_cache_folder(void) {
  const char *own = getenv("TESSERA_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (own) return tsr_text_copy(own);
  if (xdg && *xdg) return tsr_text_format("%s/tessera", xdg);
  if (home && *home) return tsr_text_format("%s/.cache/tessera", home);
  return tsr_text_copy("");
}

static char *default_tuning_folder(void) {
  const char *own = getenv("TESSERA_TUNING"), *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
  if (own) return tsr_text_copy(own);
  if (xdg && *xdg) return tsr_text_format("%s/tessera/tuning", xdg);
  if (home && *home) return tsr_text_format("%s/.config/tessera/tuning", home);
  return tsr_text_copy("");
}

/* A whole number of bytes, at least 1. */
static uint64_t cache_bytes_of_environment(const tsr_context *context) {
  const char *text = getenv("TESSERA_CACHE_BYTES");
  if (!text) return default_cache_bytes;
  char *end;
  errno = 0;
  unsigned long long bytes = strtoull(text, &end, 10);
  if (*text >= '0' && *text <= '9' && !*end && !errno && bytes) return bytes;
  tsr_log(context, TSR_LOG_WARNING, "base",
          "TESSERA_CACHE_BYTES is '%s', expected a whole number of bytes from 1 on: %llu are used", text,
          (unsigned long long)default_cache_bytes);
  return default_cache_bytes;
}

/* Makes the folder and its parents; returns 0 or errno. */
static int make_folders(char *path) {
  for (char *slash = path + 1;; slash++) {
    slash = strchr(slash, '/');
    if (slash) *slash = 0;
    int failed = mkdir(path, 0700) && errno != EEXIST ? errno : 0;
    if (slash) *slash = '/';
    if (failed || !slash) return failed;
  }
}

tsr_status tsr_context_create(const tsr_context_options *options, tsr_context **out, tsr_error *error) {
  TSR_CHECK_OPTIONS_SIZE(options, tsr_context_options);
  tsr_status status = TSR_OK;
  tsr_context_options defaults;
  tsr_context_options_init(&defaults);
  if (!options) options = &defaults;

  tsr_context *context = tsr_calloc(1, sizeof *context);
  if (!context) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a context");
  context->log = options->log;
  context->log_user = options->log_user;
  context->log_level = options->log_level;
  if (options->log_filter) TSR_TRY(parse_filter(context, options->log_filter, error));
  context->cache_bytes = options->cache_bytes ? options->cache_bytes : cache_bytes_of_environment(context);

  const char *kernels = options->kernel_folder ? options->kernel_folder : getenv("TSR_KERNEL_PATH");
  context->kernel_folder = tsr_text_copy(kernels ? kernels : "");
  context->cache_folder =
      options->cache_folder ? tsr_text_copy(options->cache_folder) : default_cache_folder();
  context->tuning_folder =
      options->tuning_folder ? tsr_text_copy(options->tuning_folder) : default_tuning_folder();
  if (!context->kernel_folder || !context->cache_folder || !context->tuning_folder)
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for a context");
  int failed = *context->cache_folder ? make_folders(context->cache_folder) : 0;
  if (failed) {
    tsr_log(context, TSR_LOG_WARNING, "base", "cannot make cache folder %s (%s): nothing is cached on disk",
            context->cache_folder, strerror(failed));
    *context->cache_folder = 0;
  }
  *out = context;
  return TSR_OK;
done:
  tsr_context_destroy(&context);
  return status;
}

void tsr_context_destroy(tsr_context **context) {
  if (!*context) return;
  free((*context)->cache_folder);
  free((*context)->kernel_folder);
  free((*context)->tuning_folder);
  free(*context);
  *context = NULL;
}

const char *tsr_context_cache_folder(const tsr_context *context) {
  return context->cache_folder;
}

const char *tsr_context_tuning_folder(const tsr_context *context) {
  return context->tuning_folder;
}

const char *tsr_context_kernel_folder(const tsr_context *context) {
  return context->kernel_folder;
}

uint64_t tsr_context_cache_bytes(const tsr_context *context) {
  return context->cache_bytes;
}
