#!/bin/sh
# Runs test_lost on 3 ranks, of which the last kills itself, and checks that the two others name it and end in
# time. Usage: lost.sh MPIEXEC TEST_LOST. 77 = skipped: this mpiexec cannot let survivors live on.
mpiexec=$1
program=$2
limit=7 # the deadline of 2 s, and 5 s

"$mpiexec" -info 2>/dev/null | grep -q -i hydra || { echo "skipped: needs MPICH's mpiexec"; exit 77; }
output=$(mktemp)
trap 'rm -f "$output"' EXIT
begin=$(date +%s)
# The shell in between keeps mpiexec from noticing the death until the survivors have spoken: even so told, it may kill
# them, or send them SIGUSR1.
timeout -k 2 30 "$mpiexec" -disable-auto-cleanup -n 3 \
  sh -c 'trap "" USR1; "$0"; code=$?; [ $code -lt 128 ] || sleep 4; exit $code' "$program" >"$output" 2>&1
code=$?
seconds=$(($(date +%s) - begin))
cat "$output"
fail() {
  echo "FAILED: $1 (exit code $code, $seconds s)"
  exit 1
}
for rank in 0 1; do
  grep -q "^rank $rank: TSR_ERROR_RANK_LOST: .*rank 2 gave no sign of life" "$output" ||
    fail "rank $rank does not name rank 2"
  grep -q "^rank $rank: destroyed" "$output" || fail "rank $rank did not end"
done
[ "$code" -ne 0 ] && [ "$code" -ne 124 ] && [ "$code" -ne 137 ] || fail "the job did not end by itself with a failure"
[ "$seconds" -le "$limit" ] || fail "the limit is $limit s"
