#!/usr/bin/env bash
# tessera run in one process: the document, contents from files, training, and what is refused.
. "$(dirname "$0")/common.sh"
data=$here/../data/minilm_ffn
weights=$data/weights.safetensors:encoder.layer.0
layer=(ffn 64 384 1536 --device host --transport sim
  --weight "w1=$weights.intermediate.dense.weight:T" --weight "b1=$weights.intermediate.dense.bias"
  --weight "w2=$weights.output.dense.weight:T" --weight "b2=$weights.output.dense.bias"
  --input "$data/reference.safetensors:input")

for ranks in 1 3; do
  works run gemm 13 257 31 --device host --transport sim -n $ranks --backward --check --json
  holds 'd["schema"] == "tessera.run/1" and d["check"]["passed"] is True and "error" not in d'
  holds '{"max_error", "bound", "detectable"} <= set(d["check"])'
  holds "len(d['ranks']) == $ranks and d['measured_seconds'] > 0 and d['gflops'] > 0"
  holds 'all({"rank", "device", "driver", "share", "bytes_planned", "bytes_allocated", "bytes_sent"} <= set(r)
             for r in d["ranks"])'
  holds 'all(r["bytes_planned"] == r["bytes_allocated"] for r in d["ranks"])'
  [ ! -s "$work/err" ] || fail "something on stderr: $(cat "$work/err")"
done
# Every key can be looked up, also where something went wrong; and what runs the host device has a name.
for workload in "gemm 4 4 4 --scale 4 --weights i8" "linear 4 4 4 --backward" "ffn 4 4 4 --sgd 0.1"; do
  # shellcheck disable=SC2086
  works run $workload --device host --check --json
  documented run
  holds 'd["ranks"][0]["driver"].startswith("Tessera ")'
done
run run gemm 4 4 4 --device nothing --json
documented run

works run linear 7 13 17 --device host --dtype f64 --check
grep -q '^check passed' "$work/out" || fail "no check in the table: $(cat "$work/out")"

# A real layer, and its training.
for ranks in 1 4; do
  works run "${layer[@]}" -n $ranks --check -o "$work/output.safetensors"
  python3 "$here/../../tools/dev/compare.py" output "$data/reference.safetensors" "$work/output.safetensors" ||
    fail "output on $ranks ranks"
  works run "${layer[@]}" -n $ranks --sgd 1.5 --target "$data/reference.safetensors:target" --steps 10 --json
  cp "$work/out" "$work/sgd$ranks.json"
done
python3 "$here/../../tools/dev/compare.py" losses "$data/sgd.json" "$work/sgd1.json" "$work/sgd4.json" || fail losses

# The same layer with narrow weights: off by what they round (nothing in f16, in which the file holds them), the
# same on any number of ranks.
while read -r weights least most; do
  for ranks in 1 3; do
    works run "${layer[@]}" -n $ranks --weights "$weights" --check --json -o "$work/narrow$ranks.safetensors"
    holds "d['workload']['weights'] == '$weights' and d['check']['passed'] is True"
    holds "d['check']['detectable'] < 1"
    holds 'all(r["bytes_planned"] == r["bytes_allocated"] for r in d["ranks"])'
  done
  python3 - "$here/../../tools/dev" "$data/reference.safetensors" "$work" "$least" "$most" <<'PYTHON' ||
import sys
sys.path.insert(0, sys.argv[1])
from compare import tensor
wanted, one, three = tensor(sys.argv[2], "output"), *(tensor(f"{sys.argv[3]}/narrow{n}.safetensors", "y") for n in (1, 3))
largest = max(map(abs, wanted))
off = [max(abs(a - b) for a, b in zip(x, y)) / largest for x, y in ((wanted, one), (wanted, three), (one, three))]
print("off by", off)
sys.exit(not (float(sys.argv[4]) < off[0] < float(sys.argv[5]) and off[2] < 1e-5))
PYTHON
    fail "the layer with weights in $weights"
done <<'TABLE'
f16 0 1e-6
bf16 1e-3 1e-2
i8 1e-2 0.2
TABLE

