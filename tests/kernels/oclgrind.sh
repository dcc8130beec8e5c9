#!/bin/sh
# oclgrind.sh PROGRAM: runs it on oclgrind's device, which checks every access to memory and finds races. oclgrind
# exits with 0 whatever it finds, so its log decides.
command -v oclgrind >/dev/null || { echo "skipped: no oclgrind (apt install oclgrind)"; exit 77; }
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
TSR_TEST_DEVICE=oclgrind timeout -k 5 "${TSR_TEST_SECONDS:-800}" oclgrind --data-races --log "$log" "$1"
ended=$?
if [ -s "$log" ]; then
  echo "oclgrind found:"
  head -n 60 "$log"
  exit 1
fi
[ $ended -eq 0 ] || echo "the program ended with $ended"
exit $ended
