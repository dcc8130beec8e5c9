#!/usr/bin/env bash
# Wrong usage: exit code 2, one line, which names what is wrong. And what may be asked at any time.
. "$(dirname "$0")/common.sh"

while IFS='|' read -r text arguments; do
  [ -n "$text" ] || continue
  # shellcheck disable=SC2086 # a list of words
  refuses 2 "$text" $arguments
done <<'TABLE'
no command|
unknown command 'foo'|foo
unexpected word 'x'|devices x
unknown or ambiguous option --bogus|run gemm 4 4 4 --bogus
unknown or ambiguous option -z|run gemm 4 4 4 -z
unknown or ambiguous option --steps|plan gemm 4 4 4 --steps 2
unknown or ambiguous option --cluster|run gemm 4 4 4 --cluster x
no workload|run
no workload|plan --json
unknown workload 'gem'|run gem 4 4 4
gemm takes 3 numbers, M N K, but got 2|run gemm 4 4
linear takes 3 numbers, M D_IN D_OUT, but got 4|plan linear 1 2 3 4
K of gemm is 'x'|run gemm 4 4 x
M of gemm is '0'|run gemm 0 4 4
N of gemm is '1e3'|run gemm 4 1e3 4
K of gemm is '99999999999999999999'|plan gemm 1 1 99999999999999999999
--scale is '0', expected a number above 0|run gemm 4 4 4 --scale 0
--scale is '-1', expected a number above 0|run gemm 4 4 4 --scale -1
--scale is 'nan', expected a number above 0|run gemm 4 4 4 --scale nan
--scale is 'inf', expected a number above 0|plan gemm 4 4 4 --scale inf
--scale is 'two', expected a number above 0|plan gemm 4 4 4 --scale two
--scale is '2x', expected a number above 0|plan gemm 4 4 4 --scale 2x
--scale is '0x2', expected a number above 0|plan gemm 4 4 4 --scale 0x2
--scale 1e-30|plan gemm 4 4 4 --scale 1e-30
--scale needs a value|run gemm 4 4 4 --scale
-n needs a value|run gemm 4 4 4 -n
--json takes no value|run gemm 4 4 4 --json=yes
-n/--ranks is '0'|run gemm 4 4 4 -n 0
-n/--ranks is '4097'|run gemm 4 4 4 -n 4097
-n/--ranks is '-2'|run gemm 4 4 4 -n -2
--dtype is 'f16', expected f32 or f64|run gemm 4 4 4 --dtype f16
-m/--device-memory is '3XB'|plan gemm 4 4 4 --device-memory 3XB
-m/--device-memory is '0GB'|plan gemm 4 4 4 --device-memory 0GB
-m/--device-memory is '1GB,'|plan gemm 4 4 4 --device-memory 1GB,
-m/--device-memory is '-1GB'|plan gemm 4 4 4 --device-memory -1GB
--device-memory names 2, but there are 3 ranks|plan gemm 4 4 4 -n 3 --device-memory 1GB,2GB
--device names 2, but there are 3 ranks|run gemm 4 4 4 -n 3 --device host,host
-d/--device is ','|run gemm 4 4 4 --device ,
-r/--replicate is 'always'|plan gemm 4 4 4 --replicate always
-t/--transport is 'tcp'|run gemm 4 4 4 --transport tcp
--gated is an option of ffn|run gemm 4 4 4 --gated
--activation is 'tanh'|run ffn 4 4 4 --activation tanh
--backward and --sgd exclude each other|run ffn 4 4 4 --sgd 1 --backward
--weights is 'f32', expected f16, bf16 or i8|run ffn 4 4 4 --weights f32
--weights i8 excludes --backward|run ffn 4 4 4 --weights i8 --backward
--weights bf16 excludes --sgd|run ffn 4 4 4 --weights bf16 --sgd 1
--weights f16 excludes --dtype f64|plan gemm 4 4 4 --weights f16 --dtype f64
--target is what --sgd trains towards|run ffn 4 4 4 --target a:b
--sgd is '0'|run ffn 4 4 4 --sgd 0
--seed is '-1'|run ffn 4 4 4 --seed -1
--steps is '0'|run ffn 4 4 4 --steps 0
--deadline is '0'|run ffn 4 4 4 --deadline 0
safetensors are written|run gemm 4 4 4 -o x.npy
expected tessera bench gemm|bench
expected tessera bench gemm|bench ffn
--dtype is 'f8'|bench gemm --dtype f8
--form is 'tt'|bench gemm --form tt
--cores is '0'|bench gemm --cores 0
--cold is 'much'|bench gemm --cold much
--cpu-time counts all threads|bench gemm --cpu-time
--device names 2|bench gemm --device host,host
unexpected word 'gemm'|tune gemm
--explain takes 3 numbers, M N K, but got 2|tune --explain 4 4
K is '0'|tune --explain 4 4 0
--budget is '60x', expected a time such as 60s|tune --budget 60x
--budget is '0s'|tune --budget 0s
--against is 'mkl', expected openblas, clblast|bench gemm --against mkl
--shapes is 'nonsense', expected square|bench gemm --shapes nonsense
--shapes is 'nonsense', expected square|bench gemm --shapes nonsense --json
--shapes has '4x', expected MxNxK|bench gemm --shapes 4x4x4,4x
--shapes has '4x4x0', expected MxNxK|tune --shapes 4x4x0
--shapes is 'nonsense', expected square|tune --shapes nonsense
--dtype is 'f8'|tune --dtype f8
--output has no meaning with --explain|tune --explain 4 4 4 -o rows
--budget has no meaning with --explain|tune --explain 4 4 4 --budget 1s
--shapes has no meaning with --explain|tune --explain 4 4 4 --shapes square
--candidate has no meaning with --explain|tune --explain 4 4 4 --candidate host
--baseline has no meaning without --candidate|tune --baseline host
--seconds has no meaning without --candidate|tune --seconds 1
--output has no meaning with --candidate|tune --candidate host -o rows
--panel has no meaning with --candidate|tune --candidate host --panel
TABLE

