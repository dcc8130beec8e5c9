/* comm/shared_segment.c: makes a segment and maps those of the others. A segment is a file without a name, so
 * nothing is left behind whoever dies, and it counts against no file system: /dev/shm may be as small as it
 * likes. The others reach it through /proc. Its pages in front of the arena are allocated at once and those
 * of the arena when they are asked for, never by touching them: that would end in SIGBUS where there is no
 * memory. */
#define _GNU_SOURCE /* fallocate */
#include "comm/shared_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "base/clock.h"
#include "base/memory.h"

_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2,
               "atomics must work between processes");

/* All arenas of a host together must fit the address space of each process: 47 bits. */
static const uint64_t mapped_bytes_max = (uint64_t)1 << 45;

enum { EARLY_AT_ONCE = 32 };

static int make_file(void) {
#ifdef SYS_memfd_create
  enum { CLOSE_ON_EXEC = 1 };
  return (int)syscall(SYS_memfd_create, "tessera", CLOSE_ON_EXEC);
#else
  errno = ENOSYS;
  return -1;
#endif
}

int (*tsr_shared_make_file)(void) = make_file;

static uint64_t round_up(uint64_t bytes) {
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

static uint64_t physical_bytes(void) {
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : (uint64_t)1 << 30;
}

/* Differs from that of any other segment of the host; never 0. Also tells apart builds that lay out a segment
 * in other ways. */
static uint64_t make_mark(void) {
  uint64_t time = (uint64_t)(tsr_clock_seconds() * 1e9), process = (uint64_t)getpid();
  return ((time * 0x9e3779b97f4a7c15u) ^ (process << 32) ^ sizeof(tsr_shared_control)) | 1;
}

static tsr_status allocate_segment(tsr_shared *shared, tsr_error *error) {
  shared->file = tsr_shared_make_file();
  if (shared->file < 0)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "memfd_create failed: %s", strerror(errno));
  if (ftruncate(shared->file, (off_t)(shared->control_bytes + shared->arena_bytes)))
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "a segment of %llu bytes: %s",
                    (unsigned long long)(shared->control_bytes + shared->arena_bytes), strerror(errno));
  if (fallocate(shared->file, 0, 0, (off_t)shared->control_bytes))
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "%llu bytes for mailboxes: %s",
                    (unsigned long long)shared->control_bytes, strerror(errno));
  char *all = mmap(NULL, shared->control_bytes + shared->arena_bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_NORESERVE, shared->file, 0);
  if (all == MAP_FAILED)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "mapping %llu bytes: %s",
                    (unsigned long long)(shared->control_bytes + shared->arena_bytes), strerror(errno));
  shared->control = (tsr_shared_control *)all;
  shared->arena = all + shared->control_bytes;
  return TSR_OK;
}

static void fill_lists(tsr_shared *shared) {
  for (int i = 0; i < TSR_SHARED_RECORDS; i++) shared->free_records[i] = TSR_SHARED_RECORDS - 1 - (uint32_t)i;
  for (int i = 0; i < TSR_SHARED_LANES; i++) shared->free_lanes[i] = TSR_SHARED_LANES - 1 - (uint32_t)i;
  shared->free_record_count = TSR_SHARED_RECORDS;
  shared->free_lane_count = TSR_SHARED_LANES;
}

tsr_status tsr_shared_create(int members, int me, uint64_t arena_bytes, tsr_shared **out, tsr_error *error) {
  tsr_status status = TSR_OK;
  uint64_t limit = mapped_bytes_max / (uint64_t)members,
           wanted = arena_bytes ? arena_bytes : physical_bytes();
  tsr_shared *shared = tsr_calloc(1, sizeof *shared);
  if (!shared) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for shared memory's description");
  shared->members = members;
  shared->me = me;
  shared->file = -1;
  shared->control_bytes =
      round_up(sizeof(tsr_shared_control) + (uint64_t)members * sizeof(tsr_shared_mailbox));
  shared->arena_bytes = round_up(wanted < limit ? wanted : limit);
  shared->peers = tsr_calloc((size_t)members, sizeof *shared->peers);
  fill_lists(shared);
  if (!shared->peers || !tsr_shared_arena_init(shared) || !tsr_shared_grow_early(shared))
    TSR_THROW(TSR_ERROR_OUT_OF_MEMORY, "no memory for the mailboxes of %d processes", members);
  TSR_TRY(allocate_segment(shared, error));
  shared->control->mark = make_mark();
  *out = shared;
  return TSR_OK;
done:
  tsr_shared_destroy(&shared);
  return status;
}

void tsr_shared_get_offer(const tsr_shared *shared, tsr_shared_offer *out) {
  *out = (tsr_shared_offer){.mark = shared->control->mark,
                            .arena_bytes = shared->arena_bytes,
                            .pid = getpid(),
                            .file = shared->file,
                            .made = 1};
}

