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
  if (!cache_path(context, kind, key, path) || stat(path, &facts) != 0 || facts.st_uid != geteuid() ||
      !S_ISREG(facts.st_mode))
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

/* Where a path leads, also if nothing is there yet: a link stays a link, and what it leads to is replaced.
 * NULL: see errno. It ends: that nothing is there, and not that links lead in a circle, realpath has said. */
static char *follow_links(const char *path) {
  char link[PATH_BYTES], next[2 * PATH_BYTES];
  if (strlen(path) >= PATH_BYTES) return errno = ENAMETOOLONG, NULL;
  char *target = realpath(path, NULL);
  if (target || errno == ELOOP) return target;
  ssize_t bytes = errno == ENOENT ? readlink(path, link, sizeof link - 1) : -1;
  if (bytes < 0) return strdup(path);
  link[bytes] = 0;
  const char *slash = link[0] == '/' ? NULL : strrchr(path, '/');
  snprintf(next, sizeof next, "%.*s%s", slash ? (int)(slash - path + 1) : 0, path, link);
  return follow_links(next);
}

/* Cuts the folder off a path: it ends up in `folder` (PATH_BYTES), and what is left is given. */
static const char *split(const char *path, char *folder) {
  const char *slash = strrchr(path, '/');
  snprintf(folder, PATH_BYTES, "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
  return slash ? slash + 1 : path;
}

tsr_status tool_file_check(const char *path, tsr_error *error) {
  struct stat facts;
  char folder[PATH_BYTES];
  if (!path) return TSR_OK;
  if (stat(path, &facts) == 0 && S_ISDIR(facts.st_mode)) return cannot_write(path, EISDIR, error);
  if (is_special(path)) return access(path, W_OK) == 0 ? TSR_OK : cannot_write(path, errno, error);
  char *target = follow_links(path);
  if (!target) return cannot_write(path, errno, error);
  split(target, folder);
  free(target);
  return access(folder, W_OK | X_OK) == 0 ? TSR_OK : cannot_write(path, errno, error);
}

tsr_status tool_file_write(const char *path, const char *text, tsr_error *error) {
  char *target = follow_links(path);
  int failed = !target ? errno : is_special(path) ? write_text(path, text) : replace_text(target, text);
  free(target);
  return failed ? cannot_write(path, failed, error) : TSR_OK;
}

static bool same_place(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Of two paths at whose ends nothing is yet. */
static bool lead_to_one_name(const char *a, const char *b) {
  char folder_a[PATH_BYTES], folder_b[PATH_BYTES];
  struct stat facts_a, facts_b;
  char *target_a = follow_links(a), *target_b = follow_links(b);
  bool same = target_a && target_b && strcmp(split(target_a, folder_a), split(target_b, folder_b)) == 0 &&
              stat(folder_a, &facts_a) == 0 && stat(folder_b, &facts_b) == 0 &&
              same_place(&facts_a, &facts_b);
  free(target_a);
  free(target_b);
  return same;
}

/* A terminal, or /dev/null, may be given twice. */
static bool are_one_file(const char *a, const char *b) {
  struct stat facts_a, facts_b;
  bool there_a = stat(a, &facts_a) == 0, there_b = stat(b, &facts_b) == 0;
  if (there_a != there_b) return false;
  return there_a ? same_place(&facts_a, &facts_b) && !S_ISCHR(facts_a.st_mode) : lead_to_one_name(a, b);
}

/* What is printed would be lost when the file is replaced, or mixed with it. */
static bool is_stdout(const char *path) {
  struct stat facts, printed;
  return stat(path, &facts) == 0 && fstat(STDOUT_FILENO, &printed) == 0 && same_place(&facts, &printed) &&
         S_ISREG(facts.st_mode);
}

int tool_outputs_check(const tool_options *options) {
  const char *const paths[] = {options->output, options->trace}, *const names[] = {"--output", "--trace"};
  for (int i = 0; i < 2; i++)
    if (paths[i] && is_stdout(paths[i]))
      return tool_usage(options->name, "%s '%s' is the file that stdout goes to: give it a file of its own",
                        names[i], paths[i]);
  if (options->output && options->trace && are_one_file(options->output, options->trace))
    return tool_usage(options->name, "--output '%s' and --trace '%s' are one file: give each its own",
                      options->output, options->trace);
  return 0;
}
