#!/usr/bin/env bash
# Installs what is missing to build and run Tessera (install.sh), to test all of it (install.sh test), or to build it
# and compile its kernels with vendors' offline compilers (install.sh vendor).
# On Debian and Ubuntu by apt; elsewhere it names the packages, and goes on if the tools are there already.
set -eu

debian="gcc libc6-dev meson ninja-build pkg-config python3 libjansson-dev libxxhash-dev
        ocl-icd-opencl-dev opencl-headers pocl-opencl-icd mpich libmpich-dev libclblast-dev"
debian_test="clang clang-format libcmocka-dev libopenblas-dev mesa-opencl-icd groff-base iproute2"
# For `vendor`: a|b is the first of them that the distribution has; what it has none of is left out. Not libclc-19:
# on Debian 12 it drives out libclc-15 and, with it, rusticl.
debian_vendor="clang-15 libclc-15 clang-19 lld-19 llvm-19 rocm-device-libs intel-opencl-icd
               llvm-spirv-15|llvm-spirv-19 spirv-tools"
fedora="gcc meson ninja-build pkgconf python3 jansson-devel xxhash-devel ocl-icd-devel opencl-headers pocl
        mpich mpich-devel clblast-devel"
fedora_test="clang clang-tools-extra libcmocka-devel openblas-devel mesa-libOpenCL groff-base iproute iproute-tc"
arch="gcc meson ninja pkgconf python jansson xxhash ocl-icd opencl-headers pocl mpich clblast"
arch_test="clang cmocka openblas opencl-mesa groff iproute2"

purpose=${1:-build}
if [ "$purpose" = test ]; then
  debian="$debian $debian_test" fedora="$fedora $fedora_test" arch="$arch $arch_test"
fi

is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Whether one can build without any package: what the build itself cannot do without.
tools_are_there() {
  for tool in cc meson ninja pkg-config python3; do
    command -v "$tool" >/dev/null || return 1
  done
  pkg-config --exists jansson libxxhash
}

go_on_or_stop() {
  if tools_are_there; then
    echo "Going on with what is there."
  else
    echo "The build cannot start without cc, meson, ninja, pkg-config, python3, jansson and xxhash." >&2
    exit 1
  fi
}

# Whether nothing is to be said on another distribution: what the main job and the tests use is there as well.
all_is_there() {
  tools_are_there && pkg-config --exists OpenCL && command -v mpiexec >/dev/null &&
    { [ "$purpose" != test ] || pkg-config --exists cmocka; }
}

other_distribution() {
  ! all_is_there || return 0
  echo "Neither Debian nor Ubuntu: packages are not installed for you. Tessera needs"
  echo "  Fedora:" $fedora
  echo "          (then: module load mpi/mpich-x86_64)"
  echo "  Arch:  " $arch
  echo "  Debian:" $debian
  go_on_or_stop
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  other_distribution
  exit 0
fi

missing=
for package in $debian; do
  is_installed "$package" || missing="$missing $package"
done
missing_vendor=
if [ "$purpose" = vendor ]; then
  for choice in $debian_vendor; do
    there=no
    for package in ${choice//|/ }; do
      ! is_installed "$package" || there=yes
    done
    [ $there = yes ] || missing_vendor="$missing_vendor $choice"
  done
fi
[ -n "$missing$missing_vendor" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Missing packages, and neither root nor sudo to install them:"
    echo "  apt-get install$missing$missing_vendor"
    go_on_or_stop
    exit 0
  fi
  as_root="sudo"
fi

# What apt says is shown only if it fails. Lists that cannot be updated may still do: the installation decides.
# Nothing that is installed may go.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@" \
    >"$log" 2>&1
}
install() {
  echo "Installing, which may take some minutes: $*"
  apt install -y --no-install-recommends --no-remove "$@" && return
  tail -n 20 "$log" >&2
  echo "These packages could not be installed."
  return 1
}

apt update || true
[ -z "$missing" ] || install $missing || go_on_or_stop

# The checks say which target they had to leave out.
available= unavailable=
for choice in $missing_vendor; do
  found=
  for package in ${choice//|/ }; do
    [ -n "$found" ] || [ -z "$(apt-cache search --names-only "^$package\$")" ] || found=$package
  done
  if [ -n "$found" ]; then available="$available $found"; else unavailable="$unavailable $choice"; fi
done
[ -z "$unavailable" ] || echo "This distribution does not have:$unavailable"
[ -z "$available" ] || install $available || true
