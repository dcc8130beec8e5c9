/* program_cache.c: the disk cache of program binaries; see the header. */
#include "device/program_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/context.h"
#include "base/memory.h"
#include "base/text.h"

enum { FORMAT_VERSION = 1 };

/* In the byte order of the machine: an entry of another order has another version. */
typedef struct entry_header {
  char magic[8];
  uint32_t version, reserved;
  tsr_cache_key key;
  uint64_t bytes, checksum;
} entry_header;

static const char magic[8] = "TSRPROG";

tsr_cache_key tsr_cache_key_of(const uint64_t before[2], const char *const *parts, size_t count) {
  uint64_t chain[4] = {before[0], before[1]};
  for (size_t i = 0; i < count; i++) {
    XXH128_hash_t hash = XXH3_128bits(parts[i], strlen(parts[i]));
    chain[2] = hash.high64;
    chain[3] = hash.low64;
    hash = XXH3_128bits(chain, sizeof chain);
    chain[0] = hash.high64;
    chain[1] = hash.low64;
  }
  return (tsr_cache_key){{chain[0], chain[1]}};
}

/* NULL if there is no cache or no memory. The caller's, to free(). */
static char *entry_path(const tsr_context *context, tsr_cache_key key, const char *ending) {
  const char *folder = tsr_context_cache_folder(context);
  if (!*folder) return NULL;
  return tsr_text_format("%s/programs/%016" PRIx64 "%016" PRIx64 "%s", folder, key.half[0], key.half[1],
                         ending);
}

static bool read_all(int file, void *to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t part = read(file, (char *)to + done, bytes - done);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) return false;
    done += (size_t)part;
  }
  return true;
}

static bool write_all(int file, const void *from, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t part = write(file, (const char *)from + done, bytes - done);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) return false;
    done += (size_t)part;
  }
  return true;
}

/* What is wrong with an open entry, or NULL with its payload. */
static const char *read_entry(int file, tsr_cache_key key, void **payload, size_t *bytes) {
  struct stat about;
  entry_header header;
  if (fstat(file, &about) || !S_ISREG(about.st_mode)) return "it is not a file";
  if (about.st_uid != geteuid()) return "another user owns it";
  if (!read_all(file, &header, sizeof header)) return "it is cut short";
  if (memcmp(header.magic, magic, sizeof magic) || header.version != FORMAT_VERSION)
    return "its format is another";
  if (memcmp(&header.key, &key, sizeof key)) return "it belongs to another key";
  if (header.bytes != (uint64_t)about.st_size - sizeof header) return "it is cut short";
  *bytes = (size_t)header.bytes;
  *payload = tsr_malloc(*bytes);
  if (!*payload) return "there is no memory to read it";
  if (read_all(file, *payload, *bytes) && XXH3_64bits(*payload, *bytes) == header.checksum) return NULL;
  free(*payload);
  *payload = NULL;
  return "its checksum is wrong";
}

bool tsr_cache_read(const tsr_context *context, tsr_cache_key key, void **payload, size_t *bytes) {
  *payload = NULL;
  *bytes = 0;
  char *path = entry_path(context, key, ".bin");
  if (!path) return false;
  int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  const char *problem = file >= 0                             ? read_entry(file, key, payload, bytes)
                        : errno == ENOENT || errno == ENOTDIR ? NULL
                                                              : strerror(errno);
  if (problem)
    tsr_log(context, TSR_LOG_WARNING, "device", "cache entry %s is passed over and made anew: %s", path,
            problem);
  if (file >= 0) close(file);
  free(path);
  return *payload != NULL;
}

static bool write_entry(int file, tsr_cache_key key, const void *payload, size_t bytes) {
  entry_header header = {
      .version = FORMAT_VERSION, .key = key, .bytes = bytes, .checksum = XXH3_64bits(payload, bytes)};
  memcpy(header.magic, magic, sizeof magic);
  return write_all(file, &header, sizeof header) && write_all(file, payload, bytes);
}

static bool make_folder(const tsr_context *context) {
  char *path = tsr_text_format("%s/programs", tsr_context_cache_folder(context));
  bool made = path && (!mkdir(path, 0700) || errno == EEXIST);
  free(path);
  return made;
}

/* mkstemp makes the file for this user alone, under a name that no other rank has. */
void tsr_cache_write(const tsr_context *context, tsr_cache_key key, const void *payload, size_t bytes) {
  char *path = entry_path(context, key, ".bin"), *temporary = entry_path(context, key, ".XXXXXX");
  int file = -1;
  bool written = false;
  if (!path || !temporary) goto done;
  if (make_folder(context)) file = mkstemp(temporary);
  if (file >= 0) {
    written = write_entry(file, key, payload, bytes);
    written = !close(file) && written && !rename(temporary, path);
    if (!written) unlink(temporary);
  }
  if (written)
    tsr_log(context, TSR_LOG_DEBUG, "device", "stored %zu bytes in %s", bytes, path);
  else
    tsr_log(context, TSR_LOG_DEBUG, "device", "cannot store %s: %s", path, strerror(errno));
done:
  free(path);
  free(temporary);
}

bool tsr_cache_lock_take(const tsr_context *context, tsr_cache_key key, double seconds, tsr_cache_lock *out) {
  const struct timespec pause = {.tv_nsec = 10000000};
  char *path = entry_path(context, key, ".lock");
  out->file = path && make_folder(context) ? open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
  if (path && out->file < 0)
    tsr_log(context, TSR_LOG_DEBUG, "device", "cannot make %s: %s; nothing is stored", path, strerror(errno));
  free(path);
  if (out->file < 0) return false;
  for (double waited = 0; flock(out->file, LOCK_EX | LOCK_NB); waited += 1e-9 * (double)pause.tv_nsec) {
    if (waited >= seconds || (errno != EWOULDBLOCK && errno != EINTR)) {
      tsr_cache_lock_release(out);
      return false;
    }
    nanosleep(&pause, NULL);
  }
  return true;
}

void tsr_cache_lock_release(tsr_cache_lock *lock) {
  if (lock->file >= 0) close(lock->file);
  lock->file = -1;
}
