#!/bin/sh
# What mpiexec is given in place of ssh (-launcher-exec): runs a command on a "host", which is a network namespace of
# that name with a host name and processes of its own; see hosts.py. Usage: launch.sh [-OPTION...] HOST COMMAND...
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec nsenter "--net=/run/netns/$host" unshare --uts --mount --pid --fork --kill-child --mount-proc \
  sh -c "hostname '$host'; exec $*" # like ssh, for mpiexec has quoted for a shell
