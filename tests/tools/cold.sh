#!/usr/bin/env bash
# What a first run builds: what its plan uses, and nothing else; a second run builds nothing.
. "$(dirname "$0")/common.sh"
has_device pocl || skip "no PoCL"
export TSR_LOG=device:debug

# The labels of the programs that the last run compiled, or loaded, sorted.
programs() { # compiled|loaded
  sed -n "s/.* device: $1 \(.*\) \(in [0-9.]* [a-z]*\|from the cache\)\$/\1/p" "$work/err" | sort
}

# WORKLOAD...: a cold run, then a warm one.
cold_and_warm() {
  rm -rf "$TESSERA_CACHE"
  works run "$@" --device pocl
  programs compiled >"$work/compiled"
  programs loaded >"$work/loaded"
  [ -z "$(uniq -d "$work/compiled")" ] || fail "$*: compiled twice: $(uniq -d "$work/compiled")"
  works run "$@" --device pocl
  [ -z "$(programs compiled)" ] || fail "$*: the second run compiles $(programs compiled)"
  programs loaded >"$work/used"
  [ -s "$work/used" ] || fail "$*: the second run loads nothing: $(cat "$work/err")"
}

# Measuring takes products of several sizes, which may have kernels of their own: these are built too.
nothing_else_but() { # PATTERN WORKLOAD...
  local pattern=$1 more
  shift
  more=$(comm -23 "$work/compiled" "$work/used" | grep -v -e "$pattern")
  [ -z "$more" ] || fail "$*: built, but not used: $more"
}

# Matches the labels of products without transposes, in the given type.
forward='^gemm_[a-z]*\.cl .*-DREAL=float'
for workload in "gemm 64 256 128" "linear 8 256 128" "ffn 64 128 512"; do
  # shellcheck disable=SC2086
  cold_and_warm $workload
  nothing_else_but "$forward" "$workload"
  ! grep -q -e 'double' -e '_TRANSPOSED=1' "$work/compiled" || fail "$workload: $(cat "$work/compiled")"
done
cold_and_warm gemm 8 256 128
! grep -v '^gemm_small' "$work/compiled" || fail "few rows: built, but not used: $(cat "$work/compiled")"
cold_and_warm gemm 64 256 128
! grep -v '^gemm_' "$work/compiled" || fail "gemm builds more than products"
cold_and_warm gemm 64 256 128 --dtype f64
! grep -q 'REAL=float' "$work/compiled" || fail "f64: $(cat "$work/compiled")"

# How many clusters are in the cache.
clusters() {
  find "$TESSERA_CACHE" -name 'cluster-*.json' | wc -l
}

# What was measured for one kind of work is not taken for another; what was measured for all is.
rm -rf "$TESSERA_CACHE"
works run gemm 64 256 128 --device pocl
works run gemm 64 256 128 --device pocl --backward --check
grep -q 'compiled .*TRANSPOSED=1' "$work/err" || fail "gradients run without their kernels"
[ "$(clusters)" = 2 ] || fail "$(clusters) clusters after two kinds of work, expected 2"
works run gemm 32 8 8 --device pocl --backward
[ "$(clusters)" = 2 ] || fail "$(clusters) clusters: what was measured is measured again"
rm -rf "$TESSERA_CACHE"
unset TSR_LOG
works profile --device host
works plan gemm 64 256 128 --device host
works run ffn 8 8 8 --device host --backward
[ "$(clusters)" = 1 ] || fail "$(clusters) clusters after a whole profile, expected 1"

# A pipe in the place of what was measured would wait for a writer: it is measured anew.
cached=$(find "$TESSERA_CACHE" -name 'cluster-*.json')
rm "$cached"
mkfifo "$cached"
works plan gemm 64 256 128 --device host
finish
