#!/bin/sh
# Every public header compiles alone, as C11 and as C++17, without a warning: check.sh SOURCE_ROOT
set -eu
root=$1
status=0
for header in "$root"/include/tessera/*.h; do
  name=$(basename "$header")
  flags=
  if [ "$name" = mpi.h ]; then
    flags=$(pkg-config --cflags mpich 2>/dev/null) || { echo "skipped: $name (no MPI)"; continue; }
  fi
  for compiler in "${CC:-cc} -std=c11 -xc -Wstrict-prototypes" "${CXX:-c++} -std=c++17 -xc++"; do
    if ! command -v "${compiler%% *}" >/dev/null; then
      echo "skipped: $name with ${compiler%% *} (not installed)"
      continue
    fi
    # shellcheck disable=SC2086
    if ! echo "#include <tessera/$name>" | $compiler -Wall -Wextra -Wpedantic -Werror $flags -I"$root/include" -fsyntax-only -; then
      echo "failed: $name with $compiler"
      status=1
    fi
  done
done
exit $status
