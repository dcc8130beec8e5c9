#!/bin/bash
# record_gpu.sh DEVICE [FOLDER]: on a machine with a GPU: builds without MPI, runs the suites kernels and conformance
# on that device, times products against CLBlast, and leaves in FOLDER (default: recorded-DEVICE) the logs, the
# figures and the device's profile as JSON. DEVICE is a selector, "nvidia", "amd"; "pocl" for a rehearsal. Nothing here
# calls cuBLAS or rocBLAS: their figures for the two squares are taken by hand, with the vendor's own programs.
# RECORD_QUICK=1 leaves the suites' slow tests and the long products out.
set -u
device=${1:?usage: record_gpu.sh DEVICE [FOLDER]}
folder=${2:-recorded-${device//[^A-Za-z0-9]/_}}
source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$folder" && folder=$(cd "$folder" && pwd) || exit 1
build=$folder/build
failed=0

step() { # step NAME COMMAND...: its output goes to NAME.log; a failure is said and counted, the rest goes on
  local name=$1
  shift
  if "$@" >"$folder/$name.log" 2>&1; then
    echo "ok      $name"
  else
    echo "FAILED  $name, see $folder/$name.log"
    failed=1
  fi
}

slow=()
shapes=(--shapes transformer)
square=4096x4096x4096 narrow_square=8192x8192x8192
if [ -n "${RECORD_QUICK:-}" ]; then
  slow=(--no-suite slow) shapes=(--shapes 256x256x256 --seconds 1)
  square=256x256x256 narrow_square=256x256x256
fi

[ -d "$build" ] || meson setup "$build" "$source" -Dmpi=disabled -Dtests=enabled >"$folder/setup.log" 2>&1 || {
  tail -n 20 "$folder/setup.log"
  exit 1
}
step build ninja -C "$build"
export TSR_TEST_DEVICE=$device TESSERA_CACHE=$folder/cache
step devices "$build/tools/tessera" devices
step suites meson test -C "$build" --suite kernels --suite conformance "${slow[@]}" --timeout-multiplier 4
step bench "$build/tools/tessera" bench gemm --device "$device" --against clblast "${shapes[@]}"
step bench_square "$build/tools/tessera" bench gemm --device "$device" --against clblast --shapes $square
step bench_square_bf16 "$build/tools/tessera" bench gemm --device "$device" --dtype bf16 --shapes $narrow_square
step profile "$build/tools/tessera" profile --device "$device" -o "$folder/device.json"
echo "recorded in $folder"
exit $failed
