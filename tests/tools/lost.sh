#!/usr/bin/env bash
# A rank is killed in the middle of a run: the others say so and all end, within the deadline.
. "$(dirname "$0")/common.sh"
has_mpi || skip "no MPI"

children() { # PID: its children
  cat "/proc/$1/task/$1/children" 2>/dev/null
}

# The last processes below one: mpiexec starts a proxy, that a guard of each rank, that the rank.
ranks_below() {
  local child
  for child in $(children "$1"); do
    if [ -n "$(children "$child")" ]; then
      ranks_below "$child"
    elif tr '\0' '\n' <"/proc/$child/environ" 2>/dev/null | grep -q '^PMI_RANK='; then
      echo "$child"
    fi
  done
}

deadline=3
# Starts a run of 3 ranks; $job is its process, $pids are those of the ranks.
start() {
  "$tessera" run gemm 64 256 256 --device host -n 3 --steps 1000000 --deadline $deadline --json \
    >"$work/out" 2>"$work/err" </dev/null &
  job=$!
  for _ in $(seq 100); do
    sleep 0.1
    pids=$(ranks_below $job)
    [ "$(echo "$pids" | wc -w)" = 3 ] && break
  done
  [ "$(echo "$pids" | wc -w)" = 3 ] || { cat "$work/err"; kill $job; skip "cannot see the ranks' processes"; }
  sleep 3 # until the steps run
}

all_ended() {
  sleep 2
  for pid in $pids; do
    # Ended, or ended and not yet looked at by its new parent.
    grep -q '^State:[[:space:]]*Z' "/proc/$pid/status" 2>/dev/null || [ ! -e "/proc/$pid" ] ||
      fail "process $pid is still there after $1"
  done
}

start
started=$(date +%s)
kill -KILL "$(echo "$pids" | tail -n 1)"
code=0
wait $job || code=$?
elapsed=$(($(date +%s) - started))
cat "$work/err"
[ $code = 1 ] || fail "exit code $code"
[ $elapsed -le $((deadline + 7)) ] || fail "it took $elapsed s to end"
grep -q '^tessera run: rank [0-9]*: ' "$work/err" || fail "no survivor says anything"
holds 'd["error"]["status"] == "TSR_ERROR_RANK_LOST"'
all_ended "a rank was killed"

# The program itself, or mpiexec, is ended: no rank stays behind.
for signal in TERM KILL; do
  start
  kill -$signal $job
  wait $job 2>/dev/null && fail "exit code 0 after SIG$signal"
  all_ended "SIG$signal"
done
start
kill -KILL "$(children $job)"
code=0
wait $job || code=$?
[ $code = 1 ] && grep -q 'mpiexec was ended by signal 9' "$work/err" || fail "mpiexec killed: $code, $(cat "$work/err")"
holds 'd["error"]["status"] == "TSR_ERROR_RANK_LOST"'
all_ended "mpiexec was killed"
finish
