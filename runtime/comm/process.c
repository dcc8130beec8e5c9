#define _GNU_SOURCE
#include "comm/process.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* State and start time of a process, the 3rd and 22nd field of its stat; false if there is no such process.
 * The name, the 2nd field, is in parentheses and may hold anything. */
static bool read_stat(int64_t pid, char *state, uint64_t *started) {
  char path[64], line[1024];
  snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
  FILE *file = fopen(path, "r");
  if (!file) return false;
  size_t bytes = fread(line, 1, sizeof line - 1, file);
  fclose(file);
  line[bytes] = 0;
  const char *field = strrchr(line, ')');
  if (!field || field[1] != ' ') return false;
  *state = field[2];
  field += 2;
  for (int i = 3; i < 22 && field; i++) {
    field = strchr(field, ' ');
    if (field) field++;
  }
  unsigned long long ticks;
  if (!field || sscanf(field, "%llu", &ticks) != 1) return false;
  *started = ticks;
  return true;
}

enum { WORDS = TSR_PROCESS_CORES / 64 };

static void find_cores(uint64_t *cores) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set)) return;
  for (int i = 0; i < TSR_PROCESS_CORES && i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &set)) cores[i / 64] |= (uint64_t)1 << i % 64;
}

void tsr_process_identify(tsr_process *out) {
  char place[256] = "", state;
  *out = (tsr_process){.pid = getpid()};
  find_cores(out->cores);
  FILE *boot = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (!boot) return;
  size_t bytes = fread(place, 1, 64, boot);
  fclose(boot);
  ssize_t more = readlink("/proc/self/ns/pid", place + bytes, sizeof place - bytes);
  if (!bytes || more <= 0 || !read_stat(out->pid, &state, &out->started)) return;
  bytes += (size_t)more;
  /* Containers with names of their own are hosts of their own. */
  if (bytes < sizeof place && gethostname(place + bytes, sizeof place - bytes) == 0)
    bytes += strnlen(place + bytes, sizeof place - bytes);
  out->host = XXH64(place, bytes, 1);
}

bool tsr_process_lives(const tsr_process *own, const tsr_process *other) {
  char state;
  uint64_t started;
  if (!own->host || own->host != other->host || !read_stat(other->pid, &state, &started)) return false;
  return started == other->started && strchr("RSDI", state) != NULL;
}

static int count_cores(const uint64_t *cores) {
  int count = 0;
  for (int i = 0; i < WORDS; i++) count += __builtin_popcountll(cores[i]);
  return count;
}

static bool is_within(const uint64_t *cores, const uint64_t *others) {
  for (int i = 0; i < WORDS; i++)
    if (cores[i] & ~others[i]) return false;
  return true;
}

/* Processes of own's host that can run on these cores alone. */
static int count_bound(const tsr_process *own, const tsr_process *all, int count, const uint64_t *cores) {
  int bound = 0;
  for (int i = 0; i < count; i++) bound += all[i].host == own->host && is_within(all[i].cores, cores);
  return bound;
}

bool tsr_process_crowded(const tsr_process *own, const tsr_process *all, int count) {
  uint64_t any[WORDS] = {0};
  for (int i = 0; i < count; i++) {
    if (all[i].host != own->host) continue;
    int cores = count_cores(all[i].cores);
    if (cores && count_bound(own, all, count, all[i].cores) > cores) return true;
    for (int j = 0; j < WORDS; j++) any[j] |= all[i].cores[j];
  }
  return count_cores(any) && count_bound(own, all, count, any) > count_cores(any);
}
