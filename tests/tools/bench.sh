#!/usr/bin/env bash
# tessera bench gemm: every type and form is measured and verified; yardsticks alternate with ours; wrong results and
# wrong usage are told.
. "$(dirname "$0")/common.sh"

device=host
has_device pocl && device=pocl
short=(bench gemm --device "$device" --seconds 0.02)

works "${short[@]}" --shapes 33x17x65,1x40x24 --json
holds 'd["schema"] == "tessera.bench/1" and d["types"] == "f32" and d["form"] == "nn"'
holds '[(p["m"], p["n"], p["k"]) for p in d["products"]] == [(33, 17, 65), (1, 40, 24)]'
holds 'all(r["verified"] and r["gflops"] > 0 for p in d["products"] for r in p["results"])'
holds 'all(p["clock"] in ("host", "device") and p["turns"] >= 3 and p["variant"] for p in d["products"])'
holds 'all(s["min"] <= s["q1"] <= s["median"] <= s["q3"] <= s["max"]
           for p in d["products"] for s in [p["results"][0]["seconds"]])'

for form in nt tn; do
  works "${short[@]}" --shapes 33x17x65 --form $form --json
  holds "d['form'] == '$form' and d['products'][0]['results'][0]['verified']"
done
works "${short[@]}" --shapes 33x17x65 --dtype f64 --json
holds 'd["types"] == "f64"'
if [ "$device" = pocl ]; then
  for dtype in f32xbf16 f32xf16 f32xi8 bf16; do
    works "${short[@]}" --shapes 21x50x40 --dtype $dtype --json
    holds "d['types'] == '$dtype' and d['products'][0]['results'][0]['verified']"
  done
  works "${short[@]}" --shapes 21x50x40 --dtype f32xi8 --form nt --json
  holds 'd["products"][0]["results"][0]["verified"]'
fi

# Cold: copies of the weight, 40 kB each.
works "${short[@]}" --shapes 1x100x100 --cold 400kB --json
holds 'd["cold_bytes"] == 400000'
refuses 1 "--cold 1.00 TB for each of 1 contender, but " "${short[@]}" --shapes 1x100x100 --cold 1TB
run "${short[@]}" --shapes 1x2x2 --cold 400MB
[ "$code" = 1 ] || fail "too many copies: exit code $code"
grep -q -e '--cold 400 MB would be 25000000 copies of a weight of 16 B, the limit is 65536: say less than 1.05 MB' \
  "$work/err" || fail "not said: $(cat "$work/err")"

# A file of shapes, and what is wrong with one.
printf '# two products\n 8 16 24\n\n5x6x7 # also like this\n' >"$work/shapes"
works "${short[@]}" --shapes "$work/shapes"
[ "$(grep -cE '^ +(8 +16 +24|5 +6 +7) ' "$work/out")" = 2 ] || fail "not two rows: $(cat "$work/out")"
printf '8 16 24\n8 16\n' >"$work/shapes"
run "${short[@]}" --shapes "$work/shapes"
[ "$code" = 1 ] || fail "a damaged file of shapes: exit code $code"
grep -q 'line 2: expected M N K' "$work/err" || fail "not said: $(cat "$work/err")"
run "${short[@]}" --shapes "$work" --json
holds 'd["error"]["status"] == "TSR_ERROR_IO"'

# Yardsticks that are built in alternate with ours; the others are refused in one line.
for name in openblas clblast; do
  run "${short[@]}" --shapes 64x48x32,1x48x32 --against $name --json
  if [ "$code" = 0 ]; then
    holds "[[r['name'] for r in p['results']] for p in d['products']] == [['ours', '$name']] * 2"
    holds 'all(p["results"][1]["verified"] and p["results"][1]["ratio"]["median"] > 0 for p in d["products"])'
    holds "d['summary'][0]['against'] == '$name' and d['summary'][0]['lowest'] <= d['summary'][0]['median']"
  else
    grep -qE 'built without|does not offer|it has .host. alone|not part of this build' "$work/err" ||
      fail "--against $name: $(cat "$work/err")"
  fi
done
run "${short[@]}" --shapes 64x48x32 --against openblas --json
if [ "$code" = 0 ]; then
  holds 'all(p["clock"] == "host" for p in d["products"])'
  works "${short[@]}" --shapes 64x48x32,1x30x50 --against openblas --form nt --dtype f64
  grep -q '^against openblas: median ratio ' "$work/out" || fail "no summary: $(cat "$work/out")"
  works "${short[@]}" --shapes 64x48x32 --against openblas --cpu-time --cores 1 --json
  holds 'd["cores"] == 1 and d["products"][0]["clock"] == "cpu"'
fi

refuses 1 "--cores is 1024" "${short[@]}" --shapes 4x4x4 --cores 1024
finish
