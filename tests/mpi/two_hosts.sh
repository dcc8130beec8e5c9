#!/bin/sh
# test_mpi on ranks of which two have another host name, so that some pairs share memory and others go through MPI.
# Usage: two_hosts.sh MPIEXEC TEST_MPI. 77 = skipped: no right to a name of one's own.
unshare --uts true 2>/dev/null || { echo "skipped: no right to a host name for some ranks"; exit 77; }
# shellcheck disable=SC2016
exec "$1" -n 2 "$2" mixed : -n 2 unshare --uts sh -c 'hostname elsewhere && exec "$0" mixed' "$2" : -n 1 "$2" mixed