# A name may hold anything and have any length: it stays one line, that ends with what to do.
refuses 2 "unknown workload 'ge mm?', expected gemm" run $'ge\nmm\x1b' 4 4 4
refuses 2 "unknown command 'a b'" $'a\nb'
refuses 2 "expected gemm, linear, ffn or conv" run "$(printf 'g%.0s' $(seq 5000))" 4 4 4
[ "$(wc -c <"$work/err")" -lt 1200 ] || fail "a long name makes a line of $(wc -c <"$work/err") bytes"

# What could not be written to stdout is a failure, also when stdout is closed.
unwritten() { # ARGUMENTS...
  for stdout in "$work/closed" /dev/full; do
    code=0
    if [ $stdout = /dev/full ]; then
      timeout -k 5 100 "$tessera" "$@" 2>"$work/err" >/dev/full </dev/null || code=$?
    else
      timeout -k 5 100 "$tessera" "$@" 2>"$work/err" >&- </dev/null || code=$?
    fi
    [ "$code" = 1 ] || fail "tessera $* to $stdout: exit code $code"
    [ "$(grep -c 'to stdout' "$work/err")" = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] ||
      fail "tessera $* to $stdout: not one line: $(cat "$work/err")"
  done
}
unwritten --help
unwritten run gemm 4 4 4 --device host
unwritten run gemm 4 4 4 --device host --json
unwritten plan gemm 4 4 4 --device host
unwritten plan gemm 4 4 4 --device host --json

works --version
grep -q '^tessera [0-9]' "$work/out" || fail "--version: $(cat "$work/out")"
for command in "" devices profile plan run; do
  # shellcheck disable=SC2086 # no word, or one
  works $command --help
  grep -q '^usage: tessera' "$work/out" || fail "$command --help: $(head -n 1 "$work/out")"
  [ ! -s "$work/err" ] || fail "$command --help says on stderr: $(cat "$work/err")"
done
# What a file has decided is not said again beside it.
for option in "--wire bf16" "--collective ring" "--chunks 2" "--replicate never"; do
  # shellcheck disable=SC2086
  refuses 2 "has no meaning with --plan: leave it out" run gemm 4 4 4 --plan plan.json $option
done
refuses 2 "--device has no meaning with --cluster" plan gemm 4 4 4 --cluster c.json --device host
refuses 2 "--transport has no meaning with --cluster" plan gemm 4 4 4 --cluster c.json --transport sim
refuses 2 "--wire bf16 is for values in f32" run gemm 4 4 4 --wire bf16 --dtype f64
refuses 2 "--sgd is 1e+39, and in f32 a rate is from 1.2e-38 to 3.4e+38" run gemm 4 4 4 --sgd 1e39
refuses 2 "--sgd is 1e-300" run gemm 4 4 4 --sgd 1e-300
TSR_LOG=nonsense run run gemm 4 4 4 --device host
[ "$code" = 1 ] && grep -q 'TSR_LOG is wrong: log filter "nonsense"' "$work/err" || fail "TSR_LOG=nonsense: $(cat "$work/err")"
finish
