#!/usr/bin/env python3
"""Two hosts of one core each, and a network so slow that what they send takes half as long as what they compute: how
much of it is hidden behind the device's work. Usage: overlap.py TESSERA [WORKLOAD ...]. Prints a table. Exit code:
0 = the goal is reached, 1 = not, 77 = skipped."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import hosts

HOSTS, REPETITIONS, STEPS = 2, 3, 8
WORKLOAD = "ffn 512 2048 8192 --backward"
GOAL = 0.8


def run(tessera, workload, cache, *more):
    """One core for each rank; POCL_MAX_PTHREAD_COUNT says the same to the device."""
    words = ["run", *workload, "--replicate", "never", "--device", "pocl", "--steps", str(STEPS), "--json", *more]
    pinned = ["sh", "-c", 'exec taskset -c "$PMI_RANK" "$0" "$@"', tessera, *words]
    done = subprocess.run(["timeout", "-k", "2", "300", *hosts.mpiexec(HOSTS), *pinned],
                          env={**os.environ, **hosts.OVER_TCP, "TESSERA_CACHE": cache, "POCL_MAX_PTHREAD_COUNT": "1"},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.exit("tessera %s: exit code %d: %s" % (" ".join(words), done.returncode, done.stderr))
    return json.loads(done.stdout)


def forget_links(cache):
    """The program keeps what it measured; programs that are compiled may stay."""
    for name in os.listdir(cache):
        if name.endswith(".json"):
            os.unlink(os.path.join(cache, name))


def half_as_long(first):
    """Bits per second at which the bytes of a step take half of its computing time."""
    rank = max(first["ranks"], key=lambda each: each["bytes_sent"])
    return int(8 * rank["bytes_sent"] / (0.5 * rank["compute_seconds"]))


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: overlap.py TESSERA [WORKLOAD ...]")
    tessera, workload = os.path.abspath(sys.argv[1]), sys.argv[2:] or WORKLOAD.split()
    if (os.cpu_count() or 1) < HOSTS:
        hosts.skip("needs a core for each of %d hosts" % HOSTS)
    hosts.enter(HOSTS)
    if not hosts.can_shape():
        hosts.skip("tc cannot shape here")
    cache, hidden = tempfile.mkdtemp(), {}
    try:
        rate = half_as_long(run(tessera, workload, cache))
        print("%s on %d hosts of one core, network at %.0f Mbit/s" % (" ".join(workload), HOSTS, rate / 1e6), flush=True)
        print("%-12s %9s %9s %14s %9s %8s" % ("chunks", "step ms", "predicted", "in collectives", "exposed", "hidden"))
        for _ in range(REPETITIONS):
            for label, more in {"as planned": [], "none": ["--chunks", "1"]}.items():
                forget_links(cache)
                hosts.shape(HOSTS, "%dbit" % rate)
                done = run(tessera, workload, cache, *more)
                rank = max(done["ranks"], key=lambda each: each["comm_seconds"])
                hidden.setdefault(label, []).append(done["hidden_share"])
                print("%-12s %9.1f %9.1f %14.1f %9.1f %7.1f%%" %
                      (label, 1e3 * done["measured_seconds"], 1e3 * done["predicted_seconds"], 1e3 * rank["comm_seconds"],
                       1e3 * rank["exposed_seconds"], 100 * done["hidden_share"]), flush=True)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    share = statistics.median(hidden["as planned"])
    print("hidden, median: %.1f %%; goal: %.0f %%: %s" %
          (100 * share, 100 * GOAL, "reached" if share >= GOAL else "NOT reached"))
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
