#!/usr/bin/env bash
# tessera run --trace: a JSON document in Chrome's trace format, one process for each rank.
. "$(dirname "$0")/common.sh"
trace=$work/trace.json

# The file of a run must be one document t for which the Python expression holds; X are its events, by rank.
traced() { # RANKS EXPRESSION
  python3 -m json.tool "$trace" >/dev/null || fail "no JSON"
  python3 - "$trace" "$1" "$2" <<'PYTHON' || fail "not so: $2"
import json, sys
t, ranks = json.load(open(sys.argv[1])), int(sys.argv[2])
events = t["traceEvents"]
X = [[e for e in events if e["ph"] == "X" and e["pid"] == rank] for rank in range(ranks)]
M = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
good = (t["otherData"]["schema"] == "tessera.trace/1" and {e["pid"] for e in events} == set(range(ranks))
        and all(M["process_name", rank, 0].startswith(f"rank {rank}: ") for rank in range(ranks))
        and all(("thread_name", rank, thread) in M for rank in range(ranks) for thread in (0, 1))
        and all(e["ts"] >= -0.001 and e["dur"] >= 0 and {"turn", "step", "layout"} <= set(e["args"]) for x in X for e in x))
if not good or not eval(sys.argv[3]):
    print(json.dumps(t)[:3000])
    sys.exit(1)
PYTHON
}

works run ffn 16 64 257 --device host --transport sim -n 3 --backward --check --steps 4 --trace "$trace"
grep -q '^check passed' "$work/out" || fail "no check beside the trace"
traced 3 'all({e["args"]["turn"] for e in x} == {0, 1, 2, 3} for x in X)'
traced 3 'all(any(e["name"].startswith("matmul ") and e["cat"] == "kernel" and e["tid"] == 0 for e in x) for x in X)'
traced 3 'all(any(e["cat"] == "collective" and e["tid"] == 1 and e["args"]["bytes"] > 0 for e in x) for x in X)'
traced 3 '{"bytes", "flops", "layout", "predicted_seconds"} <= set(X[0][0]["args"])'
traced 3 '[c["kernels"] for c in t["otherData"]["clocks"]] == ["host"] * 3'
works run gemm 64 64 64 --device host --sgd 0.1 --steps 2 --json --trace "$trace"
holds 'd["schema"] == "tessera.run/1" and len(d["losses"]) == 2'
traced 1 'len(X[0]) > 0'
works run gemm 64 64 64 --device host --trace /dev/null
if has_device pocl; then
  works run ffn 16 64 256 --device pocl --trace "$trace"
  traced 1 't["otherData"]["clocks"][0]["kernels"] == "device" and len(X[0]) > 0'
fi
if has_mpi; then
  works run ffn 64 64 256 --device host -n 2 --replicate never --trace "$trace"
  traced 2 'sum(len(x) > 0 for x in X) > 0 and len(t["otherData"]["clocks"]) == 2'
fi

# A name that needs escaping stays one document.
works run gemm 8 8 8 --device host --trace "$work/a \"b\".json"
python3 -m json.tool "$work/a \"b\".json" >/dev/null || fail "a file name with quotes"

# What cannot be written is said before anything runs; other commands have no such option.
for path in "$work/no/such/folder" "$work" "$work/out/x"; do
  refuses 1 "cannot write '$path'" run gemm 4 4 4 --device host --steps 1000000000 --trace "$path"
done
refuses 2 "unknown or ambiguous option --trace" plan gemm 4 4 4 --trace "$trace"
refuses 2 "--trace needs a value" run gemm 4 4 4 --trace
finish
