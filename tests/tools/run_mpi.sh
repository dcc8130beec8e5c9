#!/usr/bin/env bash
# tessera run with MPI: it starts mpiexec itself, or finds itself under one.
. "$(dirname "$0")/common.sh"
has_mpi || skip "no MPI"
mpiexec=$(command -v mpiexec.mpich || command -v mpiexec)

for ranks in 1 2 3; do
  works run ffn 16 64 257 --device host -n $ranks --backward --check --json
  holds "len(d['ranks']) == $ranks and d['check']['passed']"
done
holds 'd["transport"] == "mpi"'
works plan ffn 16 64 257 --device host -n 3 -o "$work/plan.json"
works run ffn 16 64 257 --device host -n 3 --plan "$work/plan.json" --check

# Under an mpiexec of somebody else.
code=0
timeout -k 5 100 "$mpiexec" -n 3 "$tessera" run gemm 64 65 66 --device host --check --json \
  >"$work/out" 2>"$work/err" </dev/null || code=$?
[ "$code" = 0 ] || fail "under mpiexec: exit code $code: $(cat "$work/err")"
holds 'len(d["ranks"]) == 3 and d["check"]["passed"]'
timeout -k 5 100 "$mpiexec" -n 2 "$tessera" run gemm 64 65 66 --device host -n 3 >"$work/out" 2>"$work/err" </dev/null &&
  fail "-n 3 under mpiexec -n 2 is no error"
[ "$(grep -c 'tessera run: -n is 3, but mpiexec started 2' "$work/err")" = 1 ] || fail "not said once: $(cat "$work/err")"

# Ranks that were started differently: one line, no wrong result, and nobody waits.
differ() { # CODES TEXT, and the arguments of rank 1; rank 0 has those of $base
  local codes=$1 text=$2
  shift 2
  code=0
  timeout -k 5 60 "$mpiexec" -n 1 "$tessera" "${base[@]}" : -n 1 "$tessera" "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
  [[ $codes == *$code* ]] || fail "rank 1 with $*: exit code $code, expected $codes; $(cat "$work/err")"
  [ "$(wc -l <"$work/err")" = 1 ] && grep -qF -e "$text" "$work/err" || fail "rank 1 with $*: $(cat "$work/err")"
  [ ! -s "$work/out" ] || fail "rank 1 with $*: something on stdout: $(head -c 300 "$work/out")"
}
base=(run gemm 8 16 32 --device host --steps 3)
differ 1 "rank 1: started with '--steps 4', but rank 0 with '--steps 3'" run gemm 8 16 32 --device host --steps 4
differ 1 "rank 1: started with '--check', which rank 0 has not" "${base[@]}" --check
differ 1 "rank 1: started with '--output', which rank 0 has not" "${base[@]}" -o "$work/c.safetensors"
differ 1 "rank 1: started without '--steps 3', which rank 0 has" run gemm 8 16 32 --device host
differ 1 "rank 1: started with 'run gemm 8 16 33'" run gemm 8 16 33 --device host --steps 3
differ 1 "rank 1: started with 'profile'" profile --device host
differ 13 "rank 1: -s/--steps is 'x'" run gemm 8 16 32 --device host --steps x
differ 13 "rank 1: unknown command 'rnu'" rnu
base=(run gemm 8 16 32 --device host --steps x)
differ 13 "-s/--steps is 'x', expected" run gemm 8 16 32 --device host
differ 2 "-s/--steps is 'x', expected" "${base[@]}"
base=(run gemm 8 16 32 --device host)
differ 1 "rank 1: started with '--weight b', which rank 0 has not" "${base[@]}" -w "b=$work/nowhere.npy"
code=0
timeout -k 5 60 "$mpiexec" -n 1 "$tessera" run gemm 8 16 32 --device host -s 3 : -n 1 "$tessera" run --steps 3 --device=host gemm \
  8 16 32 >"$work/out" 2>"$work/err" </dev/null || code=$?
[ "$code" = 0 ] || fail "the same in other words: $code, $(cat "$work/err")"

# A rank that never starts: the others say so, and end.
code=0
timeout -k 5 60 "$mpiexec" -n 1 "$tessera" run gemm 8 16 32 --device host --deadline 1 : -n 1 sleep 20 \
  >"$work/out" 2>"$work/err" </dev/null || code=$?
[ "$code" != 0 ] && grep -q 'in MPI_Init still after 10 s: ended, because not every rank has started' "$work/err" ||
  fail "a rank that does not start: $code, $(cat "$work/err")"
[ "$(PMI_RANK=5 "$tessera" run gemm 4 4 4 --device host --stp 2>&1 | wc -l)" = 1 ] || fail "PMI_RANK without PMI_SIZE is silent"

# Every rank ends, and one line says why.
refuses 1 "no device matches 'nothing'" run gemm 64 65 66 --device host,nothing -n 2
refuses 1 "rank 1" run gemm 64 65 66 --device host,nothing -n 2
refuses 1 "nowhere.npy" run gemm 64 65 66 --device host -n 2 --input "$work/nowhere.npy"
refuses 1 "is for 3 members" run ffn 16 64 257 --device host -n 2 --plan "$work/plan.json"
run run gemm 64 65 66 --device host,nothing -n 2 --json
[ "$code" = 1 ] || fail "exit code $code"
holds 'd["error"]["rank"] == 1 and d["error"]["status"] == "TSR_ERROR_NOT_FOUND"'

# A terminal that goes away takes all ranks with it.
setsid "$tessera" run gemm 61 1067 1071 --device host -n 2 --steps 1000000 >/dev/null 2>&1 </dev/null &
sleep 3
kill -HUP -- "-$!"
code=0
wait $! || code=$?
[ "$code" = 129 ] || fail "SIGHUP: exit code $code, expected 129"
for _ in $(seq 20); do
  pgrep -f 'tessera run .*gemm 61 1067 1071' >/dev/null || break
  sleep 0.5
done
! pgrep -f 'tessera run .*gemm 61 1067 1071' >"$work/left" || fail "SIGHUP: left: $(cat "$work/left")"

# Nobody to start the ranks with, and nowhere to report to.
code=0
PATH=$work "$tessera" run gemm 4 4 4 --device host -n 2 --json >"$work/out" 2>"$work/err" </dev/null || code=$?
[ "$code" = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] || fail "no mpiexec: $code, $(cat "$work/err")"
holds 'd["schema"] == "tessera.run/1" and d["error"]["status"] == "TSR_ERROR_NOT_FOUND"'
PATH=$work "$tessera" profile --device host -n 2 --json >"$work/out" 2>"$work/err" </dev/null
holds 'd["schema"] == "tessera.cluster/1" and d["error"]["status"] == "TSR_ERROR_NOT_FOUND"'
code=0
timeout -k 5 100 "$tessera" run gemm 4 4 4 --device host -n 2 >/dev/full 2>"$work/err" </dev/null || code=$?
[ "$code" = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] || fail "a full stdout: $code, $(cat "$work/err")"

# Under the mpiexec of another MPI each process would be alone.
code=0
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 timeout -k 5 100 "$tessera" run gemm 4 4 4 --device host \
  >"$work/out" 2>"$work/err" </dev/null || code=$?
[ "$code" = 1 ] && grep -q mpiexec "$work/err" && [ "$(wc -l <"$work/err")" = 1 ] || fail "another MPI's launcher: $code, $(cat "$work/err")"
finish
