/* cache.c: small documents in the cache folder, and where -o says. */
#include "cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "message.h"

enum { PATH_BYTES = 4096 };

static bool cache_path(const tsr_context *context, const char *kind, uint64_t key, char *path) {
  const char *folder = tsr_context_cache_folder(context);
  if (!folder || !folder[0]) return false;
  int bytes = snprintf(path, PATH_BYTES, "%s/%s-%016" PRIx64 ".json", folder, kind, key);
  return bytes > 0 && bytes < PATH_BYTES;
}

char *tool_file_read(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  char *text = NULL;
  size_t used = 0, capacity = 0;
  do {
    capacity = 2 * capacity + 65536;
    char *grown = realloc(text, capacity + 1);
    if (!grown) break;
    text = grown;
    used += fread(text + used, 1, capacity - used, file);
  } while (used == capacity);
  bool good = text && !ferror(file) && used < capacity;
  fclose(file);
  if (!good) {
    free(text);
    return NULL;
  }
  text[used] = 0;
  if (bytes) *bytes = used;
  return text;
}

char *tool_cache_read(const tsr_context *context, const char *kind, uint64_t key, double seconds) {
  char path[PATH_BYTES];
  struct stat facts;
  if (!cache_path(context, kind, key, path) || stat(path, &facts) != 0 || facts.st_uid != geteuid())
    return NULL;
  double age = difftime(time(NULL), facts.st_mtime);
  if (seconds > 0 && (age < 0 || age > seconds)) return NULL;
  return tool_file_read(path, NULL);
}

/* 0 or errno */
static int write_text(const char *path, const char *text) {
  FILE *file = fopen(path, "wb");
  if (!file) return errno;
  int failed = fputs(text, file) == EOF ? errno : 0;
  if (fclose(file) != 0 && !failed) failed = errno;
  return failed;
}

/* Under another name, then renamed; 0 or errno. */
static int replace_text(const char *path, const char *text) {
  char temporary[PATH_BYTES + 32];
  int bytes = snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
  if (bytes < 0 || bytes >= (int)sizeof temporary) return ENAMETOOLONG;
  int failed = write_text(temporary, text);
  if (!failed && rename(temporary, path) != 0) failed = errno;
  if (failed) unlink(temporary);
  return failed;
}

void tool_cache_write(const tsr_context *context, const char *kind, uint64_t key, const char *text) {
  char path[PATH_BYTES];
  if (cache_path(context, kind, key, path)) replace_text(path, text);
}

static tsr_status cannot_write(const char *path, int code, tsr_error *error) {
  return tool_fail(error, TSR_ERROR_IO, "cannot write '%s': %s: check the path, and the space there", path,
                   strerror(code));
}

static bool is_special(const char *path) {
  struct stat facts;
  return stat(path, &facts) == 0 && !S_ISREG(facts.st_mode);
}

tsr_status tool_file_check(const char *path, tsr_error *error) {
  struct stat facts;
  char folder[PATH_BYTES];
  if (!path) return TSR_OK;
  if (strlen(path) >= sizeof folder) return cannot_write(path, ENAMETOOLONG, error);
  if (stat(path, &facts) == 0 && S_ISDIR(facts.st_mode)) return cannot_write(path, EISDIR, error);
  if (is_special(path)) return access(path, W_OK) == 0 ? TSR_OK : cannot_write(path, errno, error);
  const char *slash = strrchr(path, '/');
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
  return access(folder, W_OK | X_OK) == 0 ? TSR_OK : cannot_write(path, errno, error);
}

tsr_status tool_file_write(const char *path, const char *text, tsr_error *error) {
  /* A link stays a link: what it leads to is replaced. */
  char *target = realpath(path, NULL);
  int failed = is_special(path) ? write_text(path, text) : replace_text(target ? target : path, text);
  free(target);
  return failed ? cannot_write(path, failed, error) : TSR_OK;
}
