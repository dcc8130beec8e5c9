/* cache.c: small documents in the cache folder. */
#include "cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

void tool_cache_write(const tsr_context *context, const char *kind, uint64_t key, const char *text) {
  char path[PATH_BYTES], temporary[PATH_BYTES + 32];
  if (!cache_path(context, kind, key, path)) return;
  snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
  FILE *file = fopen(temporary, "wb");
  if (!file) return;
  bool good = fputs(text, file) != EOF;
  good = fclose(file) == 0 && good;
  if (!good || rename(temporary, path) != 0) unlink(temporary);
}
