#!/usr/bin/env python3
"""Faults of real processes, through `tessera run`: ranks that are killed at random moments, stopped, started late,
or have no shared memory left. Usage: faults.py TESSERA [--kills N] [--seed N].

A job that says it succeeded has the right result, bit by bit. One that failed ended in time, each survivor named the
rank it missed, and nothing stays behind. Exit code: 0, 1 = not so, 77 = skipped."""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from job import Job, find_mpiexec, skip

DEADLINE = 1  # seconds
LATEST = DEADLINE + 5
RUN_SECONDS = 1  # of steps, in a run without a fault
WORKLOAD = ["ffn", "48", "192", "384"]


class Case:
    """Runs of one number of ranks, beside a run without a fault: same plan, same bits."""

    def __init__(self, tessera, ranks, folder):
        self.tessera, self.count, self.folder = tessera, ranks, folder
        self.work = os.path.join(folder, "ranks%d" % ranks)
        os.mkdir(self.work)
        self.plan, self.output = os.path.join(self.work, "plan.json"), os.path.join(self.work, "output")
        self.tool(["plan", *WORKLOAD, "-n", str(ranks), "--device", "host", "-o", self.plan])
        one = json.loads(self.tool(self.arguments(20) + ["--json"]))
        self.steps = max(2, int(RUN_SECONDS / one["measured_seconds"]))
        begun = time.monotonic()
        self.tool(self.arguments(self.steps))
        self.seconds = time.monotonic() - begun
        self.right = self.take_output()

    def arguments(self, steps):
        return ["run", *WORKLOAD, "--device", "host", "--plan", self.plan, "--deadline", str(DEADLINE), "-o", self.output,
                "--steps", str(steps)]

    def tool(self, arguments):
        more = ["-n", str(self.count)] if arguments[0] == "run" else []
        done = subprocess.run(["timeout", "-k", "2", "60", self.tessera] + arguments + more, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if done.returncode:
            skip("a run without a fault fails: " + done.stderr.strip())
        return done.stdout

    def take_output(self):
        if not os.path.exists(self.output):
            return None
        with open(self.output, "rb") as file:
            content = file.read()
        os.remove(self.output)
        return content

    def start(self, steps, prefix=()):
        return Job([*prefix, self.tessera, *self.arguments(steps), "-n", str(self.count)], self.work)

    def check(self, job):
        """What holds of every job that has ended; a list of complaints."""
        output, wrong = self.take_output(), []
        if job.hung:
            wrong.append("it hung")
        if job.code == 0 and output != self.right:
            wrong.append("it succeeded with %s result" % ("a wrong" if output else "no"))
        if output not in (None, self.right):
            wrong.append("a wrong output file is left")
        left = job.leftovers()
        if left:
            wrong.append("ranks %s are left behind" % left)
        return wrong

    def check_loss(self, job, missing, since):
        """A rank is gone since then: the kind of end, and a list of complaints."""
        job.wait()
        waited = time.monotonic() - since
        wrong = self.check(job)
        if job.code == 0:
            return "done before", wrong
        if waited > LATEST:
            wrong.append("it took %.1f s, the limit is %g s" % (waited, LATEST))
        names = [rank for rank in range(self.count) if job.names(rank, missing)]
        if len(names) == self.count - 1:
            return "named by all", wrong
        dead = [rank for rank in range(self.count) if rank != missing and job.was_killed(rank)]
        if dead:
            return "not named", wrong + ["ranks %s died with rank %d" % (dead, missing)]
        # Who is still in MPI_Init, or has done its work, cannot say anything: the dead rank's guard speaks and ends all.
        if not names and job.was_killed(missing) and waited > DEADLINE + 2.5:
            return "named by its guard", wrong
        return "not named", wrong + ["of the survivors only %s name rank %d" % (names, missing)]


class Report:
    def __init__(self):
        self.failures = 0

    def line(self, title, wrong, job=None):
        print("%-64s %s" % (title, "; ".join(wrong) if wrong else "ok"), flush=True)
        if wrong:
            self.failures += 1
            if job:
                print("    exit code %d, it said:\n%s" % (job.code, job.said))


def kill_at_random(case, chance, report):
    """A rank is killed at any moment from its start to beyond its end."""
    victim, moment = chance.randrange(case.count), chance.uniform(0, case.seconds)
    job = case.start(case.steps)
    ranks = job.ranks(case.count, guarded=True)
    time.sleep(max(0, job.begun + moment - time.monotonic()))
    since = time.monotonic()
    hit = victim in ranks and ranks[victim].send(signal.SIGKILL)
    kind, wrong = case.check_loss(job, victim, since)
    if not hit and job.code != 0:
        wrong.append("it failed although nobody was killed")
    report.line("kill rank %d of %d after %.2f s: %s, %.1f s later" %
                (victim, case.count, moment, kind, job.seconds - (since - job.begun)), wrong, job)
    return kind


def stopped(case, seconds, report):
    """A rank is stopped while the steps run, and goes on after so many seconds; None = never."""
    victim = case.count - 1
    job = case.start(case.steps * 4 if seconds else case.steps * 1000)
    ranks = job.ranks(case.count, guarded=True)
    time.sleep(max(0, job.begun + case.seconds + RUN_SECONDS - time.monotonic()))
    since = time.monotonic()
    hit = victim in ranks and ranks[victim].send(signal.SIGSTOP)
    if seconds is None:
        kind, wrong = case.check_loss(job, victim, since)
        title = "stop rank %d of %d for good: %s, %.1f s later" % (
            victim, case.count, kind, job.seconds - (since - job.begun))
    else:
        title = "stop rank %d of %d for %.2g s" % (victim, case.count, seconds)
        time.sleep(seconds)
        hit = hit and ranks[victim].send(signal.SIGCONT)
        wrong = ["the job failed"] if job.wait() else []
        wrong += case.check(job)
    report.line(title, wrong if hit else wrong + ["rank %d was not there to be stopped" % victim], job)


def late(case, seconds, report):
    """The last rank starts later than the deadline: before MPI_Init is over nobody can know, and all wait."""
    run = [case.tessera] + case.arguments(case.steps)
    job = Job([find_mpiexec(), "-disable-auto-cleanup", "-n", str(case.count - 1), *run, ":", "-n", "1", "sh", "-c",
               "sleep %g; exec \"$0\" \"$@\"" % seconds, *run], case.work)
    job.ranks(case.count, guarded=False)
    job.wait()
    wrong = case.check(job) + ([] if job.code == 0 else ["the job failed"])
    report.line("the last of %d ranks starts %g s late" % (case.count, seconds), wrong, job)


def full_shared_memory(case, left, report):
    """/dev/shm of the job's own, with so many bytes left. MPI itself needs it: then the job fails, in time."""
    title = "/dev/shm has %s bytes left" % left
    script = ("mount -t tmpfs -o size=16m tessera /dev/shm 2>/dev/null || exit 77; head -c $((16 * 1024 * 1024 - %d)) /dev/zero "
              ">/dev/shm/full; exec \"$0\" \"$@\"" % left)
    private = ["unshare", "--mount"] + (["--map-root-user"] if os.getuid() else [])
    if not shutil.which("unshare") or subprocess.run([*private, "sh", "-c", script, "true"], stderr=subprocess.DEVNULL,
                                                     stdin=subprocess.DEVNULL).returncode:
        return print("%-64s %s" % (title, "skipped: no right to mount"))
    job = case.start(case.steps, [*private, "sh", "-c", script])
    job.ranks(case.count, guarded=True)
    job.wait()
    wrong = case.check(job)
    if job.code and job.seconds > LATEST + 2:
        wrong.append("it took %.1f s to fail" % job.seconds)
    if job.code and "/dev/shm" not in job.said:
        wrong.append("it does not say why")
    return report.line("%s: %s" % (title, "done" if job.code == 0 else "failed after %.1f s" % job.seconds), wrong, job)


def random_kills(cases, kills, chance, report):
    kinds = {}
    for i in range(kills):
        kind = kill_at_random(cases[i % len(cases)], chance, report)
        kinds[kind] = kinds.get(kind, 0) + 1
    print("%d kills: %s" % (kills, ", ".join("%d %s" % (n, kind) for kind, n in sorted(kinds.items()))))
    if kills >= 10 and kinds.get("named by all", 0) < kills / 4:
        report.line("moments of the kills", ["most were no test: too early, or after the end"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tessera")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    find_mpiexec()
    folder = tempfile.mkdtemp()
    os.environ.update(TESSERA_CACHE=os.path.join(folder, "cache"), TESSERA_TUNING=os.path.join(folder, "tuning"))
    report = Report()
    print("seed %d, deadline %g s" % (options.seed, DEADLINE))
    try:
        cases = [Case(options.tessera, ranks, folder) for ranks in (2, 3, 4)]
        random_kills(cases, options.kills, random.Random(options.seed), report)
        stopped(cases[0], DEADLINE / 3, report)
        for case in cases[:2]:
            stopped(case, None, report)
        late(cases[1], 2 * DEADLINE, report)
        for left in (0, 1 << 20):
            full_shared_memory(cases[0], left, report)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("%d failures" % report.failures)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
