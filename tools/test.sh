#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test suite; ends with "N passed, N failed, N skipped".
#   tools/test.sh           everything: also sanitizers, clang, and builds without MPI and without CLBlast
#   tools/test.sh --quick   the first build only, without the suite "slow"
#   tools/test.sh --vendor-checks
#                           only: every GPU kernel through the vendors' offline compilers that Debian has
set -eu
cd "$(dirname "$0")/.."
export DEBIAN_FRONTEND=noninteractive

quick=no vendor=no
case "${1:-}" in
  "") ;;
  --quick) quick=yes ;;
  --vendor-checks) vendor=yes ;;
  *) echo "test.sh: unknown option '$1'; usage: tools/test.sh [--quick | --vendor-checks]" >&2; exit 2 ;;
esac

jobs=${TESSERA_JOBS:-2}
passed=0 failed=0 skipped=0 failures=

headline() {
  printf '\n== %s\n' "$*"
}

# Counts one check that is no Meson test.
count() { # NAME passed|failed|skipped
  echo "$1: $2"
  case $2 in
    passed) passed=$((passed + 1)) ;;
    skipped) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) failures="$failures
  $1" ;;
  esac
}

# Configures and builds a folder; false, and counted, if that fails.
build() { # FOLDER OPTIONS...
  local folder=$1
  if bash tools/dev/configure.sh "$@" && ninja -C "$folder" -j "$jobs" --quiet; then
    count "$folder: build" passed
  else
    count "$folder: build" failed
    return 1
  fi
}

# The names of a folder's tests whose results are among those given, from Meson's log.
results() { # FOLDER RESULT...
  python3 - "$@" <<'PYTHON'
import json, sys
for line in open(sys.argv[1] + "/meson-logs/testlog.json"):
    test = json.loads(line)
    if test["result"] in sys.argv[2:]:
        print(test["name"])
PYTHON
}

# Runs suites of a built folder and counts their tests.
run_tests() { # FOLDER MESON-TEST-OPTIONS...
  local folder=$1 bad
  shift
  rm -f "$folder/meson-logs/testlog.json"
  meson test -C "$folder" --no-rebuild --print-errorlogs "$@" || true # counted below
  if [ ! -s "$folder/meson-logs/testlog.json" ]; then
    count "$folder: no test was run" failed
    return
  fi
  bad=$(results "$folder" FAIL TIMEOUT ERROR INTERRUPT UNEXPECTEDPASS)
  passed=$((passed + $(results "$folder" OK EXPECTEDFAIL | wc -l)))
  skipped=$((skipped + $(results "$folder" SKIP | wc -l)))
  [ -z "$bad" ] && return
  failed=$((failed + $(echo "$bad" | wc -l)))
  failures="$failures
$(echo "$bad" | sed "s|^|  $folder: |")"
}

# Versions of clang-format disagree about details: the sources are formatted by that of Debian 12.
check_format() {
  local version bad=
  version=$(clang-format --version 2>/dev/null | grep -o 'version [0-9]*' | head -n 1)
  if [ "$version" != "version 14" ]; then
    count "format (needs clang-format 14, here: ${version:-none})" skipped
    return
  fi
  for file in $(find include runtime backends tools tests examples -name '*.[ch]' | sort); do
    clang-format --style=file "$file" | cmp -s - "$file" || bad="$bad $file"
  done
  [ -z "$bad" ] || echo "not formatted; clang-format -i --style=file$bad"
  if [ -z "$bad" ]; then count format passed; else count format failed; fi
}

check_manual() {
  local page problems
  if ! command -v groff >/dev/null; then
    count "manual pages (need groff)" skipped
    return
  fi
  for page in tools/*.1; do
    problems=$(groff -man -ww -z -Tutf8 "$page" 2>&1)
    [ -z "$problems" ] || { echo "$problems"; count "manual page $page" failed; return; }
  done
  count "manual pages" passed
}

# The last line, and whether all is well.
finish() {
  [ -z "$failures" ] || printf '\nfailed:%s\n' "$failures"
  printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" = 0 ]
}

if [ $vendor = yes ]; then
  bash tools/dev/install.sh vendor
  headline "kernels through vendors' offline compilers"
  if bash tools/dev/configure.sh build-vendor -Dtests=auto; then
    run_tests build-vendor --suite vendor
  else
    count "build-vendor: configuration" failed
  fi
  finish
  exit
fi

bash tools/dev/install.sh test

headline "build, warnings as errors, gcc"
if build build-test --buildtype=debugoptimized --werror -Dtests=enabled; then
  if [ $quick = yes ]; then run_tests build-test --no-suite slow; else run_tests build-test; fi
fi
headline "format and manual pages"
check_format
check_manual

if [ $quick = no ]; then
  headline "clang, warnings as errors"
  if command -v clang >/dev/null; then
    CC=clang build build-clang --werror -Dtests=enabled && run_tests build-clang --suite unit
  else
    count "build-clang (needs clang)" skipped
  fi

  headline "without MPI"
  build build-no-mpi --werror -Dmpi=disabled -Dtests=enabled && run_tests build-no-mpi --no-suite slow --no-suite kernels

  headline "without CLBlast"
  build build-no-clblast --werror -Dclblast=disabled -Dtests=enabled &&
    run_tests build-no-clblast --suite kernels --suite tools --no-suite slow

  headline "address and undefined behaviour sanitizers, reduced matrix"
  # Drivers keep what they have until the process ends: that is theirs, and no leak of ours.
  export ASAN_OPTIONS=detect_leaks=1:fast_unwind_on_malloc=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  export LSAN_OPTIONS=suppressions=$PWD/tools/dev/leaks.txt:print_suppressions=0
  export TSR_TEST_SMALL=1
  # Intel's GPU driver opens libraries in a way that sanitizers refuse, wherever it is installed: PoCL alone.
  [ ! -f /etc/OpenCL/vendors/pocl.icd ] || export OCL_ICD_VENDORS=/etc/OpenCL/vendors/pocl.icd
  if build build-sanitize --buildtype=debugoptimized --werror -Db_sanitize=address,undefined -Dtests=enabled; then
    run_tests build-sanitize --suite unit --suite kernels --suite comm --suite exec --no-suite slow -t 4
    run_tests build-sanitize -t 4 test_session test_product test_program_cache test_map_reduce
  fi
fi

finish
