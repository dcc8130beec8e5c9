#!/usr/bin/env python3
"""What a second rank brings: two ranks of one core each against one such rank, through `tessera run`.

Runs alternate; each prints its median step, and what counts is the median of the pairs' ratios. Also prints how
long planning takes. Exit code: 0 goals reached, 1 not, 2 wrong usage, 77 skipped (no MPI of MPICH's family, one
core, no PoCL)."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mpi"))
from job import find_mpiexec, skip  # noqa: E402

RATIO_GOAL = 1.85
PLANNING_GOAL = 0.010
# The goal is the first one's, the others are reported.
WORKLOADS = ["ffn 512 2048 8192", "gemm 512 2048 8192", "gemm 64 2048 2048"]
PLANNED = WORKLOADS + ["gemm %d %d %d" % (n, n, n) for n in (1024, 2048, 4096)]


class Failed(Exception):
    pass


def document(command):
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise Failed("%s: %s" % (" ".join(command), done.stderr.strip() or "exit code %d" % done.returncode))
    if "error" in answer:
        raise Failed("%s: %s" % (" ".join(command), answer["error"]["message"]))
    return answer


class Ranks:
    """Starts ranks of one core each."""

    def __init__(self, tessera, device, equal, folder):
        self.tessera, self.device, self.equal, self.folder = tessera, device, equal, folder
        self.mpiexec = find_mpiexec()

    def tool(self, ranks, command, *arguments):
        line = [self.mpiexec, "-bind-to", "hwthread", "-n", str(ranks), self.tessera, command, *arguments]
        return document(line + ["--device", self.device, "--json"])

    def plan(self, workload, cluster):
        line = [self.tessera, "plan", *workload.split(), "--replicate", "never", "--cluster", cluster]
        name = os.path.join(self.folder, workload.replace(" ", "_") + ".plan")
        return document(line + ["--json", "-o", name]), name

    def profile(self):
        """Measures two ranks at once; gives the cluster's file."""
        name = os.path.join(self.folder, "cluster.json")
        cluster = self.tool(2, "profile")
        if self.equal:
            first, second = (member["gemm"] for member in cluster["members"])
            second.update(first)
        with open(name, "w") as file:
            json.dump(cluster, file)
        return name

    def run(self, ranks, workload, steps, plan=None):
        how = ["--plan", plan] if plan else ["--replicate", "never"]
        return self.tool(ranks, "run", *workload.split(), *how, "--steps", str(steps))


def measure(ranks, workload, options, cluster):
    """Pairs of one rank and two."""
    plan = ranks.plan(workload, cluster)[1]
    ratios, one, two = [], [], []
    for turn in range(options.rounds):
        seconds = {}
        for count in (1, 2) if turn % 2 else (2, 1):
            report = ranks.run(count, workload, options.steps, plan if count == 2 else None)
            if report["transport"] == "sim":
                skip("tessera was built without MPI")
            seconds[count] = report["measured_seconds"]
            if count == 2:
                shares = [rank["share"] for rank in report["ranks"]]
        one.append(seconds[1])
        two.append(seconds[2])
        ratios.append(seconds[1] / seconds[2])
    return {"workload": workload, "seconds_1": statistics.median(one), "seconds_2": statistics.median(two),
            "ratio": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios),
            "shares": shares}


def print_row(row):
    shares = " : ".join("%.0f %%" % (100 * share) for share in row["shares"])
    print("%-22s %9.1f ms %9.1f ms %7.2f  %.2f - %.2f  %s" % (
        row["workload"], 1e3 * row["seconds_1"], 1e3 * row["seconds_2"], row["ratio"], row["ratio_min"],
        row["ratio_max"], shares), flush=True)


def bench(options, folder):
    ranks = Ranks(options.tessera, options.device, options.equal, folder)
    rows = []
    cluster = ranks.profile()
    planning = {workload: ranks.plan(workload, cluster)[0]["planning_seconds"] for workload in PLANNED}
    if not options.json:
        print("workload                    1 rank      2 ranks   ratio  range        shares")
    for workload in WORKLOADS:
        rows.append(measure(ranks, workload, options, cluster))
        if not options.json:
            print_row(rows[-1])
    slowest = max(planning, key=planning.get)
    faster, fast = rows[0]["ratio"] >= RATIO_GOAL, planning[slowest] < PLANNING_GOAL
    if options.json:
        print(json.dumps({"schema": "tessera.bench_ranks/1", "goal": RATIO_GOAL, "reached": faster, "runs": rows,
                          "planning_goal": PLANNING_GOAL, "planning_reached": fast, "planning": planning}, indent=1))
    else:
        print("goal: %s on two ranks at least %.1f times as fast as on one: %s (%.2f)" % (
            WORKLOADS[0], RATIO_GOAL, "reached" if faster else "NOT reached", rows[0]["ratio"]))
        print("goal: planning below %.0f ms: %s (slowest %.2f ms, %s)" % (
            1e3 * PLANNING_GOAL, "reached" if fast else "NOT reached", 1e3 * planning[slowest], slowest))
    return 0 if faster and fast else 1


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tessera", help="the program")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of runs (7)")
    parser.add_argument("--steps", type=int, default=6, help="steps of a run; the first does not count (6)")
    parser.add_argument("--device", default="pocl", help="the device of both ranks (pocl)")
    parser.add_argument("--equal", action="store_true",
                        help="give both ranks the first one's measured speed: where the cores are equal but not idle")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main():
    options = read_options()
    if len(os.sched_getaffinity(0)) < 2:
        skip("two cores wanted, one may be used")
    # Each rank is one core; the caches are those of this run alone, so that the profile is of this minute.
    os.environ["POCL_MAX_PTHREAD_COUNT"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TESSERA_CACHE"] = folder
        try:
            devices = document([options.tessera, "devices", "--json"])["devices"]
            if options.device == "pocl" and not any("Portable" in device["platform"] for device in devices):
                skip("no PoCL")
            return bench(options, folder)
        except Failed as failure:
            print("bench_ranks: %s" % failure, file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
