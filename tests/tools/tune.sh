#!/usr/bin/env bash
# tessera tune: candidates that hang, crash, compute wrong or do not build are left out; what is faster than what is in
# force is written, merged and used, else that is kept; --explain says so.
. "$(dirname "$0")/common.sh"

works tune --explain 64 64 64 --device host
grep -q '^variant *host ' "$work/out" || fail "no variant: $(cat "$work/out")"
works tune --device host --shapes 8x8x8 --budget 5s --json
holds 'd["schema"] == "tessera.tune/1" and d["products"][0]["complete"] and d["products"][0]["tried"] == 1'
holds 'd["products"][0]["current"]["variant"] == d["products"][0]["best"]["variant"]'
works tune --device host --shapes 8x8x8 --budget 5s
grep -q '^kept: ' "$work/out" || fail "not said that nothing was faster: $(cat "$work/out")"
[ ! -e "$TESSERA_TUNING" ] || fail "a row was written for what was in force already"
works tune --explain 64 64 64 --device host --json
holds 'd["schema"] == "tessera.explain/1" and d["row"] is None and d["why"] and d["variant"].startswith("host ")'

# Shapes for which there was no time are told, each in a line.
works tune --device host --shapes 8x8x8,8x8x9,8x8x10 --budget 0.0001s
[ "$(grep -cE '^ +8 +8 +(9|10)  not searched: the time was up; give --budget more$' "$work/out")" = 2 ] ||
  fail "shapes are missing: $(cat "$work/out")"
works tune --device host --shapes 8x8x8,8x8x9 --budget 0.0001s --json
holds '[p["k"] for p in d["not_searched"]] == [9] and d["not_searched"][0]["why"] and len(d["products"]) == 1'

# Where rows go is looked at before the search.
echo '{' >"$work/damaged.json"
: >"$work/empty.json"
refuses 1 "damaged.json: not JSON" tune --device host --shapes 8x8x8 --budget 1h -o "$work/damaged.json"
refuses 1 "cannot write '$work': Is a directory" tune --device host --shapes 8x8x8 --budget 1h -o "$work"
works tune --device host --shapes 8x8x8 --budget 1s -o "$work/empty.json"

# A result that is far off in one element is found. The host backend has no kernel to break.
has_device pocl || finish
kernels=$here/../../cl_kernels
mkdir "$work/kernels" "$work/none"
measure() { # a product of the reference kernel in TSR_KERNEL_PATH
  run tune --device pocl --candidate 'reference tile_m=4 tile_n=16' --shapes 131x70x50 --seconds 0.01
}
measure
holds 'd["schema"] == "tessera.candidate/1" and d["seconds"] > 0'
sed 's/REAL sum = 0;/REAL sum = m > 100 \&\& i == 130 \&\& j == 3 ? 1 : 0;/' "$kernels/gemm_reference.cl" \
  >"$work/kernels/gemm_reference.cl"
cmp -s "$kernels/gemm_reference.cl" "$work/kernels/gemm_reference.cl" && fail "the reference kernel was not changed"
TSR_KERNEL_PATH=$work/kernels measure
holds 'd["error"]["status"] == "TSR_ERROR_CHECK_FAILED" and "row 130" in d["error"]["message"]'

# A row in force whose blocking is known, a kernel that misbehaves on either side of it, and is slow with it.
works tune --explain 64 64 64 --device pocl
variant=$(sed -n 's/^variant *//p' "$work/out")
if [ "${variant%% *}" != panel ]; then
  case $(uname -m) in
  x86_64 | aarch64) fail "the default of a CPU is not of the panel family: $variant" && finish ;;
  *) [ "$failures" = 0 ] && skip "made for the panel family" || finish ;;
  esac
