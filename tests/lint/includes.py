#!/usr/bin/env python3
"""Check who includes whom: includes.py SOURCE_ROOT. Prints each breach as FILE:LINE and exits 1 if there is one."""
import os
import re
import sys

# Room -> rooms (beside public headers and itself) that it may see. docs: CONTRIBUTING.md, "The house".
MAY_SEE = {
    "runtime/base": [],
    "runtime/graph": ["base"],
    "runtime/plan": ["base", "graph"],
    "runtime/device": ["base"],
    "runtime/comm": ["base"],
    "runtime/io": ["base"],
    "runtime/profile": ["base", "device", "comm", "plan"],
    "runtime/exec": ["base", "graph", "plan", "profile", "device", "comm", "io"],
    "backends": ["base", "device"],
    "tools": [],
    "examples": [],
}
# Headers of another room that a room may see only in part.
ONLY = {
    ("runtime/profile", "plan"): ["plan/cluster.h"],
    ("backends", "device"): ["device/backend.h", "device/device.h"],
}
# The OpenCL inside of a device is for its own room and for CLBlast, which needs the queue; the registry of backends
# is the one door from the runtime to them.
EXCEPTIONS = {
    ("backends/clblast/clblast.c", "device/opencl_gemm.h"),
    ("backends/clblast/clblast_none.c", "device/opencl_gemm.h"),
}
# System headers that one file (or public header) alone may include.
GUARDED = {"mpi.h": {"runtime/comm/transport_mpi.h", "include/tessera/mpi.h", "tools/mpi.c"}}
GUARDED_FOLDERS = {"mpi.h": ("examples/", "tests/mpi/")}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "runtime" else parts[0]


def breaches(root, path):
    room = room_of(path)
    for number, line in enumerate(open(os.path.join(root, path), errors="replace"), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        kind, name = match.groups()
        if name in GUARDED and kind == "<":
            if path not in GUARDED[name] and not path.startswith(GUARDED_FOLDERS[name]):
                yield number, f"only {', '.join(sorted(GUARDED[name]))} may include <{name}>"
        if kind == "<" or "/" not in name:
            continue
        target = name.split("/")[0]
        if f"runtime/{target}" == room or target == room or (path, name) in EXCEPTIONS:
            continue
        if target not in MAY_SEE[room] and not (room == "backends" and os.path.exists(os.path.join(root, "backends", name))):
            yield number, f"{room} may not see \"{name}\" (it may see public headers and: {', '.join(MAY_SEE[room]) or 'nothing else'})"
        elif (room, target) in ONLY and name not in ONLY[room, target]:
            yield number, f"{room} may see of {target} only {', '.join(ONLY[room, target])}, not \"{name}\""


def main(root):
    count = 0
    for top in ["include", "runtime", "backends", "tools", "examples"]:
        for folder, _, files in os.walk(os.path.join(root, top)):
            for file in sorted(files):
                path = os.path.relpath(os.path.join(folder, file), root)
                if not file.endswith((".c", ".h")):
                    continue
                if top == "include":
                    for number, line in enumerate(open(os.path.join(root, path)), 1):
                        match = INCLUDE.match(line)
                        if match and match.group(1) == '"':
                            print(f"{path}:{number}: a public header includes public headers in <> only")
                            count += 1
                    continue
                for number, text in breaches(root, path):
                    print(f"{path}:{number}: {text}")
                    count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
