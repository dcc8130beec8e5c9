#!/usr/bin/env bash
# tessera plan with a cluster file: needs no device and no MPI.
. "$(dirname "$0")/common.sh"

works profile --device host -o "$work/host.json"
python3 "$here/make_cluster.py" 1 24000000000 "$work/host.json" >"$work/one.json"
python3 "$here/make_cluster.py" 4 24000000000 "$work/host.json" >"$work/four.json"
export OCL_ICD_VENDORS=$work/none PATH=$work/none:/usr/bin:/bin
job="gemm 512 130000 50000 --scale 64 --device-memory 24GB"

# shellcheck disable=SC2086
{
  run plan $job --cluster "$work/one.json" --json
  [ "$code" = 1 ] || fail "one device: exit code $code"
  holds 'd["feasible"] is False and d["error"]["status"] == "TSR_ERROR_INFEASIBLE" and d["reason"]'
  holds '"2 such devices" in d["error"]["message"]'
  run plan $job --cluster "$work/one.json" --backward --json
  holds '"3 such devices" in d["error"]["message"]'
  run plan $job --cluster "$work/one.json"
  [ "$code" = 1 ] || fail "one device: exit code $code"
  [ "$(wc -l <"$work/err")" = 1 ] || fail "not one line: $(cat "$work/err")"
  grep -q 'gemm 64 16250 6250' "$work/out" || fail "the scale is not said: $(head -n 2 "$work/out")"

  works plan $job --cluster "$work/four.json" --backward --json
}
holds 'd["schema"] == "tessera.plan/1" and d["feasible"] is True and "error" not in d'
holds '{"exact", "reason", "ranks", "steps", "predicted_seconds", "planning_seconds"} <= set(d)'
holds 'len(d["ranks"]) == 4 and all({"rank", "device", "share", "bytes"} <= set(r) for r in d["ranks"])'
holds 'all({"op", "layout", "collective", "bytes", "seconds", "bound_by"} <= set(s) for s in d["steps"])'
holds 'abs(sum(r["share"] for r in d["ranks"]) - 1) < 1e-6 and d["predicted_seconds"] > 0'
holds 'd["workload"]["dimensions"] == [64, 16250, 6250] and d["workload"]["scale"] == 64'
holds 'all(r["memory_bytes"] == 375000000 for r in d["ranks"])'

works plan gemm 512 130000 50000 --scale 64 --device-memory 24GB,24GB,16GB,8GB --backward \
  --cluster "$work/four.json" --json
holds 'd["ranks"][3]["share"] < d["ranks"][0]["share"]'
for weights in "bf16 2" "i8 4"; do
  works plan gemm 512 130000 50000 --scale 64 --device-memory 24GB --weights "${weights% *}" \
    --cluster "$work/four.json" --json
  holds "d['workload']['weights'] == '${weights% *}'"
  holds "abs(sum(r['lines']['weights'] for r in d['ranks']) * ${weights#* } / (4 * 16250 * 6250) - 1) < 5e-3"
done
for policy in never small auto; do # each name means what it says
  works plan ffn 64 384 1536 --replicate $policy --cluster "$work/four.json" --json
  holds "d['options']['replicate'] == '$policy'"
done
works plan ffn 64 384 1536 --cluster "$work/four.json" --explain
works plan ffn 64 384 1536 --gated --activation silu --sgd 0.1 --dtype f64 --cluster "$work/four.json"
works plan linear 64 384 1536 --backward --replicate auto --cluster "$work/four.json" -o "$work/plan.json"
python3 -m json.tool "$work/plan.json" >/dev/null || fail "-o is no JSON document"

refuses 1 'is named "w9"' plan ffn 64 384 1536 --cluster "$work/four.json" --weight w9=x.safetensors:y
refuses 1 "-n is 3, but the cluster '$work/four.json' has 4 members" plan gemm 4 4 4 -n 3 --cluster "$work/four.json"
refuses 1 "--device-memory names 2" plan gemm 4 4 4 --device-memory 1GB,2GB --cluster "$work/four.json"
refuses 1 "nowhere.json" plan gemm 4 4 4 --cluster "$work/nowhere.json"
echo '{"schema": "tessera.cluster/1"}' >"$work/bad.json"
refuses 1 "members" plan gemm 4 4 4 --cluster "$work/bad.json"
echo '{"schema": "tessera.cluster/2"}' >"$work/bad.json"
refuses 1 "tessera.cluster" plan gemm 4 4 4 --cluster "$work/bad.json"
run plan gemm 4 4 4 --cluster "$work/bad.json" --json
[ "$code" = 1 ] || fail "exit code $code"
holds 'd["schema"] == "tessera.plan/1" and d["error"]["status"] == "TSR_ERROR_MISMATCH" and d["error"]["message"]'
refuses 1 "the limit of a document" plan gemm 4 4 4 --cluster /dev/zero
for path in "$work/no/such/folder" "$work" "$work/four.json/x"; do
  refuses 1 "cannot write '$path'" plan linear 64 384 1536 --cluster "$work/four.json" -o "$path"
done
# A full disk leaves what was there; a device stays one; a link stays one.
echo before >"$work/kept.json"
(ulimit -f 1 && "$tessera" plan linear 64 384 1536 --cluster "$work/four.json" -o "$work/kept.json") \
  >"$work/out" 2>"$work/err"
[ $? = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] && [ "$(cat "$work/kept.json")" = before ] ||
  fail "a full disk: $(cat "$work/err")"
mkfifo "$work/pipe"
cat "$work/pipe" >"$work/passed.json" &
works plan linear 64 384 1536 --cluster "$work/four.json" -o "$work/pipe"
wait
[ -p "$work/pipe" ] || fail "a pipe was replaced by a file"
python3 -m json.tool "$work/passed.json" >/dev/null || fail "what came through a pipe is no document"
echo x >"$work/real.json"
ln -s real.json "$work/link.json"
works plan linear 64 384 1536 --cluster "$work/four.json" -o "$work/link.json"
[ -L "$work/link.json" ] && grep -q tessera.plan "$work/real.json" || fail "a link was replaced by a file"
mkdir "$work/far"
ln -s far/new.json "$work/early.json"
works plan linear 64 384 1536 --cluster "$work/four.json" -o "$work/early.json"
[ -L "$work/early.json" ] && grep -q tessera.plan "$work/far/new.json" || fail "a link was replaced by a file"
ln -s round.json "$work/round.json"
refuses 1 "levels of symbolic links" plan linear 64 384 1536 --cluster "$work/four.json" -o "$work/round.json"
works plan ffn 64 384 1536 --cluster "$work/four.json" --sgd 1 --json
documented plan graph cluster
TSR_LOG=nonsense run plan gemm 4 4 4 --cluster "$work/four.json" --json
holds 'd["error"]["status"] == "TSR_ERROR_INVALID_ARGUMENT" and d["feasible"] is False'
finish
