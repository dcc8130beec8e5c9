#!/usr/bin/env python3
"""Print a cluster of N equal CPU devices of BYTES bytes each: make_cluster.py N BYTES."""
import json
import sys

SIDES, ROWS = (256, 1024, 4096), (16, 128, 512)


def curve(gflops):
    return [[m, side, 2 * m * side * side / (gflops * 1e9) + 1e-5] for m in ROWS for side in SIDES]


def gemm(family, panel, gflops):
    facts = {"family": family, "tile_m": 6, "tile_n": 16, "panel": panel, "k_block": 256, "panels_per_group": 1}
    return {**facts, "nn": curve(gflops), "nt": curve(gflops), "tn": curve(gflops)}


def member(memory):
    return {"name": "test device", "platform": "Portable Computing Language", "backend": "cpu", "driver": "1",
            "host": "test", "kind": "cpu", "unified_memory": True, "estimated": True, "memory_bytes": memory,
            "max_allocation_bytes": max(memory // 4, 1), "memory_bandwidth": 1e10, "launch_seconds": 1e-5,
            "gemm": {"f32": gemm("panel", 16, 50), "f64": gemm("reference", 0, 5)}}


json.dump({"schema": "tessera.cluster/1", "link": {"latency": 1e-6, "bandwidth": 2e9},
           "members": [member(int(sys.argv[2])) for _ in range(int(sys.argv[1]))]}, sys.stdout)
