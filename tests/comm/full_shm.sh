#!/bin/sh
# Shared memory where /dev/shm is full: a segment is no file of a file system. Usage: full_shm.sh TEST_SHARED. 77 =
# skipped: no right to mount one of 64 KiB for this test alone.
unshare --mount true 2>/dev/null || { echo "skipped: no right to a mount namespace"; exit 77; }
exec unshare --mount sh -c '
  mount -t tmpfs -o size=64k none /dev/shm || { echo "skipped: no right to mount"; exit 77; }
  head -c 1000000 /dev/zero >/dev/shm/all 2>/dev/null && { echo "/dev/shm is not full"; exit 1; }
  exec "$0"' "$1"