# Whole numbers and factors from files are taken as they are, whole numbers without factors are refused.
python3 - "$work/i8.safetensors" "$work/a.npy" <<'PYTHON'
import json, struct, sys
head = json.dumps({"b": {"dtype": "I8", "shape": [3, 2], "data_offsets": [0, 6]},
                   "s": {"dtype": "F32", "shape": [2], "data_offsets": [6, 14]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + struct.pack("<6b2f", 1, -2, 3, 4, -5, 127, .5, 2))
head = b"{'descr': '|i1', 'fortran_order': False, 'shape': (1, 3), }\n"
open(sys.argv[2], "wb").write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + struct.pack("<3b", 1, 2, -3))
PYTHON
whole=(run gemm 1 2 3 --device host --weights i8 --weight "b=$work/i8.safetensors:b" --input "$work/a.npy")
works "${whole[@]}" --weight "b_scale=$work/i8.safetensors:s" -o "$work/c.safetensors"
python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); from compare import tensor
sys.exit(tensor(sys.argv[2], "c") != (11, -750))' "$here/../../tools/dev" "$work/c.safetensors" || fail "i8 from a file"
refuses 1 "add them (tessera run: --weight b_scale=FILE)" "${whole[@]}"
sed 's/(1, 3)/(3, 1)/' "$work/a.npy" >"$work/turned.npy"
refuses 1 "$work/turned.npy holds [3, 1]" run gemm 1 2 3 --device host --input "$work/turned.npy"

# Plans that are kept.
works plan gemm 64 256 128 --device host --transport sim -n 2 -o "$work/plan.json"
works run gemm 64 256 128 --device host --transport sim -n 2 --plan "$work/plan.json" --check
refuses 1 "is for another computation" run gemm 64 256 129 --device host --transport sim -n 2 --plan "$work/plan.json"
# Shapes and names are not all that a computation is.
works plan ffn 8 16 32 --activation relu --device host --transport sim -n 2 -o "$work/relu.json"
works run ffn 8 16 32 --activation relu --device host --transport sim -n 2 --plan "$work/relu.json" --check
refuses 1 "is for another computation" run ffn 8 16 32 --device host --transport sim -n 2 --plan "$work/relu.json"
works plan ffn 8 16 32 --sgd 0.5 --device host --transport sim -n 2 -o "$work/sgd.json"
refuses 1 "is for another computation" run ffn 8 16 32 --sgd 0.25 --device host --transport sim -n 2 --plan "$work/sgd.json"
works plan conv 2 4 8 8 4 3 3 --padding 1 --stride 2 --device host --transport sim -n 2 -o "$work/conv.json"
refuses 1 "is for another computation" run conv 2 4 8 8 4 3 3 --padding 2 --stride 3 --device host --transport sim -n 2 \
  --plan "$work/conv.json"
refuses 1 "is for 2 members, but there are 3 ranks" run gemm 64 256 128 --device host --transport sim -n 3 \
  --plan "$work/plan.json"
if has_device pocl; then
  run run gemm 64 256 128 --device pocl --transport sim -n 2 --plan "$work/plan.json" --json
  [ "$code" = 1 ] || fail "a plan for another device: exit code $code"
  holds 'd["error"]["status"] == "TSR_ERROR_MISMATCH"'
fi

# Wrong contents.
file=$data/weights.safetensors
refuses 1 "encoder.layer.0.output.dense.bias" run ffn 64 384 1536 --device host \
  --weight "b2=$file:encoder.layer.0.output.dense.bis"
refuses 1 "w2" run ffn 64 384 1536 --device host --weight "w3=$file:encoder.layer.0.output.dense.weight"
refuses 1 "given twice" run ffn 64 384 1536 --device host --input "$data/reference.safetensors:input" \
  --weight "x=$data/reference.safetensors:input"
refuses 1 "'y' is computed" run ffn 64 384 1536 --device host --weight "y=$data/reference.safetensors:output"
refuses 1 "names no tensor" run ffn 64 384 1536 --device host --input "$data/reference.safetensors"
refuses 1 "expected NAME=FILE" run ffn 64 384 1536 --device host --weight w1
refuses 1 "384" run ffn 64 384 1537 --device host --weight "w1=$file:encoder.layer.0.intermediate.dense.weight:T"
refuses 1 "nowhere.npy" run ffn 64 384 1536 --device host --input "$work/nowhere.npy"
head -c 100000 "$file" >"$work/short.safetensors"
refuses 1 "short.safetensors" run ffn 64 384 1536 --device host \
  --weight "b2=$work/short.safetensors:encoder.layer.0.output.dense.bias"
refuses 1 "is named \"b x\"" run gemm 4 4 4 --device host --weight $'b\nx=FILE.npy'
for path in "$work/no/such/folder" "$work" "$file/x"; do
  refuses 1 "cannot write '$path'" run gemm 4 4 4 --device host -o "$path"
