#!/usr/bin/env python3
"""Two hosts and networks of several speeds: results stay right, the plan changes with the network, and what it predicts
comes about. Usage: networks.py TESSERA. Prints a table. Exit code: 0, 1 = not so, 77 = skipped."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import hosts

HOSTS = 2
NETWORKS = {"unshaped": None, "1 Gbit/s": "1gbit", "100 Mbit/s": "100mbit", "20 Mbit/s": "20mbit"}
FAST, SLOW = "unshaped", "20 Mbit/s"
# Worth two ranks only if the network is good: the reduction of y costs the same whatever h is.
FEWER = "ffn 512 512 80"
# Worth other layouts: on a slow network each rank computes da itself rather than gather it.
LAYOUT = "gemm 512 64 512 --backward --replicate auto"
# With as little memory as will do: one device cannot hold it, so what has to be sent is sent on any network. At
# 1 Gbit/s that takes about half as long as the products, at 100 Mbit/s several times as long.
TIMED = "ffn 256 1024 256"
REPETITIONS, STEPS = 3, 7
# Predicted over measured seconds of a step, medians. Two hosts share this machine with whatever else runs on it.
BAND = {"1 Gbit/s": (0.5, 2.0), "100 Mbit/s": (0.5, 2.0)}


class Failed(Exception):
    pass


class Job:
    """Calls the program, on one host or on all."""

    def __init__(self, tessera, folder):
        self.tessera, self.folder = tessera, folder

    def call(self, arguments, ranks=0):
        # Measurements are kept by host and device: another network would go unnoticed.
        with tempfile.TemporaryDirectory(dir=self.folder) as cache:
            done = subprocess.run(["timeout", "-k", "2", "60", *(hosts.mpiexec(ranks) if ranks else []), self.tessera, *arguments],
                                  env={**os.environ, **hosts.OVER_TCP, "TESSERA_CACHE": cache}, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True)
        if done.returncode:
            raise Failed("tessera %s: exit code %d: %s" % (" ".join(arguments), done.returncode, done.stderr))
        return done.stdout

    def profile(self, label):
        """The cluster behind a network of this speed: its file, and the bandwidth between its members."""
        path = os.path.join(self.folder, label.replace("/", " per ") + ".json")
        hosts.shape(HOSTS, NETWORKS[label])
        self.call(["profile", "--device", "host", "-o", path], ranks=HOSTS)
        with open(path) as file:
            return path, json.load(file)["network"]["bandwidth"]

    def plan(self, workload, cluster):
        return json.loads(self.call(["plan", *workload.split(), "--cluster", cluster, "--json"]))

    def run(self, workload, label, *more):
        """Measures the devices, plans, runs and checks."""
        hosts.shape(HOSTS, NETWORKS[label])
        before = hosts.bytes_sent(2)
        done = json.loads(self.call(["run", *workload.split(), "--device", "host", "--check", "--json", *more], ranks=HOSTS))
        crossed, sent = hosts.bytes_sent(2) - before, done["ranks"][1]["bytes_sent"]
        if not done["check"]["passed"]:
            raise Failed("%s: %s is wrong" % (label, workload))
        if crossed < sent:
            raise Failed("%s: %s: %d bytes were sent, but only %d crossed the network" % (label, workload, sent, crossed))
        return done

    def least_memory(self, workload, cluster):
        """Per device, such that there is a plan, and a little more."""
        low, high = 0, 100 * 10**6
        while high - low > high // 50:
            middle = (low + high) // 2
            try:
                self.plan("%s --device-memory %dB" % (workload, middle), cluster)
                high = middle
            except Failed:
                low = middle
        return "%d" % high


def ranks_used(plan):
    return sum(rank["share"] > 0 for rank in plan["ranks"])


def layouts(plan):
    """What becomes of each product, and what is sent."""
    return [step["layout"] if step["op"] == "matmul" else step["collective"]
            for step in plan["steps"] if step["op"] == "matmul" or step.get("collective")]


def show_plans(job):
    """The same workloads on every network; returns the plans, and the last cluster."""
    plans = {}
    print("%-11s %10s   %-34s %s" % ("network", "bandwidth", FEWER, LAYOUT))
    for label in NETWORKS:
        cluster, bandwidth = job.profile(label)
        plans[label] = fewer, layout = job.plan(FEWER, cluster), job.plan(LAYOUT, cluster)
        print("%-11s %5.1f MB/s   %d ranks, %-26s %s" %
              (label, bandwidth / 1e6, ranks_used(fewer), "%.1f ms" % (1e3 * fewer["predicted_seconds"]),
               " ".join(layouts(layout))), flush=True)
    return plans, cluster


def compare_plans(plans, failures):
    (fast_fewer, fast_layout), (slow_fewer, slow_layout) = plans[FAST], plans[SLOW]
    if (ranks_used(fast_fewer), ranks_used(slow_fewer)) != (2, 1):
        failures.append("%s: the network does not decide between two ranks and one" % FEWER)
    if layouts(fast_layout) == layouts(slow_layout):
        failures.append("%s: the same layouts on every network" % LAYOUT)


def check_prediction(job, cluster, failures):
    """Networks take turns, so that what else runs here falls on all of them."""
    memory = job.least_memory(TIMED, cluster)
    runs = {label: [] for label in BAND}
    for _ in range(REPETITIONS):
        for label in BAND:
            runs[label].append(job.run(TIMED, label, "--device-memory", memory, "--steps", str(STEPS)))
    for label, (low, high) in BAND.items():
        ratio = statistics.median(run["predicted_seconds"] / run["measured_seconds"] for run in runs[label])
        print("%s, %s: predicted %s ms, measured %s ms; median ratio %.2f" %
              (label, TIMED, *(", ".join("%.1f" % (1e3 * run[which + "_seconds"]) for run in runs[label])
                               for which in ("predicted", "measured")), ratio), flush=True)
        if not low <= ratio <= high:
            failures.append("%s: %s: predicted is %.2f of measured, expected %g to %g" % (label, TIMED, ratio, low, high))


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: networks.py TESSERA")
    hosts.enter(HOSTS)
    if not hosts.can_shape():
        hosts.skip("tc cannot shape here")
    folder, failures = tempfile.mkdtemp(), []
    os.environ["TESSERA_TUNING"] = os.path.join(folder, "tuning")
    try:
        job = Job(sys.argv[1], folder)
        plans, cluster = show_plans(job)
        compare_plans(plans, failures)
        for label in (FAST, SLOW):
            for workload in (FEWER, LAYOUT):
                job.run(workload, label, "--steps", "2")
        check_prediction(job, cluster, failures)
    except Failed as failure:
        failures.append(str(failure))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for failure in failures:
        print("FAILED: " + failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
