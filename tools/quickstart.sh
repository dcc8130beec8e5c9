#!/usr/bin/env bash
# From a clone to the main job in one command: installs what is missing, configures, builds, and lets four MPI
# ranks share a weight that fits none of their devices. Needs no GPU: the devices are PoCL's, on the CPU.
set -eu
cd "$(dirname "$0")/.."
# Lists of options are words on purpose. shellcheck disable=SC2086

bash tools/dev/install.sh
bash tools/dev/configure.sh build --buildtype=release
echo "Building in $PWD/build"
ninja -C build -j "${TESSERA_JOBS:-2}" --quiet tools/tessera

tessera=build/tools/tessera
fixture=tests/data/minilm_ffn
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

headline() {
  printf '\n== %s\n' "$*"
}

# Shows a command as one would type it, then runs it. What it prints is for people.
show() {
  printf '$ tessera %s\n' "$*"
  "$tessera" "$@"
}

# A command that must refuse: anything but exit code 1 is a failure of this script.
show_refusal() {
  local code=0
  show "$@" 2>/dev/null || code=$? # what it says there is in the plan's text too
  [ "$code" = 1 ] || { echo "expected a refusal with exit code 1, got $code" >&2; exit 1; }
}

# f32 weights of 26 GB, at 1/64 of their size on devices of 1/64 of their memory.
job="gemm 512 130000 50000 --scale 64 --device pocl"

headline "1. A weight of 26 GB does not fit one device of 24 GB (all at 1/64)"
show_refusal plan $job -n 1 --device-memory 24GB
show_refusal plan $job -n 1 --device-memory 24GB --backward

headline "2. Split over four such devices: the plan, the run, the check"
show plan $job -n 4 --device-memory 24GB --backward
show run $job -n 4 --device-memory 24GB --backward --check

headline "3. Unequal devices (24, 24, 16, 8 GB) take unequal shares"
show run $job -n 4 --device-memory 24GB,24GB,16GB,8GB --backward --check

headline "4. A real layer: the feed-forward block of all-MiniLM-L6-v2, on real activations"
weights="$fixture/weights.safetensors:encoder.layer.0"
layer="--weight w1=$weights.intermediate.dense.weight:T --weight b1=$weights.intermediate.dense.bias
       --weight w2=$weights.output.dense.weight:T --weight b2=$weights.output.dense.bias
       --input $fixture/reference.safetensors:input"
show run ffn 64 384 1536 $layer -n 4 --device pocl --check -o "$work/output.safetensors"
python3 tools/dev/compare.py output "$fixture/reference.safetensors" "$work/output.safetensors"

headline "5. Ten steps of SGD on that block, on one rank and on four"
for ranks in 1 4; do
  training="run ffn 64 384 1536 $layer -n $ranks --device pocl --sgd 1.5
            --target $fixture/reference.safetensors:target --steps 10 --json"
  echo "$ tessera" $training
  "$tessera" $training >"$work/sgd$ranks.json"
done
python3 tools/dev/compare.py losses "$fixture/sgd.json" "$work/sgd1.json" "$work/sgd4.json"

printf '\nThe program is %s: try %s devices, or see README.md.\n' "$tessera" "$tessera"
