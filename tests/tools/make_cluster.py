#!/usr/bin/env python3
"""Print a cluster of N equal devices of BYTES bytes each: make_cluster.py N BYTES TEMPLATE.

TEMPLATE is the document of `tessera profile` for one device: what is not about memory or speed is taken from it.
"""
import json
import sys

SIDES, ROWS = (256, 1024, 4096), (16, 128, 512)
GFLOPS = {"f32": 50, "f64": 5}


def curve(gflops):
    return [[m, side, 2 * m * side * side / (gflops * 1e9) + 1e-5] for m in ROWS for side in SIDES]


members, memory = int(sys.argv[1]), int(sys.argv[2])
with open(sys.argv[3]) as file:
    cluster = json.load(file)
member = cluster["members"][0]
member.update(name="test device", memory_bytes=memory, max_allocation_bytes=memory, memory_bandwidth=1e10,
              launch_seconds=1e-5)
for dtype, gflops in GFLOPS.items():
    for form in ("nn", "nt", "tn"):
        member["gemm"][dtype][form] = curve(gflops)
cluster.update(link={"latency": 1e-6, "bandwidth": 2e9}, members=[member] * members)
json.dump(cluster, sys.stdout)