done
(ulimit -f 1 && "$tessera" run gemm 64 64 64 --device host -o "$work/limited") >"$work/out" 2>"$work/err"
[ $? = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] || fail "a file above the limit: $(cat "$work/err")"
[ -z "$(find "$work" -name 'limited*')" ] || fail "a part of a file is left"
# Two outputs to one file, however it is spelled, whether it is there or not.
echo x >"$work/there"
ln -s there "$work/to_there"
ln -s not_there "$work/to_not_there"
mkdir "$work/folder"
for pair in there:there there:to_there there:folder/../there not_there:to_not_there "not_there:folder/../not_there"; do
  refuses 2 "are one file: give each its own" run gemm 4 4 4 --device host -o "$work/${pair%:*}" --trace "$work/${pair#*:}"
done
[ "$(cat "$work/there")" = x ] && [ ! -e "$work/not_there" ] || fail "something was written"
"$tessera" run gemm 4 4 4 --device host -o "$work/printed" >"$work/printed" 2>"$work/err"
{ [ $? = 2 ] && grep -q "is the file that stdout goes to" "$work/err"; } || fail "stdout was replaced: $(cat "$work/err")"
works run gemm 4 4 4 --device host -o "$work/to_not_there" --trace "$work/to_there"
[ -L "$work/to_not_there" ] && [ -L "$work/to_there" ] && [ -s "$work/not_there" ] || fail "links were replaced"
python3 -m json.tool "$work/there" >/dev/null || fail "the trace did not go through its link"
works run gemm 4 4 4 --device host -o /dev/null --trace /dev/null

refuses 1 "no device matches 'nothing'" run gemm 4 4 4 --device nothing
refuses 1 "index 99" run gemm 4 4 4 --device host:99
# What cannot be verified does not pass, and what diverges says so.
python3 - "$work/nan.safetensors" <<'PYTHON'
import json, struct, sys
head = json.dumps({"b": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}).encode()
head += b" " * (-len(head) % 8)
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + struct.pack("<16f", *[float("nan")] * 16))
PYTHON
run run gemm 4 4 4 --device host --weight "b=$work/nan.safetensors:b" --check
{ [ "$code" = 1 ] && grep -q "nothing could be verified" "$work/err"; } || fail "NaN weights pass: $code"
# Some that are not finite are counted; numbers that become so are refused.
python3 - "$work/large.safetensors" <<'PYTHON'
import json, struct, sys
head = json.dumps({n: {"dtype": "F32", "shape": [4, 4], "data_offsets": [64 * i, 64 * i + 64]}
                   for i, n in enumerate(("large", "inf"))}).encode()
large, inf = ([float(i) for i in range(16)] for _ in range(2))
large[6], large[9], inf[6] = 65520., -1e30, float("inf")
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + struct.pack("<32f", *large, *inf))
PYTHON
inf=(run gemm 4 4 4 --device host --weights f16 --weight "b=$work/large.safetensors:inf" --check)
works "${inf[@]}" --json
holds 'd["check"]["passed"] and d["check"]["not_finite"] == 4 + 4 and d["check"]["compared"] == 4 + 16'
works "${inf[@]}"
grep -q '^check: 8 of 20 comparisons were of numbers that are not finite' "$work/out" || fail "$(cat "$work/out")"
large=(run gemm 4 4 4 --device host --weight "b=$work/large.safetensors:large")
refuses 1 'value "b": element (1, 2) is 65520, but f16 holds at most 65504: keep it in bf16 or f32' "${large[@]}" \
  --weights f16
refuses 1 'value "b": element (2, 1) is -1.00000002e+30, but f16' "${large[@]}" --weights f16 -n 2 --transport sim
works "${large[@]}" --weights bf16 --check
# Every algorithm is right, and a narrow wire is within its own bound, which is said.
for name in direct doubling scattered ring hierarchical tree; do
  works run ffn 24 32 48 --backward --device host --transport sim -n 3 --replicate never --collective "$name" --check
done
wire=(run ffn 24 32 48 --device host --transport sim -n 2 --replicate never --wire bf16 --check)
works "${wire[@]}" --json
holds 'd["check"]["passed"] and 2**-8 <= d["check"]["wire_error"] < 2**-5 and d["check"]["max_error"] > 1e-5'
works "${wire[@]}"
grep -q '^check: the narrow wire may add' "$work/out" || fail "$(cat "$work/out")"
refuses 2 "expected auto, direct" run gemm 8 8 8 --device host --collective best
run run ffn 64 64 128 --device host --sgd 1e20 --steps 5
{ [ "$code" = 1 ] && grep -q "training diverged" "$work/err"; } || fail "a diverged loss passes: $code"
refuses 1 "rank 1 is short by" run gemm 64 256 128 --device host --transport sim -n 2 --device-memory 30kB,1kB
finish