/* ---- joining ---- */

static void meet(tsr_shared *shared, int member, tsr_shared_control *control, const char *arena) {
  tsr_shared_peer *peer = &shared->peers[member];
  peer->control = control;
  peer->arena = arena;
  peer->out = &control->from[shared->me];
  peer->in = &shared->control->from[member];
}

/* Dumps of a process that died hold its own memory, not everybody's. */
static void spare_dump(void *memory, size_t bytes) {
#ifdef MADV_DONTDUMP
  (void)madvise(memory, bytes, MADV_DONTDUMP);
#else
  (void)memory, (void)bytes;
#endif
}

static tsr_status map_peer(tsr_shared *shared, int member, int file, const tsr_shared_offer *offer,
                           tsr_error *error) {
  const size_t control_bytes = shared->control_bytes, arena_bytes = offer->arena_bytes;
  struct stat facts;
  if (fstat(file, &facts) || facts.st_size != (off_t)(control_bytes + arena_bytes))
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "the segment of process %lld has another size than it said",
                    (long long)offer->pid);
  void *control = mmap(NULL, control_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  void *arena = control == MAP_FAILED ? MAP_FAILED
                                      : mmap(NULL, arena_bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file,
                                             (off_t)control_bytes);
  if (arena == MAP_FAILED) {
    tsr_fail(error, TSR_ERROR_UNSUPPORTED, "mapping the segment of process %lld, %llu bytes: %s",
             (long long)offer->pid, (unsigned long long)(control_bytes + arena_bytes), strerror(errno));
    if (control != MAP_FAILED) munmap(control, control_bytes);
    return TSR_ERROR_UNSUPPORTED;
  }
  spare_dump(control, control_bytes);
  spare_dump(arena, arena_bytes);
  meet(shared, member, control, arena);
  shared->peers[member].mapped_arena_bytes = arena_bytes;
  if (shared->peers[member].control->mark == offer->mark) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "the segment of process %lld is of another build",
                  (long long)offer->pid);
}

static tsr_status join_one(tsr_shared *shared, int member, const tsr_shared_offer *offer, tsr_error *error) {
  char path[64];
  if (offer->made != 1)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "process %lld has none", (long long)offer->pid);
  snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)offer->pid, (int)offer->file);
  int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "%s: %s", path, strerror(errno));
  tsr_status status = map_peer(shared, member, file, offer, error);
  close(file);
  return status;
}

tsr_status tsr_shared_join(tsr_shared *shared, const tsr_shared_offer *offers, tsr_error *error) {
  meet(shared, shared->me, shared->control, shared->arena);
  for (int member = 0; member < shared->members; member++)
    if (member != shared->me) TSR_RETURN_IF_FAILED(join_one(shared, member, &offers[member], error));
  return TSR_OK;
}

void tsr_shared_link(tsr_shared *const *all, int members) {
  for (int i = 0; i < members; i++)
    for (int j = 0; j < members; j++) meet(all[i], j, all[j]->control, all[j]->arena);
}

/* ---- the end ---- */

static void unmap_peer(const tsr_shared *shared, const tsr_shared_peer *peer) {
  if (!peer->mapped_arena_bytes) return;
  munmap(peer->control, shared->control_bytes);
  munmap((void *)peer->arena, peer->mapped_arena_bytes);
}

void tsr_shared_destroy(tsr_shared **out) {
  tsr_shared *shared = *out;
  if (!shared) return;
  for (int i = 0; shared->peers && i < shared->members; i++) unmap_peer(shared, &shared->peers[i]);
  tsr_shared_arena_finish(shared);
  if (shared->control) munmap(shared->control, shared->control_bytes + shared->arena_bytes);
  if (shared->file >= 0) close(shared->file);
  while (shared->early_blocks) {
    struct tsr_shared_early_block *block = shared->early_blocks;
    shared->early_blocks = block->next;
    free(block);
  }
  free(shared->peers);
  free(shared);
  *out = NULL;
}

bool tsr_shared_grow_early(tsr_shared *shared) {
  struct tsr_shared_early_block *block =
      tsr_malloc_pages(TSR_SHARED_LINE + EARLY_AT_ONCE * sizeof(tsr_shared_early));
  if (!block) return false;
  block->next = shared->early_blocks;
  shared->early_blocks = block;
  tsr_shared_early *entries = (tsr_shared_early *)((char *)block + TSR_SHARED_LINE);
  for (int i = 0; i < EARLY_AT_ONCE; i++) {
    entries[i].next = shared->spare;
    shared->spare = &entries[i];
  }
  return true;
}
