# common.sh: helpers of the tool's tests. Sourced with the path of the program as $1; exit code 77 skips a test.
# shellcheck shell=bash
set -u
tessera=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TESSERA_CACHE=$work/cache TESSERA_TUNING=$work/tuning
unset TSR_LOG
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

skip() {
  echo "skipped: $*"
  exit 77
}

# Ends the test.
finish() {
  echo "$failures failures"
  [ "$failures" = 0 ]
  exit
}

# Runs the program for at most 100 s; its output is in $work/out and $work/err, its exit code in $code.
run() {
  code=0
  timeout -k 5 100 "$tessera" "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
}

# The command must end with this code, and say one line on stderr that holds TEXT, and nothing on stdout.
refuses() { # CODE TEXT ARGUMENTS...
  local wanted=$1 text=$2
  shift 2
  run "$@"
  [ "$code" = "$wanted" ] || fail "tessera $*: exit code $code, expected $wanted; $(cat "$work/err")"
  [ "$(wc -l <"$work/err")" = 1 ] || fail "tessera $*: not one line: $(cat "$work/err")"
  grep -qF -e "$text" "$work/err" || fail "tessera $*: '$text' is not in: $(cat "$work/err")"
  [ ! -s "$work/out" ] || fail "tessera $*: something on stdout: $(head -c 300 "$work/out")"
}

# The command must succeed.
works() {
  run "$@"
  [ "$code" = 0 ] || fail "tessera $*: exit code $code: $(cat "$work/err")"
}

# $work/out must be one JSON document d for which the Python expression holds.
holds() {
  python3 - "$work/out" "$1" <<'PYTHON' || fail "not so: $1"
import json, sys
d = json.load(open(sys.argv[1]))
if not eval(sys.argv[2]):
    print(json.dumps(d)[:2000])
    sys.exit(1)
PYTHON
}

# Each key of the document in $work/out, but those below the keys named, is on the manual page of a subcommand, and in
# docs/schemas.md.
documented() { # SUBCOMMAND KEYS...
  python3 - "$work/out" "$here/../.." "$@" <<'PYTHON' || fail "keys of $1 --json that no reader can look up"
import json, re, sys
out, root, command, *leave_out = sys.argv[1:]
def keys(value):
    for key, below in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from [key] if isinstance(key, str) else []
        yield from () if key in leave_out else keys(below)
missing = 0
for path in f"{root}/tools/tessera-{command}.1", f"{root}/docs/schemas.md":
    text = open(path).read().replace("\\-", "-")
    for key in sorted(set(keys(json.load(open(out)))) - {"schema"}):
        if not re.search(rf"\b{key}\b", text):
            print(f"{path} lacks {key}")
            missing += 1
sys.exit(missing > 0)
PYTHON
}

has_device() {
  "$tessera" devices | grep -q "^$1:"
}

# Built with MPI, and an mpiexec to start ranks with.
has_mpi() {
  { command -v mpiexec.mpich || command -v mpiexec; } >/dev/null || return 1
  run profile --transport mpi --device host --json
  [ "$code" = 0 ]
}