fi
give_rows() { # M:ROW_BLOCK...: rows for M x 64 x 64, of any device
  mkdir -p "$TESSERA_TUNING"
  python3 - "$variant" "$@" >"$TESSERA_TUNING/given.json" <<'PYTHON'
import json, sys
words = dict(word.split("=") for word in sys.argv[1].split()[1:] if not word.startswith("tuning="))
def row(m, row_block):
    variant = {"family": "panel", **{key: int(value) for key, value in words.items()},
               "stored_k_block": 256, "stored_row_block": row_block * int(words["tile_m"]), "stored_panels": 8}
    return {"match": {}, "types": "f32", "form": "nn", "m": m, "n": 64, "k": 64, "variant": variant,
            "provenance": {"gflops": 1}}
rows = [row(*map(int, text.split(":"))) for text in sys.argv[2:]]
print(json.dumps({"schema": "tessera.tuning/1", "rows": rows}))
PYTHON
}
tile_rows=$(echo "$variant" | tr ' ' '\n' | sed -n 's/^tile_m=//p')
rows=$((16 * tile_rows))
slow_kernel() { # EXTRA-CASES
  {
    cat <<CL
#define AS_STORED (!B_TRANSPOSED && !A_TRANSPOSED && B_PANEL)
$1
#if AS_STORED && K_BLOCK == 256 && ROW_BLOCK == $rows && PANELS_PER_GROUP == 8
static size_t slow(uint axis) { for (volatile uint i = 0; i < 100000; ) i++; return get_group_id(axis); }
#define get_group_id(axis) slow(axis)
#endif
CL
    cat "$kernels/gemm_panel.cl"
  } >"$work/kernels/gemm_panel.cl"
}
give_rows 64:16
slow_kernel "
#if AS_STORED && K_BLOCK > 256
#define get_group_id hang
#define get_global_id hang
static size_t hang(uint axis) { for (volatile uint i = 1; i; ) ; return 0; }
#elif AS_STORED && K_BLOCK < 256
#define get_group_id crash
#define get_global_id crash
static size_t crash(uint axis) { *(volatile global int *)16 = 1; return 0; }
#elif AS_STORED && ROW_BLOCK > $rows
#error \"refused by the test\"
#elif AS_STORED && ROW_BLOCK < $rows
#define get_group_id(axis) 1000000
#define get_global_id(axis) 1000000
#endif"
rm "$work/kernels/gemm_reference.cl"
export TSR_KERNEL_PATH=$work/kernels
works tune --device pocl --shapes 64x64x64 --budget 50s --deadline 15 --json
cp "$work/out" "$work/tuned"
holds 'len(d["products"]) == 1 and d["products"][0]["ratio"] > 1.5'
holds '" stored_k_block=256 " in d["products"][0]["current"]["variant"]'
holds '" stored_panels=8 " in d["products"][0]["current"]["variant"]'
holds '" stored_panels=8 " not in d["products"][0]["best"]["variant"]'
for why in 'hangs: not done' 'crashes: signal' 'refused|not compile|build' 'self-test'; do
  python3 - "$work/tuned" "$why" <<'PYTHON' || fail "no candidate failed with: $why"
import json, re, sys
failures = [f["why"] for f in json.load(open(sys.argv[1]))["products"][0]["failures"]]
if not any(re.search(sys.argv[2], why) for why in failures):
    print(failures)
    sys.exit(1)
PYTHON
done
unset TSR_KERNEL_PATH

