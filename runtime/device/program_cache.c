/* program_cache.c: the disk cache of program binaries; see the header. */
#include "device/program_cache.h"

#include <dirent.h>
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

enum { FORMAT_VERSION = 1, KEY_DIGITS = 32, LOCK_FILES = 64, STALE_SECONDS = 3600 };

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

static char *lock_path(const tsr_context *context, tsr_cache_lock_kind kind, tsr_cache_key key) {
  const char *folder = tsr_context_cache_folder(context);
  if (!*folder) return NULL;
  return tsr_text_format("%s/programs/%s-%02x.lock", folder,
                         kind == TSR_CACHE_LOCK_DEVICE ? "device" : "program",
                         (unsigned)(key.half[0] % LOCK_FILES));
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
  if (*payload) futimens(file, NULL); /* in a cache that is only read the order stays as it is */
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

/* ---- the limit ---- */

typedef struct entry {
  char name[KEY_DIGITS + sizeof ".bin"];
  struct timespec used;
  uint64_t bytes;
} entry;

typedef struct entry_list {
  entry *items;
  size_t count, capacity;
  uint64_t bytes; /* of all */
} entry_list;

static int oldest_first(const void *a, const void *b) {
  const struct timespec *x = &((const entry *)a)->used, *y = &((const entry *)b)->used;
  if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
  return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* "" = not a name that this file gives. */
static const char *ending_of(const char *name) {
  return strspn(name, "0123456789abcdef") == KEY_DIGITS ? name + KEY_DIGITS : "";
}

static bool is_temporary(const char *ending) {
  return *ending == '.' && strlen(ending) == sizeof ".XXXXXX" - 1;
}

/* Another process may be at it too: what has gone meanwhile is passed over. */
static void look_at(int folder, const char *name, entry_list *list) {
  struct stat about;
  const char *ending = ending_of(name);
  if (!*ending || fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) || !S_ISREG(about.st_mode)) return;
  if (is_temporary(ending) && about.st_mtime + STALE_SECONDS < time(NULL)) unlinkat(folder, name, 0);
  if (strcmp(ending, ".bin") || !TSR_GROW(list->items, list->count, list->capacity)) return;
  entry *item = &list->items[list->count++];
  *item = (entry){.used = about.st_mtim, .bytes = (uint64_t)about.st_size};
  memcpy(item->name, name, sizeof item->name);
  list->bytes += item->bytes;
}

/* Removes what was not used for longest until the rest is within the limit; `kept` stays. */
static void make_room(const tsr_context *context, const char *kept) {
  const uint64_t limit = tsr_context_cache_bytes(context);
  entry_list list = {0};
  char *path = tsr_text_format("%s/programs", tsr_context_cache_folder(context));
  DIR *folder = path ? opendir(path) : NULL;
  size_t removed = 0;
  for (struct dirent *item; folder && (item = readdir(folder));) look_at(dirfd(folder), item->d_name, &list);
  if (list.bytes > limit) qsort(list.items, list.count, sizeof *list.items, oldest_first);
  for (size_t i = 0; i < list.count && list.bytes > limit; i++) {
    if (!strcmp(list.items[i].name, kept) ||
        (unlinkat(dirfd(folder), list.items[i].name, 0) && errno != ENOENT))
      continue;
    list.bytes -= list.items[i].bytes;
    removed++;
  }
  if (removed)
    tsr_log(context, TSR_LOG_DEBUG, "device", "removed %zu cache entries: the limit is %" PRIu64 " bytes",
            removed, limit);
  if (folder) closedir(folder);
  free(list.items);
  free(path);
}

/* ---- writing ---- */

/* An empty folder may stand in the way. */
static bool put_in_place(const char *temporary, const char *path) {
  return !rename(temporary, path) || (errno == EISDIR && !rmdir(path) && !rename(temporary, path));
}

/* mkstemp makes the file for this user alone, under a name that no other rank has. */
static bool store(const tsr_context *context, tsr_cache_key key, char *temporary, const char *path,
                  const void *payload, size_t bytes) {
  int file = make_folder(context) ? mkstemp(temporary) : -1;
  if (file < 0) return false;
  bool written = write_entry(file, key, payload, bytes);
  written = !close(file) && written && put_in_place(temporary, path);
  if (!written) unlink(temporary);
  return written;
}

void tsr_cache_write(const tsr_context *context, tsr_cache_key key, const void *payload, size_t bytes) {
  char *path = entry_path(context, key, ".bin"), *temporary = entry_path(context, key, ".XXXXXX");
  uint64_t limit = tsr_context_cache_bytes(context), whole = sizeof(entry_header) + (uint64_t)bytes;
  if (!path || !temporary) goto done;
  if (whole > limit) {
    tsr_log(context, TSR_LOG_DEBUG, "device",
            "%s is not stored: it takes %" PRIu64 " bytes, the limit of the whole cache is %" PRIu64, path,
            whole, limit);
  } else if (store(context, key, temporary, path, payload, bytes)) {
    tsr_log(context, TSR_LOG_DEBUG, "device", "stored %zu bytes in %s", bytes, path);
    make_room(context, strrchr(path, '/') + 1);
  } else {
    tsr_log(context, TSR_LOG_DEBUG, "device", "cannot store %s: %s", path, strerror(errno));
  }
done:
  free(path);
  free(temporary);
}

/* ---- locks ---- */

bool tsr_cache_lock_take(const tsr_context *context, tsr_cache_lock_kind kind, tsr_cache_key key,
                         double seconds, tsr_cache_lock *out) {
  const struct timespec pause = {.tv_nsec = 10000000};
  char *path = lock_path(context, kind, key);
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
