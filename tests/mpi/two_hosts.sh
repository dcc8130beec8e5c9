#!/bin/sh
# A test on ranks of which some have another host name, so that some pairs share memory and others go through MPI.
# Usage: two_hosts.sh MPIEXEC HERE ELSEWHERE TEST [ARGUMENT...]: so many ranks here, then so many elsewhere, and one
# more here. 77 = skipped: no right to a name of one's own.
unshare --uts true 2>/dev/null || { echo "skipped: no right to a host name for some ranks"; exit 77; }
mpiexec=$1 here=$2 elsewhere=$3
shift 3
# shellcheck disable=SC2016
exec "$mpiexec" -n "$here" "$@" : -n "$elsewhere" unshare --uts sh -c 'hostname elsewhere && exec "$0" "$@"' "$@" : \
  -n 1 "$@"
