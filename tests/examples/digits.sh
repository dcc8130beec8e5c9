#!/bin/sh
# Training on 1, 2 and 3 ranks gives the same loss curve, but for roundings, and more than 95 % of the held-out images are right (the
# program's exit code). Usage: digits.sh MPIEXEC MPI_DIGITS FOLDER; 77 = skipped: plain C would take minutes.
set -eu
mpiexec=$1 program=$2 folder=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
TESSERA_DEVICE=pocl
POCL_MAX_PTHREAD_COUNT=1 # ranks that share cores
export TESSERA_DEVICE POCL_MAX_PTHREAD_COUNT
for ranks in 1 2 3; do
  timeout -k 5 150 "$mpiexec" -n $ranks "$program" "$folder" >"$work/$ranks" 2>"$work/errors" || {
    grep -q 'nothing matches' "$work/errors" && { echo "skipped: no PoCL"; exit 77; }
    cat "$work/$ranks" "$work/errors"
    exit 1
  }
  tail -n 1 "$work/$ranks"
done
# Sums in another order: roundings grow over 2,800 steps, but not beyond a few per cent of the loss.
python3 - "$work/1" "$work/2" "$work/3" <<'PYTHON'
import sys
curves = [[float(line.split()[-1]) for line in open(path) if line.startswith("epoch")] for path in sys.argv[1:]]
assert len(curves[0]) == 20 and all(len(c) == 20 for c in curves), curves
for other in curves[1:]:
    differences = [abs(a - b) / a for a, b in zip(curves[0], other)]
    print("largest relative difference of the losses: first epoch %.1e, all %.1e" % (differences[0], max(differences)))
    assert differences[0] < 1e-5 and max(differences) < 0.05, differences
PYTHON
