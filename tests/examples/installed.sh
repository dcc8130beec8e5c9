#!/bin/sh
# The installed library is enough for a program outside: installed.sh MESON BUILD SOURCE MPIEXEC
# Installs into a folder of its own, builds an example through pkg-config, runs it.
set -eu
meson=$1 build=$2 source=$3 mpiexec=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

$meson install -C "$build" --no-rebuild --quiet --destdir "$folder" >/dev/null
pc=$(find "$folder" -name tessera.pc)
lib=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH="${pc%/*}" PKG_CONFIG_SYSROOT_DIR="$folder" LD_LIBRARY_PATH="$lib"

# The sysroot is put before the paths of other packages too, where nothing is: they are found without it.
mpi_flags=$(PKG_CONFIG_SYSROOT_DIR= pkg-config --cflags --libs mpich)
own_flags=$(pkg-config --cflags --libs tessera | tr ' ' '\n' | grep -e "$folder" -e -ltessera | tr '\n' ' ')
# shellcheck disable=SC2086
${CC:-cc} -std=c11 -Wall -Wextra -Werror "$source/examples/mpi_gemm.c" $own_flags $mpi_flags -lm -o "$folder/mpi_gemm"

TESSERA_DEVICE=host timeout -k 5 60 "$mpiexec" -n 4 "$folder/mpi_gemm"
test -x "$(find "$folder" -path '*/bin/tessera')"
test -n "$(find "$folder" -name 'tessera-run.1*')"
