/* comm/shared_arena.c: who has which stretch of this process's arena. Pages are allocated when a stretch is
 * given and go back to the system when it is returned, so they are zero whenever they are given. */
#define _GNU_SOURCE /* fallocate, MADV_POPULATE_WRITE */
#include "comm/shared_inside.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"

bool tsr_shared_arena_init(tsr_shared *shared) {
  shared->blocks = tsr_calloc(1, sizeof *shared->blocks);
  if (!shared->blocks) return false;
  shared->blocks->bytes = shared->arena_bytes;
  return true;
}

void tsr_shared_arena_finish(tsr_shared *shared) {
  while (shared->blocks) {
    tsr_shared_block *block = shared->blocks;
    shared->blocks = block->next;
    free(block);
  }
}

/* Cuts the block after `bytes`; the rest becomes a free block. */
static bool split(tsr_shared_block *block, uint64_t bytes) {
  if (block->bytes == bytes) return true;
  tsr_shared_block *rest = tsr_calloc(1, sizeof *rest);
  if (!rest) return false;
  rest->offset = block->offset + bytes;
  rest->bytes = block->bytes - bytes;
  rest->next = block->next;
  rest->previous = block;
  if (rest->next) rest->next->previous = rest;
  block->next = rest;
  block->bytes = bytes;
  return true;
}

/* Takes the block behind into this one, if both are free. */
static void merge(tsr_shared_block *block) {
  tsr_shared_block *next = block ? block->next : NULL;
  if (!next || block->used || next->used) return;
  block->bytes += next->bytes;
  block->next = next->next;
  if (block->next) block->next->previous = block;
  free(next);
}

static void give_back(tsr_shared *shared, tsr_shared_block *block) {
  (void)!fallocate(shared->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                   (off_t)(shared->control_bytes + block->offset), (off_t)block->bytes);
  block->used = false;
  merge(block);
  merge(block->previous);
}

static bool allocate_pages(const tsr_shared *shared, const tsr_shared_block *block) {
  int code;
  do {
    code = fallocate(shared->file, 0, (off_t)(shared->control_bytes + block->offset), (off_t)block->bytes);
  } while (code && errno == EINTR);
  return !code;
}

void *tsr_shared_memory_create(tsr_shared *shared, size_t bytes) {
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  if (bytes > shared->arena_bytes) return NULL;
  const uint64_t wanted = bytes ? (bytes + page - 1) / page * page : page;
  tsr_shared_block *block = shared->blocks;
  while (block && (block->used || block->bytes < wanted)) block = block->next;
  if (!block || !split(block, wanted)) return NULL;
  block->used = true;
  if (!allocate_pages(shared, block)) {
    give_back(shared, block);
    return NULL;
  }
#ifdef MADV_POPULATE_WRITE /* now, rather than page by page in the first step; where it cannot, no harm */
  (void)madvise(shared->arena + block->offset, block->bytes, MADV_POPULATE_WRITE);
#endif
  return shared->arena + block->offset;
}

void tsr_shared_memory_destroy(tsr_shared *shared, void *memory) {
  if (!memory) return;
  tsr_shared_block *block = shared->blocks;
  while (block && shared->arena + block->offset != memory) block = block->next;
  assert(block && block->used);
  if (block) give_back(shared, block);
}
