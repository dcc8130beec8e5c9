#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

enum { TEMPORARY_NAMES = 1000, LINK_BYTES = 4096 };

static tsr_status fail_write(const char *path, const char *what, tsr_error *error) {
  int code = errno;
  tsr_fail(error, TSR_ERROR_IO, "%s: cannot %s: %s", path, what, strerror(code));
  tsr_error_native(error, "errno", code);
  return TSR_ERROR_IO;
}

/* Where a path leads, also if nothing is there yet. NULL: see errno. It ends: that nothing is there, and not
 * that links lead in a circle, realpath has said. */
static char *follow_links(const char *path) {
  char link[LINK_BYTES];
  char *target = realpath(path, NULL);
  if (target || errno == ELOOP) return target;
  ssize_t bytes = errno == ENOENT ? readlink(path, link, sizeof link - 1) : -1;
  if (bytes < 0 && !(target = tsr_text_copy(path))) errno = ENOMEM;
  if (bytes < 0) return target;
  link[bytes] = 0;
  const char *slash = link[0] == '/' ? NULL : strrchr(path, '/');
  char *next = tsr_text_format("%.*s%s", slash ? (int)(slash - path + 1) : 0, path, link);
  if (!next) return errno = ENOMEM, NULL;
  target = follow_links(next);
  free(next);
  return target;
}

/* A name of its own beside the target, so that the rename stays within one file system; -1: see errno. */
static int open_temporary(tsr_output *o) {
  int descriptor = -1;
  for (int i = 0; i < TEMPORARY_NAMES && descriptor < 0; i++) {
    free(o->name);
    o->name = tsr_text_format("%s.tmp-%ld-%d", o->target, (long)getpid(), i);
    if (!o->name) return errno = ENOMEM, -1;
    descriptor = open(o->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno != EEXIST) break;
  }
  if (descriptor >= 0) return descriptor;
  free(o->name);
  o->name = NULL; /* not ours to unlink */
  return -1;
}

tsr_status tsr_output_open(tsr_output *output, const char *path, tsr_error *error) {
  tsr_status status = TSR_OK;
  struct stat facts;
  bool special = !stat(path, &facts) && !S_ISREG(facts.st_mode);
  if (!special) output->target = follow_links(path);
  int descriptor = special ? open(path, O_WRONLY | O_CLOEXEC) : output->target ? open_temporary(output) : -1;
  if (descriptor < 0 && errno == ENOMEM)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a file name");
  if (descriptor < 0)
    return fail_write(path, special ? "open it" : "create a temporary file beside it", error);
  output->stream = fdopen(descriptor, "wb");
  if (output->stream) return TSR_OK;
  status = fail_write(path, "open a stream", error);
  close(descriptor);
  return status;
}

tsr_status tsr_output_commit(tsr_output *output, const char *path, bool written, tsr_error *error) {
  if (!written || fflush(output->stream) || (output->target && fsync(fileno(output->stream))))
    return fail_write(path, "write", error);
  int failed = fclose(output->stream);
  output->stream = NULL;
  if (failed) return fail_write(path, "write", error);
  if (!output->target) return TSR_OK;
  if (rename(output->name, output->target)) return fail_write(path, "rename the temporary file to it", error);
  free(output->name);
  output->name = NULL;
  return TSR_OK;
}

void tsr_output_close(tsr_output *output) {
  if (output->stream) fclose(output->stream);
  if (output->name) unlink(output->name);
  free(output->name);
  free(output->target);
  *output = (tsr_output){0};
}
