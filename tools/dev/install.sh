#!/usr/bin/env bash
# Installs what is missing to build and run Tessera (install.sh), and to test all of it (install.sh test).
# On Debian and Ubuntu by apt; elsewhere it names the packages, and goes on if the tools are there already.
set -eu

debian="gcc libc6-dev meson ninja-build pkg-config python3 libjansson-dev libxxhash-dev
        ocl-icd-opencl-dev opencl-headers pocl-opencl-icd mpich libmpich-dev libclblast-dev"
debian_test="clang clang-format libcmocka-dev libopenblas-dev mesa-opencl-icd groff-base"
fedora="gcc meson ninja-build pkgconf python3 jansson-devel xxhash-devel ocl-icd-devel opencl-headers pocl
        mpich mpich-devel clblast-devel"
fedora_test="clang clang-tools-extra libcmocka-devel openblas-devel mesa-libOpenCL groff-base"
arch="gcc meson ninja pkgconf python jansson xxhash ocl-icd opencl-headers pocl mpich clblast"
arch_test="clang cmocka openblas opencl-mesa groff"

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
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Missing packages, and neither root nor sudo to install them:"
    echo "  apt-get install$missing"
    go_on_or_stop
    exit 0
  fi
  as_root="sudo"
fi

# One question of sudo at most, and what apt says is shown only if it fails. Lists that cannot be updated may still
# do: the installation decides.
apt="apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300"
echo "Installing, which may take some minutes:$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! $as_root env DEBIAN_FRONTEND=noninteractive \
  sh -c "$apt update; $apt install -y --no-install-recommends $missing" >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "These packages could not be installed."
  go_on_or_stop
fi
