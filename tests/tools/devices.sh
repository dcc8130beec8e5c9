#!/usr/bin/env bash
# tessera devices: the document, drivers that cannot be used, and a machine without any.
. "$(dirname "$0")/common.sh"

works devices --json
holds 'd["schema"] == "tessera.devices/1"'
holds 'd["devices"][-1]["short_name"] == "host" and d["devices"][-1]["usable"]'
keys='{"platform", "name", "vendor", "driver", "backend", "reason", "memory_bytes", "max_allocation_bytes",
       "compute_units", "precisions"}'
holds "all($keys <= set(x) for x in d['devices'])"
documented devices
holds 'all(v is None or v != "" for x in d["devices"] for v in x.values())'
holds 'd["devices"][-1]["icd"] is None and d["devices"][-1]["driver"].startswith("Tessera ")'
holds 'all(x["memory_bytes"] > 0 and x["max_allocation_bytes"] > 0 and "f32" in x["precisions"]
           for x in d["devices"] if x["usable"])'
works devices
grep -q '^host:' "$work/out" || fail "no host in the table: $(cat "$work/out")"
grep -q 'platform  host, driver Tessera ' "$work/out" || fail "what runs the host device: $(cat "$work/out")"
! grep -qE '\(\)|driver *$|, ,' "$work/out" || fail "words for what is not there: $(cat "$work/out")"

mkdir "$work/none"
export OCL_ICD_VENDORS=$work/none
works devices --json
holds 'len(d["devices"]) == 1 and d["skipped"] == []'
refuses 1 "no OpenCL device was found" run gemm 4 4 4 --device pocl
works run gemm 4 4 4

# Drivers that are broken in every way.
"$tessera" devices --probe /nowhere.icd --json >"$work/out" 2>/dev/null
holds 'd["error"]["status"] == "TSR_ERROR_IO"'
command -v cc >/dev/null || finish
cat >"$work/driver.c" <<'C'
#include <signal.h>
#include <unistd.h>
__attribute__((constructor)) static void when_loaded(void) { BREAK; }
C
mkdir "$work/drivers"
export OCL_ICD_VENDORS=$work/drivers
cc -shared -fPIC -DBREAK='raise(SIGSEGV)' "$work/driver.c" -o "$work/crash.so" &&
  cc -shared -fPIC -DBREAK='_exit(3)' "$work/driver.c" -o "$work/quit.so" || skip "cannot build a shared library"
echo "$work/crash.so" >"$work/drivers/crash.icd"
echo "$work/quit.so" >"$work/drivers/quit.icd"
echo libnot-installed-here.so.1 >"$work/drivers/missing.icd"
: >"$work/drivers/empty.icd"
works devices --json
if grep -q '"skipped": \[\]' "$work/out"; then
  echo "built without OpenCL: no driver is tried"
  finish
fi
holds 'len(d["skipped"]) == 4 and len(d["devices"]) == 1'
holds '"signal 11" in [s["message"] for s in d["skipped"] if s["icd"].endswith("crash.icd")][0]'
holds '"exit code 3" in [s["message"] for s in d["skipped"] if s["icd"].endswith("quit.icd")][0]'
holds '"libnot-installed-here.so.1" in [s["message"] for s in d["skipped"] if s["icd"].endswith("missing.icd")][0]'
works devices
[ "$(grep -c '^skipped: ' "$work/out")" = 4 ] || fail "not four lines: $(cat "$work/out")"
works run gemm 4 4 4 --check

# A driver that crashes when it is asked for its platforms, and one that only says something.
cat >"$work/driver.c" <<'C'
#include <signal.h>
#include <unistd.h>
int clIcdGetPlatformIDsKHR(unsigned n, void **platforms, unsigned *count) { BREAK; return *count = 0; }
void *clGetExtensionFunctionAddress(const char *name) { return (void *)clIcdGetPlatformIDsKHR; }
C
rm "$work"/drivers/*
for row in 'crash|raise(SIGSEGV)' 'quit|_exit(0)' 'chatty|if (write(1, "hello", 5) < 0) return 1'; do
  cc -w -shared -fPIC "-DBREAK=${row#*|}" "$work/driver.c" -o "$work/${row%%|*}.so"
  echo "$work/${row%%|*}.so" >"$work/drivers/${row%%|*}.icd"
done
works devices --json
holds 'len(d["skipped"]) == 3 and len(d["devices"]) == 1'
holds '"signal 11" in [s["message"] for s in d["skipped"] if s["icd"].endswith("crash.icd")][0]'
holds '"no device" in [s["message"] for s in d["skipped"] if s["icd"].endswith("chatty.icd")][0]'
works run gemm 4 4 4 --check --json
holds 'd["check"]["passed"]'
TSR_LOG=nonsense run devices --json
holds 'd["devices"] == [] and d["error"]["status"] == "TSR_ERROR_INVALID_ARGUMENT"'
finish
