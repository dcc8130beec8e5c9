#!/usr/bin/env bash
# configure.sh FOLDER [MESON OPTIONS...]: a build folder with these options. One that this script made with others,
# or that an update has made unusable, is made anew; one that fits, or that somebody made by hand, is left as it is.
set -eu

folder=$1
shift
stamp="$folder/tessera-options"
# What a build folder depends on, beside the sources: where they are, the options, the compiler, Meson.
wanted="$(pwd) | $* | ${CC:-cc} $(${CC:-cc} -dumpfullversion -dumpversion 2>/dev/null || true) | $(meson --version)"

fits() {
  [ -f "$folder/build.ninja" ] && { [ ! -f "$stamp" ] || [ "$(cat "$stamp")" = "$wanted" ]; }
}

if fits && meson setup --reconfigure "$folder" >"$folder/tessera-setup.log" 2>&1; then
  exit 0
fi
# Only what Meson has made is removed.
if [ -e "$folder" ]; then
  if [ ! -d "$folder/meson-private" ] && [ -n "$(ls -A "$folder")" ]; then
    echo "$folder is no build folder of Meson: move it away" >&2
    exit 1
  fi
  rm -rf "$folder"
fi
log=$(mktemp)
if ! meson setup "$folder" "$@" >"$log" 2>&1; then
  cat "$log" >&2
  rm -f "$log"
  exit 1
fi
mv "$log" "$folder/tessera-setup.log"
echo "$wanted" >"$stamp"
