#!/usr/bin/env python3
"""Three hosts, of which the last one's link is cut while all compute: in time each rank names one it misses, and ends.
A link that is mended within the deadline does no harm. A rank that is killed on another host ends the job as well.
Usage: cut.py TESSERA. Exit code: 0, 1 = not so, 77 = skipped."""
import os
import shutil
import signal
import sys
import tempfile
import time

import hosts
from job import Job

HOSTS, DEADLINE = 3, 3
LATEST = DEADLINE + 5
LOST = HOSTS - 1


class Case:
    def __init__(self, tessera, folder):
        self.tessera, self.folder = tessera, folder
        self.env = {**os.environ, **hosts.OVER_TCP, "TESSERA_CACHE": os.path.join(folder, "cache")}

    def start(self, steps, guarded=False):
        # What a rank says behind a cut link reaches nobody: each writes to a file.
        say = 'exec "$0" "$@" 2>"%s/rank$PMI_RANK"' % self.folder
        return Job(hosts.mpiexec(HOSTS, "sh", "-c", say, self.tessera, "run", "ffn", "96", "256", "256", "--device", "host",
                                 "--deadline", str(DEADLINE), "--steps", str(steps), "--check"), self.folder, limit=30,
                   env={**self.env, "TESSERA_GUARD_RANK": str(DEADLINE)} if guarded else self.env)

    def said(self, rank):
        with open(os.path.join(self.folder, "rank%d" % rank)) as file:
            return file.read()

    def start_and_cut(self, steps):
        """The job and its ranks once they compute; the link is cut."""
        job = self.start(steps)
        ranks = self.ranks_at_work(job, False)
        hosts.cut(HOSTS)
        return job, ranks

    def ranks_at_work(self, job, guarded):
        ranks = job.ranks(HOSTS, guarded)
        sent = hosts.bytes_sent(HOSTS)
        while job.process.poll() is None and hosts.bytes_sent(HOSTS) < sent + 10**7 and job.age() < 15:
            time.sleep(0.1)
        return ranks

    def cut_for_good(self, failures):
        job, ranks = self.start_and_cut(10**6)
        since = time.monotonic()
        ends = {}
        while len(ends) < len(ranks) and time.monotonic() < since + LATEST + 2:
            for rank, process in ranks.items():
                if rank not in ends and not process.lives():
                    ends[rank] = time.monotonic() - since
            time.sleep(0.05)
        hosts.mend(HOSTS)
        left, code = job.leftovers(0), job.wait()
        print("cut: ranks ended after %s s" % ", ".join("%d: %.1f" % end for end in sorted(ends.items())), flush=True)
        if left or not ends or max(ends.values()) > LATEST:
            failures.append("ranks %s were still there %g s after the cut" % (left or "some", LATEST))
        if code == 0:
            failures.append("a job that lost a host succeeded")
        for rank in range(HOSTS):
            missing = range(LOST) if rank == LOST else [LOST]
            if not any("rank %d: rank %d gave no sign" % (rank, other) in self.said(rank) for other in missing):
                failures.append("rank %d names nobody it misses: %s" % (rank, self.said(rank)))

    def mended(self, failures):
        job, _ = self.start_and_cut(150)
        time.sleep(DEADLINE / 3)
        hosts.mend(HOSTS)
        code = job.wait()
        print("cut for %g s: exit code %d after %.1f s" % (DEADLINE / 3, code, job.seconds), flush=True)
        if code or "check passed" not in job.said:
            failures.append("a cut of %g s ended the job: %s %s" % (DEADLINE / 3, job.said, self.said(0)))

    def killed(self, failures):
        job = self.start(10**6, guarded=True)
        ranks = self.ranks_at_work(job, True)
        since = time.monotonic()
        hit = LOST in ranks and ranks[LOST].send(signal.SIGKILL)
        code = job.wait()
        seconds = time.monotonic() - since
        naming = [rank for rank in range(LOST) if "rank %d gave no sign" % LOST in self.said(rank)]
        print("killed: exit code %d after %.1f s; named by ranks %s" % (code, seconds, naming), flush=True)
        if not hit or code == 0 or seconds > LATEST or job.leftovers():
            failures.append("a killed rank: exit code %d after %.1f s" % (code, seconds))
        if naming != list(range(LOST)):
            failures.append("a killed rank is named by ranks %s alone" % naming)
        if "rank %d was ended by signal 9" % LOST not in job.said + self.said(LOST):
            failures.append("nobody names the killed rank: " + job.said)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: cut.py TESSERA")
    hosts.enter(HOSTS)
    folder, failures = tempfile.mkdtemp(), []
    os.environ["TESSERA_TUNING"] = os.path.join(folder, "tuning")
    try:
        case = Case(sys.argv[1], folder)
        case.mended(failures)
        case.killed(failures)
        case.cut_for_good(failures)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for failure in failures:
        print("FAILED: " + failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
