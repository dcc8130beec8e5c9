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

# Every rank ends, and one line says why.
refuses 1 "no device matches 'nothing'" run gemm 64 65 66 --device host,nothing -n 2
refuses 1 "rank 1" run gemm 64 65 66 --device host,nothing -n 2
refuses 1 "nowhere.npy" run gemm 64 65 66 --device host -n 2 --input "$work/nowhere.npy"
refuses 1 "is for 3 members" run ffn 16 64 257 --device host -n 2 --plan "$work/plan.json"
run run gemm 64 65 66 --device host,nothing -n 2 --json
[ "$code" = 1 ] || fail "exit code $code"
holds 'd["error"]["rank"] == 1 and d["error"]["status"] == "TSR_ERROR_NOT_FOUND"'

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