# The row is there, and used.
rm "$TESSERA_TUNING/given.json"
cp "$TESSERA_TUNING"/*.json "$work/out"
holds 'd["schema"] == "tessera.tuning/1" and d["rows"][0]["m"] == 64 and d["rows"][0]["match"]["device"]'
holds 'd["rows"][0]["provenance"]["gflops"] > 0 and d["rows"][0]["provenance"]["driver"]'
works tune --explain 64 64 100 --device pocl
grep -q '^row *nn, m = 64, n = 64, k = 64: at distance 0.45, for ' "$work/out" || fail "$(cat "$work/out")"
grep -q ': 1 of the user' "$work/out" || fail "no row of the user: $(cat "$work/out")"
works run gemm 64 64 64 --device pocl --check
works bench gemm --device pocl --shapes 64x64x64 --seconds 0.02

# A plan made with other rows has another hash; a damaged file is a warning.
hash_of() {
  run plan gemm 64 64 64 --device pocl --json
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["hash"])' "$work/out"
}
with=$(hash_of)
[ "$with" = "$(hash_of)" ] || fail "two plans with the same rows differ"
without=$(TESSERA_TUNING=$work/none hash_of)
[ "$with" != "$without" ] || fail "the rows do not change the plan's hash"
echo '{' >"$TESSERA_TUNING/damaged.json"
works tune --explain 64 64 64 --device pocl
grep -q 'damaged.json: not JSON: line' "$work/err" || fail "no warning: $(cat "$work/err")"

# A kernel that the row of a user breaks is one line, and the default takes over.
rm -r "$TESSERA_TUNING"
give_rows 64:16
slow_kernel "
#if AS_STORED && ROW_BLOCK == $rows
#error \"refused by the test\"
#endif"
TSR_KERNEL_PATH=$work/kernels works bench gemm --device pocl --shapes 64x64x64 --seconds 0.02
# The driver's compiler says a line of its own.
[ "$(grep -vc 'error generated\.$' "$work/err")" = 1 ] || fail "not one line: $(cat "$work/err")"
grep -q 'is passed over: .*refused by the test.*; TSR_LOG=device:debug' "$work/err" || fail "not said: $(cat "$work/err")"

# --output writes there, and leaves the folder alone; what was found before a shape fails is written.
rm -r "$TESSERA_TUNING"
give_rows 64:16 1000:24
slow_kernel "
#if AS_STORED && ROW_BLOCK == 24 * $tile_rows
#error \"refused by the test\"
#endif"
export TSR_KERNEL_PATH=$work/kernels
ln -s rows.json "$work/link.json"
run tune --device pocl --shapes 64x64x64,1000x64x64,64x64x65 --budget 50s --output "$work/link.json"
[ "$code" = 1 ] || fail "the second shape fails: exit code $code, expected 1: $(cat "$work/out")"
grep -q "the variant in force, panel .* stored_row_block=$((24 * tile_rows)) " "$work/err" || fail "not said why: $(cat "$work/err")"
grep -q '^1 row written to ' "$work/out" || fail "the row is not told of: $(cat "$work/out")"
grep -qE '^ +64 +64 +65  not searched: the one before it failed$' "$work/out" || fail "not told: $(cat "$work/out")"
[ -L "$work/link.json" ] || fail "the link was replaced"
unset TSR_KERNEL_PATH
[ "$(ls "$TESSERA_TUNING")" = given.json ] || fail "the folder was written to: $(ls "$TESSERA_TUNING")"
cp "$work/rows.json" "$work/out"
holds 'len(d["rows"]) == 1 and d["rows"][0]["m"] == 64'

# Stopped when the fourth variant is tried, of which the second is the fast one: what was found is written, one line says
# so, and the program ends by the signal.
export TSR_KERNEL_PATH=$work/kernels
for signal in INT TERM; do
  rm -f "$work/rows.json"
  python3 - "$signal" "$work" "$tessera" tune --device pocl --shapes 64x64x64,64x64x65 --budget 5m -o "$work/rows.json" <<'PYTHON' ||
import signal, subprocess, sys, time
number = getattr(signal, "SIG" + sys.argv[1])
with open(sys.argv[2] + "/out", "w") as out, open(sys.argv[2] + "/err", "w") as err:
    tune = subprocess.Popen(sys.argv[3:], stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    seen, end = set(), time.time() + 100
    while len(seen) < 4 and time.time() < end and tune.poll() is None:
        seen |= set(open(f"/proc/{tune.pid}/task/{tune.pid}/children").read().split())
        time.sleep(0.01)
    tune.send_signal(number)
    sys.exit(tune.wait(60) != -number)
PYTHON
    fail "not ended by SIG$signal: $(cat "$work/out" "$work/err")"
  [ "$(cat "$work/err")" = "tessera tune: stopped by SIG$signal: 1 of 2 shapes were searched, 1 row written to $work/rows.json" ] ||
    fail "not one line that says so: $(cat "$work/err")"
  grep -qE '^ +64 +64 +64 .* stopped ' "$work/out" || fail "the search is not said to be stopped: $(cat "$work/out")"
  grep -q '64     65  not searched: tune was stopped$' "$work/out" || fail "not told: $(cat "$work/out")"
  cp "$work/rows.json" "$work/out"
  holds 'len(d["rows"]) == 1 and d["rows"][0]["k"] == 64'
done
unset TSR_KERNEL_PATH
refuses 1 "cannot write '/nowhere/rows.json'" tune --device pocl --shapes 8x8x8 --output /nowhere/rows.json
finish
