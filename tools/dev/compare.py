#!/usr/bin/env python3
"""Hold results against the stored references; exit code 1 if they are too far away.

    compare.py output REFERENCE.safetensors OUTPUT.safetensors
    compare.py losses SGD.json RUN.json...
"""
import json
import math
import struct
import sys

HIDDEN = 1536          # the longest sum of the block
EPSILON = 2.0 ** -24   # unit roundoff of f32
LOSS_BOUND = 1e-5      # relative, for each step
FORMATS = {"F32": "f", "F64": "d"}


def tensor(path, name):
    """All elements of a tensor of a safetensors file."""
    with open(path, "rb") as file:
        data = file.read()
    header_bytes = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8:8 + header_bytes])[name]
    begin, end = entry["data_offsets"]
    code = FORMATS[entry["dtype"]]
    body = data[8 + header_bytes + begin:8 + header_bytes + end]
    return struct.unpack(f"<{len(body) // struct.calcsize(code)}{code}", body)


def compare_output(reference_path, output_path):
    reference, output = tensor(reference_path, "output"), tensor(output_path, "y")
    if len(reference) != len(output):
        sys.exit(f"the output has {len(output)} elements, the reference {len(reference)}")
    largest = max(abs(r) for r in reference)
    error = max(abs(r - y) if y == y else math.inf for r, y in zip(reference, output)) / largest
    bound = 4 * math.sqrt(HIDDEN) * EPSILON
    print(f"largest difference from the f64 reference: {error:.1e} of the largest output (at most {bound:.1e})")
    return error <= bound


def compare_losses(reference_path, run_paths):
    reference = json.load(open(reference_path))["losses"]
    runs = [json.load(open(path)) for path in run_paths]
    heads = [f"{len(run['ranks'])} rank{'s' if len(run['ranks']) > 1 else ''}" for run in runs]
    print("step  " + "  ".join(f"{head:>14}" for head in ["f64 reference"] + heads))
    worst = 0.0
    for step, wanted in enumerate(reference):
        losses = [run["losses"][step] for run in runs]
        worst = max([worst] + [abs(loss - wanted) / wanted for loss in losses])
        print(f"{step + 1:4}  " + "  ".join(f"{loss:14.10f}" for loss in [wanted] + losses))
    print(f"largest relative difference: {worst:.1e} (at most {LOSS_BOUND:.0e})")
    return worst <= LOSS_BOUND


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in ("output", "losses"):
        sys.exit(__doc__)
    good = compare_output(*sys.argv[2:4]) if sys.argv[1] == "output" else compare_losses(sys.argv[2], sys.argv[3:])
    sys.exit(0 if good else 1)
