#include "comm/process.h"

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

void tsr_process_identify(tsr_process *out) {
  char place[256] = "", state;
  *out = (tsr_process){.pid = getpid()};
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
