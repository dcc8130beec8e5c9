/* device/program_cache.h: small things that are dear to make, kept on disk: program binaries, verdicts of
 * self-tests. Losing an entry costs time and nothing else, so nothing here is an error.
 *
 * An entry is the file <cache folder>/programs/<key in hex>.bin: a header, then the payload. It is written
 * under another name and renamed, so ranks that start together never read half of one. An entry that is
 * damaged, or that another user owns (a binary is code), is passed over with a warning, and written anew.
 *
 * The entries together take at most tsr_context_cache_bytes(): a write that goes beyond removes those whose
 * last use (the file's time, which a read renews) is the oldest. Only the entry just written is safe from
 * that. One that another rank used a moment ago goes last but it goes, because a limit that everything fresh
 * may exceed is none: a tuner writes thousands in a minute. Whoever misses an entry makes it anew. Temporary
 * names that are an hour old belong to processes that were killed, and go too. */
#ifndef TSR_DEVICE_PROGRAM_CACHE_H
#define TSR_DEVICE_PROGRAM_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/context.h>

typedef struct tsr_cache_key {
  uint64_t half[2];
} tsr_cache_key;

/* Hashes what was hashed before (a device's fingerprint) with the parts; the bounds between parts count. */
tsr_cache_key tsr_cache_key_of(const uint64_t before[2], const char *const *parts, size_t count);

/* Reads an entry and renews its time; false if there is none. *payload is the caller's, to free(). */
bool tsr_cache_read(const tsr_context *context, tsr_cache_key key, void **payload, size_t *bytes);
/* Writes an entry, or logs at debug level why it cannot (it alone is beyond the limit, for instance). */
void tsr_cache_write(const tsr_context *context, tsr_cache_key key, const void *payload, size_t bytes);

/* Waits up to `seconds` for a lock, so that ranks that start together make an entry once and not each for
 * itself. False if another process holds it still, or there is no cache: go on without. The lock ends with
 * the process that holds it.
 *
 * Keys share a small number of lock files, so two keys may wait for one another. Whoever holds a program's
 * lock takes no other; whoever holds a device's may take a program's: nobody can wait for himself. */
typedef enum tsr_cache_lock_kind { TSR_CACHE_LOCK_DEVICE, TSR_CACHE_LOCK_PROGRAM } tsr_cache_lock_kind;
typedef struct tsr_cache_lock {
  int file; /* -1 = not held */
} tsr_cache_lock;
bool tsr_cache_lock_take(const tsr_context *context, tsr_cache_lock_kind kind, tsr_cache_key key,
                         double seconds, tsr_cache_lock *out);
void tsr_cache_lock_release(tsr_cache_lock *lock);

#endif
